package fleet_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/coder/websocket"

	"sandboxagent.dev/sandbox-agent/control"
	"sandboxagent.dev/sandbox-agent/fleet"
	"sandboxagent.dev/sandbox-agent/fleet/store"
)

// A node sees neither the token of a client nor what its browser says of a page, and
// the path as it was sent.
func TestProxy_WhatTheNodeSees(t *testing.T) {
	h := startHub(t)
	seen := make(chan *http.Request, 1)
	h.join("box", h.joinToken(), nil, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { seen <- r }))
	token := h.token(fleet.NewToken{Kind: store.KindClient, Scope: store.ScopeDrive})
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.url+"/nodes/box/v2/fs/a%2Fb%20c?path=%2Fx&q=1", strings.NewReader("body"))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Authorization": "Bearer " + token, "X-Sandbox-Token": token, "Cookie": "a=" + token, "Origin": "https://page.example", "Referer": "https://page.example/x",
		"Sec-Fetch-Mode": "cors", "X-Forwarded-For": "1.2.3.4", "Proxy-Authorization": "Basic " + token, "Accept": "text/event-stream", "Acp-Connection-Id": "c1", "traceparent": "00-1-2-01",
	} {
		req.Header.Set(name, value)
	}
	resp, err := plain.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if got := resp.Header.Get("Access-Control-Allow-Origin"); got != "https://page.example" {
		t.Errorf("the page that is allowed may not read the answer: %q", got)
	}
	got := <-seen
	if got.RequestURI != "/v2/fs/a%2Fb%20c?path=%2Fx&q=1" || got.Host != "localhost" {
		t.Errorf("the node was asked for %s of %s", got.RequestURI, got.Host)
	}
	for name, values := range got.Header {
		for _, v := range values {
			if strings.Contains(v, token) || strings.Contains(v, "page.example") || strings.Contains(v, "1.2.3.4") {
				t.Errorf("the node sees %s: %s", name, v)
			}
		}
	}
	for name, want := range map[string]string{"Accept": "text/event-stream", "Acp-Connection-Id": "c1", "Traceparent": "00-1-2-01", "Sec-Fetch-Mode": ""} {
		if v := got.Header.Get(name); v != want {
			t.Errorf("the node sees %s: %q, want %q", name, v, want)
		}
	}
}

// A page of another site gets nothing, with a token or without.
func TestProxy_ForeignPage(t *testing.T) {
	h := startHub(t)
	h.join("box", h.joinToken(), nil, echo)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.url+"/nodes/box/v2/sessions", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Origin", "https://evil.example")
	req.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := plain.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("%d, want 403", resp.StatusCode)
	}
}

// A browser shows its token as a subprotocol. The node selects the other one.
func TestProxy_WebSocket(t *testing.T) {
	h := startHub(t)
	offered := make(chan []string, 1)
	h.join("box", h.joinToken(), nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		offered <- r.Header.Values("Sec-Websocket-Protocol")
		ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"acp.sandboxagent.dev"}})
		if err != nil {
			return
		}
		defer func() { _ = ws.CloseNow() }()
		ws.SetReadLimit(-1)
		for {
			kind, b, err := ws.Read(context.Background())
			if err != nil || ws.Write(context.Background(), kind, b) != nil {
				return
			}
		}
	}))
	token := h.token(fleet.NewToken{Kind: store.KindClient, Scope: store.ScopeDrive})
	ws, _, err := websocket.Dial(t.Context(), h.url+"/nodes/box/v2/rpc", &websocket.DialOptions{
		HTTPClient:   &http.Client{Transport: plain},
		Subprotocols: []string{"acp.sandboxagent.dev", "bearer." + base64.RawURLEncoding.EncodeToString([]byte(token))},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ws.CloseNow() }()
	if got := <-offered; len(got) != 1 || got[0] != "acp.sandboxagent.dev" || ws.Subprotocol() != got[0] {
		t.Errorf("the node was offered %q, and the client got %q", got, ws.Subprotocol())
	}
	ws.SetReadLimit(-1)
	large := bytes.Repeat([]byte("0123456789"), 100<<10)
	if err := ws.Write(t.Context(), websocket.MessageText, large); err != nil {
		t.Fatal(err)
	}
	if _, b, err := ws.Read(t.Context()); err != nil || !bytes.Equal(b, large) {
		t.Errorf("%d bytes came back of %d: %v", len(b), len(large), err)
	}
	// A token that is revoked ends what it began.
	if status, body := h.ask(http.MethodDelete, "/v2/tokens/"+idOf(token), adminToken, nil); status != http.StatusNoContent {
		t.Fatalf("revoke: %d %s", status, body)
	}
	if _, _, err := ws.Read(t.Context()); err == nil {
		t.Error("the connection goes on with a revoked token")
	}
}

