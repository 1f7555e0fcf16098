package relay

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/fleet/store"
)

func wants(t *testing.T, e *editor, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, e.got()); diff != "" {
		t.Errorf("what the client was given (-want +got):\n%s", diff)
	}
}

// A node leaves while a turn goes on, and comes back before it is given up: new requests
// are refused at once meanwhile, and the turn goes on behind the last event.
func TestLine_NodeComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		e := w.connect(plainHello, acp.OneStream)
		one := w.opens(e, "a", "s")
		e.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
		name := rawjson.MemberString(one.takes("session/prompt").Meta(), acp.MetaKey, "promptId")
		one.says("%s", update("s", 1, "one"))
		wants(t, e, "s one")
		w.set("a", false)
		_ = one.Close()
		wants(t, e, "a offline")
		e.send(`{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
		wants(t, e, "2 node_offline")
		time.Sleep(giveUp / 2)
		w.set("a", true)
		two := w.dialed("a")
		resume := two.takes("session/resume")
		if after, _ := rawjson.Member(resume.Meta(), acp.MetaKey, "after"); string(after) != "1" {
			t.Errorf("it goes on behind %s", after)
		}
		two.says("%s", update("s", 1, "one"))
		two.says("%s", update("s", 2, "two"))
		two.answers(resume, `{"_meta":{"sandboxagent.dev":{"seq":2}}}`)
		two.answers(two.takes("_sandboxagent/session/pending"), `{"pending":[]}`)
		two.answers(two.takes("_sandboxagent/session/get"), `{"state":"running"}`)
		two.answers(two.takes("_sandboxagent/session/events"), fmt.Sprintf(`{"events":[{"seq":1,"message":{"method":"session/prompt","params":{"_meta":{"sandboxagent.dev":{"promptId":%q}}}}}],"hasMore":false}`, name))
		two.says(`{"jsonrpc":"2.0","method":"_sandboxagent/session/turn_ended","params":{"sessionId":"s","promptId":%q,"stopReason":"end_turn","result":{"stopReason":"end_turn"},"_meta":{"sandboxagent.dev":{"seq":3}}}}`, name)
		wants(t, e, "a online", "s two", "1 ok")
	})
}

// A node is there again, and the client's connection to it is not yet: what is asked waits for it with what is under way, and for as long.
func TestLine_NodeIsThereBeforeItsConnection(t *testing.T) {
	for _, comes := range []bool{true, false} {
		t.Run(fmt.Sprint("it comes: ", comes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a")
				e := w.connect(plainHello, acp.OneStream)
				one := w.opens(e, "a", "s")
				reach := func(can bool) {
					w.mu.Lock()
					defer w.mu.Unlock()
					w.unreachable = !can
				}
				reach(false)
				_ = one.Close()
				wants(t, e, "a offline")
				e.send(`{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
				wants(t, e)
				if !comes {
					time.Sleep(giveUp)
					wants(t, e, "2 node_offline")
					return
				}
				reach(true)
				time.Sleep(giveUp / 2)
				two := w.dialed("a")
				two.answers(two.takes("session/resume"), `{}`)
				two.answers(two.takes("_sandboxagent/session/pending"), `{"pending":[]}`)
				two.answers(two.takes("session/prompt"), `{"stopReason":"end_turn"}`)
				wants(t, e, "a online", "2 ok")
			})
		})
	}
}

