package acphttp

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
)

// closedStream tells when it was closed, and panics when it is polled after spoil.
type closedStream struct {
	*fakeStream
	closed chan struct{}
	spoilt bool
}

func (s *closedStream) Close() { close(s.closed) }

func (s *closedStream) Poll(n int) ([]acp.Event, error) {
	if s.spoilt {
		panic("spoilt")
	}
	return s.fakeStream.Poll(n)
}

// streamClient is a client with a stream that tells when it was closed.
type streamClient struct {
	*fakeClient
	st *closedStream
}

func (c *streamClient) Stream(string, *uint64) (acp.Stream, error) { return c.st, nil }

// An event stream has its connection for itself: what the client goes on to send there changes
// nothing, that it leaves is noticed at once, and what goes wrong ends that stream alone.
func TestEvents_OwnTheirConnection(t *testing.T) {
	for name, end := range map[string]func(conn *net.TCPConn, c *streamClient) error{
		"the client sends too much": func(conn *net.TCPConn, _ *streamClient) error {
			_, err := conn.Write(make([]byte, ignored))
			return err
		},
		"the client leaves":       func(conn *net.TCPConn, _ *streamClient) error { return conn.Close() },
		"it will send no more":    func(conn *net.TCPConn, _ *streamClient) error { return conn.CloseWrite() },
		"the stream ends":         func(_ *net.TCPConn, c *streamClient) error { close(c.st.done); return nil },
		"something goes wrong":    func(_ *net.TCPConn, c *streamClient) error { c.st.spoilt = true; c.st.put([]byte(`{}`)); return nil },
		"the connection is reset": func(conn *net.TCPConn, _ *streamClient) error { _ = conn.SetLinger(0); return conn.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			c := &streamClient{newFakeClient(), nil}
			c.st = &closedStream{c.stream, make(chan struct{}), false}
			h := New(fakeGateway{c.fakeClient}, Options{})
			srv := httptest.NewServer(h)
			defer func() {
				if err := h.Shutdown(t.Context()); err != nil {
					t.Error(err)
				}
				srv.Close()
			}()
			init := request(t, http.MethodPost, srv.URL, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`)
			h.mu.Lock()
			h.conns[c.id].client = c
			h.mu.Unlock()
			conn, err := net.Dial("tcp", srv.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_, err = fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: gateway\r\nAccept: text/event-stream\r\n%s: %s\r\n\r\n", HeaderConnection, init.Header.Get(HeaderConnection))
			if err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewReader(conn)
			read := func(want string) {
				t.Helper()
				for {
					line, err := lines.ReadString('\n')
					if err != nil {
						t.Fatalf("no %q comes: %v", want, err)
					}
					if strings.TrimSpace(line) == want {
						return
					}
				}
			}
			read("HTTP/1.1 200 OK")
			if _, err := conn.Write([]byte(strings.Repeat("GET / HTTP/1.1\r\n\r\n", ignored/36))); err != nil {
				t.Fatal(err)
			}
			c.st.put([]byte(`{"n":1}`))
			read(`data: {"n":1}`)
			if err := end(conn.(*net.TCPConn), c); err != nil {
				t.Fatal(err)
			}
			receive(t, c.st.closed)
		})
	}
}
