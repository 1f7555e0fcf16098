package relay

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

const secondHello = `{"protocolVersion":2,"info":{"name":"n","version":"1"},"capabilities":{}}`

// of is a message of a subagent as a gateway numbers it.
func of(root, frame string) string {
	i := strings.LastIndex(frame, `"seq":`)
	return frame[:i] + fmt.Sprintf(`"rootSessionId":%q,`, root) + frame[i:]
}

func asks(id int, session string, seq int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"session/request_permission","params":{"sessionId":%q,"_meta":{"sandboxagent.dev":{"seq":%d}}}}`, id, session, seq)
}

// subagents is a hub of nodes whose client has opened session s at node a and t at node b.
func subagents(t *testing.T) (w *world, e *editor, a, b *wire) {
	t.Helper()
	w = newWorld(t, "a", "b")
	w.two = true
	w.found["s"], w.found["t"] = "a", "b"
	e = w.connect(secondHello, acp.OneStream)
	var wires []*wire
	for i, s := range []string{"s", "t"} {
		e.send(`{"jsonrpc":"2.0","id":%d,"method":"session/resume","params":{"sessionId":%q,"cwd":"/"}}`, i+1, s)
		c := w.dialed(w.found[s])
		c.answers(c.takes("session/resume"), `{}`)
		wants(t, e, fmt.Sprint(i+1)+" ok")
		wires = append(wires, c)
	}
	return w, e, wires[0], wires[1]
}

// What a subagent says is its session's, also when nobody has announced it, as when it began before the client came.
func TestSubagent_NotAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, e, a, b := subagents(t)
		a.says("%s", of("s", asks(7, "s.c", 5)))
		a.says("%s", of("s", update("s.c", 6, "says")))
		b.says("%s", of("s", update("x", 6, "of another node's session")))
		b.says("%s", of("s", asks(7, "x", 7)))
		b.says("%s", update("s.c", 8, "of none"))
		wants(t, e, "asked 1", "s.c says")

		e.send(`{"jsonrpc":"2.0","id":3,"method":"_sandboxagent/session/pending","params":{"sessionId":"s"}}`)
		a.answers(a.takes("_sandboxagent/session/pending"), `{"pending":[{"requestId":7,"seq":5},{"requestId":1,"seq":9}]}`)
		res := e.gets()[0]
		if list, _ := rawjson.Member(res.Result(), "pending"); string(list) != `[{"requestId":1,"seq":5},{"seq":9}]` {
			t.Errorf("open are %s", list)
		}
		w.set("a", false)
		_ = a.Close()
		synctest.Wait()
		w.set("a", true)
		a = w.dialed("a")
		resume := a.takes("session/resume")
		a.says("%s", of("s", asks(7, "s.c", 5))) // it is open still
		a.says("%s", of("s", asks(8, "s.c", 9)))
		a.answers(resume, `{}`)
		a.answers(a.takes("_sandboxagent/session/pending"), `{"pending":[{"requestId":7,"seq":5},{"requestId":8,"seq":9}]}`)
		wants(t, e, "asked 2")
		for ask, want := range map[int]string{1: "7", 2: "8"} {
			e.send(`{"jsonrpc":"2.0","id":%d,"result":{}}`, ask)
			if m := a.takes(""); string(m.ID()) != want {
				t.Errorf("the answer to %d answers %s at the node, want %s", ask, m.ID(), want)
			}
		}
	})
}

// A gateway of an earlier version does not say whose a subagent is. It is known when it was announced, also
// behind more of them than are kept; its open request is asked once.
func TestSubagent_OfAnOlderGateway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, e, a, _ := subagents(t)
		for i := range maxChildren + 1 {
			a.says(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"subagent_update","sessionId":"c%d"}}}`, i)
			if i%1000 == 0 {
				e.gets()
			}
		}
		e.gets()
		a.says("%s", asks(7, fmt.Sprint("c", maxChildren), 5))
		a.says("%s", asks(7, fmt.Sprint("c", maxChildren), 5))
		wants(t, e, "asked 1")
		a.says("%s", asks(7, fmt.Sprint("c", maxChildren), 9)) // it was started anew, and counts from one
		wants(t, e, `$/cancel_request {"requestId":1}`, "asked 2")
	})
}

// A session that the client leaves and opens again asks again what is open.
func TestSubagent_LeftAndOpenedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, e, a, _ := subagents(t)
		a.says("%s", of("s", asks(7, "s.c", 5)))
		wants(t, e, "asked 1")
		e.send(`{"jsonrpc":"2.0","id":3,"method":"_sandboxagent/session/detach","params":{"sessionId":"s"}}`)
		a.answers(a.takes("_sandboxagent/session/detach"), `{}`)
		wants(t, e, "3 ok")
		e.send(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		a.takesNothing() // as at a gateway, who has left has no say
		e.send(`{"jsonrpc":"2.0","id":4,"method":"session/resume","params":{"sessionId":"s","cwd":"/"}}`)
		a.says("%s", of("s", asks(7, "s.c", 5)))
		a.answers(a.takes("session/resume"), `{}`)
		wants(t, e, "asked 2", "4 ok")
	})
}

// A subagent can be cancelled, and a call of it, by its own id. All else the node says. A session that has the id comes first.
func TestSubagent_Cancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, e, a, b := subagents(t)
		e.send(`{"jsonrpc":"2.0","id":8,"method":"session/resume","params":{"sessionId":"s","cwd":"/"}}`)
		a.answers(a.takes("session/resume"), `{"_meta":{"sandboxagent.dev":{"subagents":["s.q",0]}}}`)
		wants(t, e, "8 ok")
		e.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s.q"}}`) // it has said nothing yet
		if m := a.takes("session/cancel"); m.Session() != "s.q" {
			t.Errorf("the node is sent %s", m.Frame())
		}
		a.says("%s", of("s", update("s.c", 5, "says")))
		a.says("%s", of("s", update("u", 6, "says"))) // as a session of the other node is called
		w.found["u"] = "b"
		wants(t, e, "s.c says", "u says")
		for _, at := range []string{"", `,"_meta":{"sandboxagent.dev":{"node":"a"}}`} {
			e.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s.c"%s}}`, at)
			if m := a.takes("session/cancel"); m.Session() != "s.c" {
				t.Errorf("the node is sent %s", m.Frame())
			}
			for i, method := range []string{"tool_call/cancel", "session/prompt", "_sandboxagent/session/get"} {
				e.send(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{"sessionId":"s.c","toolCallId":"t"%s}}`, 3+i, method, at)
				m := a.takes(method)
				if m.Session() != "s.c" {
					t.Errorf("the node is sent %s", m.Frame())
				}
				a.answers(m, `{}`)
				wants(t, e, fmt.Sprint(3+i)+" ok")
			}
		}
		a.says("%s", of("s", update("s.c", 7, "goes on")))
		wants(t, e, "s.c goes on")
		e.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"u"}}`)
		if m := b.takes("session/cancel"); m.Session() != "u" {
			t.Errorf("the node is sent %s", m.Frame())
		}
		e.send(`{"jsonrpc":"2.0","id":9,"method":"session/cancel","params":{"sessionId":"s.d"}}`)
		wants(t, e, "9 session_not_found")

		w.set("a", false)
		_ = a.Close()
		synctest.Wait()
		e.send(`{"jsonrpc":"2.0","id":10,"method":"tool_call/cancel","params":{"sessionId":"s.c","toolCallId":"t"}}`)
		wants(t, e, "10 node_offline")
	})
}