// A client cancels while the node is away: that waits with what it is to end.
func TestLine_CancelledWhileTheNodeIsAway(t *testing.T) {
	for name, whose := range map[string]string{"the session's turn": "s", "a subagent": "s.c"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a")
				e := w.connect(plainHello, acp.OneStream)
				one := w.opens(e, "a", "s")
				e.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
				prompt := rawjson.MemberString(one.takes("session/prompt").Meta(), acp.MetaKey, "promptId")
				one.says("%s", of("s", update("s.c", 1, "says")))
				wants(t, e, "s.c says")
				w.set("a", false)
				_ = one.Close()
				wants(t, e, "a offline")
				e.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":%q}}`, whose)
				wants(t, e)
				w.set("a", true)
				two := w.dialed("a")
				two.answers(two.takes("session/resume"), `{}`)
				two.answers(two.takes("_sandboxagent/session/pending"), `{"pending":[]}`)
				two.answers(two.takes("_sandboxagent/session/get"), `{"state":"running"}`)
				two.answers(two.takes("_sandboxagent/session/events"), fmt.Sprintf(`{"events":[{"seq":1,"message":{"method":"session/prompt","params":{"_meta":{"sandboxagent.dev":{"promptId":%q}}}}}],"hasMore":false}`, prompt))
				if m := two.takes("session/cancel"); m.Session() != whose {
					t.Errorf("it was sent %s", m.Frame())
				}
			})
		})
	}
}

// A node stays away. What waits is refused, what was asked is withdrawn, and a session whose
// events have not all come is opened anew before anything is done in it.
func TestLine_NodeStaysAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.found["s"] = "a"
		e := w.connect(plainHello, acp.OneStream)
		one := w.opens(e, "a", "s")
		other := w.opens(e, "b", "t")
		e.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
		one.takes("session/prompt")
		one.says(`{"jsonrpc":"2.0","id":9,"method":"session/request_permission","params":{"sessionId":"s","_meta":{"sandboxagent.dev":{"seq":1}}}}`)
		wants(t, e, "asked 1")
		w.set("a", false)
		_ = one.Close()
		wants(t, e, "a offline")
		other.says("%s", update("t", 1, "of another node"))
		wants(t, e, "t of another node")
		time.Sleep(giveUp + 30*time.Second)
		wants(t, e, "1 node_offline", `$/cancel_request {"requestId":1}`)
		w.set("a", true)
		e.send(`{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
		two := w.dialed("a")
		wants(t, e, "2 node_offline")
		e.send(`{"jsonrpc":"2.0","id":3,"method":"session/resume","params":{"sessionId":"s","cwd":"/"}}`)
		two.answers(two.takes("session/resume"), `{}`)
		wants(t, e, "3 ok")
		e.send(`{"jsonrpc":"2.0","id":4,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
		two.answers(two.takes("session/prompt"), `{"stopReason":"end_turn"}`)
		wants(t, e, "4 ok")
	})
}

// A node stays away, and its agent has asked something of no session. It is withdrawn, also from a client that reads later.
func TestLine_NodeStaysAway_AskedOfNoSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		e := w.connect(plainHello, acp.OneStream)
		a := w.opens(e, "a", "s")
		a.says(`{"jsonrpc":"2.0","id":9,"method":"elicitation/create","params":{"mode":"url"}}`)
		wants(t, e, "asked 1")
		w.set("a", false)
		_ = a.Close()
		synctest.Wait()
		w.forget("a")
		time.Sleep(time.Second)
		wants(t, e, "a offline", `$/cancel_request {"requestId":1}`)
	})
}

// A node that has lost what the client needs to go on is not gone on with in silence.
func TestLine_SessionCannotGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.found["s"] = "a"
		e := w.connect(plainHello, acp.OneStream)
		one := w.opens(e, "a", "s")
		_ = one.Close()
		two := w.dialed("a")
		resume := two.takes("session/resume")
		e.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`) // when nobody knows that yet
		wants(t, e, "a offline", "a online")
		two.hub <- acp.NewError(resume.ID(), acp.Errorf(acp.CodeInternal, "events are no longer kept").WithData(problem.New(problem.EventsExpired, "events are no longer kept")))
		wants(t, e, "1 events_expired")
		e.send(`{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
		wants(t, e, "2 node_offline")
		two.takesNothing()
	})
}

