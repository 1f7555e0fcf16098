package codex

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
)

// version is what the tests run with: SANDBOX_AGENT_TEST_CODEX names another.
var version = cmp.Or(os.Getenv("SANDBOX_AGENT_TEST_CODEX"), agentcache.Codex)

func TestMain(m *testing.M) {
	if what := os.Getenv(playerVar); what != "" {
		play(what, os.Stdin, os.Stdout)
		return
	}
	if addr := os.Getenv(bridgetest.PuppetVar); addr != "" {
		os.Exit(bridgetest.RunPuppet(addr))
	}
	bridgetest.Main(m, "OPENAI_", "CODEX_")
}

// world is where a test has Codex.
type world struct{ *bridgetest.World }

// config makes codex talk to the scripted model. The model's tools are the
// classic ones. No thread runs the user's shell to note its settings, nor what the
// shell runs then: the scenarios of cmd/sandbox-agent have that.
const config = `model = "gpt-5.5"
model_provider = "scripted"
[model_providers.scripted]
name = "Scripted"
base_url = "%s/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"
request_max_retries = 1
stream_max_retries = 2
[analytics]
enabled = false
[features]
shell_snapshot = false
`

func newWorld(t *testing.T) *world {
	t.Helper()
	w := bridgetest.New(t, New(), version)
	url := w.Model.URL
	w.Env = append(w.Env,
		"CODEX_HOME="+filepath.Join(w.Home, ".codex"), "SCRIPTED_KEY=not-a-key",
		// What does not go to loopback goes to the model, which refuses it.
		"HTTPS_PROXY="+url, "HTTP_PROXY="+url, "NO_PROXY=127.0.0.1,localhost",
		"https_proxy="+url, "http_proxy="+url, "no_proxy=127.0.0.1,localhost",
	)
	w.Write(".codex/config.toml", fmt.Sprintf(config, url), 0o600)
	return &world{w}
}

// client is the gateway's end of a connection.
type client struct{ *bridgetest.Client }

func (w *world) open(caps schema.ClientCapabilities, answer bridgetest.Answer) *client {
	w.T.Helper()
	return &client{w.Open(caps, answer)}
}
