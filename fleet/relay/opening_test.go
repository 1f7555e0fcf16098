package relay

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/fleet/store"
)

// refuses answers a request as a node does that let go of the session.
func (w *wire) refuses(m *acp.Message, to string) {
	about := problem.New(problem.Conflict, "it went to %s", to).With("movedTo", "node://"+to)
	w.hub <- acp.NewError(m.ID(), acp.Errorf(acp.CodeResourceNotFound, "it went").WithData(about))
	synctest.Wait()
}

// A client opens a session, or acts on one that it has not opened, as the node lets go of it. It is opened where it
// goes, whoever knows of that first, and the client is given each event once.
func TestMoved_AsItIsOpened(t *testing.T) {
	moves := func(w *world) { w.g.Owned(stays("a", "b")) }
	arrives := func(w *world) { w.g.Owned(went("a", "b", 0, 0)) }
	for name, before := range map[string][2][]func(w *world){ // the node refuses, behind the first and before the others
		"the hub knows of the move, then it arrives": {{moves}, {arrives}},
		"it has arrived":                                {{moves, arrives}, nil},
		"the node knows it first":                       {nil, {moves, arrives}},
		"the node knows it first, and it is at its end": {nil, {arrives}},
	} {
		for _, method := range []string{"session/load", "session/resume", "session/prompt"} {
			for _, first := range slices.Compact([]bool{false, len(before[0]) > 0}) {
				t.Run(fmt.Sprintf("%s, %s, asked before that: %v", method, name, first), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { asItIsOpened(t, method, before, first) })
				})
			}
		}
	}
}

// asItIsOpened opens a session at a node that refuses it, and asks something behind that. First says that this comes
// before the node refuses.
func asItIsOpened(t *testing.T, method string, before [2][]func(w *world), first bool) {
	w := newWorld(t, "a", "b")
	w.found["s"] = "a"
	e := w.connect(plainHello, acp.OneStream)
	e.send(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"sessionId":"s","cwd":"/","mcpServers":[],"prompt":[]}}`, method)
	opens := method
	if opens == "session/prompt" {
		opens = "session/resume"
	}
	a := w.dialed("a")
	asked := a.takes(opens)
	for _, f := range before[0] {
		f(w)
		synctest.Wait()
	}
	next := func() {
		e.send(`{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
		if len(before[0]) < 2 || first {
			a.takesNothing()
		}
	}
	if first {
		next()
	}
	a.refuses(asked, "b")
	if !first {
		next()
	}
	w.found["s"] = "b"
	for _, f := range before[1] {
		f(w)
		synctest.Wait()
	}
	b := w.dialed("b")
	asked = b.takes(opens)
	if opens == "session/load" {
		b.says(`%s`, update("s", 1, "history"))
	}
	b.answers(asked, `{}`)
	if method == "session/prompt" {
		b.answers(b.takes("session/prompt"), `{"stopReason":"end_turn"}`)
	}
	b.answers(b.takes("session/prompt"), `{"stopReason":"end_turn"}`)
	got := e.got()
	if want := strings.Count(opens, "load"); !slices.Contains(got, "1 ok") || !slices.Contains(got, "2 ok") || strings.Count(fmt.Sprint(got), "history") != want {
		t.Errorf("%q", got)
	}
	b.takesNothing()
}

// The node has opened a session, and its answer comes when the hub knows that the session went on: the client goes
// on there, behind what it was given.
func TestMoved_BeforeItsNodeSaysThatItIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.found["s"] = "a"
		e := w.connect(plainHello, acp.OneStream)
		e.send(`{"jsonrpc":"2.0","id":1,"method":"session/load","params":{"sessionId":"s","cwd":"/","mcpServers":[]}}`)
		a := w.dialed("a")
		load := a.takes("session/load")
		a.says(`%s`, update("s", 1, "first"))
		w.g.Owned(went("a", "b", 2, 0))
		synctest.Wait()
		a.says(`%s`, update("s", 2, "second"))
		a.answers(load, `{}`)
		a.takes(methodDetach)
		b := w.dialed("b")
		if after := b.resumed(); after != "2" {
			t.Errorf("it goes on behind event %s", after)
		}
		if got := strings.Join(e.got(), "\n"); strings.Count(got, "s first") != 1 || strings.Count(got, "s second") != 1 || !strings.Contains(got, "1 ok") {
			t.Errorf("%s", got)
		}
	})
}

