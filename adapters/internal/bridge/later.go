package bridge

import (
	"context"
	"sync"
	"time"
)

// Later does something once, a moment after it was wanted, however often it is wanted
// until then. Its zero value is ready; its methods are safe for concurrent use.
type Later struct {
	mu      sync.Mutex
	wanted  bool
	stopped bool
	work    sync.WaitGroup
}

// In has f called after d, or when ctx ends, unless that is to come already.
func (l *Later) In(ctx context.Context, d time.Duration, f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wanted || l.stopped {
		return
	}
	l.wanted = true
	l.work.Go(func() {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
		l.mu.Lock()
		l.wanted = false
		l.mu.Unlock()
		f()
	})
}

// Stop lets nothing more begin and waits for what has. The context should have ended.
func (l *Later) Stop() {
	l.mu.Lock()
	l.stopped = true
	l.mu.Unlock()
	l.work.Wait()
}
