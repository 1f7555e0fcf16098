package tunnel

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"sandboxagent.dev/sandbox-agent/internal/socket"
)

const (
	// readAhead is what is read of a message at once, as long as its frames are small.
	readAhead = 32 << 10
	// headAhead is what is read when they are large: what is behind comes to where it stays.
	headAhead = 2 << 10
	// writeBound is how long the other end may take nothing until the tunnel ends.
	writeBound = Silence - Heartbeat

	hijackedRead  = 2 << 10 // bytes of the hub's buffers for a WebSocket, of which each node has one
	hijackedWrite = 512
)

// conn is a WebSocket as a byte stream. While nothing is read or written it has no buffers. It ends
// without a farewell, which one that is gone would not answer.
//
// One goroutine at a time may read, one may write, and any may cut it.
type conn struct {
	ws      *websocket.Conn
	framing *framing // nil if what is below is not known: then the library writes, in pieces of its own

	// Of the goroutine that reads.
	message io.Reader // that is being read, nil for none
	buffer  *[]byte   // nil when all of it was read
	got     []byte    // of it, and not read yet
	ahead   int       // how much is read at once
	came    func()    // is called when something was read: a frame may take long
}

func newConn(ws *websocket.Conn, f *framing) *conn {
	ws.SetReadLimit(-1) // frames are bounded by windows
	return &conn{ws: ws, framing: f, ahead: readAhead}
}

var readBuffers = sync.Pool{New: func() any { b := make([]byte, readAhead); return &b }}

var errText = errors.New("a message of the tunnel is text")

// peek returns the next n bytes, which are few, and leaves them.
func (c *conn) peek(n int) ([]byte, error) {
	for len(c.got) < n {
		if err := c.more(); err != nil {
			return nil, err
		}
	}
	return c.got[:n], nil
}

// skip lets go of bytes that were seen.
func (c *conn) skip(n int) { c.got = c.got[n:] }

// some returns up to n of the bytes that are at hand, and leaves them. It returns none if so many are
// awaited that they should be read to where they stay.
func (c *conn) some(n int) ([]byte, error) {
	switch {
	case len(c.got) > 0:
	case n > headAhead:
		c.ahead = headAhead
		return nil, nil
	default:
		c.ahead = readAhead
		if err := c.more(); err != nil {
			return nil, err
		}
	}
	return c.got[:min(n, len(c.got))], nil
}

// full reads into all of p. Nothing is at hand.
func (c *conn) full(p []byte) error {
	for len(p) > 0 {
		if err := c.begin(); err != nil {
			return err
		}
		n, err := c.read(p)
		if err != nil {
			return err
		}
		p = p[n:]
	}
	return nil
}

// discard reads bytes that nobody needs.
func (c *conn) discard(n int64) error {
	for {
		k := min(n, int64(len(c.got)))
		c.skip(int(k))
		if n -= k; n == 0 {
			return nil
		}
		if err := c.more(); err != nil {
			return err
		}
	}
}

// more reads more behind what is at hand, which is little.
func (c *conn) more() error {
	if c.message == nil && len(c.got) == 0 && c.buffer != nil {
		readBuffers.Put(c.buffer)
		c.buffer = nil
	}
	if err := c.begin(); err != nil {
		return err
	}
	if c.buffer == nil {
		c.buffer = readBuffers.Get().(*[]byte)
	}
	b := *c.buffer
	had := copy(b, c.got)
	n, err := c.read(b[had:max(c.ahead, 2*had)])
	c.got = b[:had+n]
	return err
}

// begin sees to it that there is a message.
func (c *conn) begin() error {
	if c.message != nil {
		return nil
	}
	kind, r, err := c.ws.Reader(context.Background())
	if err == nil && kind != websocket.MessageBinary {
		err = errText
	}
	if err == nil {
		c.message = r
	}
	return err
}

// read reads some of the message, and notes its end.
func (c *conn) read(p []byte) (int, error) {
	n, err := c.message.Read(p)
	if n > 0 {
		c.came()
	}
	if errors.Is(err, io.EOF) {
		c.message, err = nil, nil
	}
	return n, err
}

// takes returns what reports whether a small message is written without waiting, nil if nobody knows.
func (c *conn) takes() func(n int) bool {
	if c.framing == nil {
		return nil
	}
	return socket.RoomOf(c.framing.wire.Conn).For
}

// put writes a message: what stands in b behind mostHead bytes.
func (c *conn) put(b []byte) error {
	if c.framing != nil {
		return c.framing.put(b)
	}
	ctx, cancel := context.WithTimeout(context.Background(), writeBound)
	defer cancel()
	return c.ws.Write(ctx, websocket.MessageBinary, b[mostHead:])
}

