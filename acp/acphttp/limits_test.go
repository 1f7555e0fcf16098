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
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"sandboxagent.dev/sandbox-agent/internal/memory"
	"sandboxagent.dev/sandbox-agent/internal/pipes"
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
	answer := bufio.NewReader(stalled(t, srv, 1000))
	res, err := http.ReadResponse(answer, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	b, err := io.ReadAll(res.Body)
	if err != nil || !strings.Contains(string(b), "did not arrive in time: 1 of 1000 bytes") {
		t.Errorf("%s %s, %v", res.Status, b, err)
	}
	if _, err := answer.ReadByte(); err != io.EOF {
		t.Errorf("the connection goes on: %v", err)
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

// Who does not send on gives back what memory its body takes, and is told so, when others need it.
func TestPost_OthersNeedTheMemory(t *testing.T) {
	for name, two := range map[string]bool{"HTTP/1": false, "HTTP/2": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const most = 4 << 20
				all := memory.NewBound(most)
				l := pipes.Serve(t, New(fakeGateway{newFakeClient()}, Options{Memory: all}))
				body, line := io.Pipe()
				defer line.Close()
				r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/", body)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("Content-Type", "application/json")
				go func() {
					_, _ = io.WriteString(line, strings.Repeat(" ", most/4))
					synctest.Wait()
					other := all.Open(nil)
					defer other.Close()
					if err := other.Take(t.Context(), most*3/4); err != nil {
						t.Error(err)
					}
				}()
				resp, err := l.Transport(t, two).RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				b, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if err != nil || resp.StatusCode != http.StatusTooManyRequests || !strings.Contains(string(b), "--max-memory") {
					t.Errorf("it got %s %s, %v", resp.Status, b, err)
				}
			})
		})
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

// A request that is too large is answered, and the agent hears of an answer that is; both
// leave the socket as it was. What does not say what it is ends it.
func TestWebSocket_AMessageThatIsTooLarge(t *testing.T) {
	const most = 1 << 20
	client := newFakeClient()
	large := strings.Repeat("x", most)
	open := func() *websocket.Conn {
		client = newFakeClient() // it ends with its socket
		srv := httptest.NewServer(New(fakeGateway{client}, Options{MaxBody: most}))
		t.Cleanup(srv.Close)
		ws, _, err := websocket.Dial(t.Context(), srv.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ws.CloseNow() })
		ws.SetReadLimit(-1)
		return ws
	}
	says := func(ws *websocket.Conn, text string) {
		if err := ws.Write(t.Context(), websocket.MessageText, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}`
	ws := open()
	says(ws, hello)
	if _, b, err := ws.Read(t.Context()); err != nil || !strings.Contains(string(b), `"id":1`) {
		t.Fatalf("%s, %v", b, err)
	}
	for _, id := range []string{`7`, `"seven"`} {
		says(ws, `{ "jsonrpc":"2.0", "id" : `+id+`,"method":"session/prompt","params":{"x":"`+large+`"}}`)
		_, b, err := ws.Read(t.Context())
		if err != nil || !strings.Contains(string(b), `"id":`+id) || !strings.Contains(string(b), "-32600") || !strings.Contains(string(b), "payload_too_large") || !strings.Contains(string(b), "--max-body") {
			t.Errorf("%s: %.300s, %v", id, b, err)
		}
	}
	says(ws, `{"jsonrpc":"2.0","id":8,"result":{"content":"`+large+`"}}`)
	if m := <-client.sent; !m.IsResponse() || string(m.ID()) != "8" || m.Err() == nil || !strings.Contains(m.Err().Message, "over the limit of 1048576 bytes") {
		t.Errorf("the agent is told %s", m.Frame())
	}
	for name, text := range map[string]string{
		"a notification": `{"jsonrpc":"2.0","method":"session/cancel","params":{"x":"` + large + `"}}`,
		"no id yet":      `{"jsonrpc":"2.0","params":{"x":"` + large + `"},"id":9,"method":"x"}`,
		"no object":      `["` + large + `"]`,
		"no JSON":        large + "x",
		"no end":         `{"jsonrpc":"2.0","id":9,"method":"x","params":{"x":"` + strings.Repeat(large, drainFactor),
	} {
		ws := open()
		says(ws, hello)
		_, _, err := ws.Read(t.Context())
		_ = ws.Write(t.Context(), websocket.MessageText, []byte(text)) // it may be ended before all of it is sent
		for err == nil {
			_, _, err = ws.Read(t.Context())
		}
		if code := websocket.CloseStatus(err); code != websocket.StatusMessageTooBig {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHeadOf(t *testing.T) {
	for head, want := range map[string]string{
		`{"jsonrpc":"2.0","id":1,"method":"x","params":{"a`:    "1 false",
		`{"id":"a","jsonrpc":"2.0","method":"x","params":{"a`:  `"a" false`,
		`{"method":"x","id":-4,"params":`:                      "-4 false",
		`{"jsonrpc":"2.0","id":1,"result":{"a`:                 "1 true",
		`{"jsonrpc":"2.0","id":1,"error":`:                     "1 true",
		`{"jsonrpc":"2.0","id":null,"method":"x","params":{"a`: " false",
		`{"jsonrpc":"2.0","id":{},"method":"x","params":{"a`:   " false",
		`{"jsonrpc":"2.0","method":"` + "xxxx":                 " false",
		`[`:                                                    " false", ``: " false", `{`: " false", `{1:2`: " false", "\xff": " false",
	} {
		id, answer := headOf([]byte(head))
		if got := fmt.Sprint(string(id), " ", answer); got != want {
			t.Errorf("%s: %s, want %s", head, got, want)
		}
	}
}
