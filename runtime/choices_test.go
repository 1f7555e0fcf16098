package runtime

import (
	"slices"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/internal/killed"
)

var takesPermission = adapters.Info{Takes: []string{"permissionMode", "instructions"}}

// opensAgain has the agent asked for a prompt in a session without a process, opens that in a mode, and returns what it is set to before
// it gets the prompt, each answered.
func (tc *testClient) opensAgain(t *testing.T, a *fakeAgent, s, mode string) (opened sent, set []string) {
	t.Helper()
	_, opened = tc.begins(t, a, s)
	a.answer(opened, in(mode, `{`+offersOf+`}`))
	for m := range a.shared {
		if m.m.Method() == acp.MethodSessionPrompt {
			a.answer(m, `{"stopReason":"end_turn"}`)
			return opened, set
		}
		set = append(set, rawjson.MemberString(m.m.Params(), "modeId"))
		a.answer(m, `{}`)
	}
	return opened, set
}

// A mode that a client has set is older than a load that comes before the agent has answered it.
func TestLoad_BehindAModeThatIsBeingSet(t *testing.T) {
	t.Parallel()
	a, tc, s := offering(t, takesPermission, "")
	set := tc.request("session/set_mode", `{"sessionId":"`+s+`","modeId":"write"}`)
	m := a.nextOf(t, "session/set_mode")
	load := tc.request("session/load", loadOf(s, "/tmp", own(`"permissionMode":"readonly"`)))
	tc.call("_sandboxagent/session/get", `{"sessionId":"`+s+`"}`)
	if len(a.shared) > 0 {
		t.Error("the agent is asked for what comes behind it")
	}
	a.answer(m, `{}`)
	tc.until(set)
	a.answer(a.nextOf(t, "session/close"), `{}`)
	a.answer(a.nextOf(t, "session/resume"), in("plan", `{`+offersOf+`}`))
	tc.until(load)
	tc.ends(a)
	if _, set := tc.opensAgain(t, a, s, "plan"); len(set) > 0 {
		t.Errorf("the agent is set to %q", set)
	}
}

// A permissionMode that asks for nothing changes nothing of a session that has none.
func TestLoad_DefaultOfASessionWithNone(t *testing.T) {
	t.Parallel()
	a, tc, s := offering(t, takesPermission, "")
	set := tc.request("session/set_mode", `{"sessionId":"`+s+`","modeId":"plan"}`)
	a.answer(a.nextOf(t, "session/set_mode"), `{}`)
	tc.until(set)
	tc.call("session/load", loadOf(s, "/tmp", own(`"permissionMode":"default"`)))
	tc.ends(a)
	if _, set := tc.opensAgain(t, a, s, "write"); strings.Join(set, " ") != "plan" {
		t.Errorf("the agent is set to %q", set)
	}
}

// A fork without a directory has the settings of the session, and those that it is asked for with. Its agent is told.
func TestFork_WithoutADirectory(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ cwd, had, asked, want string }{
		{"", `"permissionMode":"readonly"`, `"instructions":"be brief"`, `"readonly" "be brief"`},
		{"", `"instructions":"be brief"`, `"permissionMode":"readonly"`, `"readonly" "be brief"`},
		{`,"cwd":""`, `"permissionMode":"readonly"`, `"instructions":"be brief"`, `"readonly" "be brief"`},
	} {
		a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{},"fork":{}}}`, info: takesPermission, shared: make(chan sent, 64)}
		a.byHand()
		tc := connect(t, newRuntime(t, t.TempDir(), a), "")
		id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]`+own(tt.had)+`}`)
		a.answer(a.nextOf(t, "session/new"), `{"sessionId":"n"}`)
		tc.until(id)
		id = tc.request("session/fork", `{"sessionId":"n"`+tt.cwd+own(tt.asked)+`}`)
		m := a.nextOf(t, "session/fork")
		if got := given(m, "_meta", acp.MetaKey, "permissionMode") + " " + given(m, "_meta", acp.MetaKey, "instructions"); got != tt.want || given(m, "cwd") != `"/tmp"` {
			t.Errorf("the agent is asked for %s", m.m.Frame())
		}
		a.answer(m, `{"sessionId":"f"}`)
		tc.until(id)
		tc.ends(a)
		_, opened := tc.begins(t, a, "f")
		if got := given(opened, "_meta", acp.MetaKey, "permissionMode") + " " + given(opened, "_meta", acp.MetaKey, "instructions"); got != tt.want || given(opened, "cwd") != `"/tmp"` {
			t.Errorf("it is opened with %s", opened.m.Frame())
		}
		a.answer(opened, `{}`)
		a.nextOf(t, "session/prompt")
	}
}

