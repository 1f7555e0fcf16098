package lasting

import (
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// away refuses the next message, a request for a session of a node that is away.
func (w *wire) away(t *testing.T) {
	t.Helper()
	m := w.takes(t, acp.MethodSessionResume)
	w.toClient <- acp.NewError(m.ID(), acp.Errorf(acp.CodeInternal, "away").WithData(problem.New(problem.NodeOffline, "away")))
}

// The connection is to another hub now, to which the node comes a moment later.
func TestConn_TheNodeComesLater(t *testing.T) {
	withPair(t, func(t *testing.T, p pair) {
		p.sends(`{"jsonrpc":"2.0","id":3,"method":"session/close","params":{"sessionId":"s"}}`)
		p.one.takes(t, acp.MethodSessionClose)
		p.breaks()
		for range 3 {
			p.two.away(t)
		}
		p.two.reattached(t, `[]`)
		p.two.replies(t, acp.MethodSessionClose, `{}`)
		p.got(`{"jsonrpc":"2.0","id":3,"result":{}}`)
	})
}

// One that does not come holds nobody up for long, and the session is told of.
func TestConn_TheNodeDoesNotCome(t *testing.T) {
	withPair(t, func(t *testing.T, p pair) {
		told := make(chan string, 1)
		p.c.o.Gone = func(session string, why *acp.Error) { told <- session + " " + why.Message }
		p.sends(`{"jsonrpc":"2.0","id":3,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
		p.one.takes(t, acp.MethodSessionPrompt)
		p.breaks()
		began := time.Now()
		go func() {
			for {
				select {
				case m := <-p.two.toGateway:
					p.two.toClient <- acp.NewError(m.ID(), acp.Errorf(acp.CodeInternal, "away").WithData(problem.New(problem.NodeOffline, "away")))
				case <-p.two.closing:
					return
				}
			}
		}()
		if m, err := p.c.Read(t.Context()); err != nil || m.ID() != "3" || m.Err() == nil {
			t.Errorf("the prompt was answered %s, %v", m.Frame(), err)
		}
		if took := time.Since(began); took > nodeBound+longestPause {
			t.Errorf("that took %v", took)
		}
		if got := <-told; got != "s away" {
			t.Errorf("it was told of %q", got)
		}
	})
}
