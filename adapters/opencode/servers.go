package opencode

import (
	"maps"
	"slices"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// serverStatus is how an MCP server is. OpenCode does not say which tools one has.
type serverStatus struct {
	Status string `json:"status"`
	Error  string `json:"error"`
}

var serverStates = map[string]acp.ServerState{
	"connected": acp.ServerReady, "failed": acp.ServerFailed, "disabled": acp.ServerDisabled,
	"needs_auth": acp.ServerNeedsLogin, "needs_client_registration": acp.ServerNeedsLogin,
}

// loginRemedy says what to do about a server that wants a login.
func loginRemedy(name string) string {
	return "it wants a login; run `opencode mcp auth " + name + "` in a terminal"
}

// shown is the server as the gateway knows it, under a name.
func (s serverStatus) shown(name string) acp.MCPServer {
	one := acp.MCPServer{Name: name, State: serverStates[s.Status], Error: s.Error}
	switch one.State {
	case "":
		one.State, one.Error = acp.ServerUnknown, bridge.FirstOf(s.Error, s.Status)
	case acp.ServerNeedsLogin:
		one.Error = bridge.FirstOf(s.Error, loginRemedy(name))
	}
	return one
}

// lookAtServers has the server asked for the MCP servers of the session, soon.
func (s *session) lookAtServers() { s.looking.In(s.ctx, 0, s.tellServers) }

// tellServers asks how the MCP servers of the directory are, and tells of those that are the
// session's own, under the names that it knows, and of those of OpenCode's configuration.
func (s *session) tellServers() {
	s.telling.Lock()
	defer s.telling.Unlock()
	var now map[string]serverStatus
	if err := s.srv.call(s.ctx, "GET", at("/mcp", s.cwd), nil, &now); err != nil {
		s.log.Debug("opencode does not list its MCP servers", "err", err)
		return
	}
	started := s.a.tools.at(s.srv, s.cwd).started()
	var all []acp.MCPServer
	for _, name := range slices.Sorted(maps.Keys(s.own)) {
		one, there := now[name]
		if !there {
			one = serverStatus{"failed", started[name]}
		}
		all = append(all, one.shown(s.own[name]))
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if _, of := started[name]; !of { // what has been started here belongs to sessions
			all = append(all, now[name].shown(name))
		}
	}
	s.told.Store(len(all) > 0)
	bridge.TellServers(s.ctx, s.a.peer, s.log, s.id, all)
}

// started are the servers that sessions have started in the place, with why one does not run.
func (b *toolbox) started() map[string]string {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := map[string]string{}
	for name, one := range b.all {
		out[name] = one.failed
	}
	return out
}

// toolsChanged has the sessions of a directory look at their servers.
func (a *agent) toolsChanged(srv *server, dir string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.sessions {
		if s.srv == srv && s.cwd == dir {
			s.lookAtServers()
		}
	}
}
