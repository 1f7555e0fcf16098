package fleet_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"sandboxagent.dev/sandbox-agent/fleet"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/fleet/tunnel"
)

// storing is a node that keeps what it is given in a file, and says how each request came.
type storing struct {
	dir string

	mu  sync.Mutex
	way map[string]string // of the newest request for a path: "tcp" for a lane, "tunnel" for a stream
}

func newStoring(t *testing.T) *storing { return &storing{dir: t.TempDir(), way: map[string]string{}} }

// ServeHTTP implements [http.Handler].
func (s *storing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	s.mu.Lock()
	s.way[r.Method+" "+r.URL.Path] = at.Network()
	s.mu.Unlock()
	name := filepath.Join(s.dir, strings.ReplaceAll(r.URL.Path, "/", "_")+r.URL.Query().Get("path"))
	if r.Method == http.MethodGet {
		http.ServeFile(w, r, name)
		return
	}
	b, err := io.ReadAll(r.Body)
	if err == nil {
		err = os.WriteFile(name, b, 0o600)
	}
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
	}
}

func (s *storing) came(request string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.way[request]
}

// patternOf returns so many bytes of the pattern.
func patternOf(n int) []byte {
	b := make([]byte, n)
	_, _ = io.ReadFull(&pattern{}, b) // it has no end
	return b
}

// put stores something, and get returns it.
func (h *hub) put(path string, b []byte) {
	h.t.Helper()
	if status, answer := h.send(http.MethodPut, path, b); status != http.StatusOK {
		h.t.Fatalf("PUT %s: %d %s", path, status, answer)
	}
}

func (h *hub) send(method, path string, b []byte) (int, []byte) {
	h.t.Helper()
	req, err := http.NewRequestWithContext(h.t.Context(), method, h.url+path, bytes.NewReader(b))
	if err != nil {
		h.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	resp, err := plain.RoundTrip(req)
	if err != nil {
		h.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return resp.StatusCode, answer
}

// lanes returns how many lanes the hub says that it has, and lanesOpened how many it has had.
func (h *hub) lanes() int { return h.metric(`sandbox_hub_tunnel_lanes`) }

func (h *hub) lanesOpened() int {
	return h.metric(`sandbox_hub_http_requests_total{method="GET",route="/v2/join/lane",status="101"}`)
}

func (h *hub) metric(name string) int {
	h.t.Helper()
	_, body := h.ask(http.MethodGet, "/metrics", adminToken, nil)
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + ` (\d+)$`).FindSubmatch(body)
	if m == nil {
		h.t.Fatalf("the metrics do not say %s", name)
	}
	n, err := strconv.Atoi(string(m[1]))
	if err != nil {
		h.t.Fatal(err)
	}
	return n
}

// What may be large goes by a lane, which the next one uses again, and other requests do not.
func TestLanes_WhatIsLarge(t *testing.T) {
	h := startHub(t)
	box := newStoring(t)
	h.join("box", h.joinToken(), nil, box)
	large := patternOf(3<<20 + 7)
	for _, row := range []struct {
		path string
		put  []byte
		way  string // that it is put
		get  string // and read
	}{
		{"/v2/fs/file", large, "tcp", "tcp"},
		{"/v2/sessions/a/export", large, "tcp", "tcp"},
		{"/v2/fs/download-batch", large, "tcp", "tcp"},
		{"/v2/fs/file", []byte("small"), "tunnel", "tcp"},
		{"/v2/fs/stat", []byte("small"), "tunnel", "tunnel"},
	} {
		at := "/nodes/box" + row.path
		h.put(at, row.put)
		status, got := h.ask(http.MethodGet, at, adminToken, nil)
		if status != http.StatusOK || !bytes.Equal(got, row.put) {
			t.Errorf("GET %s: %d, %d bytes came back of %d", at, status, len(got), len(row.put))
		}
		if put, get := box.came("PUT "+row.path), box.came("GET "+row.path); put != row.way || get != row.get {
			t.Errorf("%s came by %s and was read by %s, want %s and %s", row.path, put, get, row.way, row.get)
		}
	}
	if n, opened := h.lanes(), h.lanesOpened(); n != 2 || opened != 2 { // one of requests with a body, one of those without
		t.Errorf("there are %d lanes of %d that were opened, want 2 that were used again", n, opened)
	}
}

// A part of a file is that part.
func TestLanes_Ranges(t *testing.T) {
	h := startHub(t)
	h.join("box", h.joinToken(), nil, newStoring(t))
	large := patternOf(2 << 20)
	h.put("/nodes/box/v2/fs/file", large)
	for _, r := range []struct{ from, to int }{{0, 0}, {5, 1<<20 + 5}, {1 << 20, 2<<20 - 1}} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.url+"/nodes/box/v2/fs/file", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+adminToken)
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", r.from, r.to))
		resp, err := plain.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusPartialContent || !bytes.Equal(got, large[r.from:r.to+1]) {
			t.Errorf("bytes %d to %d: %d, %d bytes: %v", r.from, r.to, resp.StatusCode, len(got), err)
		}
	}
}