// A session that is being moved when its client opens it, or opens it again, is opened where it goes.
func TestMoved_OpenedOnItsWay(t *testing.T) {
	for _, had := range []bool{true, false} {
		t.Run(fmt.Sprintf("the connection has it: %v", had), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a", "b")
				w.found["s"] = "a"
				e := w.connect(plainHello, acp.OneStream)
				if had {
					w.opens(e, "a", "s")
					w.g.Owned(stays("a", "b"))
				} else {
					w.settled = make(chan struct{})
				}
				e.send(`{"jsonrpc":"2.0","id":1,"method":"session/load","params":{"sessionId":"s","cwd":"/","mcpServers":[]}}`)
				e.send(`{"jsonrpc":"2.0","id":2,"method":"session/close","params":{"sessionId":"s"}}`)
				synctest.Wait()
				if got := e.got(); len(got) > 0 {
					t.Errorf("while it is on its way: %q", got)
				}
				w.g.Owned(went("a", "b", 0, 0))
				b := w.dialed("b")
				if had {
					b.resumed()
				}
				b.answers(b.takes("session/load"), `{}`)
				b.answers(b.takes("session/close"), `{}`)
				if got := e.got(); !slices.Contains(got, "1 ok") || !slices.Contains(got, "2 ok") {
					t.Errorf("%q", got)
				}
			})
		})
	}
}

// A move that has ended since the node of a session was looked for, and of which the connection was told before it had the
// session: the session is opened where it is.
func TestMoved_JustBeforeItIsOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.found["s"], w.owner = "a", went("a", "b", 0, 0)
		e := w.connect(plainHello, acp.OneStream)
		e.send(`{"jsonrpc":"2.0","id":1,"method":"session/load","params":{"sessionId":"s","cwd":"/","mcpServers":[]}}`)
		b := w.dialed("b")
		b.answers(b.takes("session/load"), `{}`)
		if got := e.got(); !slices.Contains(got, "1 ok") {
			t.Errorf("%q", got)
		}
	})
}

// The inline dialect, where each request waits for its answer: what waits for a move is answered by the node where the
// session goes, also when the client opens it twice.
func TestMoved_OpenedOnItsWay_Inline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.found["s"], w.settled = "a", make(chan struct{})
		e := w.connect(plainHello, acp.Inline)
		call := func(id int, method string) <-chan acp.Reply {
			t.Helper()
			sink, err := e.c.Call(t.Context(), acp.MustParse(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":%q,"params":{"sessionId":"s","cwd":"/","mcpServers":[],"prompt":[]}}`, id, method)))
			if err != nil {
				t.Fatal(err)
			}
			return sink
		}
		load, prompt, again := call(1, "session/load"), call(2, "session/prompt"), call(3, "session/load")
		synctest.Wait()
		w.g.Owned(went("a", "b", 0, 0))
		b := w.dialed("b")
		b.answers(b.takes("session/load"), `{}`)
		b.answers(b.takes("session/prompt"), `{"stopReason":"end_turn"}`)
		b.answers(b.takes("session/load"), `{}`)
		synctest.Wait()
		for name, sink := range map[string]<-chan acp.Reply{"load": load, "prompt": prompt, "the other load": again} {
			select {
			case r := <-sink:
				if m := acp.MustParse(r.Frame); m.Err() != nil {
					t.Errorf("%s: %s", name, r.Frame)
				}
			default:
				t.Errorf("%s was not answered", name)
			}
		}
	})
}

// A session goes on to a third node before its client has followed it to the second.
func TestMoved_TwiceInAMoment(t *testing.T) {
	second := went("a", "b", 3, 0)
	third := went("a", "c", 3, 0)
	third.Term, third.Others = 3, append(third.Others, store.Other{Node: "b", LastSeq: 5, Term: 2})
	for name, during := range map[string]string{"before it is dialed": "", "before it has answered": "answers", "as it refuses": "refuses", "behind its refusal": "refused", "and is asked behind that": "asked"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a", "b", "c")
				e := w.connect(plainHello, acp.OneStream)
				a := w.opens(e, "a", "s")
				a.says(`%s`, update("s", 3, "at a"))
				e.got()
				w.g.Owned(second)
				if during != "" {
					b := w.dialed("b")
					resume := b.takes("session/resume")
					if during == "asked" {
						b.refuses(resume, "c")
					}
					e.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
					if during == "refused" {
						b.refuses(resume, "c")
					}
					if strings.HasSuffix(during, "ed") {
						if got := e.got(); len(got) > 0 {
							t.Errorf("before it is known where it went: %q", got)
						}
					}
					w.g.Owned(third)
					switch during {
					case "answers":
						b.answers(resume, `{}`)
					case "refuses":
						b.refuses(resume, "c")
					}
				} else {
					w.g.Owned(third)
					e.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
				}
				c := w.dialed("c")
				resume := c.takes("session/resume")
				if after, _ := rawjson.Member(resume.Meta(), acp.MetaKey, "after"); string(after) != "3" {
					t.Errorf("it goes on behind event %s", after)
				}
				c.answers(resume, `{}`)
				c.answers(c.takes("session/prompt"), `{"stopReason":"end_turn"}`)
				if got := e.got(); !slices.Contains(got, "1 ok") {
					t.Errorf("%q", got)
				}
			})
		})
	}
}

