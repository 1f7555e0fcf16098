package control

import (
	"bytes"
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/acp/sse"
	"sandboxagent.dev/sandbox-agent/internal/deadline"
	"sandboxagent.dev/sandbox-agent/internal/memory"
	"sandboxagent.dev/sandbox-agent/internal/secret"
	"sandboxagent.dev/sandbox-agent/runtime"
)

const (
	heartbeat    = 15 * time.Second
	writeTimeout = 60 * time.Second // a client that takes nothing for so long is dropped

	// ahead is how many events are read from the log before the client has
	// taken those before them. When it is reached, reading waits; the log
	// itself never does.
	ahead = 16

	// largeEvent is the size from which an event is read alone.
	largeEvent = 512 << 10
)

// getEvents returns a page of a session's events or, to who accepts an event
// stream, all of them as they come. Pages are in version 2 of ACP, too.
func (s *Server) getEvents(c echo.Context) error {
	id, err := pathParam(c, "id")
	if err != nil {
		return err
	}
	after, err := uintParam("after", c.QueryParam("after"), 0)
	if err != nil {
		return err
	}
	version, err := uintParam("acp", c.QueryParam("acp"), 1)
	if err != nil {
		return err
	}
	page := s.o.Sessions.Events
	switch version {
	case 1:
	case 2:
		page = s.o.Sessions.RaisedEvents
	default:
		return problem.New(problem.InvalidRequest, "acp is the version of ACP that events are in: 1 or 2, not %d", version)
	}
	clean := false
	if err := flags(c, map[string]*bool{"clean": &clean}); err != nil {
		return err
	}
	r := c.Request()
	if r.Method == http.MethodGet && strings.Contains(strings.ToLower(r.Header.Get("Accept")), sse.ContentType) {
		if last := r.Header.Get("Last-Event-ID"); last != "" {
			if after, err = uintParam("Last-Event-ID", last, 0); err != nil {
				return err
			}
		}
		if version != 1 {
			return problem.New(problem.InvalidRequest, "a stream of events is in version 1 of ACP: read pages of version %d, or connect to /v2/rpc", version)
		}
		if clean {
			return problem.New(problem.InvalidRequest, "a stream of events is as the log has it: read pages with clean").With("parameter", "clean")
		}
		return s.streamEvents(c, id, after)
	}
	limit, err := limitParam(c)
	if err != nil {
		return err
	}
	_, ctx, end := s.share(c)
	defer end()
	if stored := r.Header.Get(HeaderStored); stored != "" {
		return s.eventsToStore(c, ctx, id, stored, after, limit)
	}
	events, hasMore, err := page(ctx, id, after, limit)
	if err != nil {
		return err
	}
	if clean {
		without, err := s.o.Sessions.Cleaner(id)
		if err != nil {
			return err
		}
		for i := range events {
			events[i].Message = cleaned(events[i].Message, without)
		}
	}
	return writeEvents(c, events, hasMore, nil)
}

// cleaned returns a message without secrets. One that would be no JSON any more, because a value
// of the session is also a part of its form, is left out.
func cleaned(message json.RawMessage, without func(text string) string) json.RawMessage {
	if b := json.RawMessage(without(string(message))); json.Valid(b) {
		return b
	}
	return json.RawMessage(`"` + secret.Removed + `"`)
}

// writeEvents answers with a page of events. upTo is nil but for who stores them.
func writeEvents(c echo.Context, events []runtime.Event, hasMore bool, upTo *uint64) error {
	c.Response().Header().Set("Cache-Control", "no-store")
	return writeDocument(c, pageOf(events, hasMore, upTo))
}

// pageOf returns a page of events as JSON, with a newline behind it.
func pageOf(events []runtime.Event, hasMore bool, upTo *uint64) []byte {
	size := 64
	for _, ev := range events {
		size += len(ev.Message) + 128
	}
	b := append(make([]byte, 0, size), `{"events":[`...)
	for i, ev := range events {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendEvent(b, ev)
	}
	b = append(b, `],"hasMore":`...)
	b = strconv.AppendBool(b, hasMore)
	if upTo != nil {
		b = strconv.AppendUint(append(b, `,"upTo":`...), *upTo, 10)
	}
	return append(b, "}\n"...)
}

// appendEvent writes an event with its message's own bytes.
func appendEvent(dst []byte, ev runtime.Event) []byte {
	dst = append(dst, `{"seq":`...)
	dst = strconv.AppendUint(dst, ev.Seq, 10)
	dst = append(dst, `,"time":"`...)
	dst = ev.Time.UTC().AppendFormat(dst, time.RFC3339Nano)
	dst = append(dst, `","direction":"`...)
	dst = append(dst, ev.Direction...)
	dst = append(dst, `","message":`...)
	if len(ev.Message) == 0 {
		dst = append(dst, "null"...)
	}
	dst = append(dst, ev.Message...)
	return append(dst, '}')
}