// Where no lane comes through, as behind one address of several hubs, what is large goes by the
// tunnel, and it is not tried again each time.
func TestLanes_WhereNoneComes(t *testing.T) {
	h := startHub(t)
	var tried atomic.Int32
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == tunnel.LanePath {
			tried.Add(1)
			w.WriteHeader(http.StatusConflict)
			return
		}
		h.hub.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	box := newStoring(t)
	h.begin(front.URL, "box", h.joinToken(), nil, box)
	h.awaitState("box", fleet.StateOnline)
	large := patternOf(2 << 20)
	for range 3 {
		h.put("/nodes/box/v2/fs/file", large)
		if _, got := h.ask(http.MethodGet, "/nodes/box/v2/fs/file", adminToken, nil); !bytes.Equal(got, large) {
			t.Fatalf("%d bytes came back of %d", len(got), len(large))
		}
	}
	if way := box.came("GET /v2/fs/file"); way != "tunnel" {
		t.Errorf("the file was read by %s", way)
	}
	if n := tried.Load(); n != 1 {
		t.Errorf("a lane was tried %d times, want once", n)
	}
}

// More than there are lanes for goes by the tunnel, and all of it comes.
func TestLanes_Many(t *testing.T) {
	h := startHub(t)
	hold, begun := make(chan struct{}), make(chan string, 64)
	h.join("box", h.joinToken(), nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
		begun <- at.Network()
		<-hold
		_, _ = io.WriteString(w, "all of it")
	}))
	var asked sync.WaitGroup
	ways := map[string]int{}
	for range tunnel.MaxLanes + 4 { // one by one: how they come is certain
		asked.Go(func() {
			if status, body := h.ask(http.MethodGet, "/nodes/box/v2/fs/file", adminToken, nil); status != http.StatusOK || string(body) != "all of it" {
				t.Errorf("%d %s", status, body)
			}
		})
		ways[<-begun]++
	}
	if ways["tcp"] != tunnel.MaxLanes || ways["tunnel"] != 4 {
		t.Errorf("they came by %v", ways)
	}
	close(hold)
	asked.Wait()
	h.await("those that nobody uses are closed, but two", func() bool { return h.lanes() <= 2 })
}

