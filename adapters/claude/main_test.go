package claude

import (
	"cmp"
	"os"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// tested is the newest version of the program that all tests passed with.
const tested = agentcache.Claude

// version is what the tests run with: SANDBOX_AGENT_TEST_CLAUDE names another.
var version = cmp.Or(os.Getenv("SANDBOX_AGENT_TEST_CLAUDE"), tested)

func TestMain(m *testing.M) {
	if os.Getenv(playerVar) != "" {
		play(os.Stdin, os.Stdout)
		return
	}
	if addr := os.Getenv(bridgetest.PuppetVar); addr != "" {
		os.Exit(bridgetest.RunPuppet(addr))
	}
	bridgetest.Main(m, "ANTHROPIC_", "CLAUDE", "IS_SANDBOX")
}

// world is where a test has Claude Code.
type world struct{ *bridgetest.World }

func newWorld(t *testing.T) *world {
	t.Helper()
	w := bridgetest.New(t, New(), version)
	w.Env = append(w.Env,
		"ANTHROPIC_BASE_URL="+w.Model.URL, "ANTHROPIC_API_KEY=sk-ant-not-a-key",
		"DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1", "DISABLE_ERROR_REPORTING=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
	)
	w.Env = append(w.Env, agentcache.ClaudeEnv()...)
	return &world{w}
}

// client is the gateway's end of a connection.
type client struct{ *bridgetest.Client }

func (w *world) open(caps schema.ClientCapabilities, answer bridgetest.Answer) *client {
	w.T.Helper()
	return &client{w.Open(caps, answer)}
}

// notified reports whether a model call is about the end of a background task.
// Each version of the program says it in its own way.
func notified(r *scriptedmodel.Request) bool {
	return r.Says(scriptedmodel.User, "SYSTEM NOTIFICATION") || r.Says(scriptedmodel.User, "<task-notification>")
}
