package runtime

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters"
)

const asksFirst = `{"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":{"sessionId":"n","toolCall":{"toolCallId":"t"},"options":[{"optionId":"y","name":"Y","kind":"allow_once"}]}}`

// settingPlan returns a session of which a client has set the mode and has gone, how the agent was asked, and another client.
func settingPlan(t *testing.T, info adapters.Info) (a *fakeAgent, tc *testClient, s string, set sent) {
	t.Helper()
	a, gone, s := offering(t, info, "")
	gone.request("session/set_mode", `{"sessionId":"`+s+`","modeId":"plan"}`)
	set = a.nextOf(t, "session/set_mode")
	gone.close()
	return a, connect(t, gone.r, ""), s, set
}

// allows has the client answer what the agent asks, and the agent have that.
func (tc *testClient) allows(a *fakeAgent, ask acp.Message) {
	tc.t.Helper()
	if len(a.shared) > 0 {
		m := <-a.shared
		tc.t.Errorf("the agent was sent %s", m.m.Frame())
	}
	tc.answers(ask, `{"outcome":{"outcome":"selected","optionId":"y"}}`)
	if m := <-a.shared; !strings.Contains(string(m.m.Frame()), `"optionId":"y"`) {
		tc.t.Errorf("the agent was sent %s", m.m.Frame())
	}
}

// An agent asks before it takes a mode, and who has set that has gone. Who loads the session with other settings is not kept waiting for
// an answer that only it can give, and the agent is set to nothing meanwhile.
func TestLoad_BehindAModeThatTheAgentAsksAbout(t *testing.T) {
	for name, tt := range map[string]struct {
		info  adapters.Info
		loads string
		first bool // it asks before the load comes
		told  []string
	}{
		"asked, opened anew":      {takesPermission, `"permissionMode":"write","model":"small"`, true, []string{"permissionMode", "model"}},
		"asked then, opened anew": {takesPermission, `"permissionMode":"write","model":"small"`, false, []string{"permissionMode", "model"}},
		"asked, set":              {adapters.Info{}, `"permissionMode":"write"`, true, []string{"permissionMode"}},
		"asked then, set":         {adapters.Info{}, `"model":"small"`, false, []string{"model"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, tc, s, set := settingPlan(t, tt.info)
				var load acp.ID
				for _, asks := range []bool{tt.first, !tt.first} {
					if asks {
						a.conn().send(asksFirst)
					} else {
						load = tc.request("session/load", loadOf(s, "/tmp", own(tt.loads)))
					}
					synctest.Wait() // it is open, or the load waits
				}
				before, res := tc.until(load)
				for _, field := range tt.told {
					if want := `{"field":"` + field + `","reason":"the agent asks something`; !strings.Contains(member(string(res.Result()), "unsupported"), want) {
						t.Errorf("no %s in %s", want, res.Frame())
					}
				}
				var ask acp.Message
				if i := slices.IndexFunc(before, isPermission); i >= 0 {
					ask = before[i]
				} else {
					ask = tc.nextOf("session/request_permission")
				}
				tc.allows(a, ask)
				a.answer(set, `{}`)
			})
		})
	}
}

// Who wants the session to read only is not attached to it while it cannot be held to that. It is told how it comes to answer the agent.
func TestLoad_ReadonlyWhileTheAgentAsks(t *testing.T) {
	for name, info := range map[string]adapters.Info{"opened anew": takesPermission, "set": {}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, tc, s, set := settingPlan(t, info)
			a.conn().send(asksFirst)
			load := loadOf(s, "/tmp", own(`"permissionMode":"readonly"`))
			_, res := tc.until(tc.request("session/load", load))
			notHeld(t, &res, "load the session without settings, answer it, then load it again")
			tc.request("session/load", loadOf(s, "/tmp", ""))
			tc.allows(a, tc.nextOf("session/request_permission"))
			a.refuse(set, "not now")
			id := tc.request("session/load", load)
			if name == "set" {
				a.answer(a.nextOf(t, "session/set_mode"), `{}`)
			} else {
				a.answer(a.nextOf(t, "session/close"), `{}`)
				opened := a.nextOf(t, "session/resume")
				if got := given(opened, "_meta", acp.MetaKey, "permissionMode"); got != `"readonly"` {
					t.Errorf("it is opened with %s", got)
				}
				a.answer(opened, in("plan", `{`+offersOf+`}`))
			}
			if _, res := tc.until(id); res.Err() != nil || strings.Contains(string(res.Result()), "unsupported") {
				t.Errorf("in the end: %s", res.Frame())
			}
		})
	}
}

// A session that reads only already, and is asked for that once more while the agent asks before it takes another mode, stays so: whoever has
// set the other one is told.
func TestLoad_ReadonlyAgainWhileTheAgentAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, tc := slowSetting(t, t.TempDir(), adapters.Info{})
		load := tc.request("session/load", loadOf("n", "/tmp", own(`"permissionMode":"readonly"`)))
		takesAll(a.nextOf(t, acp.MethodSessionSetMode))
		tc.until(load)
		setting := tc.request(acp.MethodSessionSetMode, `{"sessionId":"n","modeId":"write"}`)
		set := a.nextOf(t, acp.MethodSessionSetMode)
		a.conn().send(asksFirst)
		ask := tc.nextOf("session/request_permission")
		other := connect(t, tc.r, "")
		if _, res := other.until(other.request("session/load", loadOf("n", "/tmp", own(`"permissionMode":"readonly"`)))); res.Err() != nil {
			t.Fatalf("%s", res.Frame())
		}
		tc.allows(a, ask)
		takesAll(set)
		if _, res := tc.until(setting); res.Err() == nil || !strings.Contains(res.Err().Message, "another mode was asked for") {
			t.Errorf("%s", res.Frame())
		}
		back := a.nextOf(t, acp.MethodSessionSetMode)
		if given(back, "modeId") != `"plan"` {
			t.Errorf("the agent is sent %s", back.m.Frame())
		}
		takesAll(back)
		if shown := tc.shows(); len(shown) == 0 || shown[len(shown)-1] != "plan" {
			t.Errorf("clients are shown %q", shown)
		}
		tc.ends(a)
		if set := tc.startsWith(a, takesAll); strings.Join(set, " ") != `="plan"` {
			t.Errorf("at the next start the agent is set to %q", set)
		}
	})
}

func isPermission(m acp.Message) bool { return m.Method() == "session/request_permission" }

// A load that waits until a mode is set ends with the session.
func TestLoad_BehindAModeOfASessionThatEnds(t *testing.T) {
	for method, want := range map[string]string{"session/close": "is closed", "session/delete": "was deleted", "_sandboxagent/session/terminate": "has ended"} {
		t.Run(method, func(t *testing.T) {
			t.Parallel()
			a, tc, s := offering(t, takesPermission, "")
			other := connect(t, tc.r, "")
			tc.request("session/set_mode", `{"sessionId":"`+s+`","modeId":"plan"}`)
			a.nextOf(t, "session/set_mode")
			load := tc.request("session/load", loadOf(s, "/tmp", own(`"permissionMode":"write"`)))
			tc.call("_sandboxagent/session/get", `{"sessionId":"`+s+`"}`) // the load was begun
			other.request(method, `{"sessionId":"`+s+`"}`)
			if _, res := tc.until(load); res.Err() == nil || !strings.Contains(res.Err().Message, want) {
				t.Errorf("%s", res.Frame())
			}
		})
	}
}
