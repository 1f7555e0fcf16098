package bridge

import (
	"context"
	"fmt"
	"sync"

	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// Leaving are sessions that are about to end, to be deleted or to be opened. Who opens one, or deletes it, waits for that: the
// agent would let go of it, or write to it, behind its opening, and one that is being opened would be deleted under it. The zero
// value has none. Its methods are safe for concurrent use.
type Leaving struct {
	mu   sync.Mutex
	ends map[schema.SessionID][]chan struct{}
}

// Begin notes that a session is about to end, until over is called.
func (l *Leaving) Begin(id schema.SessionID) (over func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.beginLocked(id)
}

// Claim is Wait, and keeps the session from being opened or deleted by others until over is called.
func (l *Leaving) Claim(ctx context.Context, id schema.SessionID) (over func(), err error) {
	for {
		if err := l.Wait(ctx, id); err != nil {
			return nil, err
		}
		if over, ok := l.claim(id); ok {
			return over, nil
		}
	}
}

// claim is Begin, unless an end of the session is under way.
func (l *Leaving) claim(id schema.SessionID) (over func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.ends[id]) > 0 {
		return nil, false
	}
	return l.beginLocked(id), true
}

func (l *Leaving) beginLocked(id schema.SessionID) (over func()) {
	end := make(chan struct{})
	if l.ends == nil {
		l.ends = map[schema.SessionID][]chan struct{}{}
	}
	l.ends[id] = append(l.ends[id], end)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		close(end)
		var left []chan struct{}
		for _, one := range l.ends[id] {
			if one != end {
				left = append(left, one)
			}
		}
		if l.ends[id] = left; len(left) == 0 {
			delete(l.ends, id)
		}
	}
}

// Wait waits until no end of the session is under way, nor anybody has a claim to it, or ctx ends.
func (l *Leaving) Wait(ctx context.Context, id schema.SessionID) error {
	for {
		l.mu.Lock()
		ends := l.ends[id]
		l.mu.Unlock()
		if len(ends) == 0 {
			return nil
		}
		select {
		case <-ends[0]:
		case <-ctx.Done():
			return fmt.Errorf("session %s is still being opened, closed or deleted: try again: %w", id, ctx.Err())
		}
	}
}
