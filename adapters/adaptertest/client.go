package adaptertest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/acptest"
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

const (
	quotedFrames = 40  // how many of the last frames a failure quotes
	quotedBytes  = 240 // and how much of each
)

// methodProbe is a request that no agent knows.
const methodProbe = "_adaptertest/probe"

// client is the gateway's end of one Conn. One goroutine, which close waits for,
// reads and notes every frame; questions about order are questions about
// positions in frames. The methods that fail the test are called from the
// test's own goroutine only, t being the test of the contract that uses it.
type client struct {
	t    testing.TB
	s    *suite
	conn acp.Conn
	ctx  context.Context // of every call; close ends what waits
	cwd  string
	rec  *acptest.Recorder
	two  *acptest.Validator // of frames that are for clients of version 2
	tap  *tap

	work   sync.WaitGroup // the reader, and calls of the Conn
	closed sync.Once
	wake   chan struct{} // cap 1: frames has grown
	ended  chan struct{} // closed when reading has ended
	end    error         // why; valid when ended is closed
	lastID int64

	bound      context.CancelFunc // ends the context with which it was opened
	before     map[process]bool   // what ran when it was opened; of shared connections only
	goroutines goleak.Option      // likewise

	hello  *schema.InitializeResponse
	first  schema.SessionID // "" until a contract needed it
	second schema.SessionID // "" until a contract needed two

	mu     sync.Mutex
	where  string        // name of t
	frames []acp.Message // from the agent, in the order they arrived
	quotes []string      // both directions, the last quotedFrames
}

// open opens a connection and closes it at the end of the test at the latest.
func (s *suite) open(t testing.TB) *client {
	t.Helper()
	c := s.openWith(t, t, filepath.Join(t.TempDir(), "state"), t.TempDir())
	t.Cleanup(c.close)
	return c
}

// connected returns the shared connection, initialized.
func (s *suite) connected(t testing.TB) *client {
	t.Helper()
	if s.shared == nil {
		before, goroutines := proc.descendants(os.Getpid()), goleak.IgnoreCurrent()
		s.shared = s.openWith(t, s.owner, s.state, s.cwd)
		s.shared.before, s.shared.goroutines = before, goroutines
		s.shares++
		s.shared.initialize()
	}
	s.shared.use(t)
	return s.shared
}

// drop closes the shared connection. Who asks for it next gets another one.
func (s *suite) drop(t testing.TB) {
	t.Helper()
	if c := s.shared; c != nil {
		s.shared = nil
		c.use(t)
		c.close()
	}
}

// openWith opens a connection for t, which the caller closes. It lasts as long as
// owner at most.
func (s *suite) openWith(t, owner testing.TB, stateDir, cwd string) *client {
	t.Helper()
	c := &client{
		s: s, ctx: context.WithoutCancel(owner.Context()), cwd: cwd, rec: acptest.NewRecorder(owner), two: acptest.NewFor(owner, 2), tap: &tap{},
		wake: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	c.use(t)
	if s.Cwd != "" {
		c.cwd = s.Cwd
	}
	o := s.Options
	o.StateDir, o.Logger, o.Tap = stateDir, discard, c.tap
	// Nothing ends it before the connection's end, so that only the contract about it
	// depends on what its end does.
	ctx, bound := context.WithCancel(context.WithoutCancel(t.Context()))
	c.bound = bound
	err := c.within("Open", func() (err error) {
		c.conn, err = s.Adapter.Open(ctx, o)
		return err
	})
	if err != nil {
		c.bound()
		t.Fatalf("Open: %v", err)
	}
	c.work.Go(c.read)
	return c
}

// use makes t the test that fails when the connection does.
func (c *client) use(t testing.TB) {
	c.t = t
	c.mu.Lock()
	defer c.mu.Unlock()
	c.where = t.Name()
}

// read notes every frame until reading fails.
func (c *client) read() {
	defer close(c.ended)
	for {
		m, err := c.conn.Read(c.ctx)
		if err != nil {
			c.end = err
			return
		}
		m = m.Clone()           // m is valid until the next Read
		two := m.Version() == 2 // it is for clients of that version, whose schema it has to fit
		if two {
			err = c.two.ValidateFrame(m.Frame(), nil)
		} else {
			err = c.rec.Gateway(m.Frame())
		}
		c.mu.Lock()
		c.s.judge(c.where, err)
		if !two {
			c.frames = append(c.frames, m)
		}
		c.quoteLocked("<- ", m.Frame())
		c.mu.Unlock()
		select {
		case c.wake <- struct{}{}:
		default:
		}
	}
}

// judge notes what the schema says about a frame of the agent.
func (s *suite) judge(where string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.frames++
	if err != nil {
		s.violations = append(s.violations, where+": "+err.Error())
	}
}

func (c *client) quoteLocked(direction string, frame []byte) {
	quote := string(frame[:min(len(frame), quotedBytes)])
	if len(frame) > quotedBytes {
		quote += fmt.Sprintf("... (%d bytes)", len(frame))
	}
	c.quotes = append(c.quotes, direction+quote)
	if len(c.quotes) > quotedFrames {
		c.quotes = c.quotes[1:]
	}
}

// fatalf ends the test and quotes the last frames.
func (c *client) fatalf(format string, args ...any) {
	c.t.Helper()
	c.mu.Lock()
	quotes := strings.Join(c.quotes, "\n\t")
	c.mu.Unlock()
	select {
	case <-c.ended:
		quotes += fmt.Sprintf("\n\treading ended: %v", c.end)
	default:
	}
	c.t.Fatalf("%s; the last frames:\n\t%s", fmt.Sprintf(format, args...), quotes)
}

var errPatience = errors.New("did not return in time")

// within calls f in a goroutine that close waits for, for as long as patience
// lasts.
func (c *client) within(what string, f func() error) error {
	returned := make(chan error, 1)
	c.work.Go(func() { returned <- f() })
	limit := time.NewTimer(c.s.Patience)
	defer limit.Stop()
	select {
	case err := <-returned:
		return err
	case <-limit.C:
		return fmt.Errorf("%s %w", what, errPatience)
	}
}

// close closes the connection, once, and waits for all goroutines of c.
func (c *client) close() {
	c.closed.Do(func() {
		defer c.bound()
		if c.conn == nil {
			return
		}
		if err := c.within("Close", c.conn.Close); err != nil {
			c.t.Errorf("Close: %v", err)
		}
		c.wait()
	})
}

// wait waits for the goroutines of c once the connection was closed.
func (c *client) wait() {
	done := make(chan struct{})
	go func() {
		c.work.Wait()
		close(done)
	}()
	limit := time.NewTimer(c.s.Patience)
	defer limit.Stop()
	select {
	case <-done:
	case <-limit.C:
		c.t.Errorf("Close did not end a pending Read or Write")
	}
}

func (c *client) write(m acp.Message) {
	c.t.Helper()
	c.note(m)
	if err := c.within("Write", func() error { return c.conn.Write(c.ctx, m) }); err != nil {
		c.fatalf("Write: %v", err)
	}
}

// note records a frame that is about to be written.
func (c *client) note(m acp.Message) {
	c.rec.Client(m.Frame())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.quoteLocked("-> ", m.Frame())
}

// seen returns how many frames have arrived.
func (c *client) seen() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.frames)
}

