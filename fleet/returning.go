package fleet

import (
	"context"
	"sync/atomic"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/fleet/tunnel"
	"sandboxagent.dev/sandbox-agent/internal/awake"
)

const (
	// returnsWithin is how long a node usually takes to join again when it finds that a hub has started: longer when thousands do.
	returnsWithin = tunnel.LongestPause + time.Second
	// expected is how long nothing is done that only a node's loss is a reason for.
	expected = time.Minute
	// maxReturning bounds the requests that wait for nodes; more are answered that the node is away.
	maxReturning = 1024
	// leftLately is how long before the start of this hub a node may have left to count as one that left with the hub before.
	leftLately = time.Minute
)

// returning are the nodes that had joined the hub before this one when that ended. They join again by themselves, in seconds:
// who asks for one of them waits for it. A node that leaves later is away at once.
type returning struct {
	began awake.Moment
	nodes map[string]store.Node // as their records were; not changed
	waits atomic.Int32          // requests
}

// newReturning looks at what a hub that starts finds.
func newReturning(s *store.Store) *returning {
	r := &returning{began: awake.Now(), nodes: map[string]store.Node{}}
	for _, n := range s.Nodes() {
		if (!s.HubLives(n.Hub) || s.Succeeds(n.Hub)) && (n.Connected || lately(n.Since, leftLately)) { // else it left by itself
			r.nodes[n.Name] = n
		}
	}
	return r
}

// left is how long a node is still waited for; not at all when it has joined since, here or at another hub, or was forgotten.
func (r *returning) left(n store.Node, within time.Duration) time.Duration {
	was, ok := r.nodes[n.Name]
	if !ok || n.Hub != was.Hub || n.Connected != was.Connected || !n.Since.Equal(was.Since) {
		return 0
	}
	return within - r.began.Ago()
}

// returns reports whether a node that is away is expected in a moment, because this hub has just started.
func (h *Hub) returns(n store.Node) bool { return h.returning.left(n, returnsWithin) > 0 }

// comesBack is how long a node is not taken for lost: it joins again by itself, also when it was another hub that it had joined, and
// that has ended.
func (h *Hub) comesBack(n store.Node, within time.Duration) time.Duration {
	left := h.returning.left(n, within)
	ago, ended := h.o.Store.HubEnded(n.Hub)
	if ended && !h.online(n) && (n.Connected || (time.Since(n.Since)-ago).Abs() < leftLately) { // else it left before by itself
		left = max(left, within-ago)
	}
	return left
}

// awaitReturn waits for a node that is expected in a moment. It need not have come then. The error is why nobody waits any more.
func (h *Hub) awaitReturn(ctx context.Context, node string) error {
	if h.returning.began.Ago() >= returnsWithin {
		return nil // and nothing is looked up
	}
	return h.awaitNode(ctx, node, h.returning.left)
}

// awaitNode waits for a node as long as left says, which is asked for within returnsWithin.
func (h *Hub) awaitNode(ctx context.Context, node string, leftOf func(store.Node, time.Duration) time.Duration) error {
	for {
		news := h.o.Store.NodeNews()
		left := leftOf(h.node(node), returnsWithin)
		if left <= 0 {
			return nil
		}
		if h.returning.waits.Add(1) > maxReturning {
			h.returning.waits.Add(-1)
			return problem.New(problem.NodeOffline, "%s has not joined again yet since its hub ended; %d requests wait for such nodes: try again in a moment", node, maxReturning)
		}
		late, stop := awake.After(left)
		select {
		case <-news:
		case <-late:
		case <-ctx.Done():
		case <-h.stop.Done():
		}
		stop()
		h.returning.waits.Add(-1)
		switch {
		case ctx.Err() != nil:
			return endOf(ctx)
		case h.stop.Err() != nil:
			return errEnding
		}
	}
}
