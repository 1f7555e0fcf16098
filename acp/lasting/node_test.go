package lasting

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// away refuses the next message, a request to a node that is away.
func (w *wire) away(t *testing.T, method string, why *problem.Error) acp.Message {
	t.Helper()
	m := w.takes(t, method)
	w.toClient <- acp.NewError(m.ID(), acp.Errorf(acp.CodeInternal, "away").WithData(why))
	return m
}

// staysAway refuses all messages like that, until the connection ends.
func (w *wire) staysAway() {
	for {
		select {
		case m := <-w.toGateway:
			w.toClient <- acp.NewError(m.ID(), acp.Errorf(acp.CodeInternal, "away").WithData(problem.New(problem.NodeOffline, "away")))
		case <-w.closing:
			return
		}
	}
}

// The connection is to another hub now, to which the node comes a moment later.
func TestConn_TheNodeComesLater(t *testing.T) {
	withPair(t, func(t *testing.T, p pair) {
		p.sends(`{"jsonrpc":"2.0","id":3,"method":"session/close","params":{"sessionId":"s"}}`)
		p.one.takes(t, acp.MethodSessionClose)
		p.breaks()
		for range 3 {
			p.two.away(t, acp.MethodSessionResume, problem.New(problem.NodeOffline, "away"))
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
		p.c.o.Gone = func(session string, why *acp.Error, _ bool) { told <- session + " " + why.Message }
		p.sends(`{"jsonrpc":"2.0","id":3,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
		p.one.takes(t, acp.MethodSessionPrompt)
		p.breaks()
		began := time.Now()
		go p.two.staysAway()
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
	away := func(w *wire, method string) { w.away(t, method, problem.New(problem.NodeOffline, "away")) }
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
			go p.two.staysAway()
			if m, err := p.c.Read(t.Context()); err != nil || m.ID() != "3" || m.Err() == nil {
				t.Errorf("it was answered %s, %v", m.Frame(), err)
			}
			if took := time.Since(began); took > nodeBound || took < nodeBound/3 {
				t.Errorf("that took %v", took)
			}
		})
	})
}

// What waits for a node keeps its order, with what is written meanwhile about the same session.
func TestConn_TheNodeComesLater_InOrder(t *testing.T) {
	const (
		mode  = `{"jsonrpc":"2.0","id":%d,"method":"session/set_mode","params":{"sessionId":"s","modeId":"m"}}`
		other = `{"jsonrpc":"2.0","id":9,"method":"session/close","params":{"sessionId":"other"}}`
	)
	offline := problem.New(problem.NodeOffline, "away")
	// waiting has the requests 3 and 4 of the session refused, and a prompt, its cancel and a close wait behind them.
	waiting := func(t *testing.T, p pair) {
		p.sends(mode, 3)
		p.one.takes(t, acp.MethodSessionSetMode)
		p.sends(mode, 4)
		p.one.takes(t, acp.MethodSessionSetMode)
		p.breaks()
		p.two.reattached(t, `[]`)
		for range 2 {
			p.two.away(t, acp.MethodSessionSetMode, offline)
		}
		synctest.Wait()
		p.sends(`{"jsonrpc":"2.0","id":5,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
		p.sends(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}`)
		p.sends(`{"jsonrpc":"2.0","id":6,"method":"session/close","params":{"sessionId":"s"}}`)
		p.sends(other)
		p.two.replies(t, acp.MethodSessionClose, `{}`)
		p.got(`{"jsonrpc":"2.0","id":9,"result":{}}`)
	}
	// goesOn answers what a connection is sent from request 4 on.
	goesOn := func(t *testing.T, p pair, w *wire) {
		if m := w.replies(t, acp.MethodSessionSetMode, `{}`); m.ID() != "4" {
			t.Errorf("%s was sent", m.Frame())
		}
		p.got(`{"jsonrpc":"2.0","id":4,"result":{}}`)
		prompt := w.takes(t, acp.MethodSessionPrompt)
		w.takes(t, acp.MethodSessionCancel)
		w.toClient <- acp.NewResult(prompt.ID(), []byte(`{"stopReason":"cancelled"}`))
		p.got(`{"jsonrpc":"2.0","id":5,"result":{"stopReason":"cancelled"}}`)
		w.replies(t, acp.MethodSessionClose, `{}`)
		p.got(`{"jsonrpc":"2.0","id":6,"result":{}}`)
		p.quiet(w)
	}
	t.Run("the node comes", func(t *testing.T) {
		withPair(t, func(t *testing.T, p pair) {
			waiting(t, p)
			if m := p.two.away(t, acp.MethodSessionSetMode, offline); m.ID() != "3" {
				t.Errorf("%s was sent", m.Frame())
			}
			p.two.replies(t, acp.MethodSessionSetMode, `{}`)
			p.got(`{"jsonrpc":"2.0","id":3,"result":{}}`)
			goesOn(t, p, p.two)
		})
	})
	t.Run("the first is taken back", func(t *testing.T) {
		withPair(t, func(t *testing.T, p pair) {
			waiting(t, p)
			p.sends(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":3}}`)
			if m, err := p.c.Read(t.Context()); err != nil || m.ID() != "3" || m.Err() == nil || m.Err().Code != acp.CodeCancelled {
				t.Errorf("it was answered %s, %v", m.Frame(), err)
			}
			goesOn(t, p, p.two)
		})
	})
	t.Run("all are taken back before a prompt", func(t *testing.T) {
		withPair(t, func(t *testing.T, p pair) {
			waiting(t, p)
			for _, id := range []string{"4", "3"} {
				p.sends(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":%s}}`, id)
				if m, err := p.c.Read(t.Context()); err != nil || string(m.ID()) != id || m.Err() == nil || m.Err().Code != acp.CodeCancelled {
					t.Errorf("it was answered %s, %v", m.Frame(), err)
				}
			}
			prompt := p.two.takes(t, acp.MethodSessionPrompt)
			p.two.takes(t, acp.MethodSessionCancel) // it does not wait for the turn's end
			p.two.toClient <- acp.NewResult(prompt.ID(), []byte(`{"stopReason":"cancelled"}`))
			p.got(`{"jsonrpc":"2.0","id":5,"result":{"stopReason":"cancelled"}}`)
			p.two.replies(t, acp.MethodSessionClose, `{}`)
			p.got(`{"jsonrpc":"2.0","id":6,"result":{}}`)
		})
	})
	t.Run("the node is away on the next connection, too", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			one, two, three := newWire(), newWire(), newWire()
			p := pair{t: t, c: New(Options{Dial: dials(one, two, three)}), one: one, two: two}
			attached(t, p.c, one)
			waiting(t, p)
			two.breakRead()
			two.breakWrite()
			three.welcome(t)
			three.reattached(t, `[]`)
			for range 2 {
				three.away(t, acp.MethodSessionSetMode, offline)
			}
			three.replies(t, acp.MethodSessionSetMode, `{}`)
			p.got(`{"jsonrpc":"2.0","id":3,"result":{}}`)
			goesOn(t, p, three)
			_ = p.c.Close()
		})
	})
	for name, asked := range map[string]bool{"before they are sent once more": false, "as the first of them is": true} {
		t.Run("the connection breaks, "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				one, two, three := newWire(), newWire(), newWire()
				p := pair{t: t, c: New(Options{Dial: dials(one, two, three)}), one: one, two: two}
				attached(t, p.c, one)
				waiting(t, p)
				if asked {
					two.takes(t, acp.MethodSessionSetMode)
				}
				two.breakRead()
				two.breakWrite()
				three.welcome(t)
				three.reattached(t, `[]`)
				three.replies(t, acp.MethodSessionSetMode, `{}`)
				p.got(`{"jsonrpc":"2.0","id":3,"result":{}}`)
				goesOn(t, p, three)
				_ = p.c.Close()
			})
		})
	}
}

