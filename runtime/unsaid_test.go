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
			if _, res := tc.until(id); !strings.Contains(string(res.Frame()), `"currentValue":"write"`) {
				t.Errorf("a client that loads it is shown %s", res.Frame())
			}
		}
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
