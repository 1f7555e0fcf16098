package relay

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
)

const helloTwo = `{"protocolVersion":2,"info":{"name":"test","version":"1"},"capabilities":{"_meta":{"sandboxagent.dev":{"notices":true,"turns":true}}}}`

// In version 2 of the protocol the answer to a prompt says only that its turn has begun. A client
// that waits for the end of the turn is told one when the node is lost, when it is not gone on
// with, and never when the node was away for a moment only.
func TestTurn_OfVersionTwo(t *testing.T) {
	offline, online := "a offline", "a online"
	const ended = "s is idle error"
	state := func(state string, events string) func(*world, *editor) {
		return func(w *world, _ *editor) {
			w.set("a", true)
			two := w.dialed("a")
			two.answers(two.takes("session/resume"), `{}`)
			two.answers(two.takes("_sandboxagent/session/pending"), `{"pending":[]}`)
			two.answers(two.takes("_sandboxagent/session/get"), `{"state":"`+state+`"}`)
			two.answers(two.takes("_sandboxagent/session/events"), `{"events":[{"seq":2,"message":{"method":"session/prompt","params":{"_meta":{"sandboxagent.dev":{"promptId":"mine"}}}}}`+events+`],"hasMore":false}`)
		}
	}
	for name, tt := range map[string]struct {
		then func(w *world, e *editor)
		want []string
	}{
		"it stays away":    {func(*world, *editor) { time.Sleep(giveUp + 30*time.Second) }, []string{ended, "mine ended node_offline"}},
		"it was forgotten": {func(w *world, _ *editor) { w.forget("a") }, []string{ended, "mine ended node_not_found"}},
		"it goes on":       {state("running", ""), []string{online}},
		"it waits":         {state("waiting", ""), []string{online}},
		"it begins anew":   {state("dormant", ""), []string{online, ended, "mine ended internal"}},
		"it ended meanwhile": {
			state("idle", `,{"seq":5,"message":{"method":"_sandboxagent/session/turn_ended","params":{"promptId":"mine","result":{}}}}`), []string{online},
		},
		"it has lost the session": {func(w *world, _ *editor) {
			w.set("a", true)
			two := w.dialed("a")
			for _, method := range []string{"session/resume", "_sandboxagent/session/get"} {
				two.hub <- acp.NewError(two.takes(method).ID(), acp.Errorf(acp.CodeResourceNotFound, "no such session"))
			}
		}, []string{online, ended, "mine ended not_found"}},
		"it has terminated the session": {func(w *world, _ *editor) {
			w.set("a", true)
			two := w.dialed("a")
			two.hub <- acp.NewError(two.takes("session/resume").ID(), acp.Errorf(acp.CodeResourceNotFound, "it has ended"))
			two.answers(two.takes("_sandboxagent/session/get"), `{"state":"ended"}`)
			two.answers(two.takes("_sandboxagent/session/events"), `{"events":[{"seq":5,"message":{"method":"_sandboxagent/session/turn_ended","params":{"sessionId":"s","promptId":"mine","result":{"stopReason":"cancelled"}}}}],"hasMore":false}`)
		}, []string{online, "s is idle cancelled", "mine ended "}},
		"it begins anew, and another one runs": {func(w *world, _ *editor) {
			w.set("a", true)
			two := w.dialed("a")
			two.answers(two.takes("session/resume"), `{}`)
			two.answers(two.takes("_sandboxagent/session/pending"), `{"pending":[]}`)
			two.answers(two.takes("_sandboxagent/session/get"), `{"state":"running"}`)
			two.answers(two.takes("_sandboxagent/session/events"), `{"events":[
				{"seq":2,"message":{"method":"session/prompt","params":{"_meta":{"sandboxagent.dev":{"promptId":"mine"}}}}},
				{"seq":3,"message":{"method":"session/prompt","params":{}}}],"hasMore":false}`)
		}, []string{online, ended, "mine ended internal", "s is running"}},
		"another node has it": {func(w *world, _ *editor) {
			w.g.Owned(went("a", "b", 2, 1))
			w.dialed("b").resumed()
		}, []string{ended, "mine ended node_offline"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a", "b")
				w.two = true
				e := w.connect(helloTwo, acp.OneStream)
				one := w.opens(e, "a", "s")
				e.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[],"_meta":{"sandboxagent.dev":{"promptId":"mine"}}}}`)
				prompt := one.takes("session/prompt")
				one.answers(prompt, `{"messageId":"sa.2"}`)
				one.says(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"running"},"_meta":{"sandboxagent.dev":{"seq":2}}}}`)
				wants(t, e, "1 ok", "s is running")
				w.set("a", false)
				_ = one.Close()
				wants(t, e, offline)
				tt.then(w, e)
				wants(t, e, tt.want...)
			})
		})
	}
}

