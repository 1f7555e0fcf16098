package bridge

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// MCPServer is an MCP server that a session is to have: a program, or an address.
type MCPServer struct {
	Name    string            `json:"-"`
	Type    string            `json:"type"` // stdio, http or sse; one of the wishes may not say
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers"`
	Timeout float64           `json:"timeoutMs"` // 0 for none
	Wished  json.RawMessage   `json:"-"`         // as the wishes have it, nil for one of the request
}

// MCPServers returns the session's MCP servers: those of the wishes, which have the form of a
// .mcp.json file, in the order of their names, and then the request's own, which win over
// them. A server of a type that is none of types is left out, and the client told so.
func (s *Setup) MCPServers(agent string, types ...string) (all []MCPServer, err error) {
	raw := s.MCP
	if inner, ok := rawjson.Member(raw, "mcpServers"); ok {
		raw = inner
	}
	var named map[string]json.RawMessage
	if len(raw) > 0 {
		if err := json.Unmarshal(raw, &named); err != nil {
			return nil, acp.Errorf(acp.CodeInvalidParams, "_meta mcp must be an object of servers by name: %v", err)
		}
	}
	cannot := func(field string) {
		last := len(types) - 1
		s.Cannot(field, "%s connects to servers of type %s and %s only", agent, strings.Join(types[:last], ", "), types[last])
	}
	for _, name := range slices.Sorted(maps.Keys(named)) {
		one := MCPServer{Name: name, Wished: named[name]}
		if err := json.Unmarshal(named[name], &one); err != nil {
			return nil, acp.Errorf(acp.CodeInvalidParams, "_meta mcp.%s is no MCP server: %v", name, err)
		}
		if one.Type == "sse" && !slices.Contains(types, "sse") {
			cannot("mcp." + name)
			continue
		}
		all = append(all, one)
	}
	for _, m := range s.Servers {
		one := MCPServer{Args: []string{}, Env: map[string]string{}}
		switch {
		case m.Stdio != nil:
			one.Type, one.Name, one.Command, one.Timeout = "stdio", m.Stdio.Name, m.Stdio.Command, timeoutOf(m.Stdio.Extra)
			one.Args = append(one.Args, m.Stdio.Args...)
			for _, v := range m.Stdio.Env {
				one.Env[v.Name] = v.Value
			}
		case m.HTTP != nil:
			one.Type, one.Name, one.URL, one.Headers, one.Timeout = "http", m.HTTP.Name, m.HTTP.URL, headersOf(m.HTTP.Headers), timeoutOf(m.HTTP.Extra)
		case m.SSE != nil:
			one.Type, one.Name, one.URL, one.Headers, one.Timeout = "sse", m.SSE.Name, m.SSE.URL, headersOf(m.SSE.Headers), timeoutOf(m.SSE.Extra)
		}
		if !slices.Contains(types, one.Type) {
			cannot("mcpServers")
			continue
		}
		all = append(all, one)
	}
	return all, nil
}

func headersOf(list []schema.HTTPHeader) map[string]string {
	out := map[string]string{}
	for _, h := range list {
		out[h.Name] = h.Value
	}
	return out
}

// timeoutOf returns the timeoutMs among a server's further members, 0 for none.
func timeoutOf(extra map[string]json.RawMessage) (ms float64) {
	if json.Unmarshal(extra["timeoutMs"], &ms) != nil {
		return 0
	}
	return ms
}
