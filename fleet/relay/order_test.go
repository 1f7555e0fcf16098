package relay

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/runtime/observe"
)

// What a node refuses because it lets go of a session is sent once more in the order in which the client asked, with the
// cancels in between.
func TestMoved_SentOnceMoreInItsOrder(t *testing.T) {
	const prompt, cancel = "session/prompt", "session/cancel"
	moves := func(w *world) { w.g.Owned(stays("a", "b")) }
	for name, tt := range map[string]struct {
		before, behind []string // what the client sends before the hub knows of the move, and behind that
		refuses        []int    // what was before, in the order of the node's answers
		early          bool     // the node refuses before the hub knows of the move
		want           []string
	}{
		"a prompt that is cancelled":                    {[]string{prompt, cancel}, nil, []int{0}, false, []string{"prompt 0", cancel}},
		"and the node knows of the move first":          {[]string{prompt, cancel}, nil, []int{0}, true, []string{"prompt 0", cancel}},
		"a cancel when the hub knows of the move":       {[]string{prompt}, []string{cancel}, []int{0}, false, []string{"prompt 0", cancel}},
		"a prompt behind a cancel":                      {[]string{prompt, cancel, prompt}, nil, []int{0, 2}, false, []string{"prompt 0", cancel, "prompt 2"}},
		"the later one is refused first":                {[]string{prompt, cancel, prompt}, nil, []int{2, 0}, false, []string{"prompt 0", cancel, "prompt 2"}},
		"a prompt waits already":                        {[]string{prompt}, []string{prompt}, []int{0}, false, []string{"prompt 0", "prompt 1"}},
		"a prompt and a cancel wait already":            {[]string{prompt}, []string{prompt, cancel}, []int{0}, false, []string{"prompt 0", "prompt 1", cancel}},
		"what was cancelled before is not what comes":   {[]string{cancel, prompt}, nil, []int{1}, false, []string{"prompt 1"}},
		"what is cancelled twice is cancelled one time": {[]string{prompt, cancel, cancel}, []string{cancel}, []int{0}, false, []string{"prompt 0", cancel}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a", "b")
				e := w.connect(plainHello, acp.OneStream)
				a := w.opens(e, "a", "s")
				id := 0
				sends := func(methods []string) (taken []*acp.Message) {
					for _, method := range methods {
						if method == prompt {
							e.send(`{"jsonrpc":"2.0","id":%d,"method":"session/prompt","params":{"sessionId":"s","prompt":[],"number":"prompt %d"}}`, id, id)
						} else {
							e.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}`)
						}
						if id++; id <= len(tt.before) || method == cancel { // as it may be at the node that is left
							taken = append(taken, a.takes(method))
						}
					}
					return taken
				}
				asked := sends(tt.before)
				refuse := func() {
					for _, i := range tt.refuses {
						a.refuses(asked[i], "b")
					}
				}
				if tt.early {
					refuse()
				}
				moves(w)
				synctest.Wait()
				sends(tt.behind)
				if !tt.early {
					refuse()
				}
				w.g.Owned(went("a", "b", 0, 0))
				b := w.dialed("b")
				b.resumed()
				var got []string
				for more := true; more; {
					synctest.Wait()
					select {
					case m := <-b.toNode:
						if got = append(got, m.Method()); m.Method() == prompt {
							got[len(got)-1] = rawjson.MemberString(m.Params(), "number")
							b.answers(&m, `{"stopReason":"end_turn"}`)
						}
					default:
						more = false
					}
				}
				if !slices.Equal(got, tt.want) {
					t.Errorf("the other node was sent %q, want %q", got, tt.want)
				}
			})
		})
	}
}

// The node that a session has left refuses a prompt when the other one has opened the session, and its client asks for more meanwhile:
// the node is sent all of it in the order in which the client asked. A node that does not answer is not waited for without end.
func TestMoved_RefusedLate(t *testing.T) {
	for name, silent := range map[string]bool{"it is refused": false, "it is not answered": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a", "b")
				e := w.connect(plainHello, acp.OneStream)
				a := w.opens(e, "a", "s")
				asks := func(id int) {
					e.send(`{"jsonrpc":"2.0","id":%d,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`, id)
				}
				asks(1)
				first := a.takes("session/prompt")
				w.g.Owned(went("a", "b", 0, 0))
				a.takes(methodDetach)
				b := w.dialed("b")
				b.resumed()
				asks(2)
				b.takesNothing()
				if silent {
					time.Sleep(HearFor)
					b.answers(b.takes("session/prompt"), `{"stopReason":"end_turn"}`)
					if got := fmt.Sprint(e.got()); !strings.HasSuffix(got, " 2 ok]") {
						t.Error(got)
					}
					return
				}
				a.refuses(first, "b")
				b.answers(b.takes("session/prompt"), `{"stopReason":"end_turn"}`)
				b.answers(b.takes("session/prompt"), `{"stopReason":"end_turn"}`)
				if got := fmt.Sprint(e.got()); !strings.HasSuffix(got, "1 ok 2 ok]") {
					t.Error(got)
				}
			})
		})
	}
}

// sending is told of each request that is about to be sent to a node.
type sending struct {
	observe.NoSpan
	told func()
}

// Begin implements [Observer].
func (s sending) Begin(context.Context, observe.Work) observe.Span { return s }

// At is told the node that does the work.
func (s sending) At(string) { s.told() }

// A session goes on in the moment in which its node is to be sent a request, for which it has no room. Nobody answers that, and what
// comes behind it waits for no answer.
func TestMoved_NoRoomForWhatWasOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, told := newWorld(t, "a", "b"), func() {}
		w.g.observer = sending{told: func() { told() }}
		e := w.connect(plainHello, acp.OneStream)
		w.opens(e, "a", "s")
		for range maxOut + 1 {
			e.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}`)
			synctest.Wait() // the first is on its way
		}
		told = func() {
			w.g.Owned(went("a", "b", 0, 0))
			synctest.Wait()
		}
		e.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
		told = func() {}
		b := w.dialed("b")
		b.resumed()
		e.send(`{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
		b.answers(b.takes("session/prompt"), `{"stopReason":"end_turn"}`)
		if got := e.got(); !slices.Contains(got, "1 too_many_requests") || !slices.Contains(got, "2 ok") {
			t.Errorf("%q", got)
		}
	})
}

// A session goes on to a third node as the second is sent what has waited for the first move: the rest waits until the
// third one has opened it.
func TestMoved_FurtherAsWhatWaitedIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b", "c")
		e := w.connect(plainHello, acp.OneStream)
		w.opens(e, "a", "s")
		w.g.Owned(stays("a", "b"))
		e.send(`{"jsonrpc":"2.0","id":1,"method":"_sandboxagent/session/set_metadata","params":{"sessionId":"s","metadata":{}}}`)
		e.send(`{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
		w.g.Owned(went("a", "b", 0, 0))
		b := w.dialed("b")
		resume := b.takes("session/resume")
		looking := make(chan struct{})
		w.looks(looking)
		b.answers(resume, `{}`)
		synctest.Wait() // it looks for the node to which the first of them goes
		w.looks(nil)
		third := went("a", "c", 0, 0)
		third.Term, third.Others = 3, append(third.Others, store.Other{Node: "b", Term: 2})
		w.g.Owned(third)
		c := w.dialed("c")
		resume = c.takes("session/resume")
		close(looking)
		c.takesNothing()
		c.answers(resume, `{}`)
		c.answers(c.takes("session/prompt"), `{"stopReason":"end_turn"}`)
		if got := e.got(); !slices.Contains(got, "2 ok") {
			t.Errorf("%q", got)
		}
	})
}

// A node says that a session went on, and the hub never hears where: its client is told to open it anew.
func TestMoved_NobodySaysWhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		e := w.connect(plainHello, acp.OneStream)
		w.opens(e, "a", "s")
		w.found["s"] = "b"
		w.g.Owned(went("a", "b", 0, 0))
		b := w.dialed("b")
		b.refuses(b.takes("session/resume"), "c")
		e.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
		if got := e.got(); len(got) > 0 {
			t.Errorf("before it has waited: %q", got)
		}
		time.Sleep(HearFor)
		if got := e.got(); !slices.Equal(got, []string{"1 node_offline"}) {
			t.Errorf("%q", got)
		}
		e.send(`{"jsonrpc":"2.0","id":2,"method":"session/load","params":{"sessionId":"s","cwd":"/","mcpServers":[]}}`)
		b.answers(b.takes("session/load"), `{}`)
		if got := e.got(); !slices.Equal(got, []string{"2 ok"}) {
			t.Errorf("opened anew: %q", got)
		}
	})
}

