package tunnel

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"
)

const (
	// mostPending bounds the bytes of frames that wait for the message before them to be written. At
	// the bound whoever writes waits.
	mostPending = 128 << 10
	// readAhead is what is read of a message at once.
	readAhead = 32 << 10
	// writeBound is how long the other end may take nothing until the tunnel ends.
	writeBound = Silence - Heartbeat

	hijackedRead  = 2 << 10 // bytes of the hub's buffers for a WebSocket, of which each node has one
	hijackedWrite = 512
)

// conn is a WebSocket as a byte stream. Frames that are written while a message is on its way go
// into the next one together, and nothing waits for more to come. While nothing is read or written
// it has no buffers. It ends without a farewell, which one that is gone would not answer.
//
// Read and Write may be called by one goroutine each, Close by any.
type conn struct {
	ws   *websocket.Conn
	wire *wire // nil if it is not known: then the library writes in pieces of its own

	// Of the goroutine that reads.
	message io.Reader // that is being read, nil for none
	buffer  *[]byte   // nil when all of it was read
	got     []byte    // of it, and not read yet

	writer sync.WaitGroup // flush; while there is something to write

	mu      sync.Mutex
	room    sync.Cond // that pending has become less, or err is there
	pending *[]byte   // frames for the next message, nil for none
	writing bool      // flush runs
	err     error     // why nothing more is written
}

var _ net.Conn = (*conn)(nil)

func newConn(ws *websocket.Conn, w *wire) *conn {
	ws.SetReadLimit(-1) // yamux bounds its frames
	c := &conn{ws: ws, wire: w}
	c.room.L = &c.mu
	return c
}

var (
	readBuffers  = sync.Pool{New: func() any { b := make([]byte, readAhead); return &b }}
	writeBuffers = sync.Pool{New: func() any { b := make([]byte, 0, mostPending); return &b }}
)

var errText = errors.New("a message of the tunnel is text")

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	for len(c.got) == 0 {
		if c.message == nil {
			if c.buffer != nil {
				readBuffers.Put(c.buffer)
				c.buffer = nil
			}
			kind, r, err := c.ws.Reader(context.Background())
			if err != nil {
				return 0, err
			}
			if kind != websocket.MessageBinary {
				return 0, errText
			}
			c.message = r
		}
		if len(p) >= readAhead {
			n, err := c.some(p)
			if n > 0 || err != nil {
				return n, err
			}
			continue
		}
		if c.buffer == nil {
			c.buffer = readBuffers.Get().(*[]byte)
		}
		n, err := c.some(*c.buffer)
		if err != nil {
			return 0, err
		}
		c.got = (*c.buffer)[:n]
	}
	n := copy(p, c.got)
	c.got = c.got[n:]
	return n, nil
}

// some reads some of the message, and notes its end.
func (c *conn) some(p []byte) (int, error) {
	n, err := c.message.Read(p)
	if errors.Is(err, io.EOF) {
		c.message, err = nil, nil
	}
	return n, err
}

// Write implements net.Conn. It keeps a copy of p and returns before that is written.
func (c *conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.err == nil && c.pending != nil && len(*c.pending)+len(p) > mostPending {
		c.room.Wait()
	}
	if c.err != nil {
		return 0, c.err
	}
	if c.pending == nil {
		c.pending = writeBuffers.Get().(*[]byte)
	}
	*c.pending = append(*c.pending, p...)
	if !c.writing {
		c.writing = true
		c.writer.Go(c.flush)
	}
	return len(p), nil
}

// flush writes what is pending until there is nothing.
func (c *conn) flush() {
	c.mu.Lock()
	for c.err == nil && c.pending != nil {
		message := c.pending
		c.pending = nil
		c.room.Signal()
		c.mu.Unlock()
		err := c.send(*message)
		if cap(*message) <= mostPending {
			*message = (*message)[:0]
			writeBuffers.Put(message)
		}
		if err != nil {
			_ = c.cut() // so that reading ends, too
		}
		c.mu.Lock()
		if err != nil && c.err == nil {
			c.err = err
		}
	}
	c.writing = false
	c.room.Signal()
	c.mu.Unlock()
}

// send writes one message, in the time that the other end has for it.
func (c *conn) send(message []byte) error {
	if c.wire == nil {
		ctx, cancel := context.WithTimeout(context.Background(), writeBound)
		defer cancel()
		return c.ws.Write(ctx, websocket.MessageBinary, message)
	}
	c.wire.gather()
	err := c.ws.Write(context.Background(), websocket.MessageBinary, message)
	return errors.Join(err, c.wire.release())
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.mu.Lock()
	if c.err == nil {
		c.err = net.ErrClosed
	}
	c.room.Signal()
	c.mu.Unlock()
	err := c.cut()
	c.writer.Wait()
	return err
}

// cut ends the connection. What is below goes first: TLS would say that it ends, and wait with that
// behind a message of which the other end takes nothing.
func (c *conn) cut() error {
	if c.wire != nil {
		_ = c.wire.Close() // what is above it says the error
	}
	return c.ws.CloseNow()
}

