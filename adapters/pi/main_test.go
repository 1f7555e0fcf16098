package pi

import (
	"cmp"
	"os"
	"path/filepath"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
)

// tested is the newest version of Pi that all tests passed with.
const tested = agentcache.Pi

// version is what the tests run with: SANDBOX_AGENT_TEST_PI names another.
var version = cmp.Or(os.Getenv("SANDBOX_AGENT_TEST_PI"), tested)

// versions are those that the main tests run with.
var versions = []string{version, agentcache.PiLegacy}

// The test binary is also a native process that does what a test says.
func TestMain(m *testing.M) {
	if addr := os.Getenv(bridgetest.PuppetVar); addr != "" {
		os.Exit(bridgetest.RunPuppet(addr))
	}
	bridgetest.Main(m, "PI_", "ANTHROPIC_", "OPENAI_")
}

// world is where a test has Pi.
type world struct {
	*bridgetest.World
	version string
}

// provider is the user's configuration that leads Pi to the scripted model.
const provider = `{"providers":{"scripted":{"baseUrl":"URL/v1","api":"openai-completions","apiKey":"not-a-key","models":[
	{"id":"one","name":"Model One","reasoning":true,"input":["text","image"],"contextWindow":128000,"maxTokens":4096,"cost":{"input":1,"output":2,"cacheRead":0,"cacheWrite":0}},
	{"id":"two","name":"Model Two","reasoning":true,"input":["text"],"contextWindow":64000,"maxTokens":4096,"cost":{"input":1,"output":2,"cacheRead":0,"cacheWrite":0}}]}}}`

func newWorld(t *testing.T) *world {
	t.Helper()
	return newWorldOf(t, version)
}

// newWorldOf makes a world with a version of Pi.
func newWorldOf(t *testing.T, version string) *world {
	t.Helper()
	script := agentcache.PiScript(t, version)
	agentcache.Turn(t, "pi")
	w := &world{bridgetest.With(t, New(), adapters.Program{Path: script.Node, Args: []string{script.File}, Version: version}), version}
	w.Env = append(w.Env, "PI_OFFLINE=1", "PI_TELEMETRY=0", "TMPDIR="+w.temp())
	if err := os.Mkdir(w.temp(), 0o700); err != nil {
		t.Fatal(err)
	}
	w.Write(".pi/agent/models.json", replaceURL(provider, w.Model.URL), 0o600)
	w.Write(".pi/agent/settings.json", `{"defaultProvider":"scripted","defaultModel":"one","retry":{"maxRetries":2,"baseDelayMs":50}}`, 0o600)
	return w
}

// temp is the folder of temporary files of Pi and all that it starts.
func (w *world) temp() string { return filepath.Join(w.Home, "temp") }

// onBoth runs a test with the newest version and, in long runs, with the earliest.
func onBoth(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	for _, v := range versions {
		t.Run(v, func(t *testing.T) {
			t.Parallel()
			if v != version {
				agentcache.Long(t, "an early version, which few still have")
			}
			test(t, newWorldOf(t, v))
		})
	}
}

// client is the gateway's end of a connection.
type client struct{ *bridgetest.Client }

func (w *world) open(caps schema.ClientCapabilities, answer bridgetest.Answer) *client {
	w.T.Helper()
	return &client{w.Open(caps, answer)}
}
