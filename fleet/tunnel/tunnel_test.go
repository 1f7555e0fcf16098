package tunnel_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"sandboxagent.dev/sandbox-agent/fleet/tunnel"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dialer opens the connection below a tunnel.
type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// pair returns both ends of a tunnel over a real socket.
func pair(t *testing.T) (hub, node *tunnel.Tunnel) {
	t.Helper()
	return pairOver(t, httptest.NewServer, new(net.Dialer).DialContext)
}

// pairOver is pair over what begins a server and what dials.
func pairOver(t *testing.T, serve func(http.Handler) *httptest.Server, dial dialer) (hub, node *tunnel.Tunnel) {
	t.Helper()
	made := make(chan *tunnel.Tunnel, 1)
	srv := serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		end, err := tunnel.Accept(w, r)
		if err != nil {
			t.Error(err)
			return
		}
		made <- end
		<-end.Done()
	}))
	t.Cleanup(srv.Close)
	transport := srv.Client().Transport.(*http.Transport).Clone()
	transport.DisableKeepAlives, transport.DialContext = true, tunnel.Wire(dial)
	node, _, err := tunnel.Dial(t.Context(), &http.Client{Transport: transport}, srv.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	hub = <-made
	t.Cleanup(func() { _ = hub.Close(); _ = node.Close() })
	return hub, node
}

func TestTunnel_ManyStreamsAtOnce(t *testing.T) {
	hub, node := pair(t)
	go func() {
		for {
			c, err := node.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	want := bytes.Repeat([]byte("0123456789"), 30_000) // more than a window
	results := make(chan error, 64)
	for range 64 {
		go func() {
			c, err := hub.Open(context.Background())
			if err != nil {
				results <- err
				return
			}
			defer c.Close()
			go func() { _, _ = c.Write(want) }()
			got := make([]byte, len(want))
			if _, err = io.ReadFull(c, got); err == nil && !bytes.Equal(got, want) {
				err = errors.New("other bytes came back")
			}
			results <- err
		}()
	}
	for range 64 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

// A stream that nobody reads holds what its window does, and holds up no other one.
func TestTunnel_UnreadStream(t *testing.T) {
	hub, node := pair(t)
	stuck, err := hub.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan int, 1)
	go func() {
		n := 0
		for b := make([]byte, 64<<10); ; n += len(b) {
			if _, err := stuck.Write(b); err != nil {
				written <- n
				return
			}
		}
	}()
	if _, err := node.Accept(); err != nil { // and does not read it
		t.Fatal(err)
	}
	for range 20 {
		c, err := hub.Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		other, err := node.Accept()
		if err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 5)
		if _, err := io.ReadFull(other, got); err != nil || string(got) != "hello" {
			t.Fatalf("%q, %v", got, err)
		}
		_ = c.Close()
		_ = other.Close()
	}
	_ = stuck.Close()
	_ = hub.Close()
	if n := <-written; n > tunnel.MaxWindow {
		t.Errorf("%d bytes were taken of a stream that nobody reads", n)
	}
}

func TestTunnel_Full(t *testing.T) {
	hub, node := pair(t)
	go func() {
		for {
			if _, err := node.Accept(); err != nil {
				return
			}
		}
	}()
	for range tunnel.MaxStreams {
		if _, err := hub.Open(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := hub.Open(t.Context()); !errors.Is(err, tunnel.ErrFull) {
		t.Errorf("one more: %v", err)
	}
	if n := hub.Streams(); n != tunnel.MaxStreams {
		t.Errorf("%d streams", n)
	}
}

// An end that is there and says nothing is noticed.
func TestTunnel_Silence(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 15 seconds")
	}
	t.Parallel()
	ended := make(chan time.Duration, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begun := time.Now()
		end, err := tunnel.Accept(w, r)
		if err != nil {
			t.Error(err)
			return
		}
		<-end.Done()
		ended <- time.Since(begun)
	}))
	defer srv.Close()
	ws, _, err := websocket.Dial(t.Context(), srv.URL, &websocket.DialOptions{HTTPClient: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ws.CloseNow() }()
	if d := <-ended; d < tunnel.Heartbeat || d > tunnel.Silence+2*tunnel.Heartbeat {
		t.Errorf("the tunnel ended after %v", d)
	}
}

// counted counts the writes of a connection.
type counted struct {
	net.Conn
	writes atomic.Int64
}

// Write implements net.Conn.
func (c *counted) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}

