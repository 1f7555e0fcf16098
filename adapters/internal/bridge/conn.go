package bridge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/ndjson"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/internal/process"
)

// maxFrame bounds a frame of the agent. It is above the bound of a native line,
// because a translation may show a text more than once.
const maxFrame = 4 * ndjson.DefaultMaxLine

// maxWaiting bounds the messages that the agent has not taken yet; at the bound
// Write waits.
const maxWaiting = 64

// Conn is the gateway's end of an agent that lives in this process. Messages
// reach the agent as they are; what the agent says is encoded once, and read as
// lines, many at a time.
type Conn struct {
	up     chan acp.Message // to the agent
	gone   chan struct{}    // closed when the agent takes nothing more
	down   *pipe            // from the agent
	lines  *ndjson.Conn     // reads down
	served chan struct{}

	end     sync.Once // closes gone
	once    sync.Once
	failure error    // why the Conn ended; set once before the pipes end
	prompts sync.Map // the gift of each session's last prompt: by session
	child   atomic.Pointer[process.Process]
}

var (
	_ acp.Conn         = (*Conn)(nil)
	_ acp.Buffered     = (*Conn)(nil)
	_ adapters.Untaker = (*Conn)(nil)
	_ adapters.Process = (*Conn)(nil)
)

// New serves the agent that newAgent makes. The agent gets its own Conn to call
// [Conn.Fail] and [Conn.SetProcess] on; it is ended by its Close.
func New(newAgent func(p acp.Peer, c *Conn) acp.Agent) *Conn {
	c := &Conn{up: make(chan acp.Message, maxWaiting), gone: make(chan struct{}), down: newPipe(), served: make(chan struct{})}
	c.lines = ndjson.New(c.down, nil, nil, maxFrame)
	c.lines.Ahead(c.down.readAhead)
	go func() {
		defer close(c.served)
		// Its error is the end of the stream, which failure explains.
		_ = acp.ServeAgent(context.Background(), agentEnd{c}, func(p acp.Peer) acp.Agent { return newAgent(p, c) })
		c.down.end()
	}()
	return c
}

// agentEnd is the connection as the agent sees it.
type agentEnd struct{ c *Conn }

var _ acp.AgentConn = agentEnd{}

func (e agentEnd) Read() (acp.Message, error) {
	select {
	case <-e.c.gone: // what still waits is dropped
		return acp.Message{}, io.EOF
	default:
	}
	select {
	case m := <-e.c.up:
		if m.Method() == acp.MethodSessionPrompt {
			e.c.prompts.Delete(m.Session()) // until the agent says more
		}
		return m, nil
	case <-e.c.gone:
		return acp.Message{}, io.EOF
	}
}

func (e agentEnd) WriteLines(lines []byte) error {
	_, err := e.c.down.Write(lines)
	return err
}

func (e agentEnd) Close() error {
	e.c.leave()
	e.c.down.end()
	return nil
}

// leave ends the way to the agent.
func (c *Conn) leave() { c.end.Do(func() { close(c.gone) }) }

// Write hands the message to the agent. It does not keep m.
func (c *Conn) Write(ctx context.Context, m acp.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case <-c.gone:
		return fmt.Errorf("write message: %w", io.ErrClosedPipe)
	default:
	}
	switch m.Method() {
	case acp.MethodSessionPrompt:
		c.prompts.Store(m.Session(), gift{}) // the agent may never read it
	case acp.MethodSessionClose, acp.MethodSessionDelete:
		c.prompts.Delete(m.Session())
	}
	select {
	case c.up <- m.Clone():
		return nil
	case <-c.gone:
		return fmt.Errorf("write message: %w", io.ErrClosedPipe)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Buffered reports whether the next Read returns without waiting. It ends the
// life of the message that was read last.
func (c *Conn) Buffered() bool { return c.lines.Buffered() }

// Read returns the agent's next message. When the agent has ended, it returns
// what Fail was given, else io.EOF.
func (c *Conn) Read(ctx context.Context) (acp.Message, error) {
	m, err := c.lines.Read(ctx)
	if err == nil || ctx.Err() != nil {
		return m, err
	}
	<-c.served
	c.once.Do(func() { c.failure = io.EOF })
	return m, c.failure
}

// Fail ends the Conn because of err: Read returns it once everything that the
// agent has sent was read, pending requests of the client get no answer any
// more. The first call counts. It does not wait, so the agent may call it.
func (c *Conn) Fail(err error) {
	c.once.Do(func() {
		c.failure = err
		// The agent's stream ends, and with it its requests; its Close follows.
		c.down.end()
		c.leave()
	})
}

// gift says to whom a prompt was given, and behind which place of its input, or that it
// could be given to nobody.
type gift struct {
	to     *process.Process
	behind int64
}

// Give gives the process a prompt of a session by write, and returns its error. After an
// [ErrUnwritten] the process has ended, and with it the Conn does: the prompt may be given
// to another one, as may one that the process did not read. Nothing may be done for the
// prompt before.
func (c *Conn) Give(session string, p *process.Process, write func() error) error {
	c.prompts.Store(session, gift{p, p.Written()})
	err := write()
	if errors.Is(err, ErrUnwritten) {
		c.prompts.Store(session, gift{})
	}
	return err
}

// Offer says that a prompt of a session is about to be given to a process, and has reached
// none until taken is called.
func (c *Conn) Offer(session string) (taken func()) {
	c.prompts.Store(session, gift{})
	return func() { c.prompts.Delete(session) }
}

// Untaken implements [adapters.Untaker].
func (c *Conn) Untaken(session string) bool {
	v, _ := c.prompts.Load(session)
	g, known := v.(gift)
	return known && (g.to == nil || g.to.Unread(g.behind))
}

// Close ends the agent and waits for it. It is idempotent.
func (c *Conn) Close() error {
	c.once.Do(func() { c.failure = io.ErrClosedPipe })
	c.down.abort()
	c.leave()
	<-c.served
	return nil
}

// SetProcess names the process that the Conn speaks for.
func (c *Conn) SetProcess(p *process.Process) { c.child.Store(p) }

// process returns the native process, nil while there is none.
func (c *Conn) process() *process.Process {
	p := c.child.Load()
	if p == nil {
		return nil
	}
	select {
	case <-p.Done():
		return nil
	default:
		return p
	}
}

// PID returns the native process's id, 0 while there is none.
func (c *Conn) PID() int {
	if p := c.process(); p != nil {
		return p.PID()
	}
	return 0
}

// StartedAt returns when the native process was started, the zero time while
// there is none.
func (c *Conn) StartedAt() time.Time {
	if p := c.process(); p != nil {
		return p.StartedAt()
	}
	return time.Time{}
}

// RSS returns the resident memory in bytes of the native process and its
// descendants.
func (c *Conn) RSS() int64 {
	if p := c.process(); p != nil {
		return process.RSS(p.PID())
	}
	return 0
}

// Now implements [adapters.Commander].
func (c *Conn) Now() int64 { return process.Now() }

// Commands implements [adapters.Commander].
func (c *Conn) Commands() []int64 {
	if p := c.process(); p != nil {
		return p.Commands()
	}
	return nil
}

// Stderr returns what the native process has written to stderr so far.
func (c *Conn) Stderr() adapters.Stderr {
	if p := c.process(); p != nil {
		return Stderr(p)
	}
	return adapters.Stderr{}
}
