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

// stays is the record of a session at a node, which may be moving to another one.
func stays(node, to string) *store.Owner {
	o := &store.Owner{Line: store.Line{Session: "s"}, Node: node, Term: 1}
	if to != "" {
		o.Moving = &store.Moving{ID: "move-to-" + to, To: to}
	}
	return o
}

// went is the record of a session that has gone to another node behind an event.
func went(from, to string, last, missing uint64) *store.Owner {
	return &store.Owner{
		Line: store.Line{Session: "s"}, Node: to, Term: 2, Cwd: "/there",
		Others: []store.Other{{Node: from, LastSeq: last, Missing: missing, Lost: missing > 0, Term: 1}},
	}
}

// resumed takes the hub's own request to open the session, and returns behind which event.
func (w *wire) resumed() string {
	w.t.Helper()
	m := w.takes("session/resume")
	after, _ := rawjson.Member(m.Meta(), acp.MetaKey, "after")
	if _, named := rawjson.Member(m.Params(), "cwd"); m.Session() != "s" || named { // it would open what the agent has of a deleted one
		w.t.Errorf("the new node was sent %s", m.Frame())
	}
	w.answers(m, `{"_meta":{"sandboxagent.dev":{"continuity":"fresh"}}}`)
	return string(after)
}

// A move is over when its hub says so, and not when the session has another owner: until then it may be opened there.
func TestMoved_RequestsWaitForItsEnd(t *testing.T) {
	for name, early := range map[string]bool{"before the client follows": true, "behind that": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a", "b")
				e := w.connect(plainHello, acp.OneStream)
				a := w.opens(e, "a", "s")
				w.g.Owned(stays("a", "b"))
				e.send(`{"jsonrpc":"2.0","id":1,"method":"session/close","params":{"sessionId":"s"}}`)
				synctest.Wait()
				over := went("a", "b", 0, 0)
				on := *over
				on.Moving = stays("a", "b").Moving
				w.g.Owned(&on)
				if early {
					w.g.Owned(over)
				}
				a.takes("_sandboxagent/session/detach")
				b := w.dialed("b")
				b.resumed()
				if !early {
					b.takesNothing()
					w.g.Owned(over)
				}
				b.answers(b.takes("session/close"), `{}`)
			})
		})
	}
}

// What a client takes back while it waits for its session to be opened, or to arrive, is taken back where it goes.
func TestMoved_TakenBackWhileItWaits(t *testing.T) {
	for name, take := range map[string][2]string{
		"the turn":    {"session/cancel", `{"sessionId":"s"}`},
		"the request": {"$/cancel_request", `{"requestId":1}`},
	} {
		for _, moves := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, the session moves: %v", name, moves), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, "a", "b")
					w.found["s"] = "a"
					e := w.connect(plainHello, acp.OneStream)
					var at *wire
					if moves {
						w.opens(e, "a", "s")
						w.g.Owned(stays("a", "b"))
					}
					e.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
					e.send(`{"jsonrpc":"2.0","method":%q,"params":%s}`, take[0], take[1])
					if moves {
						w.g.Owned(went("a", "b", 0, 0))
						at = w.dialed("b")
						at.resumed()
					} else {
						at = w.dialed("a")
						resume := at.takes("session/resume")
						if take[0] == "session/cancel" {
							at.takes(take[0]) // of what there may be
						}
						at.answers(resume, `{}`)
					}
					at.takes("session/prompt")
					at.takes(take[0])
					at.takesNothing()
				})
			})
		}
	}
}

// A cancel is for what was asked before it, and takes back nothing that comes later.
func TestMoved_CancelIsForWhatWasBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.found["s"] = "a"
		e := w.connect(plainHello, acp.OneStream)
		w.opens(e, "a", "s")
		w.g.Owned(stays("a", "b"))
		cancel := func() { e.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}`) }
		prompt := func(id int) {
			e.send(`{"jsonrpc":"2.0","id":%d,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`, id)
		}
		cancel()
		prompt(1)
		for range 2 * maxHeld { // they take no places of requests
			cancel()
		}
		prompt(2)
		w.g.Owned(went("a", "b", 0, 0))
		at := w.dialed("b")
		at.resumed()
		at.takes("session/prompt")
		at.takes("session/cancel")
		at.takes("session/prompt")
		at.takesNothing()
	})
}

// Who deletes or closes a session that it has not opened, and that is on its way, does so where it goes.
func TestMoved_EndedByWhoHasNotOpenedIt(t *testing.T) {
	for _, method := range []string{"session/delete", "session/close"} {
		t.Run(method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a", "b")
				w.found = map[string]string{"s": "a"}
				w.settled = make(chan struct{})
				e := w.connect(plainHello, acp.OneStream)
				e.send(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"sessionId":"s"}}`, method)
				synctest.Wait()
				if got := e.got(); len(got) > 0 {
					t.Errorf("while it is on its way: %q", got)
				}
				w.found["s"] = "b"
				close(w.settled)
				b := w.dialed("b")
				b.answers(b.takes(method), `{}`)
				if got := e.got(); !slices.Contains(got, "1 ok") {
					t.Errorf("%q", got)
				}
			})
		})
	}
}

