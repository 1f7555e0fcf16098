package agentcache

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// heavy agents keep a whole processor busy while they start. They count as two.
var heavy = []string{"claude", "copilot", "gemini", "opencode", "opencode-acp", "qwen"}

// seats is how much of the machine real agents may use at once.
func seats() int { return 2 * runtime.NumCPU() }

// maxWait bounds the wait for a turn: with a whole suite in front of it, a test
// waits for minutes.
const maxWait = 30 * time.Minute

// Turn waits until the machine has room for an agent's processes, and keeps the
// room until the test ends. Those who wait are served in the order in which they
// came. While a run of the whole suite is under way, its packages share one queue
// (see [Serve]); otherwise each test program has its own.
func Turn(t testing.TB, agent string) {
	t.Helper()
	weight := 1
	if slices.Contains(heavy, agent) {
		weight = 2
	}
	ctx, cancel := context.WithTimeout(t.Context(), maxWait)
	defer cancel()
	leave, err := ask(ctx, weight)
	if err != nil {
		leave, err = own().enter(ctx, weight)
	}
	if err != nil {
		t.Fatalf("wait for a turn with %s: %v", agent, err)
	}
	t.Cleanup(leave)
}

// LongTier begins the reason of tests that [Long] skips.
const LongTier = "long tier: "

// Long skips tests that belong to the long tier: other versions of an agent, and
// combinations that the normal suite shows in another way.
func Long(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv("SANDBOX_AGENT_LONG") == "" {
		t.Skip(LongTier + reason)
	}
}

// queue gives seats to those who wait, in order: a heavy one at the head is not
// overtaken by light ones behind it.
type queue struct {
	mu      sync.Mutex
	free    int
	waiting []*waiter
}

type waiter struct {
	weight int
	seated chan struct{} // closed when it has its seats
}

var own = sync.OnceValue(func() *queue { return &queue{free: seats()} })

// enter waits for seats. leave gives them back and may be called once.
func (q *queue) enter(ctx context.Context, weight int) (leave func(), err error) {
	w := &waiter{weight: weight, seated: make(chan struct{})}
	q.mu.Lock()
	q.waiting = append(q.waiting, w)
	q.seatLocked()
	q.mu.Unlock()
	select {
	case <-w.seated:
		return func() { q.leave(weight) }, nil
	case <-ctx.Done():
	}
	q.mu.Lock()
	i := slices.Index(q.waiting, w)
	if i >= 0 {
		q.waiting = slices.Delete(q.waiting, i, i+1)
		q.seatLocked()
	}
	q.mu.Unlock()
	if i < 0 { // seated meanwhile
		q.leave(weight)
	}
	return nil, ctx.Err()
}

func (q *queue) leave(weight int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.free += weight
	q.seatLocked()
}

func (q *queue) seatLocked() {
	for len(q.waiting) > 0 && q.waiting[0].weight <= q.free {
		q.free -= q.waiting[0].weight
		close(q.waiting[0].seated)
		q.waiting = q.waiting[1:]
	}
}

// address is where the run of the whole suite keeps the queue.
func address() (string, error) {
	dir, err := Dir()
	return filepath.Join(dir, "turns.sock"), err
}

// Serve keeps one queue for all test programs of this machine until ctx ends.
// It returns false when another run serves them already. A test holds its seats
// as long as its connection, so a test program that dies gives them back.
func Serve(ctx context.Context) (bool, error) {
	path, err := address()
	if err != nil {
		return false, err
	}
	if c, err := net.Dial("unix", path); err == nil {
		return false, c.Close()
	}
	_ = os.Remove(path) // left by a run that was killed
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return false, fmt.Errorf("listen for tests that want a turn: %w", err)
	}
	q := &queue{free: seats()}
	context.AfterFunc(ctx, func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go q.serve(ctx, c)
		}
	}()
	return true, nil
}

// serve is one test: it says its weight, hears that it has its turn, and closes
// the connection when it ends.
func (q *queue) serve(ctx context.Context, c net.Conn) {
	defer c.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var weight int
	r := bufio.NewReader(c)
	if _, err := fmt.Fscanln(r, &weight); err != nil || weight < 1 || weight > seats() {
		return
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		defer cancel()
		_, _ = io.Copy(io.Discard, r)
	}()
	context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
	leave, err := q.enter(ctx, weight)
	if err == nil {
		_, _ = io.WriteString(c, "go\n")
		<-gone
		leave()
	}
	cancel()
	<-gone
}

// ask waits for a turn in the queue of the run of the whole suite. It fails when
// there is none, or when it ends meanwhile.
func ask(ctx context.Context, weight int) (leave func(), err error) {
	path, err := address()
	if err != nil {
		return nil, err
	}
	c, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("no run of the whole suite: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	var word string
	if _, err = fmt.Fprintln(c, weight); err == nil {
		_, err = fmt.Fscanln(c, &word)
	}
	if err != nil || word != "go" {
		_ = c.Close()
		return nil, errors.Join(fmt.Errorf("the queue of turns was closed"), err, ctx.Err())
	}
	return func() { _ = c.Close() }, nil
}