// A node that is not to be trusted cannot act with the origin of the hub.
func TestProxy_WhatTheClientSees(t *testing.T) {
	h := startHub(t)
	h.join("box", h.joinToken(), nil, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for name, value := range map[string]string{
			"Set-Cookie": "a=b", "Clear-Site-Data": "*", "Access-Control-Allow-Origin": "*", "Service-Worker-Allowed": "/", "Strict-Transport-Security": "max-age=9",
			"Alt-Svc": `h3="evil:1"`, "WWW-Authenticate": "Basic", "Link": "</x>; rel=preload", "Refresh": "0", "X-Frame-Options": "ALLOWALL", "Content-Security-Policy": "default-src *",
			"Content-Type": "text/html", "ETag": `"1"`, "Acp-Connection-Id": "c", "X-Acp-Last-Event-Id": "7", "Sandbox-Agent-Truncated": "true", "Location": "/v2/processes/1",
		} {
			w.Header().Set(name, value)
		}
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, "<script>alert(1)</script>")
	}))
	for _, path := range []string{"/nodes/box/evil", "/nodes/box/v2/sessions"} {
		resp := h.open(http.MethodGet, path, adminToken, nil)
		resp.Body.Close()
		for name, want := range map[string]string{
			"Set-Cookie": "", "Clear-Site-Data": "", "Access-Control-Allow-Origin": "", "Service-Worker-Allowed": "", "Strict-Transport-Security": "", "Alt-Svc": "",
			"WWW-Authenticate": "", "Link": "", "Refresh": "", "Content-Security-Policy": "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'",
			"X-Content-Type-Options": "nosniff", "ETag": `"1"`, "Acp-Connection-Id": "c", "X-Acp-Last-Event-Id": "7", "Sandbox-Agent-Truncated": "true",
			"Location": "/nodes/box/v2/processes/1",
		} {
			if got := resp.Header.Get(name); got != want {
				t.Errorf("%s: %s: %q, want %q", path, name, got, want)
			}
		}
	}
	for _, path := range []string{"/", "/ui"} {
		if resp := h.open(http.MethodGet, path, "", nil); resp.StatusCode != http.StatusFound || resp.Header.Get("Location") != "/ui/" {
			t.Errorf("%s: %d to %q, want to be led to /ui/", path, resp.StatusCode, resp.Header.Get("Location"))
		}
	}
	for _, path := range []string{"/ui/", "/nodes/box/ui/", "/nodes/box/ui/index.html", "/nodes/nobody/ui/"} {
		resp := h.open(http.MethodGet, path, "", nil)
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode >= 400 || resp.StatusCode == http.StatusOK && string(b) != "the hub's own page" {
			t.Errorf("%s: %v, %d %q; want the hub's own page", path, err, resp.StatusCode, b)
		}
	}
}

