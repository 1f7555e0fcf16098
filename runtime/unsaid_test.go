package runtime

import (
	"strings"
	"testing"
	"testing/synctest"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// threeModes is the option for the mode of an agent that can write, ask and plan.
func threeModes(mode string) string {
	return `{"id":"mode","name":"Mode","category":"mode","type":"select","currentValue":"` + mode + `","options":[{"value":"write","name":"Write"},{"value":"ask","name":"Ask"},{"value":"plan","name":"Plan","description":"Read-only mode"}]}`
}

// An agent that answers without its options, and has said meanwhile what is so, is believed: also where that is something else than it was
// set to.
func TestChoose_AgentSaysSomethingElse(t *testing.T) {
	for name, row := range map[string]struct{ method, params, says, want string }{
		"an option":       {"session/set_config_option", `"configId":"model","value":"small"`, strings.Replace(optionModel, `"big"`, `"small-2"`, 1), `"currentValue":"small-2"`},
		"it stays":        {"session/set_config_option", `"configId":"model","value":"small"`, optionModel, `"currentValue":"big"`},
		"by the mode":     {"session/set_mode", `"modeId":"plan"`, threeModes("ask"), `"currentValue":"ask"`},
		"it says no word": {"session/set_config_option", `"configId":"model","value":"small"`, "", `"currentValue":"small"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, tc := slowSetting(t, t.TempDir(), adapters.Info{}, optionModel, threeModes("write"))
				id := tc.request(row.method, `{"sessionId":"n",`+row.params+`}`)
				m := a.nextOf(t, row.method)
				if row.says != "" {
					m.to.update("n", `{"sessionUpdate":"config_option_update","configOptions":[`+row.says+`]}`)
					synctest.Wait()
				}
				a.answer(m, `{}`)
				tc.until(id)
				if _, res := tc.until(tc.request("session/load", loadOf("n", "/tmp", ""))); !strings.Contains(string(res.Frame()), row.want) {
					t.Errorf("a client that loads it is shown %s", res.Frame())
				}
			})
		})
	}
}

// An agent that says that it stays in another mode, and answers as if it did what it was told, is not taken for one that only reads.
func TestReadonly_AgentSaysThatItStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, tc := slowSetting(t, t.TempDir(), adapters.Info{}, threeModes("write"))
		for range 2 { // each load asks for it
			id := tc.request("session/load", loadOf("n", "/tmp", own(`"permissionMode":"readonly"`)))
			m := a.nextOf(t, "session/set_config_option")
			m.to.update("n", `{"sessionUpdate":"config_option_update","configOptions":[`+threeModes("write")+`]}`)
			synctest.Wait()
			a.answer(m, `{}`)
			if _, res := tc.until(id); res.Err() == nil || !strings.Contains(res.Err().Message, "the agent stays in mode write") {
				t.Errorf("the client is answered with %s", res.Frame())
			}
		}
		tc.loadSays(`"currentValue":"write"`)
	})
}

// Somebody chooses another mode for an agent that was not set back. What the agent asks then is for people again, whether it has said its
// mode before it answered or not.
func TestStray_AnotherModeIsChosen(t *testing.T) {
	for _, says := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a := &fakeAgent{id: "fake", caps: `{}`, shared: make(chan sent, 64)}
			a.byHand()
			r := openRuntime(t, Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake", RequestTimeout: setLimit})
			tc := connect(t, r, "")
			id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]}`)
			a.answer(a.nextOf(t, "session/new"), `{"sessionId":"n",`+strings.Replace(writeAndPlan, `{"id":"plan"`, `{"id":"ask","name":"Ask"},{"id":"plan"`, 1)+`,"configOptions":[`+threeModes("write")+`]}`)
			tc.until(id)
			tc.callErr("session/set_config_option", `{"sessionId":"n","configId":"mode","value":"write"}`)
			late := a.nextOf(t, "session/set_config_option")
			id = tc.request("session/load", loadOf("n", "/tmp", own(`"permissionMode":"readonly"`)))
			a.answer(a.nextOf(t, "session/set_config_option"), `{"configOptions":[`+threeModes("plan")+`]}`)
			tc.until(id)
			a.answer(late, `{"configOptions":[`+threeModes("write")+`]}`)
			back := a.nextOf(t, "session/set_config_option")
			refuseAs(back.to, back.m, acp.CodeInternal, "not now")
			id = tc.request("session/set_mode", `{"sessionId":"n","modeId":"ask"}`)
			m := a.nextOf(t, "session/set_mode")
			if says {
				m.to.update("n", `{"sessionUpdate":"current_mode_update","currentModeId":"ask"}`)
				synctest.Wait()
			}
			a.answer(m, `{}`)
			tc.until(id)
			m.to.send(`{"jsonrpc":"2.0","id":77,"method":"session/request_permission","params":{"sessionId":"n","toolCall":{"toolCallId":"c"},"options":[{"optionId":"ok","name":"Allow","kind":"allow_once"}]}}`)
			synctest.Wait()
			asked := false
			for len(tc.frames) > 0 {
				next := tc.next()
				asked = asked || next.IsRequest()
			}
			if !asked {
				t.Errorf("says its mode %v: nobody is asked", says)
			}
		})
	}
}

