package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/runtime"
)

const (
	// MaxSessions bounds the sessions that are known, each some hundred bytes to some
	// kilobytes of each hub's memory. At the bound no further one is taken: those that
	// are there may be all that is left of somebody's work.
	MaxSessions = 100_000
	// MaxSessionsOfNode bounds those of one node, in the same way.
	MaxSessionsOfNode = 10_000
)

// ErrFull is returned when a session cannot be taken because of MaxSessions.
var ErrFull = fmt.Errorf("the hub knows %d sessions and takes no more: remove some that nobody needs", MaxSessions)

// Session is a session of a node, as a hub has heard of it last, and how much of it the
// log has. Records are not changed once they are in the store.
type Session struct {
	ReplicaID
	NodeJoined time.Time         `json:"nodeJoined"`       // tells nodes apart that have had the same name
	Instance   string            `json:"instance"`         // of the node, when it told of the session last
	Labels     map[string]string `json:"labels,omitempty"` // of the node then

	Info runtime.SessionInfo `json:"info"`
	// Through says that the log has all events up to this number that the node had when
	// it was asked. Not every number has an event.
	Through uint64     `json:"through"`
	Bytes   uint64     `json:"bytes,omitempty"` // that the log has of it, about; 0 also when an earlier version wrote it
	Gone    *time.Time `json:"gone,omitempty"`  // since when the node has it no more
	// Bundled is the session's newest event when its bundle was made, 0 for none.
	Bundled      uint64 `json:"bundled,omitempty"`
	BundledEdits uint64 `json:"bundledEdits,omitempty"` // the session's edits then
	BundleSize   uint64 `json:"bundleSize,omitempty"`   // its bytes
	// BundleTrouble is why there is no newer bundle, "" when all is well.
	BundleTrouble string `json:"bundleTrouble,omitempty"`
	// Extra is how many events of the log are no part of the session, which another node owns.
	Extra   uint64 `json:"extra,omitempty"`
	Trouble string `json:"trouble,omitempty"` // why the log has no more of it, "" when all is well
}

// Of reports whether the session is one of the node, and not of an earlier one by its name.
func (s *Session) Of(n Node) bool { return s.Node == n.Name && s.NodeJoined.Equal(n.Joined) }

// Sessions returns all sessions, in no order.
func (s *Store) Sessions() []*Session { return s.sessions.all() }

// SessionsNamed returns all sessions with an id, in no order.
func (s *Store) SessionsNamed(id string) []*Session {
	var out []*Session
	for _, one := range s.named.of(id) {
		if r := s.Session(one); r != nil {
			out = append(out, r)
		}
	}
	return out
}

// names are the records of sessions by the session's id. The zero value has none.
type names struct {
	mu   sync.Mutex
	byID map[string][]ReplicaID
}

func (n *names) of(id string) []ReplicaID {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.byID[id])
}

func (n *names) add(r ReplicaID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.byID == nil {
		n.byID = map[string][]ReplicaID{}
	}
	n.byID[r.Session] = append(n.byID[r.Session], r)
}

func (n *names) remove(r ReplicaID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.byID[r.Session] = slices.DeleteFunc(n.byID[r.Session], func(one ReplicaID) bool { return one == r })
	if len(n.byID[r.Session]) == 0 {
		delete(n.byID, r.Session)
	}
}

// OnListed has f told of the id of each session of which a record, or the owner, has changed, when that can be
// seen. It must not wait.
func (s *Store) OnListed(f func(id string)) { s.listed.Store(&f) }

// OnRemoved has f told of each session whose record is removed, when that can be seen. It must not wait.
func (s *Store) OnRemoved(f func(*Session)) { s.removed.Store(&f) }

func (s *Store) tellListed(id string) {
	if f := s.listed.Load(); f != nil {
		(*f)(id)
	}
}

// sessionTaken is told of each change of a session's record; nil is none.
func (s *Store) sessionTaken(had, now *Session) {
	switch {
	case had == nil && now == nil:
		return
	case had == nil:
		s.named.add(now.ReplicaID)
	case now == nil:
		s.named.remove(had.ReplicaID)
		if f := s.removed.Load(); f != nil {
			(*f)(had)
		}
	}
	s.tellListed(cmp.Or(now, had).Session)
}

// SessionNews returns a channel that is closed when something is known of a session that was not.
func (s *Store) SessionNews() <-chan struct{} { return s.sessions.news() }

// SessionCount returns how many sessions there are.
func (s *Store) SessionCount() int { return s.sessions.len() }

// Session returns what is known of a session, nil for nothing.
func (s *Store) Session(id ReplicaID) *Session {
	r, _ := s.sessions.get(id.key())
	return r.value
}

// UpdateSession writes what change makes of the record that is there, which is nil for none and
// must stay as it is. Change may be called more than once; when it returns nil nothing is written.
func (s *Store) UpdateSession(ctx context.Context, id ReplicaID, change func(*Session) *Session) error {
	ctx, cancel := context.WithTimeout(ctx, writeBound)
	defer cancel()
	for {
		had, known := s.sessions.get(id.key())
		next := change(had.value)
		if next == nil {
			return nil
		}
		if !known && s.sessions.len() >= MaxSessions {
			return ErrFull
		}
		next.ReplicaID = id
		_, err := s.sessions.put(ctx, id.key(), next, had.revision)
		if !errors.Is(err, errChanged) {
			return err
		}
		if err := s.sessions.awaitGone(ctx, id.key(), had.revision); err != nil {
			return err
		}
	}
}

// RemoveSession removes a session and its replica. That there is none is no error. One whose record cannot be
// read stays, with [ErrUnreadable].
func (s *Store) RemoveSession(ctx context.Context, id ReplicaID) error {
	if s.sessions.isUnreadable(id.key()) {
		return problem.Wrap(problem.Unavailable, ErrUnreadable, "the hub cannot remove the session")
	}
	ctx, cancel := context.WithTimeout(ctx, writeBound)
	defer cancel()
	// The record goes last: as long as it is there the session can be removed again.
	if err := errors.Join(s.dropLog(ctx, id), s.DropBundle(ctx, id)); err != nil {
		if s.room != nil && noSpace(err) {
			return problem.Wrap(problem.Unavailable, err, "the disk of the hub is full: try again in some seconds, when the hub has given up the room that it holds for removals, or make room on the disk first")
		}
		return problem.Wrap(problem.Unavailable, err, "the hub cannot remove the session")
	}
	for {
		had, known := s.sessions.get(id.key())
		if !known {
			if s.sessions.isUnreadable(id.key()) { // meanwhile
				return problem.Wrap(problem.Unavailable, ErrUnreadable, "the hub cannot remove the session's record")
			}
			return nil
		}
		err := s.sessions.remove(ctx, id.key(), had.revision)
		if err == nil {
			if err := s.ForgetOwner(ctx, LineOf(had.value.Info)); err != nil {
				s.log.Warn("what is left of a session that was removed", "session", id.Session, "err", err)
			}
			return nil
		}
		if !errors.Is(err, errChanged) {
			return problem.Wrap(problem.Unavailable, err, "the hub cannot remove the session")
		}
		if err := s.sessions.awaitGone(ctx, id.key(), had.revision); err != nil {
			return problem.Wrap(problem.Unavailable, err, "the hub cannot remove the session")
		}
	}
}
