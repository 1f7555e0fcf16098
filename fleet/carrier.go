package fleet

import (
	"errors"
	"net/http"
	"net/url"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/fleet/tunnel"
)

// carrier sends the hub's own requests to a node, by a tunnel of this hub or through the hub that
// holds it.
type carrier struct {
	h    *Hub
	node string
	of   string // id of the token for which they are made
}

// RoundTrip implements [http.RoundTripper].
func (c carrier) RoundTrip(r *http.Request) (*http.Response, error) {
	l, err := c.h.linkOf(r.Context(), c.node)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	if l != nil {
		resp, err := l.RoundTrip(r)
		if err != nil && r.Context().Err() == nil && !errors.Is(err, tunnel.ErrFull) {
			err = problem.Wrap(problem.NodeOffline, err, "%s does not answer: one that is silent for %v counts as offline until it joins again; try again then", c.node, tunnel.Silence)
		}
		return resp, err
	}
	p, ok := c.h.peerOf(c.node)
	if !ok {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		if err := (nodes{c.h}).Away(c.node); err != nil {
			return nil, err
		}
		return nil, errMoving(c.node)
	}
	at, err := url.Parse(strings.TrimRight(p.at(c.node), "/"))
	if err != nil {
		return nil, err
	}
	out := r.Clone(r.Context())
	out.URL = at.JoinPath(strings.Split(strings.TrimPrefix(r.URL.EscapedPath(), "/"), "/")...)
	out.URL.RawQuery, out.Host = r.URL.RawQuery, at.Host
	out.Header.Set("Authorization", "Bearer "+p.Secret)
	out.Header.Set(headerFor, c.of)
	resp, err := toPeer{c.h.peers, p.over}.RoundTrip(out)
	return resp, c.h.ofPeer(c.node, err)
}

// gateway returns a client of a node for what the hub itself asks.
func (h *Hub) gateway(node, of string) *client.Client {
	c, err := client.New("http://localhost", client.Options{HTTP: &http.Client{
		Transport:     carrier{h, node, of},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}})
	if err != nil {
		panic(err) // of an address that stands here
	}
	return c
}
