package acphttp

import (
	"net/http"
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
	defer st.Close()
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
	rc := http.NewResponseController(w)
	if rc.Flush() != nil {
		return nil
	}
	h.pump(w, r, rc, st)
	return nil
}

// pump writes events until the stream, the client or the gateway ends.
func (h *Handler) pump(w http.ResponseWriter, r *http.Request, rc *http.ResponseController, st acp.Stream) {
	heartbeat := time.NewTicker(h.o.Heartbeat / 2) // the second one in a silence is sent
	defer heartbeat.Stop()
	out := h.outgoing(w)
	defer out.close()
	st.Room(roomIn(r.Context(), out.share))
	quiet := false
	gone := r.Context().Done()
	for {
		select {
		case <-st.Wake():
			if out.share.Take(r.Context(), batchBytes) != nil {
				return
			}
			events, err := st.Poll(pollBytes)
			if err != nil {
				h.log.Warn("event stream ended", "err", err)
				return
			}
			if len(events) > 0 {
				if out.events(events) != nil || rc.Flush() != nil {
					return
				}
				quiet = false
			}
			st.Written()
			out.share.GiveAll()
		case <-heartbeat.C:
			if quiet {
				if out.write([]byte(sse.Heartbeat)) != nil || rc.Flush() != nil {
					return
				}
			}
			quiet = true
		case <-gone:
			return
		case <-st.Done():
			return
		case <-h.closing:
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