// What changes a session was under way to its node when a move began, and is done at the node that let go of it. It is
// done once more where the session is then, and not twice where it stays.
func TestMoved_ChangedAsItBegins(t *testing.T) {
	for _, method := range []string{"session/close", "session/delete", "_sandboxagent/session/terminate", "_sandboxagent/session/set_metadata"} {
		for _, has := range []bool{true, false} {
			for _, moves := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, open: %v, it arrives: %v", method, has, moves), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						w := newWorld(t, "a", "b")
						w.found["s"] = "a"
						e := w.connect(plainHello, acp.OneStream)
						var a *wire
						if has {
							a = w.opens(e, "a", "s")
						}
						e.send(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"sessionId":"s","metadata":{}}}`, method)
						if !has {
							a = w.dialed("a")
						}
						asked := a.takes(method)
						w.settled = make(chan struct{})
						w.g.Owned(stays("a", "b"))
						a.answers(asked, `{"at":"a"}`)
						if got := e.got(); len(got) > 0 {
							t.Errorf("while it is on its way: %q", got)
						}
						at := a
						if moves {
							w.found["s"] = "b"
						}
						close(w.settled)
						if moves {
							w.g.Owned(went("a", "b", 0, 0))
							if has {
								a.takes(methodDetach)
							}
							at = w.dialed("b")
							if has {
								at.resumed()
							}
							at.answers(at.takes(method), `{"at":"b"}`)
						} else {
							w.g.Owned(stays("a", ""))
						}
						if got := e.got(); !slices.Contains(got, "1 ok") {
							t.Errorf("%q", got)
						}
						at.takesNothing()
					})
				})
			}
		}
	}
}

// A session went on, and the hub has not heard of it yet, when a client that has not open it forks or changes it: that is done where it
// went.
func TestMoved_ChangedBeforeTheHubHears(t *testing.T) {
	for _, method := range []string{"session/fork", "session/close", "session/delete", "_sandboxagent/session/set_metadata"} {
		t.Run(method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a", "b")
				w.found["s"], w.heard = "a", make(chan struct{})
				e := w.connect(plainHello, acp.OneStream)
				e.send(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"sessionId":"s","cwd":"/","mcpServers":[],"metadata":{}}}`, method)
				a := w.dialed("a")
				if asked := a.takes(method); method == "session/fork" {
					a.refuses(asked, "b")
				} else { // it is done to what is left there
					a.answers(asked, `{"_meta":{"sandboxagent.dev":{"movedTo":"node://b"}}}`)
				}
				if got := e.got(); len(got) > 0 {
					t.Errorf("before the hub hears of it: %q", got)
				}
				w.found["s"] = "b"
				close(w.heard)
				b := w.dialed("b")
				b.answers(b.takes(method), `{"sessionId":"other"}`)
				if got := fmt.Sprint(e.got()); got != "[1 ok]" {
					t.Error(got)
				}
			})
		})
	}
}

