package bridgetest

import (
	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/adaptertest"
)

// Servers waits until the agent has said that a session's MCP servers are so, in the form of
// [adaptertest.Servers], from a position on. It returns the next position.
func (c *Client) Servers(id schema.SessionID, from int, want string) int {
	c.W.T.Helper()
	at, _ := c.Await("MCP servers "+want, from, func(m *acp.Message) bool {
		got, ok := adaptertest.Servers(m, id)
		return ok && got == want
	})
	return at + 1
}
