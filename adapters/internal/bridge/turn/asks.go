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
	open map[string]*ask
}

// ask is a question.
type ask struct {
	ctx    context.Context
	cancel context.CancelFunc
	spared bool
	known  bool          // told is closed
	told   chan struct{} // closed when the client has answered, or knows that nobody waits for that
}

func (q *ask) toldLocked() {
	if !q.known {
		q.known = true
		close(q.told)
	}
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
		a.open = map[string]*ask{}
	}
	ctx, cancel := context.WithCancel(parent)
	one := &ask{ctx: ctx, cancel: cancel, told: make(chan struct{})}
	a.open[id] = one
	return ctx, func() {
		cancel()
		a.mu.Lock()
		defer a.mu.Unlock()
		one.toldLocked()
		if a.open[id] == one {
			delete(a.open, id)
		}
	}, true
}

// Told notes that the client has answered a question, or knows that it was withdrawn. The question is open until its end, since
// something may be left to do for that.
func (a *Asks) Told(id string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if one := a.open[id]; one != nil {
		one.toldLocked()
	}
}

// AwaitWithdrawn waits until the client knows of each question that was withdrawn: none is open behind the end of its turn.
func (a *Asks) AwaitWithdrawn() {
	a.mu.Lock()
	var all []*ask
	for _, one := range a.open {
		if one.ctx.Err() != nil {
			all = append(all, one)
		}
	}
	a.mu.Unlock()
	for _, one := range all {
		<-one.told
	}
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
	if one := a.open[id]; one != nil {
		one.cancel()
	}
}

// Spare notes that a turn is cancelled while questions are open that are not of it. Clients, and gateways for them, cancel all that is
// asked with a turn: what is said of these then is not meant for them.
func (a *Asks) Spare(others func(id string) bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, one := range a.open {
		one.spared = one.spared || others(id)
	}
}

// Spared reports whether a turn was cancelled beside an open question that is not of it.
func (a *Asks) Spared(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	one := a.open[id]
	return one != nil && one.spared
}

// WithdrawAll takes all questions back.
func (a *Asks) WithdrawAll() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, one := range a.open {
		one.cancel()
	}
}
