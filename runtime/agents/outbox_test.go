package agents

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"

	"sandboxagent.dev/sandbox-agent/acp"
)

// slowConn is an agent that reads one message each time it is let.
type slowConn struct {
	*fakeConn
	let  chan struct{}
	mu   sync.Mutex
	read []string
}

func (c *slowConn) Write(_ context.Context, m acp.Message) error {
	select {
	case <-c.let:
	case <-c.end:
		return errCrash
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read = append(c.read, m.Method())
	return nil
}

// An agent that reads slowly gets everything in the order in which it was sent,
// however it was sent; senders wait at the bound; a cancellation is not repeated,
// and one behind a prompt is not taken for one before it.
func TestOutbox_KeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &slowConn{fakeConn: &fakeConn{agent: &fakeAgent{}, out: make(chan acp.Message), end: make(chan struct{})}, let: make(chan struct{})}
		r, err := New(Options{Ephemeral: true})
		if err != nil {
			t.Fatal(err)
		}
		p := newProc(newAgent(r, &fakeAgent{id: "a"}), "k", c, new(backoff))
		frame := func(method string) []byte { n := acp.NewNotification(method, []byte("{}")); return n.Frame() }
		want := []string{"first"}
		p.trySend(frame("first")) // its writer waits for the agent
		synctest.Wait()
		for i := range outboxLimit {
			want = append(want, fmt.Sprint("m", i), "cancel")
			if err := p.send(t.Context(), frame(fmt.Sprint("m", i))); err != nil {
				t.Fatal(err)
			}
			for range 100 {
				p.trySend(frame("cancel"))
			}
		}
		waits := make(chan struct{})
		go func() { _ = p.send(t.Context(), frame("last")); close(waits) }()
		synctest.Wait()
		select {
		case <-waits:
			t.Error("the queue took more than its bound")
		default:
		}
		want = append(want, "last")
		for range want {
			c.let <- struct{}{}
			synctest.Wait()
		}
		<-waits
		if got, want := fmt.Sprint(c.read), fmt.Sprint(want); got != want {
			t.Errorf("the agent read\n%s\nwant\n%s", got, want)
		}
		p.close(errUnused)
		if err := r.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