// Of a mode and a permissionMode that are asked for while nobody works for the session the newer counts.
func TestLoad_ModeBehindAPermissionModeThatWaits(t *testing.T) {
	t.Parallel()
	a, tc, s := offering(t, takesPermission, "")
	set := tc.request("session/set_mode", `{"sessionId":"`+s+`","modeId":"write"}`)
	a.answer(a.nextOf(t, "session/set_mode"), `{}`)
	tc.until(set)
	tc.ends(a)
	tc.call("session/load", loadOf(s, "/tmp", own(`"permissionMode":"readonly"`)))
	tc.call("session/load", loadOf(s, "/tmp", own(`"mode":"write"`)))
	if opened, set := tc.opensAgain(t, a, s, "plan"); strings.Join(set, " ") != "write" || given(opened, "_meta", acp.MetaKey, "permissionMode") != `"readonly"` {
		t.Errorf("opened with %s, and set to %q", opened.m.Frame(), set)
	}
	tc.ends(a)
	tc.call("session/load", loadOf(s, "/tmp", own(`"permissionMode":"bypass"`)))
	tc.call("session/load", loadOf(s, "/tmp", own(`"permissionMode":"readonly"`)))
	if _, set := tc.opensAgain(t, a, s, "plan"); len(set) > 0 {
		t.Errorf("set to %q", set)
	}
}

// A permissionMode that the adapter refuses takes none away that the session has.
func TestLoad_RefusedPermissionModeBesideAnother(t *testing.T) {
	t.Parallel()
	const refuses = `"_meta":{"sandboxagent.dev":{"unsupported":[{"field":"permissionMode","reason":"not as root"}]}}`
	a, tc, id := offering(t, takesPermission, own(`"permissionMode":"write"`))
	tc.until(acp.ID(id))
	load := tc.request("session/load", loadOf("n", "/tmp", own(`"permissionMode":"bypass"`)))
	for _, said := range []string{refuses + `,`, ``} {
		a.answer(a.nextOf(t, "session/close"), `{}`)
		opened := a.nextOf(t, "session/resume")
		if want := map[bool]string{true: `"bypass"`, false: `"write"`}[said != ""]; given(opened, "_meta", acp.MetaKey, "permissionMode") != want {
			t.Errorf("opened with %s", opened.m.Frame())
		}
		a.answer(opened, in("write", `{`+said+offersOf+`}`))
	}
	if _, res := tc.until(load); !strings.Contains(member(string(res.Result()), "unsupported"), "not as root") {
		t.Errorf("%s", res.Frame())
	}
	tc.ends(a)
	if opened, _ := tc.opensAgain(t, a, "n", "write"); given(opened, "_meta", acp.MetaKey, "permissionMode") != `"write"` {
		t.Errorf("opened with %s", opened.m.Frame())
	}
}

// What an agent says of its mode right behind its answer is newer than that. Where the load is not done yet, it is set back.
func TestMode_AgentGoesOverBehindItsAnswer(t *testing.T) {
	reads := own(`"permissionMode":"readonly"`)
	for name, opens := range map[string]bool{"to a mode": false, "to be opened": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 20 { // two goroutines meet
				info := adapters.Info{}
				if opens {
					info = takesPermission
				}
				a, tc, s := offering(t, info, "")
				load := tc.request("session/load", loadOf(s, "/tmp", reads))
				m := <-a.shared
				if opens {
					a.answer(m, `{}`)
					m = a.nextOf(t, "session/resume")
					m.to.result(m.m, in("plan", `{`+offersOf+`}`))
				} else {
					m.to.result(m.m, `{}`)
				}
				goesOver(m.to, "n", "write", false)
				done, want := make(chan struct{}), make(chan string, 1)
				go func() {
					select {
					case m := <-a.shared: // it was heard before the load was done: the agent is set back
						m.to.result(m.m, `{}`)
						want <- "plan"
					case <-done:
						want <- "write"
					}
				}()
				before, _ := tc.until(load)
				close(done)
				if !slices.ContainsFunc(before, func(m acp.Message) bool { return string(m.UpdateKind()) == "current_mode_update" }) {
					tc.nextOf("session/update")
				}
				now := tc.call("session/resume", loadOf(s, "/tmp", ""))
				if mode := rawjson.MemberString([]byte(now), "modes", "currentModeId"); mode != <-want {
					t.Fatalf("a client is told %s", now)
				}
			}
		})
	}
}