// A turn that has ended is not ended again, and a client that did not ask for the gateway's own
// notification is told the state alone.
func TestTurn_OfVersionTwo_ToldOnce(t *testing.T) {
	for _, over := range []bool{false, true} {
		t.Run(fmt.Sprint("it was over: ", over), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a")
				w.two = true
				e := w.connect(`{"protocolVersion":2,"info":{"name":"test","version":"1"},"capabilities":{}}`, acp.OneStream)
				one := w.opens(e, "a", "s")
				e.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[],"_meta":{"sandboxagent.dev":{"promptId":"mine"}}}}`)
				one.answers(one.takes("session/prompt"), `{"messageId":"sa.2"}`)
				want := []string{"s is idle error"}
				if over {
					one.says(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"idle","stopReason":"end_turn"},"_meta":{"sandboxagent.dev":{"seq":3}}}}`)
					one.says(`{"jsonrpc":"2.0","method":"_sandboxagent/session/turn_ended","params":{"sessionId":"s","promptId":"mine","result":{},"_meta":{"sandboxagent.dev":{"seq":3}}}}`)
					want = nil
				}
				wants(t, e, map[bool][]string{true: {"1 ok", "s is idle end_turn"}, false: {"1 ok"}}[over]...)
				w.set("a", false)
				_ = one.Close()
				time.Sleep(giveUp + 30*time.Second)
				wants(t, e, want...)
			})
		})
	}
}

