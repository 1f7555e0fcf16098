package runtime

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters"
)

const offersModes = `{"modes":{"currentModeId":"plan","availableModes":[{"id":"write","name":"Write"},{"id":"plan","name":"Plan","description":"Read-only mode"}]}}`

// sentNow is what the agent is sent now, each answered, as its method and what it is about.
func sentNow(t *testing.T, a *fakeAgent) (all []string) {
	t.Helper()
	for synctest.Wait(); len(a.shared) > 0; synctest.Wait() {
		m := <-a.shared
		all = append(all, m.m.Method()+" "+string(m.m.Params()))
		switch {
		case m.m.Method() == acp.MethodSessionPrompt:
			a.answer(m, `{"stopReason":"end_turn"}`)
		case m.m.IsRequest():
			takesAll(m)
		}
	}
	return all
}

// An agent is set to the mode in which it only reads, as a load asks for, and says directly behind its answer that it goes over to another one.
// It is set back before the load is done, and nobody has chosen the other mode: no later start sets it to that.
func TestHeld_LeavesTheModeBehindItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, tc := slowSetting(t, t.TempDir(), adapters.Info{})
		id := tc.request("session/load", loadOf("n", "/tmp", own(onlyReads)))
		m := a.nextOf(t, "session/set_mode")
		takesAll(m)
		goesOver(m.to, "n", "write", false)
		back := sentNow(t, a)
		if _, r := tc.until(id); r.Err() != nil || !strings.Contains(string(r.Result()), `"currentModeId":"plan"`) {
			t.Fatalf("the load: %s", r.Frame())
		}
		if len(back) > 1 || len(back) == 1 && !strings.Contains(back[0], `"plan"`) {
			t.Errorf("the agent was sent %q", back)
		}
		for range 2 {
			tc.ends(a)
			id := tc.request("session/prompt", prompt("n", "x"))
			a.answer(a.nextOf(t, "session/resume"), offersModes)
			for _, what := range sentNow(t, a) {
				if strings.Contains(what, `"write"`) {
					t.Errorf("a start sends it %s", what)
				}
			}
			tc.until(id)
		}
	})
}

// A load asks for a session that only reads, and for a model, with which the agent goes over to another mode. It is set back. Where
// it does not stay there, the load is refused, and the session is as it was.
func TestHeld_ModelTakesItOut(t *testing.T) {
	small := strings.Replace(optionModel, `"big"`, `"small"`, 1)
	for name, stays := range map[string]bool{"set back": true, "for good": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, tc := slowSetting(t, t.TempDir(), adapters.Info{}, threeModes("write"), optionModel)
				id := tc.request("session/load", loadOf("n", "/tmp", own(onlyReads+`,"model":"small"`)))
				a.answer(a.nextOf(t, "session/set_config_option"), `{"configOptions":[`+threeModes("plan")+`,`+optionModel+`]}`)
				a.answer(a.nextOf(t, "session/set_config_option"), `{"configOptions":[`+threeModes("write")+`,`+small+`]}`)
				m := a.nextOf(t, "session/set_config_option")
				if !strings.Contains(string(m.m.Params()), `"plan"`) {
					t.Fatalf("it is set to %s", m.m.Params())
				}
				is := map[bool]string{true: "plan", false: "write"}[stays]
				a.answer(m, `{"configOptions":[`+threeModes(is)+`,`+small+`]}`)
				_, r := tc.until(id)
				if refused := r.Err() != nil && strings.Contains(string(r.Frame()), "mode_not_supported"); refused == stays {
					t.Errorf("the load: %s", r.Frame())
				}
			})
		})
	}
}

// A new session is as a load in that.
func TestHeld_ModelTakesANewOneOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		small := strings.Replace(optionModel, `"big"`, `"small"`, 1)
		a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{},"close":{},"fork":{}}}`, shared: make(chan sent, 64)}
		a.byHand()
		tc := connect(t, openRuntime(t, Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake", RequestTimeout: setLimit}), "")
		id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]`+own(onlyReads+`,"model":"small"`)+`}`)
		a.answer(a.nextOf(t, "session/new"), `{"sessionId":"n",`+offeringOptions(threeModes("write"), optionModel)[1:])
		for _, is := range []struct{ asked, mode, model string }{{"plan", "plan", optionModel}, {"small", "write", small}, {"plan", "plan", small}} {
			m := a.nextOf(t, "session/set_config_option")
			if !strings.Contains(string(m.m.Params()), `"`+is.asked+`"`) {
				t.Fatalf("it is set to %s, want %s", m.m.Params(), is.asked)
			}
			a.answer(m, `{"configOptions":[`+threeModes(is.mode)+`,`+is.model+`]}`)
		}
		if _, r := tc.until(id); r.Err() != nil {
			t.Errorf("the session: %s", r.Frame())
		}
	})
}

