package viewer

import (
	"sync"

	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// Unread bounds what the connections' own logs hold together: answers that clients do
// not fetch, above all. Beyond the bound the connection that holds most loses its oldest,
// half of what it has, and is told so when it reads; the others notice nothing. It is safe
// for concurrent use; its lock is the innermost.
type Unread struct {
	most int64 // bytes; 0 is no bound

	mu    sync.Mutex
	held  map[*journal.Log]int64
	total int64
}

// NewUnread returns a bound of so many bytes, 0 is none.
func NewUnread(most int64) *Unread { return &Unread{most: most, held: map[*journal.Log]int64{}} }

// note says that a log may have another size.
func (u *Unread) note(l *journal.Log) {
	for l != nil {
		l = u.count(l)
	}
}

// count counts a log, and returns another one to be counted whose oldest entries went.
func (u *Unread) count(l *journal.Log) *journal.Log {
	u.mu.Lock()
	size := l.Size()
	u.total += size - u.held[l]
	u.held[l] = size
	var largest *journal.Log
	if u.most > 0 && u.total > u.most {
		for other, size := range u.held {
			if largest == nil || size > u.held[largest] {
				largest = other
			}
		}
	}
	u.mu.Unlock()
	if largest == nil {
		return nil
	}
	before := largest.Size()
	largest.Forget(largest.Last(), int(before/2))
	if largest.Size() == before {
		return nil // it is one message, which stays
	}
	return largest
}

// drop forgets a log whose connection has ended.
func (u *Unread) drop(l *journal.Log) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.total -= u.held[l]
	delete(u.held, l)
}
