package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// maxOthers bounds the nodes that are known to have something of a session beside its owner. Beyond
// it the one that was heard of longest ago is forgotten: what it has is then a session of its own.
const maxOthers = 64

// Line names a session over all nodes: as it moves it keeps its id, and when it was made.
type Line struct {
	Session string    `json:"session"`
	Created time.Time `json:"created"`
}

// LineOf returns the line of a session as a node tells of it.
func LineOf(i runtime.SessionInfo) Line { return Line{Session: i.ID, Created: i.CreatedAt.UTC()} }

func (l Line) key() string {
	return escape(l.Session) + "." + strconv.FormatInt(l.Created.UnixNano(), 10)
}

// Owner says which node has a session that was moved, or is being moved. One that never was has
// none. Records are not changed once they are in the store.
type Owner struct {
	Line
	Node string `json:"node"`
	// Term grows by one with each move. Who has an earlier one has the session no more.
	Term  uint64    `json:"term"`
	Since time.Time `json:"since"`
	Cwd   string    `json:"cwd,omitempty"` // of the session there, "" before the first move
	// Others are nodes that have something of the session and do not own it; bounded by maxOthers.
	Others []Other `json:"others,omitempty"`
	Moving *Moving `json:"moving,omitempty"` // nil when it is not being moved
	// Deleted is since when the session is no more, as its owner has told. What others have of it is removed as
	// soon as they are there; those that have nothing any more are taken out of Others.
	Deleted *time.Time `json:"deleted,omitempty"`
}

// Other is a node that has something of a session which another one owns.
type Other struct {
	Node string `json:"node"`
	// LastSeq is the last event that went on from it, 0 for one that never owned the session. What
	// it has behind that is no part of the session.
	LastSeq uint64 `json:"lastSeq"`
	// Lost says that it was away when the session went on without it. Missing is how many events it
	// had told of that did not go along, at most.
	Lost    bool   `json:"lost,omitempty"`
	Missing uint64 `json:"missing,omitempty"`
	Term    uint64 `json:"term"` // in which it owned the session
	// LeftOut names what the session had there and did not take along, as a move tells it; at most 64 names.
	LeftOut []string `json:"leftOut,omitempty"`
	// Empty says that it has deleted what it had.
	Empty bool      `json:"empty,omitempty"`
	Until time.Time `json:"until"`
}

// Moving is a move that has begun. It is stale when its hub lives no more, or does not know of it.
type Moving struct {
	ID    string    `json:"id"`
	To    string    `json:"to"`
	Hub   string    `json:"hub"` // that does it, "" for none any more
	Since time.Time `json:"since"`
	// LeftOut is what the session does not take along, once that is known: who ends the move for its hub tells it.
	LeftOut []string `json:"leftOut,omitempty"`
}

// Other returns what is known of a node that is not the owner, nil for one that has nothing to do
// with the session, or owns it.
func (o *Owner) Other(node string) *Other {
	if o == nil || node == o.Node {
		return nil
	}
	if i := slices.IndexFunc(o.Others, func(l Other) bool { return l.Node == node }); i >= 0 {
		return &o.Others[i]
	}
	return nil
}

// With returns a copy of the record with one of the others replaced, or added.
func (o Owner) With(other Other) *Owner {
	o.Others = append(slices.DeleteFunc(slices.Clone(o.Others), func(l Other) bool { return l.Node == other.Node }), other)
	if len(o.Others) > maxOthers {
		o.Others = o.Others[1:]
	}
	return &o
}

// Left returns a copy of the record in which no hub does the move, and it is not known how far that has come.
func (o Owner) Left() *Owner {
	m := *o.Moving
	m.Hub = ""
	o.Moving = &m
	return &o
}

// Owner returns who has a session, nil when it has never been moved.
func (s *Store) Owner(l Line) *Owner {
	if s.owners.len() == 0 {
		return nil // and no key is made: a list asks this of each session
	}
	r, _ := s.owners.get(l.key())
	return r.value
}

// OwnerTold is Owner once who is told of changes by OnOwner was told of all that is known, and of no more. It must not be
// called from there.
func (s *Store) OwnerTold(l Line) *Owner {
	r, _ := s.owners.told(l.key())
	return r.value
}

// Owners returns all owners, in no order.
func (s *Store) Owners() []*Owner { return s.owners.all() }

// OwnerNews returns a channel that is closed when an owner changes.
func (s *Store) OwnerNews() <-chan struct{} { return s.owners.news() }

// OnOwner has f told of each change of an owner, in the order of the changes. It must not wait.
func (s *Store) OnOwner(f func(*Owner)) { s.owned.Store(&f) }

func (s *Store) ownerChanged(_ string, has bool, o *Owner) {
	if f := s.owned.Load(); f != nil && has {
		(*f)(o)
	}
}

// OnDeleted has f told of each session that is deleted at its owner, once, when that can be seen. It must not wait.
func (s *Store) OnDeleted(f func(*Owner)) { s.erased.Store(&f) }

// ownerTaken is told of each change of an owner; nil is none.
func (s *Store) ownerTaken(had, now *Owner) {
	if f := s.erased.Load(); f != nil && now != nil && now.Deleted != nil && (had == nil || had.Deleted == nil) {
		(*f)(now)
	}
	if o := cmp.Or(now, had); o != nil {
		s.tellListed(o.Session)
	}
}

// HubLives reports whether a hub of this store runs, as far as this one knows. A store in a hub's own
// folder has no other one, also while the lease of the one before it has not run out.
func (s *Store) HubLives(hub string) bool {
	return hub == s.hub || s.engine == nil && s.living.of(hub) != nil
}

