package fleet

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unique"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/acp/sse"
	"sandboxagent.dev/sandbox-agent/fleet/replica"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/internal/changes"
	"sandboxagent.dev/sandbox-agent/runtime"
)

const (
	feedRest  = 50 * time.Millisecond // what changes meanwhile is looked at together
	feedTick  = 5 * time.Second       // leases of hubs run out in silence
	feedAhead = 64                    // changes that a follower looks at before its client has taken those before them
	feedBeat  = 15 * time.Second
)

// SessionChange is what those who follow the list of sessions are told, as by a gateway: see
// [runtime.SessionChange]. A session is told by its id: where several have one, the one that a request for the
// id means.
type SessionChange struct {
	Position  uint64             `json:"position"`
	Type      runtime.ChangeType `json:"type"`
	SessionID string             `json:"sessionId,omitempty"`
	Session   *Session           `json:"session,omitempty"`
}

// feed is the list of sessions in the order in which it changed last. What a session is told as is read when
// it is told; here stands only for whom there is something to tell.
//
// What follows from records is looked at when the store has told of one. Whether a node is there follows from
// leases and tunnels as well: it is what run has seen last, and each time that it is otherwise the node's
// sessions have changed.
type feed struct {
	h    *Hub
	list changes.List[listedAt, map[string]string] // the value is the labels
	wake chan struct{}                             // has one when something is due

	mu    sync.Mutex
	due   map[string]struct{} // ids of sessions to look at; bounded as sessions are
	nodes map[string]nodeSeen

	looking  sync.Mutex           // guards what follows; taken before mu
	listed   map[string][]listing // by the id of the session
	arriving map[string]struct{}  // sessions that have moved, and of which the new node has not told yet
}

// listedAt is a session in the list of those who have a token for the node, with its labels: when the labels
// change it is gone for some, and new for others.
type listedAt struct {
	session, node string
	labels        unique.Handle[string]
}

// listing is the same with the labels themselves.
type listing struct {
	listedAt
	byName map[string]string
}

// nodeSeen is how a node was when it was looked at last.
type nodeSeen struct {
	online        bool
	joined, since int64 // of its record: one that was written again is another one
}

// newFeed returns a feed with the sessions that there are.
func newFeed(h *Hub) *feed {
	f := &feed{
		h: h, wake: make(chan struct{}, 1), due: map[string]struct{}{}, nodes: map[string]nodeSeen{},
		listed: map[string][]listing{}, arriving: map[string]struct{}{},
	}
	// Another hub, and another run of this one, begins somewhere else: there a position from here is not known.
	// It stays a number that JavaScript can hold.
	f.list.Begin(1 + rand.Uint64()>>12)
	h.o.Store.OnListed(f.mark)
	f.looking.Lock()
	defer f.looking.Unlock()
	f.lookAtNodesLocked()
	f.take()
	sessions := h.o.Store.Sessions()
	slices.SortFunc(sessions, func(a, b *store.Session) int { return a.Info.CreatedAt.Compare(b.Info.CreatedAt) })
	for _, s := range sessions {
		if f.listed[s.Session] == nil {
			f.lookAtLocked(s.Session)
		}
	}
	return f
}

// mark has a session looked at.
func (f *feed) mark(id string) {
	f.mu.Lock()
	f.due[id] = struct{}{}
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default: // it has one pending
	}
}

// take returns the sessions to look at, which are due no more.
func (f *feed) take() map[string]struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	due := f.due
	f.due = map[string]struct{}{}
	return due
}

