package control

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// CORS says which sites' pages may use the server from a browser. Without
// origins no CORS header is ever sent.
type CORS struct {
	// Origins are schemes with host and port; "*" allows every site.
	Origins []string
	// Methods and Headers are what those pages may use; empty allows what the
	// API has.
	Methods, Headers []string
	// Credentials lets browsers send cookies and HTTP authentication.
	Credentials bool
}

var (
	corsMethods = []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"}
	corsHeaders = []string{
		"Accept", "Authorization", "Content-Type", "Last-Event-ID", "If-Match", "If-None-Match", "If-Range", "Range",
		"Acp-Connection-Id", "Acp-Session-Id", "X-ACP-Connection-Id", "X-ACP-After", "Idempotency-Key", "X-Sandbox-Token",
		problem.RequestIDHeader, "traceparent", "tracestate",
	}
)

const corsExposed = problem.RequestIDHeader + ", Acp-Connection-Id, X-ACP-Connection-Id, X-ACP-Last-Event-Id, Accept-Idempotency-Key, ETag, Content-Range, Accept-Ranges, " + truncatedHeader

// NoOrigin is what is said of an origin that Wrong has found.
const NoOrigin = "--cors-allow-origin %s is not an origin: give scheme, host and port, as https://app.example.com or http://localhost:3000, or *"

// Wrong returns an origin that no page can have.
func (o CORS) Wrong() (origin string, found bool) {
	for _, origin := range o.Origins {
		if !isOrigin(origin) {
			return origin, true
		}
	}
	return "", false
}

// isOrigin reports whether a browser could send this as the Origin of a page, or it is "*".
func isOrigin(o string) bool {
	if o == "*" || o == "null" {
		return true
	}
	u, err := url.Parse(normalOrigin(o))
	return err == nil && u.Scheme != "" && u.Host != "" && !strings.Contains(u.Host, "*") && u.Scheme+"://"+u.Host == normalOrigin(o)
}

// cors is a CORS prepared for use.
type cors struct {
	origins          map[string]bool // lower case
	any              bool
	methods, headers string
	credentials      bool
}

func (o CORS) prepare() cors {
	c := cors{origins: map[string]bool{}, credentials: o.Credentials}
	for _, v := range o.Origins {
		if v == "*" {
			c.any = true
		}
		c.origins[normalOrigin(v)] = true
	}
	join := func(configured, standard []string) string {
		if len(configured) == 0 {
			configured = standard
		}
		return strings.Join(configured, ", ")
	}
	c.methods, c.headers = join(o.Methods, corsMethods), join(o.Headers, corsHeaders)
	return c
}

func normalOrigin(o string) string { return strings.TrimSuffix(strings.ToLower(o), "/") }

func (c *cors) configured() bool { return len(c.origins) > 0 }

func (c *cors) allows(origin string) bool { return c.any || c.origins[normalOrigin(origin)] }

// allow lets a page of origin read the answer, errors included.
func (c *cors) allow(h http.Header, origin string) {
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", corsExposed)
	if c.credentials {
		h.Set("Access-Control-Allow-Credentials", "true")
	}
}

// preflight answers a browser that asks before it sends the real request. It
// carries no token, so it is answered before the token is looked at.
func (c *cors) preflight(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Access-Control-Allow-Methods", c.methods)
	h.Set("Access-Control-Allow-Headers", c.headers)
	h.Set("Access-Control-Max-Age", "600")
	if r.Header.Get("Access-Control-Request-Private-Network") == "true" {
		h.Set("Access-Control-Allow-Private-Network", "true")
	}
	for _, name := range []string{"Access-Control-Request-Method", "Access-Control-Request-Headers"} {
		if !slices.Contains(h.Values("Vary"), name) {
			h.Add("Vary", name)
		}
	}
	w.WriteHeader(http.StatusNoContent)
}