// streamEvents writes events until the client leaves or the server stops.
func (s *Server) streamEvents(c echo.Context, id string, after uint64) error {
	// What is wrong from the start must be a status code, which cannot be told
	// from the iterator: it waits when there is nothing yet.
	if _, err := s.o.Sessions.Session(id); err != nil {
		return err
	}
	share, ctx, end := s.share(c)
	defer end()
	if _, _, err := s.o.Sessions.Events(ctx, id, after, 1); err != nil {
		return err
	}
	share.GiveAll()
	return follow(s, c, func(ctx context.Context) iter.Seq2[runtime.Event, error] {
		return s.o.Sessions.FollowEvents(ctx, id, after)
	}, (*eventWriter).event, func(ev runtime.Event) int { return runtime.EventBytes(ev.Message) })
}

// follow writes what is yielded as an event stream until the client leaves or the server
// stops. size is what an event has of the request's memory. An error after the first event is an event named error with a problem document.
func follow[T any](s *Server, c echo.Context, from func(ctx context.Context) iter.Seq2[T, error], put func(*eventWriter, T), size func(T) int) error {
	share, ctx, end := s.share(c)
	defer end()
	r := c.Request()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.stop, cancel)()
	out := newEventWriter(c.Response(), share)
	h := c.Response().Header()
	h.Set("Content-Type", sse.ContentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	c.Response().WriteHeader(http.StatusOK)
	if err := out.flush(); err != nil {
		return nil // the client is gone: there is nobody to tell
	}

	events := make(chan T, ahead)
	sent := make(chan struct{}, 1) // a large event was, before which no other one is read
	var failed error               // set before events is closed
	var reader sync.WaitGroup
	reader.Go(func() {
		defer close(events)
		for ev, err := range from(ctx) {
			if err != nil {
				failed = err
				return
			}
			select {
			case events <- ev:
			case <-ctx.Done():
				return
			}
			if size(ev) <= largeEvent {
				continue
			}
			select {
			case <-sent:
			case <-ctx.Done():
				return
			}
		}
	})
	defer reader.Wait()
	defer cancel()

	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		select {
		case ev, ok := <-events:
			if !ok {
				if failed != nil && ctx.Err() == nil {
					out.fail(s.shown(r, failed))
				}
				return nil
			}
			put(out, ev)
			if out.held += size(ev); size(ev) > largeEvent {
				if out.flush() != nil {
					return nil
				}
				share.GiveAll() // what was read from the file for it, too
				sent <- struct{}{}
				continue
			}
			if len(events) > 0 && len(out.buf) < pieceBytes {
				continue
			}
		case <-beat.C:
			out.buf = append(out.buf, sse.Heartbeat...)
		case <-ctx.Done():
			return nil
		}
		if out.flush() != nil {
			return nil
		}
	}
}

// eventWriter collects events and writes them together.
type eventWriter struct {
	w   http.ResponseWriter
	buf []byte
	ev  []byte

	takes *deadline.Deadline
	share *memory.Share // may be nil
	held  int           // of it, by what was collected
}

func newEventWriter(w http.ResponseWriter, share *memory.Share) *eventWriter {
	return &eventWriter{w: w, takes: takesOf(w), share: share}
}

func (w *eventWriter) event(ev runtime.Event) {
	w.ev = appendEvent(w.ev[:0], ev)
	w.buf = sse.AppendEvent(w.buf, ev.Seq, w.ev)
}

// change adds a change of the list of sessions.
func (w *eventWriter) change(c runtime.SessionChange) {
	if b, err := schema.Encode(c); err == nil { // it has no values that cannot be encoded
		w.buf = sse.AppendEvent(w.buf, c.Position, b)
	}
}

func (w *eventWriter) fail(p *problem.Error) {
	w.named("error", p)
	_ = w.flush() // the stream ends in either case
}

// named adds an event that has a name and no id.
func (w *eventWriter) named(name string, v any) {
	var data bytes.Buffer // one line: JSON has no other line ends than Encode's last
	enc := json.NewEncoder(&data)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		return
	}
	w.buf = append(append(append(w.buf, "event: "...), name...), "\ndata: "...)
	w.buf = append(append(w.buf, data.Bytes()...), '\n')
}

// flush writes what was collected, in bounded time.
func (w *eventWriter) flush() error {
	for rest := w.buf; ; {
		w.takes.Extend()
		if len(rest) == 0 {
			break
		}
		n, err := w.w.Write(rest[:min(len(rest), pieceBytes)])
		w.share.Moved(n)
		if err != nil {
			return err
		}
		rest = rest[n:]
	}
	if w.buf = w.buf[:0]; cap(w.buf) > largeEvent {
		w.buf, w.ev = nil, nil
	}
	w.share.Give(w.held)
	w.held = 0
	return http.NewResponseController(w.w).Flush()
}
