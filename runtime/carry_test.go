package runtime

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// An option that an agent has in one mode only is chosen again in that mode, whenever the agent is started.
func TestChoose_OptionOfOneMode(t *testing.T) {
	t.Parallel()
	a, tc := optioned(t, t.TempDir(), adapters.Info{}, "", optionModel)
	tc.sets(a, "", `"plan"`, optionModel, optionWeb)
	tc.sets(a, "web", "true", optionModel, optionWeb)
	for range 2 {
		tc.ends(a)
		set := tc.startsWith(a, func(m sent) {
			if given(m, "modeId") != "" {
				a.conn().update("n", `{"sessionUpdate":"config_option_update","configOptions":[`+optionModel+`,`+optionWeb+`]}`)
			}
			takesAll(m)
		}, optionModel)
		if got := strings.Join(set, " "); got != `="plan" "web"=true` {
			t.Errorf("the agent is set to %q", got)
		}
	}
}

// What an agent is not set to as it is started, since it offers no options then, it is set to when it does, unless it is
// chosen no more.
func TestChoose_OptionsThatComeLate(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ since, want string }{
		"chosen":         {"", `"small"`},
		"chosen no more": {own(`"model":null`), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, tc := optioned(t, t.TempDir(), adapters.Info{}, "", optionModel)
			tc.sets(a, "model", `"small"`, optionModel)
			tc.ends(a)
			if set := tc.startsWith(a, takesAll); len(set) > 0 {
				t.Errorf("the agent is set to %q", set)
			}
			if row.since != "" {
				tc.call("session/load", loadOf("n", "/tmp", row.since))
			}
			tc.tells(a, optionModel)
			if row.want != "" {
				m := a.nextOf(t, "session/set_config_option")
				if given(m, "value") != row.want {
					t.Errorf("the agent is sent %s", m.m.Frame())
				}
				a.answer(m, `{}`)
			}
			id := tc.request("session/prompt", prompt("n", "x"))
			a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
			tc.until(id)
		})
	}
}

