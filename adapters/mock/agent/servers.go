package agent

import (
	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// mcpServers says how MCP servers are that there are not: the mock agent starts none.
func (t *turn) mcpServers(string) (schema.StopReason, error) {
	files := []acp.MCPTool{{Name: "read", Description: "Reads a file"}, {Name: "find", Description: "Finds words in files"}}
	for _, now := range [][]acp.MCPServer{
		{{Name: "broken", State: acp.ServerConnecting}, {Name: "files", State: acp.ServerConnecting}},
		{
			{Name: "broken", State: acp.ServerFailed, Error: "no such program: broken-mcp"},
			{Name: "files", State: acp.ServerReady, Tools: files},
			{Name: "issues", State: acp.ServerNeedsLogin, Error: "it wants a login"},
		},
	} {
		if err := t.a.peer.Notify(t.ctx, acp.MethodMCPServers, map[string]any{"sessionId": t.s.id, "servers": now}); err != nil {
			return "", err
		}
	}
	return schema.StopReasonEndTurn, t.say("Of three made-up MCP servers one runs.")
}
