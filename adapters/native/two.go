package native

import (
	"context"
	"sync"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/version"
)

// negotiated is a Conn to an agent that may speak version 2 of the protocol. The gateway
// speaks version 1: its initialize asks for version 2, and what the agent chooses decides.
// With version 1 everything passes unchanged from then on; an agent that refuses to be
// asked for version 2 is asked for version 1. With version 2 all is translated.
type negotiated struct {
	acp.Conn
	queue []acp.Message // to be read before anything else; used by Read only

	mu      sync.Mutex
	hello   *acp.Message   // the gateway's initialize, until it is answered
	offered bool           // it asks for version 2
	agent   *version.Agent // nil for version 1, and before the answer
}

var _ acp.Buffered = (*negotiated)(nil)

// negotiate returns c negotiated.
func negotiate(c acp.Conn) *negotiated { return &negotiated{Conn: c} }

// Two reports whether the agent speaks version 2.
func (c *negotiated) Two() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.agent != nil
}

// Write passes a message on in the agent's version. Messages of the gateway reach the
// agent in the order in which they are written: the gateway writes one after another.
func (c *negotiated) Write(ctx context.Context, m acp.Message) error {
	c.mu.Lock()
	switch {
	case m.Method() == acp.MethodInitialize && m.IsRequest():
		own := m.Clone()
		c.hello, c.offered = &own, true
		m = version.Offer(&m)
	case c.agent != nil:
		said, ok := c.agent.Tell(&m)
		if !ok {
			c.mu.Unlock()
			return nil
		}
		m = said
	}
	c.mu.Unlock()
	return c.Conn.Write(ctx, m)
}

// Buffered reports whether the next Read returns without waiting.
func (c *negotiated) Buffered() bool {
	if len(c.queue) > 0 {
		return true
	}
	b, ok := c.Conn.(acp.Buffered)
	return ok && b.Buffered()
}

// Read returns the agent's next message, or part of what it is in version 1.
func (c *negotiated) Read(ctx context.Context) (acp.Message, error) {
	for {
		if len(c.queue) > 0 {
			m := c.queue[0]
			c.queue = c.queue[1:]
			return m, nil
		}
		m, err := c.Conn.Read(ctx)
		if err != nil {
			return m, err
		}
		if err := c.hear(ctx, &m); err != nil {
			return acp.Message{}, err
		}
	}
}

// hear queues what a message of the agent is, which may be nothing.
func (c *negotiated) hear(ctx context.Context, m *acp.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = c.queue[:0:cap(c.queue)]
	switch {
	case c.agent != nil:
		c.queue = c.agent.Hear(m, c.queue)
		return nil
	case c.hello == nil || !m.IsResponse() || m.ID() != c.hello.ID():
	case m.Err() != nil && c.offered:
		c.offered = false
		return c.Conn.Write(ctx, *c.hello)
	default:
		if lowered, two := version.Offered(m); two {
			c.agent = version.NewAgent()
			*m = lowered
		}
		c.hello = nil
	}
	c.queue = append(c.queue, *m)
	return nil
}
