package runtime

import (
	"context"
	"io"
	goruntime "runtime"
	"strings"
	"sync"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// mortalAgent has processes that can be dead before the gateway notices.
type mortalAgent struct {
	*fakeAgent
	missed  chan struct{} // gets a value for each prompt that a dead process did not take
	noticed chan struct{} // closed when the gateway may notice the deaths

	mu   sync.Mutex
	dead int  // how many processes from now on do not take a prompt
	seen bool // before anything is written: the gateway sees the end of those before it sees that they do not take it
}

func newMortalAgent() *mortalAgent {
	return &mortalAgent{
		fakeAgent: &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"resume":{},"close":{}}}`, shared: make(chan sent, 64)},
		missed:    make(chan struct{}, 64), noticed: make(chan struct{}),
	}
}

func (a *mortalAgent) Open(ctx context.Context, o adapters.Options) (acp.Conn, error) {
	c, err := a.fakeAgent.Open(ctx, o)
	if err != nil {
		return nil, err
	}
	return &mortalConn{c.(*fakeConn), a}, nil
}

type mortalConn struct {
	*fakeConn
	a *mortalAgent
}

func (c *mortalConn) Write(ctx context.Context, m acp.Message) error {
	switch m.Method() {
	case acp.MethodSessionPrompt:
		c.a.mu.Lock()
		dead := c.a.dead > 0
		c.a.dead--
		c.a.mu.Unlock()
		if dead {
			if c.a.seen {
				c.crash(&adapters.ExitError{Code: -1, Signal: "SIGKILL"})
				for range 100_000 { // for as long as that takes
					goruntime.Gosched()
				}
			}
			c.a.missed <- struct{}{}
			return io.ErrClosedPipe
		}
	case acp.MethodSessionResume, acp.MethodSessionClose:
		c.result(m, `{}`)
		return nil
	}
	return c.fakeConn.Write(ctx, m)
}

// Close is what the gateway does with a process that takes nothing.
func (c *mortalConn) Close() error {
	<-c.a.noticed
	c.crash(&adapters.ExitError{Code: -1, Signal: "SIGKILL"})
	return nil
}

// A prompt that a process has certainly not taken, because it had ended, is given to
// another one, once. Whatever else comes before the gateway notices the end is answered.
func TestUntaken_DeathAndPrompt(t *testing.T) {
	type world struct {
		t  *testing.T
		a  *mortalAgent
		r  *Runtime
		tc *testClient
		s  string
	}
	begin := func(w *world, text string) acp.ID { return w.tc.request("session/prompt", prompt(w.s, text)) }
	// next has the present process answer the prompt that it gets.
	next := func(w *world, want string) {
		w.t.Helper()
		m := w.a.nextOf(w.t, "session/prompt")
		if !strings.Contains(string(m.m.Params()), want) {
			w.t.Errorf("the agent was given %s, want %q", m.m.Params(), want)
		}
		w.a.answer(m, `{"stopReason":"end_turn"}`)
	}
	ends := func(w *world, id acp.ID, want string) {
		w.t.Helper()
		_, res := w.tc.until(id)
		got := rawjson.MemberString(res.Result(), "stopReason")
		if e := res.Err(); e != nil {
			got = rawjson.MemberString(e.Data, "type") + e.Message
		}
		if !strings.Contains(got, want) {
			w.t.Errorf("the prompt %s ended with %q, want %q", id, got, want)
		}
	}
	for name, row := range map[string]struct {
		dead   int
		opened int // processes in the end, 0 for any number
		test   func(w *world)
	}{
		"the prompt comes to a dead process": {1, 2, func(w *world) {
			id := begin(w, "one")
			<-w.a.missed
			close(w.a.noticed)
			next(w, "one")
			ends(w, id, "end_turn")
		}},
		"its end is noticed while it is given the prompt": {1, 2, func(w *world) {
			w.a.seen = true
			close(w.a.noticed)
			id := begin(w, "one")
			next(w, "one")
			ends(w, id, "end_turn")
		}},
		"prompts of two clients wait in their order": {1, 2, func(w *world) {
			one := begin(w, "one")
			<-w.a.missed
			other := connect(w.t, w.r, "")
			other.call("session/load", `{"sessionId":"`+w.s+`","cwd":"/tmp","mcpServers":[]}`)
			two := other.request("session/prompt", prompt(w.s, "two"))
			close(w.a.noticed)
			next(w, "one")
			next(w, "two")
			ends(w, one, "end_turn")
			before, res := other.until(two)
			if n := strings.Count(texts(before), "user:one"); n > 1 || res.Err() != nil {
				w.t.Errorf("the other client was shown %q, and told %s", texts(before), res.Frame())
			}
		}},
		"the next process is dead, too": {2, 2, func(w *world) {
			id := begin(w, "one")
			<-w.a.missed
			close(w.a.noticed)
			<-w.a.missed
			ends(w, id, "agent_process_exited")
		}},
		"it dies with the prompt": {0, 1, func(w *world) {
			id := begin(w, "one")
			m := w.a.nextOf(w.t, "session/prompt")
			close(w.a.noticed)
			m.to.crash(&adapters.ExitError{Code: -1, Signal: "SIGKILL"})
			ends(w, id, "agent_process_exited")
		}},
		"cancelled before that is noticed": {1, 2, func(w *world) {
			id := begin(w, "one")
			<-w.a.missed
			w.tc.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"` + w.s + `"}}`)
			again := begin(w, "two")
			close(w.a.noticed)
			next(w, "two")
			ends(w, id, "cancelled")
			ends(w, again, "end_turn")
		}},
		"closed before that is noticed": {1, 0, func(w *world) {
			id := begin(w, "one")
			<-w.a.missed
			closing := w.tc.request("session/close", `{"sessionId":"`+w.s+`"}`)
			close(w.a.noticed)
			ends(w, id, "cancelled")
			if _, res := w.tc.until(closing); res.Err() != nil {
				w.t.Errorf("%s", res.Frame())
			}
		}},
		"deleted before that is noticed": {1, 0, func(w *world) {
			id := begin(w, "one")
			<-w.a.missed
			deleting := w.tc.request("session/delete", `{"sessionId":"`+w.s+`"}`)
			close(w.a.noticed)
			ends(w, id, "cancelled")
			if _, res := w.tc.until(deleting); res.Err() != nil {
				w.t.Errorf("%s", res.Frame())
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			a := newMortalAgent()
			w := &world{t: t, a: a, r: openRuntime(t, Options{DataDir: t.TempDir(), Version: "test", Adapters: []adapters.Adapter{a}, DefaultAgent: "fake"})}
			w.tc = connect(t, w.r, "")
			w.s = w.tc.session()
			a.mu.Lock()
			a.dead = row.dead
			a.mu.Unlock()
			row.test(w)
			if got := a.opened(); row.opened > 0 && got != row.opened {
				t.Errorf("%d processes were started, want %d", got, row.opened)
			}
		})
	}
}
