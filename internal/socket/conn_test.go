package socket

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"
)

// pair returns both ends of a connection.
func pair(tb testing.TB) (own *Conn, other *net.TCPConn) {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	defer ln.Close()
	dialed, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = dialed.Close() })
	accepted, err := ln.Accept()
	if err != nil {
		tb.Fatal(err)
	}
	if own, err = New(accepted.(*net.TCPConn)); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = own.Close() })
	return own, dialed.(*net.TCPConn)
}

// some returns bytes that are like no others.
func some(n int) []byte {
	b := make([]byte, n)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(b)
	return b
}

func TestConn_LargeBothWays(t *testing.T) {
	own, other := pair(t)
	want := some(5 << 20) // more than buffers of the system take: both sides wait
	var wg sync.WaitGroup
	wg.Go(func() {
		n, err := own.Write(want)
		if n != len(want) || err != nil {
			t.Errorf("Write = %d, %v", n, err)
		}
		_ = own.CloseWrite()
	})
	wg.Go(func() {
		_, _ = other.Write(want)
		_ = other.CloseWrite()
	})
	wg.Go(func() {
		if got, err := io.ReadAll(other); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d bytes came, %v", len(got), err)
		}
	})
	if got, err := io.ReadAll(struct{ io.Reader }{own}); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes came, %v", len(got), err)
	}
	wg.Wait()
}

// What is written at one time by several goroutines stays together.
func TestConn_WritesAreWhole(t *testing.T) {
	own, other := pair(t)
	const writers, size = 4, 700 << 10 // more than one system call moves
	var wg sync.WaitGroup
	for i := range writers {
		wg.Go(func() {
			if _, err := own.Write(bytes.Repeat([]byte{byte('a' + i)}, size)); err != nil {
				t.Error(err)
			}
		})
	}
	got := make([]byte, writers*size)
	if _, err := io.ReadFull(other, got); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	for i := range writers {
		if part := got[i*size : (i+1)*size]; !bytes.Equal(part, bytes.Repeat(part[:1], size)) {
			t.Errorf("part %d is of several writes", i)
		}
	}
}

func TestConn_Copies(t *testing.T) {
	want := some(1 << 20)
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, want, 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for name, from := range map[string]io.Reader{
		"memory": struct{ io.Reader }{bytes.NewReader(want)}, "writer": bytes.NewReader(want), "file": file,
	} {
		t.Run(name, func(t *testing.T) {
			own, other := pair(t)
			back, into := pair(t)
			var wg sync.WaitGroup
			wg.Go(func() { // what comes out of the one connection goes through the other
				_, _ = io.Copy(into, other)
				_ = into.CloseWrite()
			})
			wg.Go(func() {
				if n, err := io.Copy(own, from); n != int64(len(want)) || err != nil {
					t.Errorf("Copy = %d, %v", n, err)
				}
				_ = own.CloseWrite()
			})
			var got bytes.Buffer
			if _, err := io.Copy(&got, back); err != nil || !bytes.Equal(got.Bytes(), want) {
				t.Errorf("%d bytes came, %v", got.Len(), err)
			}
			wg.Wait()
		})
	}
}

func TestConn_Errors(t *testing.T) {
	for name, tt := range map[string]struct {
		meanwhile func(own *Conn, other *net.TCPConn)
		want      error
	}{
		"the other end is done": {func(_ *Conn, other *net.TCPConn) { _ = other.Close() }, io.EOF},
		"the other end resets": {func(_ *Conn, other *net.TCPConn) {
			_ = other.SetLinger(0)
			_ = other.Close()
		}, syscall.ECONNRESET},
		"deadline":  {func(own *Conn, _ *net.TCPConn) { _ = own.SetReadDeadline(time.Now()) }, os.ErrDeadlineExceeded},
		"own close": {func(own *Conn, _ *net.TCPConn) { _ = own.Close() }, net.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			own, other := pair(t)
			failed := make(chan error)
			go func() {
				_, err := own.Read(make([]byte, 1))
				failed <- err
			}()
			tt.meanwhile(own, other)
			err := <-failed
			if !errors.Is(err, tt.want) {
				t.Errorf("Read = %v, want %v", err, tt.want)
			}
			if e := new(net.OpError); !errors.Is(err, io.EOF) && (!errors.As(err, &e) || e.Op != "read") {
				t.Errorf("%#v is not the error of a read", err)
			}
		})
	}
}

func TestConn_WriteFails(t *testing.T) {
	own, other := pair(t)
	b := make([]byte, 64<<20)
	type result struct {
		n   int
		err error
	}
	wrote := make(chan result)
	go func() {
		n, err := own.Write(b) // nobody reads it to its end
		wrote <- result{n, err}
	}()
	if _, err := io.ReadFull(other, make([]byte, 1)); err != nil { // some of it was written
		t.Fatal(err)
	}
	if err := own.SetWriteDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if got := <-wrote; got.n == 0 || got.n == len(b) || !errors.Is(got.err, os.ErrDeadlineExceeded) {
		t.Errorf("Write = %d, %v", got.n, got.err)
	}
	_ = own.Close()
	if _, err := own.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Write = %v after Close", err)
	}
}

// A plain one is a TCPConn.
func TestConn_Plain(t *testing.T) {
	own, other := pair(t)
	into, back := pair(t)
	plain := Plain(own.TCPConn)
	var wg sync.WaitGroup
	wg.Go(func() {
		if n, err := io.Copy(Plain(into.TCPConn), plain); n != 10 || err != nil {
			t.Errorf("Copy = %d, %v", n, err)
		}
		_ = into.CloseWrite()
	})
	if _, err := other.Write([]byte("0123456789")); err != nil {
		t.Fatal(err)
	}
	_ = other.CloseWrite()
	if got, err := io.ReadAll(Plain(back)); string(got) != "0123456789" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	wg.Wait()
	if n, err := plain.Write([]byte("answer")); n != 6 || err != nil {
		t.Errorf("Write = %d, %v", n, err)
	}
}

func TestConn_DoesNotAllocate(t *testing.T) {
	own, other := pair(t)
	b := make([]byte, 10)
	got := testing.AllocsPerRun(100, func() {
		_, _ = own.Write(b)
		_, _ = io.ReadFull(other, b)
		_, _ = other.Write(b)
		_, _ = own.Read(b)
	})
	if got > 0 {
		t.Errorf("%v allocations", got)
	}
}
