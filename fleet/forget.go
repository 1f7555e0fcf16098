package fleet

import (
	"cmp"
	"context"
	"time"

	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/internal/awake"
)

const (
	forgetLook = time.Minute // between looks at what is to be forgotten, at most
	forgetSeen = time.Hour   // for Options.Settled
)

// forget forgets, until ctx ends, what nobody has come back for in Options.ForgetAfter: nodes, and the copies of
// sessions that no node has which is there.
func (h *Hub) forget(ctx context.Context) {
	away, clock := absences{h: h}, awake.Steady{}
	settled := min(h.o.ForgetAfter, cmp.Or(h.o.Settled, forgetSeen))
	tick := time.NewTicker(min(forgetLook, settled/4))
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if nodes, ok := away.look(settled); ok && clock.For() >= settled {
				h.forgetOld(ctx, nodes)
			}
		case <-ctx.Done():
			return
		}
	}
}

// forgetOld forgets what is old, of nodes that are away and of those that there are no more.
func (h *Hub) forgetOld(ctx context.Context, away []store.Node) {
	left := map[string]bool{} // the nodes that are away for long, and whether one of their sessions stays
	for _, n := range away {
		if n.Connected { // its hub has ended without a word: nobody has noted when
			h.o.Store.NoteAway(ctx, n.Name)
		} else if h.isOld(n.Since) {
			left[n.Name] = false
		}
	}
	sessions := 0
	for _, known := range h.o.Store.Sessions() {
		if ctx.Err() != nil {
			return
		}
		s := h.o.Store.Session(known.ReplicaID) // as it is by now
		if s == nil {
			continue
		}
		if _, long := left[s.Node]; !h.isOver(s, long) {
			if long {
				left[s.Node] = true
			}
			continue
		}
		if err := h.o.Store.RemoveSession(ctx, s.ReplicaID); err != nil {
			h.log.Warn("a session that is to be forgotten is not", "session", s.Session, "node", s.Node, "err", err)
			return // it is the store: the next look tries again
		}
		sessions++
		h.metrics.forgotten.WithLabelValues("session").Inc()
	}
	nodes, awaited := 0, h.o.Store.Awaited()
	for _, n := range away {
		if some, old := left[n.Name]; !old || some || awaited[n.Name] {
			continue
		}
		if err := h.o.Store.RemoveNode(ctx, n.Name); err != nil {
			h.log.Debug("a node that is to be forgotten is not", "node", n.Name, "err", err)
			continue // it has come back, or another hub was faster
		}
		nodes++
		h.metrics.forgotten.WithLabelValues("node").Inc()
	}
	if nodes > 0 {
		h.forgetOwners(ctx) // they were kept in case the nodes come back
	}
	if sessions+nodes > 0 {
		h.log.Info("what nobody has come back for is forgotten", "sessions", sessions, "nodes", nodes, "after", h.o.ForgetAfter)
	}
}

// forgetOwners forgets who has sessions of which nothing is left: their nodes are forgotten, or they were deleted.
func (h *Hub) forgetOwners(ctx context.Context) {
	for _, o := range h.o.Store.Owners() {
		if h.o.Store.Knows(o.Node) && o.Deleted == nil {
			continue
		}
		if err := h.o.Store.ForgetOwner(ctx, o.Line); err != nil {
			h.log.Warn("what is left of sessions that are forgotten", "err", err)
			return
		}
	}
}

// isOld reports whether a moment is so long ago that things of that time are forgotten. One that is to come is not.
func (h *Hub) isOld(t time.Time) bool { return time.Since(t) >= h.o.ForgetAfter }

// isOver reports whether the copy of a session has had its time: its node is away for long, or has it no more, and
// nothing has happened in it since.
func (h *Hub) isOver(s *store.Session, away bool) bool {
	o := h.o.Store.Owner(store.LineOf(s.Info))
	if o != nil && h.underWay(o.Moving) || !h.isOld(s.Info.UpdatedAt) {
		return false
	}
	n, known := h.o.Store.Node(s.Node)
	switch {
	case !known && h.o.Store.Knows(s.Node):
		return false // a newer hub knows its node
	case !known || !s.Of(n):
		return true // its node is forgotten, or another one has the name
	case !h.online(n):
		return away
	}
	return s.Gone != nil && h.isOld(*s.Gone)
}
