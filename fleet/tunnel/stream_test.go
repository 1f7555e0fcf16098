package tunnel_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/fleet/tunnel"
)

// streamOf opens a stream, and returns both of its ends.
func streamOf(t *testing.T, hub, node *tunnel.Tunnel) (down, up net.Conn) {
	t.Helper()
	down, err := hub.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if up, err = node.Accept(); err != nil {
		t.Fatal(err)
	}
	return down, up
}

// A deadline ends a Read and a Write that wait, also when it is set while they do, and a later one lets
// them go on.
func TestStream_Deadlines(t *testing.T) {
	hub, node := pair(t)
	down, up := streamOf(t, hub, node)
	results := make(chan error)
	read := func() { _, err := down.Read(make([]byte, 1)); results <- err }
	write := func() { // more than the window, and nobody reads
		_, err := down.Write(make([]byte, tunnel.MaxWindow))
		results <- err
	}
	for name, do := range map[string]struct {
		wait func()
		set  func(time.Time) error
	}{"read": {read, down.SetReadDeadline}, "write": {write, down.SetWriteDeadline}} {
		for when, early := range map[string]bool{"before": true, "meanwhile": false} {
			if early {
				_ = do.set(time.Now().Add(20 * time.Millisecond))
				go do.wait()
			} else {
				_ = do.set(time.Time{})
				go do.wait()
				_ = do.set(time.Unix(1, 0))
			}
			err := <-results
			var timeout net.Error
			if !errors.Is(err, os.ErrDeadlineExceeded) || !errors.As(err, &timeout) || !timeout.Timeout() {
				t.Errorf("%s, with a deadline that was set %s: %v", name, when, err)
			}
		}
		_ = do.set(time.Time{})
	}
	go func() { _, _ = io.Copy(io.Discard, up) }() // what was written makes room
	if _, err := down.Write([]byte("goes on")); err != nil {
		t.Error(err)
	}
	if _, err := up.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := down.Read(make([]byte, 1)); err != nil {
		t.Error(err)
	}
}

// What was written before a stream is closed arrives, and a closed one takes and gives nothing.
func TestStream_Close(t *testing.T) {
	hub, node := pair(t)
	down, up := streamOf(t, hub, node)
	want := bytes.Repeat([]byte("0123456789"), 20_000)
	if _, err := up.Write(want); err != nil {
		t.Fatal(err)
	}
	_ = up.Close()
	if got, err := io.ReadAll(down); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes came, %v", len(got), err)
	}
	for name, c := range map[string]net.Conn{"closed here": up, "closed there, then here": down} {
		_ = c.Close()
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("read one that was %s: %v", name, err)
		}
		if _, err := c.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
			t.Errorf("write to one that was %s: %v", name, err)
		}
	}
	for name, end := range map[string]*tunnel.Tunnel{"hub": hub, "node": node} {
		for until := time.Now().Add(10 * time.Second); end.Streams() > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(until) {
				t.Fatalf("the %s still has %d streams", name, end.Streams())
			}
		}
	}
}

// An end that writes to a stream whose other end is closed gets an error, and does not wait for ever for somebody
// who reads. What it was sent before arrives.
func TestStream_WritesToNobody(t *testing.T) {
	for name, early := range map[string]bool{"the window was full before": true, "it writes on": false} {
		t.Run(name, func(t *testing.T) {
			hub, node := pair(t)
			down, up := streamOf(t, hub, node)
			if _, err := down.Write([]byte("the last word")); err != nil {
				t.Fatal(err)
			}
			failed := make(chan error)
			write := func() { _, err := up.Write(make([]byte, 2*tunnel.MaxWindow)); failed <- err }
			if early {
				go write()
				if _, err := io.ReadFull(down, make([]byte, 1)); err != nil {
					t.Fatal(err)
				}
			}
			_ = down.Close()
			if !early {
				go write()
			}
			if err := <-failed; err == nil {
				t.Error("it was written")
			}
			if got, err := io.ReadAll(up); string(got) != "the last word" || err != nil {
				t.Errorf("%q came, %v", got, err)
			}
		})
	}
}

// A Read or Write that waits ends when its own end closes the stream, or the tunnel ends.
func TestStream_EndsWhoWaits(t *testing.T) {
	for _, how := range []string{"stream", "tunnel"} {
		hub, node := pair(t)
		down, _ := streamOf(t, hub, node)
		results := make(chan error, 2)
		go func() { _, err := down.Read(make([]byte, 1)); results <- err }()
		go func() { _, err := down.Write(make([]byte, 2*tunnel.MaxWindow)); results <- err }()
		if how == "stream" {
			_ = down.Close()
		} else {
			_ = hub.Close()
		}
		for range 2 {
			if err := <-results; err == nil {
				t.Errorf("it was done after the %s had ended", how)
			}
		}
	}
}

// Streams that send much grow their windows together no more than the tunnel allows, and all arrives: what
// comes slowly, in pieces of all sizes, too.
func TestStream_AllSizes(t *testing.T) {
	hub, node := pair(t)
	down, up := streamOf(t, hub, node)
	var want bytes.Buffer
	for n := 1; n < 200_000; n = n*3/2 + 1 {
		want.Write(bytes.Repeat([]byte{byte(n)}, n))
	}
	all := want.Bytes()
	go func() {
		for n, rest := 1, all; len(rest) > 0; n = n*3/2 + 1 {
			k := min(n, len(rest))
			if _, err := up.Write(rest[:k]); err != nil {
				t.Error(err)
				return
			}
			rest = rest[k:]
		}
		_ = up.Close()
	}()
	var got bytes.Buffer
	for size := 1; ; size = size%70_000*2 + 1 {
		b := make([]byte, size)
		n, err := down.Read(b)
		got.Write(b[:n])
		if err != nil {
			if !errors.Is(err, io.EOF) {
				t.Error(err)
			}
			break
		}
	}
	if !bytes.Equal(got.Bytes(), all) {
		t.Errorf("%d bytes came of %d, or others", got.Len(), len(all))
	}
}

// slow is a connection that takes its time for each write.
type slow struct{ net.Conn }

// Write implements net.Conn.
func (s slow) Write(p []byte) (int, error) {
	time.Sleep(time.Millisecond) // so that what is written meanwhile has to wait
	return s.Conn.Write(p)
}

// While as much waits to be written as may, data still makes room for what follows it: streams that are
// full in both directions go on.
func TestStream_BothWaysOverASlowNetwork(t *testing.T) {
	hub, node := pairOver(t, httptest.NewServer, func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		return slow{c}, err
	})
	const piece = 2427 - 12 // of which, with their headers, exactly as many wait as may
	const many, size = 8, 800 * piece
	results := make(chan error, 2*many)
	for range many {
		down, up := streamOf(t, hub, node)
		for _, c := range []net.Conn{down, up} {
			go func() {
				var err error
				for n := 0; n < size && err == nil; n += piece {
					_, err = c.Write(make([]byte, piece))
				}
				results <- err
			}()
			go func() {
				_, err := io.CopyN(io.Discard, c, size)
				results <- err
			}()
		}
	}
	for range 4 * many {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}