// What an agent says as it is opened is no word of what it is set to then, and an update that is about one option is none about those that it
// repeats.
func TestChoose_AgentSaysSomethingBefore(t *testing.T) {
	t.Run("as it is opened", func(t *testing.T) {
		for method, row := range map[string]struct{ params, option, want, load string }{
			"session/set_mode":          {`"modeId":"plan"`, threeModes("write"), `"currentValue":"plan"`, `"mode":"write"`},
			"session/set_config_option": {`"configId":"model","value":"small"`, optionModel, `"currentValue":"small"`, `"model":"big"`},
		} {
			synctest.Test(t, func(t *testing.T) {
				a, tc := slowSetting(t, t.TempDir(), adapters.Info{}, row.option)
				tc.ends(a)
				id := tc.request(method, `{"sessionId":"n",`+row.params+`}`)
				opened := a.nextOf(t, "session/resume")
				opened.to.update("n", `{"sessionUpdate":"config_option_update","configOptions":[`+row.option+`]}`)
				a.answer(opened, offeringOptions(row.option))
				takesAll(a.nextOf(t, method))
				tc.until(id)
				tc.loadSays(row.want)
				id = tc.request("session/load", loadOf("n", "/tmp", own(row.load)))
				takesAll(a.nextOf(t, "session/set_config_option"))
				tc.until(id)
			})
		}
	})
	t.Run("of the request before", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			a, tc := slowSetting(t, t.TempDir(), adapters.Info{}, threeModes("write"), optionWeb)
			one := tc.request("session/set_config_option", `{"sessionId":"n","configId":"web","value":true,"type":"boolean"}`)
			two := tc.request("session/set_mode", `{"sessionId":"n","modeId":"plan"}`)
			web, mode := a.nextOf(t, "session/set_config_option"), a.nextOf(t, "session/set_mode")
			on := `"configOptions":[` + threeModes("write") + `,` + strings.Replace(optionWeb, "false", "true", 1) + `]`
			web.to.update("n", `{"sessionUpdate":"config_option_update",`+on+`}`)
			a.answer(web, `{`+on+`}`)
			a.answer(mode, `{}`)
			tc.until(one)
			tc.until(two)
			tc.loadSays(`"currentValue":"plan"`)
		})
	})
}

// loadSays fails unless a client that loads session n is shown that.
func (tc *testClient) loadSays(want string) {
	tc.t.Helper()
	if _, res := tc.until(tc.request("session/load", loadOf("n", "/tmp", ""))); !strings.Contains(string(res.Frame()), want) {
		tc.t.Errorf("a client that loads it is shown %s; want %s", res.Frame(), want)
	}
}

// What an agent says once counts for both of two requests that ask for the same.
func TestChoose_AgentSaysItOnceForTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, tc := slowSetting(t, t.TempDir(), adapters.Info{}, optionModel)
		const small = `{"sessionId":"n","configId":"model","value":"small"}`
		one, two := tc.request("session/set_config_option", small), tc.request("session/set_config_option", small)
		first, second := a.nextOf(t, "session/set_config_option"), a.nextOf(t, "session/set_config_option")
		first.to.update("n", `{"sessionUpdate":"config_option_update","configOptions":[`+optionModel+`]}`)
		a.answer(first, `{}`)
		a.answer(second, `{}`)
		tc.until(one)
		tc.until(two)
		tc.loadSays(`"currentValue":"big"`)
	})
}

// The modes of an agent that stays in another mode than its option was set to are as the option is.
func TestChoose_ModesAsTheOptionIs(t *testing.T) {
	stays := `"configOptions":[` + modeOption("write") + `]`
	for _, says := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			a, tc := slowSetting(t, t.TempDir(), adapters.Info{}, modeOption("write"))
			id := tc.request("session/set_config_option", `{"sessionId":"n","configId":"mode","value":"plan"}`)
			m := a.nextOf(t, "session/set_config_option")
			if says {
				m.to.update("n", `{"sessionUpdate":"config_option_update",`+stays+`}`)
				a.answer(m, `{}`)
			} else {
				a.answer(m, `{`+stays+`}`)
			}
			tc.until(id)
			tc.loadSays(`"currentModeId":"write"`)
		})
	}
}

