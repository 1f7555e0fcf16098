package lasting

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
)

// A gateway that takes connections only to end them is not asked without a pause. One that gives the client something
// on each is a gateway whose network is bad.
func TestConn_ConnectionsThatAreOfNoUse(t *testing.T) {
	for name, of := range map[string]struct {
		gives     bool
		low, high int // connections in a minute
	}{"of no use": {false, 8, 16}, "of use": {true, 100, 1 << 20}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dialed := 0
				c := New(Options{Take: func(acp.Message) {}, Dial: func(ctx context.Context) (acp.Conn, error) {
					dialed++
					w := newWire()
					says := []acp.Message{acp.NewResult(hello.ID(), []byte(`{"protocolVersion":1}`))}
					if of.gives {
						says = append(says, note(0))
					}
					go func() {
						defer w.breakWrite()
						defer w.breakRead()
						<-w.toGateway
						for _, m := range says {
							select {
							case w.toClient <- m:
							case <-w.closing:
							}
						}
						select {
						case <-time.After(100 * time.Millisecond):
						case <-w.closing:
						}
					}()
					return w, nil
				}})
				write(t, c, hello)
				time.Sleep(time.Minute)
				synctest.Wait()
				if dialed < of.low || dialed > of.high {
					t.Errorf("%d connections were made in a minute", dialed)
				}
				_ = c.Close()
			})
		})
	}
}
