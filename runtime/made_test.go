package runtime

import (
	"strings"
	"sync/atomic"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// A session whose process ends as it is made, for another session's sake perhaps, has what it was asked for with the next one, and
// its client is told of what it has not.
func TestMade_ByAProcessThatEnds(t *testing.T) {
	const wanted, not = `"permissionMode":"readonly","model":"small"`, `,"variant":"high"`
	for name, forks := range map[string]bool{"new": false, "fork": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var ends atomic.Bool
			var ended atomic.Pointer[fakeConn]
			a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{},"fork":{}}}`, shared: make(chan sent, 64)}
			a.handle = func(c *fakeConn, m acp.Message) {
				switch {
				case m.Method() == "session/new" || m.Method() == "session/fork":
					id := map[string]string{"session/new": "n", "session/fork": "f"}[m.Method()]
					c.result(m, in("write", `{"sessionId":"`+id+`",`+offersOf+`}`))
					if ends.Load() {
						ended.Store(c)
						c.crash(errCrash)
					}
				case c == ended.Load(): // it answers no more
				default:
					a.shared <- sent{c, m}
				}
			}
			tc := connect(t, newRuntime(t, t.TempDir(), a), "")
			method, params := "session/new", `{"cwd":"/tmp","mcpServers":[]`
			if forks {
				method, params = "session/fork", `{"sessionId":"`+tc.session()+`","cwd":"/tmp","mcpServers":[]`
			}
			ends.Store(true)
			res := tc.call(method, params+own(wanted+not)+`}`)
			if got := member(res, "unsupported"); got != "" { // the model may offer it that is chosen then
				t.Errorf("unsupported is %s", got)
			}
			id := tc.request("session/prompt", prompt(rawjson.MemberString([]byte(res), "sessionId"), "x"))
			a.answer(a.nextOf(t, "session/resume"), in("write", `{`+offersOf+`}`))
			set := a.nextOf(t, "session/set_config_option")
			if got := given(set, "value"); got != `"small"` {
				t.Errorf("the agent is told %s", got)
			}
			a.answer(set, `{}`)
			set = a.nextOf(t, "session/set_mode")
			if got := given(set, "modeId"); got != `"plan"` {
				t.Errorf("the agent is told %s", got)
			}
			a.answer(set, `{}`)
			a.answer(a.nextOf(t, "session/prompt"), `{"stopReason":"end_turn"}`)
			before, answer := tc.until(id)
			told := ""
			for _, m := range before {
				told += member(string(m.Update()), "unsupported")
			}
			if answer.Err() != nil || !strings.Contains(told, `"field":"variant"`) || !strings.Contains(told, "offers no option for it") {
				t.Errorf("told %s, and answered %s", told, answer.Frame())
			}
		})
	}
}
