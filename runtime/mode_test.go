package runtime

import (
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
)

const (
	modesOf   = `"modes":{"currentModeId":"MODE","availableModes":[{"id":"ask","name":"Ask"},{"id":"plan","name":"Plan"},{"id":"write","name":"Write"}]}`
	optionsOf = `"configOptions":[{"id":"mode","name":"Mode","category":"mode","type":"select","currentValue":"MODE","options":[{"value":"ask","name":"Ask"},{"value":"plan","name":"Plan"},{"value":"write","name":"Write"}]}]`
)

func in(mode, what string) string { return strings.ReplaceAll(what, "MODE", mode) }

// goesOver has an agent say that it is in another mode now, in one of two ways.
func goesOver(c *fakeConn, s, mode string, option bool) {
	update := `"sessionUpdate":"current_mode_update","currentModeId":"MODE"`
	if option {
		update = `"sessionUpdate":"config_option_update",` + optionsOf
	}
	c.send(in(mode, `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"`+s+`","update":{`+update+`}}}`))
}

// A client sets a mode in the moment in which the agent goes over to another one. The agent has said last how it is: that
// is what who comes then is told, and what the agent is told when it is started anew.
func TestMode_IsSetAsTheAgentChangesIt(t *testing.T) {
	for name, tt := range map[string]struct {
		option bool
		says   []string
		want   string
	}{
		"nothing is said":                  {false, nil, "plan"},
		"it changes before":                {false, []string{"write"}, "plan"},
		"it changes before, and says both": {false, []string{"write", "plan"}, "plan"},
		"it changes behind":                {false, []string{"plan", "write"}, "write"},
		"an option":                        {true, nil, "plan"},
		"an option, changed before":        {true, []string{"write", "plan"}, "plan"},
		"an option, changed behind":        {true, []string{"plan", "write"}, "write"},
	} {
		t.Run(name, func(t *testing.T) {
			a := &fakeAgent{id: "fake", caps: reopening, shared: make(chan sent, 64)}
			a.byHand()
			r := newRuntime(t, t.TempDir(), a)
			tc := connect(t, r, "")
			opened := in("ask", `{"sessionId":"n",`+modesOf+`,`+optionsOf+`}`)
			id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]}`)
			a.answer(a.nextOf(t, "session/new"), opened)
			_, res := tc.until(id)
			s := rawjson.MemberString(res.Result(), "sessionId")
			method, params, answer := "session/set_mode", `{"sessionId":"`+s+`","modeId":"plan"}`, `{}`
			if tt.option {
				method, params, answer = "session/set_config_option", `{"sessionId":"`+s+`","configId":"mode","value":"plan"}`, in("plan", `{`+optionsOf+`}`)
			}
			id = tc.request(method, params)
			set := a.nextOf(t, method)
			for _, mode := range tt.says {
				goesOver(a.conn(), "n", mode, tt.option)
			}
			a.answer(set, answer)
			tc.until(id)
			late := connect(t, r, "")
			_, res = late.until(late.request("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`))
			now := rawjson.MemberString(res.Result(), "modes", "currentModeId")
			if options, _ := rawjson.Member(res.Result(), "configOptions"); tt.option {
				now = rawjson.MemberString(rawjson.Elements(options)[0], "currentValue")
			}
			if now != tt.want {
				t.Errorf("who comes then is told %q, want %q", now, tt.want)
			}
			a.conn().crash(errCrash)
			tc.nextOf("_sandboxagent/session/ended")
			tc.request("session/prompt", prompt(s, "hi"))
			a.answer(a.nextOf(t, "session/resume"), opened)
			again := a.nextOf(t, method)
			if got := rawjson.MemberString(again.m.Params(), "modeId") + rawjson.MemberString(again.m.Params(), "value"); got != tt.want {
				t.Errorf("the agent that is started anew is told %q, want %q", got, tt.want)
			}
		})
	}
}

