package fleet

import (
	"context"
	"crypto/subtle"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/fleet/replica"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/fleet/tunnel"
)

// join opens the tunnel of a gateway. It is held when the request was answered: what a request takes is
// too much for a thousand of them.
func (h *Hub) join(w http.ResponseWriter, r *http.Request, c call) error {
	if h.isDraining() {
		return errEnding
	}
	if err := h.joining.await(r.Context(), h.stop, w.Header()); err != nil {
		h.metrics.joins.WithLabelValues("refused").Inc()
		return err
	}
	hello, err := introduced(r, c.token)
	if err != nil {
		h.metrics.joins.WithLabelValues("refused").Inc()
		return err
	}
	// From its record on, and from the answer, others may ask for the node.
	settled := h.links.expect(hello.Name)
	defer settled()
	admitted, err := h.admit(r, c.token, hello)
	if err != nil {
		h.metrics.joins.WithLabelValues("refused").Inc()
		return err
	}
	leave := sync.OnceFunc(func() {
		if err := h.o.Store.Leave(context.Background(), admitted); err != nil {
			h.log.Warn("a node is gone, and that could not be noted; it is tried again", "node", hello.Name, "err", err)
		}
	})
	held := false
	defer func() {
		if !held {
			leave()
		}
	}()
	if !h.o.Replicate {
		w.Header().Set(tunnel.HeaderCopies, tunnel.CopiesNone)
	}
	t, err := tunnel.Accept(w, r)
	if err != nil {
		h.log.Debug("a tunnel could not be begun", "node", hello.Name, "err", err)
		return nil // it was answered
	}
	h.metrics.joins.WithLabelValues("joined").Inc()
	l := h.newLink(hello, t, admitted.Revision())
	if h.o.Replicate {
		l.attendant = h.newAttendant(hello.Name)
		l.follower = replica.New(replica.Options{
			Store: h.o.Store, Node: admitted.Node(), Carrier: l.carrier, Share: h.copies, Logger: h.log,
			Copied: func(events int) { h.metrics.copied.Add(float64(events)) },
			Noted:  l.attendant.noted,
		})
	}
	held = true
	there := h.links.add(l)
	if hub, ok := h.o.Store.Elsewhere(hello.Name); ok { // this hub was told so when there was no link to end
		l.end(errMoved(hello.Name, hub))
	}
	over, token := c.over.Done(), c.token.ID
	h.serving.Go(func() { // it is not waited for yet: this request is being served
		defer leave()
		if !there {
			l.close(h.broken(l)) // a later one is there already
			return
		}
		h.hold(l, over, token, leave)
	})
	return nil
}

// broken is what those get whose requests a tunnel had when it ended.
func (h *Hub) broken(l *link) error {
	if h.stop.Err() != nil {
		return errEnding
	}
	return problem.New(problem.NodeOffline, "the connection to %s broke while it was used; whether it has done what was asked is not known", l.name).DoneUnknown()
}

// hold keeps a link until its tunnel ends, or must end, as when over is closed. Then what goes through it
// ends, and leave notes that the node is gone before it is shown so.
func (h *Hub) hold(l *link, over <-chan struct{}, token string, leave func()) {
	h.log.Info("a node has joined", "node", l.name, "token", token)
	var own sync.WaitGroup
	if l.follower != nil {
		own.Go(func() { l.follower.Run(l.ctx) })
		own.Go(func() { l.attendant.run(l.ctx) })
	}
	why := "its tunnel ended"
	select {
	case <-l.tunnel.Done():
	case <-l.ctx.Done():
		why = context.Cause(l.ctx).Error()
	case <-over:
		why = "its token was revoked or has expired"
	case <-h.stop.Done():
		why = "the hub is shutting down"
	}
	l.close(h.broken(l))
	own.Wait()
	leave()
	h.links.drop(l)
	h.log.Info("a node is gone", "node", l.name, "why", why)
}