// While a load asks for a session that only reads, an answer comes late that takes the agent out of the mode, and it does not go back: it is
// given no prompt before the session is opened anew.
func TestHeld_LateAnswerTakesItOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, tc := slowSetting(t, t.TempDir(), adapters.Info{}, optionModel)
		late := tc.givesUp(a, acp.MethodSessionSetMode, "write")
		id := tc.request("session/load", loadOf("n", "/tmp", own(onlyReads+`,"model":"small"`)))
		var model sent
		for model.m.Method() == "" {
			switch m := <-a.shared; m.m.Method() {
			case acp.MethodSessionSetMode:
				takesAll(m)
			case acp.MethodSessionSetConfigOption:
				model = m
			}
		}
		takesAll(late) // it is in that mode
		refuse := func() {
			for synctest.Wait(); len(a.shared) > 0; synctest.Wait() {
				switch m := <-a.shared; m.m.Method() {
				case acp.MethodSessionSetMode:
					refuseAs(m.to, m.m, acp.CodeInternal, "not now")
				case acp.MethodSessionPrompt:
					t.Errorf("it is given %s", m.m.Frame())
				default:
					if m.m.IsRequest() { // as that it closes the session
						takesAll(m)
					}
				}
			}
		}
		refuse()
		a.answer(model, `{"configOptions":[`+strings.Replace(optionModel, `"big"`, `"small"`, 1)+`]}`)
		refuse()
		tc.until(id)
		tc.request("session/prompt", prompt("n", "x"))
		var got []string
		for synctest.Wait(); len(a.shared) > 0 && !slices.Contains(got, acp.MethodSessionPrompt); synctest.Wait() {
			m := <-a.shared
			got = append(got, m.m.Method())
			switch {
			case m.m.Method() == acp.MethodSessionResume:
				a.answer(m, offersModes)
			case m.m.Method() == acp.MethodSessionPrompt:
				a.answer(m, `{"stopReason":"end_turn"}`)
			case m.m.IsRequest():
				takesAll(m)
			}
		}
		if n := len(got); n < 2 || got[n-1] != acp.MethodSessionPrompt || !slices.Contains(got, acp.MethodSessionResume) {
			t.Errorf("behind the load the agent is sent %q", got)
		}
	})
}

// An agent is set to the mode by its option for it, and says by its modes that it stays in another one. It is believed.
func TestHeld_SaysByItsModesThatItStays(t *testing.T) {
	for _, says := range []string{"write", "plan"} {
		t.Run(says, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, tc := slowSetting(t, t.TempDir(), adapters.Info{}, threeModes("write"))
				id := tc.request("session/load", loadOf("n", "/tmp", own(onlyReads)))
				m := a.nextOf(t, "session/set_config_option")
				goesOver(m.to, "n", says, false)
				synctest.Wait()
				a.answer(m, `{}`)
				_, r := tc.until(id)
				if refused := r.Err() != nil && strings.Contains(string(r.Frame()), "mode_not_supported"); refused != (says == "write") {
					t.Errorf("the load: %s", r.Frame())
				}
			})
		})
	}
}

// What an agent without a list of modes says as if it had them is no word against its option.
func TestHeld_TellsOfAModeWithoutModes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{},"close":{}}}`, shared: make(chan sent, 64)}
		a.byHand()
		tc := connect(t, openRuntime(t, Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake", RequestTimeout: setLimit}), "")
		id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]}`)
		a.answer(a.nextOf(t, "session/new"), `{"sessionId":"n","configOptions":[`+threeModes("write")+`]}`)
		tc.until(id)
		id = tc.request("session/load", loadOf("n", "/tmp", own(onlyReads)))
		m := a.nextOf(t, "session/set_config_option")
		goesOver(m.to, "n", "plan", false)
		synctest.Wait()
		a.answer(m, `{}`)
		if _, r := tc.until(id); r.Err() != nil {
			t.Errorf("the load: %s", r.Frame())
		}
	})
}
