package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/fleet/tunnel"
	"sandboxagent.dev/sandbox-agent/internal/awake"
	"sandboxagent.dev/sandbox-agent/runtime"
)

const (
	lossLook  = time.Second      // between looks at who is away
	lossRetry = 5 * time.Minute  // a session that could not be moved is tried again, or sooner if that may be over soon
	lossSoon  = 30 * time.Second // the longest pause where it is only a place that is missing
	// lossMost is how long a move may take: what a node keeps of a session was fetched in half of that, or on a very slow line.
	lossMost = 2 * bundleSoon
	// lossSilence is the longest for which a node is left out that has held up such a move.
	lossSilence = time.Hour
)

// OnLoss says for which nodes sessions go on at other nodes when they are lost: those with all of
// the labels, to others with them. Without labels it is for all.
type OnLoss struct{ Labels map[string]string }

// ParseOnLoss reads rules as they are written in flags: read, which is none, or move, or
// move:NAME=VALUE, with + between several labels.
func ParseOnLoss(words []string) (rules []OnLoss, err error) {
	for _, w := range words {
		what, labels, some := strings.Cut(w, ":")
		rule := OnLoss{}
		switch {
		case what == "read" && !some && len(words) == 1:
			return nil, nil
		case what == "read":
			return nil, fmt.Errorf("%q beside others: read is for all nodes", w)
		case what != "move":
			return nil, fmt.Errorf("%q is neither read nor move, nor move:NAME=VALUE", w)
		case some:
			if rule.Labels, err = tunnel.ParseLabels(strings.Split(labels, "+")); err != nil {
				return nil, err
			}
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

// watchLosses moves sessions of nodes that are lost, until ctx ends.
func (h *Hub) watchLosses(ctx context.Context) {
	w := newLossWatch(h)
	tick := time.NewTicker(lossLook)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.look(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// lossWatch knows what it has tried in vain. It is used by one goroutine.
type lossWatch struct {
	h      *Hub
	away   absences
	failed map[store.ReplicaID]attempt // sessions of nodes that are away
	there  map[string]time.Time        // nodes that were online at the last look, since when; bounded as nodes are
	// silent are the nodes to which a session could not go because they did not answer. Sessions go elsewhere, or wait: one node that
	// hangs must not take the time of all. Bounded as nodes are.
	silent map[string]attempt
}

func newLossWatch(h *Hub) *lossWatch {
	return &lossWatch{away: absences{h: h}, h: h, failed: map[store.ReplicaID]attempt{}, silent: map[string]attempt{}}
}

// lossShare says how much longer than its silence has held up a move a node is left out, up to lossSilence.
const lossShare = 10

// attempt is one to move a session, that failed.
type attempt struct {
	at    awake.Moment
	pause time.Duration // until the next one
	place bool          // there was none to go to: another node may be one
}

// look moves the sessions of nodes that are away for long.
func (w *lossWatch) look(ctx context.Context) {
	lost, ok := w.away.look(w.h.o.LossGrace)
	if !ok {
		return
	}
	w.noteJoined()
	for _, n := range lost {
		rule, ok := w.h.onLoss(n)
		if !ok {
			continue
		}
		for _, s := range w.left(n) {
			if ctx.Err() != nil || w.h.online(w.h.node(n.Name)) {
				return
			}
			if !w.move(ctx, s, rule) {
				break
			}
		}
	}
	for id, last := range w.failed {
		if _, away := w.away.since[id.Node]; !away || last.at.Ago() > last.pause+2*lossSilence { // longer than a node is silent
			delete(w.failed, id)
		}
	}
}

// noteJoined forgets in vain attempts that had no place to go to, when a node has joined since the last look.
func (w *lossWatch) noteJoined() {
	there, joined := map[string]time.Time{}, false
	for _, n := range w.h.o.Store.Nodes() {
		if w.h.online(n) {
			there[n.Name] = n.Since
			joined = joined || !w.there[n.Name].Equal(n.Since)
		}
	}
	maps.DeleteFunc(w.silent, func(node string, _ attempt) bool {
		since, online := there[node]
		return !online || !since.Equal(w.there[node])
	})
	if w.there = there; joined {
		maps.DeleteFunc(w.failed, func(_ store.ReplicaID, last attempt) bool { return last.place })
	}
}

// onLoss returns the rule that is for a node.
func (h *Hub) onLoss(n store.Node) (OnLoss, bool) {
	i := slices.IndexFunc(h.o.OnLoss, func(r OnLoss) bool { return store.Token{Labels: r.Labels}.For(n.Name, n.Labels) })
	if i < 0 {
		return OnLoss{}, false
	}
	return h.o.OnLoss[i], true
}

// left returns the sessions that a node has taken along and that can go on without it, the one in
// which something happened last first. Those that could not go come behind the others: one that takes
// long to fail would be the first each time. What somebody has closed stays as it is.
func (w *lossWatch) left(n store.Node) (out []*store.Session) {
	for _, s := range w.h.o.Store.Sessions() {
		if s.Node != n.Name || s.Bundled == 0 || s.Info.State == runtime.StateClosed || s.Info.Ended != nil {
			continue
		}
		if _, state := w.h.belongs(s); state != SessionOffline || w.h.moves(s) {
			continue
		}
		if last, failed := w.failed[s.ReplicaID]; !failed || last.at.Ago() >= last.pause {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(a, b *store.Session) int {
		return cmp.Or(w.inVain(a)-w.inVain(b), b.Info.UpdatedAt.Compare(a.Info.UpdatedAt), cmp.Compare(a.Session, b.Session))
	})
	return out
}

// inVain returns 1 for a session that could not go though there was a place for it, else 0.
func (w *lossWatch) inVain(s *store.Session) int {
	if last, failed := w.failed[s.ReplicaID]; failed && !last.place {
		return 1
	}
	return 0
}

// moves reports whether a hub is doing a move of a session.
func (h *Hub) moves(s *store.Session) bool {
	o := h.o.Store.Owner(store.LineOf(s.Info))
	return o != nil && h.underWay(o.Moving)
}

// itself is who moves sessions that nobody asked to move.
var itself = store.Token{ID: "on-node-loss", Kind: store.KindClient, Scope: store.ScopeAdmin}

// move moves a session; false says that there is nowhere to go now, for the others neither.
func (w *lossWatch) move(ctx context.Context, s *store.Session, rule OnLoss) bool {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(w.h.stop, func() { cancel(errEnding) })()
	began := awake.Now()
	// Behind it the others wait: a node that takes a byte now and then is not waited for without end.
	within, done := context.WithTimeoutCause(ctx, lossMost, notWithin(problem.NodeOffline, lossMost))
	defer done()
	leftOut := false // a node that is silent
	got, err := w.h.move(within, itself, s, SessionOffline, MoveRequest{Labels: rule.Labels}, func(node string) bool {
		silent := w.isSilent(node)
		leftOut = leftOut || silent
		return silent
	})
	if err == nil {
		delete(w.silent, got.Node)
	}
	if err == nil || ctx.Err() != nil {
		return err == nil
	}
	silent, isSilent := errors.AsType[*errSilent](err) // by its kind it could also be the session that is at fault
	if isSilent {
		w.silent[silent.node] = attempt{at: awake.Now(), pause: max(
			min(max(lossLook, 2*w.silent[silent.node].pause), lossRetry), min(lossShare*began.Ago(), lossSilence),
		)}
	}
	kind := problem.From(err).Kind
	last := attempt{pause: lossRetry, place: kind == problem.NodeNotFound || kind == problem.UnsupportedAgent}
	longest := lossRetry
	switch {
	case last.place && leftOut:
		kind, longest = problem.NodeNotFound, lossLook // that with the agent may be the one left out, and answer again
	case last.place || kind == problem.TooManyRequests:
		longest = lossSoon
	}
	others := true
	switch kind {
	case problem.NodeOffline, problem.NodeNotFound, problem.TooManyRequests, problem.Unavailable:
		w.h.log.Debug("a session of a node that is lost has nowhere to go", "session", s.Session, "node", s.Node, "err", err)
		if others = w.somewhere(rule); !others && !isSilent {
			return false
		}
		// It is this one that cannot go, or the node that it was to go to is gone by now.
		last.pause = min(max(lossLook, 2*w.failed[s.ReplicaID].pause), longest)
	case problem.Conflict:
		// Another hub does it, which may end, or has ended since that was found: the next look decides.
		if o := w.h.o.Store.Owner(store.LineOf(s.Info)); o != nil && o.Moving != nil && (o.Moving.Hub != w.h.o.Store.Hub() || w.h.underWay(o.Moving)) {
			return true
		}
	default:
		w.h.log.Warn("a session of a node that is lost could not be moved", "session", s.Session, "node", s.Node, "err", err, "again_in", lossRetry)
	}
	last.at = awake.Now()
	w.failed[s.ReplicaID] = last // also where the node is at fault: the others go first then
	return others
}

// isSilent reports whether a node has not answered lately.
func (w *lossWatch) isSilent(node string) bool {
	last, failed := w.silent[node]
	return failed && last.at.Ago() < last.pause
}

// somewhere reports whether there is a node to which sessions can go, a store that takes note of that, and a move left of
// those that this hub does at one time.
func (w *lossWatch) somewhere(rule OnLoss) bool {
	if w.h.busyMoving() {
		return false
	}
	_, placed, err := w.h.relay.Place(itself, "", rule.Labels, "", w.isSilent)
	if err == nil {
		placed()
	}
	return err == nil && w.h.o.Store.Ready() == nil
}
