package viewer

import (
	"context"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
)

// Written says that what was polled has reached the client.
func (st *Stream) Written() {
	if len(st.polled) == 0 {
		return
	}
	c := st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	own := false
	for _, m := range st.polled {
		m.f.written = max(m.f.written, m.pos)
		if m.f.state == told {
			m.f.state = nothing
		}
		if m.f.session == nil { // nobody else reads it
			m.f.log.Forget(m.f.written, keepWritten)
			own = true
		}
	}
	if own {
		c.noteUnreadLocked()
	}
	st.polled = st.polled[:0]
	c.advancedLocked()
}

// advancedLocked wakes who waits for events to be written.
func (c *Client) advancedLocked() {
	if c.progress != nil {
		close(c.progress)
		c.progress = nil
	}
}

// AwaitEntry waits until the client's stream has written the session's entry seq, or
// has written nothing for the time given, also not of the other sessions that it carries. A client that never had a stream is not
// waited for; one whose stream broke is about to open it again. It returns the id of
// the last event handed out.
func (c *Client) AwaitEntry(ctx context.Context, s Session, seq uint64, stall time.Duration) uint64 {
	if s != nil {
		c.awaitEntry(ctx, s, seq, stall)
	}
	return c.lastEvent()
}

func (c *Client) lastEvent() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.event
}

func (c *Client) awaitEntry(ctx context.Context, s Session, seq uint64, stall time.Duration) {
	c.awaitProgress(ctx, stall, func() (done bool, written uint64) {
		f := c.feedLocked(s)
		if f == nil || f.written >= seq && f.state == nothing || f.stop == nil && !c.streamed {
			return true, 0
		}
		if c.shape == acp.PerSession {
			return false, f.written
		}
		for _, f := range c.feeds {
			written += f.written
		}
		return false, written
	})
}

// AwaitAll waits until the open streams have written all there is, or ctx ends, or the
// client does not read.
func (c *Client) AwaitAll(ctx context.Context) {
	c.awaitProgress(ctx, stallBound, func() (done bool, written uint64) {
		done = true
		for _, f := range c.feeds {
			done = done && (f.stop == nil || f.written >= f.log.Saved())
			written += f.written
		}
		return done, written
	})
}

// awaitProgress waits until look, which is called with mu held, says that it is done, while there is another count of
// what was written at least every stall.
func (c *Client) awaitProgress(ctx context.Context, stall time.Duration, look func() (done bool, written uint64)) {
	timer := time.NewTimer(stall)
	defer timer.Stop()
	for before := uint64(0); ; {
		c.mu.Lock()
		done, written := look()
		if c.closed || done {
			c.mu.Unlock()
			return
		}
		if written != before {
			before = written
			timer.Reset(stall)
		}
		if c.progress == nil {
			c.progress = make(chan struct{})
		}
		progress := c.progress
		c.mu.Unlock()
		select {
		case <-progress:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// stallBound is how long a client that reads nothing is waited for at the end.
const stallBound = 500 * time.Millisecond

// Shown returns the newest entry of the session whose number the client was handed, 0 for
// none: responses have no number, nor has anything for who does not want them.
func (c *Client) Shown(s Session) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.feedLocked(s); f != nil {
		return f.shown
	}
	return 0
}

// Reached returns the newest entry of the session that was written to the client.
func (c *Client) Reached(s Session) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.feedLocked(s); f != nil {
		return f.written
	}
	return 0
}
