package lasting

import (
	"fmt"
	"testing"
	"testing/synctest"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// welcomeTwo answers initialize in version 2 of the protocol.
func (w *wire) welcomeTwo(t *testing.T) acp.Message {
	t.Helper()
	m := w.takes(t, acp.MethodInitialize)
	w.toClient <- acp.NewResult(m.ID(), []byte(`{"protocolVersion":2}`))
	return m
}

// tells sends an update of version 2 that has a place in the log of session s.
func (w *wire) tells(session string, seq int, update string) string {
	f := fmt.Sprintf(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":%q,"update":%s,"_meta":{"sandboxagent.dev":{"seq":%d}}}}`, session, update, seq)
	w.toClient <- acp.MustParse([]byte(f))
	return f
}

// In version 2 one event may be several frames, and those of children are events of their
// session. A connection that breaks between them goes on with what is left.
func TestConn_VersionTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two, three := newWire(), newWire(), newWire()
		c := New(Options{Dial: dials(one, two, three)})
		send := func(f string) { go write(t, c, acp.MustParse([]byte(f))) }
		got := func(want string) {
			t.Helper()
			if frame := reads(t, c); frame != want {
				t.Errorf("the client was given %s,\nwant %s", frame, want)
			}
		}
		send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":2,"info":{"name":"n","version":"1"},"capabilities":{}}}`)
		hello := one.welcomeTwo(t)
		if v, _ := rawjson.Member(hello.Params(), "capabilities", "_meta", acp.MetaKey, "eventIds"); string(v) != "true" {
			t.Errorf("events are not numbered: %s", hello.Frame())
		}
		reads(t, c)
		send(`{"jsonrpc":"2.0","id":2,"method":"session/resume","params":{"sessionId":"s","cwd":"/","replayFrom":{"type":"start"}}}`)
		asked := one.takes(t, acp.MethodSessionResume)
		got(one.tells("s", 5, `{"n":1}`))
		got(one.tells("s", 5, `{"sessionUpdate":"state_update","state":"idle"}`))
		one.toClient <- acp.NewResult(asked.ID(), []byte(`{"_meta":{"sandboxagent.dev":{"seq":5}}}`))
		reads(t, c)
		got(one.tells("s", 6, `{"sessionUpdate":"user_message","messageId":"m"}`))
		one.breakRead()
		one.breakWrite()

		two.welcomeTwo(t)
		after := func(w *wire) string {
			t.Helper()
			resume := w.reattached(t, `[]`)
			v, _ := rawjson.Member(resume.Meta(), acp.MetaKey, "after")
			return string(v)
		}
		if from := after(two); from != "5" {
			t.Errorf("the session goes on behind %s, and not all of 6 has come", from)
		}
		synctest.Wait() // it asks nothing: the session was idle
		two.tells("s", 5, `{"sessionUpdate":"state_update","state":"running"}`)
		two.tells("s", 6, `{"sessionUpdate":"user_message","messageId":"m"}`)
		got(two.tells("s", 6, `{"sessionUpdate":"state_update","state":"running"}`))
		got(two.tells("s", 7, `{"sessionUpdate":"subagent_update","sessionId":"c"}`))
		got(two.tells("c", 8, `{"n":2}`))
		send(`{"jsonrpc":"2.0","id":3,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
		prompt := two.takes(t, acp.MethodSessionPrompt)
		two.breakRead()
		two.breakWrite()

		three.welcomeTwo(t)
		if from := after(three); from != "7" {
			t.Errorf("the session goes on behind %s, and not all of 8 has come", from)
		}
		three.replies(t, "_sandboxagent/session/get", `{"state":"running"}`) // of the turn that is watched
		three.replies(t, "_sandboxagent/session/get", `{"state":"running"}`)
		name, _ := rawjson.Member(prompt.Meta(), acp.MetaKey, "promptId")
		three.replies(t, "_sandboxagent/session/events", `{"events":[{"seq":9,"message":{"method":"session/prompt","params":{"_meta":{"sandboxagent.dev":{"promptId":`+string(name)+`}}}}}]}`)
		got(`{"jsonrpc":"2.0","id":3,"result":{"messageId":"sa.9"}}`)
		three.tells("c", 8, `{"n":2}`)
		got(three.tells("c", 10, `{"n":3}`))
		_ = c.Close()
	})
}

// withTwo is withPair in version 2, with a prompt on its way.
func withTwo(t *testing.T, test func(t *testing.T, p pair)) {
	synctest.Test(t, func(t *testing.T) {
		p := pair{t: t, one: newWire(), two: newWire()}
		p.c = New(Options{Dial: dials(p.one, p.two)})
		defer p.c.Close()
		p.sends(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":2,"info":{"name":"n","version":"1"},"capabilities":{}}}`)
		p.one.welcomeTwo(t)
		reads(t, p.c)
		p.sends(`{"jsonrpc":"2.0","id":2,"method":"session/resume","params":{"sessionId":"s","cwd":"/"}}`)
		p.one.replies(t, acp.MethodSessionResume, `{"_meta":{"sandboxagent.dev":{"seq":8}}}`)
		reads(t, p.c)
		p.sends(`{"jsonrpc":"2.0","id":3,"method":"session/prompt","params":{"sessionId":"s","prompt":[],"_meta":{"sandboxagent.dev":{"promptId":"mine"}}}}`)
		test(t, p)
	})
}

