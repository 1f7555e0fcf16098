package control

import (
	"encoding/base64"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// guarded answers requests behind a guard with 200.
func guarded(t *testing.T, g Guard) *Server {
	t.Helper()
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "in") })
	return newServer(t, Options{Guard: g, RPC: ok})
}

func send(t *testing.T, s *Server, method, target, host string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, target, nil)
	r.Host = host
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Add(name, value)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

func TestGuard_Host(t *testing.T) {
	local := Guard{Bind: "127.0.0.1"}
	tests := []struct {
		name  string
		guard Guard
		host  string
		ok    bool
	}{
		{"loopback address", local, "127.0.0.1:2468", true},
		{"without port", local, "127.0.0.1", true},
		{"localhost", local, "localhost:2468", true},
		{"upper case", local, "LocalHost:2468", true},
		{"trailing dot", local, "localhost.:2468", true},
		{"another port", local, "localhost:9", true},
		{"IPv6", local, "[::1]:2468", true},
		{"IPv6 without port", local, "[::1]", true},
		{"rebound name", local, "evil.example:2468", false},
		{"name that begins alike", local, "localhost.evil.example", false},
		{"name that ends alike", local, "notlocalhost", false},
		{"empty", local, "", false},
		{"only a port", local, ":2468", false},
		{"port that is none", local, "localhost:x", false},
		{"user part", local, "localhost:1@evil.example", false},
		{"broken brackets", local, "[::1", false},
		{"behind brackets", local, "[::1]evil.example", false},
		{"other address", local, "192.0.2.7:2468", false},
		{"bound name", Guard{Bind: "box.example"}, "BOX.example:1", true},
		{"bound IPv6", Guard{Bind: "[2001:db8::1]"}, "[2001:DB8::1]:2468", true},
		{"allowed", Guard{Bind: "127.0.0.1", AllowedHosts: []string{"Box.Example"}}, "box.example:443", true},
		{"allowed with port", Guard{Bind: "127.0.0.1", AllowedHosts: []string{"box.example:8080"}}, "box.example", true},
		{"not among allowed", Guard{Bind: "127.0.0.1", AllowedHosts: []string{"box.example"}}, "x.box.example", false},
		{"all allowed", Guard{Bind: "127.0.0.1", AllowedHosts: []string{"*"}}, "evil.example", true},
		{"address, all interfaces, token", Guard{Bind: "0.0.0.0", Token: "t"}, "192.0.2.7:2468", true},
		{"IPv6 address, all interfaces, token", Guard{Bind: "::", Token: "t"}, "[2001:db8::7]:2468", true},
		{"name, all interfaces, token", Guard{Bind: "0.0.0.0", Token: "t"}, "evil.example", false},
		{"address, all interfaces, open", Guard{Bind: "0.0.0.0"}, "192.0.2.7:2468", false},
		{"address, loopback, token", Guard{Bind: "127.0.0.1", Token: "t"}, "192.0.2.7:2468", false},
		{"address, one interface, token", Guard{Bind: "192.0.2.1", Token: "t"}, "192.0.2.7:2468", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := send(t, guarded(t, tt.guard), "GET", "/v2/health", tt.host)
			if ok := w.Code == 200; ok != tt.ok {
				t.Fatalf("status %d: %s", w.Code, w.Body)
			}
			if !tt.ok && kindOf(t, w) != problem.PermissionDenied {
				t.Errorf("problem %s", w.Body)
			}
		})
	}
	if w := send(t, guarded(t, local), "GET", "/v2/rpc", "box.example"); !strings.Contains(w.Body.String(), "--allowed-host box.example") {
		t.Errorf("the refusal does not name the flag: %s", w.Body)
	}
}