// run looks at what changes until ctx ends.
func (f *feed) run(ctx context.Context) {
	tick := time.NewTicker(feedTick)
	defer tick.Stop()
	var nodes, hubs, links <-chan struct{}
	for look := true; ; {
		if look {
			nodes, hubs, links = f.h.o.Store.NodeNews(), f.h.o.Store.HubNews(), f.h.links.news()
		}
		began := time.Now()
		f.look(look)
		select {
		case <-time.After(max(feedRest, 4*time.Since(began))): // with very many sessions it has one part in five of a processor
		case <-ctx.Done():
			return
		}
		look = false
		select {
		case <-f.wake:
		case <-nodes:
		case <-hubs:
		case <-links:
		case <-tick.C:
			look = true
			f.markArriving()
		case <-ctx.Done():
			return
		}
		look = look || closed(nodes) || closed(hubs) || closed(links)
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// lookAtNodesLocked has the sessions looked at of nodes that are not as they were.
func (f *feed) lookAtNodesLocked() {
	now := map[string]nodeSeen{}
	for _, n := range f.h.o.Store.Nodes() {
		now[n.Name] = nodeSeen{f.h.online(n), n.Joined.UnixNano(), n.Since.UnixNano()}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	had := f.nodes
	if f.nodes = now; maps.Equal(had, now) {
		return
	}
	for _, s := range f.h.o.Store.Sessions() {
		if had[s.Node] != now[s.Node] {
			f.due[s.Session] = struct{}{}
		}
	}
}

// online reports whether a node was there when it was looked at last.
func (f *feed) online(n store.Node) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.nodes[n.Name].online
}

// look looks at the sessions that are due, and before at the nodes if it is to. Who follows from now on is told how
// all is now.
func (f *feed) look(nodes bool) {
	f.looking.Lock()
	defer f.looking.Unlock()
	if nodes {
		f.lookAtNodesLocked()
	}
	for id := range f.take() {
		f.lookAtLocked(id)
	}
}

// markArriving has the sessions looked at that have moved.
func (f *feed) markArriving() {
	f.looking.Lock()
	defer f.looking.Unlock()
	for id := range f.arriving {
		f.mark(id)
	}
}

// lookAtLocked notes how a session is listed now.
func (f *feed) lookAtLocked(id string) {
	var now, moved []listing
	var since time.Time // when it came to the node that has it
	for _, s := range f.h.o.Store.SessionsNamed(id) {
		labels, state := f.h.belongsIf(s, f.online)
		one := listing{listedAt{id, s.Node, unique.Make(textOf(labels))}, labels}
		switch {
		case state == SessionMoved && f.isListedLocked(one):
			moved = append(moved, one)
			since = f.h.o.Store.Owner(store.LineOf(s.Info)).Since
		case state != SessionMoved && !holds(now, one):
			now = append(now, one)
		}
	}
	// One that has just moved stands where it was until the node that has it tells of it: it is not gone.
	delete(f.arriving, id)
	if len(now) == 0 && lately(since, settleFor) {
		now = moved
		f.arriving[id] = struct{}{}
	}
	for _, one := range f.listed[id] {
		if !holds(now, one) {
			f.list.Forget(one.listedAt, one.byName)
		}
	}
	for _, one := range now {
		f.list.Note(one.listedAt, one.byName)
	}
	if f.listed[id] = now; len(now) == 0 {
		delete(f.listed, id)
	}
}

func (f *feed) isListedLocked(one listing) bool { return holds(f.listed[one.session], one) }

func holds(all []listing, one listing) bool {
	return slices.ContainsFunc(all, func(other listing) bool { return other.listedAt == one.listedAt })
}

// textOf writes labels in one way.
func textOf(labels map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		b.WriteString(name + "=" + labels[name] + "\n")
	}
	return b.String()
}

// tell returns what is told of a change to who has a token; false when that is nothing.
func (f *feed) tell(t store.Token, c changes.Change[listedAt, map[string]string]) (told SessionChange, ok bool) {
	if !t.For(c.Key.node, c.Value) {
		return told, false
	}
	told = SessionChange{Position: c.Position, Type: runtime.ChangeDeleted, SessionID: c.Key.session}
	s, state := f.best(t, c.Key.session)
	switch {
	case c.Gone && (s == nil || state == SessionMoved): // not there any more, or nowhere that the token is for
		return told, true
	case s == nil: // it has just been removed, of which a change of its own tells
		return told, false
	}
	// As its record says, which all hubs have, and without a question to the store for each follower.
	shown := f.h.shownAs(s, state, replica.Told(&s.Info), s.Through, s.Trouble)
	told.Type, told.Session = runtime.ChangeSession, &shown
	return told, true
}

// best returns the session with an id that a request without a node means, of those that a token is for, and
// what it is doing. Where that is not clear it is the one whose node has the first name.
func (f *feed) best(t store.Token, id string) (best *store.Session, state runtime.State) {
	rank := 0
	for _, s := range f.h.o.Store.SessionsNamed(id) {
		labels, is := f.h.belongsIf(s, f.online)
		if !t.For(s.Node, labels) {
			continue
		}
		r := f.h.rank(s, is)
		if best == nil || r > rank || r == rank && (s.Node < best.Node || s.Node == best.Node && s.Epoch > best.Epoch) {
			best, state, rank = s, is, r
		}
	}
	return best, state
}

// followSessions writes how the list of sessions changes, for a token, as a gateway does.
func (h *Hub) followSessions(w http.ResponseWriter, r *http.Request, c call) error {
	q := r.URL.Query()
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		q.Set("after", last)
	}
	after, err := numberParam(q, "after", 0, 0, 1<<62)
	if err != nil {
		return err
	}
	ctx, done := h.during(r, c)
	defer done()
	out := &feedWriter{w: w, control: http.NewResponseController(w)}
	w.Header().Set("Content-Type", sse.ContentType)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	if out.flush() != nil || r.Method == http.MethodHead {
		return nil // there is nobody to tell
	}
	wake := make(chan struct{}, 1)
	defer h.feed.list.Watch(wake)()
	beat := time.NewTicker(feedBeat)
	defer beat.Stop()
	h.feed.look(true)
	follower := h.feed.list.Follow(after)
	var batch []changes.Change[listedAt, map[string]string]
	for current := false; ctx.Err() == nil; {
		var anew bool
		if batch, anew = follower.Next(batch[:0], feedAhead); anew {
			current = false
			out.put(SessionChange{Type: runtime.ChangeReset})
		}
		for _, one := range batch {
			if told, ok := h.feed.tell(c.token, one); ok {
				out.put(told)
			}
		}
		last := len(batch) < feedAhead
		if last && !current {
			current = true
			out.put(SessionChange{Position: follower.Position(), Type: runtime.ChangeCurrent})
		}
		if out.flush() != nil {
			return nil
		}
		if !last {
			continue
		}
		select {
		case <-wake:
		case <-beat.C:
			out.buf = append(out.buf, sse.Heartbeat...)
		case <-ctx.Done():
		}
	}
	if why, ok := errors.AsType[*problem.Error](context.Cause(ctx)); ok && why.Kind == problem.TokenInvalid {
		out.fail(why)
	}
	return nil
}

// feedWriter collects events and writes them together.
type feedWriter struct {
	w       http.ResponseWriter
	control *http.ResponseController
	buf     []byte
}

func (o *feedWriter) put(c SessionChange) {
	if b, err := schema.Encode(c); err == nil { // it has no values that cannot be encoded
		o.buf = sse.AppendEvent(o.buf, c.Position, b)
	}
}

// fail says why the stream ends.
func (o *feedWriter) fail(why *problem.Error) {
	if b, err := schema.Encode(why); err == nil {
		o.buf = append(append(append(o.buf, "event: error\ndata: "...), b...), "\n\n"...)
		_ = o.flush() // it ends in either case
	}
}

func (o *feedWriter) flush() error {
	if _, err := o.w.Write(o.buf); err != nil {
		return err
	}
	o.buf = o.buf[:0]
	return o.control.Flush()
}
