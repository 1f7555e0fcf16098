// Package deadline sets how long a client may take to read an answer or to send a request.
package deadline

import (
	"strconv"
	"sync"
	"time"
)

// Passed is a deadline that ends a read or a write that is going on.
var Passed = time.Unix(1, 0)

// Words says a time for people: "10 seconds", "a minute", "2 hours". One of parts of a second is said as Go writes it.
func Words(d time.Duration) string {
	for _, unit := range []struct {
		of        time.Duration
		one, many string
	}{{time.Hour, "an hour", "hours"}, {time.Minute, "a minute", "minutes"}, {time.Second, "a second", "seconds"}} {
		switch {
		case d == unit.of:
			return unit.one
		case d > unit.of && d%unit.of == 0:
			return strconv.FormatInt(int64(d/unit.of), 10) + " " + unit.many
		}
	}
	return d.String()
}

// Deadline is how long a peer has to take what it is sent, or to send. It is all that sets the deadline of the connection in this
// direction: whoever ends something early may do so at any time, also when it has just ended by itself. The connection, or what is left of
// it, is that of others then. It is safe for concurrent use.
type Deadline struct {
	set func(time.Time) error

	mu     sync.Mutex
	within time.Duration // for what begins now
	until  time.Time     // zero before anything begins
	last   time.Time     // no time is given after it; zero for no such time
	over   bool          // the connection is that of others
}

// New returns a deadline that gives so long for each piece. set sets that of the connection.
func New(within time.Duration, set func(time.Time) error) *Deadline {
	return &Deadline{within: within, set: set}
}

// Extend gives time for a piece. A timer for every write would cost more than the write.
func (d *Deadline) Extend() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := time.Now(); d.until.Sub(now) < d.within*9/10 {
		d.giveLocked(now)
	}
}

// Hurry gives no more than this for each piece from now on, also for one that is under way, and none after last, unless that is zero.
func (d *Deadline) Hurry(within time.Duration, last time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.within, d.last = min(d.within, within), last
	if !d.until.IsZero() {
		d.giveLocked(time.Now())
	}
}

func (d *Deadline) giveLocked(now time.Time) {
	d.until = now.Add(d.within)
	switch {
	case d.within == 0:
		d.until = Passed
	case !d.last.IsZero() && d.until.After(d.last):
		d.until = d.last
	}
	if !d.over {
		_ = d.set(d.until) // where there is none, nothing waits
	}
}

// End gives no more time.
func (d *Deadline) End() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.within = 0
	d.giveLocked(time.Time{})
}

// Set sets the deadline of the connection for one who measures by himself how long the peer keeps it waiting. It changes
// nothing when no more time is given, and has no error then.
func (d *Deadline) Set(t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.over || d.within == 0 {
		return nil
	}
	d.until = t
	return d.set(t)
}

// Leave leaves the connection as it is to others.
func (d *Deadline) Leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
}

// Rest gives so long for what is still on its way, also when no more time was given, and leaves the connection to others.
func (d *Deadline) Rest(within time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.over {
		_ = d.set(time.Now().Add(within)) // where there is none, nothing waits
	}
	d.over = true
}

// Lift leaves the connection to others, without a deadline.
func (d *Deadline) Lift() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.over && !d.until.IsZero() {
		_ = d.set(time.Time{})
	}
	d.over = true
}
