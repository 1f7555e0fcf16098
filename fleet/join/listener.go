package join

import (
	"context"
	"io"
	"net"
	"sync"

	"sandboxagent.dev/sandbox-agent/internal/socket"
)

// stream is a connection that came through a tunnel.
type stream struct{ net.Conn }

// CloseWrite says that no more is written, where the HTTP server wants to say so.
func (s *stream) CloseWrite() error {
	if half, ok := s.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// ReadFrom implements [io.ReaderFrom], as the stream does.
func (s *stream) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(s.Conn, r)
}

// RoomFor implements [socket.Roomy], as the stream does.
func (s *stream) RoomFor(n int) bool {
	by, ok := s.Conn.(socket.Roomy)
	return ok && by.RoomFor(n)
}

// listener hands streams to an HTTP server. It has no queue: those that nobody
// accepts yet wait in the tunnel, which bounds them.
type listener struct {
	streams chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

var _ net.Listener = (*listener)(nil)

func newListener() *listener {
	return &listener{streams: make(chan net.Conn), closed: make(chan struct{})}
}

// give hands over a stream; false when nobody will take it.
func (l *listener) give(ctx context.Context, c net.Conn) bool {
	select {
	case l.streams <- &stream{c}:
		return true
	case <-l.closed:
	case <-ctx.Done():
	}
	return false
}

// Accept implements net.Listener.
func (l *listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.streams:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener. It may be called more than once.
func (l *listener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *listener) Addr() net.Addr { return address{} }

// address is that of connections that come through a tunnel.
type address struct{}

// Network implements net.Addr.
func (address) Network() string { return "tunnel" }

// String implements net.Addr.
func (address) String() string { return "tunnel" }
