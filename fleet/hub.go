package fleet

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	iofs "io/fs"
	"log/slog"
	"net/http"
	goruntime "runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/acphttp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/control"
	"sandboxagent.dev/sandbox-agent/fleet/relay"
	"sandboxagent.dev/sandbox-agent/fleet/replica"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/fleet/tunnel"
)

// Options configure a Hub.
type Options struct {
	Store *store.Store
	// AdminToken may do everything, "" for none beside those in the store.
	AdminToken string
	CORS       control.CORS
	UI         iofs.FS // the web page, of all nodes and before each of them
	// Replicate has the sessions of nodes copied into the store.
	Replicate bool
	// Bundles has what agents keep of sessions stored, too, so that they can go on without
	// their node.
	Bundles bool
	// OnLoss says for which nodes sessions go on elsewhere when they are away for LossGrace.
	OnLoss    []OnLoss
	LossGrace time.Duration
	// ForgetAfter is how long a node may be away, or a session without one, until it is forgotten; 0 is for ever.
	ForgetAfter time.Duration
	// Settled is for how long a hub must have run, and its clock gone steadily, until it forgets anything, and how long
	// it must have seen itself that a node is away; 0 is an hour.
	Settled time.Duration
	// BundleSoon is how long a node may take to give what an agent keeps of one session until that is one of the slow ones, of
	// which there are few; 0 is five minutes. BundleWithin is how long it may take at all; 0 is store.BundleBound.
	BundleSoon, BundleWithin time.Duration

	Peers PeerTLS
	// Temp is where folders are that live for one request, which whoever starts the hub empties; "" is the system's
	// folder for such.
	Temp string
	// Traces is told of requests, nil when no traces are sent.
	Traces  Traces
	Version string
	Logger  *slog.Logger // nil discards
}

// Traces is what a hub tells of the requests that it serves and passes on. Its methods are safe
// for concurrent use and do not wait.
type Traces interface {
	control.Observer
	relay.Observer
	// PassOn puts the trace of ctx into the headers of a request that is passed on.
	PassOn(ctx context.Context, h http.Header)
}

// maxForgets is how many records of deleted sessions are removed at a time.
const maxForgets = 16

// Hub is the hub's http.Handler.
type Hub struct {
	o         Options
	log       *slog.Logger
	admin     *[sha256.Size]byte // nil for none
	routes    []Route
	page      http.Handler
	metrics   *metrics
	handler   http.Handler
	links     links
	returning *returning

	relay *relay.Gateway   // all nodes as one gateway
	acp   *acphttp.Handler // serves it

	peers *peering // to other hubs
	feed  *feed    // of the list of sessions

	copies    *replica.Share
	searching chan struct{} // searches
	reading   chan struct{} // transcripts that are written
	bundling  chan struct{} // bundles that are fetched
	slow      chan struct{} // those that take long; others do not wait for them
	forgets   chan struct{} // records of deleted sessions that are removed

	serving  sync.WaitGroup // requests; the HTTP server does not wait for those it gave away
	joining  pace
	stop     context.Context // done when everything must end
	end      context.CancelFunc
	mu       sync.Mutex
	draining bool
	moving   moves
}

var _ http.Handler = (*Hub)(nil)

// New returns a hub. It starts nothing; see [Hub.Run].
func New(o Options) *Hub {
	h := &Hub{
		o: o, log: o.Logger, routes: Routes(), page: control.NewPage(o.UI),
		copies: replica.NewShare(), searching: make(chan struct{}, maxSearching), reading: make(chan struct{}, maxReading),
		bundling: make(chan struct{}, maxBundling), slow: make(chan struct{}, maxSlow), forgets: make(chan struct{}, maxForgets),
	}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	if o.AdminToken != "" {
		sum := sha256.Sum256([]byte(o.AdminToken))
		h.admin = &sum
	}
	h.stop, h.end = context.WithCancel(context.Background())
	h.returning = newReturning(o.Store)
	h.metrics = newMetrics(o.Version, h)
	h.peers = newPeering(o.Peers, h.log, func(reason string) { h.metrics.peers.WithLabelValues(reason).Inc() })
	h.newRPC()
	h.o.Store.OnOwner(h.relay.Owned)
	h.o.Store.OnDeleted(h.deleted)
	h.o.Store.OnRemoved(h.removed)
	h.feed = newFeed(h)
	// Nobody gets in by a name of their own choosing: everything needs a token.
	guard := control.Guard{AllowedHosts: []string{"*"}, CORS: o.CORS}
	h.handler = h.observe(guard.Wrap(http.HandlerFunc(h.dispatch), isPage, h.authenticate))
	return h
}

// deleted has nodes remove what they have of a session that was deleted where it went. It does not wait.
func (h *Hub) deleted(o *store.Owner) {
	for _, s := range h.o.Store.SessionsNamed(o.Session) {
		if l := h.links.get(s.Node); l != nil && l.attendant != nil && o.Other(s.Node) != nil && store.LineOf(s.Info) == o.Line {
			l.attendant.noted(s.ReplicaID)
		}
	}
}

