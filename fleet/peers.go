package fleet

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/internal/socket"
)

const (
	// peerPath begins what hubs of one store ask each other. The path of a node follows.
	peerPath = "/v2/peer/nodes/"
	// headerFor has the id of the token that a peer's request is made for.
	headerFor = "X-Sandbox-Hub-For"
	// peerHandshake bounds the handshake of TLS.
	peerHandshake = 10 * time.Second
)

// newPeers returns what carries requests to other hubs, whose certificates the pool is for; nil is
// the system's.
func newPeers(pool *x509.CertPool) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true) // WebSockets need it
	return &http.Transport{
		Proxy: socket.Proxy, Protocols: protocols, DisableCompression: true,
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}, TLSHandshakeTimeout: peerHandshake,
		MaxIdleConnsPerHost: idleStreams, IdleConnTimeout: idleTimeout,
		ReadBufferSize: copyBuffer, WriteBufferSize: copyBuffer, MaxResponseHeaderBytes: maxHeader,
	}
}

// peer is another hub.
type peer struct {
	store.Peer
	over context.Context // ends when it lives no more
}

// at is where the peer serves a node.
func (p peer) at(node string) string { return strings.TrimRight(p.URL, "/") + peerPath + node }

// peerOf returns the hub that holds the tunnel of a node, if that is another one that can
// be reached.
func (h *Hub) peerOf(node string) (peer, bool) {
	n, known := h.o.Store.Node(node)
	if !known || !h.o.Store.Online(n) {
		return peer{}, false
	}
	p, over, ok := h.o.Store.Peer(n.Hub)
	return peer{p, over}, ok
}

// servePeer serves another hub, which has checked who sends the request. It asks no
// further one: the node is here, or it has just gone.
func (h *Hub) servePeer(w http.ResponseWriter, r *http.Request, c call) error {
	l, err := h.linkOf(r.Context(), c.node.Name)
	if err != nil {
		return err
	}
	if l == nil {
		return problem.New(problem.NodeOffline, "%s has just left: try again", c.node.Name)
	}
	return h.through(l, r.Header.Get(headerFor), w, r, c)
}

func errMoving(node string) error {
	return problem.New(problem.NodeOffline, "%s is just moving to another hub: try again", node)
}

// forward passes a request on to the hub that holds the node's tunnel.
func (h *Hub) forward(w http.ResponseWriter, r *http.Request, c call) error {
	p, ok := h.peerOf(c.node.Name)
	if !ok {
		if err := h.away(c.node); err != nil {
			return err
		}
		return errMoving(c.node.Name)
	}
	at, err := url.Parse(p.at(c.node.Name))
	if err != nil {
		return problem.Wrap(problem.NodeOffline, err, "the hub that holds %s gives an address that cannot be used", c.node.Name)
	}
	ctx, done := h.during(r, c)
	defer done()
	proxy := &httputil.ReverseProxy{
		Transport: toPeer{h.peers, p.over}, FlushInterval: -1, BufferPool: buffers,
		Rewrite: func(out *httputil.ProxyRequest) {
			withhold(out.Out.Header)
			h.passOn(out)
			out.Out.Host = at.Host
			u := out.Out.URL
			u.Scheme, u.Host, u.RawPath = at.Scheme, at.Host, at.EscapedPath()+"/"+c.params["rest"]
			u.Path, _ = url.PathUnescape(u.RawPath) // both were parsed before
			out.Out.Header.Set("Authorization", "Bearer "+p.Secret)
			out.Out.Header.Set(headerFor, c.token.ID)
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			told, e := problem.From(h.ofPeer(c.node.Name, err)), (*peerError)(nil)
			switch {
			case h.stop.Err() != nil:
				told = endingDuring(r, c.node.Name)
			case r.Context().Err() != nil:
				told = problem.From(endOf(r.Context())).DoneUnknown()
			case !errors.As(err, &e):
				told = problem.Wrap(problem.NodeOffline, err, "the hub that holds %s does not answer", c.node.Name).DoneUnknown()
			case e.sent:
				told = problem.New(problem.NodeOffline, "%s is connected to the hub %s, which did not answer: whether %s has done what was asked is not known", c.node.Name, c.node.Hub, c.node.Name).DoneUnknown()
			}
			h.log.Debug("a hub did not answer", "hub", c.node.Hub, "node", c.node.Name, "err", err)
			problem.Write(w, told)
		},
		ErrorLog: quiet(h.log),
	}
	proxy.ServeHTTP(w, r.WithContext(ctx))
	return nil
}
