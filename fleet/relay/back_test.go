package relay

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/fleet/store"
)

// passing is the record of a session that went from a to b, in a move that is not over.
func passing(last uint64) *store.Owner {
	o := went("a", "b", last, 0)
	o.Moving = stays("a", "b").Moving
	return o
}

// back is the record of a session that was taken back from b to a.
func back(last uint64) *store.Owner {
	return &store.Owner{Line: store.Line{Session: "s"}, Node: "a", Term: 3, Others: []store.Other{{Node: "b", LastSeq: last, Term: 2}}}
}

// returning is the record of a session that is being taken back.
func returning(last uint64) *store.Owner {
	o := back(last)
	o.Moving = &store.Moving{ID: stays("a", "b").Moving.ID, To: "a"}
	return o
}

// takenBack is a session that a client has open at a, and that went to b, where it cannot be opened.
type takenBack struct {
	*world
	e *editor
	a *wire
	b *wire // nil for one that is away
}

// stranded has a session be one that is to be taken back. At a node that is not away it is refused.
func stranded(t *testing.T, hello string, away bool, last uint64, before func(w takenBack)) takenBack {
	w := takenBack{world: newWorld(t, "a", "b")}
	w.found["s"] = "a"
	if away {
		w.set("b", false)
	}
	w.e = w.connect(hello, acp.OneStream)
	w.a = w.opens(w.e, "a", "s")
	if before != nil {
		before(w)
	}
	w.owner = passing(last)
	w.g.Owned(w.owner)
	w.a.answers(w.a.takes(methodDetach), `{}`)
	if !away {
		w.b = w.dialed("b")
	}
	return w
}

// dies has the node b refuse to open the session.
func (w takenBack) dies() {
	if w.b != nil {
		w.b.hub <- acp.NewError(w.b.takes("session/resume").ID(), acp.Errorf(acp.CodeInternal, "it does not start"))
		synctest.Wait()
	}
}

// returns has the hub take the session back, which a refuses to open before that is done.
func (w takenBack) returns(last uint64) {
	w.g.Owned(returning(last))
	if w.b != nil {
		w.b.takes(methodDetach)
		w.a.refuses(w.a.takes("session/resume"), "b")
	}
	w.a.takesNothing()
	w.owner = back(last)
	w.g.Owned(w.owner)
}

// opensAgain takes the hub's own requests to open the session once more at a node at which it was lost: what that has said of it before is
// of no use any more.
func (w *wire) opensAgain() *acp.Message {
	w.t.Helper()
	w.answers(w.takes(methodDetach), `{}`)
	return w.takes("session/resume")
}

