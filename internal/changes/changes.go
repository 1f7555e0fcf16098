// Package changes tells how a list of things changes. It keeps them in the order in which they changed
// last. Who follows is a position and a wake-up, and holds no queue: of a thing that has changed often
// meanwhile it sees how it is now. So a follower that is slow lags, and costs nobody anything.
//
// What is gone is remembered for a time. Who has not heard of what is forgotten begins anew, and is told so.
package changes

import (
	"container/list"
	"slices"
	"sync"
)

// maxGone bounds the things that are gone and remembered. At the bound the oldest is forgotten.
const maxGone = 4096

// List is the things in the order in which they changed last. Call Begin before anything else. It is safe
// for concurrent use. Its lock is held for nothing but its own fields, and may be taken while others are held.
type List[K comparable, V any] struct {
	mu       sync.Mutex
	last     uint64    // number of the newest change
	begin    uint64    // before the first change
	floor    uint64    // the newest change that is forgotten; 0 for none
	order    list.List // of *Change[K, V], oldest first
	byKey    map[K]*list.Element
	gone     int // changes of things that are gone
	watchers []chan<- struct{}
}

// Change is the newest change of a thing.
type Change[K comparable, V any] struct {
	Position uint64
	Key      K
	Value    V
	Gone     bool
}

// Begin says behind which number the changes are numbered. A position that is not from here on is known
// as one of another list.
func (l *List[K, V]) Begin(position uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last, l.begin = position, position
	l.byKey = map[K]*list.Element{}
}

// Note notes that a thing is not as it was, or is new.
func (l *List[K, V]) Note(key K, value V) { l.note(Change[K, V]{Key: key, Value: value}) }

// Forget notes that a thing is gone. The value is what followers need to know of it.
func (l *List[K, V]) Forget(key K, value V) { l.note(Change[K, V]{Key: key, Value: value, Gone: true}) }

func (l *List[K, V]) note(c Change[K, V]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.byKey[c.Key]; e != nil {
		l.dropLocked(e)
	}
	l.last++
	c.Position = l.last
	l.byKey[c.Key] = l.order.PushBack(&c)
	if c.Gone {
		l.gone++
	}
	for e := l.order.Front(); l.gone > maxGone; {
		next := e.Next()
		if was := e.Value.(*Change[K, V]); was.Gone {
			l.floor = was.Position // they go in their order
			l.dropLocked(e)
		}
		e = next
	}
	for _, w := range l.watchers {
		select {
		case w <- struct{}{}:
		default: // it has a wake-up pending
		}
	}
}

func (l *List[K, V]) dropLocked(e *list.Element) {
	was := l.order.Remove(e).(*Change[K, V])
	delete(l.byKey, was.Key)
	if was.Gone {
		l.gone--
	}
}

// Position returns the number of the newest change.
func (l *List[K, V]) Position() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// Watch makes every change send to wake, without waiting; use a channel with room for one. The returned
// function ends it.
func (l *List[K, V]) Watch(wake chan<- struct{}) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watchers = append(l.watchers, wake)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if i := slices.Index(l.watchers, wake); i >= 0 {
			l.watchers = slices.Delete(l.watchers, i, i+1)
		}
	}
}

// Follow returns a follower whose first change is the one behind a position.
func (l *List[K, V]) Follow(position uint64) *Follower[K, V] {
	return &Follower[K, V]{list: l, position: position}
}

// Follower is a position in the changes of a list. It is not safe for concurrent use.
type Follower[K comparable, V any] struct {
	list     *List[K, V]
	position uint64
	at       *list.Element // what it was told last; nil for nothing. It may have left the list
	anew     bool          // it has begun with all things,
	floor    uint64        // when this was the newest change that was forgotten,
	from     uint64        // and this the newest one: what was gone then it was not told of
}

// Next appends the next changes, oldest first and at most limit. anew says that it cannot be said what
// has changed since the position, because that is too old or of another list: what follows is all
// things, and what was told before counts no more.
func (f *Follower[K, V]) Next(dst []Change[K, V], limit int) (_ []Change[K, V], anew bool) {
	l := f.list
	l.mu.Lock()
	defer l.mu.Unlock()
	known := f.position >= max(l.floor, l.begin) && f.position <= l.last || f.anew && f.floor == l.floor
	if !known {
		anew = true
		f.position, f.at, f.anew, f.floor, f.from = l.begin, nil, true, l.floor, l.last
	}
	for e := l.behindLocked(f); e != nil && limit > 0; e = e.Next() {
		was := e.Value.(*Change[K, V])
		f.position, f.at = was.Position, e
		if was.Gone && was.Position <= f.from {
			continue
		}
		dst = append(dst, *was)
		limit--
	}
	return dst, anew
}

// behindLocked returns the first change that a follower was not told of, nil for none. A long list is not walked
// over for each few that somebody is told.
func (l *List[K, V]) behindLocked(f *Follower[K, V]) *list.Element {
	if f.at != nil && l.byKey[f.at.Value.(*Change[K, V]).Key] == f.at {
		return f.at.Next()
	}
	if f.position <= l.begin {
		return l.order.Front()
	}
	var behind *list.Element
	for e := l.order.Back(); e != nil && e.Value.(*Change[K, V]).Position > f.position; e = e.Prev() {
		behind = e
	}
	return behind
}

// Position returns the position behind what Next has returned.
func (f *Follower[K, V]) Position() uint64 { return f.position }
