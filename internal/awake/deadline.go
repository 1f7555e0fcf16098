package awake

import (
	"sync"
	"time"
)

// Deadline ends reads or writes of a connection whose peer keeps them waiting for time awake. The connection's own
// deadline would end them also when this program was paused, and what the peer has sent meanwhile lies there.
type Deadline struct {
	d   time.Duration
	set func(time.Time) error

	mu      sync.Mutex
	timer   *Timer // nil before the first Start
	from    Moment
	waiting bool
	over    bool // the connection has a deadline that has passed
}

// NewDeadline returns one of which set is the connection's deadline. It ends what takes longer than d between Start and
// Stop: between two of them nobody waits for the peer.
func NewDeadline(d time.Duration, set func(time.Time) error) *Deadline {
	return &Deadline{d: d, set: set}
}

func (l *Deadline) pass() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting && l.from.Ago() >= l.d {
		l.over = true
		_ = l.set(time.Unix(1, 0)) // test recorders have none
	}
}

// Start gives the peer the whole time, also when it was over.
func (l *Deadline) Start() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.from, l.waiting = Now(), true
	l.liftLocked()
	if l.timer == nil {
		l.timer = AfterFunc(l.d, l.pass)
		return
	}
	l.timer.Reset(l.d)
}

// Stop leaves the connection without a deadline.
func (l *Deadline) Stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = false
	l.liftLocked()
	if l.timer != nil {
		l.timer.Stop()
	}
}

// Leave leaves the connection with the deadline that it has.
func (l *Deadline) Leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = false
	if l.timer != nil {
		l.timer.Stop()
	}
}

func (l *Deadline) liftLocked() {
	if l.over {
		l.over = false
		_ = l.set(time.Time{})
	}
}
