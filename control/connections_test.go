package control

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/socket"
)

// Peers that are not let in hold a bounded number of connections, and hold
// nobody else up: the oldest leaves.
func TestConnections_Strangers(t *testing.T) {
	c := &Connections{Most: 20, Strangers: 4}
	check := Guard{Token: "secret", Bind: "127.0.0.1"}.prepare()
	srv := httptest.NewUnstartedServer(check.wrap(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "in")
	})))
	srv.Listener = c.Listen(srv.Listener)
	srv.Config.ConnContext = c.Context
	srv.Start()
	defer srv.Close()
	dial := func() net.Conn {
		t.Helper()
		conn, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	ask := func(conn net.Conn, token string) (int, error) {
		if _, err := fmt.Fprintf(conn, "GET /v2/sessions HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer %s\r\n\r\n", token); err != nil {
			return 0, err
		}
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			return 0, err
		}
		_, _ = io.Copy(io.Discard, res.Body)
		return res.StatusCode, res.Body.Close()
	}
	known := dial()
	if code, err := ask(known, "secret"); err != nil || code != 200 {
		t.Fatal(code, err)
	}
	var idle []net.Conn
	for range 50 { // far more than may be open
		conn := dial()
		if code, err := ask(conn, "wrong"); err != nil || code != 401 {
			t.Fatal(code, err)
		}
		idle = append(idle, conn)
	}
	if code, err := ask(known, "secret"); err != nil || code != 200 {
		t.Errorf("who was let in before is gone: %d, %v", code, err)
	}
	if code, err := ask(dial(), "secret"); err != nil || code != 200 {
		t.Errorf("who has the token is not let in: %d, %v", code, err)
	}
	if _, err := idle[0].Read(make([]byte, 1)); err == nil {
		t.Error("the oldest stranger is still there")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.strangers.Len() > 4 || c.open > 20 {
		t.Errorf("%d strangers, %d connections", c.strangers.Len(), c.open)
	}
}

// Beyond all bounds a connection is refused, and there is room when one ends.
func TestConnections_Most(t *testing.T) {
	c := &Connections{Most: 3, PerAddress: 1} // this machine has no bound of its own
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	accepted := make(chan *peer)
	go func() {
		defer close(accepted)
		for {
			conn, err := c.Listen(ln).Accept()
			if err != nil {
				return
			}
			accepted <- conn.(*peer)
		}
	}()
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	var peers []*peer
	for range 3 {
		dial()
		p := <-accepted
		letIn(c.Context(t.Context(), p))
		peers = append(peers, p)
	}
	if conn, err := net.Dial("tcp", ln.Addr().String()); err == nil { // or it is reset at once
		if _, err := conn.Read(make([]byte, 1)); err == nil {
			t.Error("a connection over the bound is served")
		}
		_ = conn.Close()
	}
	_ = peers[0].Close()
	_ = peers[0].Close() // counts once
	dial()
	<-accepted
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open != 3 {
		t.Errorf("%d are open", c.open)
	}
}

// Who runs it learns that there was no room, and not a thousand times.
func TestConnections_NoRoomIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		c := &Connections{Most: 2, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		said := func() string {
			defer log.Reset()
			return log.String()
		}
		come := func() *peer {
			p := c.admit(socket.Plain(new(net.TCPConn)))
			if p != nil {
				letIn(c.Context(t.Context(), p))
			}
			return p
		}
		for range 2 {
			if come() == nil || said() != "" {
				t.Fatal("there is no room from the beginning")
			}
		}
		if come() != nil {
			t.Fatal("there is room for a third one")
		}
		if got := said(); !strings.Contains(got, "closed=1") || !strings.Contains(got, "max-connections=2") {
			t.Errorf("the log says %q", got)
		}
		for range 1000 {
			come()
		}
		if got := said(); got != "" {
			t.Errorf("the log says %q at once", got)
		}
		time.Sleep(logPause)
		come()
		if got := said(); !strings.Contains(got, "closed=1001") || strings.Count(got, "\n") != 1 {
			t.Errorf("a minute later the log says %q", got)
		}
	})
}

func TestMostConnections(t *testing.T) {
	for _, tt := range []struct{ wanted, files, most int }{{65536, 0, 65536}, {65536, 20000, 15000}, {100, 20000, 100}, {65536, 1024, 768}, {65536, 512, 256}, {65536, 64, 16}} {
		if got := MostConnections(tt.wanted, tt.files); got != tt.most {
			t.Errorf("of %d, with %d files: %d, not %d", tt.wanted, tt.files, got, tt.most)
		}
	}
}
