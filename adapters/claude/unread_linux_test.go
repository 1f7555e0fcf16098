package claude

import (
	"os"
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

func TestUnread(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bridgetest.DiesUnread(t, func(t *testing.T) *bridgetest.World {
		return bridgetest.With(t, New(), adapters.Program{Path: exe, Env: []string{playerVar + "=1"}})
	}, "", map[string]string{
		`{"method":"session/set_mode","params":{"sessionId":"ID","modeId":"plan"}}`:    "set_permission_mode",
		`{"method":"session/set_title","params":{"sessionId":"ID","title":"A title"}}`: "rename_session",
	})
}