// What a client chooses while an agent is set to what waited for its options counts, whenever the agent answers what.
func TestChoose_WhileTheAgentIsSetLate(t *testing.T) {
	t.Parallel()
	const optionEffort = `{"id":"effort","name":"E","category":"thought_level","type":"select","currentValue":"low","options":[{"value":"low","name":"L"},{"value":"high","name":"H"},{"value":"mid","name":"M"}]}`
	at := func(option, value string) string {
		return string(rawjson.SetMember([]byte(option), []byte(value), "currentValue"))
	}
	for name, row := range map[string]struct {
		own  bool // the option that the agent is set to is the one that the client sets
		last bool // the client's is answered behind that
		want string
	}{
		"another option, answered before": {false, false, `"effort"="mid" "model"="small"`},
		"another option, answered behind": {false, true, `"effort"="mid" "model"="small"`},
		"the same, answered before":       {true, false, `"effort"="mid" "effort"="mid"`},
		"the same, answered behind":       {true, true, `"effort"="mid"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a, tc := optioned(t, t.TempDir(), adapters.Info{}, "", optionModel, optionEffort)
			model := optionModel
			if !row.own {
				tc.sets(a, "model", `"small"`, optionModel, optionEffort)
				model = at(optionModel, `"small"`)
			}
			tc.sets(a, "effort", `"high"`, model, optionEffort)
			tc.ends(a)
			if set := tc.startsWith(a, takesAll); len(set) > 0 {
				t.Fatalf("the agent is set to %q", set)
			}
			tc.tells(a, optionModel, optionEffort)
			late := a.nextOf(t, "session/set_config_option")
			is := "low"
			if row.own {
				is = "high"
			}
			if value := given(late, "value"); value != `"small"` && value != `"high"` {
				t.Fatalf("the agent is sent %s", late.m.Frame())
			}
			id := tc.request("session/set_config_option", `{"sessionId":"n","configId":"effort","value":"mid"}`)
			chosen := a.nextOf(t, "session/set_config_option")
			set := []string{given(chosen, "configId") + "=" + given(chosen, "value")}
			if !row.last {
				a.answer(chosen, offeringOptions(optionModel, at(optionEffort, `"mid"`)))
				tc.until(id)
			}
			if !row.own && !row.last {
				is = "mid"
			}
			a.answer(late, offeringOptions(model, at(optionEffort, `"`+is+`"`)))
			if row.last {
				a.answer(chosen, offeringOptions(model, at(optionEffort, `"mid"`)))
				tc.until(id)
			}
			id = tc.request("session/load", loadOf("n", "/tmp", own(`"title":"T"`))) // which is over when the agent is set
			for over := false; !over; {
				select {
				case m := <-a.shared:
					set = append(set, given(m, "configId")+"="+given(m, "value"))
					takesAll(m)
				case m := <-tc.frames:
					over = m.IsResponse() && m.ID() == id
				}
			}
			if !row.own {
				set = append(set, given(late, "configId")+"="+given(late, "value"))
			}
			if got := strings.Join(set, " "); got != row.want {
				t.Errorf("the agent is set to %s, want %s", got, row.want)
			}
			tc.ends(a)
			next := tc.startsWith(a, takesAll, optionModel, optionEffort)
			if got := next[len(next)-1]; got != `"effort"="mid"` {
				t.Errorf("at the next start the agent is set to %q", next)
			}
		})
	}
}

// An agent that does not answer what it is set to late is not asked for the rest: who loads the session waits for one. The next
// start sets it to all.
func TestChoose_LateAtAnAgentThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{},"close":{}}}`, shared: make(chan sent, 64)}
		a.byHand()
		r := openRuntime(t, Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake", RequestTimeout: 10 * time.Second})
		tc := connect(t, r, "")
		id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]}`)
		a.answer(a.nextOf(t, "session/new"), `{"sessionId":"n",`+offeringOptions(optionModel, optionWeb)[1:])
		tc.until(id)
		tc.sets(a, "model", `"small"`, optionModel, optionWeb)
		tc.sets(a, "web", "true", strings.Replace(optionModel, `"big"`, `"small"`, 1), optionWeb)
		tc.ends(a)
		tc.startsWith(a, takesAll)
		tc.tells(a, optionModel, optionWeb)
		a.nextOf(t, "session/set_config_option")
		tc.call("session/load", loadOf("n", "/tmp", own(`"title":"T"`)))
		synctest.Wait()
		for len(a.shared) > 0 {
			if m := <-a.shared; m.m.Method() != "$/cancel_request" {
				t.Errorf("the agent is sent %s", m.m.Frame())
			}
		}
		tc.ends(a)
		if set := tc.startsWith(a, takesAll, optionModel, optionWeb); strings.Join(set, " ") != `"model"="small" "web"=true` {
			t.Errorf("the agent is set to %q", set)
		}
	})
}

// A mode that was chosen waits, too, at an agent that offers neither modes nor options yet, and is what the option for it is set to.
func TestChoose_ModeThatComesLateAsAnOption(t *testing.T) {
	t.Parallel()
	const optionMode = `{"id":"how","name":"Mode","category":"mode","type":"select","currentValue":"write","options":[{"value":"write","name":"Write"},{"value":"plan","name":"Plan"}]}`
	a, tc := optioned(t, t.TempDir(), adapters.Info{}, "")
	tc.sets(a, "", `"plan"`)
	there, _ := tc.travels(t, a, true, func(record []byte) []byte {
		return rawjson.DeleteMember(rawjson.DeleteMember(record, "modes"), "configOptions")
	})
	there.call("session/load", loadOf("n", "/tmp", ""))
	id, opened := there.begins(t, a, "n")
	a.answer(opened, `{}`)
	a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
	there.until(id)
	there.tells(a, optionMode)
	set := a.nextOf(t, "session/set_config_option")
	if given(set, "configId") != `"how"` || given(set, "value") != `"plan"` {
		t.Errorf("the agent is sent %s", set.m.Frame())
	}
	a.answer(set, `{}`)
}

// What an agent has taken behind the time limit clients are told of, and it counts at the next start.
func TestChoose_AnsweredLate(t *testing.T) {
	for name, row := range map[string]struct{ method, set, answer, told, member, want string }{
		"an option": {"session/set_config_option", `"configId":"model","value":"small"`, offeringOptions(strings.Replace(optionModel, `"big"`, `"small"`, 1)), "config_option_update", "configOptions", `"model"="small"`},
		"a mode":    {"session/set_mode", `"modeId":"plan"`, `{}`, "current_mode_update", "currentModeId", `="plan"`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{},"close":{}}}`, shared: make(chan sent, 64)}
				a.byHand()
				r := openRuntime(t, Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake", RequestTimeout: time.Second})
				tc := connect(t, r, "")
				id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]}`)
				a.answer(a.nextOf(t, "session/new"), `{"sessionId":"n",`+offeringOptions(optionModel)[1:])
				tc.until(id)
				if e := tc.callErr(row.method, `{"sessionId":"n",`+row.set+`}`); !strings.Contains(string(e.Data), `"status":504`) {
					t.Errorf("%v", e)
				}
				a.answer(a.nextOf(t, row.method), row.answer)
				m := tc.next()
				for ; string(m.UpdateKind()) != row.told; m = tc.next() {
				}
				if is, _ := rawjson.Member(m.Update(), row.member); !strings.Contains(string(is), "small") && !strings.Contains(string(is), "plan") {
					t.Errorf("it is told %s", m.Frame())
				}
				tc.ends(a)
				if set := tc.startsWith(a, takesAll, optionModel); strings.Join(set, " ") != row.want {
					t.Errorf("the agent is set to %q, want %q", set, row.want)
				}
			})
		})
	}
}

// An agent that has had an option for its modes, and has them as such by now, is held to reading all the same.
func TestLoad_ReadonlyOfAnAgentWithModesInPlaceOfAnOption(t *testing.T) {
	t.Parallel()
	const optionMode = `{"id":"how","name":"Mode","category":"mode","type":"select","currentValue":"write","options":[{"value":"write","name":"Write"},{"value":"plan","name":"Plan","description":"Read-only mode"}]}`
	a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{},"close":{}}}`, shared: make(chan sent, 64)}
	a.byHand()
	tc := connect(t, newRuntime(t, t.TempDir(), a), "")
	id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]`+own(`"permissionMode":"readonly"`)+`}`)
	a.answer(a.nextOf(t, "session/new"), `{"sessionId":"n","configOptions":[`+optionMode+`]}`)
	set := a.nextOf(t, "session/set_config_option")
	if given(set, "value") != `"plan"` {
		t.Fatalf("the agent is sent %s", set.m.Frame())
	}
	a.answer(set, `{"configOptions":[`+strings.Replace(optionMode, `"currentValue":"write"`, `"currentValue":"plan"`, 1)+`]}`)
	if _, res := tc.until(id); res.Err() != nil {
		t.Fatalf("%s", res.Frame())
	}
	for range 2 {
		tc.ends(a)
		prompted, opened := tc.begins(t, a, "n")
		a.answer(opened, offeringOptions(optionModel))
		var got []string
		for given := false; !given; {
			select {
			case m := <-a.shared:
				if given = m.m.Method() == acp.MethodSessionPrompt; given {
					a.answer(m, `{"stopReason":"end_turn"}`)
				} else {
					got = append(got, m.m.Method()+" "+rawjson.MemberString(m.m.Params(), "modeId"))
					a.answer(m, `{}`)
				}
			case m := <-tc.frames:
				if m.IsResponse() {
					t.Fatalf("it is set to %q, and the prompt is answered with %s", got, m.Frame())
				}
			}
		}
		if _, res := tc.until(prompted); res.Err() != nil || len(got) == 0 || got[len(got)-1] != `session/set_mode plan` {
			t.Errorf("it is set to %q, and the prompt is answered with %s", got, res.Frame())
		}
	}
}

// A session that must only read is not prompted at an agent that offers the mode no more that it was held with, in whatever way.
func TestLoad_ReadonlyOfAnAgentWithoutItsModes(t *testing.T) {
	t.Parallel()
	for name, answer := range map[string]string{"nothing": `{}`, "other options": `{"configOptions":[` + optionModel + `]}`} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{},"close":{}}}`, shared: make(chan sent, 64)}
			a.byHand()
			tc := connect(t, newRuntime(t, t.TempDir(), a), "")
			id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]`+own(`"permissionMode":"readonly"`)+`}`)
			a.answer(a.nextOf(t, "session/new"), `{"sessionId":"n",`+writeAndPlan+`}`)
			a.answer(a.nextOf(t, "session/set_mode"), `{}`)
			tc.until(id)
			there, _ := tc.travels(t, a, true, func(record []byte) []byte { return rawjson.DeleteMember(record, "modes") })
			there.call("session/load", loadOf("n", "/tmp", ""))
			id, opened := there.begins(t, a, "n")
			a.answer(opened, answer)
			for over := false; !over; {
				select {
				case m := <-a.shared:
					if m.m.Method() == acp.MethodSessionPrompt {
						t.Fatal("it is prompted")
					}
					if m.m.IsRequest() {
						a.answer(m, `{}`)
					}
				case m := <-there.frames:
					over = m.IsResponse() && m.ID() == id
					if over && m.Err() == nil {
						t.Errorf("the prompt is answered with %s", m.Frame())
					}
				}
			}
		})
	}
}

// What an agent is set to beside a prompt goes on behind what a client sets meanwhile, with all that follows it, in its order; the mode in which
// it must be waits for nothing.
func TestChoose_SetLateBehindAClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &fakeAgent{id: "fake", info: takesPermission, caps: `{"sessionCapabilities":{"resume":{},"close":{}}}`, shared: make(chan sent, 64)}
		a.byHand()
		r := openRuntime(t, Options{DataDir: t.TempDir(), Adapters: adaptersOf(a), DefaultAgent: "fake", RequestTimeout: setLimit})
		tc := connect(t, r, "")
		modes := `"modes":{"currentModeId":"plan","availableModes":[{"id":"write","name":"Write"},{"id":"ask","name":"Ask"},{"id":"plan","name":"Plan","description":"Read-only mode"}]}`
		on := map[string]bool{}
		options := func(ids ...string) string {
			var out []string
			for _, id := range ids {
				out = append(out, fmt.Sprintf(`{"id":"%s","name":"%s","type":"boolean","currentValue":%v}`, id, id, on[id]))
			}
			return `"configOptions":[` + strings.Join(out, ",") + `]`
		}
		takes := func(m sent) (option string) {
			option = strings.Trim(given(m, "configId"), `"`)
			on[option] = true
			a.answer(m, `{`+options("a0", "b1", "c2", "d3")+`}`)
			return option
		}
		sets := func(option string) (acp.ID, sent) {
			id := tc.request("session/set_config_option", `{"sessionId":"n","configId":"`+option+`","value":true,"type":"boolean"}`)
			return id, a.nextOf(t, "session/set_config_option")
		}
		id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]`+own(`"permissionMode":"readonly"`)+`}`)
		a.answer(a.nextOf(t, "session/new"), `{"sessionId":"n",`+modes+`,`+options("a0", "b1", "c2", "d3")+`}`)
		tc.until(id)
		for _, o := range []string{"a0", "b1", "c2"} {
			id, m := sets(o)
			takes(m)
			tc.until(id)
		}
		id = tc.request("session/set_mode", `{"sessionId":"n","modeId":"ask"}`)
		takesAll(a.nextOf(t, "session/set_mode"))
		tc.until(id)
		tc.ends(a)
		clear(on)
		tc.request("session/prompt", prompt("n", "x"))
		a.answer(a.nextOf(t, "session/resume"), `{`+modes+`,`+options("b1", "c2", "d3")+`}`) // a0 comes later
		if m := a.nextOf(t, "session/set_config_option"); given(m, "configId") != `"b1"` {
			t.Fatalf("the agent is sent %s", m.m.Frame())
		}
		time.Sleep(setLimit + time.Second)
		synctest.Wait()
		var again sent
		for len(a.shared) > 0 {
			if m := <-a.shared; m.m.Method() == "session/set_config_option" {
				again = m
			}
		}
		id, slow := sets("d3")
		if takes(again) != "b1" {
			t.Fatalf("beside the prompt the agent is sent %s", again.m.Frame())
		}
		mode := a.nextOf(t, "session/set_mode")
		takes(slow)
		tc.until(id)
		takesAll(mode)
		if first, then := takes(a.nextOf(t, "session/set_config_option")), takes(a.nextOf(t, "session/set_config_option")); first != "c2" || then != "a0" {
			t.Errorf("the agent is set to %s, %s", first, then)
		}
	})
}
