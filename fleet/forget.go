package fleet

import (
	"context"
	"time"

	"sandboxagent.dev/sandbox-agent/fleet/store"
)

const (
	forgetLook = time.Minute // between looks at what is to be forgotten, at most
	// forgetSeen is how long a hub must have seen itself that a node is away: one that has just begun does not know
	// who comes back, and its clock may just be set.
	forgetSeen = time.Hour
)

// forget forgets, until ctx ends, what nobody has come back for in Options.ForgetAfter: nodes, and the copies of
// sessions that no node has which is there.
func (h *Hub) forget(ctx context.Context) {
	away := absences{h: h}
	tick := time.NewTicker(min(forgetLook, h.o.ForgetAfter/4))
	defer tick.Stop()
	for {
		if nodes, ok := away.look(min(h.o.ForgetAfter, forgetSeen)); ok {
			h.forgetOld(ctx, nodes)
		}
		select {
		case <-tick.C:
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
		} else if !lately(n.Since, h.o.ForgetAfter) {
			left[n.Name] = false
		}
	}
	sessions := 0
	for _, s := range h.o.Store.Sessions() {
		if ctx.Err() != nil {
			return
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
	nodes := 0
	for _, n := range away {
		if some, old := left[n.Name]; !old || some {
			continue
		}
		if err := h.o.Store.RemoveNode(ctx, n.Name); err != nil {
			h.log.Debug("a node that is to be forgotten is not", "node", n.Name, "err", err)
			continue // it has come back, or another hub was faster
		}
		nodes++
		h.metrics.forgotten.WithLabelValues("node").Inc()
	}
	if sessions+nodes > 0 {
		h.log.Info("what nobody has come back for is forgotten", "sessions", sessions, "nodes", nodes, "after", h.o.ForgetAfter)
	}
}

// isOver reports whether the copy of a session has had its time: its node is away for long, or has it no more, and
// nothing has happened in it since.
func (h *Hub) isOver(s *store.Session, away bool) bool {
	o := h.o.Store.Owner(store.LineOf(s.Info))
	if o != nil && h.underWay(o.Moving) || lately(s.Info.UpdatedAt, h.o.ForgetAfter) {
		return false
	}
	n, known := h.o.Store.Node(s.Node)
	switch {
	case !known || !s.Of(n):
		return true // its node is forgotten, or another one has the name
	case !h.online(n):
		return away
	}
	return s.Gone != nil && !lately(*s.Gone, h.o.ForgetAfter)
}
