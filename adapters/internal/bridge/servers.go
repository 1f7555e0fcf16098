package bridge

import (
	"context"
	"log/slog"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// TellServers says how the MCP servers of a session are, all that the agent tells of. To
// say the same again has no effect.
func TellServers(ctx context.Context, p acp.Peer, log *slog.Logger, id schema.SessionID, servers []acp.MCPServer) {
	if servers == nil {
		servers = []acp.MCPServer{}
	}
	if err := p.Notify(ctx, acp.MethodMCPServers, map[string]any{"sessionId": id, "servers": servers}); err != nil {
		log.Debug("tell of MCP servers", "session", id, "err", err)
	}
}
