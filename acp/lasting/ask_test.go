package lasting

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
)

func allow(id int) acp.Message {
	return acp.NewResult(acp.IntID(int64(id)), []byte(`{"outcome":"yes"}`))
}

// An answer that a connection did not take goes to the request as the next
// connection offers it. The request that has the old number there is another one.
func TestConn_AnAnswerMeetsABreak(t *testing.T) {
	for _, when := range []string{"under way", "behind another message", "after the break", "before it is offered again"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				one, two := newWire(), newWire()
				c := New(Options{Dial: dials(one, two)})
				attached(t, c, one)
				one.asks(7, 5)
				reads(t, c)
				one.stuck = true
				lost := 0
				switch when {
				case "under way":
					go write(t, c, allow(7))
				case "behind another message":
					lost = 1
					go write(t, c, note(0))
					synctest.Wait()
					go write(t, c, allow(7))
				}
				synctest.Wait()
				one.breakRead()
				one.breakWrite()
				if when == "after the break" {
					synctest.Wait()
					write(t, c, allow(7))
				}
				two.welcome(t)
				if when == "before it is offered again" {
					write(t, c, allow(7))
				}
				two.asks(7, 6)
				two.asks(9, 5)
				two.reattached(t, `[{"seq":5},{"seq":6}]`)
				var answers []string
				for range lost + 1 {
					m := <-two.toGateway
					if m.IsResponse() {
						answers = append(answers, frame(m))
					}
				}
				if got := fmt.Sprint(answers); got != fmt.Sprint([]string{frame(allow(9))}) {
					t.Errorf("the gateway was answered %s", got)
				}
				go write(t, c, note(1))
				if m := <-two.toGateway; frame(m) != frame(note(1)) {
					t.Errorf("%s came behind the answer", m.Frame())
				}
				_ = c.Close()
			})
		})
	}
}

// Nobody waits for the answer to a request that was withdrawn. It does not reach
// another request that has its number on the next connection.
func TestConn_ALateAnswerAnswersNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two := newWire(), newWire()
		c := New(Options{Dial: dials(one, two)})
		attached(t, c, one)
		one.asks(7, 5)
		reads(t, c)
		one.says(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":7}}`)
		reads(t, c)
		one.breakRead()
		one.breakWrite()
		synctest.Wait()
		write(t, c, allow(7)) // when the client answered, it did not know
		write(t, c, note(0))
		two.welcome(t)
		two.asks(7, 6)
		two.reattached(t, `[{"seq":6}]`)
		if m := <-two.toGateway; frame(m) != frame(note(0)) {
			t.Errorf("the gateway was sent %s", m.Frame())
		}
		_ = c.Close()
	})
}

// A session that a waiting session/load will open is not opened before it.
func TestConn_ALoadThatWaitsOpensItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one, two, three := newWire(), newWire(), newWire()
		c := New(Options{Dial: dials(one, two, three)})
		begin(t, c, one)
		one.breakRead()
		one.breakWrite()
		time.Sleep(time.Millisecond)
		write(t, c, acp.NewRequest(acp.IntID(2), acp.MethodSessionLoad, []byte(`{"sessionId":"s","cwd":"/"}`)))
		two.welcome(t)
		two.replies(t, acp.MethodSessionLoad, `{}`)
		reads(t, c)
		two.breakRead()
		three.welcome(t)
		three.reattached(t, `[]`)
		_ = c.Close()
	})
}
