package turn

import (
	"context"
	"sync"
)

// MaxAsks bounds the open questions of a session's agent. At the bound a question
// is refused.
const MaxAsks = 64

// Asks are the questions of an agent that are open, by id. The zero value has
// none. Its methods are safe for concurrent use.
type Asks struct {
	mu   sync.Mutex
	open map[string]context.CancelFunc
}

// Begin notes a question. It fails at the bound. ctx ends when the question is
// withdrawn; done must be called when it was answered.
func (a *Asks) Begin(parent context.Context, id string) (ctx context.Context, done func(), ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.open) >= MaxAsks {
		return nil, nil, false
	}
	if a.open == nil {
		a.open = map[string]context.CancelFunc{}
	}
	ctx, cancel := context.WithCancel(parent)
	a.open[id] = cancel
	return ctx, func() {
		cancel()
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.open, id)
	}, true
}

// Open reports whether any question is open.
func (a *Asks) Open() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.open) > 0
}

// Withdraw takes a question back: nobody waits for its answer any more.
func (a *Asks) Withdraw(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if cancel := a.open[id]; cancel != nil {
		cancel()
	}
}

// WithdrawAll takes all questions back.
func (a *Asks) WithdrawAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, cancel := range a.open {
		cancel()
	}
}
