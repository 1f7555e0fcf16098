package runtime

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// Agents that leave the mode which holds a session to what it may do, by an answer that comes late.

const planned = `"modes":{"currentModeId":"plan","availableModes":[{"id":"write","name":"Write"},{"id":"plan","name":"Plan","description":"Read-only mode"}]}`

// Who asks for readonly once more when a session is so already has asked for it behind what the agent has not answered by then.
func TestLoad_ReadonlyAskedAgainBehindWhatIsNotAnswered(t *testing.T) {
	for name, row := range map[string]struct {
		info adapters.Info
		by   string // what is not answered
		asks string // of _meta, by the load that comes then
		ends bool   // the agent refuses to be set back
		late string // the mode that counts then
	}{
		"behind set_mode":                {by: acp.MethodSessionSetMode, asks: `"permissionMode":"readonly"`, late: "plan"},
		"behind a load":                  {by: acp.MethodSessionLoad, asks: `"permissionMode":"readonly"`, late: "plan"},
		"it is not set back":             {by: acp.MethodSessionSetMode, asks: `"permissionMode":"readonly"`, late: "plan", ends: true},
		"the adapter takes it":           {info: takesPermission, by: acp.MethodSessionSetMode, asks: `"permissionMode":"readonly"`, late: "plan"},
		"the adapter, it is not back":    {info: takesPermission, by: acp.MethodSessionSetMode, asks: `"permissionMode":"readonly"`, late: "plan", ends: true},
		"nothing is asked for":           {by: acp.MethodSessionSetMode, late: "write"},
		"by one who goes on with it":     {by: acp.MethodSessionSetMode, asks: `"permissionMode":"readonly","after":0`, late: "write"},
		"what was asked for is the mode": {by: acp.MethodSessionSetMode, asks: `"mode":"plan"`, late: "plan"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, tc := slowSetting(t, t.TempDir(), row.info)
				load := tc.request("session/load", loadOf("n", "/tmp", own(`"permissionMode":"readonly"`)))
				if row.info.Takes == nil {
					takesAll(a.nextOf(t, acp.MethodSessionSetMode))
				} else {
					takesAll(a.nextOf(t, acp.MethodSessionClose))
					a.answer(a.nextOf(t, acp.MethodSessionResume), `{`+planned+`}`)
				}
				tc.until(load)
				late := tc.givesUp(a, row.by, "write")
				asking := tc
				if strings.Contains(row.asks, "after") {
					asking = connect(t, tc.r, "")
				}
				load = asking.request("session/load", loadOf("n", "/tmp", own(row.asks)))
				if strings.Contains(row.asks, `"mode"`) {
					takesAll(a.nextOf(t, acp.MethodSessionSetMode))
				}
				if _, res := asking.until(load); res.Err() != nil || rawjson.MemberString(res.Result(), "modes", "currentModeId") != "plan" || member(string(res.Result()), "unsupported") != "" {
					t.Errorf("%s", res.Frame())
				}
				takesAll(late)
				if row.late == "write" {
					if shown := tc.shows(); !slices.Equal(shown, []string{"write"}) || len(a.shared) > 0 {
						t.Errorf("clients are shown %q, and the agent is sent %d messages", shown, len(a.shared))
					}
					return
				}
				back := a.nextOf(t, acp.MethodSessionSetMode)
				if given(back, "modeId") != `"plan"` {
					t.Errorf("the agent is sent %s", back.m.Frame())
				}
				shown := tc.shows()
				if row.ends {
					refuseAs(back.to, back.m, acp.CodeInternal, "not now")
					takesAll(a.nextOf(t, acp.MethodSessionClose))
					if shown = append(shown, tc.shows()...); len(shown) != 2 || !strings.Contains(shown[1], `"field":"permissionMode"`) || strings.Contains(shown[1], "started anew") {
						t.Errorf("clients are shown %q", shown)
					}
				} else {
					takesAll(back)
					if shown = append(shown, tc.shows()...); !slices.Equal(shown, []string{"write", "plan"}) {
						t.Errorf("clients are shown %q", shown)
					}
					tc.ends(a)
				}
				id, opened := tc.begins(t, a, "n")
				if got := given(opened, "_meta", acp.MetaKey, "permissionMode"); got != `"readonly"` {
					t.Errorf("it is opened with %s", opened.m.Frame())
				}
				if row.info.Takes == nil {
					a.answer(opened, `{`+writeAndPlan+`}`)
					if set := a.nextOf(t, acp.MethodSessionSetMode); given(set, "modeId") != `"plan"` {
						t.Errorf("at the next start the agent is set to %s", set.m.Frame())
					} else {
						takesAll(set)
					}
				} else {
					a.answer(opened, `{`+planned+`}`)
				}
				a.answer(a.nextOf(t, acp.MethodSessionPrompt), `{"stopReason":"end_turn"}`)
				tc.until(id)
			})
		})
	}
}