// A prompt of version 2 whose answer the broken connection has swallowed is answered from the
// session's events, and its turn ends if the gateway does not go on with it.
func TestConn_VersionTwo_FindsATurn(t *testing.T) {
	const (
		answer = `{"jsonrpc":"2.0","id":3,"result":{"messageId":"sa.9"}}`
		failed = `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"idle","stopReason":"error","error":{"code":-32603,"message":"the turn was interrupted: the gateway was started anew"}}}}`
		ended  = `,{"seq":11,"message":{"method":"_sandboxagent/session/turn_ended","params":{"promptId":"mine","result":{}}}}`
	)
	for name, tt := range map[string]struct {
		state, events string
		told          bool // of the event 11
		want          []string
	}{
		"it goes on":               {"running", "", false, []string{answer}},
		"it was interrupted":       {"idle", "", false, []string{answer, failed}},
		"its end comes":            {"idle", ended, false, []string{answer}},
		"its end has come already": {"idle", ended, true, []string{answer}},
	} {
		t.Run(name, func(t *testing.T) {
			withTwo(t, func(t *testing.T, p pair) {
				p.one.takes(t, acp.MethodSessionPrompt)
				p.one.breakRead()
				p.one.breakWrite()
				p.two.welcomeTwo(t)
				p.two.reattached(t, `[]`)
				for range len(tt.want) { // an interruption is looked for twice
					p.two.replies(t, "_sandboxagent/session/get", `{"state":"`+tt.state+`"}`)
					if tt.told {
						p.two.tells("s", 11, `{"n":1}`)
						p.two.says(turnEnded, "mine", `"result":{},`, 11)
						reads(t, p.c)
					}
					p.two.replies(t, "_sandboxagent/session/events", `{"events":[{"seq":9,"message":{"method":"session/prompt","params":{"_meta":{"sandboxagent.dev":{"promptId":"mine"}}}}}`+tt.events+`]}`)
				}
				for _, want := range tt.want {
					p.got("%s", want)
				}
				p.quiet(p.two)
				if again := p.c.Interrupt("s", errAnew); len(again) > 0 != (name == "it goes on" || name == "its end comes") {
					t.Errorf("the turn that is known: %v", again)
				}
			})
		})
	}
}

// Who watches a turn of version 2 that somebody else has asked for is told that it was interrupted, and
// nothing of one that goes on or whose end comes.
func TestConn_VersionTwo_WatchesATurn(t *testing.T) {
	const (
		running = `{"sessionUpdate":"state_update","state":"running"}`
		asks    = `{"sessionUpdate":"state_update","state":"requires_action"}`
		idle    = `{"sessionUpdate":"state_update","state":"idle","stopReason":"end_turn"}`
		failed  = `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"idle","stopReason":"error","error":{"code":-32603,"message":"the turn was interrupted: the gateway was started anew"}}}}`
		ended   = `{"seq":11,"message":{"method":"_sandboxagent/session/turn_ended","params":{"promptId":"another's","result":{}}}}`
	)
	for name, tt := range map[string]struct {
		told   []string
		asked  bool // what the session does now
		state  string
		events string // "" is that those are not asked for
		want   []string
	}{
		"it was over":         {told: []string{running, idle}},
		"nothing was told":    {},
		"it goes on":          {told: []string{running}, asked: true, state: "running"},
		"somebody is asked":   {told: []string{running, asks}, asked: true, state: "waiting"},
		"it was interrupted":  {told: []string{running}, asked: true, state: "dormant", events: `[]`, want: []string{failed}},
		"while one was asked": {told: []string{running, asks}, asked: true, state: "idle", events: `[]`, want: []string{failed}},
		"its end comes":       {told: []string{running}, asked: true, state: "idle", events: `[` + ended + `]`},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := pair{t: t, one: newWire(), two: newWire()}
				p.c = New(Options{Dial: dials(p.one, p.two)})
				defer p.c.Close()
				p.sends(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":2,"info":{"name":"n","version":"1"},"capabilities":{"_meta":{"sandboxagent.dev":{"turns":true}}}}}`)
				p.one.welcomeTwo(t)
				reads(t, p.c)
				p.sends(`{"jsonrpc":"2.0","id":2,"method":"session/resume","params":{"sessionId":"s","cwd":"/"}}`)
				p.one.replies(t, acp.MethodSessionResume, `{"_meta":{"sandboxagent.dev":{"seq":8}}}`)
				reads(t, p.c)
				for i, update := range tt.told {
					p.got("%s", p.one.tells("s", 9+i, update))
				}
				p.one.breakRead()
				p.one.breakWrite()
				p.two.welcomeTwo(t)
				p.two.reattached(t, `[]`)
				if tt.asked {
					p.two.replies(t, "_sandboxagent/session/get", `{"state":"`+tt.state+`"}`)
				}
				if tt.events != "" {
					p.two.replies(t, "_sandboxagent/session/events", `{"events":`+tt.events+`}`)
				}
				for _, want := range tt.want {
					p.got("%s", want)
				}
				p.quiet(p.two)
				if again := p.c.Interrupt("s", errAnew); len(again) != 0 && tt.want != nil || len(again) > 1 {
					t.Errorf("the turn that is known: %v", again)
				}
			})
		})
	}
}
