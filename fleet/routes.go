package fleet

import (
	"net/http"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/fleet/tunnel"
)

// Route is one of the hub's, and who may use it.
type Route struct {
	// Method is "" for all. GET stands for HEAD, too.
	Method string
	// Path may have {name} for a segment, and {rest...} for all that follow.
	Path string
	Open bool // to everybody

	Kind  store.Kind
	Scope store.Scope // "" depends on the request
	// OfNode says that {name} is a node that the token must be for.
	OfNode bool
	// Everywhere says that the token must be for all nodes.
	Everywhere bool

	// OrNode says that the node of the session answers while it is there, and knows what may be in the query.
	OrNode bool

	serve func(h *Hub, w http.ResponseWriter, r *http.Request, c call) error

	segments []string // of Path
}

// call is what is known of a request when it is served.
type call struct {
	caller
	params map[string]string
	node   store.Node // of a route OfNode
}

// Routes returns all routes. The first one that fits is taken.
func Routes() []Route {
	const get, post, del = http.MethodGet, http.MethodPost, http.MethodDelete
	const client, read, drive, admin = store.KindClient, store.ScopeRead, store.ScopeDrive, store.ScopeAdmin
	routes := []Route{
		{Method: get, Path: "/v2/health", Open: true, serve: (*Hub).getHealth},
		{Method: get, Path: "/v2/ready", Open: true, serve: (*Hub).getReady},
		{Method: get, Path: "/v2/version", Kind: client, Scope: read, serve: (*Hub).getVersion},
		{Method: get, Path: "/v2/openapi.json", Kind: client, Scope: read, serve: (*Hub).getOpenAPI},
		{Method: get, Path: tunnel.Path, Kind: store.KindJoin, serve: (*Hub).join},
		{Method: get, Path: tunnel.LanePath, Kind: store.KindJoin, serve: (*Hub).lane},
		{Method: get, Path: "/v2/nodes", Kind: client, Scope: read, serve: (*Hub).listNodes},
		{Method: get, Path: "/v2/nodes/{name}", Kind: client, Scope: read, OfNode: true, serve: (*Hub).getNode},
		{Method: del, Path: "/v2/nodes/{name}", Kind: client, Scope: admin, OfNode: true, serve: (*Hub).removeNode},
		{Method: get, Path: "/v2/sessions", Kind: client, Scope: read, serve: (*Hub).listSessions},
		{Method: get, Path: "/v2/sessions/changes", Kind: client, Scope: read, serve: (*Hub).followSessions},
		{Method: get, Path: "/v2/sessions/{id}", Kind: client, Scope: read, serve: (*Hub).getSession},
		{Method: del, Path: "/v2/sessions/{id}", Kind: client, Scope: drive, OrNode: true, serve: (*Hub).deleteSession},
		{Method: post, Path: "/v2/sessions/{id}/move", Kind: client, Scope: drive, serve: (*Hub).moveSession},
		{Method: get, Path: "/v2/sessions/{id}/events", Kind: client, Scope: read, OrNode: true, serve: (*Hub).getEvents},
		{Method: get, Path: "/v2/sessions/{id}/transcript", Kind: client, Scope: read, serve: (*Hub).getTranscript},
		{Method: get, Path: "/v2/sessions/{id}/export", Kind: client, Scope: drive, OrNode: true, serve: (*Hub).exportSession},
		{Path: "/v2/sessions/{id}/{rest...}", Kind: client, serve: (*Hub).askNode},
		{Method: get, Path: "/v2/tokens", Kind: client, Scope: admin, Everywhere: true, serve: (*Hub).listTokens},
		{Method: post, Path: "/v2/tokens", Kind: client, Scope: admin, Everywhere: true, serve: (*Hub).createToken},
		{Method: del, Path: "/v2/tokens/{id}", Kind: client, Scope: admin, Everywhere: true, serve: (*Hub).revokeToken},
		{Path: "/v2/rpc", Kind: client, Scope: read, serve: (*Hub).rpc},
		{Method: get, Path: "/metrics", Kind: client, Scope: read, Everywhere: true, serve: (*Hub).getMetrics},
		{Path: peerPath + "{name}/{rest...}", Kind: store.KindPeer, OfNode: true, serve: (*Hub).servePeer},
		{Path: "/", Open: true, serve: (*Hub).servePage},
		{Path: "/ui", Open: true, serve: (*Hub).servePage},
		{Path: "/ui/{rest...}", Open: true, serve: (*Hub).servePage},
		{Path: "/nodes/{name}", Open: true, serve: (*Hub).leadToPage},
		{Path: "/nodes/{name}/", Open: true, serve: (*Hub).leadToPage},
		{Path: "/nodes/{name}/ui", Open: true, serve: (*Hub).leadToPage},
		{Path: "/nodes/{name}/ui/{rest...}", Open: true, serve: (*Hub).serveNodePage},
		{Path: "/nodes/{name}/{rest...}", Kind: client, OfNode: true, serve: (*Hub).proxy},
	}
	for i := range routes {
		routes[i].segments = strings.Split(routes[i].Path, "/")
	}
	return routes
}

const rest = "{rest...}"

// match reports whether a path, which is given in segments, fits. It is escaped.
func (r *Route) match(path []string) bool {
	for i, want := range r.segments {
		switch {
		case i >= len(path):
			return false
		case want == rest:
			return true
		case want == path[i]:
		case path[i] == "" || !strings.HasPrefix(want, "{"):
			return false
		}
	}
	return len(path) == len(r.segments)
}

// params returns the params of a path that fits. Their values are escaped.
func (r *Route) params(path []string) map[string]string {
	params := map[string]string{}
	for i, want := range r.segments {
		switch name, param := strings.CutPrefix(want, "{"); {
		case want == rest:
			params["rest"] = strings.Join(path[i:], "/")
		case param:
			params[strings.TrimSuffix(name, "}")] = path[i]
		}
	}
	return params
}

// find returns the route of a request.
func (h *Hub) find(r *http.Request) (*Route, map[string]string, error) {
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	var allow []string
	path := strings.Split(r.URL.EscapedPath(), "/")
	for i := range h.routes {
		route := &h.routes[i]
		switch {
		case !route.match(path):
		case route.Method == "" || route.Method == method:
			return route, route.params(path), nil
		default:
			allow = append(allow, route.Method)
		}
	}
	if len(allow) == 0 {
		return nil, nil, nothingAt(r)
	}
	if slices.Contains(allow, http.MethodGet) {
		allow = append(allow, http.MethodHead)
	}
	return nil, nil, &notAllowed{problem.New(problem.MethodNotAllowed, "%s does not accept %s; see the Allow header", r.URL.Path, r.Method), strings.Join(allow, ", ")}
}

func nothingAt(r *http.Request) error {
	if rest, ok := strings.CutPrefix(r.URL.Path, "/v2/"); ok {
		return problem.New(problem.NotFound, "a hub has nothing at /v2/%s; what a gateway has there is at /nodes/NAME/v2/%s, and for commands of sandbox-agent with --node NAME", rest, rest)
	}
	return problem.New(problem.NotFound, "there is nothing at %s", r.URL.Path)
}

// notAllowed is a problem with what the Allow header says.
type notAllowed struct {
	error
	allow string
}

// Unwrap returns the problem.
func (e *notAllowed) Unwrap() error { return e.error }
