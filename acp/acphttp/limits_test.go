package acphttp

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"sandboxagent.dev/sandbox-agent/internal/memory"
)

// stalled opens a connection and announces a body of n bytes that does not come.
func stalled(t *testing.T, srv *httptest.Server, n int) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n{", n); err != nil {
		t.Fatal(err)
	}
	return conn
}

// A body that does not come in time is refused, and its connection ends.
func TestPost_ABodyThatDoesNotCome(t *testing.T) {
	srv := httptest.NewServer(New(fakeGateway{newFakeClient()}, Options{BodyTimeout: 10 * time.Millisecond}))
	t.Cleanup(srv.Close)
	res, err := http.ReadResponse(bufio.NewReader(stalled(t, srv, 1000)), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil || !strings.Contains(string(b), "did not arrive in time: 1 of 1000 bytes") {
		t.Errorf("%s %s, %v", res.Status, b, err)
	}
}

// What is announced takes no memory before it comes, and all that is coming has
// a bound.
func TestPost_MemoryOfBodies(t *testing.T) {
	h := New(fakeGateway{newFakeClient()}, Options{Memory: memory.NewBound(3 << 20)})
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close) // after the connections of stalled, which it would wait for
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	for range 100 {
		stalled(t, srv, 32<<20-1)
	}
	// The server has read the last of them when it answers this.
	big := bytes.Repeat([]byte(" "), 8<<20)
	res, err := http.Post(srv.URL, "application/json", bytes.NewReader(big))
	if err == nil {
		b, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.StatusCode != http.StatusTooManyRequests || !strings.Contains(string(b), "--max-memory") {
			t.Errorf("%s %s", res.Status, b)
		}
	} // or the connection was reset: it was still being sent
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 64<<20 {
		t.Errorf("100 bodies that did not come take %d MiB", grown>>20)
	}
	// Each began as a small one, and those have a quarter more.
	if n := h.memory.Used(); n > 3<<20+3<<18 {
		t.Errorf("%d bytes are taken", n)
	}
}

// A WebSocket that never says initialize is closed.
func TestWebSocket_WithoutInitialize(t *testing.T) {
	srv := httptest.NewServer(New(fakeGateway{newFakeClient()}, Options{Handshake: 10 * time.Millisecond}))
	defer srv.Close()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, srv.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ws.CloseNow() }()
	if _, _, err := ws.Read(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("it is still open: %v", err)
	}
}

// Messages of WebSockets that are not finished share the memory of bodies that are
// arriving: beyond it their senders are told to try again later.
func TestWebSocket_MemoryOfMessages(t *testing.T) {
	h := New(fakeGateway{newFakeClient()}, Options{Memory: memory.NewBound(3 << 20)})
	srv := httptest.NewServer(h)
	defer srv.Close()
	defer func() { _ = h.Shutdown(context.Background()) }() // some may still wait for room
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	defer cancel()
	half := append([]byte(`{"jsonrpc":"2.0","method":"`), bytes.Repeat([]byte("x"), 1<<20)...)
	told := make(chan error, 8)
	for range cap(told) {
		ws, _, err := websocket.Dial(ctx, srv.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = ws.CloseNow() }()
		w, err := ws.Writer(ctx, websocket.MessageText) // never closed: the message does not end
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = w.Write(half) // its connection may be closed meanwhile
			_, _, err := ws.Read(ctx)
			told <- err
		}()
	}
	// One at least fits, and of the others some may only see their connection reset.
	for refused := 0; websocket.CloseStatus(<-told) != websocket.StatusTryAgainLater; refused++ {
		if refused == cap(told)-1 {
			t.Fatal("nobody was told to try again later")
		}
	}
	// Each began as a small one, and those have a quarter more.
	if n := h.memory.Used(); n > 3<<20+3<<18 {
		t.Errorf("%d bytes are taken", n)
	}
}
