// Package awake counts the time in which this program could work. Where somebody is
// given time to do something, this is the time that counts: a sandbox that is
// suspended for a night, paused or set forth from a snapshot did not use it up, and a
// clock that is set does not either.
//
//	from := awake.Now()
//	...
//	if from.Ago() > limit { ... }
package awake

import (
	"context"
	"sync"
	"time"
)

// Moment is a point in time that only other Moments of the same program can be
// compared with. The zero value is when the program began.
type Moment time.Duration

// Now returns this moment.
func Now() Moment { return Moment(own.now()) }

// Ago returns how long ago the moment was.
func (m Moment) Ago() time.Duration { return own.now() - time.Duration(m) }

// After reports whether m is later than o.
func (m Moment) After(o Moment) bool { return m > o }

const (
	tickEvery = time.Second
	mostGap   = 5 * time.Second // between two ticks on a machine that is only busy
)

// Watch notices until ctx ends that the program did not run. Without it the machine
// is taken to be awake all the time. There is one Watch at a time.
func Watch(ctx context.Context) {
	tick := time.NewTicker(tickEvery)
	defer tick.Stop()
	own.watch(true)
	defer own.watch(false)
	for {
		select {
		case <-tick.C:
			own.tick()
		case <-ctx.Done():
			return
		}
	}
}

var own = func() *clock {
	began := time.Now()
	return &clock{real: func() time.Duration { return time.Since(began) }} // monotonic
}()

// clock is real time less that in which nobody ticked.
type clock struct {
	real func() time.Duration

	mu      sync.Mutex
	watched bool
	last    time.Duration // real time of the last tick
	asleep  time.Duration // does not count
}

func (c *clock) now() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nowLocked()
}

// nowLocked stands still while a tick is overdue. It neither jumps nor goes back when
// the tick comes.
func (c *clock) nowLocked() time.Duration {
	t := c.real()
	if c.watched {
		t = min(t, c.last+mostGap)
	}
	return t - c.asleep
}

func (c *clock) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tickLocked()
}

func (c *clock) tickLocked() {
	t := c.real()
	if c.watched {
		c.asleep += max(0, t-c.last-mostGap)
	}
	c.last = t
}

func (c *clock) watch(on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tickLocked()
	c.watched = on
}

// Timer is a [time.Timer] for time awake.
type Timer struct {
	f func()

	mu      sync.Mutex
	timer   *time.Timer
	from    Moment
	d       time.Duration
	stopped bool
}

// AfterFunc calls f on a goroutine of its own when d has passed.
func AfterFunc(d time.Duration, f func()) *Timer {
	t := &Timer{f: f, from: Now(), d: d}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.timer = time.AfterFunc(d, t.due)
	return t
}

// due is called when d has passed on the machine's clock.
func (t *Timer) due() {
	t.mu.Lock()
	left := t.d - t.from.Ago()
	if left > 0 && !t.stopped {
		t.timer.Reset(left)
	}
	stopped := t.stopped
	t.mu.Unlock()
	if left <= 0 && !stopped {
		t.f()
	}
}

// After closes late when d has passed, unless stop is called before.
func After(d time.Duration) (late <-chan struct{}, stop func()) {
	c := make(chan struct{})
	return c, AfterFunc(d, func() { close(c) }).Stop
}

// Reset makes the timer call its function when d has passed from now on.
func (t *Timer) Reset(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.from, t.d, t.stopped = Now(), d, false
	t.timer.Reset(d)
}

// Stop keeps the timer from calling its function, unless it has begun to.
func (t *Timer) Stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
	t.timer.Stop()
}
