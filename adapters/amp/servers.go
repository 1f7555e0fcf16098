package amp

import (
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// mcpServer is an MCP server as the program tells of it when it begins.
type mcpServer struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	Error  string `json:"error"`
}

var serverStates = map[string]acp.ServerState{
	"connected": acp.ServerReady, "connecting": acp.ServerConnecting, "reconnecting": acp.ServerConnecting,
	"failed": acp.ServerFailed, "authenticating": acp.ServerNeedsLogin, "denied": acp.ServerDisabled,
	"awaiting-approval": acp.ServerDisabled, "blocked-by-registry": acp.ServerDisabled, "disabled": acp.ServerDisabled,
}

// serversOf are the MCP servers that a process begins with. A tool is named by its server
// and itself; the program does not describe them here.
func serversOf(e *event) []acp.MCPServer {
	var all []acp.MCPServer
	for _, m := range e.Servers {
		one := acp.MCPServer{Name: m.Name, State: serverStates[m.Status], Error: m.Error}
		switch one.State {
		case "":
			one.State, one.Error = acp.ServerUnknown, bridge.FirstOf(m.Error, m.Status)
		case acp.ServerDisabled:
			if m.Status != "disabled" {
				one.Error = bridge.FirstOf(m.Error, strings.ReplaceAll(m.Status, "-", " "))
			}
		case acp.ServerReady:
			one.Tools = []acp.MCPTool{}
			for _, name := range e.Tools {
				if tool, ok := strings.CutPrefix(name, "mcp__"+m.Name+"__"); ok {
					one.Tools = append(one.Tools, acp.MCPTool{Name: tool})
				}
			}
			slices.SortFunc(one.Tools, func(a, b acp.MCPTool) int { return strings.Compare(a.Name, b.Name) })
		}
		all = append(all, one)
	}
	return all
}
