package acphttp

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/internal/pipes"
)

// The end waits for a moment only for a client that takes nothing.
func TestShutdown_ClientsThatTakeNothing(t *testing.T) {
	const size = 8 << 20 // more than is on its way at one time
	large := acp.NewNotification("session/update", []byte(`["`+strings.Repeat("x", size)+`"]`))
	const initialize = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}`
	do := func(t *testing.T, l pipes.Listener, two bool, method, body, id string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://localhost/", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		if method == http.MethodGet {
			r.Header.Set("Accept", "text/event-stream")
		}
		if id != "" {
			r.Header.Set(HeaderInlineConnection, id)
		}
		resp, err := l.Transport(t, two).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		return resp
	}
	stream := func(two bool) func(*testing.T, pipes.Listener, *fakeClient) {
		return func(t *testing.T, l pipes.Listener, c *fakeClient) {
			_, _ = io.Copy(io.Discard, do(t, l, two, http.MethodPost, initialize, "").Body)
			do(t, l, two, http.MethodGet, "", c.ID())
			c.Deliver(large)
		}
	}
	for name, begin := range map[string]func(*testing.T, pipes.Listener, *fakeClient){
		"stream":        stream(false),
		"stream HTTP/2": stream(true),
		"answer": func(t *testing.T, l pipes.Listener, c *fakeClient) {
			_, _ = io.Copy(io.Discard, do(t, l, false, http.MethodPost, initialize, "").Body)
			c.replies <- acp.Reply{Frame: large.Frame()}
			do(t, l, false, http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{}}`, c.ID())
		},
		"WebSocket": func(t *testing.T, l pipes.Listener, c *fakeClient) {
			ws, _, err := websocket.Dial(t.Context(), "http://localhost/", &websocket.DialOptions{HTTPClient: &http.Client{Transport: l.Transport(t, false)}})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = ws.CloseNow() })
			if err := ws.Write(t.Context(), websocket.MessageText, []byte(initialize)); err != nil {
				t.Fatal(err)
			}
			if _, _, err := ws.Read(t.Context()); err != nil {
				t.Fatal(err)
			}
			c.Deliver(large)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newFakeClient()
				h := New(fakeGateway{c}, Options{})
				begin(t, pipes.Serve(t, h), c)
				synctest.Wait() // it is being sent
				began := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute/2)
				defer cancel()
				if err := h.Shutdown(ctx); err != nil || time.Since(began) != farewell {
					t.Errorf("it ended with %v after %v", err, time.Since(began))
				}
			})
		})
	}
}