// noteLeft notes, until ctx ends, what the store has not taken of nodes that left: with this hub alive they would be online for
// the others, and their names would be given to no other gateway.
func (h *Hub) noteLeft(ctx context.Context) {
	tick := time.NewTicker(noteAgain)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if h.o.Store.Ready() != nil {
				continue // the write would wait in vain
			}
			// Who joins is expected before there is the record.
			if err := h.o.Store.LeaveUnheld(ctx, h.online); err != nil && ctx.Err() == nil {
				h.log.Debug("nodes are gone, and that could not be noted", "err", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

// admit notes that a gateway joins, as who it says it is, if its token lets it.
func (h *Hub) admit(r *http.Request, t store.Token, hello tunnel.Hello) (store.Held, error) {
	return h.o.Store.Join(r.Context(), store.Node{
		Name: hello.Name, Labels: hello.Labels, Agents: hello.Agents, Version: hello.Version, Instance: hello.Instance, Token: t.ID,
	}, func(had store.Node) error {
		if !t.For(had.Name, had.Labels) {
			return problem.New(problem.PermissionDenied, "the name %s belongs to a node that this token is not for: choose another --node-name", had.Name)
		}
		return nil
	})
}

// introduced returns what a node says of itself, with the labels of its token, if
// that lets it join so.
func introduced(r *http.Request, t store.Token) (tunnel.Hello, error) {
	hello, err := tunnel.ParseHello(r.Header)
	if err != nil {
		return hello, problem.Wrap(problem.InvalidRequest, err, "this is no request of a gateway that joins")
	}
	if t.Node != "" && t.Node != hello.Name {
		return hello, problem.New(problem.PermissionDenied, "the token is for the node %s, and this one says it is %s", t.Node, hello.Name)
	}
	for k, v := range t.Labels {
		if said, ok := hello.Labels[k]; ok && said != v {
			return hello, problem.New(problem.PermissionDenied, "the token is for nodes with the label %s=%s, and this one says %s=%s", k, v, k, said)
		}
	}
	maps.Copy(hello.Labels, t.Labels)
	if err := tunnel.CheckLabels(hello.Labels); err != nil {
		return hello, problem.Wrap(problem.InvalidRequest, err, "with the labels of the token")
	}
	return hello, nil
}

// link is a node whose tunnel this hub holds.
type link struct {
	name      string
	tunnel    *tunnel.Tunnel
	revision  uint64 // of the record with which it came: a later one is newer
	proxy     *httputil.ReverseProxy
	instance  string            // secret of the node's program
	carrier   *streams          // of requests
	lanes     *streams          // of those that are large; nil when the node opens no lanes
	follower  *replica.Follower // nil when nothing is copied
	attendant *attendant        // nil likewise

	ctx context.Context // done when it is closed, with why
	end context.CancelCauseFunc

	mu    sync.Mutex
	users map[string]int // requests that are being served, by the id of their token
}

func (h *Hub) newLink(hello tunnel.Hello, t *tunnel.Tunnel, revision uint64) *link {
	l := &link{name: hello.Name, tunnel: t, revision: revision, instance: hello.Instance, users: map[string]int{}}
	l.ctx, l.end = context.WithCancelCause(context.Background())
	l.carrier = newStreams(t.Open, idleStreams)
	if hello.Lanes {
		l.lanes = newStreams(l.openLane, idleLanes)
	}
	l.proxy = h.newProxy(l)
	return l
}

// close ends the tunnel and what goes through it.
func (l *link) close(why error) {
	l.end(why)
	_ = l.tunnel.Close() // fails when it has ended
	l.carrier.CloseIdleConnections()
	if l.lanes != nil {
		l.lanes.CloseIdleConnections()
	}
}

// openLane opens a lane, or a stream where there is none.
func (l *link) openLane(ctx context.Context) (net.Conn, error) {
	if c, err := l.tunnel.Lane(ctx); err == nil {
		return c, nil
	}
	c, err := l.tunnel.Open(ctx)
	return once{c}, err
}

// once is a connection that is not used again.
type once struct{ net.Conn }

// RoundTrip implements [http.RoundTripper]. What may be large goes by a lane.
func (l *link) RoundTrip(r *http.Request) (*http.Response, error) {
	if l.lanes != nil && mayBeLarge(r) {
		return l.lanes.RoundTrip(r)
	}
	return l.carrier.RoundTrip(r)
}

// mayBeLarge reports whether a request to a node, or its answer, may be large: files, and sessions as files.
func mayBeLarge(r *http.Request) bool {
	switch path := r.URL.Path; {
	case r.Header.Get("Upgrade") != "":
		return false
	case r.Method == http.MethodGet:
		return path == "/v2/fs/file" || path == "/v2/fs/download-batch" || strings.HasPrefix(path, "/v2/sessions/") && strings.HasSuffix(path, "/export")
	}
	return r.ContentLength < 0 || r.ContentLength >= largeBody
}

// lane takes a connection that a node opens because this hub has asked for it.
func (h *Hub) lane(w http.ResponseWriter, r *http.Request, c call) error {
	name, instance, number, err := tunnel.ParseLane(r.Header)
	if err != nil {
		return problem.Wrap(problem.InvalidRequest, err, "this is no request of a gateway that opens a lane")
	}
	l := h.links.get(name)
	if l == nil || c.token.Node != "" && c.token.Node != name || subtle.ConstantTimeCompare([]byte(instance), []byte(l.instance)) != 1 || !l.tunnel.Awaits(number) {
		return problem.New(problem.Conflict, "this hub awaits no such lane: behind one address of several hubs another one may")
	}
	if err := l.tunnel.TakeLane(w, number); err != nil {
		h.log.Debug("a lane could not be begun", "node", name, "err", err)
	}
	return nil
}

// enter counts a request of a token until leave is called.
func (l *link) enter(token string) (leave func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.users[token] >= clientShare {
		return nil, problem.New(problem.TooManyRequests, "%d requests and streams of this token go to %s already: end some, or use another token", clientShare, l.name)
	}
	l.users[token]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.users[token]--; l.users[token] == 0 {
			delete(l.users, token)
		}
	}, nil
}

// links are the nodes whose tunnels this hub holds. The zero value has none.
type links struct {
	mu      sync.Mutex
	byName  map[string]*link
	coming  map[string]*arrival // nodes whose tunnels are being opened; bounded by the pace at which they join
	changed chan struct{}       // closed and replaced when there is another one, or one less; nil until somebody waits
}

func (ls *links) get(name string) *link {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.byName[name]
}

// arrival is a node whose tunnel is being opened.
type arrival struct {
	tunnels int           // for it
	settled chan struct{} // closed when all of them are there, or will not be
}

// expect says that there will be a link of a node, or that it is settled that there will not be one.
func (ls *links) expect(name string) (settled func()) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	a := ls.coming[name]
	if a == nil {
		a = &arrival{settled: make(chan struct{})}
		if ls.coming == nil {
			ls.coming = map[string]*arrival{}
		}
		ls.coming[name] = a
	}
	a.tunnels++
	return func() {
		ls.mu.Lock()
		defer ls.mu.Unlock()
		if a.tunnels--; a.tunnels == 0 {
			delete(ls.coming, name)
			close(a.settled)
		}
	}
}

// find returns the link of a node, or a channel that is closed when it is settled whether there is
// one; neither when none is expected.
func (ls *links) find(name string) (l *link, settled <-chan struct{}) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l = ls.byName[name]; l == nil && ls.coming[name] != nil {
		settled = ls.coming[name].settled
	}
	return l, settled
}

