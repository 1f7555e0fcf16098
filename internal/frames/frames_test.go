package frames

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"go.uber.org/goleak"

	"sandboxagent.dev/sandbox-agent/internal/deadline"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answer is that of a request whose connection is in this program, so that its time is the test's.
type answer struct {
	*httptest.ResponseRecorder
	conn net.Conn
}

func (a answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return a.conn, bufio.NewReadWriter(bufio.NewReader(a.conn), bufio.NewWriter(a.conn)), nil
}

// opened returns a WebSocket that the library reads until the test ends, and its client's end.
func opened(t *testing.T, within time.Duration) (*Conn, net.Conn) {
	near, far := net.Pipe()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	for name, value := range map[string]string{"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA=="} {
		r.Header.Set(name, value)
	}
	h := &Hijacker{ResponseWriter: answer{httptest.NewRecorder(), far}, Within: within}
	ws, err := websocket.Accept(h, r, nil)
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _, _ = ws.Read(t.Context()) // until it is closed
	}()
	t.Cleanup(func() {
		_ = ws.CloseNow()
		<-read
		h.Conn.Wait()
		_ = near.Close()
	})
	return h.Conn, near
}

// asked is a ping as clients send it.
func asked(text string) []byte {
	return append([]byte{ping, 0x80 | byte(len(text)), 0, 0, 0, 0}, text...)
}

// A client may ask whether the other is there while it takes nothing, and as often as it likes. It is answered in its turn.
func TestConn_PingsBehindALongFrame(t *testing.T) {
	const within = time.Minute
	for name, row := range map[string]struct {
		pause time.Duration
		err   error
	}{
		"it reads on":         {within * 9 / 10, nil},
		"it does not read on": {2 * within, os.ErrDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn, client := opened(t, within)
				want := AppendHeader(nil, Binary, pieceBytes)
				want = append(want, bytes.Repeat([]byte("x"), pieceBytes)...)
				sent := make(chan error, 1)
				go func() { sent <- conn.Send(nil, want) }()
				synctest.Wait()
				for _, text := range []string{"a", "b", "c"} {
					if _, err := client.Write(asked(text)); err != nil {
						t.Fatal(err)
					}
				}
				time.Sleep(row.pause)
				want = append(want, pong, 1, 'c')
				got := make([]byte, len(want))
				_, err := io.ReadFull(client, got)
				if (err == nil) != (row.err == nil) || err == nil && !bytes.Equal(got, want) {
					t.Errorf("it reads, with %v, what ends with %x", err, got[len(got)-10:])
				}
				if err := <-sent; !errors.Is(err, row.err) {
					t.Errorf("the frame: %v", err)
				}
			})
		})
	}
}

// A client is not held to be gone while what it has sent waits to be taken.
func TestConn_PingUnread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		conn := &Conn{Conn: far, turn: make(chan struct{}, 1), takes: deadline.New(time.Minute, far.SetWriteDeadline)}
		go func() { _, _ = io.Copy(io.Discard, near) }()
		for range 3 * unheardOf {
			if !conn.Ping() {
				t.Fatal("it is gone")
			}
		}
	})
}

// Whoever gives no sign of life to some pings is gone. Whatever it sends is one.
func TestConn_Ping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, client := opened(t, time.Minute)
		go func() { _, _ = io.Copy(io.Discard, client) }()
		for round := range 3 {
			for range unheardOf {
				if !conn.Ping() {
					t.Fatalf("round %d: it is gone", round)
				}
			}
			if _, err := client.Write(asked("")); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		for range unheardOf + 1 {
			if !conn.Ping() {
				t.Fatal("it is gone too early")
			}
		}
		if conn.Ping() {
			t.Error("it is there without a sign of life")
		}
	})
}

// Nothing follows a goodbye, whoever says it: a browser does not tell its page why the connection ended if something does.
func TestConn_NothingFollowsAGoodbye(t *testing.T) {
	for name, leave := range map[string]func(*Conn) error{
		"the library's": func(c *Conn) error {
			_, err := c.Write([]byte{goodbye, 0})
			return err
		},
		"of one that is dropped": func(c *Conn) error {
			c.Drop(1013, "")
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn, client := opened(t, time.Minute)
				got := make(chan []byte, 1)
				go func() {
					b, _ := io.ReadAll(client)
					got <- b
				}()
				if err := leave(conn); err != nil {
					t.Fatal(err)
				}
				if err := conn.Send(nil, []byte{Text, 1, 'x'}); !errors.Is(err, net.ErrClosed) {
					t.Errorf("a frame: %v", err)
				}
				conn.Ping()
				_, _ = conn.Write([]byte{pong, 0})
				_, _ = conn.Write([]byte{goodbye, 0})
				conn.Drop(1013, "too slow")
				synctest.Wait()
				_ = conn.Close()
				if b := <-got; len(b) < 2 || b[0] != goodbye || len(b) != 2+int(b[1]) {
					t.Errorf("it reads % x", b)
				}
			})
		})
	}
}

// The library's goodbye has a time of its own: that of what was sent before may have passed long ago.
func TestConn_GoodbyeLongAfter(t *testing.T) {
	const within = time.Minute
	for name, silence := range map[string]time.Duration{"at once": 0, "nearly": within - 1, "passed": within + time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn, client := opened(t, within)
				got := make(chan []byte, 1)
				go func() {
					b := make([]byte, 3)
					_, _ = io.ReadFull(client, b)
					time.Sleep(silence + 2) // of the test's own clock; it takes the goodbye a moment after it was said
					b, _ = io.ReadAll(client)
					got <- b
				}()
				if err := conn.Send(nil, []byte{Text, 1, 'x'}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(silence) // as above
				if _, err := conn.Write([]byte{goodbye, 2, 0x3, 0xe8}); err != nil {
					t.Error(err)
				}
				_ = conn.Close()
				if b := <-got; !bytes.Equal(b, []byte{goodbye, 2, 0x3, 0xe8}) {
					t.Errorf("it reads % x", b)
				}
			})
		})
	}
}
