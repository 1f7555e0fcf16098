package fleet_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"sandboxagent.dev/sandbox-agent/fleet"
	"sandboxagent.dev/sandbox-agent/fleet/tunnel"
)

// accepting is a node's end of a tunnel as a listener.
type accepting struct{ *tunnel.Tunnel }

func (accepting) Addr() net.Addr { return &net.TCPAddr{} }

// frame is one of yamux, which the hub speaks within the WebSocket.
func frame(kind, flags uint16, id, length uint32) []byte {
	b := []byte{0, byte(kind), 0, 0}
	binary.BigEndian.PutUint16(b[2:], flags)
	b = binary.BigEndian.AppendUint32(b, id)
	return binary.BigEndian.AppendUint32(b, length)
}

const (
	data, window, ping, goAway = 0, 1, 2, 3
	syn                        = 1
)

// What a node does to its tunnel ends that tunnel at most. The hub and another node
// work on, and the memory of the hub does not grow with what it sends.
func TestHostile_HurtsItselfOnly(t *testing.T) {
	h := startHub(t)
	h.join("good", h.joinToken(), nil, echo)
	token := h.joinToken()
	zeros := make([]byte, 1<<20)
	const much = 16 // of them
	tests := []struct {
		name string
		do   func(ws *websocket.Conn) error
		ends bool
	}{
		{"no yamux", func(ws *websocket.Conn) error {
			return ws.Write(t.Context(), websocket.MessageBinary, []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"))
		}, true},
		{"text", func(ws *websocket.Conn) error {
			return ws.Write(t.Context(), websocket.MessageText, frame(ping, syn, 0, 1))
		}, true},
		{"a frame of 4 GiB for a stream that is not there", func(ws *websocket.Conn) error {
			if err := ws.Write(t.Context(), websocket.MessageBinary, frame(data, 0, 77, 1<<32-1)); err != nil {
				return err
			}
			for range much { // and a part of it
				if err := ws.Write(t.Context(), websocket.MessageBinary, zeros); err != nil {
					return err
				}
			}
			return nil
		}, false},
		{"streams of its own, with data", func(ws *websocket.Conn) error {
			for id := uint32(2); id < 2000; id += 2 {
				b := append(frame(data, syn, id, 1<<10), zeros[:1<<10]...)
				if err := ws.Write(t.Context(), websocket.MessageBinary, b); err != nil {
					return err
				}
			}
			return nil
		}, false},
		{"a stream of the hub's", func(ws *websocket.Conn) error {
			return ws.Write(t.Context(), websocket.MessageBinary, frame(window, syn, 1, 0))
		}, true},
		{"answers to nothing", func(ws *websocket.Conn) error {
			return ws.Write(t.Context(), websocket.MessageBinary, bytes.Repeat(frame(ping, 2, 0, 9), 10000))
		}, false},
		{"a kind of frame that there is not", func(ws *websocket.Conn) error {
			return ws.Write(t.Context(), websocket.MessageBinary, frame(9, 0, 0, 0))
		}, true},
		{"farewell", func(ws *websocket.Conn) error {
			return ws.Write(t.Context(), websocket.MessageBinary, frame(goAway, 0, 0, 2))
		}, true},
		{"a message without an end", func(ws *websocket.Conn) error {
			w, err := ws.Writer(t.Context(), websocket.MessageBinary)
			if err != nil {
				return err
			}
			for range much {
				if _, err := w.Write(append(frame(data, 0, 77, uint32(len(zeros))), zeros...)); err != nil {
					return err
				}
			}
			return nil
		}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ws, _, problem := h.knock(token, hello("bad", nil))
			if ws == nil {
				t.Fatal(problem)
			}
			h.awaitState("bad", fleet.StateOnline)
			before := heap()
			if err := tt.do(ws); err != nil {
				t.Logf("the hub cut it off: %v", err) // as it may
			}
			if tt.ends {
				h.awaitState("bad", fleet.StateOffline)
			}
			if status, body := h.ask(http.MethodPost, "/nodes/good/x", adminToken, "still here"); status != http.StatusOK || string(body) != `"still here"` {
				t.Errorf("the other node: %d %s", status, body)
			}
			if grown := heap() - before; grown > much/2<<20 {
				t.Errorf("the memory grew by %d bytes", grown)
			}
			_ = ws.CloseNow()
			h.awaitState("bad", fleet.StateOffline)
		})
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A node that sends more than the window of a stream has its tunnel ended.
func TestHostile_MoreThanTheWindow(t *testing.T) {
	h := startHub(t)
	ws, _, problem := h.knock(h.joinToken(), hello("bad", nil))
	if ws == nil {
		t.Fatal(problem)
	}
	h.awaitState("bad", fleet.StateOnline)
	conn := websocket.NetConn(t.Context(), ws, websocket.MessageBinary)
	done := make(chan string, 1)
	go func() {
		status, body := h.ask(http.MethodGet, "/nodes/bad/x", adminToken, nil)
		done <- http.StatusText(status) + " " + kindOf(body)
	}()
	// The hub opens stream 1; its answer is a frame that is larger than may be.
	head := make([]byte, 12)
	for {
		if _, err := io.ReadFull(conn, head); err != nil {
			t.Fatal(err)
		}
		if head[1] == data {
			break
		}
		if head[1] == ping && binary.BigEndian.Uint16(head[2:]) == syn { // it measures the way
			if _, err := conn.Write(frame(ping, 2, 0, binary.BigEndian.Uint32(head[8:]))); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := conn.Write(frame(data, 2, 1, 1<<30)); err != nil && !errors.Is(err, net.ErrClosed) {
		t.Fatal(err)
	}
	if got := <-done; got != "Service Unavailable node_offline" {
		t.Errorf("the client was answered %s", got)
	}
	h.awaitState("bad", fleet.StateOffline)
}

// A node that reads nothing of an upload holds up that upload, and no other request
// to itself.
func TestHostile_ReadsNothing(t *testing.T) {
	h := startHub(t)
	over := make(chan struct{})
	defer close(over)
	h.join("box", h.joinToken(), nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			<-over
			return
		}
		b, err := io.ReadAll(r.Body)
		if err == nil {
			_, _ = w.Write(b)
		}
	}))
	upload, cancel := io.Pipe()
	defer cancel.Close()
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, h.url+"/nodes/box/v2/fs/file", upload)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	ended := make(chan error, 1)
	go func() {
		resp, err := plain.RoundTrip(req)
		if err == nil {
			resp.Body.Close()
		}
		ended <- err
	}()
	sent := make(chan int, 1)
	go func() {
		n := 0
		for b := make([]byte, 64<<10); n < 256<<20; n += len(b) {
			if _, err := cancel.Write(b); err != nil {
				break
			}
		}
		sent <- n
	}()
	before := heap()
	for range 50 {
		if status, body := h.ask(http.MethodPost, "/nodes/box/x", adminToken, strings.Repeat("y", 100<<10)); status != http.StatusOK || len(body) < 100<<10 {
			t.Fatalf("beside an upload that nobody reads: %d, %d bytes", status, len(body))
		}
	}
	if grown := heap() - before; grown > 64<<20 {
		t.Errorf("the memory grew by %d bytes", grown)
	}
	giveUp()
	_ = upload.CloseWithError(context.Canceled)
	if n := <-sent; n >= 256<<20 {
		t.Error("the hub took an upload of 256 MiB that nobody read")
	}
	<-ended
}

// Headers without an end are not kept, and the node's other answers arrive.
func TestHostile_HugeHeaders(t *testing.T) {
	h := startHub(t)
	h.join("box", h.joinToken(), nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/huge" {
			w.Header().Set("Etag", strings.Repeat("x", 1<<20))
		}
	}))
	if status, body := h.ask(http.MethodGet, "/nodes/box/huge", adminToken, nil); status != http.StatusServiceUnavailable || kindOf(body) != "node_offline" {
		t.Errorf("%d %s", status, body)
	}
	if status, body := h.ask(http.MethodGet, "/nodes/box/x", adminToken, nil); status != http.StatusOK {
		t.Errorf("afterwards: %d %s", status, body)
	}
}
