package lasting

import (
	"testing"
	"testing/synctest"

	"sandboxagent.dev/sandbox-agent/acp"
)

const (
	gone    = `{"jsonrpc":"2.0","method":"_sandboxagent/session/events_damaged","params":{"sessionId":"s","firstSeq":%d,"lastSeq":%d}}`
	expired = `{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"no longer kept","data":{"type":"urn:sandbox-agent:error:events_expired","oldestSeq":40}}}`
)

// resumesBehindWhatIsLost has the second connection refuse the events that it does not keep, and checks what the client is told.
func (p pair) resumesBehindWhatIsLost(since int) {
	p.t.Helper()
	resume := p.two.takes(p.t, acp.MethodSessionResume)
	p.two.says(expired, resume.ID())
	if since > 0 {
		p.got(gone, since, 39)
	}
	if again := p.two.reattached(p.t, `[]`); after(again) != 39 {
		p.t.Errorf("attached again by %s", again.Frame())
	}
}

// refusesEvents has the second connection refuse a page of events that it does not keep.
func (p pair) refusesEvents() {
	p.t.Helper()
	page := p.two.takes(p.t, "_sandboxagent/session/events")
	p.two.says(expired, page.ID())
}

// A gateway may have let go of events while there was no connection: the session goes on behind them.
func TestRestore_EventsAreNoLongerKept(t *testing.T) {
	knows := func(t *testing.T, f func(t *testing.T, p pair)) {
		withPair(t, func(t *testing.T, p pair) {
			p.c.notices = true // as its initialize says
			p.one.says(update, 7)
			p.got(update, 7)
			f(t, p)
		})
	}
	t.Run("nothing goes on", func(t *testing.T) {
		knows(t, func(t *testing.T, p pair) {
			p.breaks()
			p.resumesBehindWhatIsLost(8)
			p.two.says(update, 39)
			p.two.says(update, 40)
			p.got(update, 40)
		})
	})
	t.Run("the client does not know what is the gateway's own", func(t *testing.T) {
		withPair(t, func(t *testing.T, p pair) {
			p.breaks()
			p.resumesBehindWhatIsLost(0)
			p.two.says(update, 40)
			p.got(update, 40)
		})
	})
	const found = `{"events":[{"seq":41,"message":{"method":"_sandboxagent/session/turn_ended","params":{"sessionId":"s","promptId":"mine","result":{"stopReason":"end_turn"}}}}]}`
	t.Run("a turn has ended", func(t *testing.T) {
		knows(t, func(t *testing.T, p pair) {
			p.sends(prompt)
			p.one.takes(t, acp.MethodSessionPrompt)
			p.breaks()
			p.resumesBehindWhatIsLost(8)
			p.two.replies(t, "_sandboxagent/session/get", `{"state":"idle"}`)
			p.refusesEvents()
			p.two.replies(t, "_sandboxagent/session/events", found)
			synctest.Wait()
			p.two.says(turnEnded, "mine", `"result":{"stopReason":"end_turn"},`, 41)
			p.got(`{"jsonrpc":"2.0","id":3,"result":{"stopReason":"end_turn"}}`)
		})
	})
	t.Run("a prompt may be among them, or have been lost", func(t *testing.T) {
		knows(t, func(t *testing.T, p pair) {
			p.sends(prompt)
			p.one.takes(t, acp.MethodSessionPrompt)
			p.breaks()
			p.resumesBehindWhatIsLost(8)
			p.two.replies(t, "_sandboxagent/session/get", `{"state":"running"}`)
			p.refusesEvents()
			p.two.replies(t, "_sandboxagent/session/events", `{"events":[]}`)
			p.got(`{"jsonrpc":"2.0","id":3,"error":{"code":-32603,"message":"no longer kept","data":{"type":"urn:sandbox-agent:error:events_expired","oldestSeq":40}}}`)
		})
	})
}

// In version 2 the answer to a prompt names the event that began its turn. Where that is gone nobody can give it.
func TestRestore_TheBeginningIsNoLongerKept(t *testing.T) {
	for name, tt := range map[string]struct{ end, want string }{
		"the turn has ended":       {`"result":{"stopReason":"end_turn"}`, "no longer kept"},
		"the turn never began":     {`"began":false,"error":{"code":-32800,"message":"cancelled"}`, errCancelled.Message},
		"an older gateway says it": {`"error":{"code":-32800,"message":"cancelled"}`, errCancelled.Message},
	} {
		t.Run(name, func(t *testing.T) {
			withPairTwo(t, func(t *testing.T, p pair) {
				p.sends(prompt)
				p.one.takes(t, acp.MethodSessionPrompt)
				p.one.breakRead()
				p.one.breakWrite()
				p.two.welcomeTwo(t)
				p.resumesBehindWhatIsLost(0)
				p.two.replies(t, "_sandboxagent/session/get", `{"state":"idle"}`)
				p.refusesEvents()
				p.two.replies(t, "_sandboxagent/session/events", `{"events":[{"seq":41,"message":{"method":"_sandboxagent/session/turn_ended","params":{"sessionId":"s","promptId":"mine",`+tt.end+`}}}]}`)
				if m, err := p.c.Read(t.Context()); err != nil || m.ID() != "3" || m.Err() == nil || m.Err().Message != tt.want {
					t.Errorf("it was answered %s, %v", m.Frame(), err)
				}
			})
		})
	}
}

// In version 2 the state is told anew behind what is lost, and a turn that was known to have begun goes on.
func TestRestore_EventsAreNoLongerKeptInVersionTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pair{t: t, one: newWire(), two: newWire()}
		p.c = New(Options{Dial: dials(p.one, p.two)})
		p.sends(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":2,"info":{"name":"n","version":"1"},"capabilities":{"_meta":{"sandboxagent.dev":{"notices":true}}}}}`)
		p.one.welcomeTwo(t)
		reads(t, p.c)
		p.sends(`{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/"}}`)
		p.one.replies(t, acp.MethodSessionNew, `{"sessionId":"s","_meta":{"sandboxagent.dev":{"seq":1}}}`)
		reads(t, p.c)
		p.sends(prompt)
		p.one.replies(t, acp.MethodSessionPrompt, `{"messageId":"sa.2"}`)
		reads(t, p.c)
		p.got("%s", p.one.tells("s", 2, `{"sessionUpdate":"state_update","state":"running"}`))
		p.one.breakRead()
		p.one.breakWrite()

		p.two.welcomeTwo(t)
		p.resumesBehindWhatIsLost(3)
		p.two.replies(t, "_sandboxagent/session/get", `{"state":"running"}`)
		p.refusesEvents()
		p.two.replies(t, "_sandboxagent/session/events", `{"events":[]}`)
		synctest.Wait()
		p.got("%s", p.two.tells("s", 39, `{"sessionUpdate":"state_update","state":"running"}`))
		p.got("%s", p.two.tells("s", 41, `{"sessionUpdate":"state_update","state":"idle","stopReason":"end_turn"}`))
		p.quiet(p.two)
		_ = p.c.Close()
	})
}
