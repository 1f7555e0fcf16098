package runtime

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
)

const setLimit = 10 * time.Second // for the agent of a slowSetting to answer

// slowSetting is what optioned is, of a gateway whose agent has setLimit to answer. It is for the time of a synctest.
func slowSetting(t *testing.T, dir string, info adapters.Info, options ...string) (*fakeAgent, *testClient) {
	t.Helper()
	a := &fakeAgent{id: "fake", info: info, caps: `{"sessionCapabilities":{"resume":{},"close":{},"fork":{}}}`, shared: make(chan sent, 64)}
	a.byHand()
	r := openRuntime(t, Options{DataDir: dir, Adapters: adaptersOf(a), DefaultAgent: "fake", RequestTimeout: setLimit})
	tc := connect(t, r, "")
	id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]}`)
	a.answer(a.nextOf(t, "session/new"), `{"sessionId":"n",`+offeringOptions(options...)[1:])
	tc.until(id)
	return a, tc
}

// givesUp has a client set a mode by a request, or by a load, which the agent does not answer in time.
func (tc *testClient) givesUp(a *fakeAgent, by, mode string) (unanswered sent) {
	tc.t.Helper()
	if by == acp.MethodSessionSetMode {
		if e := tc.callErr(by, `{"sessionId":"n","modeId":"`+mode+`"}`); !strings.Contains(string(e.Data), `"status":504`) {
			tc.t.Errorf("%v", e)
		}
		return a.nextOf(tc.t, acp.MethodSessionSetMode)
	}
	res := tc.call(by, loadOf("n", "/tmp", own(`"mode":"`+mode+`"`)))
	if !strings.Contains(member(res, "unsupported"), "did not answer") {
		tc.t.Errorf("the load says %s", res)
	}
	unanswered = a.nextOf(tc.t, acp.MethodSessionSetMode)
	a.nextOf(tc.t, acp.MethodCancelRequest)
	return unanswered
}

// shows returns what clients are shown of the mode and of what has no effect, when nothing happens any more by itself.
func (tc *testClient) shows() (shown []string) {
	tc.t.Helper()
	synctest.Wait()
	for len(tc.frames) > 0 {
		m := tc.next()
		switch string(m.UpdateKind()) {
		case "current_mode_update":
			shown = append(shown, rawjson.MemberString(m.Update(), "currentModeId"))
		case "config_option_update":
			shown = append(shown, "options")
		case "session_info_update":
			if missing, _ := rawjson.Member(m.Update(), "_meta", acp.MetaKey, "unsupported"); missing != nil {
				shown = append(shown, string(missing))
			}
		}
	}
	return shown
}

// An answer that comes behind its time limit, when the session is to be opened anew with what was asked for since, counts for nothing.
func TestChoose_AnsweredLateAsTheSessionIsOpenedAnew(t *testing.T) {
	for _, by := range []string{acp.MethodSessionSetMode, acp.MethodSessionLoad} {
		t.Run(by, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, tc := slowSetting(t, t.TempDir(), takesPermission)
				late := tc.givesUp(a, by, "plan")
				load := tc.request("session/load", loadOf("n", "/tmp", own(`"permissionMode":"readonly"`)))
				closing := a.nextOf(t, "session/close")
				a.answer(late, `{}`)
				a.answer(closing, `{}`)
				opened := a.nextOf(t, "session/resume")
				if got := given(opened, "_meta", acp.MetaKey, "permissionMode"); got != `"readonly"` {
					t.Errorf("it is opened with %s", opened.m.Frame())
				}
				a.answer(opened, `{`+writeAndPlan+`}`)
				for over := false; !over; {
					select {
					case m := <-a.shared:
						t.Errorf("the agent is sent %s", m.m.Frame())
						a.answer(m, `{}`)
					case m := <-tc.frames:
						over = m.IsResponse() && m.ID() == load
					}
				}
				tc.ends(a)
				if set := tc.startsWith(a, takesAll); len(set) > 0 {
					t.Errorf("at the next start the agent is set to %q", set)
				}
			})
		})
	}
}

// An answer that comes behind its time limit, and behind that to what the agent was set to since, tells in which mode the agent is. It is
// set to what counts again.
func TestChoose_AnsweredLateBehindANewerOne(t *testing.T) {
	for _, by := range []string{acp.MethodSessionSetMode, acp.MethodSessionLoad} {
		t.Run(by, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, tc := slowSetting(t, t.TempDir(), adapters.Info{})
				late := tc.givesUp(a, by, "write")
				load := tc.request("session/load", loadOf("n", "/tmp", own(`"permissionMode":"readonly"`)))
				a.answer(a.nextOf(t, "session/set_mode"), `{}`)
				if _, res := tc.until(load); res.Err() != nil {
					t.Fatalf("%s", res.Frame())
				}
				a.answer(late, `{}`)
				back := a.nextOf(t, "session/set_mode")
				if given(back, "modeId") != `"plan"` {
					t.Errorf("the agent is sent %s", back.m.Frame())
				}
				shown := tc.shows()
				a.answer(back, `{}`)
				if shown = append(shown, tc.shows()...); !slices.Equal(shown, []string{"write", "plan"}) {
					t.Errorf("clients are shown %q", shown)
				}
				tc.ends(a)
				if set := tc.startsWith(a, takesAll); strings.Join(set, " ") != `="plan"` {
					t.Errorf("at the next start the agent is set to %q", set)
				}
			})
		})
	}
}

// Where a session must only read, and the agent cannot be set to that again, it works no more: a turn ends, and the next start holds it to that.
func TestChoose_AnsweredLateAndReadonlyNoMore(t *testing.T) {
	for _, how := range []string{"refused", "unanswered"} {
		for _, turn := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, in a turn: %v", how, turn), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					a, tc := slowSetting(t, t.TempDir(), adapters.Info{})
					late := tc.givesUp(a, acp.MethodSessionSetMode, "write")
					load := tc.request("session/load", loadOf("n", "/tmp", own(`"permissionMode":"readonly"`)))
					a.answer(a.nextOf(t, "session/set_mode"), `{}`)
					if _, res := tc.until(load); res.Err() != nil {
						t.Fatalf("%s", res.Frame())
					}
					var id acp.ID
					if turn {
						id = tc.request("session/prompt", prompt("n", "x"))
						a.nextOf(t, acp.MethodSessionPrompt)
					}
					a.answer(late, `{}`)
					back := a.nextOf(t, "session/set_mode")
					shown := tc.shows()
					if how == "refused" {
						refuseAs(back.to, back.m, acp.CodeInternal, "not now")
					} else {
						a.nextOf(t, acp.MethodCancelRequest)
					}
					if turn {
						a.nextOf(t, "session/cancel")
						if _, res := tc.until(id); res.Err() == nil || !strings.Contains(res.Err().Message, "readonly cannot be kept") {
							t.Errorf("the turn ends with %s", res.Frame())
						}
					}
					a.answer(a.nextOf(t, acp.MethodSessionClose), `{}`)
					if shown = append(shown, tc.shows()...); !turn && (len(shown) != 2 || !strings.Contains(shown[1], `"field":"permissionMode"`)) {
						t.Errorf("clients are shown %q", shown)
					}
					if set := tc.startsWith(a, takesAll); strings.Join(set, " ") != `="plan"` {
						t.Errorf("at the next start the agent is set to %q", set)
					}
				})
			})
		}
	}
}

// So it is with an option, of which the answer says what it was.
func TestChoose_AnOptionAnsweredLateBehindANewerOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, tc := slowSetting(t, t.TempDir(), adapters.Info{}, optionModel, optionWeb)
		tc.callErr("session/set_config_option", `{"sessionId":"n","configId":"model","value":"small"}`)
		late := a.nextOf(t, "session/set_config_option")
		tc.sets(a, "model", `"big"`, optionModel, optionWeb)
		a.answer(late, offeringOptions(strings.Replace(optionModel, `"currentValue":"big"`, `"currentValue":"small"`, 1), optionWeb))
		back := a.nextOf(t, "session/set_config_option")
		if given(back, "value") != `"big"` {
			t.Errorf("the agent is sent %s", back.m.Frame())
		}
		shown := tc.shows()
		a.answer(back, offeringOptions(optionModel, optionWeb))
		if shown = append(shown, tc.shows()...); !slices.Equal(shown, []string{"options", "options"}) {
			t.Errorf("clients are shown %q", shown)
		}
		tc.ends(a)
		if set := tc.startsWith(a, takesAll, strings.Replace(optionModel, `"currentValue":"big"`, `"currentValue":"small"`, 1), optionWeb); strings.Join(set, " ") != `"model"="big"` {
			t.Errorf("at the next start the agent is set to %q", set)
		}
	})
}

// What a load has set and the agent takes behind its time limit counts, and all are told.
func TestLoad_SetsWhatIsTakenLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, tc := slowSetting(t, t.TempDir(), adapters.Info{})
		a.answer(tc.givesUp(a, acp.MethodSessionLoad, "plan"), `{}`)
		if shown := tc.shows(); !slices.Equal(shown, []string{"plan"}) {
			t.Errorf("clients are shown %q", shown)
		}
		tc.ends(a)
		if set := tc.startsWith(a, takesAll); strings.Join(set, " ") != `="plan"` {
			t.Errorf("at the next start the agent is set to %q", set)
		}
	})
}

// What the agent has taken behind the time limit, and the gateway cannot keep, clients are told so.
func TestChoose_AnsweredLateAndNotKept(t *testing.T) {
	for _, by := range []string{acp.MethodSessionSetMode, acp.MethodSessionLoad} {
		t.Run(by, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				a, tc := slowSetting(t, dir, adapters.Info{})
				late := tc.givesUp(a, by, "plan")
				tc.shows()
				inTheWay := filepath.Join(dir, "sessions", "n", "session.json.tmp")
				if err := os.Mkdir(inTheWay, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(inTheWay, "x"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
				a.answer(late, `{}`)
				shown := tc.shows()
				if len(shown) != 2 || shown[0] != "plan" || !strings.Contains(shown[1], "the gateway cannot keep it") {
					t.Errorf("clients are shown %q", shown)
				}
				if err := os.RemoveAll(inTheWay); err != nil {
					t.Fatal(err)
				}
				tc.ends(a)
				if set := tc.startsWith(a, takesAll); len(set) > 0 {
					t.Errorf("at the next start the agent is set to %q", set)
				}
			})
		})
	}
}

// An agent that is set late, when the session is closed, is asked for nothing more, and what it does not know any more is chosen nevertheless.
func TestChoose_ClosedAsTheAgentIsSetLate(t *testing.T) {
	for name, answer := range map[string]func(m sent){
		"it has taken it": takesAll,
		"it refuses it":   func(m sent) { refuseAs(m.to, m.m, acp.CodeInvalidParams, "there is no such session") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, tc := slowSetting(t, t.TempDir(), adapters.Info{}, optionModel, optionWeb)
				tc.sets(a, "model", `"small"`, optionModel, optionWeb)
				tc.sets(a, "web", "true", strings.Replace(optionModel, `"big"`, `"small"`, 1), optionWeb)
				tc.ends(a)
				tc.startsWith(a, takesAll)
				tc.tells(a, optionModel, optionWeb)
				set := a.nextOf(t, "session/set_config_option")
				closed := tc.request("session/close", `{"sessionId":"n"}`)
				closing := a.nextOf(t, "session/close")
				answer(set)
				synctest.Wait()
				for len(a.shared) > 0 {
					m := <-a.shared
					t.Errorf("the agent is sent %s behind the close", m.m.Frame())
					refuseAs(m.to, m.m, acp.CodeInvalidParams, "there is no such session")
					synctest.Wait()
				}
				a.answer(closing, `{}`)
				before, _ := tc.until(closed)
				for _, m := range before {
					if strings.Contains(string(m.Frame()), "unsupported") {
						t.Errorf("clients are told %s", m.Frame())
					}
				}
				tc.call("session/load", loadOf("n", "/tmp", ""))
				if set := tc.startsWith(a, takesAll, optionModel, optionWeb); strings.Join(set, " ") != `"model"="small" "web"=true` {
					t.Errorf("at the next start the agent is set to %q", set)
				}
			})
		})
	}
}

// A fork is set to what waits for the agent's options when it is made, also where they come in the moment in which that begins to wait.
func TestFork_OptionsThatComeAsItIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{},"close":{},"fork":{}}}`, shared: make(chan sent, 64)}
		a.byHand()
		waits := make(chan struct{})
		logs := onLog(func(message string) {
			if message != "agent did not take a choice again" {
				return
			}
			a.conn().update("f", `{"sessionUpdate":"config_option_update","configOptions":[`+optionModel+`]}`)
			synctest.Wait()
			if len(a.shared) > 0 {
				t.Error("the agent is set to it while it is set to the rest")
			}
			close(waits)
		})
		r := openRuntime(t, Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake", Logger: slog.New(logs)})
		tc := connect(t, r, "")
		id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]}`)
		a.answer(a.nextOf(t, "session/new"), `{"sessionId":"n",`+offeringOptions(optionModel)[1:])
		tc.until(id)
		tc.sets(a, "model", `"small"`, optionModel)
		id = tc.request("session/fork", `{"sessionId":"n"}`)
		a.answer(a.nextOf(t, "session/fork"), `{"sessionId":"f",`+offeringOptions()[1:])
		<-waits
		set := a.nextOf(t, "session/set_config_option")
		if given(set, "value") != `"small"` || given(set, "sessionId") != `"f"` {
			t.Errorf("the agent is sent %s", set.m.Frame())
		}
		takesAll(set)
		if _, res := tc.until(id); res.Err() != nil {
			t.Errorf("%s", res.Frame())
		}
	})
}

// onLog is a handler of a log that is told of each message.
type onLog func(message string)

func (f onLog) Enabled(context.Context, slog.Level) bool { return true }
func (f onLog) WithAttrs([]slog.Attr) slog.Handler       { return f }
func (f onLog) WithGroup(string) slog.Handler            { return f }

func (f onLog) Handle(_ context.Context, r slog.Record) error {
	f(r.Message)
	return nil
}

// A fork that is closed as it is set keeps what the agent was not asked for any more.
func TestFork_ClosedAsItIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, tc := slowSetting(t, t.TempDir(), adapters.Info{}, optionModel)
		tc.sets(a, "model", `"small"`, optionModel)
		tc.sets(a, "", `"plan"`, strings.Replace(optionModel, `"big"`, `"small"`, 1))
		id := tc.request("session/fork", `{"sessionId":"n"}`)
		a.answer(a.nextOf(t, "session/fork"), `{"sessionId":"f",`+offeringOptions(optionModel)[1:])
		set := a.nextOf(t, "session/set_config_option")
		closed := tc.request("session/close", `{"sessionId":"f"}`)
		closing := a.nextOf(t, "session/close")
		refuseAs(set.to, set.m, acp.CodeInvalidParams, "there is no such session")
		synctest.Wait()
		a.answer(closing, `{}`)
		answered := 0
		for answered < 2 {
			m := tc.next()
			if m.IsResponse() && (m.ID() == id || m.ID() == closed) {
				answered++
				if m.Err() != nil || member(string(m.Result()), "unsupported") != "" {
					t.Errorf("%s", m.Frame())
				}
			}
		}
		for len(a.shared) > 0 {
			m := <-a.shared
			t.Errorf("the agent is sent %s", m.m.Frame())
		}
		tc.call("session/load", loadOf("f", "/tmp", ""))
		_, opened := tc.begins(t, a, "f")
		a.answer(opened, offeringOptions(optionModel))
		for _, want := range []string{`"small"`, `"plan"`} {
			m := <-a.shared
			if got := given(m, "value") + given(m, "modeId"); got != want {
				t.Errorf("at the next start the agent is sent %s, want %s", m.m.Frame(), want)
			}
			takesAll(m)
		}
		a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
	})
}

// What a load asks for as the session is closed is chosen, and the agent is set to it when it is started next.
func TestLoad_ClosedAsTheAgentIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, tc := slowSetting(t, t.TempDir(), adapters.Info{}, optionModel)
		id := tc.request("session/load", loadOf("n", "/tmp", own(`"model":"small"`)))
		set := a.nextOf(t, "session/set_config_option")
		closed := tc.request("session/close", `{"sessionId":"n"}`)
		closing := a.nextOf(t, "session/close")
		refuseAs(set.to, set.m, acp.CodeInvalidParams, "there is no such session")
		if _, res := tc.until(id); res.Err() != nil || member(string(res.Result()), "unsupported") != "" {
			t.Errorf("%s", res.Frame())
		}
		a.answer(closing, `{}`)
		tc.until(closed)
		tc.call("session/load", loadOf("n", "/tmp", ""))
		if set := tc.startsWith(a, takesAll, optionModel); strings.Join(set, " ") != `"model"="small"` {
			t.Errorf("at the next start the agent is set to %q", set)
		}
	})
}

// A start that is given up as the agent is set to what was chosen has failed: the agent has refused nothing, and the next start sets it to all.
// What the agent does not answer in the time of a start does not keep the prompt from it, and is set beside it: but a session that must only
// read, and is not held to that yet.
func TestChoose_StartThatEndsAsTheAgentIsSet(t *testing.T) {
	for name, row := range map[string]struct{ close, readonly bool }{
		"it is given up":                          {close: true},
		"its time is over":                        {},
		"its time is over, and it must only read": {readonly: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, tc := slowSetting(t, t.TempDir(), adapters.Info{}, optionModel, optionWeb)
				tc.call("session/load", loadOf("n", "/tmp", own(`"title":"T"`)))
				load := tc.request("session/load", loadOf("n", "/tmp", own(`"model":"small"`)))
				takesAll(a.nextOf(t, "session/set_config_option"))
				tc.until(load)
				tc.sets(a, "web", "true", strings.Replace(optionModel, `"big"`, `"small"`, 1), optionWeb)
				all := `"model"="small" "web"=true`
				if row.readonly {
					load := tc.request("session/load", loadOf("n", "/tmp", own(`"permissionMode":"readonly"`)))
					takesAll(a.nextOf(t, "session/set_mode"))
					tc.until(load)
					all += ` ="plan"`
				}
				tc.ends(a)
				id, opened := tc.begins(t, a, "n")
				a.answer(opened, offeringOptions(optionModel, optionWeb))
				a.nextOf(t, "session/set_config_option")
				if row.close {
					tc.request("session/close", `{"sessionId":"n"}`)
				}
				if !row.close && !row.readonly {
					var set []string
					for prompted := false; !prompted || len(set) < 2; {
						switch m := <-a.shared; m.m.Method() {
						case acp.MethodSessionPrompt:
							prompted = true
							a.answer(m, `{"stopReason":"end_turn"}`)
						case "session/set_config_option":
							set = append(set, given(m, "configId")+"="+given(m, "value"))
							takesAll(m)
						}
					}
					before, res := tc.until(id)
					if res.Err() != nil {
						t.Errorf("the prompt is answered with %s", res.Frame())
					}
					told := slices.ContainsFunc(before, func(m acp.Message) bool {
						return strings.Contains(string(m.Frame()), `"unsupported":[{"field":"model"`) && strings.Contains(string(m.Frame()), "did not answer")
					})
					if !told {
						t.Error("clients are not told that it is not set to the model")
					}
					if strings.Join(set, " ") != all {
						t.Errorf("beside the prompt the agent is set to %q", set)
					}
					synctest.Wait()
					tc.ends(a)
					if set := tc.startsWith(a, takesAll, optionModel, optionWeb); strings.Join(set, " ") != all {
						t.Errorf("at the next start the agent is set to %q", set)
					}
					return
				}
				before, res := tc.until(id)
				if row.readonly && (res.Err() == nil || !strings.Contains(res.Err().Message, "did not answer")) {
					t.Errorf("the prompt is answered with %s", res.Frame())
				}
				for _, m := range before {
					if strings.Contains(string(m.Frame()), "unsupported") {
						t.Errorf("clients are told %s", m.Frame())
					}
				}
				if shown := tc.shows(); len(shown) > 0 {
					t.Errorf("clients are shown %q", shown)
				}
				for len(a.shared) > 0 {
					m := <-a.shared
					if m.m.Method() == "session/close" {
						a.answer(m, `{}`)
					} else if m.m.Method() != acp.MethodCancelRequest {
						t.Errorf("the agent is sent %s", m.m.Frame())
					}
				}
				tc.call("session/load", loadOf("n", "/tmp", ""))
				if set := tc.startsWith(a, takesAll, optionModel, optionWeb); strings.Join(set, " ") != all {
					t.Errorf("at the next start the agent is set to %q", set)
				}
			})
		})
	}
}

// A process is not given back for its idleness while its agent is being set to something.
func TestIdle_WhileTheAgentIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{},"close":{}}}`, shared: make(chan sent, 64)}
		a.byHand()
		r := openRuntime(t, Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake", RequestTimeout: time.Hour, IdleTimeout: time.Minute, MaxIdleProcesses: 1})
		tc := connect(t, r, "")
		for _, s := range []string{"n", "m"} {
			id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]}`)
			a.answer(a.nextOf(t, "session/new"), `{"sessionId":"`+s+`",`+offeringOptions()[1:])
			tc.until(id)
		}
		id := tc.request("session/set_mode", `{"sessionId":"n","modeId":"plan"}`)
		set := a.nextOf(t, "session/set_mode")
		time.Sleep(10 * time.Minute)
		a.answer(a.nextOf(t, "session/close"), `{}`)
		synctest.Wait()
		for len(a.shared) > 0 {
			m := <-a.shared
			t.Errorf("the agent is sent %s", m.m.Frame())
		}
		if i, err := r.Session("m"); err != nil || i.State != StateDormant {
			t.Errorf("the other one is %s, %v", i.State, err)
		}
		a.answer(set, `{}`)
		if _, res := tc.until(id); res.Err() != nil {
			t.Errorf("%s", res.Frame())
		}
		time.Sleep(10 * time.Minute)
		a.answer(a.nextOf(t, "session/close"), `{}`)
	})
}

// A session that an agent makes behind the time limit is nobody's: the agent is to close and delete it.
func TestNewSession_MadeLate(t *testing.T) {
	for name, row := range map[string]struct{ method, params, asked string }{
		"a new one":             {"session/new", `{"cwd":"/tmp","mcpServers":[]}`, "session/new"},
		"a fork":                {"session/fork", `{"sessionId":"n"}`, "session/fork"},
		"to ask for the models": {"_sandboxagent/session/list_models", `{}`, "session/new"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"close":{},"delete":{},"fork":{}}}`, shared: make(chan sent, 64)}
				a.byHand()
				r := openRuntime(t, Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake", RequestTimeout: setLimit})
				tc := connect(t, r, "")
				id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]}`)
				a.answer(a.nextOf(t, "session/new"), `{"sessionId":"n"}`)
				tc.until(id)
				tc.callErr(row.method, row.params)
				a.answer(a.nextOf(t, row.asked), `{"sessionId":"late"}`)
				synctest.Wait()
				var ends []string
				for len(a.shared) > 0 {
					if m := <-a.shared; m.m.IsRequest() {
						ends = append(ends, m.m.Method()+" "+m.m.Session())
						takesAll(m)
					}
				}
				if !slices.Equal(ends, []string{"session/close late", "session/delete late"}) {
					t.Errorf("the agent is asked for %q", ends)
				}
			})
		})
	}
}

// A session that an agent has begun anew behind the time limit of its start has nothing in it, and is deleted there.
func TestLoad_BegunAnewLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"close":{},"delete":{}}}`, shared: make(chan sent, 64)}
		a.byHand()
		r := openRuntime(t, Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake", RequestTimeout: setLimit})
		tc := connect(t, r, "")
		id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]}`)
		a.answer(a.nextOf(t, "session/new"), `{"sessionId":"n"}`)
		tc.until(id)
		tc.ends(a)
		tc.callErr("session/prompt", prompt("n", "x"))
		late := a.nextOf(t, "session/new")
		a.nextOf(t, acp.MethodCancelRequest)
		a.answer(late, `{"sessionId":"late"}`)
		for _, method := range []string{"session/close", "session/delete"} {
			m := a.nextOf(t, method)
			if m.m.Session() != "late" {
				t.Errorf("the agent is sent %s", m.m.Frame())
			}
			takesAll(m)
		}
	})
}

// What an agent shows and answers late of a session from elsewhere that was asked for in vain is not for who opens it next, in the same process.
// One that goes on without an answer gets no more sessions.
func TestLoad_LateOfASessionFromElsewhere(t *testing.T) {
	for _, answers := range []bool{true, false} {
		t.Run(fmt.Sprintf("it answers: %v", answers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &fakeAgent{id: "fake", caps: `{"loadSession":true,"sessionCapabilities":{"close":{}}}`, shared: make(chan sent, 64)}
				a.byHand()
				r := openRuntime(t, Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake", RequestTimeout: setLimit})
				tc := connect(t, r, "")
				tc.callErr("session/load", loadOf("x", "/tmp", ""))
				late := a.nextOf(t, "session/load")
				a.nextOf(t, acp.MethodCancelRequest)
				var id acp.ID
				if answers {
					id = tc.request("session/load", loadOf("x", "/tmp", ""))
					synctest.Wait()
					late.to.chunk("x", "once")
					takesAll(late)
					takesAll(a.nextOf(t, "session/close"))
				} else {
					if e := tc.callErr("session/load", loadOf("x", "/tmp", "")); !strings.Contains(string(e.Data), `"status":504`) {
						t.Errorf("%v", e)
					}
					id = tc.request("session/load", loadOf("x", "/tmp", ""))
				}
				again := a.nextOf(t, "session/load")
				if same := again.to == late.to; same != answers {
					t.Errorf("the next load is asked of the same process: %v", same)
				}
				again.to.chunk("x", "once")
				takesAll(again)
				before, res := tc.until(id)
				if res.Err() != nil || texts(before) != "once" {
					t.Errorf("the client is shown %q, %s", texts(before), res.Frame())
				}
				synctest.Wait()
				for len(a.shared) > 0 {
					m := <-a.shared
					t.Errorf("the agent is sent %s", m.m.Frame())
				}
			})
		})
	}
}

// modeOption is an agent's option for its modes.
func modeOption(mode string) string {
	return `{"id":"mode","name":"Mode","category":"mode","type":"select","currentValue":"` + mode + `","options":[{"value":"write","name":"Write"},{"value":"plan","name":"Plan","description":"Read-only mode"}]}`
}

// What an agent has taken is so, also where its answer does not say what options it has by then: who asks for what was before has it set again.
func TestChoose_AnsweredWithoutOptions(t *testing.T) {
	for name, row := range map[string]struct{ method, params, answer, again, want string }{
		"an option":       {"session/set_config_option", `"configId":"model","value":"small"`, `{}`, `"model":"big"`, `"model"="big"`},
		"null":            {"session/set_config_option", `"configId":"model","value":"small"`, `{"configOptions":null}`, `"model":"big"`, `"model"="big"`},
		"a model":         {"session/set_model", `"modelId":"small"`, `{}`, `"model":"big"`, `"model"="big"`},
		"an unknown one":  {"session/set_model", `"modelId":"other"`, `{}`, `"model":"big"`, ``},
		"the same again":  {"session/set_config_option", `"configId":"model","value":"small"`, `{}`, `"model":"small"`, ``},
		"no value":        {"session/set_config_option", `"configId":"model"`, `{}`, `"model":"big"`, ``},
		"it is not there": {"session/set_config_option", `"configId":"none","value":"small"`, `{}`, `"model":"big"`, ``},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, tc := slowSetting(t, t.TempDir(), adapters.Info{}, optionModel)
				params := `{"sessionId":"n",` + row.params + `}`
				if row.method == acp.MethodSessionSetModel { // the schema has no such method
					other := connectAs(t, tc.r, 1, `{"protocolVersion":1,"clientCapabilities":{}}`, acp.Inline)
					rep, err := other.c.Call(t.Context(), acp.NewRequest("1", row.method, []byte(params)))
					if err != nil {
						t.Fatal(err)
					}
					a.answer(a.nextOf(t, row.method), row.answer)
					<-rep
				} else {
					id := tc.request(row.method, params)
					a.answer(a.nextOf(t, row.method), row.answer)
					if _, res := tc.until(id); res.Err() != nil {
						t.Errorf("%s", res.Frame())
					}
				}
				id := tc.request("session/load", loadOf("n", "/tmp", own(row.again)))
				synctest.Wait()
				set := ""
				for len(a.shared) > 0 {
					m := <-a.shared
					set += given(m, "configId") + "=" + given(m, "value")
					takesAll(m)
					synctest.Wait()
				}
				if tc.until(id); set != row.want {
					t.Errorf("the agent is set to %s", set)
				}
			})
		})
	}
}

// An agent that leaves the mode of readonly by an answer that comes late, and says no more than that, is set back at once: whatever else it
// was asked for, and has not answered.
func TestStray_SetBackAtOnce(t *testing.T) {
	byMode, byOption := `{"sessionId":"n","modeId":"write"}`, `{"sessionId":"n","configId":"mode","value":"write"}`
	for name, row := range map[string]struct {
		info         adapters.Info
		offers       string // when it opens the session
		later        string // as it was opened
		by, params   string // what takes it out of the mode
		asks         string // of _meta, by the load that comes then
		answer, back string // to that, and how it is set back
		another      bool   // something else is not answered
	}{
		"by an option":                  {offers: `"configOptions":[` + modeOption("write") + `]`, by: "session/set_config_option", params: byOption, answer: `{}`, back: "session/set_config_option"},
		"by a mode, it has an option":   {offers: writeAndPlan + `,"configOptions":[` + modeOption("write") + `]`, by: "session/set_mode", params: byMode, answer: `{}`, back: "session/set_config_option"},
		"by an option, it has modes":    {offers: writeAndPlan + `,"configOptions":[` + modeOption("write") + `]`, by: "session/set_config_option", params: byOption, answer: `{}`, back: "session/set_config_option"},
		"behind something else":         {offers: writeAndPlan + `,"configOptions":[` + optionModel + `]`, by: "session/set_mode", params: byMode, answer: `{}`, back: "session/set_mode", another: true},
		"behind something else, chosen": {offers: writeAndPlan + `,"configOptions":[` + optionModel + `]`, by: "session/set_mode", params: byMode, asks: `"mode":"plan"`, answer: `{}`, back: "session/set_mode", another: true},
		"the adapter takes it, and it tells of its modes later": {
			info: takesPermission, later: `{"sessionUpdate":"config_option_update","configOptions":[` + modeOption("plan") + `]}`,
			by: "session/set_config_option", params: byOption, answer: `{"configOptions":[` + modeOption("write") + `]}`, back: "session/set_config_option",
		},
		"the adapter takes it, and it tells of its modes last": {
			info: takesPermission, by: "session/set_config_option", params: byOption, answer: `{"configOptions":[` + modeOption("write") + `]}`, back: "session/set_config_option",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &fakeAgent{id: "fake", info: row.info, caps: `{"sessionCapabilities":{"resume":{},"close":{}}}`, shared: make(chan sent, 64)}
				a.byHand()
				r := openRuntime(t, Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake", RequestTimeout: setLimit})
				tc := connect(t, r, "")
				takes := func(m sent) { // as most agents do
					switch m.m.Method() {
					case "session/set_config_option":
						a.answer(m, `{"configOptions":[`+modeOption("plan")+`]}`)
					default:
						takesAll(m)
					}
				}
				asks := ""
				if row.info.Takes != nil {
					asks = own(`"permissionMode":"readonly"`)
				}
				id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]`+asks+`}`)
				made := a.nextOf(t, "session/new")
				opened := `{"sessionId":"n"`
				if row.offers != "" {
					opened += `,` + row.offers
				}
				a.answer(made, opened+`}`)
				tc.until(id)
				if asks == "" {
					id = tc.request("session/load", loadOf("n", "/tmp", own(`"permissionMode":"readonly"`)))
					takes(a.nextOf(t, row.back))
					tc.until(id)
				}
				if row.later != "" {
					made.to.update("n", row.later)
					synctest.Wait()
				}
				tc.callErr(row.by, row.params)
				late := a.nextOf(t, row.by)
				asked := `"permissionMode":"readonly"`
				if row.asks != "" {
					asked = row.asks
				}
				id = tc.request("session/load", loadOf("n", "/tmp", own(asked)))
				if row.asks != "" {
					takes(a.nextOf(t, row.back))
				}
				if _, res := tc.until(id); res.Err() != nil {
					t.Errorf("%s", res.Frame())
				}
				var slow sent
				if row.another {
					id = tc.request("session/set_config_option", `{"sessionId":"n","configId":"model","value":"small"}`)
					slow = a.nextOf(t, "session/set_config_option")
				}
				a.answer(late, row.answer)
				if synctest.Wait(); len(a.shared) == 0 {
					t.Fatal("it is not set back")
				}
				back := a.nextOf(t, row.back)
				if got := given(back, "modeId") + given(back, "value"); got != `"plan"` {
					t.Errorf("the agent is set to %s", got)
				}
				takes(back)
				synctest.Wait()
				if row.another {
					a.answer(slow, `{"configOptions":[`+strings.Replace(optionModel, `"big"`, `"small"`, 1)+`]}`)
					tc.until(id)
				}
				id = tc.request("session/prompt", prompt("n", "z"))
				a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
				tc.until(id)
			})
		})
	}
}
