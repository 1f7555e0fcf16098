package acphttp

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/coder/websocket"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/internal/pipes"
)

// dialServer accepts WebSockets and hands each to serve. Its end waits for all.
func dialServer(t *testing.T, serve func(ctx context.Context, ws *websocket.Conn, r *http.Request)) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{dialSubprotocol}})
		if err != nil {
			t.Errorf("accept: %v", err)
			return
		}
		defer ws.CloseNow()
		ws.SetReadLimit(-1)
		serve(t.Context(), ws, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func dialTo(t *testing.T, endpoint string, o DialOptions) acp.Conn {
	t.Helper()
	c, err := Dial(t.Context(), endpoint, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// echoFrames sends back what it reads.
func echoFrames(ctx context.Context, ws *websocket.Conn, _ *http.Request) {
	for {
		kind, b, err := ws.Read(ctx)
		if err != nil {
			return
		}
		if ws.Write(ctx, kind, b) != nil {
			return
		}
	}
}

func TestDial_Handshake(t *testing.T) {
	seen := make(chan *http.Request, 1)
	s := dialServer(t, func(ctx context.Context, ws *websocket.Conn, r *http.Request) {
		seen <- r
		if ws.Subprotocol() != dialSubprotocol {
			t.Errorf("subprotocol %q", ws.Subprotocol())
		}
		echoFrames(ctx, ws, r)
	})
	c := dialTo(t, s.URL, DialOptions{Token: "tok", Agent: "a b", Header: http.Header{"X-One": {"1"}}})
	r := <-seen
	if r.URL.Path != "/v2/rpc" || r.URL.Query().Get("agent") != "a b" || r.Header.Get("Authorization") != "Bearer tok" || r.Header.Get("X-One") != "1" || r.Header.Get("Origin") != "" {
		t.Errorf("request to %s with %v", r.URL, r.Header)
	}
	want := acp.NewRequest("0", "session/prompt", []byte(`{"a":"<é>"}`))
	if err := c.Write(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	got, err := c.Read(t.Context())
	if err != nil || string(got.Frame()) != string(want.Frame()) {
		t.Errorf("read %s, %v", got.Frame(), err)
	}
}

func TestDial_URL(t *testing.T) {
	tests := []struct{ endpoint, agent, want string }{
		{"http://h:1", "", "ws://h:1/v2/rpc"},
		{"http://h:1/", "", "ws://h:1/v2/rpc"},
		{"https://h/prefix/", "", "wss://h/prefix/v2/rpc"},
		{"https://h/v2/rpc", "", "wss://h/v2/rpc"},
		{"ws://h/v2/rpc/#x", "", "ws://h/v2/rpc/"},
		{"wss://h?x=1", "m", "wss://h/v2/rpc?agent=m&x=1"},
		{"ftp://h", "", ""},
		{"h:1", "", ""},
		{"http://", "", ""},
		{"", "", ""},
	}
	for _, tt := range tests {
		got, err := dialURL(tt.endpoint, tt.agent)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%q: %q, %v, want %q", tt.endpoint, got, err, tt.want)
		}
	}
}

func TestDial_Refusals(t *testing.T) {
	long := strings.Repeat("why ", 1000) // more than the WebSocket library keeps of a body
	tests := []struct {
		name   string
		answer http.HandlerFunc
		kind   problem.Kind
		detail string
	}{
		{"problem", func(w http.ResponseWriter, _ *http.Request) {
			problem.Write(w, problem.New(problem.TokenInvalid, "%s", long).With("oldest", 7))
		}, problem.TokenInvalid, long},
		{"no problem", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "<html>", http.StatusBadGateway) }, problem.Unavailable, "502 Bad Gateway"},
		{"another server", http.NotFound, problem.NotFound, "404 Not Found: this is no Sandbox Agent gateway"},
		{"TLS", func(w http.ResponseWriter, _ *http.Request) {
			http.Error(w, "Client sent an HTTP request to an HTTPS server.", http.StatusBadRequest)
		}, problem.InvalidRequest, "use https://"},
		{"no answer at all", func(http.ResponseWriter, *http.Request) {}, problem.Internal, "200 OK"},
		{"unknown type", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", problem.ContentType)
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, `{"type":"urn:sandbox-agent:error:future"}`)
		}, problem.PermissionDenied, "403"},
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/elsewhere" {
				t.Error("the redirect was followed, with the token")
			}
			http.Redirect(w, r, "/elsewhere", http.StatusFound)
		}, problem.Internal, "redirects to /elsewhere"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := httptest.NewServer(tt.answer)
			defer s.Close()
			c, err := Dial(t.Context(), s.URL, DialOptions{Token: "tok"})
			if c != nil {
				t.Error("a connection came with the error")
			}
			p, ok := errors.AsType[*problem.Error](err)
			if !ok {
				t.Fatalf("error %v, want a problem", err)
			}
			if p.Kind != tt.kind || !strings.Contains(p.Detail, tt.detail) {
				t.Errorf("problem %s %q, want %s %q", p.Kind, p.Detail, tt.kind, tt.detail)
			}
			if tt.name == "problem" && p.Extensions["oldest"] != float64(7) {
				t.Errorf("extensions %v", p.Extensions)
			}
		})
	}
}

func TestDial_NobodyThere(t *testing.T) {
	s := httptest.NewServer(nil)
	s.Close()
	if _, err := Dial(t.Context(), s.URL, DialOptions{}); err == nil {
		t.Error("dialling a closed port succeeded")
	} else if _, ok := errors.AsType[*problem.Error](err); ok {
		t.Errorf("error %v is a problem, but nobody answered", err)
	}
}

