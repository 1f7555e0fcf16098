package fleet

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/control"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/fleet/tunnel"
)

const (
	copyBuffer = 32 << 10 // bytes
	// ownBuffer is small: there are many nodes, and what comes of most is nothing. What is large passes
	// by it.
	ownBuffer = 2 << 10 // bytes
	// clientShare bounds the requests and streams of one token at one node, so that a
	// client leaves room for others. More are refused.
	clientShare = tunnel.MaxStreams / 2
)

// proxy passes a request on to its node, and the answer back.
func (h *Hub) proxy(w http.ResponseWriter, r *http.Request, c call) error {
	l, err := h.linkOf(r.Context(), c.node.Name)
	if err != nil {
		return err
	}
	n, known := h.o.Store.Node(c.node.Name)
	if !known || !c.token.For(n.Name, n.Labels) {
		return noNode(c.node.Name) // it has joined with other labels than it had, here or at another hub
	}
	if c.node = n; l != nil {
		return h.through(l, c.token.ID, w, r, c)
	}
	return h.forward(w, r, c)
}

// through passes a request on by a tunnel of this hub. It counts as one of the token with
// the id.
func (h *Hub) through(l *link, token string, w http.ResponseWriter, r *http.Request, c call) error {
	leave, err := l.enter(token)
	if err != nil {
		return err
	}
	defer leave()
	if err := atOnce(r); err != nil {
		return err
	}
	ctx, done := h.during(r, c)
	defer done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })()
	p := &passing{rest: c.params["rest"]}
	l.proxy.ServeHTTP(w, r.WithContext(context.WithValue(ctx, passingKey{}, p)))
	return p.finish(w)
}

// largeBody is from when on the body of an answer is written in pieces as large as it comes in.
const largeBody = 256 << 10

// passing is a request that passes, and its answer.
type passing struct {
	rest string        // of the path, escaped
	body io.ReadCloser // what is to be written of a large answer behind its head; nil for nothing
}

type passingKey struct{}

// answered keeps a large body from being copied in small pieces.
func (p *passing) answered(resp *http.Response) {
	if from, ok := resp.Body.(*exchange); ok && resp.ContentLength >= largeBody {
		p.body, resp.Body = from, http.NoBody
	}
}

// finish writes the body that was kept back.
func (p *passing) finish(w http.ResponseWriter) error {
	if p.body == nil {
		return nil
	}
	defer p.body.Close()
	if _, err := io.Copy(w, p.body); err != nil {
		panic(http.ErrAbortHandler) // it must not look whole
	}
	return nil
}

// away says why a node cannot be asked, nil when it can.
func (h *Hub) away(n store.Node) error {
	own := n.Hub == h.o.Store.Hub()
	if h.links.get(n.Name) != nil || own && h.online(n) || h.returns(n) { // what is sent to one that is coming waits for it
		return nil
	}
	if !own && h.online(n) {
		if _, _, ok := h.o.Store.Peer(n.Hub); ok {
			return nil
		}
		return problem.New(problem.NodeOffline, "%s is connected to another hub of this store, %s, which does not say how it is reached: start that one with --advertise, or ask there", n.Name, n.Hub)
	}
	was := "was last here at"
	if n.Connected { // its hub ended without a word, and when is not known
		was = "has been away since the hub that it joined ended; it joined at"
	}
	p := problem.New(problem.NodeOffline, "%s %s %s; it joins again by itself when its gateway runs and reaches the hub. What the hub has of its sessions is at /v2/sessions?node=%s", n.Name, was, n.Since.Format(time.RFC3339), n.Name)
	if !n.Connected {
		p = p.With("since", n.Since)
	}
	return p
}

// smallBody is how large the body of a request may be that is read before it is passed on, in bytes.
const smallBody = 32 << 10

// atOnce reads the body of a request if it is small, as most are. One that is in memory is sent together
// with the headers: one write and one wake-up less, at both ends of the tunnel.
func atOnce(r *http.Request) error {
	if r.ContentLength <= 0 || r.ContentLength > smallBody || r.Header.Get("Expect") != "" {
		return nil
	}
	b := make([]byte, r.ContentLength)
	if _, err := io.ReadFull(r.Body, b); err != nil {
		return problem.Wrap(problem.InvalidRequest, err, "the body of the request ended early")
	}
	r.Body = inMemory{bytes.NewReader(b)}
	return nil
}

// inMemory is the body of a request that was read.
type inMemory struct{ *bytes.Reader }

// Close implements io.Closer.
func (inMemory) Close() error { return nil }

// newProxy returns what passes requests on through a link.
func (h *Hub) newProxy(l *link) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport:  l, // what has no length, as streams have none, is not held back
		BufferPool: buffers,
		Rewrite: func(p *httputil.ProxyRequest) {
			rewrite(p)
			h.passOn(p)
		},
		ModifyResponse: func(resp *http.Response) error {
			cleanAnswer(resp, l.name)
			if p, ok := resp.Request.Context().Value(passingKey{}).(*passing); ok {
				p.answered(resp)
			}
			return nil
		},
		ErrorHandler: h.proxyFailed(l),
		ErrorLog:     quiet(h.log),
	}
}

// quiet takes what a proxy says of answers that were cut.
func quiet(l *slog.Logger) *log.Logger { return slog.NewLogLogger(l.Handler(), slog.LevelDebug) }

