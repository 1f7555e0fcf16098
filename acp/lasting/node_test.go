package lasting

import (
	"testing"
	"testing/synctest"
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

// What was under way as a hub ended, or is written until there is another one, waits for its node to come there, too. It
// is sent on one connection at a time.
func TestConn_TheNodeComesLater_ForRequests(t *testing.T) {
	const load = `{"jsonrpc":"2.0","id":3,"method":"session/load","params":{"sessionId":"other","cwd":"/"}}`
	away := func(w *wire, method string) {
		m := w.takes(t, method)
		w.toClient <- acp.NewError(m.ID(), acp.Errorf(acp.CodeInternal, "away").WithData(problem.New(problem.NodeOffline, "away")))
	}
	for name, before := range map[string]bool{"it was under way": true, "it is written during the outage": false} {
		t.Run(name, func(t *testing.T) {
			withPair(t, func(t *testing.T, p pair) {
				if before {
					p.sends(load)
					p.one.takes(t, acp.MethodSessionLoad)
				}
				p.one.breakRead()
				p.one.breakWrite()
				synctest.Wait()
				if !before {
					p.sends(load)
				}
				p.two.welcome(t)
				p.two.reattached(t, `[]`)
				for range 3 {
					away(p.two, acp.MethodSessionLoad)
				}
				p.two.replies(t, acp.MethodSessionLoad, `{}`)
				p.got(`{"jsonrpc":"2.0","id":3,"result":{}}`)
				p.sends(`{"jsonrpc":"2.0","id":4,"method":"session/load","params":{"sessionId":"another","cwd":"/"}}`)
				away(p.two, acp.MethodSessionLoad)
				if m, err := p.c.Read(t.Context()); err != nil || m.ID() != "4" || m.Err() == nil {
					t.Errorf("what comes later was answered %s, %v", m.Frame(), err)
				}
			})
		})
	}
	t.Run("the connection breaks again", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			one, two, three := newWire(), newWire(), newWire()
			c := New(Options{Dial: dials(one, two, three)})
			p := pair{t: t, c: c, one: one, two: two}
			attached(t, c, one)
			p.sends(load)
			one.takes(t, acp.MethodSessionLoad)
			p.breaks()
			two.reattached(t, `[]`)
			away(two, acp.MethodSessionLoad)
			two.breakRead()
			two.breakWrite()
			three.welcome(t)
			three.reattached(t, `[]`)
			three.replies(t, acp.MethodSessionLoad, `{}`)
			p.got(`{"jsonrpc":"2.0","id":3,"result":{}}`)
			time.Sleep(nodeBound)
			p.quiet(three)
			_ = c.Close()
		})
	})
	t.Run("it does not come", func(t *testing.T) {
		withPair(t, func(t *testing.T, p pair) {
			p.sends(load)
			p.one.takes(t, acp.MethodSessionLoad)
			p.breaks()
			p.two.reattached(t, `[]`)
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
				t.Errorf("it was answered %s, %v", m.Frame(), err)
			}
			if took := time.Since(began); took > nodeBound || took < nodeBound/3 {
				t.Errorf("that took %v", took)
			}
		})
	})
}
