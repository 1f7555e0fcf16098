package opencode

import (
	"context"
	"sync"
)

// door lets many use a place, or one alone. Who waits before it may give up. The zero
// value is open.
type door struct {
	mu     sync.Mutex
	inside int           // how many use the place; alone for one who does so alone
	moved  chan struct{} // closed when somebody has left; nil when nobody waits for that
}

const alone = -1

// enter waits until nobody uses the place alone. Its error is that of ctx.
func (d *door) enter(ctx context.Context) error { return d.wait(ctx, d.enterLocked) }

// enterAlone waits until nobody uses the place. Its error is that of ctx.
func (d *door) enterAlone(ctx context.Context) error { return d.wait(ctx, d.aloneLocked) }

// tryAlone is enterAlone for who does not wait.
func (d *door) tryAlone() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.aloneLocked()
}

func (d *door) enterLocked() bool {
	free := d.inside != alone
	if free {
		d.inside++
	}
	return free
}

func (d *door) aloneLocked() bool {
	free := d.inside == 0
	if free {
		d.inside = alone
	}
	return free
}

func (d *door) wait(ctx context.Context, enterLocked func() bool) error {
	for {
		d.mu.Lock()
		entered := enterLocked()
		if !entered && d.moved == nil {
			d.moved = make(chan struct{})
		}
		moved := d.moved
		d.mu.Unlock()
		if entered {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// leave says that who has entered uses the place no more.
func (d *door) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inside = max(d.inside-1, 0)
	if d.moved != nil {
		close(d.moved)
		d.moved = nil
	}
}