// What goes by a lane ends with its tunnel, and with the token of the client: it never looks whole.
func TestLanes_EndInTheMiddle(t *testing.T) {
	for name, end := range map[string]func(h *hub, n *node, join, client string){
		"the node leaves": func(_ *hub, n *node, _, _ string) { n.leave() },
		"its token is revoked": func(h *hub, _ *node, join, _ string) {
			h.ask(http.MethodDelete, "/v2/tokens/"+idOf(join), adminToken, nil)
		},
		"the client's is revoked": func(h *hub, _ *node, _, client string) {
			h.ask(http.MethodDelete, "/v2/tokens/"+idOf(client), adminToken, nil)
		},
		"it joins again": func(h *hub, _ *node, _, _ string) { h.hub.Moved("box", "another") },
	} {
		t.Run(name, func(t *testing.T) {
			h := startHub(t)
			ended := make(chan error, 1)
			join, client := h.joinToken(), h.token(fleet.NewToken{Kind: store.KindClient, Scope: store.ScopeDrive})
			n := h.join("box", join, nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/v2/fs/file" {
					return
				}
				w.Header().Set("Content-Length", "1099511627776")
				_, err := io.Copy(w, &pattern{})
				ended <- err
			}))
			resp := h.open(http.MethodGet, "/nodes/box/v2/fs/file", client, nil)
			defer resp.Body.Close()
			if _, err := io.CopyN(io.Discard, resp.Body, 2<<20); err != nil {
				t.Fatal(err)
			}
			end(h, n, join, client)
			if _, err := io.Copy(io.Discard, resp.Body); err == nil {
				t.Error("what was cut looks whole")
			}
			if err := <-ended; err == nil {
				t.Error("the node could write all of it")
			}
			h.await("the lane is gone", func() bool { return h.lanes() == 0 })
		})
	}
}

// A client that reads nothing of a file holds up nobody else, however slow it is.
func TestLanes_UnreadFile(t *testing.T) {
	h := startHub(t)
	box := newStoring(t)
	h.join("box", h.joinToken(), nil, box)
	h.put("/nodes/box/v2/fs/file", patternOf(32<<20))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 4 {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.url+"/nodes/box/v2/fs/file", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+adminToken)
		resp, err := plain.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
	}
	h.put("/nodes/box/v2/fs/stat", []byte("x"))
	if _, got := h.ask(http.MethodGet, "/nodes/box/v2/fs/stat", adminToken, nil); string(got) != "x" {
		t.Errorf("got %q", got)
	}
	cancel()
	h.await("nothing is left of them", func() bool { return h.lanes() <= 1 })
}

// Only the gateway that was asked for a lane opens it.
func TestLanes_OfSomebodyElse(t *testing.T) {
	h := startHub(t)
	h.join("box", h.joinToken(), nil, echo)
	other := h.token(fleet.NewToken{Kind: store.KindJoin, Node: "other"})
	client := h.token(fleet.NewToken{Kind: store.KindClient, Scope: store.ScopeAdmin})
	for name, row := range map[string]struct {
		token  string
		header map[string]string
		status int
		kind   string
	}{
		"nobody":                {"", nil, http.StatusUnauthorized, "token_invalid"},
		"a client":              {client, nil, http.StatusForbidden, "permission_denied"},
		"another node":          {other, nil, http.StatusConflict, "conflict"},
		"another program":       {h.joinToken(), map[string]string{"X-Sandbox-Instance": strings.Repeat("A", 26)}, http.StatusConflict, "conflict"},
		"a node that is not":    {h.joinToken(), map[string]string{"X-Sandbox-Node": "nobody"}, http.StatusConflict, "conflict"},
		"no number":             {h.joinToken(), map[string]string{"X-Sandbox-Lane": "-1"}, http.StatusBadRequest, "invalid_request"},
		"another protocol":      {h.joinToken(), map[string]string{"Upgrade": "websocket"}, http.StatusBadRequest, "invalid_request"},
		"one that nobody wants": {h.joinToken(), nil, http.StatusConflict, "conflict"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.url+tunnel.LanePath, nil)
		if err != nil {
			t.Fatal(err)
		}
		for k, v := range map[string]string{"X-Sandbox-Node": "box", "X-Sandbox-Lane": "1", "Connection": "Upgrade", "Upgrade": "lane.sandboxagent.dev"} {
			req.Header.Set(k, v)
		}
		for k, v := range row.header {
			req.Header.Set(k, v)
		}
		if row.token != "" {
			req.Header.Set("Authorization", "Bearer "+row.token)
		}
		resp, err := plain.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != row.status || kindOf(body) != row.kind {
			t.Errorf("%s: %d %s, want %d %s", name, resp.StatusCode, body, row.status, row.kind)
		}
	}
}