func (e *editor) asks(id int, method string) {
	e.send(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{"sessionId":"s","prompt":[],"metadata":{},"cwd":"/","mcpServers":[]}}`, id, method)
}

// A session went to a node that cannot open it, and is taken back: the client goes on with it where it was. What it asks in between waits for
// that, and is done once, behind the hub's own request to open the session.
func TestMoved_TakenBack(t *testing.T) {
	for _, away := range []bool{true, false} {
		for _, method := range []string{"session/prompt", "session/close", "session/delete", methodDetach, "_sandboxagent/session/set_metadata", "_sandboxagent/session/terminate"} {
			for _, early := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, the node is away: %v, asked before it refuses: %v", method, away, early), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						w := stranded(t, plainHello, away, 0, nil)
						if early {
							w.e.asks(1, method)
						}
						w.dies()
						if !early {
							w.e.asks(1, method)
						}
						w.a.takesNothing()
						w.returns(0)
						w.a.answers(w.a.opensAgain(), `{}`)
						w.a.answers(w.a.takes(method), `{}`)
						if got := w.e.got(); !slices.Contains(got, "1 ok") {
							t.Errorf("%q", got)
						}
						w.a.takesNothing()
						if !leaves(method) {
							return
						}
						w.g.Owned(back(0)) // whose client has left it
						w.a.takesNothing()
						w.e.asks(2, "session/prompt")
						w.a.resumed()
						w.a.takes("session/prompt")
					})
				})
			}
		}
	}
}

// A session is back at its node before the connection has looked for the next one, or is moved on: nothing is done by a record that is no more the newest.
func TestMoved_BackBeforeItIsFollowed(t *testing.T) {
	for _, away := range []bool{true, false} {
		for _, on := range []bool{true, false} {
			t.Run(fmt.Sprintf("the next node is away: %v, it goes on: %v", away, on), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, "a", "b", "c")
					e := w.connect(plainHello, acp.OneStream)
					at := w.opens(e, "a", "s")
					if away {
						w.set("b", false)
					}
					w.g.Owned(stays("a", "b"))
					e.asks(1, "session/prompt")
					looking := make(chan struct{})
					w.looks(looking)
					w.g.Owned(went("a", "b", 0, 0))
					synctest.Wait() // it looks for the node
					w.looks(nil)
					if w.g.Owned(back(0)); on {
						third := went("a", "c", 0, 0)
						third.Term = 4
						w.g.Owned(third)
					}
					close(looking)
					if on {
						at.takes(methodDetach)
						at = w.dialed("c")
						at.resumed()
					}
					at.answers(at.takes("session/prompt"), `{"stopReason":"end_turn"}`)
					wants(t, e, map[bool][]string{true: {"_sandboxagent/session/moved " + `{"sessionId":"s","from":"a","node":"c","term":4,"lastSeq":0,"missing":0,"continuity":"fresh"}`, "1 ok"}, false: {"1 ok"}}[on]...)
					at.takesNothing()
					if !away {
						w.dialed("b").takesNothing()
					}
				})
			})
		}
	}
}

// A node answers the request to open a session when that went further, came back, and is asked for there once more: what it says is about a record that is no
// more the newest.
func TestMoved_RefusedAndAskedOnceMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := stranded(t, plainHello, false, 0, nil)
		first := w.b.takes("session/resume")
		w.g.Owned(back(0))
		leave := w.b.takes(methodDetach)
		w.a.takes("session/resume")
		again := went("a", "b", 0, 0)
		again.Term = 4
		w.g.Owned(again)
		w.a.takes(methodDetach)
		w.e.asks(1, "session/prompt")
		w.b.hub <- acp.NewError(first.ID(), acp.Errorf(acp.CodeInternal, "it does not start"))
		w.b.takesNothing()
		w.b.answers(leave, `{}`)
		w.b.resumed()
		w.b.answers(w.b.takes("session/prompt"), `{"stopReason":"end_turn"}`)
		if got := w.e.got(); !slices.Contains(got, "1 ok") {
			t.Errorf("%q", got)
		}
	})
}

// A move takes longer than what is asked waits. The session is opened again when the move is over, wherever that is; until then what is asked is refused.
func TestMoved_TakenBackLate(t *testing.T) {
	for name, late := range map[string]bool{"the node refuses late": true, "it is taken back late": false} {
		for _, settles := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, and it stays there: %v", name, settles), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := stranded(t, plainHello, false, 0, nil)
					if !late {
						w.dies()
					}
					w.e.asks(1, "session/prompt")
					time.Sleep(HoldFor)
					if late {
						w.dies()
					}
					wants(t, w.e, map[bool]string{true: "1 internal", false: "1 node_offline"}[late]) // as the node has refused it
					w.e.asks(2, "session/prompt")
					wants(t, w.e, "2 node_offline")
					w.b.takesNothing()
					at := w.b
					if settles {
						w.g.Owned(went("a", "b", 0, 0))
					} else {
						w.returns(0)
						at = w.a
					}
					at.answers(at.opensAgain(), `{}`)
					w.e.asks(3, "session/prompt")
					at.answers(at.takes("session/prompt"), `{"stopReason":"end_turn"}`)
					if got := w.e.got(); !slices.Contains(got, "3 ok") {
						t.Errorf("%q", got)
					}
				})
			})
		}
	}
}

// A node refuses a session in the moment in which its move is over: it is asked once more, and then that is told.
func TestMoved_RefusedAsItEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := stranded(t, plainHello, false, 0, nil)
		refuse := w.b.takes("session/resume")
		w.e.asks(1, "session/prompt")
		w.g.Owned(went("a", "b", 0, 0))
		w.b.takesNothing()
		w.b.hub <- acp.NewError(refuse.ID(), acp.Errorf(acp.CodeInternal, "it does not start"))
		w.b.answers(w.b.takes(methodDetach), `{}`)
		w.dies()
		w.b.takesNothing()
		if got := w.e.got(); len(got) != 1 || !strings.HasPrefix(got[0], "1 ") || got[0] == "1 ok" {
			t.Errorf("%q", got)
		}
	})
}

// A client leaves a session that was lost, before its move is over: the hub does not open it again, whether the node has answered by then or not.
func TestMoved_LeftWhileItIsLost(t *testing.T) {
	for _, method := range []string{"session/close", "session/delete", methodDetach, "_sandboxagent/session/terminate"} {
		for _, answered := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, answered: %v", method, answered), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := stranded(t, plainHello, true, 0, nil)
					time.Sleep(HoldFor)
					w.e.asks(1, method)
					left := w.a.takes(method)
					if answered {
						w.a.answers(left, `{}`)
						wants(t, w.e, "1 ok")
					}
					w.returns(0)
					w.a.takesNothing()
					if !answered { // and where it was taken back it was opened anew: it is left once more
						w.a.answers(left, `{}`)
						w.a.answers(w.a.takes(method), `{}`)
						wants(t, w.e, "1 ok")
					}
					w.e.asks(2, "session/prompt")
					w.a.resumed()
				})
			})
		}
	}
}

// A session was closed at its node before that let go of it, and then taken back, by which it was opened: it is closed once more.
func TestMoved_ClosedAndTakenBack(t *testing.T) {
	for to, late := range map[string]bool{`{}`: false, `{"_meta":{"sandboxagent.dev":{"movedTo":"node://b"}}}`: false, `{ }`: true} {
		synctest.Test(t, func(t *testing.T) {
			var closing *acp.Message
			w := stranded(t, plainHello, true, 0, func(w takenBack) {
				w.e.asks(1, "session/close")
				closing = w.a.takes("session/close")
				w.g.Owned(stays("a", "b"))
			})
			if !late {
				w.a.answers(closing, to)
			}
			wants(t, w.e)
			w.returns(0)
			resume := w.a.opensAgain()
			if late {
				w.a.answers(closing, to)
			}
			w.a.answers(resume, `{}`)
			w.a.answers(w.a.takes("session/close"), `{}`)
			wants(t, w.e, "1 ok")
		})
	}
}

// The connection to a node broke, and is about to be there again, as a session is taken back to it: it is given what waits then.
func TestMoved_TakenBackWhereTheConnectionBroke(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := stranded(t, plainHello, false, 0, nil)
		w.dies()
		w.e.asks(1, "session/prompt")
		w.mu.Lock()
		w.unreachable = true
		w.mu.Unlock()
		_ = w.a.Close()
		synctest.Wait()
		w.mu.Lock()
		w.unreachable = false
		w.mu.Unlock()
		w.g.Owned(back(0))
		w.b.takes(methodDetach)
		time.Sleep(giveUp / 2)
		a := w.dialed("a")
		a.resumed()
		a.answers(a.takes("session/prompt"), `{"stopReason":"end_turn"}`)
		if got := w.e.got(); !slices.Contains(got, "1 ok") {
			t.Errorf("%q", got)
		}
	})
}

// A client has been told how its turn ended before its session was moved. It is not told so again when that is taken back.
func TestMoved_TakenBackBehindATurn(t *testing.T) {
	for _, away := range []bool{true, false} {
		t.Run(fmt.Sprint("the node is away: ", away), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := stranded(t, strings.Replace(plainHello, `"notices":true`, `"notices":true,"turns":true`, 1), away, 3, func(w takenBack) {
					w.e.asks(1, "session/prompt")
					prompt := w.a.takes("session/prompt")
					w.a.says(`%s`, update("s", 2, "hello"))
					w.a.answers(prompt, `{"stopReason":"end_turn"}`)
					wants(t, w.e, "s hello", "1 ok")
				})
				w.dies()
				w.returns(3)
				w.a.says(`%s`, update("s", 9, "that is said once more"))
				resume := w.a.opensAgain()
				if after, _ := rawjson.Member(resume.Meta(), acp.MetaKey, "after"); string(after) != "2" {
					t.Errorf("it goes on behind event %s", after)
				}
				w.a.says(`{"jsonrpc":"2.0","method":"_sandboxagent/session/turn_ended","params":{"sessionId":"s","promptId":"mine","_meta":{"sandboxagent.dev":{"seq":3}}}}`)
				w.a.says(`%s`, update("s", 9, "that is said once more"))
				w.a.answers(resume, `{}`)
				if got := fmt.Sprint(w.e.got()); strings.Contains(got, "mine ended") || strings.Count(got, "once more") != 1 {
					t.Error(got)
				}
			})
		})
	}
}

// A session cannot be followed. What its client has asked of it is done in its order where it is found, as far as it can be asked there, also when that
// waits for a move once more.
func TestMoved_AskedInItsOrderWhereItIsFound(t *testing.T) {
	for _, waits := range []bool{true, false} {
		t.Run(fmt.Sprint("it waits once more: ", waits), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a")
				w.found["s"] = "a"
				e := w.connect(plainHello, acp.OneStream)
				a := w.opens(e, "a", "s")
				w.g.Owned(stays("a", "b"))
				order := []string{"session/load", "session/close", "session/resume", "_sandboxagent/session/set_metadata", methodDetach}
				for id, method := range order {
					e.asks(id, method)
				}
				a.takesNothing()
				if waits {
					w.settled = make(chan struct{})
				}
				w.g.Owned(went("a", "hidden", 0, 0)) // the token is not for that node
				a.takes(methodDetach)
				if waits {
					a.takesNothing()
					w.settled = nil
					w.g.Owned(stays("a", ""))
				}
				for _, method := range order {
					a.answers(a.takes(method), `{}`)
				}
				wants(t, e, "0 ok", "1 ok", "2 ok", "3 ok", "4 ok")
			})
		})
	}
}

// A session is back before the connection has begun to follow it: what waits goes there.
func TestMoved_BackAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		e := w.connect(plainHello, acp.OneStream)
		a := w.opens(e, "a", "s")
		w.g.Owned(stays("a", "b"))
		e.asks(1, "session/prompt")
		synctest.Wait()
		c := e.c.(*Client)
		c.mu.Lock()
		s := c.sessions["s"]
		c.ownedLocked(s, went("a", "b", 0, 0), "")
		c.ownedLocked(s, back(0), "")
		c.mu.Unlock()
		a.answers(a.takes("session/prompt"), `{"stopReason":"end_turn"}`)
		wants(t, e, "1 ok")
	})
}

// A client has left a session, and what it has asked for behind that cannot be opened: the hub does not open it again when it is taken back, and
// the client is shown what comes when it acts on it anew.
func TestMoved_LeftAndNotOpenedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := stranded(t, plainHello, true, 0, func(w takenBack) {
			w.e.asks(1, methodDetach)
			left := w.a.takes(methodDetach)
			w.e.asks(2, "session/load")
			load := w.a.takes("session/load")
			w.a.answers(left, `{}`)
			wants(t, w.e, "1 ok")
			w.found["s"] = "b"
			w.g.Owned(stays("a", "b"))
			w.a.refuses(load, "b")
		})
		time.Sleep(HoldFor)
		wants(t, w.e, "2 node_offline")
		w.found["s"] = "a"
		w.returns(0)
		w.e.asks(3, "session/prompt")
		w.a.resumed()
		prompt := w.a.takes("session/prompt")
		w.a.says(`%s`, update("s", 3, "hello"))
		w.a.answers(prompt, `{"stopReason":"end_turn"}`)
		wants(t, w.e, "s hello", "3 ok")
	})
}

// A node does not say that it has let go of a session, which is taken back to it. What is asked waits a minute for that, and is refused then; a client
// that opens the session anew is given what the node says from then on.
func TestMoved_NodeDoesNotLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := stranded(t, plainHello, true, 0, nil)
		w.e.asks(1, "session/prompt")
		w.returns(0)
		leave := w.a.takes(methodDetach)
		time.Sleep(HoldFor - time.Second)
		wants(t, w.e)
		time.Sleep(2 * time.Second)
		wants(t, w.e, "1 node_offline")
		w.e.asks(2, "session/resume")
		w.a.answers(w.a.takes("session/resume"), `{}`)
		w.a.says(`%s`, update("s", 1, "after that"))
		wants(t, w.e, "2 ok", "s after that")
		w.a.answers(leave, `{}`)
		w.a.says(`%s`, update("s", 2, "and more"))
		wants(t, w.e, "s and more")
	})
}