// A mode that the agent has left is not chosen again when it is started anew, as that for plans when one was accepted.
func TestMode_AgentHasLeftIt(t *testing.T) {
	for _, option := range []bool{false, true} {
		a := &fakeAgent{id: "fake", caps: reopening, shared: make(chan sent, 64)}
		a.handle = func(f *fakeConn, m acp.Message) { a.shared <- sent{f, m} }
		r := newRuntime(t, t.TempDir(), a)
		tc := connect(t, r, "")
		id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]}`)
		a.answer(a.nextOf(t, "session/new"), in("ask", `{"sessionId":"n",`+modesOf+`,`+optionsOf+`}`))
		_, res := tc.until(id)
		s := rawjson.MemberString(res.Result(), "sessionId")
		method, params, answer := "session/set_mode", `{"sessionId":"`+s+`","modeId":"plan"}`, `{}`
		if option {
			method, params, answer = "session/set_config_option", `{"sessionId":"`+s+`","configId":"mode","value":"plan"}`, in("plan", `{`+optionsOf+`}`)
		}
		id = tc.request(method, params)
		a.answer(a.nextOf(t, method), answer)
		tc.until(id)
		goesOver(a.conn(), "n", "write", option)
		tc.nextOf("session/update")
		a.conn().crash(errCrash)
		tc.nextOf("_sandboxagent/session/ended")
		tc.request("session/prompt", prompt(s, "hi"))
		a.answer(a.nextOf(t, "session/resume"), in("write", `{`+modesOf+`,`+optionsOf+`}`))
		if m := <-a.shared; m.m.Method() != "session/prompt" {
			t.Errorf("before the prompt the agent was sent %s", m.m.Frame())
		}
	}
}

// A mode is chosen in two ways where an agent has both. Only the newest choice is chosen again, whatever way it was.
func TestMode_ChosenInTheOtherWay(t *testing.T) {
	t.Parallel()
	const opens = `{"sessionId":"n",` + modesOf + `,` + optionsOf + `}`
	type way struct{ method, params, answer string }
	byMode := func(s, mode string) way {
		return way{"session/set_mode", `{"sessionId":"` + s + `","modeId":"` + mode + `"}`, `{}`}
	}
	byOption := func(s, mode string) way {
		return way{"session/set_config_option", `{"sessionId":"` + s + `","configId":"mode","value":"` + mode + `"}`, in(mode, `{`+optionsOf+`}`)}
	}
	for name, tt := range map[string]struct {
		first, then func(s, mode string) way
		info        adapters.Info
		wish        string
	}{
		"mode, option":                           {byMode, byOption, adapters.Info{}, ""},
		"option, mode":                           {byOption, byMode, adapters.Info{}, ""},
		"option, mode, in one that is to read":   {byOption, byMode, adapters.Info{Takes: []string{"permissionMode"}}, own(`"permissionMode":"readonly"`)},
		"option, option":                         {byOption, byOption, adapters.Info{}, ""},
		"mode, a load that wants it to read":     {byMode, nil, adapters.Info{PermissionModes: map[string]string{"readonly": "plan"}}, ""},
		"option, a load that wants that to read": {byOption, nil, adapters.Info{PermissionModes: map[string]string{"readonly": "plan"}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &fakeAgent{id: "fake", caps: reopening, info: tt.info, shared: make(chan sent, 64)}
			a.byHand()
			r := newRuntime(t, t.TempDir(), a)
			tc := connect(t, r, "")
			id := tc.request("session/new", `{"cwd":"/tmp","mcpServers":[]`+tt.wish+`}`)
			a.answer(a.nextOf(t, "session/new"), in("ask", opens))
			_, res := tc.until(id)
			s := rawjson.MemberString(res.Result(), "sessionId")
			choose := func(w way) {
				t.Helper()
				id := tc.request(w.method, w.params)
				a.answer(a.nextOf(t, w.method), w.answer)
				tc.until(id)
			}
			choose(tt.first(s, "write"))
			if tt.then != nil {
				choose(tt.then(s, "plan"))
			} else {
				id := tc.request("session/load", loadOf(s, "/tmp", own(`"permissionMode":"readonly"`)))
				a.answer(a.nextOf(t, "session/set_config_option"), in("plan", `{`+optionsOf+`}`))
				tc.until(id)
				// By its modes the agent has not told of it.
				if again := connect(t, r, "").call("session/resume", loadOf(s, "/tmp", own(`"permissionMode":"readonly","after":0`))); strings.Contains(again, "in mode") {
					t.Errorf("who goes on is told %s", again)
				}
			}
			tc.ends(a)
			_, opened := tc.begins(t, a, s)
			a.answer(opened, in("ask", opens))
			told := 0
			for ; ; told++ {
				m := <-a.shared
				if m.m.Method() == "session/prompt" {
					break
				}
				if got := rawjson.MemberString(m.m.Params(), "modeId") + rawjson.MemberString(m.m.Params(), "value"); got != "plan" {
					t.Errorf("the agent is told %s", m.m.Frame())
				}
				a.answer(m, `{}`)
			}
			if told != 1 {
				t.Errorf("the agent is told %d modes", told)
			}
		})
	}
}
