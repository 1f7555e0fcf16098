package runtime

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
	for _, m := range st.polled {
		m.f.written = max(m.f.written, m.pos)
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

// Settle waits until the events before the reply were written, as long as they
// are being written: a stream that stands still is waited for no longer than
// bound. A client that never had a stream is not waited for; one whose stream
// broke is about to open it again.
func (c *Client) Settle(ctx context.Context, r acp.Reply, bound time.Duration) uint64 {
	s := c.r.session(r.Session)
	if r.Session == "" || s == nil {
		return c.lastEvent()
	}
	c.awaitWritten(ctx, s, r.Seq-1, bound) // the response itself is not on the stream
	return c.lastEvent()
}

func (c *Client) lastEvent() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.event
}

// awaitWritten waits until the client's stream has passed entry seq, or has
// written nothing for the time given.
func (c *Client) awaitWritten(ctx context.Context, s *Session, seq uint64, stall time.Duration) {
	var timer *time.Timer
	for {
		c.mu.Lock()
		f := c.feedLocked(s)
		if f == nil || f.written >= seq || f.stop == nil && !c.streamed || c.closed {
			c.mu.Unlock()
			return
		}
		if c.progress == nil {
			c.progress = make(chan struct{})
		}
		progress := c.progress
		c.mu.Unlock()
		if timer == nil {
			timer = time.NewTimer(stall)
			defer timer.Stop()
		} else {
			timer.Reset(stall)
		}
		select {
		case <-progress:
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// awaitAll waits until the open streams have written all there is, or ctx ends.
func (c *Client) awaitAll(ctx context.Context) {
	for {
		c.mu.Lock()
		behind := false
		for _, f := range c.feeds {
			behind = behind || f.stop != nil && f.written < f.log.Last()
		}
		if !behind || c.closed {
			c.mu.Unlock()
			return
		}
		if c.progress == nil {
			c.progress = make(chan struct{})
		}
		progress := c.progress
		c.mu.Unlock()
		stall := time.NewTimer(stallBound)
		select {
		case <-progress:
			stall.Stop()
		case <-stall.C:
			return // its client does not read
		case <-ctx.Done():
			stall.Stop()
			return
		}
	}
}