// A node refuses a prompt that was cancelled when the session has arrived elsewhere. It is cancelled there, unless that would
// end what the client has asked since: then it has not begun.
func TestMoved_CancelledAndRefusedLate(t *testing.T) {
	for name, later := range map[string]bool{"nothing was asked since": false, "a prompt was": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a", "b")
				e := w.connect(plainHello, acp.OneStream)
				a := w.opens(e, "a", "s")
				e.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
				cancelled := a.takes("session/prompt")
				e.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}`)
				a.takes("session/cancel")
				w.g.Owned(went("a", "b", 0, 0))
				a.takes(methodDetach)
				b := w.dialed("b")
				b.resumed()
				var on *acp.Message
				if later {
					e.send(`{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
					time.Sleep(HearFor) // so long the first node is waited for
					on = b.takes("session/prompt")
				}
				e.got()
				a.refuses(cancelled, "b")
				if later {
					wants(t, e, "1 ok")
					b.takesNothing()
					b.answers(on, `{"stopReason":"end_turn"}`)
					wants(t, e, "2 ok")
					return
				}
				again := b.takes("session/prompt")
				b.takes("session/cancel")
				b.answers(again, `{"stopReason":"cancelled"}`)
				wants(t, e, "1 ok")
			})
		})
	}
}