// A session went to a node that its client's token is not for. It can only ask for what is left where it was, and is told so by the node.
func TestMoved_ChangedWhereItsClientMayNotFollow(t *testing.T) {
	for _, method := range []string{"session/close", "session/delete", "_sandboxagent/session/set_metadata"} {
		t.Run(method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a")
				w.found["s"] = "a"
				e := w.connect(plainHello, acp.OneStream)
				e.send(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"sessionId":"s","metadata":{}}}`, method)
				a := w.dialed("a")
				a.answers(a.takes(method), `{"_meta":{"sandboxagent.dev":{"movedTo":"node://hidden"}}}`)
				got := e.gets()
				if len(got) != 1 || rawjson.MemberString(got[0].Result(), "_meta", acp.MetaKey, "movedTo") != "node://hidden" {
					t.Errorf("%d answers: %v", len(got), got)
				}
			})
		})
	}
}

// The answer to a prompt is its agent's, and says nothing of where the session is.
func TestMoved_ItsAgentSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		e := w.connect(plainHello, acp.OneStream)
		a := w.opens(e, "a", "s")
		for id := 1; id <= 2; id++ {
			e.send(`{"jsonrpc":"2.0","id":%d,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`, id)
			a.answers(a.takes("session/prompt"), `{"stopReason":"end_turn","_meta":{"sandboxagent.dev":{"movedTo":"node://b"}}}`)
			wants(t, e, fmt.Sprint(id, " ok"))
		}
		a.takesNothing()
	})
}

// A node refuses a prompt of a session that the connection has lost, and that its client has opened anew: that is told at once.
func TestMoved_RefusedWhenItIsOpenedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.found["s"] = "a"
		e := w.connect(plainHello, acp.OneStream)
		a := w.opens(e, "a", "s")
		e.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
		asked := a.takes("session/prompt")
		w.g.Owned(went("a", "hidden", 0, 0)) // the token is not for that node
		a.takes(methodDetach)
		e.send(`{"jsonrpc":"2.0","id":2,"method":"session/load","params":{"sessionId":"s","cwd":"/","mcpServers":[]}}`)
		a.takes("session/load")
		a.refuses(asked, "hidden")
		if got := fmt.Sprint(e.got()); got != "[1 node_offline]" {
			t.Error(got)
		}
	})
}

// The connection to a node breaks before the node has answered on it: what waits for it, a load and what is behind that, is given to
// the node on the next one, in its order.
func TestOpen_ConnectionBreaksAtOnce(t *testing.T) {
	for _, opens := range []string{"session/load", "session/resume", ""} { // "" is for a client that acts at once
		t.Run(opens, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a")
				w.found["s"] = "a"
				e := w.connect(plainHello, acp.OneStream)
				var want []string
				if opens != "" {
					e.send(`{"jsonrpc":"2.0","id":0,"method":%q,"params":{"sessionId":"s","cwd":"/","mcpServers":[]}}`, opens)
					want = append(want, "0 ok")
				}
				for id := 1; id <= 3; id++ {
					e.send(`{"jsonrpc":"2.0","id":%d,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`, id)
					want = append(want, fmt.Sprint(id, " ok"))
				}
				synctest.Wait()
				first := <-w.nodes["a"].wires
				first.takes("initialize")
				_ = first.Close()
				time.Sleep(time.Second)
				a := w.dialed("a")
				if opens == "" {
					opens = "session/resume"
				}
				a.answers(a.takes(opens), `{}`)
				for range 3 {
					a.answers(a.takes("session/prompt"), `{"stopReason":"end_turn"}`)
				}
				wants(t, e, want...)
			})
		})
	}
}

// The connection to a node breaks before the node has answered on it, and the node is away then: its session is loaded from the copy at once.
func TestLoad_NodeGoesAwayAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.found["s"], w.copy = "a", []string{update("s", 1, "copied")}
		e := w.connect(plainHello, acp.OneStream)
		e.send(`{"jsonrpc":"2.0","id":1,"method":"session/load","params":{"sessionId":"s","cwd":"/","mcpServers":[]}}`)
		synctest.Wait()
		first := <-w.nodes["a"].wires
		first.takes("initialize")
		w.set("a", false)
		_ = first.Close()
		time.Sleep(time.Second)
		wants(t, e, "s copied", "1 ok")
	})
}

// A node that was expected does not come: its session is loaded from the copy, as that of one that is away.
func TestLoad_NodeDoesNotCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.found["s"], w.copy, w.unreachable = "a", []string{update("s", 1, "copied")}, true
		e := w.connect(plainHello, acp.OneStream)
		e.send(`{"jsonrpc":"2.0","id":1,"method":"session/load","params":{"sessionId":"s","cwd":"/","mcpServers":[]}}`)
		if got := fmt.Sprint(e.got()); got != "[s copied 1 ok]" {
			t.Error(got)
		}
	})
}

// A node was there, and the connection to it does not come again: a session of it that was not open is loaded from the copy.
func TestLoad_NodeIsNotReachedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.found["s"], w.copy = "a", []string{update("s", 1, "copied")}
		e := w.connect(plainHello, acp.OneStream)
		first := w.opens(e, "a", "another")
		w.mu.Lock()
		w.unreachable = true
		w.mu.Unlock()
		_ = first.Close()
		wants(t, e, "a offline")
		e.send(`{"jsonrpc":"2.0","id":1,"method":"session/load","params":{"sessionId":"s","cwd":"/","mcpServers":[]}}`)
		wants(t, e)
		time.Sleep(giveUp)
		wants(t, e, "s copied", "1 ok")
	})
}
