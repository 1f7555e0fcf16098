package session

import (
	"cmp"
	"slices"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/version"
	"sandboxagent.dev/sandbox-agent/internal/changes"
)

// beginChanges begins the list of changes with the sessions that there are. Numbers grow over restarts
// of the gateway, so that a position of an earlier run is known as one.
func (set *Set) beginChanges(sessions []*Session) {
	set.changes.Begin(uint64(time.Now().UnixMicro()))
	slices.SortFunc(sessions, func(a, b *Session) int {
		return cmp.Or(a.rec.CreatedAt.Compare(b.rec.CreatedAt), cmp.Compare(a.id, b.id))
	})
	for _, s := range sessions {
		set.changes.Note(s.id, s)
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
	s.set.changes.Note(s.id, s)
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
		s.set.changes.Note(s.id, s)
	}
}

// list makes the session one of those that are listed.
func (s *Session) list() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.listed, s.told, s.toldActive = true, s.shownLocked(), s.active.Load()
}

// ListChange says how a session is now, or that it was deleted.
type ListChange = changes.Change[string, *Session]

// Follow returns a follower of the list of sessions whose first change is the one behind a position.
func (set *Set) Follow(position uint64) *changes.Follower[string, *Session] {
	set.await()
	return set.changes.Follow(position)
}

// Position returns the position behind all changes of the list that there were.
func (set *Set) Position() uint64 {
	set.await()
	return set.changes.Position()
}

// Watch makes every change of the list send to wake, without waiting; use a channel
// with room for one. The returned function ends it.
func (set *Set) Watch(wake chan<- struct{}) (stop func()) { return set.changes.Watch(wake) }