func TestGuard_Origin(t *testing.T) {
	listed := Guard{CORS: CORS{Origins: []string{"https://app.example", "http://Dev.example:3000/"}}}
	tests := []struct {
		name   string
		guard  Guard
		host   string
		origin string
		ok     bool
	}{
		{"same origin", Guard{}, "localhost:2468", "http://localhost:2468", true},
		{"same behind TLS", Guard{}, "localhost:2468", "https://localhost:2468", true},
		{"any case", Guard{}, "localhost:2468", "http://LOCALHOST:2468", true},
		{"port of the scheme", Guard{}, "localhost", "https://localhost:443", true},
		{"both without port", Guard{}, "localhost", "http://localhost", true},
		{"IPv6", Guard{}, "[::1]:2468", "http://[::1]:2468", true},
		{"IPv6 without port", Guard{}, "[::1]", "http://[::1]", true},
		{"other port", Guard{}, "localhost:2468", "http://localhost:3000", false},
		{"other host", Guard{}, "localhost:2468", "http://127.0.0.1:2468", false},
		{"other site", Guard{}, "localhost:2468", "https://evil.example", false},
		{"null", Guard{}, "localhost:2468", "null", false},
		{"null with all sites", Guard{CORS: CORS{Origins: []string{"*"}}}, "localhost:2468", "null", false},
		{"no origin at all", Guard{}, "localhost:2468", "evil", false},
		{"other scheme", Guard{}, "localhost:2468", "chrome-extension://localhost:2468", false},
		{"configured", listed, "localhost:2468", "https://app.example", true},
		{"configured, any case", listed, "localhost:2468", "http://dev.example:3000", true},
		{"configured, other scheme", listed, "localhost:2468", "http://app.example", false},
		{"configured, below", listed, "localhost:2468", "https://x.app.example", false},
		{"all sites", Guard{CORS: CORS{Origins: []string{"*"}}}, "localhost:2468", "https://evil.example", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, path := range []string{"/v2/rpc", "/v2/health", "/ui/"} {
				w := send(t, guarded(t, tt.guard), "GET", path, tt.host, "Origin: "+tt.origin)
				if ok := w.Code != 403; ok != tt.ok {
					t.Fatalf("%s: status %d: %s", path, w.Code, w.Body)
				}
			}
		})
	}
	w := send(t, guarded(t, Guard{}), "GET", "/v2/rpc", "localhost", "Origin: https://app.example")
	if !strings.Contains(w.Body.String(), "--cors-allow-origin https://app.example") {
		t.Errorf("the refusal does not name the flag: %s", w.Body)
	}
	w = send(t, guarded(t, Guard{}), "GET", "/v2/rpc", "localhost", "Origin: http://localhost", "Origin: https://evil.example")
	if w.Code != 403 {
		t.Errorf("two origins: status %d", w.Code)
	}
}

func TestGuard_Token(t *testing.T) {
	const token = "T0ken+/="
	encoded := base64.RawURLEncoding.EncodeToString([]byte(token))
	upgrade := []string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: x"}
	tests := []struct {
		name    string
		target  string
		headers []string
		ok      bool
	}{
		{"bearer", "/v2/rpc", []string{"Authorization: Bearer " + token}, true},
		{"scheme in any case", "/v2/rpc", []string{"Authorization: bEARER " + token}, true},
		{"own header", "/v2/sessions", []string{"X-Sandbox-Token: " + token}, true},
		{"own header beside another scheme", "/v2/rpc", []string{"Authorization: Basic eA==", "X-Sandbox-Token: " + token}, true},
		{"subprotocol", "/v2/rpc", append([]string{"Sec-WebSocket-Protocol: acp.sandboxagent.dev, bearer." + encoded}, upgrade...), true},
		{"subprotocol in a second header", "/v2/rpc", append([]string{"Sec-WebSocket-Protocol: acp.sandboxagent.dev", "Sec-WebSocket-Protocol: bearer." + encoded}, upgrade...), true},
		{"nothing", "/v2/rpc", nil, false},
		{"wrong", "/v2/rpc", []string{"Authorization: Bearer nope"}, false},
		{"longer", "/v2/rpc", []string{"Authorization: Bearer " + token + "x"}, false},
		{"shorter", "/v2/rpc", []string{"Authorization: Bearer T"}, false},
		{"empty", "/v2/rpc", []string{"Authorization: Bearer "}, false},
		{"other scheme", "/v2/rpc", []string{"Authorization: Basic " + token}, false},
		{"no scheme", "/v2/rpc", []string{"Authorization: " + token}, false},
		{"subprotocol without upgrade", "/v2/rpc", []string{"Sec-WebSocket-Protocol: bearer." + encoded}, false},
		{"wrong subprotocol", "/v2/rpc", append([]string{"Sec-WebSocket-Protocol: bearer.bm9wZQ"}, upgrade...), false},
		{"subprotocol that is not base64", "/v2/rpc", append([]string{"Sec-WebSocket-Protocol: bearer.!"}, upgrade...), false},
		{"query", "/v2/rpc?token=" + "T0ken%2B%2F%3D", nil, false},
		{"query beside a good token", "/v2/rpc?access_token=x", []string{"Authorization: Bearer " + token}, false},
		{"escaped query name", "/v2/rpc?%74oken=x", []string{"Authorization: Bearer " + token}, false},
		{"other query", "/v2/rpc?agent=token", []string{"Authorization: Bearer " + token}, true},
		{"health", "/v2/health", nil, true},
		{"page", "/ui/", nil, true},
		{"redirect", "/", nil, true},
		{"readiness", "/v2/ready", nil, false},
		{"document", "/v2/openapi.json", nil, false},
		{"old API", "/v1/agents", nil, false},
		{"unknown", "/nope", nil, false},
		{"path that only looks like the page", "/ui/../v2/sessions", nil, true}, // and is served as one: not found
		{"path below health", "/v2/health/../sessions", nil, false},
		{"double slash", "//v2/health", nil, false},
	}
	s := guarded(t, Guard{Token: token})
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := send(t, s, "GET", tt.target, "localhost", tt.headers...)
			if ok := w.Code != 401; ok != tt.ok {
				t.Fatalf("status %d: %s", w.Code, w.Body)
			}
			if tt.ok {
				return
			}
			if kindOf(t, w) != problem.TokenInvalid || w.Header().Get("WWW-Authenticate") != `Bearer realm="sandbox-agent"` {
				t.Errorf("headers %v, body %s", w.Header(), w.Body)
			}
			if strings.Contains(w.Body.String(), "T0ken") {
				t.Errorf("the answer shows a token: %s", w.Body)
			}
		})
	}
	if w := send(t, s, "GET", "/v2/rpc?token=x", "localhost"); !strings.Contains(w.Body.String(), "query parameter token") {
		t.Errorf("the refusal does not say why: %s", w.Body)
	}
}

