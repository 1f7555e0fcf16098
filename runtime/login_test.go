package runtime

import (
	"sync"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// A process that is started later is told what a client authenticated with, unless its session has a key of its own. A login that was
// only begun is not begun again.
func TestLogin_NewProcessesAreToldAgain(t *testing.T) {
	t.Setenv("FAKE_KEY", "")
	a := &fakeAgent{info: adapters.Info{Credentials: anyCredentials, Takes: []string{"credentials"}, Login: adapters.Login{Env: []string{"FAKE_KEY"}, Method: "by-key"}}}
	var mu sync.Mutex
	logins, answer := map[*fakeConn]string{}, `{}`
	a.handle = func(c *fakeConn, m acp.Message) {
		switch m.Method() {
		case "session/new":
			c.newSession(m)
		case "authenticate":
			mu.Lock()
			logins[c] += string(m.Params())
			c.result(m, answer)
			mu.Unlock()
		default:
			c.result(m, `{}`)
		}
	}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	login := func() string {
		mu.Lock()
		defer mu.Unlock()
		return logins[a.conn()]
	}
	if got := login(); got != "" {
		t.Errorf("without a key the agent was told %s", got)
	}
	const byKey = `{"methodId":"by-key"}`
	tc.newWith(`{"env":{"FAKE_KEY":"k"}}`)
	if got := login(); got != byKey {
		t.Errorf("with a key in the session's environment: %q", got)
	}
	tc.newWith(`{"credentials":{"apiKey":"k"}}`)
	if got := login(); got != byKey {
		t.Errorf("with a key in the credentials: %q", got)
	}
	const chosen = `{"methodId":"browser","_meta":{"x":1}}`
	tc.call("authenticate", chosen)
	tc.newWith(`{"isolation":"session"}`)
	if got := login(); got != chosen {
		t.Errorf("after a client authenticated: %q", got)
	}
	for _, own := range []string{`{"credentials":{"apiKey":"other"}}`, `{"env":{"FAKE_KEY":"other"}}`} {
		if tc.newWith(own); login() != byKey {
			t.Errorf("after a client authenticated, with %s: %q", own, login())
		}
	}
	if tc.newWith(`{"credentials":{"oauthToken":"other"}}`); login() != "" {
		t.Errorf("after a client authenticated, with a token of the session's: %q", login())
	}
	if tc.newWith(`{"env":{"OTHER":"x"}}`); login() != chosen {
		t.Errorf("after a client authenticated, with another variable: %q", login())
	}
	mu.Lock()
	answer = `{"_meta":{"sandboxagent.dev":{"login":{"url":"https://login"}}}}`
	mu.Unlock()
	tc.call("authenticate", `{"methodId":"code"}`)
	if tc.newWith(`{"isolation":"session"}`); login() != chosen {
		t.Errorf("after a client began a login that goes on in a browser: %q", login())
	}
	tc.call("logout", `{}`)
	tc.newWith(`{"isolation":"session"}`)
	if got := login(); got != "" {
		t.Errorf("after a client logged out: %q", got)
	}
}

// A login that goes on in a browser is none before the agent says so, which is what the gateway says of the agent then.
func TestLogin_IsBegunAndEnds(t *testing.T) {
	a := &fakeAgent{id: "fake", handle: func(c *fakeConn, m acp.Message) {
		c.result(m, `{"_meta":{"sandboxagent.dev":{"login":{"url":"https://login"}}}}`)
	}}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	state := AuthUnknown
	for _, ends := range []struct {
		says string
		is   AuthState
	}{{"unauthenticated", AuthRequired}, {"unknown", AuthRequired}, {"authenticated", AuthAuthenticated}} {
		tc.call("authenticate", `{"methodId":"code"}`)
		if got := r.Agents()[0].AuthState; got != state {
			t.Errorf("as a login is begun: %s, want %s", got, state)
		}
		a.conn().send(`{"jsonrpc":"2.0","method":"auth/status_update","params":{"state":"` + ends.says + `","_meta":{"sandboxagent.dev":{"login":{"success":true}}}}}`)
		tc.nextOf("auth/status_update")
		if got := r.Agents()[0].AuthState; got != ends.is {
			t.Errorf("as it ends %s: %s, want %s", ends.says, got, ends.is)
		}
		state = ends.is
	}
}
