package tunnel_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/coder/websocket"
	"github.com/libp2p/go-yamux/v5"

	"sandboxagent.dev/sandbox-agent/fleet/tunnel"
)

// end is one end of a tunnel, of this package or of the library that earlier versions used.
type end interface {
	Close() error
}

// quiet is the library's configuration without its log.
func quiet() *yamux.Config {
	c := yamux.DefaultConfig()
	c.LogOutput = io.Discard
	return c
}

// withYamux calls f with a hub's end and a node's, of which one is the library's.
func withYamux(t *testing.T, f func(t *testing.T, open func(context.Context) (net.Conn, error), accept func() (net.Conn, error), hub, node end)) {
	options := &websocket.AcceptOptions{Subprotocols: []string{tunnel.Subprotocol}}
	t.Run("the node is an earlier one", func(t *testing.T) {
		made := make(chan *tunnel.Tunnel, 1)
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			hub, err := tunnel.Accept(w, r)
			if err != nil {
				t.Error(err)
				return
			}
			made <- hub
			<-hub.Done()
		}))
		defer srv.Close()
		ws, _, err := websocket.Dial(t.Context(), srv.URL, &websocket.DialOptions{
			HTTPClient: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}, Subprotocols: []string{tunnel.Subprotocol},
		})
		if err != nil {
			t.Fatal(err)
		}
		ws.SetReadLimit(-1)
		node, err := yamux.Server(websocket.NetConn(context.Background(), ws, websocket.MessageBinary), quiet(), nil)
		if err != nil {
			t.Fatal(err)
		}
		hub := <-made
		defer hub.Close()
		defer node.Close()
		f(t, hub.Open, node.Accept, hub, node)
	})
	t.Run("the hub is an earlier one", func(t *testing.T) {
		made := make(chan *yamux.Session, 1)
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ws, err := websocket.Accept(w, r, options)
			if err != nil {
				t.Error(err)
				return
			}
			ws.SetReadLimit(-1)
			hub, err := yamux.Client(websocket.NetConn(context.Background(), ws, websocket.MessageBinary), quiet(), nil)
			if err != nil {
				t.Error(err)
				return
			}
			made <- hub
			<-hub.CloseChan()
		}))
		defer srv.Close()
		node, _, err := tunnel.Dial(t.Context(), &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: tunnel.Wire(new(net.Dialer).DialContext)}}, srv.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		hub := <-made
		defer node.Close()
		defer hub.Close()
		f(t, hub.Open, node.Accept, hub, node)
	})
}

// Hubs and nodes of earlier versions are understood: many streams at once, each of which ends one way and
// then the other.
func TestTunnel_WithEarlierVersions(t *testing.T) {
	withYamux(t, func(t *testing.T, open func(context.Context) (net.Conn, error), accept func() (net.Conn, error), _, _ end) {
		const many = 32
		go func() {
			for range many {
				c, err := accept()
				if err != nil {
					t.Error(err)
					return
				}
				go func() {
					all, err := io.ReadAll(c)
					if err != nil {
						t.Error(err)
					}
					_, _ = c.Write(all)
					_ = c.Close()
				}()
			}
		}()
		results := make(chan error, many)
		for i := range many {
			go func() {
				results <- func() error {
					want := bytes.Repeat([]byte{byte(i), 1, 2}, 50_000*(1+i%4)) // half of them more than a window
					c, err := open(context.Background())
					if err != nil {
						return err
					}
					defer c.Close()
					if _, err := c.Write(want); err != nil {
						return err
					}
					if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
						return err
					}
					got, err := io.ReadAll(c)
					if err == nil && !bytes.Equal(got, want) {
						err = fmt.Errorf("%d bytes came back of %d, or others", len(got), len(want))
					}
					return err
				}()
			}()
		}
		for range many {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
	})
}

// The end of a tunnel ends its streams, at both ends.
func TestTunnel_EndsWithEarlierVersions(t *testing.T) {
	for _, who := range []string{"the hub", "the node"} {
		t.Run(who+" ends it", func(t *testing.T) {
			withYamux(t, func(t *testing.T, open func(context.Context) (net.Conn, error), accept func() (net.Conn, error), hub, node end) {
				down, err := open(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if _, err := down.Write([]byte("hello")); err != nil {
					t.Fatal(err)
				}
				up, err := accept()
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.ReadFull(up, make([]byte, 5)); err != nil {
					t.Fatal(err)
				}
				if who == "the hub" {
					_ = hub.Close()
				} else {
					_ = node.Close()
				}
				for name, c := range map[string]net.Conn{"the hub's": down, "the node's": up} {
					if _, err := c.Read(make([]byte, 1)); err == nil || err == io.EOF {
						t.Errorf("%s stream ended as if all had come: %v", name, err)
					}
				}
				if _, err := accept(); err == nil {
					t.Error("a stream came through a tunnel that has ended")
				}
			})
		})
	}
}