// An agent that answers that it is in another mode than that of readonly gets no prompt.
func TestReadonly_AgentAnswersThatItStays(t *testing.T) {
	const reads = `"permissionMode":"readonly"`
	stays, plans := `{"configOptions":[`+threeModes("write")+`]}`, `{"configOptions":[`+threeModes("plan")+`]}`
	begins := func(t *testing.T, caps string) (*fakeAgent, *testClient) {
		a := &fakeAgent{id: "fake", caps: caps, shared: make(chan sent, 64)}
		a.byHand()
		return a, connect(t, openRuntime(t, Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake", RequestTimeout: setLimit}), "")
	}
	makes := func(a *fakeAgent, tc *testClient, asks string) acp.ID {
		id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]`+asks+`}`)
		a.answer(a.nextOf(tc.t, "session/new"), `{"sessionId":"n","configOptions":[`+threeModes("write")+`]}`)
		return id
	}
	refused := func(tc *testClient, id acp.ID) {
		tc.t.Helper()
		if _, res := tc.until(id); res.Err() == nil || !strings.Contains(string(res.Err().Data), "mode_not_supported") || !strings.Contains(res.Err().Message, "the agent stays in mode write") {
			tc.t.Errorf("the client is answered with %s", res.Frame())
		}
	}
	for name, play := range map[string]func(t *testing.T){
		"a new one": func(t *testing.T) {
			a, tc := begins(t, reopening)
			id := makes(a, tc, own(reads))
			a.answer(a.nextOf(t, "session/set_config_option"), stays)
			refused(tc, id)
		},
		"a load": func(t *testing.T) {
			a, tc := begins(t, reopening)
			tc.until(makes(a, tc, ""))
			for range 2 { // it has changed nothing
				id := tc.request("session/load", loadOf("n", "/tmp", own(reads)))
				a.answer(a.nextOf(t, "session/set_config_option"), stays)
				refused(tc, id)
			}
		},
		"a start": func(t *testing.T) {
			a, tc := begins(t, reopening)
			tc.until(makes(a, tc, ""))
			id := tc.request("session/load", loadOf("n", "/tmp", own(reads)))
			a.answer(a.nextOf(t, "session/set_config_option"), plans)
			tc.until(id)
			tc.ends(a)
			id = tc.request("session/prompt", prompt("n", "x"))
			a.answer(a.nextOf(t, "session/resume"), stays)
			a.answer(a.nextOf(t, "session/set_config_option"), stays)
			takesAll(a.nextOf(t, "session/close"))
			refused(tc, id)
		},
		"one that is set back": func(t *testing.T) {
			a, tc := begins(t, `{}`)
			tc.until(makes(a, tc, ""))
			tc.callErr("session/set_config_option", `{"sessionId":"n","configId":"mode","value":"write"}`)
			late := a.nextOf(t, "session/set_config_option")
			id := tc.request("session/load", loadOf("n", "/tmp", own(reads)))
			a.answer(a.nextOf(t, "session/set_config_option"), plans)
			tc.until(id)
			a.answer(late, stays)
			back := a.nextOf(t, "session/set_config_option")
			refuseAs(back.to, back.m, acp.CodeInternal, "not now")
			tc.shows()
			id = tc.request("session/prompt", prompt("n", "z"))
			a.answer(a.nextOf(t, "session/set_config_option"), stays)
			refused(tc, id)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { play(t) })
		})
	}
}

// A mode that the agent goes on to of a session that must only read is not chosen by that: it is set to what was asked for with the next start,
// and refused where it has gone on before its answer.
func TestReadonly_AgentGoesOnIsNotChosen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, tc := slowSetting(t, t.TempDir(), adapters.Info{})
		id := tc.request("session/load", loadOf("n", "/tmp", own(`"permissionMode":"readonly"`)))
		takesAll(a.nextOf(t, "session/set_mode"))
		tc.until(id)
		id = tc.request("session/set_mode", `{"sessionId":"n","modeId":"plan"}`)
		goesOn := func(m sent) {
			for _, mode := range []string{"plan", "write"} {
				goesOver(m.to, "n", mode, false)
			}
			takesAll(m)
		}
		goesOn(a.nextOf(t, "session/set_mode"))
		tc.until(id)
		tc.ends(a)
		id = tc.request("session/prompt", prompt("n", "x"))
		a.answer(a.nextOf(t, "session/resume"), offeringOptions())
		goesOn(a.nextOf(t, "session/set_mode"))
		takesAll(a.nextOf(t, "session/close"))
		if _, res := tc.until(id); res.Err() == nil || !strings.Contains(res.Err().Message, "stays in mode write") {
			t.Errorf("the prompt is answered with %s", res.Frame())
		}
		if set := tc.startsWith(a, takesAll); strings.Join(set, " ") != `="plan"` {
			t.Errorf("at the next start the agent is set to %q", set)
		}
	})
}
