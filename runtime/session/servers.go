package session

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// MCP servers come in the forms that editors and agents write them in. In the list
// mcpServers they become the protocol's own, in _meta's object mcp those of a .mcp.json
// file. Members that no form knows stay.

// Normal returns the params of a request that sets up a session with its MCP servers in
// these forms; params themselves if they are so already.
func Normal(params json.RawMessage) (json.RawMessage, *acp.Error) {
	list, given := rawjson.Member(params, "mcpServers")
	if given && string(list) != "[]" && string(list) != "null" {
		out, err := normalList(list)
		if err != nil {
			return nil, err
		}
		if !sameJSON(list, out) {
			params = rawjson.SetMember(params, out, "mcpServers")
		}
	}
	named, err := namedServers(params)
	if err != nil || len(named) == 0 {
		return params, err
	}
	was, _ := rawjson.Member(params, "_meta", acp.MetaKey, "mcp")
	out := map[string]server{}
	for name, raw := range named {
		s, err := readServer(raw)
		if err != nil {
			return nil, acp.Errorf(acp.CodeInvalidParams, "_meta mcp.%s: %v", name, err)
		}
		out[name] = s
	}
	if b, err := schema.Encode(out); err == nil && !sameJSON(was, b) {
		params = rawjson.SetMember(params, b, "_meta", acp.MetaKey, "mcp")
	}
	return params, nil
}

// ServersFor returns the params with the servers of _meta's mcp in mcpServers where the
// agent's adapter does not take mcp itself.
func ServersFor(info adapters.Info, params json.RawMessage) json.RawMessage {
	if slices.Contains(info.Takes, "mcp") {
		return params
	}
	named, err := namedServers(params)
	if err != nil || len(named) == 0 {
		return params
	}
	raw, _ := rawjson.Member(params, "mcpServers")
	list, taken := []json.RawMessage{}, map[string]bool{}
	for _, one := range rawjson.Elements(raw) {
		list, taken[rawjson.MemberString(one, "name")] = append(list, one), true
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		s, err := readServer(named[name])
		if err != nil || taken[name] { // those of the list win
			continue
		}
		if b, err := schema.Encode(s.listed(name)); err == nil {
			list = append(list, b)
		}
	}
	b, encodeErr := schema.Encode(list)
	if encodeErr != nil {
		return params
	}
	return rawjson.DeleteMember(rawjson.SetMember(params, b, "mcpServers"), "_meta", acp.MetaKey, "mcp")
}

// untimed lists the servers with a timeoutMs that an agent's adapter does not take.
func untimed(info adapters.Info, params json.RawMessage) []Unsupported {
	if slices.Contains(info.Takes, "timeoutMs") {
		return nil
	}
	var out []Unsupported
	say := func(field string, one json.RawMessage) {
		if _, given := rawjson.Member(one, "timeoutMs"); given {
			out = append(out, Unsupported{field + ".timeoutMs", "agent " + info.ID + " has no such limit for one server"})
		}
	}
	list, _ := rawjson.Member(params, "mcpServers")
	for _, one := range rawjson.Elements(list) {
		say("mcpServers."+rawjson.MemberString(one, "name"), one)
	}
	named, _ := namedServers(params)
	for _, name := range slices.Sorted(maps.Keys(named)) {
		say("mcp."+name, named[name])
	}
	return out
}

// namedServers returns the servers of _meta's mcp by name.
func namedServers(params json.RawMessage) (map[string]json.RawMessage, *acp.Error) {
	raw, given := rawjson.Member(params, "_meta", acp.MetaKey, "mcp")
	if !given || string(raw) == "null" {
		return nil, nil
	}
	if inner, ok := rawjson.Member(raw, "mcpServers"); ok {
		raw = inner
	}
	var named map[string]json.RawMessage
	if json.Unmarshal(raw, &named) != nil {
		return nil, acp.Errorf(acp.CodeInvalidParams, `_meta["%s"].mcp must be an object of servers by name, as in a .mcp.json file`, acp.MetaKey)
	}
	return named, nil
}

