package runtime

import (
	"fmt"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

func namedPrompt(session, name, text string) string {
	return fmt.Sprintf(`{"sessionId":%q,"prompt":[{"type":"text","text":%q}],"_meta":{"sandboxagent.dev":{"promptId":%q}}}`, session, text, name)
}

// A client whose connection breaks cannot know whether its prompt arrived. It sends it
// again on the next one, at any moment of the first one's life: the agent gets it once,
// and the client is answered.
func TestTurn_AskedAgain(t *testing.T) {
	for _, version := range []int{1, 2} {
		for _, moment := range []string{"starting", "queued", "running", "over", "failed", "closed"} {
			t.Run(fmt.Sprint(moment, " in version ", version), func(t *testing.T) {
				a := &fakeAgent{caps: `{"sessionCapabilities":{"resume":{}}}`, shared: make(chan sent, 1024)}
				r := newRuntime(t, t.TempDir(), a)
				open := func() *testClient {
					if version == 2 {
						return connectTwo(t, r, `{"_meta":{"sandboxagent.dev":{"turns":true}}}`)
					}
					return connect(t, r, `{"_meta":{"sandboxagent.dev":{"turns":true}}}`)
				}
				first, host := open(), connect(t, r, "")
				s := host.session()
				attach := func(tc *testClient) { tc.call("session/resume", fmt.Sprintf(`{"sessionId":%q,"cwd":"/tmp"}`, s)) }
				attach(first)
				same := namedPrompt(s, "p1", "once")
				ask := func(tc *testClient) acp.ID { return tc.request("session/prompt", same) }
				var before, opening, p sent
				var blocking acp.ID
				answer := `{"stopReason":"end_turn","usage":{"totalTokens":5,"inputTokens":2,"outputTokens":3}}`
				switch moment {
				case "starting":
					a.conn().crash(errCrash)
					waitFor(t, r, s, func(i SessionInfo) bool { return i.State == "dormant" })
					ask(first)
					opening = a.nextOf(t, "session/resume")
				case "queued":
					blocking = host.request("session/prompt", prompt(s, "before"))
					before = a.nextOf(t, "session/prompt")
					ask(first)
				default:
					ask(first)
					p = a.nextOf(t, "session/prompt")
				}
				switch moment {
				case "over", "closed":
					a.answer(p, answer)
					waitFor(t, r, s, func(i SessionInfo) bool { return i.State == "idle" })
				case "failed":
					p.to.send(`{"jsonrpc":"2.0","id":` + string(p.m.ID()) + `,"error":{"code":-32000,"message":"no","data":{"a":1}}}`)
					waitFor(t, r, s, func(i SessionInfo) bool { return i.State == "idle" })
				}
				first.close()
				again, third := open(), open()
				attach(again)
				attach(third)
				if moment == "closed" {
					host.call("session/close", fmt.Sprintf(`{"sessionId":%q}`, s))
				}
				id := ask(again)
				twice := ask(third) // the bytes of a connection that broke are read at any time
				switch moment {
				case "starting":
					a.answer(opening, `{}`)
				case "queued":
					a.answer(before, answer)
					host.until(blocking)
				}
				switch moment {
				case "starting", "queued":
					p = a.nextOf(t, "session/prompt")
					a.answer(p, answer)
				case "running":
					a.answer(p, answer)
				}
				if !strings.Contains(string(p.m.Params()), "once") {
					t.Fatalf("the agent was given %s", p.m.Frame())
				}
				for tc, id := range map[*testClient]acp.ID{again: id, third: twice} {
					_, res := tc.until(id)
					switch {
					case version == 2:
						if rawjson.MemberString(res.Result(), "messageId") == "" {
							t.Errorf("answered with %s", res.Frame())
						}
					case moment == "failed":
						if e := res.Err(); e == nil || e.Code != -32000 || e.Message != "no" || string(e.Data) != `{"a":1}` {
							t.Errorf("answered with %s", res.Frame())
						}
					case string(res.Result()) != answer:
						t.Errorf("answered with %s", res.Frame())
					}
				}
				if moment == "closed" {
					return
				}
				// What the agent gets next is the next prompt.
				other := host.request("session/prompt", namedPrompt(s, "p2", "next"))
				p = a.nextOf(t, "session/prompt")
				if !strings.Contains(string(p.m.Params()), "next") {
					t.Errorf("the agent was given it again: %s", p.m.Frame())
				}
				a.answer(p, answer)
				host.until(other)
				e := host.callErr("session/prompt", namedPrompt(s, "p1", "something else"))
				if e.Code != acp.CodeInvalidParams || !strings.Contains(e.Message, `"p1"`) {
					t.Errorf("another prompt of the same name: %v", e)
				}
			})
		}
	}
}

// As many prompts are remembered as can be on their way. Who was forgotten is another one.
func TestTurn_AskedAgainLate(t *testing.T) {
	a := &fakeAgent{}
	a.handle = func(c *fakeConn, m acp.Message) {
		switch m.Method() {
		case "session/new":
			c.newSession(m)
		case "session/prompt":
			c.chunk(m.Session(), "done")
			c.result(m, `{"stopReason":"end_turn"}`)
		}
	}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	s := tc.session()
	run := func(i int) string {
		before, _ := tc.until(tc.request("session/prompt", namedPrompt(s, fmt.Sprint(i), "x")))
		return texts(before)
	}
	for i := range 70 {
		if got := run(i); got != "done" {
			t.Fatalf("prompt %d: %q", i, got)
		}
	}
	if got := run(69) + run(5); got != "" {
		t.Errorf("repeated: %q", got)
	}
	if got := run(4); got != "done" {
		t.Errorf("forgotten: %q", got)
	}
}

// A prompt that an earlier gateway has taken is not run again by the next one: who asks is
// told how it ended, or that it was interrupted.
func TestTurn_AskedAgainAfterAKill(t *testing.T) {
	a, dir := &fakeAgent{caps: `{"sessionCapabilities":{"resume":{}}}`}, t.TempDir()
	r := newRuntime(t, dir, a)
	tc := connect(t, r, "")
	s := tc.session()
	ask := func(tc *testClient, name string) acp.ID {
		return tc.request("session/prompt", namedPrompt(s, name, "x"))
	}
	answer := func(text string) { a.conn().result(a.conn().next(t, "session/prompt"), text) }
	done := ask(tc, "done")
	answer(`{"stopReason":"max_tokens"}`)
	tc.until(done)
	failed := ask(tc, "failed")
	p := a.conn().next(t, "session/prompt")
	a.conn().send(`{"jsonrpc":"2.0","id":` + string(p.ID()) + `,"error":{"code":-32000,"message":"no"}}`)
	tc.until(failed)
	waitFor(t, r, s, func(i SessionInfo) bool { return i.State == "idle" })
	ask(tc, "cut")
	a.conn().next(t, "session/prompt")
	a.conn().chunk("native-1", "tick")
	tc.next()

	after := t.TempDir()
	copyDir(t, after, dir)
	b := &fakeAgent{caps: `{"sessionCapabilities":{"resume":{}}}`}
	next := newRuntime(t, after, b)
	again := connect(t, next, "")
	again.call("session/resume", fmt.Sprintf(`{"sessionId":%q,"cwd":"/tmp"}`, s))
	for name, want := range map[string]string{"done": `"max_tokens"`, "failed": `"no"`, "cut": "interrupted"} {
		if _, res := again.until(ask(again, name)); !strings.Contains(string(res.Frame()), want) {
			t.Errorf("%s is answered with %s", name, res.Frame())
		}
	}
	if n := b.opened(); n > 1 {
		t.Errorf("%d processes were started", n)
	}
	// Another one runs.
	id := ask(again, "new")
	b.conn().result(b.conn().next(t, "session/resume"), `{}`)
	b.conn().result(b.conn().next(t, "session/prompt"), `{"stopReason":"end_turn"}`)
	if _, res := again.until(id); !strings.Contains(string(res.Frame()), "end_turn") {
		t.Errorf("the new one is answered with %s", res.Frame())
	}
}

// An answer that is too large to be kept is not given again; the prompt is not run either.
func TestTurn_AskedAgainForALargeAnswer(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	s := tc.session()
	large := `{"stopReason":"end_turn","_meta":{"x":"` + strings.Repeat("x", 20<<10) + `"}}`
	id := tc.request("session/prompt", namedPrompt(s, "p", "x"))
	a.conn().result(a.conn().next(t, "session/prompt"), large)
	if _, res := tc.until(id); string(res.Result()) != large {
		t.Fatalf("answered with %.200s", res.Frame())
	}
	if e := tc.callErr("session/prompt", namedPrompt(s, "p", "x")); !strings.Contains(e.Message, "it is in the session's log") {
		t.Errorf("asked again: %v", e)
	}
}
