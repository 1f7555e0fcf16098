package codex

import (
	"context"
	"fmt"
	goruntime "runtime"
	"sync"
	"testing"

	"github.com/sourcegraph/jsonrpc2"

	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// titled is a client that keeps the newest title.
type titled struct {
	latecomer
	first func()
	once  sync.Once
	mu    sync.Mutex
	title string
}

func (c *titled) Update(_ context.Context, _ schema.SessionID, update any) error {
	if u, ok := update.(schema.SessionUpdate); ok && u.SessionInfoUpdate != nil {
		c.mu.Lock()
		c.title = *u.SessionInfoUpdate.Title
		c.mu.Unlock()
		c.once.Do(c.first)
		for range 1000 { // the reader gets its turn
			goruntime.Gosched()
		}
	}
	return nil
}

// What was said of a thread before its session was known comes before what is said since.
func TestRegister_EarlierEventsComeFirst(t *testing.T) {
	var reader sync.WaitGroup
	client := &titled{}
	s := between(t, client, scripted(func(context.Context, *jsonrpc2.Conn, *jsonrpc2.Request) {}))
	a := s.a
	a.sessions, a.threads = map[schema.SessionID]*session{}, map[string]*session{}
	name := func(to string) *event { return &event{Method: "thread/name/updated", Thread: s.thread, ThreadName: to} }
	for i := range maxOrphans {
		a.take(s.srv, name(fmt.Sprint("early ", i)))
	}
	client.first = func() { reader.Go(func() { a.take(s.srv, name("new")) }) }
	if err := a.register(s); err != nil {
		t.Fatal(err)
	}
	reader.Wait()
	if client.title != "new" {
		t.Errorf("the title is %q", client.title)
	}
}
