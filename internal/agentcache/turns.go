package agentcache

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

// heavy has how many seats agents take that keep a whole processor busy while they start, and
// OpenCode much longer. Others take one.
var heavy = map[string]int{"claude": 2, "copilot": 2, "gemini": 2, "opencode": 3, "opencode-acp": 3, "qwen": 2}

// seats is how much of the machine real agents may use at once. An agent that
// runs keeps half a processor busy: the rest of the time it waits for its model,
// for a command, or for the end of another. A container has as many processors as its quota. What computes in the rest of a run stands behind them.
func seats() int { return 3 * max(2, runtime.GOMAXPROCS(0)) }

// maxWait bounds the wait for a turn: with a whole suite in front of it, a test
// waits for minutes.
const maxWait = 30 * time.Minute

// Turn waits until the machine has room for an agent's processes, and keeps the
// room until the test ends. Those who wait are served in the order in which they
// came. While a run of the whole suite is under way, its packages share one queue
// (see [Serve]); otherwise each test program has its own.
//
// A test has one turn: it and its subtests do not wait again, since two tests that
// each hold seats and wait for more would wait for each other. A parallel test asks
// after t.Parallel: one that is paused there would keep its seats.
func Turn(t testing.TB, agent string) {
	t.Helper()
	NotShort(t)
	if hasTurn(t.Name()) {
		return
	}
	weight := max(1, heavy[agent])
	ctx, cancel := context.WithTimeout(t.Context(), maxWait)
	defer cancel()
	leave, err := seat(ctx, weight)
	if err != nil {
		t.Fatalf("wait for a turn with %s: %v", agent, err)
	}
	turns.Store(t.Name(), nil)
	t.Cleanup(func() {
		turns.Delete(t.Name())
		leave()
	})
}

// turns has the names of this program's tests that have their turn.
var turns sync.Map

// hasTurn tells whether a test or one that it is a part of has its turn.
func hasTurn(test string) bool {
	for {
		if _, ok := turns.Load(test); ok {
			return true
		}
		i := strings.LastIndexByte(test, '/')
		if i < 0 {
			return false
		}
		test = test[:i]
	}
}

// handover is how long a test waits for another run to keep the queue, after the
// one that kept it has ended.
const handover = time.Second

// seat waits for seats in the queue of the run of the whole suite, and in this
// program's own if there is no such run.
func seat(ctx context.Context, weight int) (leave func(), err error) {
	var until time.Time
	for {
		leave, err := ask(ctx, weight)
		switch {
		case err == nil:
			return leave, nil
		case ctx.Err() != nil:
			return nil, err
		case errors.Is(err, errEnded):
			until = time.Now().Add(handover)
		case time.Now().After(until):
			return own().enter(ctx, weight)
		}
		time.Sleep(takeOver / 2)
	}
}

// LongTier begins the reason of tests that [Long] skips.
const LongTier = "long tier: "

// IsLong reports whether this is a run of the long tier.
func IsLong() bool { return os.Getenv("SANDBOX_AGENT_LONG") != "" }

// NotShort skips a test that needs a real agent in a short run.
func NotShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("real agents are left out of short runs: they are downloaded and take minutes")
	}
}

// LongAgentsVar names agents, separated by blanks, whose tests run as in the long
// tier: those whose folders were changed.
const LongAgentsVar = "SANDBOX_AGENT_LONG_AGENTS"

// Long skips tests that belong to the long tier: other versions of an agent, and
// combinations that the normal suite shows in another way.
func Long(t testing.TB, reason string) {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if !IsLong() && !isOf(os.Getenv(LongAgentsVar), dir, t.Name()) {
		t.Skip(LongTier + reason)
	}
}