// cut ends the connection. What is below goes first: TLS would say that it ends, and wait with that
// behind a message of which the other end takes nothing.
func (c *conn) cut() error {
	if c.framing != nil {
		_ = c.framing.wire.Close() // what is above it says the error
	}
	return c.ws.CloseNow()
}

// mostHead is the length of the longest head of a message: its kind, its length in nine bytes, and a mask.
const mostHead = 14

// framing writes messages of a WebSocket beside the library, which writes control frames: it would copy
// them, in pieces of 4 KiB, where one write does. Each is one frame.
type framing struct {
	to     io.Writer // takes each write as a whole
	wire   *wire     // below it, or the same
	masks  bool      // as clients have to
	secure bool      // TLS is between to and wire
}

const (
	opBinary = 0x82 // the only frame of a message
	isMasked = 0x80
)

// put writes a message: what stands in b behind mostHead bytes.
func (f *framing) put(b []byte) error {
	n := len(b) - mostHead
	var head [mostHead]byte
	h := append(head[:0], opBinary)
	switch {
	case n < 126:
		h = append(h, byte(n))
	case n < 1<<16:
		h = binary.BigEndian.AppendUint16(append(h, 126), uint16(n))
	default:
		h = binary.BigEndian.AppendUint64(append(h, 127), uint64(n))
	}
	if f.masks {
		var key [4]byte
		_, _ = rand.Read(key[:]) // never fails
		h[1] |= isMasked
		h = append(h, key[:]...)
		mask(b[mostHead:], key)
	}
	b = b[mostHead-len(h):]
	copy(b, h)
	if !f.secure {
		_, err := f.to.Write(b)
		return err
	}
	f.wire.gather()
	_, err := f.to.Write(b)
	return errors.Join(err, f.wire.release())
}

// mask combines b with the key, as clients have to.
func mask(b []byte, key [4]byte) {
	four := uint64(binary.LittleEndian.Uint32(key[:]))
	eight := four | four<<32
	for ; len(b) >= 32; b = b[32:] {
		binary.LittleEndian.PutUint64(b, binary.LittleEndian.Uint64(b)^eight)
		binary.LittleEndian.PutUint64(b[8:], binary.LittleEndian.Uint64(b[8:])^eight)
		binary.LittleEndian.PutUint64(b[16:], binary.LittleEndian.Uint64(b[16:])^eight)
		binary.LittleEndian.PutUint64(b[24:], binary.LittleEndian.Uint64(b[24:])^eight)
	}
	for i := range b {
		b[i] ^= key[i%4]
	}
}

// wire is the connection below a WebSocket. What TLS writes of a message in pieces of 16 KiB goes to the
// system together: each write there takes as long as to copy some ten thousand bytes.
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
	free(held)
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
	return hub(ws, &framing{to: taking.wire, wire: taking.wire}), nil
}

type wireKey struct{}

// Wire wraps what dials connections for the client that [Dial] and [Tunnel.OpenLanes] are given.
func Wire(dial func(ctx context.Context, network, addr string) (net.Conn, error)) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		below, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if wanted, ok := ctx.Value(laneKey{}).(*net.Conn); ok {
			*wanted = below
			return below, nil
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

// taking notes the connection that an answer hands over.
type taking struct {
	next http.RoundTripper
	got  io.Writer
	tls  bool
}

// RoundTrip implements http.RoundTripper.
func (t *taking) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err == nil {
		t.got, _ = resp.Body.(io.Writer)
		t.tls = resp.TLS != nil
	}
	return resp, err
}

// Dial opens a tunnel to a hub. The client's connections are used for nothing else, and are dialed
// with [Wire]. The answer is there when there was one.
func Dial(ctx context.Context, client *http.Client, address string, header http.Header) (*Tunnel, *http.Response, error) {
	var below atomic.Pointer[wire]
	own := *client
	taken := &taking{next: client.Transport}
	if taken.next == nil {
		taken.next = http.DefaultTransport
	}
	own.Transport = taken
	ws, resp, err := websocket.Dial(context.WithValue(ctx, wireKey{}, &below), address, &websocket.DialOptions{
		HTTPClient: &own, HTTPHeader: header, Subprotocols: []string{Subprotocol}, CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		return nil, resp, err
	}
	if ws.Subprotocol() != Subprotocol {
		_ = ws.CloseNow()
		return nil, resp, ErrOtherProtocol
	}
	var f *framing
	if w := below.Load(); w != nil && taken.got != nil {
		f = &framing{to: taken.got, wire: w, masks: true, secure: taken.tls}
	}
	return open(newConn(ws, f), true), resp, nil
}