// linkOf returns the link of a node that this hub has, or is about to have as the node's record
// says; nil for none. One that is expected in a moment is waited for; the error is why
// nobody waits any more.
func (h *Hub) linkOf(ctx context.Context, name string) (*link, error) {
	if err := h.awaitReturn(ctx, name); err != nil {
		return nil, err
	}
	for {
		l, settled := h.links.find(name)
		if l != nil || settled == nil || !h.comes(name) {
			if l == nil && h.stop.Err() != nil {
				return nil, errEnding // which is why it has left
			}
			return l, nil
		}
		select {
		case <-settled:
		case <-ctx.Done():
			return nil, endOf(ctx)
		}
	}
}

// comes reports whether the record of a node says that this hub has its tunnel.
func (h *Hub) comes(name string) bool {
	n, known := h.o.Store.Node(name)
	return known && n.Connected && n.Hub == h.o.Store.Hub()
}

// news returns a channel that is closed when there is another link, or one less.
func (ls *links) news() <-chan struct{} {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.changed == nil {
		ls.changed = make(chan struct{})
	}
	return ls.changed
}

// add puts a link in the place of an earlier one of the same node, which ends; false
// when there is a later one.
func (ls *links) add(l *link) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if had := ls.byName[l.name]; had != nil {
		if had.revision > l.revision {
			return false
		}
		had.end(errors.New("it has joined again"))
	}
	if ls.byName == nil {
		ls.byName = map[string]*link{}
	}
	ls.byName[l.name] = l
	ls.tellLocked()
	return true
}

func (ls *links) tellLocked() {
	if ls.changed != nil {
		close(ls.changed)
		ls.changed = nil
	}
}

func (ls *links) drop(l *link) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.byName[l.name] == l {
		delete(ls.byName, l.name)
		ls.tellLocked()
	}
}

// behind returns how many events the nodes have told of that are not copied yet, at most.
func (ls *links) behind() (n uint64) {
	ls.mu.Lock()
	all := slices.Collect(maps.Values(ls.byName))
	ls.mu.Unlock()
	for _, l := range all {
		if l.follower != nil {
			n += l.follower.Behind()
		}
	}
	return n
}

// count returns the links, their streams and their lanes.
func (ls *links) count() (n, streams, lanes int) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for _, l := range ls.byName {
		streams += l.tunnel.Streams()
		lanes += l.tunnel.Lanes()
	}
	return len(ls.byName), streams, lanes
}
