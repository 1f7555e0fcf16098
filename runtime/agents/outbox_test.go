package agents

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/internal/memory"
	"sandboxagent.dev/sandbox-agent/runtime/observe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// slowAgent reads one message each time it is let, after initialize.
type slowAgent struct {
	let  chan struct{}
	init chan acp.Message
	end  chan struct{}
	once sync.Once
	mu   sync.Mutex
	read []string
}

func (c *slowAgent) Info() adapters.Info                                      { return adapters.Info{ID: "slow"} }
func (c *slowAgent) Open(context.Context, adapters.Options) (acp.Conn, error) { return c, nil }
func (c *slowAgent) Close() error                                             { c.once.Do(func() { close(c.end) }); return nil }

func (c *slowAgent) Read(context.Context) (acp.Message, error) {
	select {
	case m := <-c.init:
		return acp.NewResult(m.ID(), []byte(`{}`)), nil
	case <-c.end:
		return acp.Message{}, io.EOF
	}
}

func (c *slowAgent) Write(_ context.Context, m acp.Message) error {
	if m.Method() == "initialize" {
		c.init <- m.Clone()
		return nil
	}
	select {
	case <-c.let:
	case <-c.end:
		return io.ErrClosedPipe
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read = append(c.read, m.Method())
	return nil
}

// processOf starts a process of the agent; end ends it, and all that belongs to it.
func processOf(t *testing.T, a adapters.Adapter, bound *memory.Bound) (p *Process, end func()) {
	t.Helper()
	var tasks Tasks
	set, err := NewSet(Options{
		Adapters: []adapters.Adapter{a}, Observer: observe.Nobody{}, Logger: slog.New(slog.DiscardHandler), Tasks: &tasks, RequestTimeout: time.Minute, Memory: bound,
		Connection: func(*Process, *acp.Message) {}, Ended: func(*Process) {},
	})
	if err != nil {
		t.Fatal(err)
	}
	if p, err = set.Find(a.Info().ID).Process(t.Context(), Needs{Capabilities: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	return p, func() {
		t.Helper()
		p.Release()
		if err := set.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if err := tasks.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// An agent that reads slowly gets everything in the order in which it was sent,
// however it was sent; senders wait at the bound; a cancellation is not repeated,
// and one behind a prompt is not taken for one before it.
func TestOutbox_KeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &slowAgent{let: make(chan struct{}), init: make(chan acp.Message, 1), end: make(chan struct{})}
		bound := memory.NewBound(0)
		p, end := processOf(t, c, bound)
		message := func(method string) acp.Message { return acp.NewNotification(method, []byte("{}")) }
		want := []string{"first"}
		p.Put(message("first")) // its writer waits for the agent
		synctest.Wait()
		for i := range outboxLimit {
			want = append(want, fmt.Sprint("m", i), "cancel")
			if err := p.Send(t.Context(), message(fmt.Sprint("m", i))); err != nil {
				t.Fatal(err)
			}
			for range 100 {
				p.Put(message("cancel"))
			}
		}
		if used := bound.Used(); used < outboxLimit*20 {
			t.Errorf("what waits takes %d bytes of the memory", used)
		}
		waits := make(chan struct{})
		go func() { _ = p.Send(t.Context(), message("last")); close(waits) }()
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
		if used := bound.Used(); used != 0 {
			t.Errorf("%d bytes of the memory were not given back", used)
		}
		p.Put(message("never read"))
		synctest.Wait()
		end()
		if used := bound.Used(); used != 0 {
			t.Errorf("%d bytes of the memory were kept for a process that has ended", used)
		}
	})
}

// roomyAgent says whether a message would be taken at once.
type roomyAgent struct {
	slowAgent
	room func(n int) bool
}

func (c *roomyAgent) Open(context.Context, adapters.Options) (acp.Conn, error) { return c, nil }
func (c *roomyAgent) Room(n int) bool                                          { return c.room(n) }

// What is queued is written by who flushes it where the agent takes it at once, else without keeping
// anybody, and always in the order of each sender.
func TestOutbox_Flush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many = 3000
		var room atomic.Bool
		c := &roomyAgent{slowAgent{let: make(chan struct{}, many), init: make(chan acp.Message, 1), end: make(chan struct{})}, func(int) bool { return room.Load() }}
		p, end := processOf(t, c, memory.NewBound(0))
		message := func(method string) acp.Message { return acp.NewRequest(acp.IntID(1), method, []byte("{}")) }
		read := func() []string {
			c.mu.Lock()
			defer c.mu.Unlock()
			return slices.Clone(c.read)
		}
		p.Queue(message("now"))
		synctest.Wait()
		if got := read(); len(got) > 0 {
			t.Errorf("it was written before it was flushed: %v", got)
		}
		room.Store(true)
		c.let <- struct{}{}
		p.Flush()
		if got := read(); !slices.Equal(got, []string{"now"}) {
			t.Errorf("a flush that has room left %v written", got)
		}
		room.Store(false)
		p.Queue(message("later"))
		p.Flush() // returns, though nobody reads
		synctest.Wait()
		c.let <- struct{}{}
		synctest.Wait()
		if got := read(); !slices.Equal(got, []string{"now", "later"}) {
			t.Errorf("a flush without room left %v written", got)
		}

		for range many {
			c.let <- struct{}{}
		}
		c.room = func(int) bool { return rand.IntN(3) > 0 }
		const senders = 4
		var all sync.WaitGroup
		for sender := range senders {
			all.Go(func() {
				for i := range many / senders {
					m := message(fmt.Sprintf("%d %d", sender, i))
					switch rand.IntN(3) {
					case 0:
						p.Put(m)
					case 1:
						p.Queue(m)
						p.Flush()
					default:
						_ = p.Send(t.Context(), m)
					}
				}
			})
		}
		all.Wait()
		synctest.Wait()
		var next [senders]int
		for _, method := range read()[2:] {
			var sender, i int
			if _, err := fmt.Sscan(method, &sender, &i); err != nil || i != next[sender] {
				t.Fatalf("%q comes after %d of its sender", method, next[sender]-1)
			}
			next[sender]++
		}
		if next != [senders]int{many / senders, many / senders, many / senders, many / senders} {
			t.Errorf("%v were written", next)
		}
		end()
	})
}
