package control

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// Guard says who may use the server. The zero value lets in whoever names the
// server as localhost.
type Guard struct {
	// Bind is the host the server listens on, without port.
	Bind string
	// AllowedHosts are further names for the Host header; "*" allows all.
	AllowedHosts []string
	// Token is what clients must present; "" lets everybody in that passes
	// the check of Host and Origin.
	Token string
	CORS  CORS
}

// check is a Guard prepared for use. It is immutable.
type check struct {
	hosts     map[string]bool // lower case
	anyHost   bool
	anyIP     bool // every IP literal is a good Host
	ownIP     bool // the address that a connection came in by is one
	cors      cors
	page      func(path string) bool // whether it is one of the web page's files
	authorize authorize
}

// authorize returns the problem of who may not send this request, and else the
// context with which it goes on, nil for its own.
type authorize = func(*http.Request) (context.Context, error)

// Wrap returns next behind the checks of Host and Origin, with a in place of the
// token: it returns the problem of who may not send a request, and else the context
// with which it goes on, nil for its own. page says which paths are files of the web page, to which other
// sites may lead.
func (g Guard) Wrap(next http.Handler, page func(path string) bool, a authorize) http.Handler {
	c := g.prepare()
	c.page, c.authorize = page, a
	return c.wrap(next)
}

// ErrOpen is returned in place of a problem for a request that anybody may send, and that
// says nothing about who did.
var ErrOpen = errors.New("open to all")

type vouchedKey struct{}

// Vouch returns the context of a connection whose other end has checked who sends
// requests and from which page: the guard lets them in. It is for the ConnContext
// of an http.Server, and for connections that nobody else can make.
func Vouch(ctx context.Context) context.Context { return context.WithValue(ctx, vouchedKey{}, true) }

func vouched(ctx context.Context) bool { return ctx.Value(vouchedKey{}) != nil }

func (g Guard) prepare() *check {
	c := &check{
		hosts:     map[string]bool{"localhost": true, "127.0.0.1": true, "::1": true},
		cors:      g.CORS.prepare(),
		page:      func(path string) bool { r := routeOf(path); return r == routeUI || r == routeToUI },
		authorize: func(*http.Request) (context.Context, error) { return nil, nil },
	}
	if g.Token != "" {
		token := newTokenCheck(g.Token)
		c.authorize = func(r *http.Request) (context.Context, error) {
			if routeOf(r.URL.Path).open() {
				return nil, ErrOpen
			}
			return nil, token.check(r)
		}
	}
	bind := strings.ToLower(strings.Trim(g.Bind, "[]"))
	if bind != "" {
		c.hosts[bind] = true
	}
	if ip, err := netip.ParseAddr(bind); err == nil && ip.IsUnspecified() {
		c.ownIP = true
		if name, err := os.Hostname(); err == nil {
			c.hosts[strings.ToLower(name)] = true
		}
	}
	// Whoever reaches an open server by a name of their own choosing may be a
	// page that had its own name resolved to this address. With a token that
	// page cannot do anything, and an address is not a name.
	c.anyIP = g.Token != "" && !Loopback(g.Bind)
	for _, h := range g.AllowedHosts {
		if h == "*" {
			c.anyHost = true
		}
		if name, ok := hostName(h); ok {
			c.hosts[name] = true
		}
	}
	return c
}

// Loopback reports whether host, without port, can be reached from this machine
// only.
func Loopback(host string) bool {
	host = strings.Trim(host, "[]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// wrap returns next behind the guard.
func (c *check) wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		if vouched(r.Context()) {
			next.ServeHTTP(w, r)
			return
		}
		if err := c.host(r); err != nil {
			problem.Write(w, err)
			return
		}
		cross, err := c.origin(r)
		if err == nil {
			err = c.embedded(r)
		}
		if err != nil {
			problem.Write(w, err)
			return
		}
		if !cross {
			w.Header().Set("Cross-Origin-Resource-Policy", "same-origin")
		}
		if c.cors.configured() {
			w.Header().Add("Vary", "Origin")
		}
		if cross {
			c.cors.allow(w.Header(), r.Header.Get("Origin"))
			if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
				c.cors.preflight(w, r)
				return
			}
		}
		ctx, err := c.authorize(r)
		switch {
		case err == nil:
			letIn(r.Context())
		case errors.Is(err, ErrOpen): // and whoever sent it stays a stranger
		default:
			if problem.From(err).Kind == problem.TokenInvalid {
				w.Header().Set("WWW-Authenticate", `Bearer realm="sandbox-agent"`)
			}
			problem.Write(w, err)
			return
		}
		if ctx != nil {
			r = r.WithContext(ctx)
		}
		next.ServeHTTP(w, r)
	})
}

