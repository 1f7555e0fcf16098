package claude

import (
	"maps"
	"slices"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// mcpServer is an MCP server as the program tells of it: each turn by name and status, and
// all of it when it is asked.
type mcpServer struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	Error  string `json:"error"`
	Config struct {
		Type string `json:"type"`
	} `json:"config"`
	Tools []acp.MCPTool `json:"tools"`
}

// serverStates are the program's words for how a server is.
var serverStates = map[string]acp.ServerState{
	"connected": acp.ServerReady, "pending": acp.ServerConnecting, "failed": acp.ServerFailed,
	"needs-auth": acp.ServerNeedsLogin, "disabled": acp.ServerDisabled,
}

// shown is the server as the gateway knows it.
func (m *mcpServer) shown() acp.MCPServer {
	one := acp.MCPServer{Name: m.Name, Transport: m.Config.Type, State: serverStates[m.Status], Error: m.Error}
	switch {
	case one.State == "":
		one.State, one.Error = acp.ServerUnknown, bridge.FirstOf(m.Error, m.Status)
	case one.State == acp.ServerReady:
		one.Tools = append([]acp.MCPTool{}, m.Tools...)
	}
	return one
}

// lookAtServers has the program asked how its MCP servers are, soon.
func (s *session) lookAtServers() { s.looking.In(s.ctx, 0, s.tellServers) }

// tellServers asks the program how its MCP servers are, and says so. A failure of the program
// shows elsewhere.
func (s *session) tellServers() {
	s.servers.Lock()
	defer s.servers.Unlock()
	raw, err := s.control(s.ctx, map[string]string{"subtype": "mcp_status"})
	if err != nil {
		s.log.Debug("ask claude for its MCP servers", "session", s.id, "err", err)
		return
	}
	var said struct {
		Servers []mcpServer `json:"mcpServers"`
	}
	if err := bridge.Lenient(raw, &said); err != nil {
		s.log.Debug("read claude's MCP servers", "session", s.id, "err", err)
		return
	}
	var all []acp.MCPServer
	statuses := map[string]string{}
	for i := range said.Servers {
		m := &said.Servers[i]
		all, statuses[m.Name] = append(all, m.shown()), m.Status
	}
	s.mu.Lock()
	refused := s.refused
	s.statuses = statuses
	s.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(refused)) {
		if _, there := statuses[name]; !there {
			all = append(all, acp.MCPServer{Name: name, State: acp.ServerFailed, Error: refused[name]})
		}
	}
	bridge.TellServers(s.ctx, s.a.peer, s.log, s.id, all)
}

// serversNow takes what a turn's begin says of the servers: what has changed is asked for. A
// turn may also have ended one, so that they are looked at when it is over.
func (s *session) serversNow(e *event) {
	if e.Type != "result" && (e.Type != "system" || e.Subtype != "init") {
		return
	}
	now := map[string]string{}
	for _, m := range e.Servers {
		now[m.Name] = m.Status
	}
	s.mu.Lock()
	changed := e.Type == "result" && len(s.statuses) > 0 || e.Type != "result" && !maps.Equal(now, s.statuses)
	s.mu.Unlock()
	if changed {
		s.lookAtServers()
	}
}
