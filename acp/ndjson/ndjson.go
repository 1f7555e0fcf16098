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
	"strings"
	"sync"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// MethodUnparsed is the notification that stands for a line that is no message.
const MethodUnparsed = "_sandboxagent/agent/unparsed"

// Conn is an [acp.Conn] over a byte stream. Read does not watch its context
// while it waits for bytes: Close ends it.
type Conn struct {
	lines *Lines
	close func() error

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
	return &Conn{lines: NewLines(r, maxLine), w: w, close: closeFn}
}

// Ahead gives the Conn a way to read what its stream has without waiting for more: read
// returns 0 and no error when there is nothing. Buffered then looks beyond what was read already.
func (c *Conn) Ahead(read func(p []byte) (int, error)) { c.lines.Ahead(read) }

// Buffered reports whether the next Read returns without waiting. It ends the
// life of the message that was read last.
func (c *Conn) Buffered() bool { return c.lines.Buffered() }

// Read returns the next message. It is valid until the next Read. The error is
// io.EOF at a clean end.
func (c *Conn) Read(ctx context.Context) (acp.Message, error) {
	for {
		if err := ctx.Err(); err != nil {
			return acp.Message{}, err
		}
		line, err := c.lines.Next()
		if long, ok := err.(*TooLongError); ok { // as it is: this is the hot path
			return Unparsed(line, long), nil
		}
		if err != nil {
			return acp.Message{}, err
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		m, err := acp.Parse(line)
		if err != nil && err.Error() == acp.ErrInvalidUTF8 {
			m, err = acp.Parse(bytes.ToValidUTF8(line, []byte("\uFFFD")))
		}
		if err != nil {
			return Unparsed(line, err), nil
		}
		return m, nil
	}
}

// Unparsed is the notification in place of a line that is no message.
func Unparsed(line []byte, reason error) acp.Message {
	sum := sha256.Sum256(line)
	p := append([]byte(nil), `{"error":`...)
	p = rawjson.AppendQuoted(p, reason.Error())
	p = append(p, `,"raw":`...)
	p = rawjson.AppendQuoted(p, strings.ToValidUTF8(string(line[:min(len(line), rawKept)]), "\uFFFD"))
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