// between returns the frames from one position to another.
func (c *client) between(from, to int) []acp.Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.frames[from:to:to]
}

// await returns the position of the first frame at or behind from that matches,
// and the frame.
func (c *client) await(from int, what string, match func(m *acp.Message) bool) (int, *acp.Message) {
	c.t.Helper()
	limit := time.NewTimer(c.s.Patience)
	defer limit.Stop()
	for at := from; ; {
		over := false
		select {
		case <-c.ended:
			over = true // and every frame has been noted
		default:
		}
		for n := c.seen(); at < n; at++ {
			if m := &c.between(at, at+1)[0]; match(m) {
				return at, m
			}
		}
		if over {
			c.fatalf("the connection ended before %s", what)
		}
		select {
		case <-c.wake:
		case <-c.ended:
		case <-limit.C:
			c.fatalf("%s did not come in time", what)
		}
	}
}

func (c *client) nextID() acp.ID {
	c.lastID++
	return acp.IntID(c.lastID)
}

// request sends a request with raw params and returns its id and the position
// at which to look for what it causes.
func (c *client) request(method string, params []byte) (id acp.ID, from int) {
	c.t.Helper()
	id, from = c.nextID(), c.seen()
	c.write(acp.NewRequest(id, method, params))
	return id, from
}

// response waits for the answer to a request.
func (c *client) response(id acp.ID, method string, from int) (at int, m *acp.Message) {
	c.t.Helper()
	return c.await(from, "the response "+string(id)+" to "+method, func(m *acp.Message) bool { return m.IsResponse() && m.ID() == id })
}

// call sends a request, decodes its result and returns its error.
func (c *client) call(method string, params, result any) *acp.Error {
	c.t.Helper()
	id, from := c.request(method, c.encode(params))
	_, m := c.response(id, method, from)
	if e := m.Err(); e != nil {
		return e
	}
	if result != nil {
		if err := json.Unmarshal(m.Result(), result); err != nil {
			c.fatalf("the result of %s: %v", method, err)
		}
	}
	return nil
}

// must is call for requests that succeed.
func (c *client) must(method string, params, result any) {
	c.t.Helper()
	if e := c.call(method, params, result); e != nil {
		c.fatalf("%s failed: %v", method, e)
	}
}

func (c *client) notify(method string, params any) {
	c.t.Helper()
	c.write(acp.NewNotification(method, c.encode(params)))
}

func (c *client) encode(v any) []byte {
	c.t.Helper()
	b, err := schema.Encode(v)
	if err != nil {
		c.t.Fatal(err)
	}
	return b
}

// barrier returns the position of the answer to a request that causes nothing
// else.
func (c *client) barrier() int {
	c.t.Helper()
	id, from := c.request(methodProbe, []byte(`{}`))
	at, _ := c.response(id, methodProbe, from)
	return at
}