// What is done once more has its place in the session as it was opened then. A client that has opened it anew asks behind that.
func TestMoved_OnceMoreWhereItIsOpenedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.found["s"] = "a"
		e := w.connect(plainHello, acp.OneStream)
		a := w.opens(e, "a", "s")
		ask := func(id int, method string) {
			e.send(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{"sessionId":"s","prompt":[],"cwd":"/","mcpServers":[]}}`, id, method)
		}
		for id := range 5 {
			ask(id, "session/prompt")
			a.answers(a.takes("session/prompt"), `{"stopReason":"end_turn"}`)
		}
		ask(5, "_sandboxagent/session/set_metadata")
		changed := a.takes("_sandboxagent/session/set_metadata")
		ask(6, methodDetach)
		a.answers(a.takes(methodDetach), `{}`)
		e.got()
		ask(7, "session/load")
		a.answers(a.takes("session/load"), `{}`)
		w.g.Owned(stays("a", "b"))
		e.got()
		a.refuses(changed, "b")
		ask(8, "session/prompt")
		w.found["s"] = "b"
		w.g.Owned(went("a", "b", 0, 0))
		b := w.dialed("b")
		b.resumed()
		b.answers(b.takes("_sandboxagent/session/set_metadata"), `{}`)
		b.takes("session/prompt")
	})
}

// What waits for a session that the client opens anew, since the connection has not got all of it, goes to no node: it was
// asked of what the client had.
func TestMoved_WaitsAndIsOpenedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.found["s"] = "a"
		e := w.connect(plainHello, acp.OneStream)
		one := w.opens(e, "a", "s")
		w.g.Owned(stays("a", "b"))
		e.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
		synctest.Wait()
		_ = one.Close()
		a := w.dialed("a")
		resume := a.takes("session/resume")
		a.hub <- acp.NewError(resume.ID(), acp.Errorf(acp.CodeInternal, "events are no longer kept"))
		wants(t, e, "a offline", "a online")
		e.send(`{"jsonrpc":"2.0","id":2,"method":"session/load","params":{"sessionId":"s","cwd":"/","mcpServers":[]}}`)
		wants(t, e, "1 node_offline")
		a.answers(a.takes("session/load"), `{}`)
		wants(t, e, "2 ok")
		time.Sleep(HoldFor)
		a.takesNothing()
	})
}

// What waits for a session is bounded, also in bytes. What is asked once more has its place before that.
func TestMoved_TooMuchWaits(t *testing.T) {
	const prompt = `{"jsonrpc":"2.0","id":%d,"method":"session/prompt","params":{"sessionId":"s","prompt":[],"text":"%s"}}`
	for name, tt := range map[string]struct {
		many int
		text string
	}{
		"too many requests": {maxHeld, ""},
		"too many bytes":    {1, strings.Repeat("x", maxHeldBytes-1<<10)},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a", "b")
				e := w.connect(plainHello, acp.OneStream)
				a := w.opens(e, "a", "s")
				e.send(prompt, 0, strings.Repeat("y", 2<<10))
				first := a.takes("session/prompt")
				w.g.Owned(stays("a", "b"))
				for id := range tt.many {
					e.send(prompt, 1+id, tt.text)
				}
				e.send(prompt, 1+tt.many, strings.Repeat("z", 2<<10))
				wants(t, e, fmt.Sprint(1+tt.many)+" too_many_requests")
				a.refuses(first, "b")
				w.g.Owned(went("a", "b", 0, 0))
				b := w.dialed("b")
				b.resumed()
				for range 1 + tt.many {
					b.answers(b.takes("session/prompt"), `{"stopReason":"end_turn"}`)
				}
				if got := e.got(); len(got) != 2+tt.many || !slices.Contains(got, "0 ok") {
					t.Errorf("%q", got)
				}
			})
		})
	}
}

// What a client asks behind a request to leave the session has it follow that: the answer to the request takes nothing of it away.
func TestOrder_AskedBehindADetach(t *testing.T) {
	for _, open := range []bool{true, false} {
		t.Run(fmt.Sprint("the session was open: ", open), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a")
				w.found["s"] = "a"
				e := w.connect(plainHello, acp.OneStream)
				var a *wire
				if open {
					a = w.opens(e, "a", "s")
				}
				e.send(`{"jsonrpc":"2.0","id":1,"method":"_sandboxagent/session/detach","params":{"sessionId":"s"}}`)
				e.send(`{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
				if !open {
					a = w.dialed("a")
				}
				a.answers(a.takes(methodDetach), `{}`)
				if !open {
					a.resumed()
				}
				prompt := a.takes("session/prompt")
				a.says("%s", update("s", 7, "hello"))
				a.answers(prompt, `{"stopReason":"end_turn"}`)
				wants(t, e, "1 ok", "s hello", "2 ok")
			})
		})
	}
}