// What a node says of sessions that were not opened at it reaches nobody, and what it asks
// in their name is refused.
func TestLine_HostileNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "good", "bad")
		e := w.connect(plainHello, acp.OneStream)
		good, bad := w.opens(e, "good", "s"), w.opens(e, "bad", "t")
		e.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
		prompt := good.takes("session/prompt")
		good.says(`{"jsonrpc":"2.0","id":5,"method":"session/request_permission","params":{"sessionId":"s","_meta":{"sandboxagent.dev":{"seq":1}}}}`)
		wants(t, e, "asked 1")

		bad.says("%s", update("s", 7, "not mine"))
		bad.says("%s", update("nobody's", 7, "not there"))
		bad.says(`{"jsonrpc":"2.0","id":%s,"result":{"stopReason":"end_turn"}}`, prompt.ID())
		bad.says(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":5}}`)
		bad.says(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":1}}`)
		bad.says(`{"jsonrpc":"2.0","id":1,"method":"session/request_permission","params":{"sessionId":"s"}}`)
		bad.takesNothing() // a request for a session that is not its own is answered by nobody
		bad.says(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"t","update":{"sessionUpdate":"subagent_update","sessionId":"s"}}}`)
		bad.says("%s", update("s", 8, "by a child"))
		bad.says("%s", update("t", 9, "its own"))
		wants(t, e, "t ", "t its own")

		e.send(`{"jsonrpc":"2.0","id":2,"method":"session/new","params":{"cwd":"/","_meta":{"sandboxagent.dev":{"node":"bad"}}}}`)
		bad.answers(bad.takes("session/new"), `{"sessionId":"s"}`)
		wants(t, e, "2 session_already_exists")

		for i := range maxAsks + 1 {
			bad.says(`{"jsonrpc":"2.0","id":%d,"method":"x/ask","params":{"sessionId":"t","_meta":{"sandboxagent.dev":{"seq":%d}}}}`, 100+i, 100+i)
		}
		if got := e.got(); len(got) != 2*maxAsks || got[0] != "asked 2" || got[maxAsks][0] != '$' {
			t.Errorf("%d came, at first %q", len(got), got[0])
		}
		select {
		case <-bad.ended:
		default:
			t.Error("the node goes on")
		}

		e.send(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		synctest.Wait()
		if answer := <-good.toNode; answer.ID() != "5" {
			t.Errorf("the good node got %s", answer.Frame())
		}
		good.answers(prompt, `{}`)
		wants(t, e, "1 ok")
	})
}

// A client leaves a session and opens it again before the node has answered: it has the session, with what its agent
// asks. If it cannot be opened again it has it no more.
func TestSession_LeftAndOpenedAtOnce(t *testing.T) {
	for name, opens := range map[string]bool{"it opens": true, "it does not": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a")
				w.found["s"] = "a"
				e := w.connect(plainHello, acp.OneStream)
				a := w.opens(e, "a", "s")
				e.send(`{"jsonrpc":"2.0","id":1,"method":"_sandboxagent/session/detach","params":{"sessionId":"s"}}`)
				e.send(`{"jsonrpc":"2.0","id":2,"method":"session/resume","params":{"sessionId":"s","cwd":"/","mcpServers":[]}}`)
				detach, resume := a.takes("_sandboxagent/session/detach"), a.takes("session/resume")
				a.answers(detach, `{}`)
				if !opens {
					a.says(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32602,"message":"no"}}`, resume.ID())
					e.gets()
					a.says("%s", update("s", 1, "one"))
					wants(t, e)
					return
				}
				a.says(`{"jsonrpc":"2.0","id":5,"method":"session/request_permission","params":{"sessionId":"s","_meta":{"sandboxagent.dev":{"seq":1}}}}`)
				a.answers(resume, `{"_meta":{"sandboxagent.dev":{"seq":1}}}`)
				wants(t, e, "1 ok", "asked 1", "2 ok")
				a.says("%s", update("s", 2, "two"))
				wants(t, e, "s two")
				e.send(`{"jsonrpc":"2.0","id":1,"result":{}}`)
				synctest.Wait()
				if answer := <-a.toNode; answer.ID() != "5" {
					t.Errorf("the node got %s", answer.Frame())
				}
			})
		})
	}
}

