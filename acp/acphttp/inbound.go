package acphttp

import (
	"context"
	"encoding/binary"
	"io"
	"math"
	"sync"
	"sync/atomic"

	"sandboxagent.dev/sandbox-agent/internal/frames"
)

const (
	shortRead   = 4 << 10
	longRead    = 64 << 10 // when much comes at one time
	longestHead = 10       // of a frame of a gateway, which is not masked

	maskedBit = 0x80 // of a frame's second byte, as those of clients have it
)

// inbound is what a client reads of a connection that is a WebSocket. The library takes many steps for each message. Most messages are
// one frame and come with others: these are taken here, see message, and the library reads all that is something else. It is given one frame
// at a time, so that none of what follows is in its hands.
type inbound struct {
	io.ReadWriteCloser
	longest int64 // bytes of a message

	leaving atomic.Bool // the library reads up to the gateway's goodbye, and drops what comes before it: nothing behind that is a message

	mu  sync.Mutex
	ctx context.Context // of the newest Read of the client; it watches until that returns
	on  bool            // that goes on

	reading sync.Mutex // held by who reads, for the following
	store   []byte     // what buf is a part of
	buf     []byte     // came, and was not taken
	rest    int64      // bytes of a frame that the library has begun to read
	much    bool       // the last read has filled the store
	err     error      // that ended the connection
}

// longReads are stores of longRead bytes for further use.
var longReads = sync.Pool{New: func() any { return new([longRead]byte) }}

// during has the context of a Read watch until done is called.
func (c *inbound) during(ctx context.Context) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ctx, c.on = ctx, true
}

func (c *inbound) done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.on = false
}

// message appends the next message to dst, if that is a text in one frame that is not too long to be kept here. If
// ok is false, it is the library that reads what comes, also the error.
func (c *inbound) message(dst []byte) (b []byte, ok bool) {
	c.reading.Lock()
	defer c.reading.Unlock()
	if c.rest > 0 {
		return dst, false
	}
	head, n, err := c.frame()
	if err != nil || c.buf[0] != frames.Text || c.buf[1]&maskedBit != 0 || n > min(c.longest, longRead-longestHead) {
		return dst, false
	}
	end := head + int(n)
	if c.fill(end) != nil || c.leaving.Load() {
		return dst, false
	}
	dst = append(dst, c.buf[head:end]...)
	c.buf = c.buf[end:]
	return dst, true
}

// Read implements [io.Reader], for the library.
func (c *inbound) Read(p []byte) (int, error) {
	c.reading.Lock()
	defer c.reading.Unlock()
	if c.rest == 0 {
		head, n, err := c.frame()
		if err != nil && len(c.buf) == 0 {
			return 0, err
		}
		c.rest = int64(len(c.buf)) // of half a header
		if err == nil {
			c.rest = n + min(int64(head), math.MaxInt64-n)
		}
	}
	p = p[:min(int64(len(p)), c.rest)]
	n := copy(p, c.buf)
	c.buf = c.buf[n:]
	if n > 0 || len(p) == 0 {
		c.rest -= int64(n)
		return n, nil
	}
	n, err := c.receive(p)
	c.rest -= int64(n)
	return n, err
}

// frame returns how long the header of the next frame is, and its payload. The header is in buf then.
func (c *inbound) frame() (head int, payload int64, err error) {
	if err := c.fill(2); err != nil {
		return 0, 0, err
	}
	head = 2
	switch payload = int64(c.buf[1] &^ maskedBit); payload {
	case 126:
		head += 2
	case 127:
		head += 8
	}
	if c.buf[1]&maskedBit != 0 { // no server does that; it is the library's
		head += 4
	}
	if err := c.fill(head); err != nil {
		return 0, 0, err
	}
	switch payload {
	case 126:
		payload = int64(binary.BigEndian.Uint16(c.buf[2:]))
	case 127:
		payload = int64(binary.BigEndian.Uint64(c.buf[2:]) & math.MaxInt64) // the library refuses what is longer
	}
	return head, payload, nil
}

// fill reads until buf has so many bytes, at most those of a store.
func (c *inbound) fill(bytes int) error {
	for len(c.buf) < bytes {
		if c.err != nil {
			return c.err
		}
		c.makeRoom(bytes)
		room := c.store[len(c.buf):]
		var n int
		n, c.err = c.receive(room)
		c.buf, c.much = c.store[:len(c.buf)+n], n == len(room)
	}
	return nil
}

// makeRoom puts buf at the beginning of a store that has room for so many bytes.
func (c *inbound) makeRoom(bytes int) {
	old := c.store
	switch {
	case len(old) < longRead && (bytes > shortRead || c.much):
		c.store = longReads.Get().(*[longRead]byte)[:]
	case len(old) == 0 || len(old) == longRead && !c.much && bytes <= shortRead && len(c.buf) <= shortRead:
		c.store = make([]byte, shortRead)
	}
	c.buf = c.store[:copy(c.store, c.buf)]
	if len(old) == longRead && len(c.store) < longRead {
		longReads.Put((*[longRead]byte)(old))
	}
}

// receive reads from the connection. When the context of a Read of the client ends, it ends the connection. Here that is watched when there is
// something to wait for, and many messages come at one time; the library would do it twice for each.
func (c *inbound) receive(p []byte) (int, error) {
	c.mu.Lock()
	ctx, on := c.ctx, c.on
	c.mu.Unlock()
	if !on || ctx.Done() == nil {
		return c.ReadWriteCloser.Read(p)
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	n, err := c.ReadWriteCloser.Read(p)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	return n, err
}
