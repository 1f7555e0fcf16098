package journal

import "sync/atomic"

// Budget bounds what logs hold in memory, all together. As long as they hold more than
// that, each keeps its share only, and who appends to one whose file takes nothing is held
// back at once. A nil Budget is no bound.
type Budget struct {
	most    int64
	held    atomic.Int64
	holders atomic.Int64 // logs that hold something
}

// NewBudget returns a budget of so many bytes.
func NewBudget(most int64) *Budget { return &Budget{most: most} }

// Held returns how many bytes the logs hold.
func (b *Budget) Held() int64 { return b.held.Load() }

// Spent reports whether the logs hold more than they may.
func (b *Budget) Spent() bool { return b != nil && b.held.Load() > b.most }

// holdLocked notes that the log holds n bytes more.
func (l *Log) holdLocked(n int) {
	before := l.held
	l.held += n
	b := l.o.Budget
	if b == nil {
		return
	}
	b.held.Add(int64(n))
	switch {
	case before == 0 && l.held > 0:
		b.holders.Add(1)
	case before > 0 && l.held == 0:
		b.holders.Add(-1)
	}
}

// Shrink has the log keep its share of the budget, if that is spent.
func (l *Log) Shrink() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.evictLocked()
}

// KeepAll has a log without a file let nothing go until done is called, as long as it holds no more than twice its memory
// and the budget is not spent: for who reads all that there is.
func (l *Log) KeepAll() (done func()) {
	if l.path == "" {
		l.keepMore(1)
		return func() { l.keepMore(-1) }
	}
	return func() {}
}

func (l *Log) keepMore(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.readers += n
	l.evictLocked()
}

// mayHold is how much the log keeps of what it could let go.
func (l *Log) mayHold() int {
	if b := l.o.Budget; b.Spent() {
		return min(l.o.Memory, max(maxBlock, int(b.most/max(b.holders.Load(), 1))))
	}
	if l.readers > 0 {
		return 2 * l.o.Memory
	}
	return l.o.Memory
}

// leaveLocked takes the log out of its budget: it holds nothing that is to come.
func (l *Log) leaveLocked() {
	if b := l.o.Budget; b != nil && l.held > 0 {
		b.held.Add(-int64(l.held))
		b.holders.Add(-1)
	}
	l.o.Budget = nil
}