// Another hub begins to move a session as its client prompts: the node refuses the prompt, which goes where the
// session goes, or stays.
func TestMoved_WhatWasOnItsWay(t *testing.T) {
	for name, tt := range map[string]struct {
		noted bool // when the node refuses
		kind  problem.Kind
		end   *store.Owner
		want  string
	}{
		"refused, then it arrives":     {true, problem.Conflict, went("a", "b", 0, 0), "b"},
		"it arrives, then refused":     {false, problem.Conflict, went("a", "b", 0, 0), "b"},
		"refused, then it stays":       {true, problem.Conflict, stays("a", ""), "a"},
		"refused for another reason":   {true, problem.InvalidRequest, stays("a", ""), ""},
		"refused, and nobody moves it": {false, problem.Conflict, stays("a", ""), ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a", "b")
				e := w.connect(plainHello, acp.OneStream)
				a := w.opens(e, "a", "s")
				e.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
				prompt := a.takes("session/prompt")
				refuse := func() {
					a.hub <- acp.NewError(prompt.ID(), acp.Errorf(acp.CodeResourceNotFound, "closed").WithData(map[string]string{"type": tt.kind.Type()}))
					synctest.Wait()
				}
				if tt.noted {
					w.g.Owned(stays("a", "b"))
					refuse()
				}
				w.g.Owned(tt.end)
				at := a
				if tt.want == "b" {
					a.takes("_sandboxagent/session/detach")
					at = w.dialed("b")
					at.resumed()
				}
				if !tt.noted {
					refuse()
				}
				if tt.want != "" {
					at.answers(at.takes("session/prompt"), `{"stopReason":"end_turn"}`)
				}
				kind := tt.kind.Type()
				want := "1 " + kind[strings.LastIndex(kind, ":")+1:]
				if tt.want != "" {
					want = "1 ok"
				}
				if got := e.got(); !slices.Contains(got, want) {
					t.Errorf("%q, want %q", got, want)
				}
			})
		})
	}
}

// What a client asks while a session is moved waits, and goes where the session is then.
func TestMoved_RequestsWait(t *testing.T) {
	for name, tt := range map[string]struct {
		end  *store.Owner
		wait time.Duration
		want string
	}{
		"it arrives":        {went("a", "b", 0, 0), 0, "b"},
		"it stays":          {stays("a", ""), 0, "a"},
		"nobody ends it":    {nil, HoldFor, "a"},
		"it begins anew":    {stays("a", "c"), 0, ""},
		"another session's": {&store.Owner{Line: store.Line{Session: "other"}, Node: "a"}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a", "b", "c")
				e := w.connect(plainHello, acp.OneStream)
				a := w.opens(e, "a", "s")
				w.g.Owned(stays("a", "b"))
				e.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
				a.takesNothing()
				time.Sleep(tt.wait)
				if tt.end != nil {
					w.g.Owned(tt.end)
				}
				at := a
				switch tt.want {
				case "":
					a.takesNothing()
					return
				case "b":
					a.takes("_sandboxagent/session/detach")
					at = w.dialed("b")
					at.resumed()
				}
				at.answers(at.takes("session/prompt"), `{"stopReason":"end_turn"}`)
				if got := e.got(); !slices.Contains(got, "1 ok") {
					t.Errorf("%q", got)
				}
			})
		})
	}
}

// A session goes on behind what its client has: each event comes once, the node that it left says
// nothing more, and what was lost is not passed over.
func TestMoved_GoesOnBehindTheLastEvent(t *testing.T) {
	for name, tt := range map[string]struct {
		last, missing uint64
		after         string
	}{
		"all went along":                      {3, 0, "3"},
		"the node had more than it has shown": {7, 0, "3"},
		"the client saw what is lost":         {2, 4, "2"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a", "b")
				e := w.connect(strings.Replace(plainHello, `"notices":true`, `"notices":true,"turns":true`, 1), acp.OneStream)
				a := w.opens(e, "a", "s")
				for i := range 3 {
					a.says(`%s`, update("s", i+1, fmt.Sprint("at a ", i+1)))
				}
				a.says(`{"jsonrpc":"2.0","id":9,"method":"session/request_permission","params":{"sessionId":"s","_meta":{"sandboxagent.dev":{"seq":3}}}}`)
				e.got()
				w.g.Owned(went("a", "b", tt.last, tt.missing))
				a.takes("_sandboxagent/session/detach")
				b := w.dialed("b")
				a.says(`%s`, update("s", 4, "too late"))
				if after := b.resumed(); after != tt.after {
					t.Errorf("it goes on behind event %s, want %s", after, tt.after)
				}
				// The end of a turn that the client itself has asked for, as all are told of it there.
				b.says(`{"jsonrpc":"2.0","method":"_sandboxagent/session/turn_ended","params":{"sessionId":"s","_meta":{"sandboxagent.dev":{"seq":%d}}}}`, tt.last)
				b.says(`%s`, update("s", int(tt.last)+1, "at b"))
				got := strings.Join(e.got(), "\n")
				if strings.Contains(got, "too late") || strings.Contains(got, "turn_ended") || strings.Count(got, "s at b") != 1 || !strings.Contains(got, "$/cancel_request") {
					t.Errorf("the client was given\n%s", got)
				}
				if told := strings.Contains(got, MethodMoved); told == (tt.missing > 0) { // else it is one of the session's events
					t.Errorf("the hub itself has told of it: %v\n%s", told, got)
				}
				e.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
				b.answers(b.takes("session/prompt"), `{"stopReason":"end_turn"}`)
			})
		})
	}
}