// isOf reports whether a test of a package is one of an agent's: the folder has
// the agent's name, or a part of the test's name begins with it.
func isOf(agents, dir, test string) bool {
	parts := append(strings.FieldsFunc(test, func(r rune) bool { return r == '/' || r == '_' }), filepath.Base(dir))
	for agent := range strings.FieldsSeq(agents) {
		for _, part := range parts {
			if len(part) < len(agent) || !strings.EqualFold(part[:len(agent)], agent) {
				continue
			}
			next, _ := utf8.DecodeRuneInString(part[len(agent):])
			if !unicode.IsLower(next) || next == utf8.RuneError {
				return true
			}
		}
	}
	return false
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

// maxAddress is how long a socket's path may be; the smallest limit is that of
// macOS, 104 bytes with the zero at the end.
const maxAddress = 100

// address is where the run of the whole suite keeps the queue: in the cache, or
// where that has too long a name, in the folder for temporary files.
func address() (string, error) {
	dir, err := Dir()
	path := filepath.Join(dir, "turns.sock")
	if len(path) > maxAddress {
		sum := sha256.Sum256([]byte(path))
		path = filepath.Join(os.TempDir(), fmt.Sprintf("agent-turns-%d-%x.sock", os.Getuid(), sum[:6]))
	}
	return path, err
}

// takeOver is how often a run looks whether the one that keeps the queue is gone.
const takeOver = 100 * time.Millisecond

// Serve keeps one queue for all test programs of this machine until ctx ends.
// It returns false when another run serves them already; this one takes its place
// when it ends. A test holds its seats as long as its connection, so a test program
// that dies gives them back.
func Serve(ctx context.Context) (bool, error) {
	q, err := keep(ctx)
	return q != nil, err
}

// keep returns the queue of [Serve], nil when another run serves.
func keep(ctx context.Context) (*queue, error) {
	path, err := address()
	if err != nil {
		return nil, err
	}
	dir, err := Dir()
	if err != nil {
		return nil, err
	}
	// Who has the lock serves. Whether somebody answers at the address tells less:
	// two runs that begin at once would remove each other's socket.
	f, err := os.OpenFile(filepath.Join(dir, "turns.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the lock of the queue: %w", err)
	}
	taken, err := tryLock(f)
	if err != nil || taken {
		var q *queue
		if err == nil {
			q, err = serve(ctx, path, f)
		}
		if err != nil {
			_ = f.Close()
		}
		if errors.Is(err, errors.ErrUnsupported) {
			return nil, nil // each test program has its own queue
		}
		return q, err
	}
	go func() {
		tick := time.NewTicker(takeOver)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				_ = f.Close()
				return
			case <-tick.C:
			}
			taken, err := tryLock(f)
			if err == nil && taken {
				_, err = serve(ctx, path, f)
			}
			if err != nil {
				_ = f.Close()
			}
			if err != nil || taken {
				return
			}
		}
	}()
	return nil, nil
}

// serve keeps the queue at path until ctx ends. It then closes the lock, which is
// taken.
func serve(ctx context.Context, path string, lock io.Closer) (*queue, error) {
	_ = os.Remove(path) // left by a run that was killed
	l, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen for tests that want a turn: %w", err)
	}
	q := &queue{free: seats()}
	context.AfterFunc(ctx, func() {
		_ = l.Close() // removes the socket, which must still be this run's
		_ = lock.Close()
	})
	go func() {
		for {
			c, err := l.Accept()
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				if err == nil {
					_ = c.Close()
				}
				return
			}
			if err != nil { // too many open files, for example: those who wait are not forgotten
				time.Sleep(takeOver)
				continue
			}
			go q.serve(ctx, c)
		}
	}()
	return q, nil
}

// serve is one test: it says its weight, hears that it has its turn, and closes
// the connection when it ends.
func (q *queue) serve(ctx context.Context, c net.Conn) {
	defer c.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(ctx, func() { _ = c.SetReadDeadline(time.Unix(1, 0)) })
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
	leave, err := q.enter(ctx, weight)
	if err == nil {
		_, _ = io.WriteString(c, "go\n")
		<-gone
		leave()
	}
	cancel()
	<-gone
}

// errEnded says that the run that kept the queue has ended.
var errEnded = errors.New("the queue of turns was closed")

// ask waits for a turn in the queue of the run of the whole suite. It fails when
// there is none, or with errEnded when it ends meanwhile.
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
	var word string
	if _, err = fmt.Fprintln(c, weight); err == nil {
		_, err = fmt.Fscanln(c, &word)
	}
	if !stop() || err != nil || word != "go" {
		_ = c.Close()
		return nil, errors.Join(errEnded, err, ctx.Err())
	}
	return func() { _ = c.Close() }, nil
}
