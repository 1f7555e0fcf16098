package fleet

import (
	"time"

	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/internal/awake"
)

// absences knows since when nodes are away, by the own clock: a hub that has just begun has not seen
// any that was there. It is used by one goroutine.
type absences struct {
	h     *Hub
	since map[string]awake.Moment // bounded as nodes are
}

// look returns the nodes that this hub has seen to be away for a time. When it is this hub that is cut off, or ends,
// nothing is known: ok is false, and all times begin anew.
func (a *absences) look(atLeast time.Duration) (away []store.Node, ok bool) {
	if a.h.o.Store.Ready() != nil || a.h.isDraining() {
		a.since = nil
		return nil, false
	}
	seen := map[string]awake.Moment{}
	for _, n := range a.h.o.Store.Nodes() {
		if a.h.online(n) {
			continue
		}
		since, known := a.since[n.Name]
		if !known {
			since = awake.Now()
		}
		if seen[n.Name] = since; since.Ago() >= atLeast {
			away = append(away, n)
		}
	}
	a.since = seen
	return away, true
}