// What a load sets while nobody works for the session is newer than what a gateway that was killed has in its log.
func TestLoad_BehindAGatewayThatWasKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := &fakeAgent{id: "fake", caps: reopening, shared: make(chan sent, 64)}
	a.byHand()
	tc := connect(t, newRuntime(t, dir, a), "")
	id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]}`)
	a.answer(a.nextOf(t, "session/new"), in("plan", `{"sessionId":"n",`+offersOf+`}`))
	tc.until(id)
	goesOver(a.conn(), "n", "write", false)
	tc.nextOf("session/update")
	next := connect(t, newRuntime(t, killed.Folder(t, dir), a), "")
	next.call("session/resume", loadOf("n", "/tmp", own(`"mode":"plan"`)))
	if _, set := next.opensAgain(t, a, "n", "write"); strings.Join(set, " ") != "plan" {
		t.Errorf("the agent is set to %q", set)
	}
}

// What the agent answers of a session that was closed and opened again meanwhile is not how that is.
func TestMode_AnsweredWhenTheSessionWasOpenedAgain(t *testing.T) {
	t.Parallel()
	a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"close":{}}}`, shared: make(chan sent, 64)}
	a.byHand()
	r := newRuntime(t, t.TempDir(), a)
	tc, other := connect(t, r, ""), connect(t, r, "")
	id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]}`)
	a.answer(a.nextOf(t, "session/new"), in("plan", `{"sessionId":"n",`+offersOf+`}`))
	tc.until(id)
	set := tc.request("session/set_mode", `{"sessionId":"n","modeId":"write"}`)
	m := a.nextOf(t, "session/set_mode")
	closed := other.request("session/close", `{"sessionId":"n"}`)
	a.answer(a.nextOf(t, "session/close"), `{}`)
	other.until(closed)
	other.call("session/resume", loadOf("n", "/tmp", ""))
	turn := other.request("session/prompt", prompt("n", "x"))
	a.answer(a.nextOf(t, "session/new"), in("plan", `{"sessionId":"other",`+offersOf+`}`))
	p := a.nextOf(t, "session/prompt")
	a.answer(m, `{}`)
	if _, res := tc.until(set); res.Err() == nil || !strings.Contains(res.Err().Message, "opened anew") {
		t.Errorf("%s", res.Frame())
	}
	a.answer(p, `{"stopReason":"end_turn"}`)
	other.until(turn)
	if now := other.call("session/resume", loadOf("n", "/tmp", "")); rawjson.MemberString([]byte(now), "modes", "currentModeId") != "plan" {
		t.Errorf("a client is told %s", now)
	}
}

// What was refused as a session was made is asked of the agent again when the gateway was killed since.
func TestNew_RefusedModeAndAGatewayThatWasKilled(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	a := &fakeAgent{id: "fake", caps: reopening, shared: make(chan sent, 64)}
	a.byHand()
	tc := connect(t, newRuntime(t, dir, a), "")
	id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]`+own(`"mode":"plan"`)+`}`)
	a.answer(a.nextOf(t, "session/new"), in("write", `{"sessionId":"n",`+offersOf+`}`))
	a.refuse(a.nextOf(t, "session/set_mode"), "not now")
	tc.until(id)
	next := connect(t, newRuntime(t, killed.Folder(t, dir), a), "")
	next.call("session/load", loadOf("n", "/tmp", own(`"mode":"plan"`)))
	if _, set := next.opensAgain(t, a, "n", "write"); strings.Join(set, " ") != "plan" {
		t.Errorf("the agent is set to %q", set)
	}
}

// What an agent says of its mode as it opens a session does not take the place of the mode that was chosen.
func TestMode_SaidAsTheSessionIsOpened(t *testing.T) {
	t.Parallel()
	a, tc, s := offering(t, adapters.Info{}, "")
	id := tc.request("session/set_mode", `{"sessionId":"`+s+`","modeId":"plan"}`)
	a.answer(a.nextOf(t, "session/set_mode"), `{}`)
	tc.until(id)
	for range 2 {
		tc.ends(a)
		id, opened := tc.begins(t, a, s)
		goesOver(opened.to, "n", "write", false)
		opened.to.result(opened.m, in("write", `{`+offersOf+`}`))
		goesOver(opened.to, "n", "write", false)
		set := a.nextOf(t, "session/set_mode")
		if got := given(set, "modeId"); got != `"plan"` {
			t.Errorf("the agent is set to %s", got)
		}
		a.answer(set, `{}`)
		a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
		tc.until(id)
	}
}