// A cancel of prompts alone waits with them, ends nothing else, and is for them also where they are sent once more: then they have not begun.
func TestMoved_CancelledAlone(t *testing.T) {
	for name, held := range map[string]bool{"a prompt that waits": true, "a prompt that its node refuses": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a", "b")
				e := w.connect(plainHello, acp.OneStream)
				a := w.opens(e, "a", "s")
				ask := func(id int) {
					e.send(`{"jsonrpc":"2.0","id":%d,"method":"session/prompt","params":{"sessionId":"s","prompt":[],"_meta":{"sandboxagent.dev":{"promptId":"p%d"}}}}`, id, id)
				}
				cancel := acp.CancelOf("s", []string{"p2"})
				ask(1)
				first := a.takes("session/prompt")
				var second *acp.Message
				if held {
					w.g.Owned(stays("a", "b"))
					synctest.Wait()
					ask(2)
				} else {
					ask(2)
					second = a.takes("session/prompt")
				}
				e.send("%s", cancel.Frame())
				e.send("%s", cancel.Frame())
				ask(3)
				for range 2 {
					if m := a.takes("session/cancel"); string(m.Frame()) != string(cancel.Frame()) {
						t.Errorf("the node was sent %s", m.Frame())
					}
				}
				if held {
					a.refuses(first, "b")
				} else {
					third := a.takes("session/prompt")
					w.g.Owned(stays("a", "b"))
					synctest.Wait()
					for _, m := range []*acp.Message{first, second, third} {
						a.refuses(m, "b")
					}
				}
				w.g.Owned(went("a", "b", 0, 0))
				a.takes(methodDetach)
				b := w.dialed("b")
				b.resumed()
				for i, want := range []string{"p1", "p3"} {
					m := b.takes("session/prompt")
					if id := rawjson.MemberString(m.Meta(), acp.MetaKey, "promptId"); id != want {
						t.Errorf("the other node was sent %s, want %s", id, want)
					}
					b.answers(m, `{"stopReason":"end_turn"}`)
					if i == 0 && held { // it may have been on its way
						b.takes("session/cancel")
					}
				}
				b.takesNothing()
				if got := fmt.Sprint(e.got()); !strings.HasSuffix(got, "1 ok 2 ok 3 ok]") && !strings.HasSuffix(got, "2 ok 1 ok 3 ok]") {
					t.Errorf("the client was given %s", got)
				}
			})
		})
	}
}