// The connection breaks as a request that waited for its node is about to be sent once more: what was refused behind it stays behind it.
func TestConn_TheNodeComesLater_AndTheConnectionBreaks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two, three := newWire(), newWire(), newWire()
		p := pair{t: t, c: New(Options{Dial: dials(one, two, three)}), one: one, two: two}
		attached(t, p.c, one)
		for _, id := range []string{"3", "4", "5"} {
			p.sends(`{"jsonrpc":"2.0","id":%s,"method":"session/set_mode","params":{"sessionId":"s","modeId":"m"}}`, id)
			one.takes(t, acp.MethodSessionSetMode)
		}
		p.breaks()
		two.reattached(t, `[]`)
		two.away(t, acp.MethodSessionSetMode, problem.New(problem.NodeOffline, "away")) // the others wait behind it
		first := two.takes(t, acp.MethodSessionSetMode)
		p.sends(`{"jsonrpc":"2.0","id":9,"method":"session/close","params":{"sessionId":"other"}}`) // is not taken
		two.toClient <- acp.NewResult(first.ID(), []byte(`{}`))
		p.got(`{"jsonrpc":"2.0","id":3,"result":{}}`)
		two.breakRead()
		two.breakWrite()
		three.welcome(t)
		three.reattached(t, `[]`)
		sent := []string{}
		for range 3 {
			m := <-three.toGateway
			sent = append(sent, string(m.ID()))
			three.toClient <- acp.NewResult(m.ID(), []byte(`{}`))
			p.got(`{"jsonrpc":"2.0","id":%s,"result":{}}`, string(m.ID()))
		}
		if slices.Index(sent, "4") > slices.Index(sent, "5") {
			t.Errorf("they were sent in the order %q", sent)
		}
		_ = p.c.Close()
	})
}