// removed is told of a session whose record is removed. Of a node that is connected it was deleted there. It does not
// wait.
func (h *Hub) removed(s *store.Session) {
	another := slices.ContainsFunc(h.o.Store.SessionsNamed(s.Session), func(o *store.Session) bool { return o.Node == s.Node })
	if !another && h.online(h.node(s.Node)) {
		h.relay.Deleted(s.Session, s.Node)
	}
	// The hub that has removed it may have seen the note of a move that is over by now.
	o := h.o.Store.Owner(store.LineOf(s.Info))
	if o == nil || o.Deleted == nil || o.Moving != nil || !h.enter() {
		return
	}
	select {
	case h.forgets <- struct{}{}:
		go func() {
			defer h.serving.Done()
			h.forgetDeleted(h.stop, o)
			<-h.forgets
		}()
	default: // the next deletion of a session that had moved takes the record with it
		h.serving.Done()
	}
}

// Run does what the hub does by itself, until ctx or the hub ends: it tells how the list of sessions changes,
// moves sessions of nodes that are lost, and forgets what is old.
func (h *Hub) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.stop, cancel)()
	var own sync.WaitGroup
	own.Go(func() { h.feed.run(ctx) })
	own.Go(func() { h.noteLeft(ctx) })
	if len(h.o.OnLoss) > 0 {
		own.Go(func() { h.watchLosses(ctx) })
	}
	if h.o.ForgetAfter > 0 {
		own.Go(func() { h.forget(ctx) })
	}
	own.Wait()
}

// isPage reports whether a path is that of the page, of all nodes or before one of them.
func isPage(path string) bool {
	rest := strings.TrimPrefix(path, "/")
	if ofNode, ok := strings.CutPrefix(path, "/nodes/"); ok {
		if _, rest, ok = strings.Cut(ofNode, "/"); !ok {
			return false
		}
	}
	return rest == "" || rest == "ui" || strings.HasPrefix(rest, "ui/")
}

// Moved ends the tunnel of a node that another hub has now, or that another one has taken for away: then hub is this one.
func (h *Hub) Moved(node, hub string) {
	l := h.links.get(node)
	switch {
	case l == nil:
	case hub == h.o.Store.Hub(): // the node joins again
		l.end(fmt.Errorf("the tunnel of %s ended: another hub has noted that it is away, as this one was cut off", node))
	default:
		l.end(errMoved(node, hub))
	}
}

// errMoved ends the tunnel of a node that another hub has.
func errMoved(node, hub string) error {
	return fmt.Errorf("the tunnel of %s ended: it has joined the hub %s", node, hub)
}

// ServeHTTP implements http.Handler.
func (h *Hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.enter() {
		problem.Write(w, errEnding)
		return
	}
	defer h.serving.Done()
	h.handler.ServeHTTP(w, r)
}

// farewell is how long clients of the hub's own ACP are waited for when they are told that
// it ends.
const farewell = 2 * time.Second

var errEnding = problem.New(problem.Unavailable, "the hub is shutting down")

func (h *Hub) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stop.Err() != nil {
		return false
	}
	h.serving.Add(1)
	return true
}

// Drain makes the hub report that it is not ready, and takes no further tunnel.
func (h *Hub) Drain() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.draining = true
}

func (h *Hub) isDraining() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.draining
}

// Shutdown ends all tunnels and what goes through them, and waits for it as long as ctx lasts. The error says that something has not
// ended by then; it goes on until it does. Clients are told of the end while the tunnels last, for half of that time at most: what
// they wait for may hang at a node.
func (h *Hub) Shutdown(ctx context.Context) error {
	h.Drain()
	relay := begin(h.relay.Close)
	first, cancel := firstHalf(ctx)
	defer cancel()
	if ended(first, relay) {
		within, cancel := context.WithTimeout(ctx, farewell)
		defer cancel()
		if err := h.acp.Shutdown(within); err != nil {
			h.log.Debug("clients that do not answer are not told that the hub ends", "err", err)
		}
	}
	h.mu.Lock()
	h.end()
	h.mu.Unlock()
	serving := begin(h.serving.Wait)
	relays, serves := ended(ctx, relay), ended(ctx, serving)
	h.peers.CloseIdleConnections()
	switch {
	case !relays:
		return fmt.Errorf("end the connections of clients: %w", context.Cause(ctx))
	case !serves:
		return fmt.Errorf("end the requests that are under way: %w", context.Cause(ctx))
	}
	return nil
}

// firstHalf returns a context that ends at half of the time that ctx has left, and with it.
func firstHalf(ctx context.Context) (context.Context, context.CancelFunc) {
	if at, bounded := ctx.Deadline(); bounded {
		return context.WithTimeout(ctx, time.Until(at)/2)
	}
	return context.WithCancel(ctx)
}

