package runtime

import (
	"fmt"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

const reopening = `{"sessionCapabilities":{"resume":{},"close":{}}}`

// loadOf is what a session/load asks for.
func loadOf(s, cwd, more string) string {
	return fmt.Sprintf(`{"sessionId":%q,"cwd":%q%s}`, s, cwd, more)
}

// given returns what the agent was told in a request that opens a session.
func given(s sent, path ...string) string {
	v, _ := rawjson.Member(s.m.Params(), path...)
	return string(v)
}

const (
	serverA = `{"name":"a","command":"/a","args":[],"env":[]}`
	serverB = `{"name":"b","command":"/b","args":[],"env":[]}`
)

// turned lets the agent answer a prompt, for which it opens the session first.
func (tc *testClient) turned(t *testing.T, a *fakeAgent, s string) (opened sent) {
	t.Helper()
	id := tc.request("session/prompt", prompt(s, "x"))
	opened = a.nextOf(t, "session/resume")
	a.answer(opened, `{}`)
	a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
	tc.until(id)
	return opened
}

// Settings that a load brings along are the session's from then on, at once when no
// process works for it.
func TestLoad_SettingsOfADormantSession(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	a := &fakeAgent{id: "fake", caps: reopening, shared: make(chan sent, 64)}
	a.info.Takes = []string{"instructions", "credentials"}
	r, err := New(Options{DataDir: dir, Adapters: adaptersOf(a), DefaultAgent: "fake"})
	if err != nil {
		t.Fatal(err)
	}
	tc := connect(t, r, "")
	s := rawjson.MemberString([]byte(tc.call("session/new", `{"cwd":"/tmp","mcpServers":[`+serverA+`]}`)), "sessionId")
	tc.close()
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	r = newRuntime(t, dir, a)
	tc = connect(t, r, "")
	res := tc.call("session/load", loadOf(s, other, `,"mcpServers":[`+serverB+`],"additionalDirectories":["/more"],"_meta":{"sandboxagent.dev":{"instructions":"be brief","skills":{"paths":["/s"]},"env":{"V":"1"},"credentials":{"apiKey":"k"}}}`))
	if got := member(res, "unsupported"); !strings.Contains(got, `"skills"`) || strings.Contains(got, "instructions") {
		t.Errorf("unsupported: %s", got)
	}
	m := tc.turned(t, a, s)
	for _, want := range []struct{ path, want string }{
		{"cwd", `"` + other + `"`}, {"mcpServers", "[" + serverB + "]"}, {"additionalDirectories", `["/more"]`},
	} {
		if got := given(m, want.path); got != want.want {
			t.Errorf("%s is %s, want %s", want.path, got, want.want)
		}
	}
	if got := given(m, "_meta", acp.MetaKey, "instructions"); got != `"be brief"` {
		t.Errorf("instructions are %s", got)
	}
	a.mu.Lock()
	o := a.options[len(a.options)-1]
	a.mu.Unlock()
	if o.Credentials.APIKey != "k" || fmt.Sprint(o.Env) != "[V=1]" {
		t.Errorf("the process has %+v, %v", o.Credentials, o.Env)
	}
	if info, err := r.Session(s); err != nil || info.Cwd != other {
		t.Errorf("%+v, %v", info, err)
	}
}

// A session that is idle is opened anew with them, and the client is told what the
// agent does not take.
func TestLoad_SettingsOfAnIdleSession(t *testing.T) {
	a := &fakeAgent{id: "fake", caps: reopening, shared: make(chan sent, 64)}
	tc := connect(t, newRuntime(t, t.TempDir(), a), "")
	s := rawjson.MemberString([]byte(tc.call("session/new", `{"cwd":"/tmp","mcpServers":[`+serverA+`]}`)), "sessionId")
	// What is repeated, and the empty list of who only attaches, change nothing.
	for _, same := range []string{`,"mcpServers":[]`, `,"mcpServers":[ ` + serverA + `]`, ``} {
		if got := member(tc.call("session/resume", loadOf(s, "/tmp", same)), "unsupported"); got != "" {
			t.Errorf("%s: %s", same, got)
		}
	}
	id := tc.request("session/resume", loadOf(s, "/tmp", `,"mcpServers":[`+serverB+`]`))
	a.answer(a.nextOf(t, "session/close"), `{}`)
	m := a.nextOf(t, "session/resume")
	if got := given(m, "mcpServers"); got != "["+serverB+"]" {
		t.Errorf("opened with %s", got)
	}
	a.answer(m, `{"_meta":{"sandboxagent.dev":{"unsupported":[{"field":"mcpServers","reason":"b does not start"}]}}}`)
	if _, res := tc.until(id); !strings.Contains(member(string(res.Result()), "unsupported"), "b does not start") || member(string(res.Result()), "continuity") != `"native"` {
		t.Errorf("%s", res.Frame())
	}
}

// An agent that does not open the session with the new settings opens it with the old
// ones, and remembers what was said.
func TestLoad_SettingsThatTheAgentRefuses(t *testing.T) {
	a := &fakeAgent{id: "fake", caps: reopening, shared: make(chan sent, 64)}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	s := tc.session()
	other := t.TempDir()
	id := tc.request("session/resume", loadOf(s, other, ""))
	a.answer(a.nextOf(t, "session/close"), `{}`)
	a.refuse(a.nextOf(t, "session/resume"), "there is no conversation in this folder")
	m := a.nextOf(t, "session/resume")
	if got := given(m, "cwd"); got != `"/tmp"` {
		t.Errorf("opened in %s", got)
	}
	a.answer(m, `{}`)
	_, res := tc.until(id)
	if got := member(string(res.Result()), "unsupported"); !strings.Contains(got, `"cwd"`) || !strings.Contains(got, "no conversation in this folder") {
		t.Errorf("%s", res.Frame())
	}
	if info, _ := r.Session(s); info.Cwd != "/tmp" || info.Continuity != ContinuityNative {
		t.Errorf("%+v", info)
	}
}

// While something goes on in it, they have no effect, and the client is told so.
func TestLoad_SettingsOfASessionAtWork(t *testing.T) {
	a := &fakeAgent{id: "fake", caps: reopening, shared: make(chan sent, 64)}
	tc := connect(t, newRuntime(t, t.TempDir(), a), "")
	s := tc.session()
	id := tc.request("session/prompt", prompt(s, "x"))
	m := a.nextOf(t, "session/prompt")
	got := member(tc.call("session/resume", loadOf(s, "/tmp", `,"mcpServers":[`+serverB+`],"_meta":{"sandboxagent.dev":{"credentials":{"apiKey":"k"}}}`)), "unsupported")
	for _, want := range []string{`"mcpServers"`, `"credentials"`, "working"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
	a.answer(m, `{"stopReason":"end_turn"}`)
	tc.until(id)
}

// So are settings of an agent that cannot open a session a second time.
func TestLoad_SettingsThatCannotBeApplied(t *testing.T) {
	for caps, want := range map[string]string{
		`{}`: "cannot open a session again", `{"sessionCapabilities":{"resume":{}}}`: "cannot close a session",
	} {
		a := &fakeAgent{id: "fake", caps: caps}
		tc := connect(t, newRuntime(t, t.TempDir(), a), "")
		s := tc.session()
		res := tc.call("session/resume", loadOf(s, "/nowhere", `,"mcpServers":[`+serverB+`],"_meta":{"sandboxagent.dev":{"agent":"other","model":"m"}}`))
		for _, want := range []string{want, "/nowhere", "it is a session of agent fake", `"model"`} {
			if got := member(res, "unsupported"); !strings.Contains(got, want) {
				t.Errorf("no %q in %s", want, got)
			}
		}
	}
}
