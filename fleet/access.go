package fleet

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/control"
	"sandboxagent.dev/sandbox-agent/fleet/store"
)

// caller is who sent a request.
type caller struct {
	token store.Token
	over  context.Context // ends when the token is worth nothing any more; nil for nobody
}

type callerKey struct{}

// authenticate finds out who sends a request.
func (h *Hub) authenticate(r *http.Request) (context.Context, error) {
	if route, _, err := h.find(r); err == nil && route.Open {
		return nil, control.ErrOpen
	}
	texts, err := control.PresentedTokens(r)
	if err != nil {
		return nil, err
	}
	for _, text := range texts {
		if c, ok := h.callerOf(text); ok {
			return context.WithValue(r.Context(), callerKey{}, c), nil
		}
	}
	if len(texts) > 0 {
		return nil, problem.New(problem.TokenInvalid, "the token is not known here, was revoked, or has expired")
	}
	return nil, problem.New(problem.TokenInvalid, "the hub needs a token: send it as Authorization: Bearer")
}

// callerOf returns who has a token.
func (h *Hub) callerOf(text string) (caller, bool) {
	if h.admin != nil {
		sum := sha256.Sum256([]byte(text))
		if subtle.ConstantTimeCompare(sum[:], h.admin[:]) == 1 {
			return caller{store.Token{ID: "admin-token-file", Kind: store.KindClient, Scope: store.ScopeAdmin}, context.Background()}, true
		}
	}
	if subtle.ConstantTimeCompare([]byte(text), []byte(h.o.Store.Secret())) == 1 {
		return caller{store.Token{ID: "peer", Kind: store.KindPeer}, context.Background()}, true
	}
	token, over, ok := h.o.Store.Verify(text)
	return caller{token, over}, ok
}

// authorize says whether a caller may send a request, and completes what is known
// of it. In this order nobody learns from the answer of a node that is not for them:
// first what the token is, then the nodes it is for, then what it allows there.
func (h *Hub) authorize(r *http.Request, route *Route, c *call) error {
	if route.Open {
		return nil
	}
	c.caller, _ = r.Context().Value(callerKey{}).(caller)
	t := c.token
	switch {
	case t.Kind != route.Kind && route.Kind == store.KindPeer:
		return nothingAt(r)
	case t.Kind != route.Kind && t.Kind == store.KindJoin:
		return problem.New(problem.PermissionDenied, "a token of the kind join is for gateways that join, and for nothing else")
	case t.Kind != route.Kind:
		return problem.New(problem.PermissionDenied, "this needs a token of the kind %s: sandbox-hub token create --kind %s", route.Kind, route.Kind)
	case route.Everywhere && !t.Everywhere():
		return problem.New(problem.PermissionDenied, "the token is for some of the nodes, and this concerns all of them")
	}
	if route.OfNode {
		name, err := url.PathUnescape(c.params["name"])
		if err != nil {
			name = c.params["name"]
		}
		known := false
		c.node, known = h.o.Store.Node(name)
		if !known || !t.For(c.node.Name, c.node.Labels) {
			return noNode(name)
		}
	}
	if t.Kind == store.KindClient {
		need := route.Scope
		if need == "" {
			at := c.params["rest"]
			if !route.OfNode { // what it is at a node, it is here
				at = strings.TrimPrefix(r.URL.EscapedPath(), "/")
			}
			need = scopeAtNode(r, at)
		}
		if !t.Scope.Allows(need) {
			return problem.New(problem.PermissionDenied, "this needs a token with the scope %s, and this one has %s", need, t.Scope)
		}
	}
	return nil
}

// readable are the paths of a node, in segments, that a client may GET who may only
// read: what sessions say, and how the gateway is. What is not here needs more, also
// what a newer gateway has.
var readable = func() (out []*regexp.Regexp) {
	for _, path := range []string{
		"health", "ready", "version", "openapi.json", "agents", "agents/{}", "agents/{}/install",
		"sessions", "sessions/changes", "sessions/{}", "sessions/{}/events", "sessions/{}/permissions", "sessions/{}/raw", "sessions/{}/transcript",
		"processes", "processes/config", "processes/{}", "processes/{}/logs",
	} {
		out = append(out, regexp.MustCompile("^v2/"+strings.ReplaceAll(regexp.QuoteMeta(path), `\{\}`, `[A-Za-z0-9._~-]+`)+"$"))
	}
	return append(out, regexp.MustCompile("^metrics$"))
}()

// scopeAtNode is what a request to a node needs. A path is compared as it was sent:
// one that can be written in several ways needs more.
func scopeAtNode(r *http.Request, rest string) store.Scope {
	plain := r.Method == http.MethodGet || r.Method == http.MethodHead
	dots := slices.ContainsFunc(strings.Split(rest, "/"), func(s string) bool { return s == "." || s == ".." })
	if plain && !dots && r.Header.Get("Upgrade") == "" && slices.ContainsFunc(readable, func(p *regexp.Regexp) bool { return p.MatchString(rest) }) {
		return store.ScopeRead
	}
	return store.ScopeDrive
}
