package session

import (
	"encoding/json"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/internal/pattern"
	"sandboxagent.dev/sandbox-agent/internal/secret"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// What is kept of what an agent tells of its MCP servers. A server beyond the bound is left
// out, with a warning in the gateway's log; tools beyond theirs are counted; of longer texts
// the beginning is kept.
const (
	maxServers     = 256
	maxServerTools = 1024 // of all servers together
	maxServerName  = 256
	maxServerError = 4 << 10
	maxAboutTool   = 400
)

// noteServersLocked takes what the agent tells of its MCP servers, and passes on what is new.
// It reports whether something was.
func (s *Session) noteServersLocked(m *acp.Message) bool {
	var said struct {
		Servers []acp.MCPServer `json:"servers"`
	}
	if json.Unmarshal(m.Params(), &said) != nil {
		s.logger().Warn("the agent's MCP servers cannot be read", "method", m.Method())
		return false
	}
	if over := len(said.Servers) - maxServers; over > 0 {
		s.logger().Warn("the agent has more MCP servers than are told of", "left_out", over)
		said.Servers = said.Servers[:maxServers]
	}
	given := givenServers(s.rec.Setup)
	clean := serverCleaner(s.rec.Setup)
	room := maxServerTools
	for i := range said.Servers {
		one := &said.Servers[i]
		one.Name, one.Error = begins(one.Name, maxServerName), begins(clean(one.Error), maxServerError)
		if one.Source = acp.ServerOfAgent; given[one.Name] != "" {
			one.Source = acp.ServerOfSession
		}
		if !slices.Contains(acp.ServerStates, one.State) {
			one.State = acp.ServerUnknown
		}
		if n := min(len(one.Tools), room); n < len(one.Tools) {
			one.MoreTools, one.Tools = len(one.Tools)-n, one.Tools[:n]
		}
		room -= len(one.Tools)
		for j := range one.Tools {
			t := &one.Tools[j]
			t.Name, t.Description = begins(t.Name, maxServerName), begins(clean(oneLine(t.Description)), maxAboutTool)
		}
	}
	return s.setServersLocked(said.Servers)
}

// setServersLocked has the session's MCP servers be so, and tells the clients if that is new.
func (s *Session) setServersLocked(now []acp.MCPServer) bool {
	if reflect.DeepEqual(now, s.rec.Servers) {
		return false
	}
	s.rec.Servers, s.unsaved = now, true
	s.Log().Append(journal.Notice, journal.Everyone, s.serversFrame())
	return true
}

// serversFrame says how the session's MCP servers are.
func (s *Session) serversFrame() []byte {
	b, err := schema.Encode(map[string]any{"sessionId": s.id, "servers": s.rec.servers()})
	if err != nil {
		b = []byte("{}") // it has no values that cannot be encoded
	}
	n := acp.NewNotification(acp.MethodMCPServers, b)
	return n.Frame()
}

// stopServersLocked notes that the process which had the session's MCP servers has ended. It
// reports whether that changes something. Why one has failed stays known.
func (s *Session) stopServersLocked() bool {
	now := withoutProcess(s.rec.Servers)
	if now == nil {
		return false
	}
	s.rec.Servers, s.unsaved = now, true
	return true
}

// withoutProcess returns the servers as they are without a process, nil if they are so already. It
// does not change them: a record that is being saved may have them.
func withoutProcess(servers []acp.MCPServer) []acp.MCPServer {
	runs := func(one acp.MCPServer) bool {
		return one.State == acp.ServerReady || one.State == acp.ServerConnecting
	}
	if !slices.ContainsFunc(servers, runs) {
		return nil
	}
	out := slices.Clone(servers)
	for i := range out {
		if runs(out[i]) {
			out[i].State = acp.ServerStopped
		}
	}
	return out
}

// servers are the session's MCP servers: those that it was given, in their order, and then
// those that the agent has by itself.
func (rec *record) servers() []acp.MCPServer {
	given := givenServers(rec.Setup)
	out := []acp.MCPServer{}
	for _, name := range serverNames(rec.Setup) {
		one := acp.MCPServer{Name: name, State: acp.ServerUnknown}
		if i := slices.IndexFunc(rec.Servers, func(m acp.MCPServer) bool { return m.Name == name }); i >= 0 {
			one = rec.Servers[i]
		}
		one.Source, one.Transport = acp.ServerOfSession, given[name]
		out = append(out, one)
	}
	for _, one := range rec.Servers {
		if given[one.Name] == "" && one.Source != acp.ServerOfSession { // else a load has taken it away
			out = append(out, one)
		}
	}
	return out
}

// serverNames are the names of the MCP servers of a setup: those of the list, then those of
// _meta's mcp.
func serverNames(setup json.RawMessage) []string {
	var names []string
	for _, one := range setupServers(setup) {
		if name := textOf(one["name"]); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// givenServers are the MCP servers of a setup by name, each with how it is reached.
func givenServers(setup json.RawMessage) map[string]string {
	out := map[string]string{}
	for _, one := range setupServers(setup) {
		name, kind := textOf(one["name"]), textOf(one["type"])
		switch {
		case out[name] != "":
			continue // those of the list win
		case kind == "" && one["url"] != nil:
			kind = "http"
		case kind == "":
			kind = "stdio"
		}
		out[name] = kind
	}
	return out
}

// setupServers are the MCP servers of a setup, those of the list first.
func setupServers(setup json.RawMessage) []server {
	var out []server
	list, _ := rawjson.Member(setup, "mcpServers")
	for _, raw := range rawjson.Elements(list) {
		if one := members(raw); textOf(one["name"]) != "" {
			out = append(out, one)
		}
	}
	named, _ := namedServers(setup) // it was valid when the session was made
	for _, name := range slices.Sorted(maps.Keys(named)) {
		one := members(named[name])
		one["name"] = rawjson.AppendQuoted(nil, name)
		out = append(out, one)
	}
	return out
}

// serverCleaner takes out of a text of a server what looks like a key, and all that the MCP servers of a setup
// were given as variables, as headers, or in their address.
func serverCleaner(setup json.RawMessage) func(text string) string {
	var values []string
	for _, v := range serverValues(setup) {
		_, v, _ = strings.Cut(v, "=")
		values = append(values, v)
	}
	return secret.Cleaner(secret.Forms(), values...)
}

// ValueCleaner returns what takes out of a text the values of the session's variables, and all that its MCP servers were
// given, whatever they are called: what travels without them says that it does.
func (s *Session) ValueCleaner() func(text string) string {
	s.mu.Lock()
	setup := s.rec.Setup
	s.mu.Unlock()
	var values []string
	for _, v := range append(variables(members(setup, "_meta", acp.MetaKey)["env"]), serverValues(setup)...) {
		_, v, _ = strings.Cut(v, "=")
		values = append(values, v)
	}
	return secret.Cleaner(nil, values...)
}

// ServerSecrets returns of what the MCP servers of a setup were given what is called a key or a password. Other
// values, such as a path, are words that a session is full of.
func ServerSecrets(setup json.RawMessage) []string {
	return secret.Values(serverValues(setup))
}

// serverValues returns what the MCP servers of a setup were given, as NAME=value. What serves to log in is called a
// password.
func serverValues(setup json.RawMessage) []string {
	var out []string
	address := func(text string) {
		u, err := url.Parse(text)
		if err != nil {
			return
		}
		if u.User != nil {
			password, _ := u.User.Password()
			out = append(out, "password="+password)
		}
		for name, values := range u.Query() {
			for _, v := range values {
				out = append(out, name+"="+v)
			}
		}
	}
	for _, one := range setupServers(setup) {
		address(textOf(one["url"]))
		flag := ""
		for _, raw := range rawjson.Elements(one["args"]) {
			arg := textOf(raw)
			if flag != "" && !strings.HasPrefix(arg, "-") { // --api-key KEY
				out = append(out, flag+"="+arg)
			}
			if flag = ""; strings.HasPrefix(arg, "-") {
				flag = strings.TrimLeft(arg, "-")
				out = append(out, flag) // --api-key=KEY
			}
			address(arg)
		}
		for _, v := range variables(one["env"]) {
			out = append(out, v)
			_, v, _ = strings.Cut(v, "=")
			address(v)
		}
		for _, v := range variables(one["headers"]) {
			out = append(out, v)
			if name, text, _ := strings.Cut(v, "="); login.MatchString(name) {
				_, token, _ := strings.Cut(text, " ") // Bearer TOKEN
				out = append(out, "password="+text, "token="+token)
			}
		}
	}
	return out
}

// login matches headers that serve to log in and are not called keys.
var login = pattern.New(`(?i)auth|cookie`)

// variables returns names and values, as NAME=value: of an object, or of a list of name and value.
func variables(raw json.RawMessage) []string {
	var out []string
	for name, v := range members(raw) {
		out = append(out, name+"="+textOf(v))
	}
	for _, one := range rawjson.Elements(raw) {
		out = append(out, rawjson.MemberString(one, "name")+"="+rawjson.MemberString(one, "value"))
	}
	return out
}

// begins returns a text's beginning of so many bytes at most.
func begins(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most > 0 && !utf8.RuneStart(text[most]) {
		most--
	}
	return text[:most] + "…"
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// Instruction is a text for the agent that a session was given.
type Instruction struct {
	// Field is what it was given as: instructions, appendSystemPrompt or systemPrompt.
	Field string `json:"field"`
	Text  string `json:"text"` // its beginning
}

// maxInstruction bounds what is told of one text for the agent, in bytes.
const maxInstruction = 64 << 10

// instructionsIn returns what a setup tells the agent. Keys are taken out of it.
func instructionsIn(setup json.RawMessage) []Instruction {
	clean := serverCleaner(setup)
	own := members(setup, "_meta", acp.MetaKey)
	known := secret.Cleaner(nil, secret.Values(variables(own["env"]))...)
	var out []Instruction
	add := func(field, text string) {
		if text != "" {
			out = append(out, Instruction{field, begins(known(clean(text)), maxInstruction)})
		}
	}
	for _, field := range []string{"instructions", "appendSystemPrompt"} {
		add(field, textOf(own[field]))
	}
	blocks, _ := rawjson.Member(setup, "systemPrompt", "content")
	var texts []string
	for _, one := range rawjson.Elements(blocks) {
		if text := rawjson.MemberString(one, "text"); text != "" {
			texts = append(texts, text)
		}
	}
	add("systemPrompt", strings.Join(texts, "\n"))
	return out
}

// skillsIn returns the folders of skills that a setup has.
func skillsIn(setup json.RawMessage) []string {
	var out []string
	paths, _ := rawjson.Member(setup, "_meta", acp.MetaKey, "skills", "paths")
	for _, one := range rawjson.Elements(paths) {
		out = append(out, textOf(one))
	}
	return out
}

// Details are what is told of one session, and not in a list.
func (s *Session) Details() Info {
	info := s.Info()
	s.mu.Lock()
	defer s.mu.Unlock()
	info.MCPServers, info.Instructions, info.Skills = s.rec.servers(), instructionsIn(s.rec.Setup), skillsIn(s.rec.Setup)
	return info
}
