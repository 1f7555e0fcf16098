package control

import (
	"context"
	"sync"
	"time"
)

// typed is the input of a viewer on its way to the program, which may read it late, or never. It waits here, so that
// signals and sizes of the viewer do not wait behind it.
type typed struct {
	mu      sync.Mutex
	waiting []byte        // at most maxTyped; who adds more waits
	giving  bool          // the program is being given some
	late    bool          // nobody waits any more for what it is being given
	over    bool          // no more comes
	changed chan struct{} // closed with the next change of these; nil when nobody waits for one
}

// maxTyped is one frame of the largest size.
const maxTyped = terminalFrame

// add adds input, when there is room for it.
func (t *typed) add(ctx context.Context, b []byte) {
	t.await(ctx, func() bool { return len(t.waiting) == 0 || len(t.waiting)+len(b) <= maxTyped }, func() { t.waiting = append(t.waiting, b...) })
}

// end says that no more comes.
func (t *typed) end() {
	t.await(context.Background(), func() bool { return true }, func() { t.over = true })
}

// give has all input written by write, in its order, until the last was, or ctx ends.
func (t *typed) give(ctx context.Context, write func(b []byte)) {
	for {
		var b []byte
		more := t.await(ctx, func() bool { return len(t.waiting) > 0 || t.over }, func() {
			b, t.waiting, t.giving = t.waiting, nil, len(t.waiting) > 0
		})
		if !more || len(b) == 0 {
			return
		}
		write(b)
		t.await(context.Background(), func() bool { return true }, func() { t.giving, t.late = false, false })
	}
}

// taken waits until all input was written, at most for as long as given, and not again for what it has waited for in vain.
func (t *typed) taken(ctx context.Context, within time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if !t.await(ctx, func() bool { return t.late || len(t.waiting) == 0 && !t.giving }, func() {}) {
		t.await(context.Background(), func() bool { return true }, func() { t.late = t.giving })
	}
}

// await waits for a state, does then what changes it, and reports whether ctx has not ended before.
func (t *typed) await(ctx context.Context, is func() bool, then func()) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for !is() {
		if t.changed == nil {
			t.changed = make(chan struct{})
		}
		changed := t.changed
		t.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
		t.mu.Lock()
		if ctx.Err() != nil {
			return false
		}
	}
	if then(); t.changed != nil {
		close(t.changed)
		t.changed = nil
	}
	return true
}
