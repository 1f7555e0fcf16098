package adaptertest

import (
	"encoding/json"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// Servers is what a notification says of a session's MCP servers, in short and by name:
// "broken=failed! demo=ready(ask,tell)". A ! says that there is a reason. ok is false for
// other messages.
func Servers(m *acp.Message, session schema.SessionID) (short string, ok bool) {
	if m.Method() != acp.MethodMCPServers || m.Session() != string(session) {
		return "", false
	}
	var said struct {
		Servers []acp.MCPServer `json:"servers"`
	}
	if json.Unmarshal(m.Params(), &said) != nil {
		return "", false
	}
	var out []string
	for _, one := range said.Servers {
		s := one.Name + "=" + string(one.State)
		if one.Error != "" {
			s += "!"
		}
		if one.Tools != nil {
			var names []string
			for _, t := range one.Tools {
				names = append(names, t.Name)
			}
			slices.Sort(names)
			s += "(" + strings.Join(names, ",") + ")"
		}
		out = append(out, s)
	}
	slices.Sort(out)
	return strings.Join(out, " "), true
}

// Servers waits until the agent has said that the session's MCP servers are so.
func (s *Scene) Servers(session schema.SessionID, want string) {
	s.Helper()
	s.connected()
	s.c.await(0, "MCP servers "+want, func(m *acp.Message) bool {
		got, ok := Servers(m, session)
		return ok && got == want
	})
}
