package amp

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
)

// The test binary is also the delegate, and a native process that does what a test says.
func TestMain(m *testing.M) {
	if addr := os.Getenv(bridgetest.PuppetVar); addr != "" {
		if slices.Contains(os.Args, "--help") {
			fmt.Println("Set the agent mode (smart, rush, large)")
			os.Exit(0)
		}
		os.Exit(bridgetest.RunPuppet(addr))
	}
	if IsDelegate(os.Args[0]) {
		os.Exit(RunDelegate(os.Args[0], os.Stdin, os.Stderr))
	}
	bridgetest.Main(m, "AMP_", "XDG_", "AGENT")
}

// world is where a test has Amp.
type world struct{ *bridgetest.World }

// rules let the contract's scripts run, of which one is touched by nobody.
const rules = `{
	// comments are allowed here
	"amp.permissions": [{"tool": "Bash", "matches": {"cmd": ["sh *", "echo *", "printf *"]}, "action": "allow"},],
	"amp.showCosts": false
}`

// newWorld has the verified release; SANDBOX_AGENT_TEST_AMP names another, of those
// that are scripts for Node.js.
func newWorld(t *testing.T) *world {
	t.Helper()
	version := cmp.Or(os.Getenv("SANDBOX_AGENT_TEST_AMP"), Verified)
	script := agentcache.NPM(t, "@sourcegraph/amp/dist/main.js", "@sourcegraph/amp@"+version)
	node := agentcache.Node(t)
	agentcache.Turn(t, "amp")
	return with(t, adapters.Program{Path: node, Args: []string{script}, Version: version})
}

func with(t *testing.T, p adapters.Program) *world {
	t.Helper()
	w := bridgetest.With(t, Adapter{stuck: 5 * time.Second}, p)
	w.Env = append(w.Env, varURL+"="+w.Model.URL, varKey+"=sgamp_somebody")
	w.Write(".config/amp/settings.json", rules, 0o600)
	return &world{w}
}

func (w *world) open(answer bridgetest.Answer) *bridgetest.Client {
	w.T.Helper()
	return w.Open(schema.ClientCapabilities{}, answer)
}