// strays returns an agent of such capabilities whose session n is to read only, and how it is asked to go back out of the mode into which a
// late answer has taken it. A prompt may be under way.
func strays(t *testing.T, caps string, turn bool) (a *fakeAgent, tc *testClient, prompted, back sent) {
	t.Helper()
	return straysOf(t, caps, turn, nil)
}

// straysOf is strays where the host has tools.
func straysOf(t *testing.T, caps string, turn bool, host HostTools) (a *fakeAgent, tc *testClient, prompted, back sent) {
	t.Helper()
	a = &fakeAgent{id: "fake", caps: caps, shared: make(chan sent, 64)}
	a.byHand()
	r := openRuntime(t, Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake", RequestTimeout: setLimit, HostTools: host})
	tc = connect(t, r, "")
	id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]}`)
	a.answer(a.nextOf(t, "session/new"), `{"sessionId":"n",`+writeAndPlan+`}`)
	tc.until(id)
	id = tc.request("session/prompt", prompt("n", "x"))
	prompted = a.nextOf(t, "session/prompt")
	prompted.to.chunk("n", "hello")
	a.answer(prompted, `{"stopReason":"end_turn"}`)
	tc.until(id)
	late := tc.givesUp(a, acp.MethodSessionLoad, "write")
	id = tc.request("session/load", loadOf("n", "/tmp", own(`"permissionMode":"readonly"`)))
	takesAll(a.nextOf(t, "session/set_mode"))
	tc.until(id)
	if turn {
		tc.request("session/prompt", prompt("n", "y"))
		prompted = a.nextOf(t, "session/prompt")
	}
	takesAll(late)
	return a, tc, prompted, a.nextOf(t, "session/set_mode")
}

const worksByItself = `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"n","update":{"sessionUpdate":"tool_call","toolCallId":"c","title":"rm","status":"in_progress"}}}`

// An agent that is in the wrong mode, is not set back, and cannot close the session, is told to end what it does, also without a prompt. The
// next one opens the session elsewhere.
func TestStray_TheAgentIsToldToStop(t *testing.T) {
	for _, turn := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, tc, _, back := strays(t, `{"loadSession":true}`, turn)
			if !turn {
				back.to.send(worksByItself)
			}
			refuseAs(back.to, back.m, acp.CodeInternal, "not now")
			if m := a.nextOf(t, "session/cancel"); m.to != back.to || m.m.Session() != "n" {
				t.Errorf("it is told %s", m.m.Frame())
			}
			tc.shows()
			id := tc.request("session/prompt", prompt("n", "z"))
			load := a.nextOf(t, "session/load")
			if load.to == back.to {
				t.Error("the session is opened beside what the agent goes on with")
			}
			a.answer(load, `{`+writeAndPlan+`}`)
			takesAll(a.nextOf(t, "session/set_mode"))
			a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
			if _, res := tc.until(id); res.Err() != nil {
				t.Errorf("%s", res.Frame())
			}
		})
	}
}

// An agent that cannot open a session again keeps one in which it is in the wrong mode: it would forget all for a refusal of the moment. It ends
// what it does, and is set to the mode before it gets the next prompt.
func TestStray_OfAnAgentThatWouldForget(t *testing.T) {
	for _, turn := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, tc, prompted, back := strays(t, `{}`, turn)
			if !turn {
				back.to.send(worksByItself)
			}
			refuseAs(back.to, back.m, acp.CodeInternal, "not now")
			a.nextOf(t, "session/cancel")
			if turn {
				synctest.Wait()
				a.answer(prompted, `{"stopReason":"cancelled"}`)
				if _, m := tc.until(acp.IntID(int64(tc.lastID))); m.Err() == nil || !strings.Contains(m.Err().Message, "readonly cannot be kept: agent fake refuses plan: not now") {
					t.Errorf("the turn ends with %s", m.Frame())
				}
			} else if shown := tc.shows(); !strings.Contains(strings.Join(shown, " "), `"field":"permissionMode"`) {
				t.Errorf("clients are shown %q", shown)
			}
			id := tc.request("session/prompt", prompt("n", "z"))
			again := a.nextOf(t, "session/set_mode")
			if given(again, "modeId") != `"plan"` {
				t.Errorf("the agent is sent %s", again.m.Frame())
			}
			refuseAs(again.to, again.m, acp.CodeInternal, "not now either")
			if _, res := tc.until(id); res.Err() == nil || !strings.Contains(res.Err().Message, "not now either") {
				t.Errorf("the prompt is answered with %s", res.Frame())
			}
			synctest.Wait()
			for len(a.shared) > 0 {
				if m := <-a.shared; m.m.Method() != "session/cancel" {
					t.Errorf("the agent is sent %s", m.m.Frame())
				}
			}
			id = tc.request("session/prompt", prompt("n", "z"))
			again = a.nextOf(t, "session/set_mode")
			write := tc.request("session/set_mode", `{"sessionId":"n","modeId":"write"}`) // behind the prompt
			synctest.Wait()
			takesAll(again)
			if m := a.nextOf(t, "session/prompt"); m.to != back.to || m.m.Session() != "n" {
				t.Errorf("it is given to %s", m.m.Session())
			} else {
				set := a.nextOf(t, "session/set_mode")
				if given(set, "modeId") != `"write"` {
					t.Errorf("the agent is sent %s", set.m.Frame())
				}
				takesAll(set)
				tc.until(write)
				a.answer(m, `{"stopReason":"end_turn"}`)
			}
			before, res := tc.until(id)
			for _, m := range append(before, res) {
				if m.Err() != nil || strings.Contains(string(m.Frame()), "fresh") {
					t.Errorf("clients are shown %s", m.Frame())
				}
			}
		})
	}
}

// What such an agent is to be may be asked for otherwise meanwhile: then it is given prompts.
func TestStray_OfAnAgentThatMayWriteAgain(t *testing.T) {
	for name, set := range map[string]func(tc *testClient, a *fakeAgent) acp.ID{
		"by a load": func(tc *testClient, a *fakeAgent) acp.ID {
			id := tc.request("session/load", loadOf("n", "/tmp", own(`"permissionMode":"default","mode":"write"`)))
			takesAll(a.nextOf(tc.t, "session/set_mode"))
			return id
		},
		"as it is set back": func(tc *testClient, a *fakeAgent) acp.ID {
			id := tc.request("session/set_mode", `{"sessionId":"n","modeId":"write"}`)
			takesAll(a.nextOf(tc.t, "session/set_mode"))
			return id
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, tc, _, back := strays(t, `{}`, false)
				refuseAs(back.to, back.m, acp.CodeInternal, "not now")
				tc.shows()
				if _, res := tc.until(set(tc, a)); res.Err() != nil {
					t.Errorf("%s", res.Frame())
				}
				id := tc.request("session/prompt", prompt("n", "z"))
				if m := a.nextOf(t, "session/prompt"); m.to != back.to || m.m.Session() != "n" {
					t.Errorf("it is given to %s", m.m.Session())
				} else {
					a.answer(m, `{"stopReason":"end_turn"}`)
				}
				tc.until(id)
			})
		})
	}
}

// Such an agent loses the session nevertheless where it takes no notice of the cancel: it would go on in the wrong mode for ever.
func TestStray_OfAnAgentThatTakesNoNotice(t *testing.T) {
	for _, does := range []string{"a turn", "something by itself", "something by itself, later"} {
		synctest.Test(t, func(t *testing.T) {
			turn := does == "a turn"
			a, tc, _, back := strays(t, `{}`, turn)
			if does == "something by itself" {
				back.to.send(worksByItself)
			}
			refuseAs(back.to, back.m, acp.CodeInternal, "not now")
			if strings.HasSuffix(does, "later") {
				tc.shows()
				if len(a.shared) > 0 {
					t.Error("it is told to end what it does not do")
				}
				back.to.send(worksByItself)
			}
			a.nextOf(t, "session/cancel")
			if turn {
				if _, m := tc.until(acp.IntID(int64(tc.lastID))); m.Err() == nil || !strings.Contains(m.Err().Message, "readonly cannot be kept: agent fake refuses plan: not now") {
					t.Errorf("the turn ends with %s", m.Frame())
				}
			} else {
				for m := tc.next(); !strings.Contains(string(m.Frame()), `"status":"failed"`); m = tc.next() {
				}
			}
			id := tc.request("session/prompt", prompt("n", "z"))
			opened := a.nextOf(t, "session/new")
			if opened.to == back.to {
				t.Error("the session is opened beside what the agent goes on with")
			}
			a.answer(opened, `{"sessionId":"n2",`+writeAndPlan+`}`)
			takesAll(a.nextOf(t, "session/set_mode"))
			a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
			if _, res := tc.until(id); res.Err() != nil {
				t.Errorf("%s", res.Frame())
			}
		})
	}
}

// It keeps what it does by itself where a client has allowed that meanwhile, or has set it back.
func TestStray_OfAnAgentThatMayGoOn(t *testing.T) {
	for _, mode := range []string{"plan", "write"} {
		synctest.Test(t, func(t *testing.T) {
			a, tc, _, back := strays(t, `{}`, false)
			back.to.send(worksByItself)
			refuseAs(back.to, back.m, acp.CodeInternal, "not now")
			a.nextOf(t, "session/cancel")
			id := tc.request("session/set_mode", `{"sessionId":"n","modeId":"`+mode+`"}`)
			takesAll(a.nextOf(t, "session/set_mode"))
			tc.until(id)
			time.Sleep(time.Hour) // of the test's own time
			tc.shows()
			id = tc.request("session/prompt", prompt("n", "z"))
			m := a.nextOf(t, "session/prompt")
			if m.to != back.to {
				t.Error("the session is opened anew")
			}
			a.answer(m, `{"stopReason":"end_turn"}`)
			tc.until(id)
		})
	}
}

// An agent that offers its modes no more by then is not set back by that there is nothing to set it to.
func TestStray_OfAnAgentThatOffersNoModesAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := func(mode string) string {
			return `"configOptions":[{"id":"mode","name":"Mode","category":"mode","type":"select","currentValue":"` + mode + `","options":[{"value":"write","name":"Write"},{"value":"plan","name":"Plan"}]}]`
		}
		a := &fakeAgent{id: "fake", info: takesPermission, caps: `{}`, shared: make(chan sent, 64)}
		a.byHand()
		r := openRuntime(t, Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake", RequestTimeout: setLimit})
		tc := connect(t, r, "")
		id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]`+own(`"permissionMode":"readonly"`)+`}`)
		a.answer(a.nextOf(t, "session/new"), `{"sessionId":"n",`+in("plan")+`}`)
		tc.until(id)
		tc.callErr("session/set_config_option", `{"sessionId":"n","configId":"mode","value":"write"}`)
		late := a.nextOf(t, "session/set_config_option")
		tc.call("session/load", loadOf("n", "/tmp", own(`"permissionMode":"readonly"`)))
		a.answer(late, `{`+in("write")+`}`)
		back := a.nextOf(t, "session/set_config_option")
		refuseAs(back.to, back.m, acp.CodeInternal, "not now")
		tc.shows()
		back.to.update("n", `{"sessionUpdate":"config_option_update","configOptions":[`+optionModel+`]}`)
		synctest.Wait()
		id = tc.request("session/prompt", prompt("n", "z"))
		synctest.Wait()
		if len(a.shared) > 0 {
			m := <-a.shared
			t.Fatalf("the agent is sent %s", m.m.Frame())
		}
		_, res := tc.until(id)
		notHeld(t, &res, "agent fake offers no modes now")
		back.to.update("n", `{"sessionUpdate":"config_option_update",`+in("write")+`}`)
		synctest.Wait()
		id = tc.request("session/prompt", prompt("n", "z"))
		again := a.nextOf(t, "session/set_config_option")
		if given(again, "value") != `"plan"` {
			t.Errorf("the agent is sent %s", again.m.Frame())
		}
		a.answer(again, `{`+in("plan")+`}`)
		a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
		tc.until(id)
	})
}

