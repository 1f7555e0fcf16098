package acphttp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"strconv"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/sse"
)

// buffers hold a batch of events on its way to a socket; an idle stream has none.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

const keepBuffer = 1 << 20 // a larger one is not kept for reuse

func giveBack(b *[]byte) {
	if cap(*b) <= keepBuffer {
		*b = (*b)[:0]
		buffers.Put(b)
	}
}

// get serves an event stream.
func (h *Handler) get(w http.ResponseWriter, r *http.Request) error {
	standard := r.Header.Get(HeaderConnection) != ""
	if standard && !accepts(r, sse.ContentType) || len(r.Header.Values("Accept")) == 0 && standard {
		return problem.New(problem.NotAcceptable, "this is an event stream: Accept must name %s", sse.ContentType)
	}
	if !standard && !accepts(r, sse.ContentType, "text/*", "*/*") {
		return problem.New(problem.NotAcceptable, "this is an event stream: Accept must allow %s", sse.ContentType)
	}
	c, err := h.find(r)
	if err != nil {
		return err
	}
	session := ""
	if standard {
		if session = r.Header.Get(HeaderSession); len(session) > maxIDLen {
			return problem.New(problem.InvalidRequest, "%s is longer than %d bytes", HeaderSession, maxIDLen)
		}
	}
	var after *uint64
	if v := r.Header.Get("Last-Event-Id"); v != "" {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			return problem.New(problem.InvalidRequest, "Last-Event-ID must be the number of an event, not %q", v[:min(len(v), 40)])
		}
		after = &n
	}
	st, err := c.client.Stream(session, after)
	if err != nil {
		return err
	}
	hd := w.Header()
	hd.Set("Content-Type", sse.ContentType)
	hd.Set("Cache-Control", "no-cache, no-store")
	hd.Set("X-Accel-Buffering", "no")
	if !standard {
		hd.Set(HeaderInlineConnection, c.client.ID())
	}
	if r.ProtoMajor == 1 {
		// The end of the connection ends the stream. Chunks would cost two more
		// writes for each batch of events.
		hd.Set("Transfer-Encoding", "identity")
	}
	w.WriteHeader(http.StatusOK)
	// A client waits for these headers before it sends its first prompt.
	if h.writeMore(w, nil) != nil {
		st.Close()
		return nil
	}
	rc := http.NewResponseController(w)
	if r.ProtoMajor == 1 {
		if conn, _, err := rc.Hijack(); err == nil {
			h.open.add(1)
			go h.own(conn, st)
			return nil
		}
	}
	h.pump(r.Context(), h.outgoing(w), nil, rc.Flush, st)
	return nil
}

// ignored is what is read of a client that goes on to send where its events are written. More
// than that ends the stream.
const ignored = 64 << 10

// survive, deferred, ends a connection that panics and no other, as the server does for requests.
func (h *Handler) survive(conn net.Conn) {
	if v := recover(); v != nil {
		h.log.Error("connection panicked", "err", fmt.Sprint(v), "stack", string(debug.Stack()))
		_ = conn.Close()
	}
}

// own serves a stream on a connection that is its own: between events it takes two small
// goroutines, and not the request with its buffers, of which there would be two for each
// client that waits.
func (h *Handler) own(conn net.Conn, st acp.Stream) {
	defer h.open.add(-1)
	defer h.survive(conn)
	ctx, gone := context.WithCancel(context.Background())
	defer gone()
	var reading sync.WaitGroup
	reading.Go(func() {
		defer gone()
		var b [64]byte
		for n := 0; n < ignored; {
			some, err := conn.Read(b[:])
			if err != nil {
				return
			}
			n += some
		}
	})
	h.pump(ctx, h.writing(conn, conn), conn, func() error { return nil }, st)
	_ = conn.Close()
	reading.Wait()
}

// pump writes events until the stream, the client or the gateway ends. conn is what the events are
// written to if they are alone there, else nil.
func (h *Handler) pump(ctx context.Context, out *outgoing, conn net.Conn, flush func() error, st acp.Stream) {
	defer st.Close()
	defer out.close()
	heartbeat := time.NewTicker(h.o.Heartbeat / 2) // the second one in a silence is sent
	defer heartbeat.Stop()
	st.Room(roomIn(ctx, out.share))
	quiet := false // guarded by p.mu
	p := own(st, conn, func(events []acp.Event) error {
		quiet = false
		if err := out.events(events); err != nil {
			return err
		}
		return flush()
	})
	defer p.end()
	for {
		select {
		case <-st.Wake():
			if out.share.Take(ctx, batchBytes) != nil {
				return
			}
			lost, err := p.next()
			if err != nil {
				h.log.Warn("event stream ended", "err", err)
			}
			if lost != nil || err != nil {
				return
			}
			out.share.GiveAll()
		case <-heartbeat.C:
			if p.alone(func() (err error) {
				if quiet {
					err = errors.Join(out.write([]byte(sse.Heartbeat)), flush())
				}
				quiet = true
				return err
			}) != nil {
				return
			}
		case <-ctx.Done():
			return
		case <-st.Done():
			return
		case <-h.closing.Done():
			return
		}
	}
}

// events writes a batch of events.
func (o *outgoing) events(events []acp.Event) error {
	buf := buffers.Get().(*[]byte)
	defer giveBack(buf)
	for _, e := range events {
		if len(e.Frame) <= largeFrame {
			*buf = sse.AppendEvent(*buf, e.ID, e.Frame)
			continue
		}
		*buf = sse.AppendHead(*buf, e.ID)
		if err := o.write(*buf); err != nil {
			return err
		}
		if err := o.write(e.Frame); err != nil {
			return err
		}
		*buf = append((*buf)[:0], sse.Tail...)
	}
	return o.write(*buf)
}