// A node that takes nothing makes nobody wait but those who use it.
func TestLine_NodeTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		e := w.connect(plainHello, acp.OneStream)
		stuck := w.opens(e, "a", "s")
		other := w.opens(e, "b", "t")
		large := strings.Repeat("x", maxOutBytes/4)
		n := 0
		for range 8 {
			e.send(`{"jsonrpc":"2.0","id":"large %d","method":"session/prompt","params":{"sessionId":"s","prompt":"%s"}}`, n, large)
			n++
		}
		refused := e.got()
		if len(refused) == 0 || len(refused) > 6 || !strings.HasSuffix(refused[0], "too_many_requests") {
			t.Errorf("refused were %q", refused)
		}
		e.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"t","prompt":[]}}`)
		other.answers(other.takes("session/prompt"), `{}`)
		wants(t, e, "1 ok")
		for range maxOut + 1 {
			e.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}`)
		}
		synctest.Wait()
		select {
		case <-stuck.ended: // a cancel is not dropped in silence
		default:
			t.Error("the node that takes nothing is not left")
		}
	})
}

// A client that does not read makes the node wait, and gets all when it reads.
func TestSession_SlowClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		e := w.connect(plainHello, acp.OneStream)
		a := w.opens(e, "a", "s")
		w.opens(e, "b", "t")
		const n, size = 1000, 8 << 10
		sent := make(chan int, n)
		go func() {
			for i := range n {
				a.says("%s", update("s", 1+i, fmt.Sprint(i, " ", strings.Repeat("x", size))))
				sent <- i
			}
			close(sent)
		}()
		synctest.Wait()
		if took := len(sent) * size; took > window+(1<<20) {
			t.Errorf("the hub took %d bytes from a node whose client does not read", took)
		}
		next := 0
		for next < n {
			got := e.got()
			if len(got) == 0 {
				t.Fatalf("%d of %d came", next, n)
			}
			for _, one := range got {
				if !strings.HasPrefix(one, fmt.Sprintf("s %d ", next)) {
					t.Fatalf("%.20s came as number %d", one, next)
				}
				next++
			}
		}
		time.Sleep(2 * lookEvery)
		synctest.Wait()
		if held := e.c.(*Client).sessions["s"].log.Size(); held > 4*kept {
			t.Errorf("%d bytes are held of a session that was read", held)
		}
	})
}

// A client that has no stream for a session is not waited for, and is told what that cost.
func TestSession_NobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		e := w.connect(plainHello, acp.PerSession)
		var err error
		if e.st, err = e.c.Stream("", nil); err != nil {
			t.Fatal(err)
		}
		a := w.opens(e, "a", "s")
		for i := range 1000 {
			a.says("%s", update("s", 1+i, strings.Repeat("x", 4<<10)))
		}
		e.send(`{"jsonrpc":"2.0","id":1,"method":"session/close","params":{"sessionId":"s"}}`)
		closing := a.takes("session/close")
		if _, err := e.c.Stream("s", nil); err == nil || problem.From(err).Kind != problem.EventsExpired {
			t.Errorf("the stream begins with %v", err)
		}
		st, err := e.c.Stream("s", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer st.Close()
		if events, err := st.Poll(64 << 10); err != nil || len(events) == 0 {
			t.Errorf("then it has %d events: %v", len(events), err)
		}
		st.Written()
		a.answers(closing, `{}`)
		time.Sleep(replayBound)
		wants(t, e, "1 ok")
	})
}

