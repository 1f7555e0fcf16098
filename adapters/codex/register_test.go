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
	wants chan *schema.RequestPermissionRequest // what it is asked
}

func (c *titled) Ask(_ context.Context, _ string, params, _ any) error {
	c.wants <- params.(*schema.RequestPermissionRequest)
	return nil
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

// A question that comes while a session is registered comes behind what was said of its thread before, such as the call that it is about.
func TestRegister_QuestionsComeBehindEarlierEvents(t *testing.T) {
	client := &titled{wants: make(chan *schema.RequestPermissionRequest, 1)}
	s := between(t, client, scripted(func(context.Context, *jsonrpc2.Conn, *jsonrpc2.Request) {}))
	a := s.a
	a.sessions, a.threads = map[schema.SessionID]*session{}, map[string]*session{}
	a.opens(s.thread)
	for i := range maxOrphans {
		a.take(s.srv, &event{Method: "thread/name/updated", Thread: s.thread, ThreadName: fmt.Sprint("early ", i)})
	}
	edit := &item{ID: "c", Type: "fileChange", Status: "inProgress", Changes: []change{{Path: "/a.txt", Diff: "new"}}}
	edit.Changes[0].Kind.Type = "add"
	a.take(s.srv, &event{Method: "item/started", Thread: s.thread, TurnID: "own", Item: edit})
	var reader sync.WaitGroup
	client.first = func() {
		reader.Go(func() {
			s.srv.asked(jsonrpc2.ID{Num: 1}, "item/fileChange/requestApproval", []byte(`{"threadId":"T","turnId":"own","itemId":"c"}`))
		})
	}
	if err := a.register(s); err != nil {
		t.Fatal(err)
	}
	reader.Wait()
	if r := <-client.wants; len(r.ToolCall.Content) == 0 {
		t.Error("the question is shown without the diff that it is about")
	}
	s.finish()
	s.work.Wait()
}