// rewrite makes the request that the node gets. What a browser says of its page, and
// what lets the client in here, stays here: the hub has checked both.
func rewrite(p *httputil.ProxyRequest) {
	of, _ := p.In.Context().Value(passingKey{}).(*passing)
	u := p.Out.URL
	u.Scheme, u.Host, u.RawPath = "http", "localhost", "/"+of.rest
	u.Path, _ = url.PathUnescape(u.RawPath) // it was parsed before
	p.Out.Host = u.Host
	if b, ok := p.In.Body.(inMemory); ok { // as it is, and not in what the library puts around it
		p.Out.Body = b
	}
	withhold(p.Out.Header)
}

// passOn has the trace of a request go on where it is passed on to.
func (h *Hub) passOn(p *httputil.ProxyRequest) {
	if h.o.Traces != nil {
		h.o.Traces.PassOn(p.In.Context(), p.Out.Header)
	}
}

// withhold takes from a request what is for this hub alone.
func withhold(h http.Header) {
	control.WithholdTokens(h)
	for name := range h {
		if strings.HasPrefix(name, "Sec-Fetch-") {
			h.Del(name)
		}
	}
	for _, name := range []string{"Origin", "Referer", "Cookie", "Proxy-Authorization", "X-Real-Ip", headerFor, control.HeaderStored} {
		h.Del(name)
	}
}

// passed are the headers of a node's answer that clients get; others, such as those
// by which a page would act with the hub's origin, they do not.
var passed = func() map[string]bool {
	m := map[string]bool{}
	for _, name := range []string{
		"Accept-Ranges", "Allow", "Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language", "Content-Length",
		"Content-Range", "Content-Type", "Date", "ETag", "Expires", "Last-Modified", "Retry-After", "Trailer", "Vary", "X-Accel-Buffering",
		"Accept-Idempotency-Key", "Connection", "Upgrade", "Sec-WebSocket-Accept", "Sec-WebSocket-Protocol",
	} {
		m[http.CanonicalHeaderKey(name)] = true
	}
	return m
}()

// ownPrefixes begin headers of the gateway's own.
var ownPrefixes = []string{"Acp-", "X-Acp-", "Sandbox-Agent-"}

// dataPolicy keeps what a node answers from being a page of the hub.
const dataPolicy = "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'"

func cleanAnswer(resp *http.Response, node string) {
	h := resp.Header
	at := h.Get("Location")
	for name := range h {
		own := false
		for _, p := range ownPrefixes {
			own = own || strings.HasPrefix(name, p)
		}
		if !passed[name] && !own {
			delete(h, name)
		}
	}
	h.Set("Content-Security-Policy", dataPolicy)
	if strings.HasPrefix(at, "/") && !strings.HasPrefix(at, "//") && !strings.HasPrefix(at, `/\`) {
		h.Set("Location", "/nodes/"+node+at)
	}
}

// proxyFailed answers a request that the node did not answer.
func (h *Hub) proxyFailed(l *link) func(http.ResponseWriter, *http.Request, error) {
	return func(w http.ResponseWriter, r *http.Request, err error) {
		cause := context.Cause(r.Context())
		var p *problem.Error
		switch {
		case h.stop.Err() != nil:
			p = endingDuring(r, l.name)
		case errors.As(cause, &p): // it was on its way
			p = p.DoneUnknown()
		case errors.Is(err, tunnel.ErrFull):
			p = problem.New(problem.TooManyRequests, "%d requests and streams go to %s already: try again when some have ended", tunnel.MaxStreams, l.name)
		case r.Context().Err() != nil && l.ctx.Err() == nil:
			return // the client is gone
		default:
			h.log.Debug("a node did not answer", "node", l.name, "err", err)
			p = problem.New(problem.NodeOffline, "the connection to %s broke before it answered; whether it has done what was asked is not known", l.name).DoneUnknown()
		}
		problem.Write(w, p)
	}
}

// endingDuring is what is said of a request that the hub has passed on, and whose answer it does not wait for.
func endingDuring(r *http.Request, node string) *problem.Error {
	switch {
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		return errEnding
	case strings.HasSuffix(r.URL.Path, "/v2/processes/run"):
		return problem.New(problem.Unavailable, "the hub is shutting down, and the program that was run at %s through it is ended with it: what it has done is done. One that is to last longer is started with POST /v2/processes", node).DoneUnknown()
	}
	return problem.New(problem.Unavailable, "the hub is shutting down, and %s had not answered: whether it has done what was asked is not known", node).DoneUnknown()
}

// leadToPage leads browsers to the page before a node. It says nothing about whether
// there is one.
func (h *Hub) leadToPage(w http.ResponseWriter, r *http.Request, c call) error {
	http.Redirect(w, r, "/nodes/"+c.params["name"]+"/ui/", http.StatusFound)
	return nil
}

// servePage serves the page of all nodes, and leads browsers to it.
func (h *Hub) servePage(w http.ResponseWriter, r *http.Request, _ call) error {
	h.page.ServeHTTP(w, r)
	return nil
}

// serveNodePage serves the page before a node, which is the hub's own: a page of the
// node's making would have the tokens that people gave to the hub.
func (h *Hub) serveNodePage(w http.ResponseWriter, r *http.Request, c call) error {
	r = r.Clone(r.Context())
	r.URL.RawPath = "/ui/" + c.params["rest"]
	var err error
	if r.URL.Path, err = url.PathUnescape(r.URL.RawPath); err != nil {
		return problem.Wrap(problem.InvalidRequest, err, "the path cannot be read")
	}
	h.page.ServeHTTP(w, r)
	return nil
}

// buffers are for copying, in both directions.
var buffers = &bufferPool{}

type bufferPool struct{ pool sync.Pool }

// Get implements httputil.BufferPool.
func (p *bufferPool) Get() []byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, copyBuffer)
}

// Put implements httputil.BufferPool.
func (p *bufferPool) Put(b []byte) { p.pool.Put(&b) }
