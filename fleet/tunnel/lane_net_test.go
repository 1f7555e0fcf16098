package tunnel_test

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/fleet/tunnel"
)

// lanePair returns both ends of a lane beside a tunnel over real sockets, and ends the tunnel with the test.
func lanePair(t *testing.T, serve func(http.Handler) *httptest.Server) (hub, node *tunnel.Tunnel, down, up net.Conn) {
	t.Helper()
	made := make(chan *tunnel.Tunnel, 1)
	var end *tunnel.Tunnel
	srv := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != tunnel.LanePath {
			end, err := tunnel.Accept(w, r)
			if err != nil {
				t.Error(err)
				return
			}
			made <- end
			<-end.Done()
			return
		}
		name, instance, n, err := tunnel.ParseLane(r.Header)
		if err != nil || name != "box" || instance != "secret" || !end.Awaits(n) {
			t.Errorf("a lane of %q and %q with the number %d: %v", name, instance, n, err)
		}
		if err := end.TakeLane(w, n); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(srv.Close)
	transport := srv.Client().Transport.(*http.Transport).Clone()
	transport.DisableKeepAlives, transport.DialContext = true, tunnel.Wire(new(net.Dialer).DialContext)
	client := &http.Client{Transport: transport}
	node, _, err := tunnel.Dial(t.Context(), client, srv.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	end = <-made
	came, done := make(chan net.Conn, 1), make(chan struct{})
	go func() {
		defer close(done)
		node.OpenLanes(client, srv.URL+tunnel.LanePath, func() http.Header { return tunnel.Hello{Name: "box", Version: "v1", Instance: "secret"}.Header() }, func(c net.Conn) { came <- c })
	}()
	t.Cleanup(func() { _ = end.Close(); _ = node.Close(); <-done })
	if down, err = end.Lane(t.Context()); err != nil {
		t.Fatal(err)
	}
	return end, node, down, <-came
}

// A lane carries bytes both ways, from a file and to a socket, keeps deadlines, and ends with the tunnel; with TLS
// and without.
func TestLane_Carries(t *testing.T) {
	for name, serve := range map[string]func(http.Handler) *httptest.Server{"plain": httptest.NewServer, "TLS": httptest.NewTLSServer} {
		t.Run(name, func(t *testing.T) {
			hub, node, down, up := lanePair(t, serve)
			if hub.Lanes() != 1 || node.Lanes() != 1 {
				t.Errorf("there are %d and %d lanes", hub.Lanes(), node.Lanes())
			}
			// What the hub says at once is not lost behind the answer to the node's request.
			if _, err := down.Write([]byte("question")); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, 8)
			if _, err := io.ReadFull(up, got); err != nil || string(got) != "question" {
				t.Fatalf("the node got %q: %v", got, err)
			}
			_ = up.SetReadDeadline(time.Unix(1, 0))
			if _, err := up.Read(got); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("a read behind its deadline: %v", err)
			}
			_ = up.SetReadDeadline(time.Time{})

			want := bytes.Repeat([]byte("0123456789"), 300_000)
			path := filepath.Join(t.TempDir(), "file")
			if err := os.WriteFile(path, want, 0o600); err != nil {
				t.Fatal(err)
			}
			sent := make(chan error, 1)
			go func() {
				f, err := os.Open(path)
				if err == nil {
					_, err = up.(io.ReaderFrom).ReadFrom(f)
					_ = f.Close()
				}
				sent <- err
			}()
			local, far := sockets(t)
			copied := make(chan error, 1)
			go func() {
				n, err := down.(interface {
					CopyTo(w io.Writer, n int64) (int64, error)
				}).CopyTo(far, int64(len(want)))
				if err == nil && n != int64(len(want)) {
					err = io.ErrShortWrite
				}
				copied <- err
			}()
			came := make([]byte, len(want))
			if _, err := io.ReadFull(local, came); err != nil || !bytes.Equal(came, want) {
				t.Errorf("what came is not what was sent: %v", err)
			}
			if err := errors.Join(<-sent, <-copied); err != nil {
				t.Error(err)
			}

			if _, err := down.Write([]byte("again")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(up, got[:5]); err != nil || string(got[:5]) != "again" {
				t.Errorf("the node got %q: %v", got[:5], err)
			}
			_ = hub.Close()
			if _, err := up.Read(got); err == nil {
				t.Error("the node reads from a lane whose tunnel has ended")
			}
			if _, err := down.Read(got); err == nil {
				t.Error("the hub reads from a lane whose tunnel has ended")
			}
			if hub.Lanes() != 0 {
				t.Errorf("there are %d lanes behind the end", hub.Lanes())
			}
		})
	}
}

// sockets returns both ends of a connection of the system.
func sockets(t *testing.T) (one, other net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if one, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if other, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = one.Close(); _ = other.Close() })
	return one, other
}
