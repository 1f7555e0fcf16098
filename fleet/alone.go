package fleet

// What a node did in a session that another one owns: it is no part of the session, and is kept beside it.

import (
	"context"
	"iter"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/fleet/replica"
	"sandboxagent.dev/sandbox-agent/fleet/store"
)

// keep returns when the hub has copied what the other node did of the session on its own, which that loses when the
// session takes its place there.
func (m *move) keep(ctx context.Context) error {
	if nodeIn(m.there) == "" { // it has nothing, or what a move brought that failed
		return nil
	}
	had, node := m.h.o.Store.Owner(m.line).Other(m.to), m.h.node(m.to)
	copies := m.h.o.Replicate && m.h.newest(m.to, m.line) != nil
	if had != nil && !copies && m.there.EventCount == had.LastSeq {
		return nil
	}
	kept := false
	err := m.h.until(ctx, settleFor, func() bool {
		s := m.h.newest(m.to, m.line)
		kept = s != nil && s.Gone == nil && s.Trouble == "" && s.Instance == node.Instance &&
			s.Info.EventCount == m.there.EventCount && s.Through >= m.there.EventCount
		return kept
	})
	if err == nil && !kept {
		err = problem.New(problem.Unavailable, "%s did something of the session on its own, and the hub has not copied that yet: try again", m.to)
	}
	return err
}

// extra is how many events of a replica are no part of the session, as far as they were counted.
type extra struct {
	of, owner  store.ReplicaID
	from, upTo uint64 // those behind the one are counted, and not those behind the other
	n          uint64
}

// countExtra notes how many events the node has of a session that another one owns and that are no part of it: what a move
// brought there that failed is. It is false while more of the owner's may come.
func (a *attendant) countExtra(ctx context.Context, s *store.Session, o *store.Owner) (settled bool, err error) {
	whole := true // what the owner has is copied
	owner := a.h.newest(o.Node, o.Line)
	c := extra{of: s.ReplicaID, from: o.Other(a.node).LastSeq}
	if owner != nil {
		c.owner, whole = owner.ReplicaID, owner.Through >= replica.Told(&owner.Info)
		settled = owner.Trouble != "" || !a.h.online(a.h.node(o.Node)) // no more comes now
	}
	settled = settled || whole
	if had := a.extras[s.Session]; had.of == c.of && had.owner == c.owner && had.from == c.from {
		c = had
	} else if c.upTo = c.from; s.Through <= c.from && s.Extra == 0 {
		return true, nil
	}
	if s.Through > c.upTo {
		n, err := a.h.countBeside(ctx, c.of, c.owner, c.upTo, s.Through)
		if err != nil {
			return false, err
		}
		c.n, c.upTo = c.n+n, s.Through
	}
	if delete(a.extras, s.Session); whole { // else it is counted anew
		a.extras[s.Session] = c
	}
	if c.n == s.Extra {
		return settled, nil
	}
	return settled, a.h.o.Store.UpdateSession(ctx, s.ReplicaID, func(had *store.Session) *store.Session {
		if had == nil || store.LineOf(had.Info) != o.Line {
			return nil
		}
		next := *had
		next.Extra = c.n
		return &next
	})
}

// countBeside returns how many events of a replica behind one and up to another are not in the replica of the session's owner.
func (h *Hub) countBeside(ctx context.Context, of, owner store.ReplicaID, after, upTo uint64) (n uint64, err error) {
	next, stop := iter.Pull2(replica.Lines(ctx, h.o.Store, owner, after))
	defer stop()
	var theirs replica.Line
	more := true
	for own, err := range replica.Lines(ctx, h.o.Store, of, after) {
		if err != nil {
			return n, err
		}
		if own.Seq > upTo {
			break
		}
		for more && theirs.Seq < own.Seq {
			if theirs, err, more = next(); err != nil {
				return n, err
			}
		}
		if !more || theirs.Seq != own.Seq || !replica.Alike(theirs.Text, own.Text) {
			n++
		}
	}
	return n, nil
}
