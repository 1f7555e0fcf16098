// Package frames is the connection of a WebSocket on which two write: the library, which reads it, answers pings and says
// goodbye, and who has something to send.
//
// # Guarantees
//
// Frames never mix, and none follows a goodbye: a browser that finds one there does not tell its page why the connection
// ended. A client has as long as is said for each piece of what it is sent, and no ping of its own ends that sooner: the
// library gives an answer five seconds, and ends the connection then, also behind a large frame on a slow line. Here answers
// wait for their turn. No more than one does: the newest is for all pings before it.
package frames

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/deadline"
	"sandboxagent.dev/sandbox-agent/internal/memory"
)

// The first bytes of frames that are whole messages.
const (
	Text   byte = 0x81
	Binary byte = 0x82

	goodbye byte = 0x88
	ping    byte = 0x89
	pong    byte = 0x8a
)

const (
	pieceBytes = 256 << 10             // that are written at one time
	dropTime   = 10 * time.Millisecond // for a client that is dropped to be told
	unheardOf  = 3                     // pings that a client may leave without a sign of life
)

// errLeft says that goodbye was said.
var errLeft = fmt.Errorf("send behind the goodbye: %w", net.ErrClosed)

// Hijacker is the http.ResponseWriter of a request that becomes a WebSocket. The library hijacks it.
type Hijacker struct {
	http.ResponseWriter
	Within time.Duration // for the client to take a piece
	Conn   *Conn         // nil until then
}

// Hijack implements http.Hijacker. The library flushes each control frame in one
// piece, as long as it fits the writer's buffer, which the largest does.
func (h *Hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	early := make([]byte, rw.Reader.Buffered())
	if len(early) > 0 {
		if _, err := rw.Reader.Read(early); err != nil {
			return nil, nil, err
		}
	}
	_ = conn.SetDeadline(time.Time{})
	h.Conn = &Conn{
		Conn: conn, early: early, turn: make(chan struct{}, 1),
		takes: deadline.New(h.Within, conn.SetWriteDeadline), leaves: deadline.New(h.Within, conn.SetReadDeadline),
	}
	h.Conn.heard.Store(true)
	return h.Conn, bufio.NewReadWriter(bufio.NewReaderSize(h.Conn, 2<<10), bufio.NewWriterSize(h.Conn, 512)), nil
}

// Unwrap lets http.ResponseController reach the original writer.
func (h *Hijacker) Unwrap() http.ResponseWriter { return h.ResponseWriter }

// Conn is the connection. Read, Write and Close are for the library, which reads with one goroutine at a time; the others
// may be called by any.
type Conn struct {
	net.Conn
	takes  *deadline.Deadline // of the client, to take a piece
	leaves *deadline.Deadline // and to say goodbye, too

	heard   atomic.Bool // something was read since the last ping
	listens atomic.Bool // the library is reading
	unheard int         // pings since something was heard
	early   []byte      // read before the connection was taken over

	turn chan struct{} // holds one while somebody writes
	left bool          // goodbye was said, and nothing may follow it; for whoever's turn it is

	answer    sync.Mutex
	pong      []byte         // the newest that waits for its turn, nil for none; guarded by answer
	answering sync.WaitGroup // goroutines that write one
}

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	if len(c.early) > 0 {
		n := copy(p, c.early)
		c.early = c.early[n:]
		return n, nil
	}
	c.listens.Store(true)
	n, err := c.Conn.Read(p)
	c.listens.Store(false)
	if n > 0 {
		c.heard.Store(true)
	}
	return n, err
}

// Write writes a frame of the library's. It does not wait with the answer to a ping.
func (c *Conn) Write(p []byte) (int, error) {
	if len(p) > 0 && p[0] == pong {
		c.owe(p)
		return len(p), nil
	}
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	if c.left {
		return 0, errLeft
	}
	if len(p) > 0 && p[0] == goodbye {
		c.left = true
		c.leaves.Extend()
	}
	c.takes.Extend()
	return c.Conn.Write(p)
}

// Hurry gives the client so long for each piece from now on, and for its goodbye once it is told one. It has no time after last, unless
// that is zero.
func (c *Conn) Hurry(within time.Duration, last time.Time) {
	c.takes.Hurry(within, last)
	c.leaves.Hurry(within, last)
}

// owe has an answer written when it is its turn.
func (c *Conn) owe(p []byte) {
	c.answer.Lock()
	defer c.answer.Unlock()
	if c.pong == nil {
		c.answering.Go(c.give)
	}
	c.pong = append([]byte{}, p...)
}

func (c *Conn) give() {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	c.answer.Lock()
	p := c.pong
	c.pong = nil
	c.answer.Unlock()
	_ = c.write(nil, p)
}

// Wait returns when nobody writes an answer any more. The library has ended before.
func (c *Conn) Wait() { c.answering.Wait() }

// Send writes whole frames in pieces, each in its time, and tells the share, which may be nil. An error ends the
// connection: the client may have a part of a frame.
func (c *Conn) Send(share *memory.Share, parts ...[]byte) error {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	return c.write(share, parts...)
}

// write is for whoever's turn it is.
func (c *Conn) write(share *memory.Share, parts ...[]byte) error {
	if c.left {
		return errLeft
	}
	for _, p := range parts {
		for len(p) > 0 {
			c.takes.Extend()
			n, err := c.Conn.Write(p[:min(len(p), pieceBytes)])
			share.Moved(n)
			if err != nil {
				_ = c.Conn.Close()
				return err
			}
			p = p[n:]
		}
	}
	return nil
}

// Ping asks the client for a sign of life. It returns false for one that is gone: it takes nothing, or has left some pings
// without one. They are counted, not timed: a machine that was suspended has not listened. Nor does anybody listen while what
// was read before waits. Whoever was told goodbye is not asked any more. One goroutine may call it.
func (c *Conn) Ping() bool {
	if c.unheard++; c.heard.Swap(false) || !c.listens.Load() {
		c.unheard = 0
	}
	err := c.Send(nil, []byte{ping, 0})
	return errors.Is(err, errLeft) || err == nil && c.unheard <= unheardOf
}

// Drop ends a connection whose client stands still. One that reads is told why, with a status of WebSockets.
func (c *Conn) Drop(status int, reason string) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
		if c.left {
			break
		}
		c.left = true
		b := binary.BigEndian.AppendUint16([]byte{goodbye, byte(2 + len(reason))}, uint16(status))
		c.takes.Hurry(dropTime, time.Time{})
		c.takes.Extend()
		_, _ = c.Conn.Write(append(b, reason...)) // if it can be told
	default:
	}
	_ = c.Conn.Close()
}

// AppendHeader appends the header of a frame that is a whole message of n bytes: neither masked nor one of fragments.
func AppendHeader(b []byte, kind byte, n int) []byte {
	switch {
	case n < 126:
		return append(b, kind, byte(n))
	case n < 1<<16:
		return append(b, kind, 126, byte(n>>8), byte(n))
	}
	return binary.BigEndian.AppendUint64(append(b, kind, 127), uint64(n))
}

// Client is about the frames of a client, which the library writes. An answer to a ping would end the connection when it has to wait
// behind a long message, as on a slow line. That message is a sign of life, too. The zero value is one that sends nothing.
type Client struct{ sending atomic.Int32 }

// Answers reports whether a ping is answered. It is the library's OnPingReceived.
func (c *Client) Answers(context.Context, []byte) bool { return c.sending.Load() == 0 }

// Sending is called before the client sends something, and sent behind it.
func (c *Client) Sending() (sent func()) {
	c.sending.Add(1)
	return func() { c.sending.Add(-1) }
}