// What makes a session is not sent once more where nobody knows whether it was done.
func TestConn_TheNodeComesLater_ToMakeASession(t *testing.T) {
	for _, method := range []string{acp.MethodSessionNew, acp.MethodSessionFork} {
		for name, why := range map[string]*problem.Error{
			"the node is away":          problem.New(problem.NodeOffline, "away"),
			"the node may have made it": problem.New(problem.NodeOffline, "away").DoneUnknown(),
		} {
			t.Run(method+", "+name, func(t *testing.T) {
				withPair(t, func(t *testing.T, p pair) {
					p.sends(`{"jsonrpc":"2.0","id":3,"method":%q,"params":{"sessionId":"other","cwd":"/"}}`, method)
					p.one.takes(t, method)
					p.breaks()
					p.two.reattached(t, `[]`)
					p.two.away(t, method, why)
					if why.Extensions == nil {
						p.two.replies(t, method, `{"sessionId":"made"}`)
					}
					if m, err := p.c.Read(t.Context()); err != nil || m.ID() != "3" || (m.Err() == nil) != (why.Extensions == nil) {
						t.Errorf("it was answered %s, %v", m.Frame(), err)
					}
				})
			})
		}
	}
}

// A node comes when a session of it is given up already. How its turn ended could be found then, but not what led to that: nobody is told of a
// turn that was cut short as of a whole one, and who opens the session is given all of it.
func TestConn_TheNodeComesTooLate(t *testing.T) {
	const found = `{"events":[{"seq":6,"message":{"method":"session/prompt","params":{"_meta":{"sandboxagent.dev":{"promptId":"mine"}}}}},{"seq":7,"direction":"agent","message":{"method":"session/update","params":{}}},{"seq":8,"message":{"method":"_sandboxagent/session/turn_ended","params":{"sessionId":"s","promptId":"mine","result":{"stopReason":"end_turn"}}}}],"hasMore":false}`
	withPair(t, func(t *testing.T, p pair) {
		p.sends(prompt)
		p.one.takes(t, acp.MethodSessionPrompt)
		p.breaks()
		began := time.Now()
		go func() {
			for {
				select {
				case m := <-p.two.toGateway:
					switch {
					case time.Since(began) < 24*time.Second:
						p.two.toClient <- acp.NewError(m.ID(), acp.Errorf(acp.CodeInternal, "away").WithData(problem.New(problem.NodeOffline, "away")))
					case m.Method() == "_sandboxagent/session/events":
						p.two.toClient <- acp.NewResult(m.ID(), []byte(found))
					default:
						p.two.toClient <- acp.NewResult(m.ID(), []byte(`{"state":"idle"}`))
					}
				case <-p.two.closing:
					return
				}
			}
		}()
		if m, err := p.c.Read(t.Context()); err != nil || m.ID() != "3" || !isAway(m.Err()) {
			t.Errorf("the prompt was answered %s, %v", m.Frame(), err)
		}
	})
}