// An agent that leaves the mode of readonly by an answer that comes late is set back, also where it has said before that answer that it is in that
// mode: by telling of its options as they were, or as it was set to it.
func TestStray_LateBehindWhatTheAgentHasSaid(t *testing.T) {
	plans := `"configOptions":[` + modeOption("plan") + `]`
	for name, row := range map[string]struct{ by, params string }{
		"by a mode":    {"session/set_mode", `{"sessionId":"n","modeId":"write"}`},
		"by an option": {"session/set_config_option", `{"sessionId":"n","configId":"mode","value":"write"}`},
	} {
		for _, confirms := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, it confirms what a load sets: %v", name, confirms), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{},"close":{}}}`, shared: make(chan sent, 64)}
					a.byHand()
					r := openRuntime(t, Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake", RequestTimeout: setLimit})
					tc := connect(t, r, "")
					id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]}`)
					made := a.nextOf(t, "session/new")
					a.answer(made, `{"sessionId":"n",`+writeAndPlan+`,"configOptions":[`+modeOption("write")+`]}`)
					tc.until(id)
					says := func() { made.to.update("n", `{"sessionUpdate":"config_option_update",`+plans+`}`) }
					reads := func(asked bool) {
						id := tc.request("session/load", loadOf("n", "/tmp", own(`"permissionMode":"readonly"`)))
						if asked {
							m := a.nextOf(t, "session/set_config_option")
							if confirms {
								says()
							}
							a.answer(m, `{`+plans+`}`)
						}
						tc.until(id)
					}
					gives := func() sent {
						tc.callErr(row.by, row.params)
						return a.nextOf(t, row.by)
					}
					var late sent
					if confirms {
						late = gives()
						reads(true)
					} else {
						reads(true)
						late = gives()
						says()
						reads(false)
					}
					a.answer(late, `{}`)
					back := a.nextOf(t, "session/set_config_option")
					if given(back, "value") != `"plan"` {
						t.Errorf("the agent is sent %s", back.m.Frame())
					}
					a.answer(back, `{`+plans+`}`)
					synctest.Wait()
					tc.loadSays(`"currentModeId":"plan"`)
				})
			})
		}
	}
}
