package codex

import (
	"os"
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
)

func TestUnread(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bridgetest.DiesUnread(t, func(t *testing.T) *bridgetest.World {
		return bridgetest.With(t, New(), adapters.Program{Path: exe, Env: []string{playerVar + "=" + startedAfter}, Version: agentcache.Codex})
	}, "", map[string]string{
		`{"method":"session/set_mode","params":{"sessionId":"ID","modeId":"agent"}}`:   "thread/settings/update",
		`{"method":"session/set_title","params":{"sessionId":"ID","title":"A title"}}`: "thread/name/set",
		`{"method":"session/new","params":{"cwd":"/","mcpServers":[]}}`:                "thread/start",
	})
}