func TestDial_LargeMessage(t *testing.T) {
	if testing.Short() {
		t.Skip("moves 33 MiB twice")
	}
	c := dialTo(t, dialServer(t, echoFrames).URL, DialOptions{})
	want := acp.NewNotification("x", []byte(`["`+strings.Repeat("0123456789abcdef", 33<<16)+`"]`))
	errc := make(chan error, 1)
	go func() { errc <- c.Write(t.Context(), want) }()
	got, err := c.Read(t.Context())
	if err != nil || len(got.Frame()) != len(want.Frame()) {
		t.Errorf("read %d bytes, %v, want %d", len(got.Frame()), err, len(want.Frame()))
	}
	if err := <-errc; err != nil {
		t.Error(err)
	}
}

func TestDial_PingIsAnswered(t *testing.T) {
	pinged := make(chan error, 1)
	c := dialTo(t, dialServer(t, func(ctx context.Context, ws *websocket.Conn, _ *http.Request) {
		ctx = ws.CloseRead(ctx)
		pinged <- ws.Ping(ctx)
		_ = ws.Write(ctx, websocket.MessageText, []byte(`{"jsonrpc":"2.0","method":"after"}`))
		<-ctx.Done()
	}).URL, DialOptions{})
	if m, err := c.Read(t.Context()); err != nil || m.Method() != "after" {
		t.Errorf("read %s, %v", m.Frame(), err)
	}
	if err := <-pinged; err != nil {
		t.Errorf("ping: %v", err)
	}
}

func TestDial_FramesThatAreNoMessages(t *testing.T) {
	c := dialTo(t, dialServer(t, func(ctx context.Context, ws *websocket.Conn, _ *http.Request) {
		_ = ws.Write(ctx, websocket.MessageBinary, []byte(`{"jsonrpc":"2.0","method":"binary"}`))
		_ = ws.Write(ctx, websocket.MessageText, []byte(`{`))
		_ = ws.Write(ctx, websocket.MessageText, []byte(`{"jsonrpc":"2.0","method":"good"}`))
		_ = ws.Close(websocket.StatusGoingAway, "")
	}).URL, DialOptions{})
	_, err := c.Read(t.Context())
	if _, ok := errors.AsType[*acp.ParseError](err); !ok {
		t.Fatalf("error %v, want a parse error", err)
	}
	if m, err := c.Read(t.Context()); err != nil || m.Method() != "good" {
		t.Errorf("read %s, %v", m.Frame(), err)
	}
	if _, err := c.Read(t.Context()); err != io.EOF {
		t.Errorf("at the end %v, want io.EOF", err)
	}
}

func TestDial_CloseEndsReadAndTwiceIsFine(t *testing.T) {
	c := dialTo(t, dialServer(t, echoFrames).URL, DialOptions{})
	read := make(chan error, 1)
	go func() {
		_, err := c.Read(context.Background())
		read <- err
	}()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := <-read; err == nil {
		t.Error("the pending read returned no error")
	}
	if err := c.Write(context.Background(), acp.NewNotification("x", nil)); err == nil {
		t.Error("a write after Close succeeded")
	}
}

func TestDial_ServerVanishes(t *testing.T) {
	c := dialTo(t, dialServer(t, func(_ context.Context, ws *websocket.Conn, _ *http.Request) { _ = ws.CloseNow() }).URL, DialOptions{})
	if _, err := c.Read(t.Context()); err == nil || err == io.EOF {
		t.Errorf("read error %v, want one that is no clean end", err)
	}
}

// A long message on a slow line, or to somebody who takes it late, is not cut short by a ping.
func TestDial_PingsBehindALongMessage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		large := acp.NewNotification("session/update", []byte(`["`+strings.Repeat("x", 1<<20)+`"]`))
		small := acp.NewNotification("session/cancel", []byte("{}"))
		fail := func(what string, err error) {
			if err != nil {
				t.Errorf("%s: %v", what, err)
			}
		}
		served := make(chan struct{})
		l := pipes.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			defer close(served)
			ws, err := websocket.Accept(w, r, nil)
			if err != nil {
				t.Error(err)
				return
			}
			defer ws.CloseNow()
			ws.SetReadLimit(-1)
			_, message, err := ws.Reader(t.Context()) // it has begun
			if err != nil {
				t.Error(err)
				return
			}
			within, cancel := context.WithTimeout(t.Context(), wait/4)
			_ = ws.Ping(within) // which need not be answered
			cancel()
			b, err := io.ReadAll(message)
			fail("the long message", err)
			if !bytes.Equal(b, large.Frame()) {
				t.Errorf("%d bytes came", len(b))
			}
			fail("an answer", ws.Write(t.Context(), websocket.MessageText, small.Frame()))
			ctx := ws.CloseRead(t.Context())
			fail("the next ping", ws.Ping(ctx))
		}))
		conn, err := Dial(t.Context(), "http://localhost", DialOptions{Transport: l.Transport(t, false)})
		if err != nil {
			t.Fatal(err)
		}
		sent := make(chan error, 1)
		go func() { sent <- conn.Write(t.Context(), large) }()
		m, err := conn.Read(t.Context())
		if err != nil || m.Method() != small.Method() {
			t.Errorf("%s, %v", m.Method(), err)
		}
		fail("it writes", <-sent)
		_, _ = conn.Read(t.Context()) // until it is over
		_ = conn.Close()
		<-served
	})
}
