package session

import (
	"cmp"
	"container/list"
	"slices"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/version"
)

// maxForgotten bounds the deleted sessions that are remembered. Who has not heard of an
// older one begins anew.
const maxForgotten = 4096

// changes is the sessions in the order in which they changed last. Who follows it is a
// position and a wake-up, and holds no queue: of a session that has changed often
// meanwhile it sees how it is now. Its lock is held for nothing but its own fields, and
// may be taken while that of a session is held.
type changes struct {
	mu        sync.Mutex
	last      uint64    // number of the newest change
	begin     uint64    // before the first change of this run
	floor     uint64    // the newest deletion that is not remembered; 0 for none
	order     list.List // of *change, oldest first
	bySession map[string]*list.Element
	forgotten int // changes that are deletions
	watchers  []chan<- struct{}
}

// change is the newest change of one session.
type change struct {
	number  uint64
	id      string
	session *Session // nil when it was deleted
}

// init numbers the sessions that there are. Numbers grow over restarts of the gateway,
// so that a position of an earlier run is known as one.
func (c *changes) init(sessions []*Session) {
	c.last = uint64(time.Now().UnixMicro())
	c.begin = c.last
	c.bySession = map[string]*list.Element{}
	slices.SortFunc(sessions, func(a, b *Session) int {
		return cmp.Or(a.rec.CreatedAt.Compare(b.rec.CreatedAt), cmp.Compare(a.id, b.id))
	})
	for _, s := range sessions {
		c.note(s.id, s)
	}
}

// note notes that a session is not as it was; s is nil when it was deleted.
func (c *changes) note(id string, s *Session) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.bySession[id]; e != nil {
		c.dropLocked(e)
	}
	c.last++
	c.bySession[id] = c.order.PushBack(&change{number: c.last, id: id, session: s})
	if s == nil {
		c.forgotten++
	}
	for e := c.order.Front(); c.forgotten > maxForgotten; {
		next := e.Next()
		if was := e.Value.(*change); was.session == nil {
			c.floor = was.number // they go in their order
			c.dropLocked(e)
		}
		e = next
	}
	for _, w := range c.watchers {
		select {
		case w <- struct{}{}:
		default: // it has a wake-up pending
		}
	}
}

func (c *changes) dropLocked(e *list.Element) {
	was := c.order.Remove(e).(*change)
	delete(c.bySession, was.id)
	if was.session == nil {
		c.forgotten--
	}
}

// position returns the number of the newest change.
func (c *changes) position() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

func (c *changes) watch(wake chan<- struct{}) (stop func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watchers = append(c.watchers, wake)
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if i := slices.Index(c.watchers, wake); i >= 0 {
			c.watchers = slices.Delete(c.watchers, i, i+1)
		}
	}
}

// shown is what is told of a session as soon as it changes; see also rest. What changes with every
// message, such as its number of events, is told each second at most: see Tidy.
type shown struct {
	state            State
	pending, clients int
	background       int
	title, gist      string
	continuity       Continuity
	ended            *EndInfo
	subagents        *version.Subagent // the first of a list that is replaced and never changed in place
	options          *byte             // of texts that are replaced and never changed in place
	metadata         *byte
	unstored         bool // there is something for the store, and nobody waits for it
}

func (s *Session) shownLocked() shown {
	pending, clients := s.countsLocked()
	var subagents *version.Subagent
	if len(s.rec.Subagents) > 0 {
		subagents = &s.rec.Subagents[0]
	}
	return shown{
		subagents: subagents, state: s.stateLocked(), background: s.backgroundLocked(), pending: pending, clients: clients, title: s.rec.Title, gist: s.rec.Gist, continuity: s.rec.Continuity, ended: s.rec.Ended,
		options: begin(s.rec.ConfigOptions), metadata: begin(s.rec.Metadata), unstored: s.wantsStore(),
	}
}

func begin(b []byte) *byte {
	if len(b) == 0 {
		return nil
	}
	return &b[0]
}

// rest is how long nobody is told again that a session works, or does no more. Short turns
// come by hundreds in a second: to tell of each takes more than to answer it.
const rest = 50 * time.Millisecond

// announceLocked tells those who follow the list of sessions, if there is something to
// tell.
func (s *Session) announceLocked() {
	now := s.shownLocked()
	works := now.onlyWorks(s.told)
	if !s.listed || now == s.told || works && s.justTold {
		return
	}
	if works {
		s.justTold = true
		time.AfterFunc(rest, s.announceRested)
	}
	s.told = now
	s.set.changes.note(s.id, s)
}

// announceRested tells what a rest has kept back.
func (s *Session) announceRested() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.justTold = false
	s.announceLocked()
}

// onlyWorks reports whether nothing is otherwise than it was, but that the session works, or
// does no more.
func (now shown) onlyWorks(was shown) bool {
	works := func(s State) bool { return s == StateRunning || s == StateIdle }
	same := works(now.state) && works(was.state)
	was.state = now.state
	return same && now == was
}

// announceActivity tells them that something has happened since they were told last.
func (s *Session) announceActivity() {
	seen := s.active.Load()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.listed && s.toldActive != seen {
		s.toldActive, s.told = seen, s.shownLocked()
		s.set.changes.note(s.id, s)
	}
}

// list makes the session one of those that are listed.
func (s *Session) list() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listed, s.told, s.toldActive = true, s.shownLocked(), s.active.Load()
}

// ListChange is what those who follow the list of sessions are told: how a session is
// now, or that it was deleted.
type ListChange struct {
	Position uint64
	ID       string
	Session  *Session // nil when it was deleted
}

// Follower is a position in the changes of the list of sessions. It is not safe for
// concurrent use.
type Follower struct {
	changes  *changes
	position uint64
	anew     bool   // it has begun with all sessions,
	floor    uint64 // when this was the newest deletion that was not remembered,
	from     uint64 // and this the newest change: deletions up to it are of sessions that it was not told of
}

// Follow returns a follower whose first change is the one behind a position.
func (set *Set) Follow(position uint64) *Follower {
	set.await()
	return &Follower{changes: &set.changes, position: position}
}

// Next appends the next changes, oldest first and at most limit. anew says that it
// cannot be said what has changed since the position, because that is too old or of an
// earlier gateway: what follows is all sessions, and what was told before counts no more.
func (f *Follower) Next(dst []ListChange, limit int) (_ []ListChange, anew bool) {
	c := f.changes
	c.mu.Lock()
	defer c.mu.Unlock()
	known := f.position >= max(c.floor, c.begin) && f.position <= c.last || f.anew && f.floor == c.floor
	if !known {
		anew = true
		f.position, f.anew, f.floor, f.from = c.begin, true, c.floor, c.last
	}
	e := c.order.Back()
	for e != nil && e.Value.(*change).number > f.position {
		e = e.Prev()
	}
	if e == nil {
		e = c.order.Front()
	} else {
		e = e.Next()
	}
	for ; e != nil && limit > 0; e = e.Next() {
		was := e.Value.(*change)
		f.position = was.number
		if was.session == nil && was.number <= f.from {
			continue
		}
		dst = append(dst, ListChange{was.number, was.id, was.session})
		limit--
	}
	return dst, anew
}

// Position returns the position behind what Next has returned.
func (f *Follower) Position() uint64 { return f.position }

// Position returns the position behind all changes of the list that there were.
func (set *Set) Position() uint64 {
	set.await()
	return set.changes.position()
}

// Watch makes every change of the list send to wake, without waiting; use a channel
// with room for one. The returned function ends it.
func (set *Set) Watch(wake chan<- struct{}) (stop func()) { return set.changes.watch(wake) }