// Who watches a turn that another client has asked for is told, too, that it was lost with its node.
func TestTurn_OfVersionTwo_Watched(t *testing.T) {
	const ended = "s is idle error"
	for name, tt := range map[string]struct {
		then func(w *world)
		want []string
	}{
		"it stays away":    {func(*world) { time.Sleep(giveUp + 30*time.Second) }, []string{ended}},
		"it was forgotten": {func(w *world) { w.forget("a") }, []string{ended}},
		"another node has it": {func(w *world) {
			w.g.Owned(went("a", "b", 2, 1))
			w.dialed("b").resumed()
		}, []string{ended}},
		"it begins anew": {func(w *world) {
			w.set("a", true)
			two := w.dialed("a")
			two.answers(two.takes("session/resume"), `{}`)
			two.answers(two.takes("_sandboxagent/session/pending"), `{"pending":[]}`)
			two.answers(two.takes("_sandboxagent/session/get"), `{"state":"dormant"}`)
			two.answers(two.takes("_sandboxagent/session/events"), `{"events":[],"hasMore":false}`)
		}, []string{"a online", ended}},
		"it goes on": {func(w *world) {
			w.set("a", true)
			two := w.dialed("a")
			two.answers(two.takes("session/resume"), `{}`)
			two.answers(two.takes("_sandboxagent/session/pending"), `{"pending":[]}`)
			two.answers(two.takes("_sandboxagent/session/get"), `{"state":"running"}`)
		}, []string{"a online"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a", "b")
				w.two = true
				e := w.connect(helloTwo, acp.OneStream)
				one := w.opens(e, "a", "s")
				one.says(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"running"},"_meta":{"sandboxagent.dev":{"seq":2}}}}`)
				wants(t, e, "s is running")
				w.set("a", false)
				_ = one.Close()
				wants(t, e, "a offline")
				tt.then(w)
				wants(t, e, tt.want...)
			})
		})
	}
}

// A session moves as the end of its turn is on its way, of which the client was shown nothing, or the state alone. The next node tells all
// of it. Where the turn was lost with the node, which is back already, the hub tells that it is over.
func TestTurn_OfVersionTwo_EndsAsTheSessionMoves(t *testing.T) {
	const (
		idle  = `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"idle","stopReason":"end_turn"},"_meta":{"sandboxagent.dev":{"seq":3}}}}`
		ended = `{"jsonrpc":"2.0","method":"_sandboxagent/session/turn_ended","params":{"sessionId":"s","promptId":"mine","result":{},"_meta":{"sandboxagent.dev":{"seq":3}}}}`
	)
	told := []string{"s is idle end_turn", "mine ended "}
	for name, tt := range map[string]struct {
		before []string // of the end, from the node that the session leaves
		shown  []string
		lost   uint64
		after  string
		late   []string // from the node that it has left
		again  []string // from the next node
		want   []string
	}{
		"nothing was shown": {nil, nil, 0, "2", nil, []string{idle, ended}, told},
		"its state was":     {[]string{idle}, told[:1], 0, "2", nil, []string{idle, ended}, told},
		"all was":           {[]string{idle, ended}, told, 0, "3", nil, nil, nil},
		"it was lost":       {nil, nil, 1, "2", nil, nil, []string{"s is idle error", "mine ended node_offline"}},
		"both nodes tell":   {nil, nil, 0, "2", []string{idle, ended}, []string{idle, ended}, told},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a", "b")
				w.two = true
				e := w.connect(helloTwo, acp.OneStream)
				a := w.opens(e, "a", "s")
				e.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[],"_meta":{"sandboxagent.dev":{"promptId":"mine"}}}}`)
				a.answers(a.takes("session/prompt"), `{"messageId":"sa.2"}`)
				a.says(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":"running"},"_meta":{"sandboxagent.dev":{"seq":2}}}}`)
				wants(t, e, "1 ok", "s is running")
				for _, frame := range tt.before {
					a.says("%s", frame)
				}
				wants(t, e, tt.shown...)
				w.g.Owned(went("a", "b", 3, tt.lost))
				b := w.dialed("b")
				m := b.takes("session/resume")
				if after := seqIn(m.Meta(), acp.MetaKey, "after"); fmt.Sprint(after) != tt.after {
					t.Errorf("it goes on behind event %d", after)
				}
				for _, frame := range tt.late {
					a.says("%s", frame)
				}
				for _, frame := range tt.again {
					b.says("%s", frame)
				}
				wants(t, e, tt.want...)
				b.answers(m, `{}`)
			})
		})
	}
}

