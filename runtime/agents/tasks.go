package agents

import (
	"context"
	"sync"
)

// Tasks are goroutines with one owner that waits for them. Unlike a WaitGroup's,
// new ones may begin while it waits: they are waited for as well. The zero value
// is ready for use.
type Tasks struct {
	mu      sync.Mutex
	running int
	none    chan struct{} // closed when none runs; nil when nobody waits
}

// Go runs f in a goroutine.
func (t *Tasks) Go(f func()) {
	t.mu.Lock()
	t.running++
	t.mu.Unlock()
	go func() {
		defer t.ended()
		f()
	}()
}

func (t *Tasks) ended() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running--; t.running == 0 && t.none != nil {
		close(t.none)
		t.none = nil
	}
}

// Wait returns when none runs, or with the cause when ctx ends before.
func (t *Tasks) Wait(ctx context.Context) error {
	t.mu.Lock()
	if t.running == 0 {
		t.mu.Unlock()
		return nil
	}
	if t.none == nil {
		t.none = make(chan struct{})
	}
	none := t.none
	t.mu.Unlock()
	select {
	case <-none:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