// A node's frames go to the system in large pieces, and not in those of a buffer of 4 KiB.
func TestTunnel_WritesInLargePieces(t *testing.T) {
	var below *counted
	hub, node := pairOver(t, httptest.NewServer, func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		below = &counted{Conn: c}
		return below, err
	})
	down, err := hub.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := down.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	up, err := node.Accept()
	if err != nil {
		t.Fatal(err)
	}
	const size = 16 << 20
	before := below.writes.Load()
	go func() {
		for range size >> 15 {
			if _, err := up.Write(make([]byte, 32<<10)); err != nil {
				t.Error(err)
				break
			}
		}
		_ = up.Close()
	}()
	if n, err := io.Copy(io.Discard, down); err != nil || n != size {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if n := below.writes.Load() - before; n > size>>14 {
		t.Errorf("%d bytes were written in %d pieces", size, n)
	}
}

// A slow network takes longer for what is written at once than the other end may take nothing.
func TestWire_Slow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below, far := net.Pipe()
		c, err := tunnel.Wire(func(context.Context, string, string) (net.Conn, error) { return below, nil })(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		want := bytes.Repeat([]byte("0123456789"), 10_000)
		got := make(chan []byte, 1)
		go func() {
			var all []byte
			for piece := make([]byte, 1000); ; time.Sleep(time.Second) { // of the bubble's clock
				n, err := far.Read(piece)
				if all = append(all, piece[:n]...); err != nil {
					got <- all
					return
				}
			}
		}()
		if n, err := c.Write(want); n != len(want) || err != nil {
			t.Errorf("%d bytes were written: %v", n, err)
		}
		_ = c.Close()
		if all := <-got; !bytes.Equal(all, want) {
			t.Errorf("%d bytes came, or others", len(all))
		}
		if _, err := c.Write(want); err == nil {
			t.Error("it was closed, and takes more")
		}
	})
}

// One that takes nothing is given up.
func TestWire_Stuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		below, far := net.Pipe()
		defer far.Close()
		c, err := tunnel.Wire(func(context.Context, string, string) (net.Conn, error) { return below, nil })(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if n, err := c.Write([]byte("hello")); n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%d bytes were written: %v", n, err)
		}
	})
}

// stuck is a connection of which, once it is told so, nothing is taken any more.
type stuck struct {
	net.Conn
	now    atomic.Bool
	waits  chan struct{} // closed when something waits to be written
	closed chan struct{}
	once   sync.Once
}

// Write implements net.Conn.
func (s *stuck) Write(p []byte) (int, error) {
	if s.now.Swap(false) {
		close(s.waits)
		<-s.closed
		return 0, net.ErrClosed
	}
	return s.Conn.Write(p)
}

// Close implements net.Conn.
func (s *stuck) Close() error {
	s.once.Do(func() { close(s.closed) })
	return s.Conn.Close()
}

// An end whose other end takes nothing is closed at once, also with TLS: that has a farewell, which
// would wait behind what is not taken.
func TestTunnel_CloseWhileStuck(t *testing.T) {
	below := &stuck{waits: make(chan struct{}), closed: make(chan struct{})}
	hub, node := pairOver(t, httptest.NewTLSServer, func(ctx context.Context, network, addr string) (_ net.Conn, err error) {
		below.Conn, err = new(net.Dialer).DialContext(ctx, network, addr)
		return below, err
	})
	t.Cleanup(func() { _ = below.Close() })
	if _, err := hub.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	up, err := node.Accept()
	if err != nil {
		t.Fatal(err)
	}
	below.now.Store(true)
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = up.Write([]byte("hello")) // it waits, or does if it is the first
	}()
	<-below.waits
	ended := make(chan error, 1)
	go func() { ended <- node.Close() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(10 * time.Second): // a bound: it would wait for ever
		t.Error("the end waits for the other one")
	}
	<-written // it ends, too
}