// normalList returns the list, which may be an object by name, in the protocol's form.
func normalList(list json.RawMessage) (json.RawMessage, *acp.Error) {
	var given []json.RawMessage
	if list[0] == '{' {
		var named map[string]json.RawMessage
		_ = json.Unmarshal(list, &named) // it is an object
		for _, name := range slices.Sorted(maps.Keys(named)) {
			given = append(given, rawjson.SetMember(named[name], rawjson.AppendQuoted(nil, name), "name"))
		}
	} else if json.Unmarshal(list, &given) != nil {
		return nil, acp.Errorf(acp.CodeInvalidParams, "mcpServers must be a list of MCP servers")
	}
	out := make([]json.RawMessage, 0, len(given))
	for i, raw := range given {
		name := rawjson.MemberString(raw, "name")
		if name == "" {
			return nil, acp.Errorf(acp.CodeInvalidParams, "mcpServers[%d] has no name", i)
		}
		switch rawjson.MemberString(raw, "type") {
		case "", "stdio", "local", "http", "sse", "remote", "streamable-http", "streamableHttp", "streamable_http":
		default: // of a kind that only the agent may know
			out = append(out, raw)
			continue
		}
		s, err := readServer(raw)
		if err != nil {
			return nil, acp.Errorf(acp.CodeInvalidParams, "mcpServers: %s: %v", name, err)
		}
		b, encodeErr := schema.Encode(s.listed(name))
		if encodeErr != nil {
			return nil, acp.Errorf(acp.CodeInvalidParams, "mcpServers: %s: %v", name, encodeErr)
		}
		out = append(out, b)
	}
	b, err := schema.Encode(out)
	if err != nil {
		return nil, acp.Errorf(acp.CodeInvalidParams, "mcpServers: %v", err)
	}
	return b, nil
}

// server is an MCP server in the form of a .mcp.json file.
type server map[string]json.RawMessage

// readServer reads any of the forms.
func readServer(raw json.RawMessage) (server, error) {
	var s server
	if json.Unmarshal(raw, &s) != nil || s == nil {
		return nil, fmt.Errorf("a server is an object with a command or a url")
	}
	kind := textOf(s["type"])
	words, err := commandOf(s["command"], kind == "local" && s["args"] == nil)
	if err != nil {
		return nil, err
	}
	switch {
	case kind == "remote", strings.HasPrefix(kind, "streamable"):
		kind, s["type"] = "http", json.RawMessage(`"http"`)
	case kind == "local":
		kind, s["type"] = "stdio", json.RawMessage(`"stdio"`)
	case kind == "" && len(words) == 0 && s["url"] != nil:
		kind = "http"
	}
	if kind == "http" || kind == "sse" {
		if textOf(s["url"]) == "" {
			return nil, fmt.Errorf("a server of type %s needs a url", kind)
		}
		return s, s.pairs("headers", "headers")
	}
	if len(words) == 0 {
		return nil, fmt.Errorf("a server that is started here needs a command")
	}
	s["command"] = rawjson.AppendQuoted(nil, words[0])
	if len(words) > 1 {
		var args []string
		if s["args"] != nil && json.Unmarshal(s["args"], &args) != nil {
			return nil, fmt.Errorf("args must be a list of texts")
		}
		b, err := schema.Encode(append(words[1:], args...))
		if err != nil {
			return nil, err
		}
		s["args"] = b
	}
	if s["environment"] != nil {
		if err := s.pairs("environment", "env"); err != nil {
			return nil, err
		}
		delete(s, "environment")
		return s, nil
	}
	return s, s.pairs("env", "env")
}

// commandOf reads a command: a program, a list that begins with it, or a line.
func commandOf(raw json.RawMessage, line bool) ([]string, error) {
	if raw == nil {
		return nil, nil
	}
	var words []string
	if json.Unmarshal(raw, &words) == nil {
		return words, nil
	}
	var text string
	if json.Unmarshal(raw, &text) != nil {
		return nil, fmt.Errorf("command must be a text, or a list of texts")
	}
	if line {
		return strings.Fields(text), nil
	}
	return []string{text}, nil
}

// pairs has a list of names and values as an object, under a name.
func (s server) pairs(from, to string) error {
	raw := s[from]
	if raw == nil || string(raw) == "null" {
		return nil
	}
	var list []struct{ Name, Value string }
	if raw[0] != '[' {
		s[to] = raw
		return nil
	}
	if json.Unmarshal(raw, &list) != nil {
		return fmt.Errorf("%s must be an object, or a list of name and value", from)
	}
	object := map[string]string{}
	for _, one := range list {
		object[one.Name] = one.Value
	}
	b, err := schema.Encode(object)
	if err != nil {
		return err
	}
	s[to] = b
	return nil
}

// listed returns the server in the protocol's form.
func (s server) listed(name string) map[string]json.RawMessage {
	out := maps.Clone(s)
	out["name"] = rawjson.AppendQuoted(nil, name)
	spread := func(field string) {
		list := []map[string]string{}
		object := members(s[field])
		for _, n := range slices.Sorted(maps.Keys(object)) {
			list = append(list, map[string]string{"name": n, "value": textOf(object[n])})
		}
		out[field], _ = schema.Encode(list) // texts can be encoded
	}
	if _, remote := s["url"]; remote {
		if textOf(s["type"]) != "sse" {
			out["type"] = json.RawMessage(`"http"`)
		}
		spread("headers")
		return out
	}
	delete(out, "type")
	if out["args"] == nil {
		out["args"] = json.RawMessage("[]")
	}
	spread("env")
	return out
}
