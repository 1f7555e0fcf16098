package runtime

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters"
)

func TestAgents_SayWhatIsKnown(t *testing.T) {
	home := t.TempDir()
	t.Setenv("HOME", home)
	t.Setenv("FAKE_KEY", "")
	in := &fakeInstaller{has: map[string]bool{"thing@": true}}
	a := &fakeAgent{id: "a", info: adapters.Info{
		Credentials: anyCredentials,
		Program:     "thing", Features: adapters.Features{adapters.Text: {Level: adapters.ByAgent}},
		Login: adapters.Login{Env: []string{"FAKE_KEY"}, Files: []string{"~/login.json"}},
	}}
	fail := true
	a.handle = func(c *fakeConn, m acp.Message) {
		switch m.Method() {
		case "session/new":
			c.result(m, `{"sessionId":"n","configOptions":[
				{"id":"m","name":"Model","category":"model","type":"select","currentValue":"big","options":[{"value":"big","name":"Big"},{"value":"small","name":"Small","description":"cheap"}]},
				{"id":"t","name":"Thinking","category":"thought_level","type":"select","currentValue":"low","options":[{"value":"low","name":"Low"}]}],
				"modes":{"currentModeId":"ask","availableModes":[{"id":"ask","name":"Ask"}]}}`)
		case "session/prompt":
			if fail {
				c.out <- acp.NewError(m.ID(), acp.Errorf(acp.CodeAuthRequired, "log in"))
				return
			}
			c.result(m, `{"stopReason":"end_turn"}`)
		}
	}
	r := openRuntime(t, Options{DataDir: t.TempDir(), Adapters: []adapters.Adapter{a}, DefaultAgent: "a", Installer: in})
	row := func() AgentInfo {
		info := r.Agents()[0]
		info.Processes = nil
		return info
	}
	want := AgentInfo{
		ID: "a", Name: "a", Kind: "bridge", Installed: true, Path: "/thing", Default: true, AuthState: AuthUnknown,
		Capabilities: a.info.Features,
	}
	if diff := cmp.Diff(want, row()); diff != "" {
		t.Errorf("before use (-want +got):\n%s", diff)
	}
	tc := connect(t, r, "")
	s := tc.session()
	if err := os.WriteFile(filepath.Join(home, "login.json"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	tc.callErr("session/prompt", prompt(s, "hi"))
	want.CredentialsAvailable, want.AuthState = true, AuthRequired
	want.Models = []Choice{{ID: "big", Name: "Big"}, {ID: "small", Name: "Small", Description: "cheap"}}
	want.ThoughtLevels = []Choice{{ID: "low", Name: "Low"}}
	want.Modes = []Choice{{ID: "ask", Name: "Ask"}}
	if diff := cmp.Diff(want, row()); diff != "" {
		t.Errorf("after a refused prompt (-want +got):\n%s", diff)
	}
	fail = false
	own := tc.newWith(`{"credentials":{"apiKey":"k"}}`)
	tc.call("session/prompt", prompt(own, "hi"))
	if got := row().AuthState; got != AuthRequired {
		t.Errorf("after a prompt with a session's own credentials: %s", got)
	}
	tc.call("session/prompt", prompt(s, "hi"))
	if got := row().AuthState; got != AuthAuthenticated {
		t.Errorf("after a prompt: %s", got)
	}
}