func TestGuard_Order(t *testing.T) {
	s := guarded(t, Guard{Token: "t"})
	if w := send(t, s, "GET", "/v2/rpc", "evil.example"); w.Code != 403 {
		t.Errorf("bad host without token: status %d, want 403", w.Code)
	}
	if w := send(t, s, "PUT", "/v2/sessions", "localhost"); w.Code != 401 {
		t.Errorf("wrong method without token: status %d, want 401", w.Code)
	}
}

func TestGuard_CORS(t *testing.T) {
	const site = "https://app.example"
	o := CORS{Origins: []string{site}, Credentials: true}
	preflight := []string{"Origin: " + site, "Access-Control-Request-Method: POST"}
	s := guarded(t, Guard{Token: "t", CORS: o})

	t.Run("preflight before the token", func(t *testing.T) {
		w := send(t, s, "OPTIONS", "/v2/rpc", "localhost", append(preflight, "Access-Control-Request-Private-Network: true")...)
		want := map[string]string{
			"Access-Control-Allow-Origin": site, "Access-Control-Allow-Credentials": "true",
			"Access-Control-Allow-Methods":         "GET, HEAD, POST, PUT, DELETE, OPTIONS",
			"Access-Control-Allow-Private-Network": "true",
		}
		for name, v := range want {
			if w.Code != 204 || w.Header().Get(name) != v {
				t.Errorf("status %d, %s %q, want %q", w.Code, name, w.Header().Get(name), v)
			}
		}
		if h := w.Header().Get("Access-Control-Allow-Headers"); !strings.Contains(h, "Acp-Connection-Id") || !strings.Contains(h, "Authorization") {
			t.Errorf("allowed headers %q", h)
		}
	})
	t.Run("refusals can be read", func(t *testing.T) {
		w := send(t, s, "GET", "/v2/rpc", "localhost", "Origin: "+site)
		if w.Code != 401 || w.Header().Get("Access-Control-Allow-Origin") != site {
			t.Errorf("status %d, headers %v", w.Code, w.Header())
		}
		for _, name := range []string{"Acp-Connection-Id", "X-ACP-Connection-Id", "X-ACP-Last-Event-Id"} {
			if !strings.Contains(w.Header().Get("Access-Control-Expose-Headers"), name) {
				t.Errorf("%s is not exposed", name)
			}
		}
	})
	t.Run("configured methods and headers", func(t *testing.T) {
		s := guarded(t, Guard{CORS: CORS{Origins: []string{"*"}, Methods: []string{"GET"}, Headers: []string{"X-One", "X-Two"}}})
		w := send(t, s, "OPTIONS", "/v2/rpc", "localhost", preflight...)
		if w.Header().Get("Access-Control-Allow-Methods") != "GET" || w.Header().Get("Access-Control-Allow-Headers") != "X-One, X-Two" || w.Header().Get("Access-Control-Allow-Credentials") != "" {
			t.Errorf("headers %v", w.Header())
		}
	})
	t.Run("other sites", func(t *testing.T) {
		w := send(t, s, "OPTIONS", "/v2/rpc", "localhost", "Origin: https://evil.example", "Access-Control-Request-Method: POST")
		if w.Code != 403 || w.Header().Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("status %d, headers %v", w.Code, w.Header())
		}
	})
	t.Run("not configured", func(t *testing.T) {
		w := send(t, guarded(t, Guard{}), "GET", "/v2/rpc", "localhost", "Origin: http://localhost")
		for name := range w.Header() {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%s was sent", name)
			}
		}
		w = send(t, guarded(t, Guard{Token: "t"}), "OPTIONS", "/v2/rpc", "localhost", "Origin: http://localhost", "Access-Control-Request-Method: POST")
		if w.Code != 401 {
			t.Errorf("same-origin preflight without token: status %d, want 401", w.Code)
		}
	})
}
