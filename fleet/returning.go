package fleet

import (
	"context"
	"time"

	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/fleet/tunnel"
	"sandboxagent.dev/sandbox-agent/internal/awake"
)

const (
	// returnsWithin is how long a node takes to join again when it finds that a hub has started.
	returnsWithin = tunnel.LongestPause + time.Second
	// leftLately is how long before the start of this hub a node may have left to count as one that left with the hub before.
	leftLately = time.Minute
)

// returning are the nodes that had joined the hub before this one when that ended. They join again by themselves, in seconds:
// who asks for one of them waits for it. A node that leaves later is away at once.
type returning struct {
	began awake.Moment
	nodes map[string]store.Node // as their records were; not changed
}

// newReturning looks at what a hub that starts finds.
func newReturning(s *store.Store) returning {
	r := returning{began: awake.Now(), nodes: map[string]store.Node{}}
	for _, n := range s.Nodes() {
		if (!s.HubLives(n.Hub) || s.Succeeds(n.Hub)) && (n.Connected || lately(n.Since, leftLately)) { // else it left by itself
			r.nodes[n.Name] = n
		}
	}
	return r
}

// left is how long a node is still waited for; not at all when it has joined since, here or at another hub, or was forgotten.
func (r *returning) left(n store.Node) time.Duration {
	was, ok := r.nodes[n.Name]
	if !ok || n.Hub != was.Hub || n.Connected != was.Connected || !n.Since.Equal(was.Since) {
		return 0
	}
	return returnsWithin - r.began.Ago()
}

// returns reports whether a node that is away is expected in a moment, because this hub has just started.
func (h *Hub) returns(n store.Node) bool { return h.returning.left(n) > 0 }

// awaitReturn waits for a node that is expected in a moment. It need not have come then.
func (h *Hub) awaitReturn(ctx context.Context, node string) {
	for h.returning.began.Ago() < returnsWithin { // else nothing is looked up
		news := h.o.Store.NodeNews()
		left := h.returning.left(h.node(node))
		if left <= 0 {
			return
		}
		late, stop := awake.After(left)
		select {
		case <-news:
		case <-late:
		case <-ctx.Done():
		case <-h.stop.Done():
		}
		stop()
		if ctx.Err() != nil || h.stop.Err() != nil {
			return
		}
	}
}
