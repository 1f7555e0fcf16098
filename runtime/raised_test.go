package runtime

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// Pages of events in version 2 have what a client of it was told as it happened, however
// large they are, and whoever reads another page meanwhile.
func TestRaisedEvents_AreWhatAClientWasTold(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	two := connectTwo(t, r, "")
	s := two.session()
	c := a.conn()
	update := func(body string) {
		c.send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"native-1","update":` + body + `}}`)
	}
	id := two.request("session/prompt", prompt(s, "hi"))
	p := c.next(t, "session/prompt")
	told := []string{brief(two.next()), brief(two.next())}
	two.expect(string(id) + " result sa.1")
	tell := func(n int) {
		t.Helper()
		for range n {
			told = append(told, brief(two.next()))
		}
	}
	c.chunk("native-1", "one")
	update(`{"sessionUpdate":"notice","severity":"warning","title":"Busy"}`)
	update(`{"sessionUpdate":"tool_call","toolCallId":"p","title":"Task","status":"in_progress","_meta":{"sandboxagent.dev":{"subagent":{}}}}`)
	tell(5) // of the call, its subagent, and the subagent's state
	update(`{"sessionUpdate":"tool_call","toolCallId":"c","title":"Read","status":"completed","_meta":{"sandboxagent.dev":{"parentToolCallId":"p"}}}`)
	c.send(`{"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":{"sessionId":"native-1","toolCall":{"toolCallId":"t","title":"Do it"},"options":[{"optionId":"o","name":"O","kind":"allow_once"}]}}`)
	tell(1)
	ask := two.next()
	told = append(told, brief(ask))
	tell(1)
	two.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"outcome":{"outcome":"selected","optionId":"o"}}}`, ask.ID()))
	tell(1)
	c.next(t, "")
	c.chunk("native-1", "two")
	c.result(p, `{"stopReason":"end_turn"}`)
	tell(2)

	read := func(limit int, also func(after uint64)) []string {
		t.Helper()
		var got []string
		for after, more := uint64(0), true; more; {
			events, hasMore, err := r.RaisedEvents(t.Context(), s, after, limit)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				if e.Seq < after || e.Time.IsZero() {
					t.Errorf("event %d at %s behind %d", e.Seq, e.Time, after)
				}
				m := acp.MustParse(slices.Clone([]byte(e.Message)))
				if e.Direction != FromClient && !m.IsResponse() && m.Method() != acp.MethodCancelRequest && m.Method() != "_sandboxagent/session/turn_ended" {
					got = append(got, brief(m))
				}
			}
			if more = hasMore && len(events) > 0; more {
				after = events[len(events)-1].Seq
				also(after)
			}
		}
		return got
	}
	for limit := 1; limit < 12; limit++ {
		for name, also := range map[string]func(uint64){
			"alone": func(uint64) {},
			"two at once": func(after uint64) { // the other one takes what the page before has left
				if _, _, err := r.RaisedEvents(t.Context(), s, after, 1); err != nil {
					t.Fatal(err)
				}
			},
		} {
			if diff := cmp.Diff(told, read(limit, also)); diff != "" {
				t.Fatalf("%d of a page, %s (-told +read):\n%s", limit, name, diff)
			}
		}
	}
	if _, _, err := r.RaisedEvents(t.Context(), "nobody", 0, 1); kindOf(t, err) != problem.SessionNotFound {
		t.Errorf("of no session: %v", err)
	}
	if _, _, err := r.RaisedEvents(t.Context(), s, 0, 1001); kindOf(t, err) != problem.InvalidRequest {
		t.Errorf("too many: %v", err)
	}
}

// Of so many sessions how far somebody has read them is kept.
func TestRaisedEvents_ReadOn(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	for range maxReadings + 3 {
		two := connectTwo(t, r, "")
		s := two.session()
		two.call("session/prompt", prompt(s, "hi"))
		if _, _, err := r.RaisedEvents(t.Context(), s, 0, 1); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(r.readings.all); n != maxReadings {
		t.Errorf("%d readings are kept", n)
	}
}