// A client acts on a session that it has not opened: the hub opens it before, so that its
// events go on when the way to the node breaks. What comes meanwhile follows in order.
func TestRequest_ForASessionThatIsNotOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.found["s"], w.found["closed"] = "a", "a"
		e := w.connect(plainHello, acp.OneStream)
		for i := range 3 {
			e.send(`{"jsonrpc":"2.0","id":%d,"method":"session/prompt","params":{"sessionId":"s","prompt":[%d]}}`, i, i)
		}
		a := w.dialed("a")
		resume := a.takes("session/resume")
		if got := string(resume.Params()); got != `{"sessionId":"s","mcpServers":[]}` {
			t.Errorf("it is opened with %s", got)
		}
		a.answers(resume, `{}`)
		for i := range 3 {
			m := a.takes("session/prompt")
			if text, _ := rawjson.Member(m.Params(), "prompt"); string(text) != fmt.Sprintf("[%d]", i) {
				t.Errorf("%s came as number %d", text, i)
			}
			a.answers(m, `{}`)
		}
		wants(t, e, "0 ok", "1 ok", "2 ok")
		e.send(`{"jsonrpc":"2.0","id":"no","method":"session/set_mode","params":{"sessionId":"closed"}}`)
		refused := a.takes("session/resume")
		a.hub <- acp.NewError(refused.ID(), acp.Errorf(acp.CodeResourceNotFound, "it is gone"))
		if got := e.gets(); len(got) != 1 || got[0].Err() == nil || got[0].Err().Message != "it is gone" {
			t.Errorf("%v", got)
		}
		e.send(`{"jsonrpc":"2.0","id":"who","method":"session/prompt","params":{"sessionId":"nobody's"}}`)
		wants(t, e, `"who" session_not_found`)
	})
}

// Node refuses the connection: what was to go by it is answered so, and the next try is a new one.
func TestLine_NodeRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		e := w.connect(plainHello, acp.OneStream)
		for id := range 2 {
			e.send(`{"jsonrpc":"2.0","id":%d,"method":"session/new","params":{"cwd":"/"}}`, id)
			synctest.Wait()
			c := <-w.nodes["a"].wires
			m := c.takes("initialize")
			c.hub <- acp.NewError(m.ID(), acp.Errorf(acp.CodeInternal, "no").WithData(problem.New(problem.AgentNotInstalled, "no")))
			wants(t, e, fmt.Sprint(id, " agent_not_installed"))
		}
	})
}

// Who may only read is not one whose answers an agent waits for, and opens sessions without
// changing them.
func TestScope_WhoWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.scope, w.found["s"] = store.ScopeRead, "a"
		e := w.connect(`{"protocolVersion":1,"clientCapabilities":{"fs":{"readTextFile":true},"terminal":true,"elicitation":{"form":{}},"session":{},"_meta":{"sandboxagent.dev":{"requestQuestion":true,"notices":true}}},"_meta":{"sandboxagent.dev":{"agent":"dear"}}}`, acp.OneStream)
		e.send(`{"jsonrpc":"2.0","id":1,"method":"session/load","params":{"sessionId":"s","cwd":"/etc","mcpServers":[{"command":"x"}],"additionalDirectories":["/"],"_meta":{"sandboxagent.dev":{"after":3,"model":"dear","env":{"A":"b"}}}}}`)
		synctest.Wait()
		c := <-w.nodes["a"].wires
		m := c.takes("initialize")
		caps, _ := rawjson.Member(m.Params(), "clientCapabilities")
		for _, without := range []string{"fs", "terminal", "elicitation", "requestQuestion"} {
			if strings.Contains(string(caps), `"`+without+`"`) {
				t.Errorf("the node is told that the client can %s: %s", without, caps)
			}
		}
		if !rawjson.MemberBool(caps, "_meta", acp.MetaKey, "watch") {
			t.Errorf("the node is not told that the client watches: %s", caps)
		}
		if agent := rawjson.MemberString(m.Meta(), acp.MetaKey, "agent"); agent != "mock" {
			t.Errorf("the node is to start %q, want the session's own", agent)
		}
		c.answers(m, `{"protocolVersion":1}`)
		if got := string(c.takes("session/load").Params()); got != `{"sessionId":"s","mcpServers":[],"_meta":{"sandboxagent.dev":{"after":3}}}` {
			t.Errorf("it is opened with %s", got)
		}
		e.send(`{"jsonrpc":"2.0","id":2,"method":"_sandboxagent/session/get","params":{"_meta":{"sandboxagent.dev":{"node":"a"}}}}`)
		c.takesNothing()
	})
}

