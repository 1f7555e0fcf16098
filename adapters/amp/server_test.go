package amp

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
)

// TestLive_ServerLoopRefusesAStart is what can be said of releases that run their
// loop on Amp's server, which cannot be played here: a start fails in bounded time,
// says why, and leaves nothing.
func TestLive_ServerLoopRefusesAStart(t *testing.T) {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		t.Skip("the release is taken for linux on x64")
	}
	path := agentcache.NPM(t, "@ampcode/cli-linux-x64/amp", "@ampcode/cli-linux-x64@"+agentcache.AmpServer)
	agentcache.Turn(t, "amp")
	w := with(t, adapters.Program{Path: path, Version: agentcache.AmpServer})
	c := w.open(nil)
	begun := time.Now()
	_, e := c.Call(acp.MethodSessionNew, &schema.NewSessionRequest{Cwd: w.Cwd, MCPServers: []schema.MCPServer{}})
	if e == nil || e.Code != acp.CodeInternal || !strings.Contains(e.Message, "Amp's server") || !strings.Contains(e.Message, Verified) {
		t.Errorf("a server that refuses: %v", e)
	}
	if took := time.Since(begun); took > startBound+10*time.Second {
		t.Errorf("it took %v", took)
	}
	if pid := c.Conn.(adapters.Process).PID(); pid != 0 {
		t.Errorf("process %d is left", pid)
	}
	t.Logf("after %v: %v", time.Since(begun), e)
	w.Env = append(w.Env, varKey+"=")
	c = w.open(nil)
	if _, e = c.Call(acp.MethodSessionNew, &schema.NewSessionRequest{Cwd: w.Cwd, MCPServers: []schema.MCPServer{}}); e == nil || e.Code != acp.CodeAuthRequired {
		t.Errorf("without a key: %v", e)
	}
	w.Program.Version = "" // as of one that was found in PATH
	version, rest := newAgent(w.Options(), nil, nil, stuckPause).ask(t.Context())
	if modes := rest(); version != agentcache.AmpServer || strings.Join(modes, " ") != "low medium high ultra" || usualMode(version) != modeMedium {
		t.Errorf("it tells %s, %v", version, modes)
	}
}

func TestOnServer(t *testing.T) {
	for version, want := range map[string]bool{
		Verified: false, "0.0.1774569934-g39e3ec": false, "0.0.1775390627-g406649": true, "0.0.1777897475-g2324e1": true, agentcache.AmpServer: true, "": false, "1.2.3": false,
	} {
		if onServer(version) != want {
			t.Errorf("%q: %v", version, !want)
		}
	}
}