// SetDeadline implements net.Conn, as those below do. Each message has a time of its own, and
// heartbeats end a tunnel of which nothing is read.
func (c *conn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(time.Time) error { return nil }

// LocalAddr implements net.Conn.
func (c *conn) LocalAddr() net.Addr { return address{} }

// RemoteAddr implements net.Conn.
func (c *conn) RemoteAddr() net.Addr { return address{} }

// address is that of both ends of a tunnel's streams.
type address struct{}

// Network implements net.Addr.
func (address) Network() string { return "tunnel" }

// String implements net.Addr.
func (address) String() string { return "tunnel" }

// wire is the connection below a WebSocket. What the library writes of a message in pieces of 4 KiB
// goes to the system together: each write there takes as long as to copy some ten thousand bytes.
type wire struct {
	net.Conn

	mu        sync.Mutex
	gathering bool
	held      *[]byte // what is gathered, at most mostPending: then it is written; nil for nothing
	until     time.Time
}

// gather holds back what is written until release is called.
func (w *wire) gather() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gathering = true
}

// release writes what was held back.
func (w *wire) release() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.gathering = false
	return w.flushLocked()
}

// Write implements net.Conn.
func (w *wire) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.gathering {
		return w.putLocked(p)
	}
	if w.held == nil {
		w.held = writeBuffers.Get().(*[]byte)
	}
	if len(*w.held) > 0 && len(*w.held)+len(p) > mostPending {
		if err := w.flushLocked(); err != nil {
			return 0, err
		}
		w.held = writeBuffers.Get().(*[]byte)
	}
	*w.held = append(*w.held, p...)
	return len(p), nil
}

func (w *wire) flushLocked() error {
	held := w.held
	if held == nil {
		return nil
	}
	w.held = nil
	_, err := w.putLocked(*held)
	if cap(*held) <= mostPending {
		*held = (*held)[:0]
		writeBuffers.Put(held)
	}
	return err
}

// putLocked writes, as long as the other end takes something: with a slow network a message takes longer
// than writeBound.
func (w *wire) putLocked(p []byte) (int, error) {
	for n := 0; ; {
		w.extendLocked()
		some, err := w.Conn.Write(p[n:])
		n += some
		if some == 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
			return n, err
		}
	}
}

// extendLocked gives the other end time. To set the deadline for each write would cost more than some
// writes.
func (w *wire) extendLocked() {
	if now := time.Now(); w.until.Sub(now) < writeBound*9/10 {
		w.until = now.Add(writeBound)
		_ = w.Conn.SetWriteDeadline(w.until) // of one that is closed the write fails
	}
}

// hijacking takes the connection below the WebSocket that it is accepted on.
type hijacking struct {
	http.ResponseWriter
	wire *wire
}

// Hijack implements http.Hijacker. The buffers are small, as they are there for each node: what is
// large passes them by.
func (h *hijacking) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	below, had, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	_ = below.SetDeadline(time.Time{}) // of the request
	h.wire = &wire{Conn: below}
	in := bufio.NewReaderSize(h.wire, hijackedRead)
	if early := had.Reader.Buffered(); early > 0 { // the library takes it from here, and reads on from the connection
		in = bufio.NewReaderSize(io.LimitReader(had.Reader, int64(early)), max(early, hijackedRead))
		if _, err := in.Peek(early); err != nil {
			return nil, nil, err
		}
	}
	return h.wire, bufio.NewReadWriter(in, bufio.NewWriterSize(h.wire, hijackedWrite)), nil
}

// Unwrap is for http.ResponseController.
func (h *hijacking) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// Accept takes the tunnel that a request opens. When it fails the request was answered, or its
// connection has ended.
func Accept(w http.ResponseWriter, r *http.Request) (*Tunnel, error) {
	taking := &hijacking{ResponseWriter: w}
	ws, err := websocket.Accept(taking, r, &websocket.AcceptOptions{
		InsecureSkipVerify: true, // the hub has checked the origin, as of each request
		Subprotocols:       []string{Subprotocol},
		CompressionMode:    websocket.CompressionDisabled,
	})
	if err != nil {
		return nil, err
	}
	return hub(ws, taking.wire)
}

type wireKey struct{}

// Wire wraps what dials connections for the client that [Dial] is given.
func Wire(dial func(ctx context.Context, network, addr string) (net.Conn, error)) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		below, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		w := &wire{Conn: below}
		if wanted, ok := ctx.Value(wireKey{}).(*atomic.Pointer[wire]); ok {
			wanted.Store(w)
		}
		return w, nil
	}
}

// ErrOtherProtocol is returned by Dial when what answers has no tunnel of this version.
var ErrOtherProtocol = errors.New("it is not a hub that this version can join")

// Dial opens a tunnel to a hub. The client's connections are used for nothing else, and are dialed
// with [Wire]. The answer is there when there was one.
func Dial(ctx context.Context, client *http.Client, address string, header http.Header) (*Tunnel, *http.Response, error) {
	var below atomic.Pointer[wire]
	ws, resp, err := websocket.Dial(context.WithValue(ctx, wireKey{}, &below), address, &websocket.DialOptions{
		HTTPClient: client, HTTPHeader: header, Subprotocols: []string{Subprotocol}, CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		return nil, resp, err
	}
	if ws.Subprotocol() != Subprotocol {
		_ = ws.CloseNow()
		return nil, resp, ErrOtherProtocol
	}
	t, err := node(ws, below.Load())
	return t, resp, err
}
