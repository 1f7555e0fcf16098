package viewer

import (
	"context"
	"time"
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

// AwaitEntry waits until the client's stream has written the session's entry seq, or
// has written nothing for the time given. A client that never had a stream is not
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

// AwaitAll waits until the open streams have written all there is, or ctx ends.
func (c *Client) AwaitAll(ctx context.Context) {
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

// stallBound is how long a client that reads nothing is waited for at the end.
const stallBound = 500 * time.Millisecond

// Shown returns the newest entry of the session that the client was handed.
func (c *Client) Shown(s Session) uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.feedLocked(s); f != nil {
		return f.shown
	}
	return 0
}
