package acphttp

import (
	"sync"
	"time"
)

// deadline is how long a request waits for its client, which is to take what it is sent, or to send. It is all that sets the one of the
// connection: whoever ends the request early may do so at any time, also when it has just been answered. The connection, or what
// is left of it, is that of others then.
type deadline struct {
	set func(time.Time) error

	mu     sync.Mutex
	within time.Duration // for what begins now
	until  time.Time     // zero before anything begins
	over   bool          // the connection is no more of the request
}

// extend gives the client time. A timer for every write would cost more than the write.
func (d *deadline) extend() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := time.Now(); d.until.Sub(now) < d.within*9/10 {
		d.until = now.Add(d.within)
		_ = d.set(d.until)
	}
}

// end gives the client no more time.
func (d *deadline) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.within = 0
	d.until = passed
	if !d.over {
		_ = d.set(passed)
	}
}

// leave is called when the request has ended.
func (d *deadline) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
}

// lift is leave where the connection may serve other requests.
func (d *deadline) lift() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.over = true
	if !d.until.IsZero() {
		_ = d.set(time.Time{})
	}
}

// passed is a deadline that ends a read or a write that is going on.
var passed = time.Unix(1, 0)
