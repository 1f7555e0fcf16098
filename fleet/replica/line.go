package replica

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"sandboxagent.dev/sandbox-agent/control"
)

// line is a connection on which a node gives pages of one session as there is something new, each when
// the one before is in the store: see [control.ProtocolAttend]. To ask for each by a request takes longer
// than to store it. The zero value is not open; it is used by one goroutine, and closed by whoever made it.
type line struct {
	conn   io.ReadWriteCloser // nil when it is not open
	in     *values
	body   *gauge
	bound  *time.Timer // of a page
	closes func() bool // takes back that conn is closed with the context
	read   bool        // a page was: the node waits to hear that the store has it
	failed bool        // the node knows no lines, or has ended this one: requests say why
}

// errEnded says that the line has ended where another page could have begun.
var errEnded = errors.New("the node has ended the line")

// ask has a request begin the line if the node knows of such.
func (l *line) ask(h http.Header) {
	h.Set("Connection", "Upgrade")
	h.Set("Upgrade", control.ProtocolAttend)
}

// open takes the connection that the node has given, until ctx ends.
func (l *line) open(ctx context.Context, conn io.ReadWriteCloser, large chan struct{}) {
	l.conn = conn
	end := func() { _ = conn.Close() }
	l.closes, l.bound = context.AfterFunc(ctx, end), time.AfterFunc(pageBound, end)
	l.bound.Stop()
	l.body = &gauge{r: conn, ctx: ctx, still: time.AfterFunc(stall, end), large: large}
	l.in = &values{r: l.body}
}

// page says up to where the store has the session, waits for the next page and gives each event to take.
func (l *line) page(w wanted, take func(event) error) (a answered, err error) {
	if l.read {
		if _, err := l.conn.Write(append(strconv.AppendUint(nil, w.stored, 10), '\n')); err != nil {
			return a, errEnded
		}
		l.read = false
	}
	if _, err := l.in.next(); err != nil {
		return a, errEnded
	}
	defer l.body.still.Stop()
	if w.room != nil {
		l.body.still.Stop() // the wait is not the node's
		if err := w.room(); err != nil {
			return a, err
		}
	}
	l.bound.Reset(pageBound)
	defer l.bound.Stop()
	defer l.body.release()
	a, err = l.in.events(l.body.release, take)
	l.read = err == nil
	return a, err
}

// close ends the line if it is open. It is not opened again.
func (l *line) close() {
	l.failed = true
	if l.conn == nil {
		return
	}
	l.closes()
	l.bound.Stop()
	l.body.still.Stop()
	_ = l.conn.Close()
	l.conn = nil
}
