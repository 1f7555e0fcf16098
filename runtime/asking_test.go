package runtime

import (
	"slices"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters"
)

const asksFirst = `{"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":{"sessionId":"n","toolCall":{"toolCallId":"t"},"options":[{"optionId":"y","name":"Y","kind":"allow_once"}]}}`

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
			t.Parallel()
			a, gone, s := offering(t, tt.info, "")
			gone.request("session/set_mode", `{"sessionId":"`+s+`","modeId":"plan"}`)
			set := a.nextOf(t, "session/set_mode")
			gone.close()
			tc := connect(t, gone.r, "")
			if tt.first {
				a.conn().send(asksFirst)
			}
			load := tc.request("session/load", loadOf(s, "/tmp", own(tt.loads)))
			tc.call("_sandboxagent/session/get", `{"sessionId":"`+s+`"}`) // the load was begun
			if !tt.first {
				a.conn().send(asksFirst)
			}
			before, res := tc.until(load)
			for _, field := range tt.told {
				if want := `{"field":"` + field + `","reason":"the session is working`; !strings.Contains(member(string(res.Result()), "unsupported"), want) {
					t.Errorf("no %s in %s", want, res.Frame())
				}
			}
			var ask acp.Message
			if i := slices.IndexFunc(before, isPermission); i >= 0 {
				ask = before[i]
			} else {
				ask = tc.nextOf("session/request_permission")
			}
			if len(a.shared) > 0 {
				m := <-a.shared
				t.Errorf("the agent was sent %s", m.m.Frame())
			}
			tc.send(`{"jsonrpc":"2.0","id":` + string(ask.ID()) + `,"result":{"outcome":{"outcome":"selected","optionId":"y"}}}`)
			if m := <-a.shared; !strings.Contains(string(m.m.Frame()), `"optionId":"y"`) {
				t.Errorf("the agent was sent %s", m.m.Frame())
			}
			a.answer(set, `{}`)
		})
	}
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
