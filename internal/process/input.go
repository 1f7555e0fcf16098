package process

import (
	"os"
	"sync/atomic"
	"time"
)

// input counts what a process was given, and what it left of that.
type input struct {
	written atomic.Int64
	left    atomic.Int64 // bytes that nobody will read any more, plus one; 0 when that is not known
}

// Write writes to the process's stdin, and counts. Calls must not overlap.
func (p *Process) Write(b []byte) (int, error) {
	n, err := p.Stdin.Write(b)
	p.input.written.Add(int64(n))
	return n, err
}

// Written returns how many bytes Write has written: a place in the process's input.
func (p *Process) Written() int64 { return p.input.written.Load() }

// Unread reports whether the process has certainly read nothing of what was written behind
// a place: it had ended before, and so had everybody who could read in its stead. It is
// known behind StopMute.
func (p *Process) Unread(behind int64) bool {
	left := p.input.left.Load() - 1
	return left >= 0 && left >= p.Written()-behind
}

// Room reports whether Write certainly takes n bytes now without waiting. Calls must not overlap.
func (p *Process) Room(n int) bool { return p.room.For(n) }

// mutePause is how long a process that has closed its stdout may take to close its stdin:
// one that ends closes both, in any order.
const mutePause = 200 * time.Millisecond

// StopMute is [Process.Stop] for a process whose stdout has ended. As a rule it is about to
// end by itself; then it is known what it has not read.
func (p *Process) StopMute(l Ladder) {
	p.noteUnread(mutePause)
	p.Stop(l)
}

// noteUnread notes what is left in the process's stdin when nobody reads it any more, which
// it awaits for a moment.
func (p *Process) noteUnread(wait time.Duration) {
	if f, ok := p.Stdin.(*os.File); ok {
		if n, ok := unread(f, wait); ok {
			p.input.left.Store(n + 1)
		}
	}
}
