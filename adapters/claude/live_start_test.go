package claude

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

// TestLive_Credentials has none at first. Then a session brings its own, which go
// before those of the machine.
func TestLive_Credentials(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Env = append(w.Env, "ANTHROPIC_API_KEY=")
	c := w.open(schema.ClientCapabilities{}, nil)
	_, e := c.Call(acp.MethodSessionNew, &schema.NewSessionRequest{Cwd: w.Cwd, MCPServers: []schema.MCPServer{}})
	if e == nil || e.Code != acp.CodeAuthRequired || !strings.Contains(e.Message, "ANTHROPIC_API_KEY") {
		t.Fatalf("session/new without credentials: %v", e)
	}
	if left, _ := filepath.Glob(filepath.Join(w.State, "*", "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	var s schema.AuthStatusResponse
	if err := json.Unmarshal(c.Must(acp.MethodAuthStatus, struct{}{}), &s); err != nil || s.State != schema.AuthStateUnauthenticated {
		t.Errorf("auth/status says %+v, %v", s, err)
	}
	if _, e := c.Call(acp.MethodAuthenticate, &schema.AuthenticateRequest{MethodID: methodKey}); e == nil || e.Code != acp.CodeAuthRequired {
		t.Errorf("authenticate without a key: %v", e)
	}
	c.Close()
	w.Env = append(w.Env, "ANTHROPIC_API_KEY=sk-ant-not-a-key")
	w.Credentials = adapters.Credentials{OAuthToken: "sk-ant-oat-of-the-session"}
	c = w.open(schema.ClientCapabilities{}, nil)
	id := c.New("")
	c.Turn(id, "say hi")
	r := w.Model.Turns()[0]
	if got := r.Header.Get("Authorization"); got != "Bearer sk-ant-oat-of-the-session" || r.Header.Get("X-Api-Key") != "" {
		t.Errorf("the model got Authorization %q and key %q", got, r.Header.Get("X-Api-Key"))
	}
	c.Must(acp.MethodAuthenticate, &schema.AuthenticateRequest{MethodID: methodKey})
	cmdline, err := os.ReadFile("/proc/" + strconv.Itoa(c.Conn.(adapters.Process).PID()) + "/cmdline")
	if err == nil && strings.Contains(string(cmdline), "oat-of-the-session") {
		t.Error("the token is among the arguments")
	}
}

// TestLive_WithoutRetries has a program that does not try again, and that asks
// nobody: as root it does so only in a sandbox.
func TestLive_WithoutRetries(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Env = append(w.Env, "CLAUDE_CODE_MAX_RETRIES=0", "IS_SANDBOX=1")
	c := w.open(schema.ClientCapabilities{}, nil) // answers no request
	id := c.New(`{"permissionMode":"bypass"}`)
	for _, status := range []int{400, 404, 500, 529} {
		_, e := c.Result(c.Prompt(id, "fail "+strconv.Itoa(status)))
		if e == nil || e.Code != acp.CodeInternal {
			t.Errorf("status %d: the prompt ended with %v", status, e)
		}
	}
	if got := bridgetest.Said(c.Updates(0)); got != "" {
		t.Errorf("errors were shown as an answer: %q", got)
	}
	c.Turn(id, "say and on")
	made := filepath.Join(w.Home, "made")
	c.Turn(id, "run touch "+made)
	if _, err := os.Stat(made); err != nil {
		t.Error(err)
	}
}