// host refuses requests that name the server by a name that is not its own: a
// page of another site can make a browser send those (DNS rebinding).
func (c *check) host(r *http.Request) error {
	if c.anyHost {
		return nil
	}
	name, ok := hostName(r.Host)
	if !ok {
		return problem.New(problem.PermissionDenied, "the Host header %q is not a host name with an optional port", r.Host)
	}
	if c.hosts[name] {
		return nil
	}
	if ip, err := netip.ParseAddr(name); err == nil && (c.anyIP || c.ownIP && ip.Unmap() == localAddr(r)) {
		return nil
	}
	return problem.New(problem.PermissionDenied, "the Host header names %q, which is not a name of this server; start it with --allowed-host %s to allow that", name, name)
}

// localAddr is the address of this machine that the request came in by.
func localAddr(r *http.Request) netip.Addr {
	a, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return a.AddrPort().Addr().Unmap().WithZone("")
}

// embedded refuses what a page of another site loads as an image, a script or a
// frame: browsers send no Origin with that, but say where it comes from. To open
// the web page by a link is no such thing.
func (c *check) embedded(r *http.Request) error {
	site := r.Header.Get("Sec-Fetch-Site")
	if site != "cross-site" && site != "same-site" || r.Header.Get("Origin") != "" {
		return nil
	}
	if c.page(r.URL.Path) && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document" {
		return nil
	}
	return problem.New(problem.PermissionDenied, "a page of another site may not load anything from this server")
}

// origin refuses requests that a page of another site makes. cross is set for a
// site that was configured.
func (c *check) origin(r *http.Request) (cross bool, err error) {
	values := r.Header["Origin"]
	if len(values) == 0 {
		return false, nil
	}
	if len(values) > 1 {
		return false, problem.New(problem.PermissionDenied, "the request has more than one Origin header")
	}
	o := values[0]
	if o == "null" {
		return false, problem.New(problem.PermissionDenied, `the Origin "null" (a sandboxed frame or a local file) is never allowed; serve the page over http and name its origin with --cors-allow-origin`)
	}
	u, perr := url.Parse(o)
	if perr != nil || u.Scheme == "" || u.Host == "" {
		return false, problem.New(problem.PermissionDenied, "the Origin header %q is not an origin", o)
	}
	if c.cors.allows(o) {
		return true, nil
	}
	// A proxy that ends TLS makes the schemes differ, so only host and port
	// count, with the port that the page's own scheme implies.
	if (u.Scheme == "http" || u.Scheme == "https") && strings.EqualFold(withPort(u.Host, u.Scheme), withPort(r.Host, u.Scheme)) {
		return false, nil
	}
	return false, problem.New(problem.PermissionDenied, "pages of %s may not use this server; start it with --cors-allow-origin %s to allow that", o, o)
}

// IsHost reports whether a Host header could name this, or it is "*".
func IsHost(h string) bool {
	name, ok := hostName(h)
	return h == "*" || ok && !strings.ContainsAny(name, "/*@ ")
}

// hostName returns the lower case name in a Host header.
func hostName(hostport string) (string, bool) {
	host, port := hostport, ""
	if strings.HasPrefix(host, "[") {
		inner, rest, ok := strings.Cut(host[1:], "]")
		if !ok || rest != "" && rest[0] != ':' {
			return "", false
		}
		host, port = inner, strings.TrimPrefix(rest, ":")
	} else if name, p, ok := strings.Cut(host, ":"); ok {
		host, port = name, p
	}
	if host == "" || strings.ContainsFunc(port, func(r rune) bool { return r < '0' || r > '9' }) {
		return "", false
	}
	return strings.TrimSuffix(strings.ToLower(host), "."), true
}

// withPort adds the scheme's port to a host that has none.
func withPort(hostport, scheme string) string {
	if _, _, err := net.SplitHostPort(hostport); err == nil {
		return hostport
	}
	port := "80"
	if scheme == "https" {
		port = "443"
	}
	return net.JoinHostPort(strings.Trim(hostport, "[]"), port)
}

// offered returns the comma separated values of a header.
func offered(h http.Header, name string) []string {
	var out []string
	for _, line := range h.Values(name) {
		for v := range strings.SplitSeq(line, ",") {
			if v = strings.TrimSpace(v); v != "" {
				out = append(out, v)
			}
		}
	}
	return out
}

// isWebSocket reports whether the request asks to become a WebSocket.
func isWebSocket(r *http.Request) bool {
	return r.Method == http.MethodGet &&
		slices.ContainsFunc(offered(r.Header, "Upgrade"), func(v string) bool { return strings.EqualFold(v, "websocket") })
}