// Sessions that are asked for at the same moment are spread over the nodes.
func TestPlace_AtTheSameMoment(t *testing.T) {
	w := newWorld(t, "a", "b", "c")
	w.nodes["b"].node.Load = 2
	var got []string
	var done []func()
	for range 5 {
		node, placed, err := w.g.place(store.Token{}, selection{}, "mock", nil)
		if err != nil {
			t.Fatal(err)
		}
		got, done = append(got, node), append(done, placed)
	}
	if want := []string{"a", "c", "a", "c", "a"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for _, f := range done {
		f()
	}
	if _, _, err := w.g.place(store.Token{}, selection{}, "rare", nil); err == nil || problem.From(err).Kind != problem.UnsupportedAgent {
		t.Errorf("an agent that no node lists: %v", err)
	}
	w.nodes["b"].node.Agents = nil // it may have it
	if node, placed, err := w.g.place(store.Token{}, selection{}, "rare", nil); err != nil || node != "b" {
		t.Errorf("an agent that one may have: %q, %v", node, err)
	} else {
		placed()
	}
	if len(w.g.placing) > 0 {
		t.Errorf("still placed: %v", w.g.placing)
	}
}

// In the standard dialect the answer to a load travels beside the events: it says which of
// them is the last of the replay.
func TestSession_LoadInTheStandardDialect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.found["s"] = "a"
		e := w.connect(plainHello, acp.PerSession)
		var err error
		if e.st, err = e.c.Stream("", nil); err != nil {
			t.Fatal(err)
		}
		session, err := e.c.Stream("s", nil)
		if err != nil {
			t.Fatal(err)
		}
		defer session.Close()
		e.send(`{"jsonrpc":"2.0","id":1,"method":"session/load","params":{"sessionId":"s","cwd":"/"}}`)
		a := w.dialed("a")
		m := a.takes("session/load")
		a.says("%s", update("s", 41, "one"))
		a.says("%s", update("s", 42, "two"))
		a.says(`{"jsonrpc":"2.0","method":"_sandboxagent/agent/unparsed","params":{}}`)
		a.answers(m, `{"_meta":{"sandboxagent.dev":{"seq":43}}}`) // which is the end of a turn, of which nobody is told again
		wants(t, e, "_sandboxagent/agent/unparsed {}")            // and no answer before the replay is written
		if events, err := session.Poll(64 << 10); err != nil || len(events) != 2 {
			t.Errorf("%d events came: %v", len(events), err)
		}
		session.Written()
		got := e.gets()
		if len(got) != 1 {
			t.Fatalf("%d answers came", len(got))
		}
		if last, _ := rawjson.Member(got[0].Result(), "_meta", acp.MetaKey, "replayedSeq"); string(last) != "42" {
			t.Errorf("the answer is %s", got[0].Frame())
		}
		if at := rawjson.MemberString(got[0].Result(), "_meta", acp.MetaKey, "node"); at != "a" {
			t.Errorf("the session is at %q", at)
		}
		// What is resumed has nothing to replay, and the client sees no number again.
		e.send(`{"jsonrpc":"2.0","id":2,"method":"session/resume","params":{"sessionId":"s","cwd":"/"}}`)
		a.answers(a.takes("session/resume"), `{"_meta":{"sandboxagent.dev":{"seq":43}}}`)
		if got = e.gets(); len(got) != 1 || got[0].Err() != nil || strings.Contains(string(got[0].Result()), "replayedSeq") {
			t.Errorf("the session is resumed with %v", got)
		}
	})
}

// What a node has written into the copy of its session is shown as of that session alone.
func TestCopy_HasItsOwnSessionAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.found["s"] = "a"
		w.set("a", false)
		w.copy = []string{update("s", 1, "one"), update("other", 2, "two"), update("s", 3, "three")}
		e := w.connect(plainHello, acp.OneStream)
		e.send(`{"jsonrpc":"2.0","id":1,"method":"session/load","params":{"sessionId":"s","cwd":"/"}}`)
		wants(t, e, "s one", "s three", "1 ok")
		e.send(`{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
		wants(t, e, "2 node_offline")
		w.set("a", true)
		e.send(`{"jsonrpc":"2.0","id":3,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
		w.dialed("a")
		wants(t, e, "3 node_offline")
	})
}
