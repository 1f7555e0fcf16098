// Package ndjson carries messages over a byte stream, one JSON object per line.
//
// # Guarantees
//
// A line that is not a message never ends the stream: the reader yields a
// notification [MethodUnparsed] in its place, with the reason, the beginning of
// the line and its hash. A line over the limit is consumed without being kept.
// Invalid UTF-8 inside an otherwise good line is replaced by U+FFFD, so what is
// read can be sent anywhere. A message and its newline are written together;
// two writers never mix.
package ndjson

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"

	"sandboxagent.dev/sandbox-agent/acp"
)

// MethodUnparsed is the notification that stands for a line that is no message.
const MethodUnparsed = "_sandboxagent/agent/unparsed"

const (
	// DefaultMaxLine bounds a line; the rest of a longer one is discarded.
	DefaultMaxLine = 64 << 20

	firstBuffer = 4 << 10
	readBuffer  = 64 << 10 // the buffer grows to this under load
	keepBuffer  = 1 << 20  // a larger buffer is given up after its line
	rawKept     = 4 << 10  // bytes of a bad line that are quoted
)

// Conn is an [acp.Conn] over a byte stream. Read does not watch its context
// while it waits for bytes: Close ends it.
type Conn struct {
	r       io.Reader
	close   func() error
	maxLine int

	buf        []byte
	head, tail int // unread bytes of buf
	newline    int // index of the first newline in buf[head:tail], -1 when not known
	scanned    int // bytes of buf[head:tail] known to hold no newline
	waiting    func() bool
	fillErr    error // met by Buffered, for the next Read

	wmu  sync.Mutex
	w    io.Writer
	wbuf []byte

	once     sync.Once
	closeErr error
}

var (
	_ acp.Conn     = (*Conn)(nil)
	_ acp.Buffered = (*Conn)(nil)
)

// New returns a Conn that reads lines from r and writes lines to w. Close calls
// closeFn, which must make a pending read of r return. maxLine 0 means
// [DefaultMaxLine].
func New(r io.Reader, w io.Writer, closeFn func() error, maxLine int) *Conn {
	if maxLine <= 0 {
		maxLine = DefaultMaxLine
	}
	return &Conn{r: r, w: w, close: closeFn, maxLine: maxLine, newline: -1}
}