// A Location that leads away is not passed on.
func TestProxy_LocationElsewhere(t *testing.T) {
	h := startHub(t)
	h.join("box", h.joinToken(), nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", r.URL.Query().Get("to"))
		w.WriteHeader(http.StatusTemporaryRedirect)
	}))
	for _, to := range []string{"https://evil.example/", "//evil.example/", `/\evil.example`, "javascript:x"} {
		resp := h.open(http.MethodGet, "/nodes/box/x?to="+to, adminToken, nil)
		resp.Body.Close()
		if at := resp.Header.Get("Location"); at != "" {
			t.Errorf("%s became %s", to, at)
		}
	}
}

// What is large passes in both directions at once, and in constant memory.
func TestProxy_LargeBodies(t *testing.T) {
	const size = 24 << 20 // more than all windows of a tunnel
	h := startHub(t)
	h.join("box", h.joinToken(), nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.New()
		n, err := io.Copy(sum, r.Body)
		fmt.Fprintf(w, "%d %v %x\n", n, err, sum.Sum(nil))
		_, _ = io.Copy(w, io.LimitReader(&pattern{}, size))
	}))
	sent := &hashing{r: io.LimitReader(&pattern{}, size), h: sha256.New()}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPut, h.url+"/nodes/box/v2/fs/file", sent)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := plain.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got := sha256.New()
	line := make([]byte, 0, 128)
	for b := make([]byte, 1); len(line) == 0 || line[len(line)-1] != '\n'; line = append(line, b[0]) {
		if _, err := io.ReadFull(resp.Body, b); err != nil {
			t.Fatal(err)
		}
	}
	if want := fmt.Sprintf("%d <nil> %x\n", size, sent.h.Sum(nil)); string(line) != want {
		t.Errorf("the node got %s, want %s", line, want)
	}
	if n, err := io.Copy(got, resp.Body); n != size || err != nil || !bytes.Equal(got.Sum(nil), sent.h.Sum(nil)) {
		t.Errorf("%d bytes came back: %v", n, err)
	}
}

// pattern is a stream that has no end and repeats after a prime number of bytes, which no buffer has.
type pattern struct{ n int }

var patterned = sync.OnceValue(func() []byte {
	b := make([]byte, 1048573)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b)
	return b
})

func (p *pattern) Read(b []byte) (int, error) {
	n := copy(b, patterned()[p.n:])
	p.n = (p.n + n) % len(patterned())
	return n, nil
}

type hashing struct {
	r io.Reader
	h hash.Hash
}

func (s *hashing) Read(b []byte) (int, error) {
	n, err := s.r.Read(b)
	s.h.Write(b[:n])
	return n, err
}

// The guard of a gateway lets in what comes through its tunnel, and nobody else who
// says the same.
func TestProxy_GatewayWithToken(t *testing.T) {
	api := control.Guard{Token: "the node's own"}.Wrap(echo, func(string) bool { return false }, func(*http.Request) (context.Context, error) {
		return nil, http.ErrNoCookie // any error: nobody has the token
	})
	h := startHub(t)
	h.join("box", h.joinToken(), nil, api)
	if status, body := h.ask(http.MethodPost, "/nodes/box/v2/rpc", adminToken, "x"); status != http.StatusOK {
		t.Errorf("through the tunnel: %d %s", status, body)
	}
	local := httptest.NewServer(api)
	defer local.Close()
	for _, host := range []string{"", "localhost", "tunnel"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, local.URL+"/v2/rpc", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		resp, err := plain.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			t.Errorf("a local request to %q was let in", host)
		}
	}
}

// Another site may lead to the page, and embed nothing.
func TestProxy_LinkToThePage(t *testing.T) {
	h := startHub(t)
	h.join("box", h.joinToken(), nil, echo)
	for path, want := range map[string]int{"/nodes/box/ui/": http.StatusOK, "/nodes/box/": http.StatusFound, "/nodes/box/v2/sessions": http.StatusForbidden, "/v2/nodes": http.StatusForbidden} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document", "Authorization": "Bearer " + adminToken} {
			req.Header.Set(name, value)
		}
		resp, err := plain.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: %d, want %d", path, resp.StatusCode, want)
		}
	}
}
