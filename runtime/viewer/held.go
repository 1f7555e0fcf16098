package viewer

import "sandboxagent.dev/sandbox-agent/runtime/journal"

// whenShown calls do when the session's log shows an entry: at once, unless the log is held, or its file
// takes nothing now. When the connection ends before, do is not called; what was in the log of a session
// that was deleted concerns nobody else any more, and is told. s is nil for what is in no
// session's log.
func (c *Client) whenShown(s Session, seq uint64, do func()) {
	if s == nil {
		do()
		return
	}
	l := s.Log()
	if !l.Pending(seq) {
		do()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return
	}
	c.later.Go(func() {
		if c.awaitShown(s, l, seq) {
			do()
		}
	})
}

// awaitShown waits until the log shows an entry, and reports whether it may be told.
func (c *Client) awaitShown(s Session, l *journal.Log, seq uint64) bool {
	wake := make(chan struct{}, 1)
	defer l.Watch(wake)()
	for l.Last() < seq {
		select {
		case <-wake:
		case <-c.done:
			return false
		case <-l.Closed():
			if s.Enter() {
				s.Exit()
				return false // the gateway ends
			}
			return true
		}
	}
	return true
}
