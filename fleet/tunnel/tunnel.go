package tunnel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/libp2p/go-yamux/v5"
)

// Subprotocol is the WebSocket subprotocol of a tunnel. Another version of the
// tunnel gets another name.
const Subprotocol = "tunnel.sandboxagent.dev"

const (
	// MaxStreams bounds the streams of a tunnel. More are refused to who opens them.
	MaxStreams = 256
	// Heartbeat is how often an end that hears nothing asks for an answer.
	Heartbeat = 5 * time.Second
	// Silence is how long an end may be silent until the tunnel ends.
	Silence = 15 * time.Second

	// MaxWindow bounds what is on its way in one direction of one stream.
	MaxWindow = 4 << 20
	// maxGrowth bounds the sum of what windows of one end grow beyond firstWindow.
	// At the bound windows stay as they are: streams are slower over far networks.
	maxGrowth   = 16 << 20
	firstWindow = 256 << 10
)

// ErrFull is returned by Open when the tunnel holds MaxStreams streams.
var ErrFull = errors.New("the tunnel has no room for another stream")

// Tunnel is one end of a tunnel. It is safe for concurrent use.
type Tunnel struct {
	session *yamux.Session
}

// hub returns the hub's end of a tunnel over ws, which the tunnel then owns.
func hub(ws *websocket.Conn, w *wire) (*Tunnel, error) { return open(newConn(ws, w), yamux.Client, 0) }

// Node returns the node's end of a tunnel over ws, which the tunnel then owns. [Dial] opens one
// that writes in larger pieces.
func Node(ws *websocket.Conn) (*Tunnel, error) { return node(ws, nil) }

func node(ws *websocket.Conn, w *wire) (*Tunnel, error) {
	return open(newConn(ws, w), yamux.Server, MaxStreams)
}

type begin func(net.Conn, *yamux.Config, func() (yamux.MemoryManager, error)) (*yamux.Session, error)

func open(below *conn, side begin, incoming uint32) (*Tunnel, error) {
	c := yamux.DefaultConfig()
	c.AcceptBacklog = MaxStreams
	c.MaxIncomingStreams = incoming
	c.KeepAliveInterval = Heartbeat
	c.ConnectionWriteTimeout = writeBound // how long an answer may take
	c.ReadBufSize = 0                     // the connection has one while something comes
	c.InitialStreamWindowSize, c.MaxStreamWindowSize = firstWindow, MaxWindow
	c.LogOutput = io.Discard // its errors come with Err
	growth := &budget{left: maxGrowth}
	s, err := side(below, c, func() (yamux.MemoryManager, error) { return &span{from: growth}, nil })
	if err != nil {
		_ = below.Close()
		return nil, fmt.Errorf("begin tunnel: %w", err)
	}
	return &Tunnel{s}, nil
}

// Open opens a stream to the node.
func (t *Tunnel) Open(ctx context.Context) (net.Conn, error) {
	if t.session.NumStreams() >= MaxStreams {
		return nil, ErrFull
	}
	s, err := t.session.OpenStream(ctx)
	if err != nil {
		return nil, fmt.Errorf("open stream: %w", err)
	}
	return s, nil
}

// Accept returns the next stream that the hub has opened. It fails when the tunnel
// has ended.
func (t *Tunnel) Accept() (net.Conn, error) {
	s, err := t.session.AcceptStream()
	if err != nil {
		return nil, fmt.Errorf("accept stream: %w", err)
	}
	return s, nil
}

// Streams returns how many streams are open.
func (t *Tunnel) Streams() int { return t.session.NumStreams() }

// Done is closed when the tunnel has ended.
func (t *Tunnel) Done() <-chan struct{} { return t.session.CloseChan() }

// Close ends the tunnel and all its streams. It may be called more than once.
func (t *Tunnel) Close() error {
	if err := t.session.Close(); err != nil {
		return fmt.Errorf("close tunnel: %w", err)
	}
	return nil
}

// budget is what the windows of one end may still grow, in bytes.
type budget struct {
	mu   sync.Mutex
	left int
}

// span is what one stream has of a budget. Its first window is not counted: the
// number of streams bounds those.
type span struct {
	from *budget

	mu    sync.Mutex
	taken int
}

const growthPriority = 128 // at which yamux asks for more than the first window

// errNoGrowth keeps a window as it is.
var errNoGrowth = errors.New("the windows of this tunnel may not grow further")

// ReserveMemory implements yamux.MemoryManager.
func (s *span) ReserveMemory(size int, priority uint8) error {
	if priority > growthPriority {
		return nil
	}
	s.from.mu.Lock()
	defer s.from.mu.Unlock()
	if s.from.left < size {
		return errNoGrowth
	}
	s.from.left -= size
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken += size
	return nil
}

// ReleaseMemory implements yamux.MemoryManager. Windows do not shrink.
func (s *span) ReleaseMemory(int) {}

// Done implements yamux.MemoryManager.
func (s *span) Done() {
	s.from.mu.Lock()
	defer s.from.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.from.left += s.taken
	s.taken = 0
}