// begin does something beside its caller. What it returns is closed when it is done.
func begin(do func()) (done <-chan struct{}) {
	ch := make(chan struct{})
	go func() {
		defer close(ch)
		do()
	}()
	return ch
}

// ended waits until something is done, or ctx ends, and reports whether it is done.
func ended(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
	}
	select { // what is done counts, also when both are
	case <-done:
		return true
	default:
		return false
	}
}

// dispatch serves a request of somebody known, or one that is open to all.
func (h *Hub) dispatch(w http.ResponseWriter, r *http.Request) {
	rec := w.(*recorder) // see observe
	route, params, err := h.find(r)
	if err == nil {
		rec.route = route.Path
		c := call{params: params}
		if err = h.authorize(r, route, &c); err == nil {
			rec.node = c.node.Name
			defer h.hurries(rec, c)()
			if !route.OrNode {
				err = queries.Check(r, route.Path)
			}
			if err == nil {
				err = route.serve(h, w, r, c)
			}
		}
	}
	if err == nil {
		return
	}
	if why := rec.ended(); why != nil && problem.From(err).Kind == problem.InvalidRequest {
		err = why // the rest of the request did not come
	}
	if e, ok := errors.AsType[*notAllowed](err); ok {
		w.Header().Set("Allow", e.allow)
	}
	if _, ok := errors.AsType[*problem.Error](err); !ok {
		h.log.Error("request failed", "request_id", r.Header.Get(problem.RequestIDHeader), "method", r.Method, "path", r.URL.Path, "err", err)
		err = errInternal
	}
	problem.Write(w, err)
}

var errInternal = problem.New(problem.Internal, "the hub could not handle the request; its log says why")

// observe gives requests an id, counts and logs them, and turns panics into
// problems. Queries, headers and bodies are not logged.
func (h *Hub) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := newRecorder(w, r)
		id := control.RequestID(r.Header)
		w.Header().Set(problem.RequestIDHeader, id)
		r.Header.Set(problem.RequestIDHeader, id) // for the node
		end := func(control.Answer) {}
		if t := h.o.Traces; t != nil && !watching(r.URL.Path) {
			var ctx context.Context
			ctx, end = t.Request(r, id)
			r = r.WithContext(ctx)
		}
		h.metrics.open.Inc()
		defer func() {
			rec.finish()
			h.metrics.open.Dec()
			end(control.Answer{Route: rec.routeLabel(), Status: rec.status, Node: rec.node})
			h.metrics.requests.WithLabelValues(rec.routeLabel(), methodLabel(r.Method), fmt.Sprint(rec.status)).Inc()
			h.log.Debug("request", "request_id", id, "method", r.Method, "path", r.URL.Path, "status", rec.status, "remote", r.RemoteAddr)
		}()
		defer func() {
			v := recover()
			if v == nil {
				return
			}
			if v == http.ErrAbortHandler {
				panic(v)
			}
			h.log.Error("handler panicked", "request_id", id, "err", fmt.Sprint(v), "stack", string(debug.Stack()))
			if rec.status != 0 {
				panic(http.ErrAbortHandler) // an answer that has begun must not look whole
			}
			problem.Write(rec, errInternal)
		}()
		next.ServeHTTP(rec, r)
	})
}

// role tells clients that they talk to a hub, and not to a gateway.
const role = "hub"

// watching reports whether requests for a path come again and again and say nothing: files of the
// page, tunnels, which live as long as their nodes, and lanes, on which other requests go.
func watching(path string) bool {
	return path == tunnel.Path || path == tunnel.LanePath || isPage(path)
}

func (h *Hub) getHealth(w http.ResponseWriter, _ *http.Request, _ call) error {
	return writeJSON(w, http.StatusOK, map[string]string{"status": "ok", "role": role})
}

func (h *Hub) getReady(w http.ResponseWriter, _ *http.Request, _ call) error {
	if h.isDraining() {
		return errEnding
	}
	if err := h.o.Store.Ready(); err != nil {
		return problem.Wrap(problem.Unavailable, err, "the hub is not ready")
	}
	if err := h.o.Store.Full(); err != nil && h.o.Replicate {
		return problem.Wrap(problem.Unavailable, err, "nothing is copied")
	}
	return writeJSON(w, http.StatusOK, map[string]string{"status": "ready"})
}

func (h *Hub) getVersion(w http.ResponseWriter, _ *http.Request, c call) error {
	return writeJSON(w, http.StatusOK, map[string]any{
		"version": h.o.Version, "role": role, "scope": c.token.Scope, "protocolVersion": 1,
		"goVersion": goruntime.Version(), "os": goruntime.GOOS, "arch": goruntime.GOARCH,
	})
}

func (h *Hub) getMetrics(w http.ResponseWriter, r *http.Request, _ call) error {
	h.metrics.handler.ServeHTTP(w, r)
	return nil
}

// writeJSON answers with a JSON document of the state at this moment.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // a client that is gone needs no answer
	return nil
}