// UpdateOwner writes what change makes of the record that is there, which is nil for none and must
// stay as it is. Of several who do so at the same time all see what the one before has written:
// change may be called more than once. What it returns as an error ends it.
func (s *Store) UpdateOwner(ctx context.Context, l Line, change func(*Owner) (*Owner, error)) (*Owner, error) {
	ctx, cancel := context.WithTimeout(ctx, writeBound)
	defer cancel()
	for {
		had, _ := s.owners.get(l.key())
		next, err := change(had.value)
		if err != nil {
			return had.value, err
		}
		record := *next // it can be the one that is there, which others read
		record.Line = l
		_, err = s.owners.put(ctx, l.key(), &record, had.revision)
		if err == nil {
			return &record, nil
		}
		if !errors.Is(err, errChanged) {
			return had.value, problem.Wrap(problem.Unavailable, err, "the hub cannot note who has session %s", l.Session)
		}
		if err := s.owners.awaitGone(ctx, l.key(), had.revision); err != nil {
			return had.value, problem.Wrap(problem.Unavailable, err, "the hub cannot note who has session %s", l.Session)
		}
	}
}

// rememberDeleted is how long a node may be away that is still to remove what it has of a deleted session.
const rememberDeleted = 90 * 24 * time.Hour

// errSame ends an update that has nothing to change.
var errSame = errors.New("nothing to change")

// SessionDeleted notes that a node has deleted a session, or what it had of one that another owns. With the owner's
// the session itself is no more: copies of what nodes have that are not there are removed now, and those nodes
// remove theirs when they come back.
func (s *Store) SessionDeleted(ctx context.Context, l Line, node string) error {
	if s.Owner(l) == nil {
		return nil
	}
	now := time.Now().UTC()
	o, err := s.UpdateOwner(ctx, l, func(had *Owner) (*Owner, error) {
		if had == nil || had.Node != node && had.Other(node) == nil {
			return nil, errSame
		}
		next := *had
		if other := had.Other(node); other != nil && had.Deleted == nil { // it stays one of those that had it
			next.Others = slices.Clone(had.Others)
			next.Other(node).Empty = true
		} else if other != nil {
			next.Others = slices.DeleteFunc(slices.Clone(had.Others), func(o Other) bool { return o.Node == node })
		} else if had.Deleted == nil {
			next.Deleted = &now
		}
		return &next, nil
	})
	switch {
	case errors.Is(err, errSame):
		return nil
	case err != nil:
		return err
	case o.Deleted == nil: // the session goes on, and so does what others have of it
		return nil
	}
	for _, r := range s.SessionsNamed(l.Session) {
		n, known := s.Node(r.Node)
		there := known && r.Of(n) && s.Online(n) // it removes its own; another node by the same name has nothing to remove
		if err == nil && r.Node != node && o.Other(r.Node) != nil && LineOf(r.Info) == l && !there {
			err = s.RemoveSession(ctx, r.ReplicaID)
		}
	}
	for _, old := range s.owners.all() {
		if old.Line != l && err == nil {
			err = s.ForgetOwner(ctx, old.Line)
		}
	}
	return err
}

// awaited reports whether a node may come back that still has something of a session of which the hub has
// nothing: of one that was deleted, or whose copies somebody has removed while its nodes were away.
func (s *Store) awaited(o *Owner) bool {
	if o.Deleted == nil {
		return s.isAway(o.Node) || slices.ContainsFunc(o.Others, func(other Other) bool { return !other.Empty && s.isAway(other.Node) })
	}
	return time.Since(*o.Deleted) < rememberDeleted && slices.ContainsFunc(o.Others, func(other Other) bool {
		return s.Knows(other.Node) && !other.Empty
	})
}

// Awaited are the nodes that are still to learn that a session of theirs was deleted elsewhere.
func (s *Store) Awaited() map[string]bool {
	out := map[string]bool{}
	for _, o := range s.owners.all() {
		if o.Deleted == nil || time.Since(*o.Deleted) >= rememberDeleted {
			continue
		}
		for _, other := range o.Others {
			out[other.Node] = out[other.Node] || !other.Empty
		}
	}
	return out
}

// isAway reports whether a node is known, and not there, as far as this hub can read.
func (s *Store) isAway(node string) bool {
	n, _ := s.Node(node)
	return s.Knows(node) && !s.Online(n)
}

// ForgetOwner removes the owner of a session of which nothing is left. While the session is being
// moved the owner stays: those who wait for the end of the move are told of it by the owner. So does that of a
// session of which a node that is away may still have something.
func (s *Store) ForgetOwner(ctx context.Context, l Line) error {
	for _, other := range s.SessionsNamed(l.Session) {
		if LineOf(other.Info) == l {
			return nil
		}
	}
	for _, key := range s.sessions.unreadable() { // it may be of this one: who made it stands in what cannot be read
		if strings.Contains(key, "."+escape(l.Session)+".") {
			return nil
		}
	}
	had, known := s.owners.told(l.key()) // who has just heard of it forgets it, too
	if !known || had.value.Moving != nil && s.HubLives(had.value.Moving.Hub) || s.awaited(had.value) {
		return nil
	}
	if err := s.owners.remove(ctx, l.key(), had.revision); err != nil && !errors.Is(err, errChanged) {
		return fmt.Errorf("forget who has session %s: %w", l.Session, err)
	}
	return nil // somebody else has just written it, and it is used
}
