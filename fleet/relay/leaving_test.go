package relay

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
)

// Of two requests to open a session the node refuses the first one, or the last. The one that it takes counts: the client is shown what comes.
func TestOpen_OneOfTwoIsRefused(t *testing.T) {
	for refused := range 2 {
		t.Run(fmt.Sprint(refused), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, "a")
				w.found["s"] = "a"
				e := w.connect(plainHello, acp.OneStream)
				for id := range 2 {
					e.send(`{"jsonrpc":"2.0","id":%d,"method":"session/load","params":{"sessionId":"s","cwd":"/","mcpServers":[]}}`, id)
				}
				a := w.dialed("a")
				for id := range 2 {
					asked := a.takes("session/load")
					if id == refused {
						a.hub <- acp.NewError(asked.ID(), acp.Errorf(acp.CodeInternal, "not now"))
						continue
					}
					a.answers(asked, `{}`)
				}
				a.says("%s", update("s", 1, "hello"))
				if got := e.got(); !slices.Contains(got, "s hello") || len(got) != 3 {
					t.Errorf("the client was given %q", got)
				}
				e.send(`{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
				a.takes("session/prompt")
			})
		})
	}
}

// A client reads nothing, not even the answer to its request to leave the session, and acts on that again. What it was asked before and has
// not read is withdrawn before it is asked anew.
func TestOrder_AskedBehindADetach_AndNothingIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		e := w.connect(plainHello, acp.OneStream)
		a := w.opens(e, "a", "s")
		a.says("%s", asks(9, "s", 5))
		synctest.Wait()
		e.send(`{"jsonrpc":"2.0","id":1,"method":"_sandboxagent/session/detach","params":{"sessionId":"s"}}`)
		e.send(`{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
		a.answers(a.takes(methodDetach), `{}`)
		a.takes("session/prompt")
		time.Sleep(2 * replayBound)
		a.says("%s", asks(10, "s", 5))
		synctest.Wait()
		got := slices.DeleteFunc(e.got(), func(one string) bool { return one == "1 ok" })
		if want := []string{"asked 1", `$/cancel_request {"requestId":1}`, "asked 2"}; !slices.Equal(got, want) {
			t.Errorf("the client was given %q, want %q", got, want)
		}
	})
}

// A request to leave a session is sent behind what was asked before and waits for the session to be open.
func TestOrder_DetachBehindWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		w.found["s"] = "a"
		e := w.connect(plainHello, acp.OneStream)
		e.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
		e.send(`{"jsonrpc":"2.0","id":2,"method":"_sandboxagent/session/detach","params":{"sessionId":"s"}}`)
		a := w.dialed("a")
		a.resumed()
		prompt := a.takes("session/prompt")
		a.answers(a.takes(methodDetach), `{}`)
		a.answers(prompt, `{"stopReason":"end_turn"}`)
		wants(t, e, "2 ok", "1 ok")
	})
}

// A client that reads nothing of a session, and is waited for, asks for it once more: the request is sent, and who brings it does not wait.
func TestSession_LoadedWhileNothingIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a")
		e := w.connect(plainHello, acp.OneStream)
		a := w.opens(e, "a", "s")
		for i := range 4 {
			a.says("%s", update("s", 1+i, strings.Repeat("x", window/2)))
		}
		synctest.Wait()
		began := time.Now()
		e.send(`{"jsonrpc":"2.0","id":1,"method":"session/load","params":{"sessionId":"s","cwd":"/","mcpServers":[]}}`)
		a.takes("session/load")
		if waited := time.Since(began); waited > 0 {
			t.Errorf("the request waited for %v", waited)
		}
	})
}

// A node takes a prompt of a session of which the connection has not got all any more: how the turn ends cannot be told, and that is told.
func TestTurn_OfVersionTwo_BegunBehindALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.two = true
		e := w.connect(helloTwo, acp.OneStream)
		a := w.opens(e, "a", "s")
		e.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[],"_meta":{"sandboxagent.dev":{"promptId":"mine"}}}}`)
		prompt := a.takes("session/prompt")
		w.set("b", false)
		w.g.Owned(went("a", "b", 1, 0))
		synctest.Wait()
		a.answers(prompt, `{"messageId":"sa.2"}`)
		wants(t, e, "1 ok", "s is idle error", "mine ended node_offline")
		w.set("a", false) // before it has taken the request to detach
		_ = a.Close()
		wants(t, e, "a offline")
		time.Sleep(giveUp + replayBound)
		wants(t, e)
	})
}

// A prompt comes while a request to close its session, which the client has not opened, is done. The answer to the close takes nothing of the
// session away.
func TestOrder_AskedBehindACloseInAMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		w.found["s"] = "a"
		e := w.connect(plainHello, acp.OneStream)
		e.send(`{"jsonrpc":"2.0","id":1,"method":"session/close","params":{"sessionId":"s"}}`)
		a := w.dialed("a")
		closing := a.takes("session/close")
		e.send(`{"jsonrpc":"2.0","id":2,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`)
		w.g.Owned(stays("a", "b"))
		a.answers(closing, `{}`)
		a.resumed()
		synctest.Wait()
		w.g.Owned(stays("a", ""))
		prompt := a.takes("session/prompt")
		a.says("%s", update("s", 7, "hello"))
		a.answers(prompt, `{"stopReason":"end_turn"}`)
		wants(t, e, "1 ok", "s hello", "2 ok")
	})
}

// A session that is to be deleted moves on before the node that it went to is asked. Only what is left of it there is deleted, and the client
// is not told that the session is.
func TestMoved_DeletedAsItMovesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "a", "b")
		e := w.connect(plainHello, acp.OneStream)
		a := w.opens(e, "a", "s")
		e.send(`{"jsonrpc":"2.0","id":1,"method":"session/delete","params":{"sessionId":"s"}}`)
		asked := a.takes("session/delete")
		w.g.Owned(stays("a", "b"))
		a.answers(asked, `{"_meta":{"sandboxagent.dev":{"movedTo":"node://b"}}}`)
		w.g.Owned(went("a", "b", 0, 0))
		a.takes(methodDetach)
		b := w.dialed("b")
		b.resumed()
		b.answers(b.takes("session/delete"), `{"_meta":{"sandboxagent.dev":{"movedTo":"node://a"}}}`)
		if got := e.got(); !slices.Contains(got, "1 conflict") {
			t.Errorf("the client was given %q", got)
		}
	})
}
