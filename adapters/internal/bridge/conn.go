package bridge

import (
	"context"
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

// Conn is the gateway's end of an agent that lives in this process.
type Conn struct {
	*ndjson.Conn
	up, down *pipe // to and from the agent
	served   chan struct{}

	once    sync.Once
	failure error // why the Conn ended; set once before the pipes end
	child   atomic.Pointer[process.Process]
}

var (
	_ acp.Conn         = (*Conn)(nil)
	_ acp.Buffered     = (*Conn)(nil)
	_ adapters.Process = (*Conn)(nil)
)

// New serves the agent that newAgent makes. The agent gets its own Conn to call
// [Conn.Fail] and [Conn.SetProcess] on; it is ended by its Close.
func New(newAgent func(p acp.Peer, c *Conn) acp.Agent) *Conn {
	c := &Conn{up: newPipe(), down: newPipe(), served: make(chan struct{})}
	c.Conn = ndjson.New(c.down, c.up, nil, maxFrame)
	c.Waiting(c.down.waiting)
	go func() {
		defer close(c.served)
		// Its error is the end of the stream, which failure explains.
		_ = acp.ServeAgent(context.Background(), agentEnd{c}, func(p acp.Peer) acp.Agent { return newAgent(p, c) })
		c.down.end()
	}()
	return c
}

// agentEnd is the stream as the agent sees it.
type agentEnd struct{ c *Conn }

func (e agentEnd) Read(b []byte) (int, error)  { return e.c.up.Read(b) }
func (e agentEnd) Write(b []byte) (int, error) { return e.c.down.Write(b) }
func (e agentEnd) Close() error {
	e.c.up.abort()
	e.c.down.end()
	return nil
}

// Read returns the agent's next message. When the agent has ended, it returns
// what Fail was given, else io.EOF.
func (c *Conn) Read(ctx context.Context) (acp.Message, error) {
	m, err := c.Conn.Read(ctx)
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
		c.up.abort()
	})
}

// Close ends the agent and waits for it. It is idempotent.
func (c *Conn) Close() error {
	c.once.Do(func() { c.failure = io.ErrClosedPipe })
	c.down.abort()
	c.up.abort()
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

// Stderr returns what the native process has written to stderr so far.
func (c *Conn) Stderr() adapters.Stderr {
	if p := c.process(); p != nil {
		return Stderr(p)
	}
	return adapters.Stderr{}
}