// Read returns the next message. It is valid until the next Read. The error is
// io.EOF at a clean end.
func (c *Conn) Read(ctx context.Context) (acp.Message, error) {
	for {
		if err := ctx.Err(); err != nil {
			return acp.Message{}, err
		}
		line, total, err := c.line()
		if err != nil {
			return acp.Message{}, err
		}
		if total > len(line) {
			return unparsed(line, fmt.Sprintf("line of %d bytes is over the limit of %d", total, c.maxLine)), nil
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		m, err := acp.Parse(line)
		if err != nil && err.Error() == acp.ErrInvalidUTF8 {
			m, err = acp.Parse(bytes.ToValidUTF8(line, []byte("\uFFFD")))
		}
		if err != nil {
			return unparsed(line, err.Error()), nil
		}
		return m, nil
	}
}

// Waiting gives the Conn a way to know that a read of r would return bytes at
// once. Buffered then looks beyond what was read already.
func (c *Conn) Waiting(f func() bool) { c.waiting = f }

// Buffered reports whether the next Read returns without waiting. It ends the
// life of the message that was read last.
func (c *Conn) Buffered() bool {
	if c.findNewline() >= 0 {
		return true
	}
	if c.waiting == nil || c.fillErr != nil || c.tail-c.head > readBuffer || !c.waiting() {
		return false
	}
	c.fillErr = c.fill()
	return c.findNewline() >= 0
}

func (c *Conn) findNewline() int {
	if c.newline < 0 {
		if i := bytes.IndexByte(c.buf[c.head+c.scanned:c.tail], '\n'); i >= 0 {
			c.newline = c.head + c.scanned + i
		} else {
			c.scanned = c.tail - c.head
		}
	}
	return c.newline
}

// line returns the next line without its newline, and its length, which is
// larger than the slice when the line was over the limit.
func (c *Conn) line() (line []byte, total int, err error) {
	if cap(c.buf) > keepBuffer && c.tail-c.head <= readBuffer {
		c.buf = append(make([]byte, 0, readBuffer), c.buf[c.head:c.tail]...)[:readBuffer]
		c.tail -= c.head
		c.head, c.newline, c.scanned = 0, -1, 0
	}
	for {
		if nl := c.findNewline(); nl >= 0 {
			line = c.buf[c.head:nl:nl]
			c.head, c.newline, c.scanned = nl+1, -1, 0
			return line, len(line), nil
		}
		if c.tail-c.head > c.maxLine {
			return c.discard()
		}
		err := c.fillErr
		if c.fillErr = nil; err == nil {
			err = c.fill()
		}
		if err != nil {
			if err == io.EOF && c.tail > c.head {
				line = c.buf[c.head:c.tail]
				c.head, c.scanned = c.tail, 0
				return line, len(line), nil
			}
			return nil, 0, err
		}
	}
}

// discard consumes a line over the limit and returns its beginning.
func (c *Conn) discard() ([]byte, int, error) {
	kept := append([]byte(nil), c.buf[c.head:min(c.tail, c.head+rawKept)]...)
	total := c.tail - c.head
	for {
		c.head, c.tail, c.newline, c.scanned = 0, 0, -1, 0
		if err := c.fill(); err != nil && err != io.EOF {
			return nil, 0, err
		} else if err == io.EOF {
			return kept, total, nil
		}
		if nl := c.findNewline(); nl >= 0 {
			total += nl
			c.head, c.newline, c.scanned = nl+1, -1, 0
			return kept, total, nil
		}
		total += c.tail
	}
}

// fill reads once, making room first.
func (c *Conn) fill() error {
	if c.head == c.tail {
		c.head, c.tail, c.scanned = 0, 0, 0
	}
	if c.tail == len(c.buf) {
		n := c.tail - c.head
		switch {
		case c.head > 0 && n <= len(c.buf)/2:
			copy(c.buf, c.buf[c.head:c.tail])
		default:
			size := max(firstBuffer, 2*len(c.buf))
			if len(c.buf) < readBuffer && len(c.buf) > 0 {
				size = readBuffer
			}
			b := make([]byte, size)
			copy(b, c.buf[c.head:c.tail])
			c.buf = b
		}
		c.head, c.tail = 0, n
	}
	for range 100 {
		n, err := c.r.Read(c.buf[c.tail:])
		c.tail += n
		if n > 0 {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return io.ErrNoProgress
}

// unparsed is the notification in place of a line that is no message.
func unparsed(line []byte, reason string) acp.Message {
	sum := sha256.Sum256(line)
	p := append([]byte(nil), `{"error":`...)
	p = acp.AppendQuoted(p, reason)
	p = append(p, `,"raw":`...)
	p = acp.AppendQuoted(p, string(line[:min(len(line), rawKept)]))
	p = append(p, `,"rawHash":"sha256:`...)
	p = hex.AppendEncode(p, sum[:])
	return acp.NewNotification(MethodUnparsed, append(p, `"}`...))
}

// Write writes the message and a newline. It does not keep m.
func (c *Conn) Write(ctx context.Context, m acp.Message) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return c.WriteFrame(m.Frame())
}

// WriteFrame writes one frame, which must be a single line, and a newline.
func (c *Conn) WriteFrame(frame []byte) error {
	c.wmu.Lock()
	defer c.wmu.Unlock()
	c.wbuf = append(append(c.wbuf[:0], frame...), '\n')
	_, err := c.w.Write(c.wbuf)
	if cap(c.wbuf) > readBuffer {
		c.wbuf = nil
	}
	if err != nil {
		return fmt.Errorf("write message: %w", err)
	}
	return nil
}

// Close closes the stream. It is idempotent.
func (c *Conn) Close() error {
	c.once.Do(func() {
		if c.close != nil {
			c.closeErr = c.close()
		}
	})
	if errors.Is(c.closeErr, io.EOF) {
		return nil
	}
	return c.closeErr
}