// A session goes where its client may not follow, or where it is not opened: the client is told
// when it uses it.
func TestMoved_ClientCannotFollow(t *testing.T) {
	for name, refuse := range map[string]bool{"the token is not for the node": false, "the node refuses": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a", "b")
				e := w.connect(plainHello, acp.OneStream)
				a := w.opens(e, "a", "s")
				w.g.Owned(stays("a", "b"))
				e.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
				to := "b"
				if !refuse {
					to = "hidden"
				}
				w.g.Owned(went("a", to, 0, 0))
				a.takes("_sandboxagent/session/detach")
				if refuse {
					b := w.dialed("b")
					b.hub <- acp.NewError(b.takes("session/resume").ID(), acp.Errorf(acp.CodeResourceNotFound, "no such session"))
				}
				if got := e.got(); len(got) != 1 || !strings.HasPrefix(got[0], "1 ") || got[0] == "1 ok" {
					t.Errorf("what waited was answered %q", got)
				}
				w.found["s"] = "a"
				e.send(`{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
				if got := fmt.Sprint(e.got()); got != "[2 node_offline]" {
					t.Errorf("what came later was answered %s", got)
				}
			})
		})
	}
}

// The node is away, with a prompt under way. It is answered, and what the hub keeps for the node
// is let go of: it is not sent the prompt again when it is back.
func TestMoved_NodeIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		e := w.connect(plainHello, acp.OneStream)
		a := w.opens(e, "a", "s")
		e.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
		a.takes("session/prompt")
		w.set("a", false)
		_ = a.Close()
		synctest.Wait()
		w.g.Owned(went("a", "b", 5, 2))
		w.dialed("b").resumed()
		if got := e.got(); !slices.Contains(got, "1 node_offline") {
			t.Errorf("the prompt was answered %q", got)
		}
		w.set("a", true)
		time.Sleep(2 * giveUp)
		synctest.Wait()
		select {
		case <-w.nodes["a"].wires:
			t.Error("the node was dialed again")
		default:
		}
	})
}

// The node was lost, and is back before the connection follows the session. Its turn there can go on without end, for nobody answers what it asks:
// the prompt is answered, and what that node says of it later is nothing.
func TestMoved_NodeIsBackBeforeItIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		e := w.connect(plainHello, acp.OneStream)
		a := w.opens(e, "a", "s")
		e.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
		prompt := a.takes("session/prompt")
		a.says(`{"jsonrpc":"2.0","id":9,"method":"session/request_permission","params":{"sessionId":"s","_meta":{"sandboxagent.dev":{"seq":3}}}}`)
		wants(t, e, "asked 1")
		w.g.Owned(went("a", "b", 2, 1))
		a.takes("_sandboxagent/session/detach")
		w.dialed("b").resumed()
		if got := e.got(); !slices.Contains(got, "1 node_offline") {
			t.Errorf("the prompt was answered %q", got)
		}
		a.answers(prompt, `{"stopReason":"cancelled"}`)
		wants(t, e)
	})
}

// The request to move is the hub's own.
func TestMoved_ByRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		e := w.connect(plainHello, acp.OneStream)
		w.opens(e, "a", "s")
		for params, want := range map[string]string{
			`{"sessionId":"s","node":"b"}`:                  "1 ok",
			`{"sessionId":"s"}`:                             "1 node_not_found",
			`{"sessionId":"s","node":{"labels":{"a":"b"}}}`: "1 node_not_found",
			`{"sessionId":"s","node":7}`:                    "1 invalid_request",
			`{"node":"b"}`:                                  "1 invalid_request",
		} {
			e.send(`{"jsonrpc":"2.0","id":1,"method":"_sandboxagent/session/move","params":%s}`, params)
			if got := e.got(); len(got) != 1 || got[0] != want {
				t.Errorf("%s: %q, want %q", params, got, want)
			}
		}
		w.g.Close()
		w = newWorld(t, "a", "b")
		w.scope = store.ScopeRead
		e = w.connect(plainHello, acp.OneStream)
		e.send(`{"jsonrpc":"2.0","id":1,"method":"_sandboxagent/session/move","params":{"sessionId":"s","node":"b"}}`)
		if got := fmt.Sprint(e.got()); got != "[1 permission_denied]" {
			t.Errorf("for one who may only read: %s", got)
		}
	})
}