// What a client was given whole does not come again as its session moves: where it is told how turns end by the state alone, where it
// watches the turn of a client of version 1, and where it was given more than the copy has with which the session goes on.
func TestTurn_OfVersionTwo_ComesOnce(t *testing.T) {
	const (
		state = `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":%q%s},"_meta":{"sandboxagent.dev":{"seq":%d}}}}`
		ended = `{"jsonrpc":"2.0","method":"_sandboxagent/session/turn_ended","params":{"sessionId":"s","promptId":"mine","result":{},"_meta":{"sandboxagent.dev":{"seq":4}}}}`
		plain = `{"protocolVersion":2,"info":{"name":"test","version":"1"},"capabilities":{"_meta":{"sandboxagent.dev":{"notices":true}}}}`
	)
	for name, tt := range map[string]struct {
		hello      string
		own, whole bool // the turn is the client's; all of its end was given
		asks       bool // the client has asked something else, which is not answered
		last, lost uint64
		after      uint64
	}{
		"by the state alone":        {plain, true, true, false, 4, 0, 4},
		"it watches":                {helloTwo, false, false, false, 4, 0, 4},
		"it watches, and asks":      {helloTwo, false, false, true, 4, 0, 4},
		"a part of it was lost":     {helloTwo, true, false, false, 3, 1, 3},
		"all of it was lost":        {helloTwo, true, true, false, 3, 1, 3},
		"by the state, and is lost": {plain, true, true, false, 3, 1, 3},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a", "b")
				w.two = true
				e := w.connect(tt.hello, acp.OneStream)
				a := w.opens(e, "a", "s")
				if tt.own {
					e.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[],"_meta":{"sandboxagent.dev":{"promptId":"mine"}}}}`)
					a.answers(a.takes("session/prompt"), `{"messageId":"sa.2"}`)
				}
				if tt.asks {
					e.send(`{"jsonrpc":"2.0","id":2,"method":"session/set_mode","params":{"sessionId":"s","modeId":"m"}}`)
					a.takes("session/set_mode")
				}
				a.says(state, "running", "", 2)
				a.says(`%s`, update("s", 3, "chunk"))
				a.says(state, "idle", `,"stopReason":"end_turn"`, 4)
				if tt.whole {
					a.says(ended)
				}
				e.got()
				w.g.Owned(went("a", "b", tt.last, tt.lost))
				m := w.dialed("b").takes("session/resume")
				if after := seqIn(m.Meta(), acp.MetaKey, "after"); after != tt.after {
					t.Errorf("it goes on behind event %d, want %d", after, tt.after)
				}
			})
		})
	}
}

const (
	stateFrame = `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"state_update","state":%q%s},"_meta":{"sandboxagent.dev":{"seq":%d}}}}`
	endFrame   = `{"jsonrpc":"2.0","method":"_sandboxagent/session/turn_ended","params":{"sessionId":"s",%s,"_meta":{"sandboxagent.dev":{"seq":%d}}}}`
	stopped    = `,"stopReason":"end_turn"`
)

// prompts has the client ask for a turn.
func (e *editor) prompts(id int, name string) {
	e.t.Helper()
	e.send(`{"jsonrpc":"2.0","id":%d,"method":"session/prompt","params":{"sessionId":"s","prompt":[],"_meta":{"sandboxagent.dev":{"promptId":%q}}}}`, id, name)
}

// A session is moved to a node that is away. What its node says until the hub has left it is given to nobody, for the next node says it again, such as that one turn ended,
// and that the next began. As soon as that is not waited for any more the client is told of each that it ended, and once.
func TestTurn_OfVersionTwo_EndsAsItsSessionIsLost(t *testing.T) {
	const failed = "s is idle error"
	ends := []string{failed, "first ended node_offline", failed, "second ended node_offline"}
	for name, tt := range map[string]struct {
		then func(w *world, a *wire, e *editor)
		want []string
	}{
		"the move is over":    {func(w *world, _ *wire, _ *editor) { w.g.Owned(went("a", "b", 4, 0)) }, ends},
		"the move takes long": {func(*world, *wire, *editor) { time.Sleep(HoldFor) }, ends},
		"it is opened anew": {func(_ *world, a *wire, e *editor) {
			e.asks(3, "session/resume")
			a.answers(a.takes("session/resume"), `{}`)
		}, append(slices.Clone(ends), "3 ok")},
		"the node is there": {func(w *world, _ *wire, _ *editor) {
			w.set("b", true)
			w.g.Owned(went("a", "b", 4, 0))
			b := w.dialed("b")
			m := b.takes("session/resume")
			b.says(stateFrame, "idle", stopped, 3)
			b.says(endFrame, `"promptId":"first"`, 3)
			b.says(stateFrame, "running", "", 4)
			b.answers(m, `{}`)
		}, []string{MethodMoved + ` {"sessionId":"s","from":"a","node":"b","term":2,"lastSeq":4,"missing":0}`, "s is idle end_turn", "first ended ", "s is running"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a", "b")
				w.two = true
				w.found["s"] = "a"
				w.set("b", false)
				e := w.connect(helloTwo, acp.OneStream)
				a := w.opens(e, "a", "s")
				e.prompts(1, "first")
				first := a.takes("session/prompt")
				a.says(stateFrame, "running", "", 2)
				a.answers(first, `{"messageId":"sa.2"}`)
				e.prompts(2, "second")
				second := a.takes("session/prompt")
				wants(t, e, "s is running", "1 ok")
				w.g.Owned(passing(4))
				leave := a.takes(methodDetach)
				a.says(stateFrame, "idle", stopped, 3)
				a.says(endFrame, `"promptId":"first"`, 3)
				a.says(stateFrame, "running", "", 4)
				a.answers(second, `{"messageId":"sa.4"}`)
				a.answers(leave, `{}`)
				wants(t, e, "2 ok")
				tt.then(w, a, e)
				wants(t, e, tt.want...)
			})
		})
	}
}

// A gateway was started anew while a turn went on, and tells of its end, and not whose that was. Where the session goes on elsewhere the client is
// told whose, also when the answer that the turn has begun comes behind that.
func TestTurn_OfVersionTwo_EndNamesNobody(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(fmt.Sprint("the answer comes late: ", late), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				moved := MethodMoved + ` {"sessionId":"s","from":"a","node":"b","term":2,"lastSeq":3,"missing":0}`
				w := newWorld(t, "a", "b")
				w.two = true
				e := w.connect(helloTwo, acp.OneStream)
				a := w.opens(e, "a", "s")
				e.prompts(1, "mine")
				prompt := a.takes("session/prompt")
				a.says(stateFrame, "running", "", 2)
				wants(t, e, "s is running")
				if !late {
					a.answers(prompt, `{"messageId":"sa.2"}`)
					wants(t, e, "1 ok")
				}
				w.g.Owned(went("a", "b", 3, 0))
				b := w.dialed("b")
				m := b.takes("session/resume")
				b.says(stateFrame, "idle", `,"stopReason":"error"`, 3)
				b.says(endFrame, `"began":true,"error":{"code":-32603,"message":"killed"}`, 3)
				b.answers(m, `{}`)
				if !late {
					wants(t, e, moved, "s is idle error", "mine ended ")
					return
				}
				wants(t, e, moved, "s is idle error", " ended ")
				a.answers(prompt, `{"messageId":"sa.2"}`)
				wants(t, e, "1 ok", "mine ended ")
			})
		})
	}
}

// A client opens a lost session anew, and has not read yet how its turn in it ended: it is told.
func TestTurn_OfVersionTwo_EndIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.two = true
		w.found["s"] = "a"
		e := w.connect(helloTwo, acp.OneStream)
		a := w.opens(e, "a", "s")
		e.prompts(1, "mine")
		a.answers(a.takes("session/prompt"), `{"messageId":"sa.2"}`)
		a.says(stateFrame, "running", "", 2)
		a.says("%s", update("s", 3, "hello"))
		a.says(stateFrame, "idle", stopped, 4)
		a.says(endFrame, `"promptId":"mine"`, 4)
		synctest.Wait()
		w.g.Owned(went("a", "hidden", 4, 0)) // the token is not for that node
		a.answers(a.takes(methodDetach), `{}`)
		e.asks(2, "session/resume")
		a.answers(a.takes("session/resume"), `{}`)
		if got := e.got(); !slices.Contains(got, "mine ended ") || !slices.Contains(got, "2 ok") {
			t.Errorf("the client was given %q", got)
		}
	})
}

// A node goes away for good before it has answered that a session is open, and has told already that it works. The client, which has read nothing by then, is told
// that it does not.
func TestTurn_OfVersionTwo_LostAsItIsOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.two = true
		w.found["s"] = "a"
		e := w.connect(helloTwo, acp.OneStream)
		e.prompts(1, "mine")
		a := w.dialed("a")
		a.takes("session/resume")
		a.says(stateFrame, "running", "", 2)
		synctest.Wait()
		w.set("a", false)
		_ = a.Close()
		time.Sleep(giveUp + replayBound/2)
		if got := e.got(); !slices.Contains(got, "s is running") || !slices.Contains(got, "s is idle error") {
			t.Errorf("the client was given %q", got)
		}
	})
}

// A node was lost in the middle of a turn, of which the client is told that it failed. What the next node says of its end comes too late.
func TestTurn_OfVersionTwo_FailsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.two = true
		e := w.connect(helloTwo, acp.OneStream)
		a := w.opens(e, "a", "s")
		e.prompts(1, "first")
		first := a.takes("session/prompt")
		a.says(stateFrame, "running", "", 2)
		a.answers(first, `{"messageId":"sa.2"}`)
		wants(t, e, "s is running", "1 ok")
		w.g.Owned(went("a", "b", 2, 1))
		b := w.dialed("b")
		m := b.takes("session/resume")
		b.says(stateFrame, "idle", stopped, 3)
		b.says(endFrame, `"promptId":"first"`, 3)
		b.answers(m, `{}`)
		wants(t, e, "s is idle error", "first ended node_offline", "s is idle end_turn")
	})
}
