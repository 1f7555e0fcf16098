package codex

import (
	"maps"
	"slices"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// maxServers bounds the MCP servers of a thread that are told of; more are left out.
const maxServers = 256

// listsServers is the first version that was seen to tell a thread's own servers when it is
// asked: an earlier one may start those of its configuration to answer.
const listsServers = "0.169.0"

// startStates are codex's words for how a server starts, runStates those for how it is then.
var (
	startStates = map[string]acp.ServerState{
		"starting": acp.ServerConnecting, "ready": acp.ServerReady, "failed": acp.ServerFailed, "cancelled": acp.ServerStopped,
	}
	runStates = map[string]acp.ServerState{
		"notStarted": acp.ServerStopped, "starting": acp.ServerConnecting, "connected": acp.ServerReady,
		"authenticationRequired": acp.ServerNeedsLogin, "failed": acp.ServerFailed, "cancelled": acp.ServerStopped, "disabled": acp.ServerDisabled,
	}
)

// serverStarts takes how the start of an MCP server goes.
func (s *session) serverStarts(e *event) {
	state := startStates[bridge.Text(e.Status)]
	if state == "" {
		state = acp.ServerUnknown
	}
	if e.Reason == "reauthenticationRequired" {
		state = acp.ServerNeedsLogin
	}
	s.telling.Lock()
	defer s.telling.Unlock()
	was, there := s.told[e.Name]
	if !there && len(s.told) >= maxServers {
		return
	}
	one := acp.MCPServer{Name: e.Name, State: state, Error: bridge.Text(e.Error)}
	if state == acp.ServerReady {
		one.Tools, one.MoreTools = was.Tools, was.MoreTools
	}
	s.told[e.Name] = one
	s.starts++
	s.tellLocked()
	if state == acp.ServerReady {
		s.lookAtServers()
	}
}

// tellLocked says how the servers are; telling is held.
func (s *session) tellLocked() {
	var all []acp.MCPServer
	for _, name := range slices.Sorted(maps.Keys(s.told)) {
		all = append(all, s.told[name])
	}
	bridge.TellServers(s.ctx, s.a.peer, s.log, s.id, all)
}

// lookAtServers has codex asked for its servers' tools, soon.
func (s *session) lookAtServers() {
	if s.srv.listsServers {
		s.looking.In(s.ctx, 0, s.askServers)
	}
}

// serverStatus is a server in the answer.
type serverStatus struct {
	Name   string                 `json:"name"`
	State  string                 `json:"runtimeStatus"`
	Tools  map[string]acp.MCPTool `json:"tools"`
	Failed string                 `json:"toolsError"`
}

// askServers asks codex how the servers of the thread are now, and what tools they have.
// What it has said of why one does not run stays.
func (s *session) askServers() {
	s.telling.Lock()
	before := s.starts
	s.telling.Unlock()
	var list struct {
		Data []serverStatus `json:"data"`
	}
	if err := s.srv.call(s.ctx, "mcpServerStatus/list", map[string]string{"threadId": s.thread, "detail": "toolsAndAuthOnly"}, &list); err != nil {
		s.log.Debug("codex does not list its MCP servers", "err", err)
		return
	}
	s.telling.Lock()
	defer s.telling.Unlock()
	if s.starts != before { // the answer may be older
		s.lookAtServers()
		return
	}
	for _, one := range list.Data {
		was, there := s.told[one.Name]
		if !there && len(s.told) >= maxServers {
			continue
		}
		now := acp.MCPServer{Name: one.Name, State: runStates[one.State]}
		if now.State == "" {
			now.State = was.State
		}
		if now.State == "" {
			now.State = acp.ServerUnknown
		}
		if now.Error = one.Failed; now.State != acp.ServerReady {
			now.Error = bridge.FirstOf(was.Error, one.Failed)
		}
		if now.State == acp.ServerReady && one.Failed == "" {
			now.Tools = []acp.MCPTool{}
			for _, name := range slices.Sorted(maps.Keys(one.Tools)) {
				now.Tools = append(now.Tools, acp.MCPTool{Name: name, Description: one.Tools[name].Description})
			}
		}
		s.told[one.Name] = now
	}
	s.tellLocked()
}
