package awake

import (
	"sync"
	"time"
)

// Deadline ends reads or writes of a connection whose peer keeps them waiting for time awake. The connection's own
// deadline would end them also when this program was paused, and what the peer has sent meanwhile lies there.
type Deadline struct {
	d     time.Duration
	set   func(time.Time) error
	timer *Timer

	mu   sync.Mutex
	from Moment
	over bool // the connection has a deadline that has passed
	done bool
}

// NewDeadline ends what set is the deadline of when d has passed from now on, or since the last Extend.
func NewDeadline(d time.Duration, set func(time.Time) error) *Deadline {
	l := &Deadline{d: d, set: set, from: Now()}
	l.timer = AfterFunc(d, l.pass)
	return l
}

func (l *Deadline) pass() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.done && l.from.Ago() >= l.d {
		l.over = true
		_ = l.set(time.Unix(1, 0)) // test recorders have none
	}
}

// Extend gives the peer the whole time again, also when it was over.
func (l *Deadline) Extend() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.from = Now()
	l.liftLocked()
	l.timer.Reset(l.d)
}

// Stop leaves the connection without a deadline.
func (l *Deadline) Stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.done = true
	l.liftLocked()
	l.timer.Stop()
}

func (l *Deadline) liftLocked() {
	if l.over {
		l.over = false
		_ = l.set(time.Time{})
	}
}