// A cancel of prompts alone is for those that were asked for before it: one that gets the same id later is another one, wherever it is sent.
func TestCancelledAlone_BeforeThePrompt(t *testing.T) {
	for name, moves := range map[string]bool{"it is sent at once": false, "it is sent once more": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a", "b")
				e := w.connect(plainHello, acp.OneStream)
				at := w.opens(e, "a", "s")
				cancels := func(id string) {
					cancel := acp.CancelOf("s", []string{id})
					e.send("%s", cancel.Frame())
					if m := at.takes("session/cancel"); string(m.Frame()) != string(cancel.Frame()) {
						t.Errorf("the node was sent %s", m.Frame())
					}
				}
				asks := func(n int) {
					e.send(`{"jsonrpc":"2.0","id":%d,"method":"session/prompt","params":{"sessionId":"s","prompt":[],"_meta":{"sandboxagent.dev":{"promptId":"p%d"}}}}`, n, n)
				}
				cancels("p1")
				asks(1)
				if moves {
					first := at.takes("session/prompt")
					w.g.Owned(stays("a", "b"))
					synctest.Wait()
					at.refuses(first, "b")
					asks(2)
					cancels("p2")
					w.g.Owned(went("a", "b", 0, 0))
					at.takes(methodDetach)
					at = w.dialed("b")
					at.resumed()
				}
				m := at.takes("session/prompt")
				if id := rawjson.MemberString(m.Meta(), acp.MetaKey, "promptId"); id != "p1" {
					t.Errorf("the node was sent %s", m.Frame())
				}
				if moves { // it may have been on its way
					if m, only := at.takes("session/cancel"), acp.CancelOf("s", []string{"p2"}); string(m.Frame()) != string(only.Frame()) {
						t.Errorf("the node was sent %s", m.Frame())
					}
				}
				at.takesNothing()
				at.answers(m, `{"stopReason":"end_turn"}`)
				if got := fmt.Sprint(e.got()); !strings.HasSuffix(got, "1 ok]") || moves != strings.Contains(got, "2 ok") {
					t.Errorf("the client was given %s", got)
				}
			})
		})
	}
}
