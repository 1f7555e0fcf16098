package control

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/acp/sse"
	"sandboxagent.dev/sandbox-agent/control/process"
)

const (
	logPage = 1 << 20  // about the most output in one answer
	logPart = 64 << 10 // and between two flushes of a stream
)

// logChunk is a piece of output.
type logChunk struct {
	Position uint64         `json:"position"`
	Time     time.Time      `json:"time"`
	Stream   process.Stream `json:"stream"`
	Data     []byte         `json:"data"` // base64
}

// logBody is a page of output.
type logBody struct {
	Chunks []logChunk `json:"chunks"`
	// Missed is how many bytes the log has let go between after and the first
	// chunk, of all streams.
	Missed  uint64 `json:"missed"`
	Next    uint64 `json:"next"`
	HasMore bool   `json:"hasMore"`
	Ended   bool   `json:"ended"` // nothing will follow
}

// missedBody tells a reader what it was too slow for.
type missedBody struct {
	Bytes uint64 `json:"bytes"`
}

// logQuery is which part of a log a request is about.
type logQuery struct {
	after   uint64
	streams []process.Stream // none are all
}

func (q *logQuery) wants(c process.Chunk) bool {
	return len(q.streams) == 0 || slices.Contains(q.streams, c.Stream)
}

func logQueryOf(r processRequest) (q logQuery, err error) {
	switch v := r.QueryParam("stream"); v {
	case "", "combined":
	case string(process.Stdout), string(process.Stderr), string(process.PTY):
		q.streams = []process.Stream{process.Stream(v)}
	default:
		return q, problem.New(problem.InvalidRequest, "stream must be stdout, stderr, combined or pty, not %q", v).With("parameter", "stream")
	}
	given := 0
	if v := r.QueryParam("after"); v != "" {
		given++
		if q.after, err = uintParam("after", v, 0); err != nil {
			return q, err
		}
	}
	if v := r.QueryParam("tail"); v != "" {
		given++
		n, err := uintParam("tail", v, 0)
		if err != nil {
			return q, err
		}
		q.after = r.p.Tail(int(min(n, 1<<31-1)), q.streams...)
	}
	if v := r.QueryParam("since"); v != "" {
		given++
		t, err := time.Parse(time.RFC3339Nano, v)
		if err != nil {
			return q, problem.New(problem.InvalidRequest, "since must be a time such as 2026-03-04T05:06:07Z, not %q", v).With("parameter", "since")
		}
		q.after = r.p.Since(t)
	}
	if given > 1 {
		return q, problem.New(problem.InvalidRequest, "give only one of after, tail and since")
	}
	return q, nil
}

// getProcessLogs returns a page of a process's output or, to who accepts an
// event stream, all of it as it comes.
func (s *Server) getProcessLogs(r processRequest) error {
	q, err := logQueryOf(r)
	if err != nil {
		return err
	}
	req := r.Request()
	if req.Method == http.MethodGet && strings.Contains(strings.ToLower(req.Header.Get("Accept")), sse.ContentType) {
		if last := req.Header.Get("Last-Event-ID"); last != "" {
			if q.after, err = uintParam("Last-Event-ID", last, 0); err != nil {
				return err
			}
		}
		return s.streamLogs(r, q)
	}
	part := r.p.Output(q.after, logPage)
	body := logBody{Chunks: []logChunk{}, Missed: part.Missed, Next: part.Next, Ended: part.Ended}
	if part.More != nil {
		select {
		case <-part.More:
			body.HasMore = true
		default:
		}
	}
	for _, c := range part.Chunks {
		if q.wants(c) {
			body.Chunks = append(body.Chunks, logChunk(c))
		}
	}
	return s.writeJSON(r, body)
}

// streamLogs writes output until the process has ended, the client leaves or
// the server stops. An event's id is the position behind it. A client that is
// behind what the log keeps is told by an event named missed.
func (s *Server) streamLogs(r processRequest, q logQuery) error {
	ctx, cancel := s.bounded(r.Request().Context())
	defer cancel()
	out := newEventWriter(r.Response(), nil)
	h := r.Response().Header()
	h.Set("Content-Type", sse.ContentType)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no")
	r.Response().WriteHeader(http.StatusOK)
	_ = out.followLog(ctx, r.p, q) // the client is gone: there is nobody to tell
	return nil
}

func (w *eventWriter) followLog(ctx context.Context, p *process.Process, q logQuery) error {
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		part := p.Output(q.after, logPart)
		if part.Missed > 0 {
			w.named("missed", missedBody{part.Missed})
		}
		for _, c := range part.Chunks {
			if !q.wants(c) {
				continue
			}
			data, err := schema.Encode(logChunk(c))
			if err != nil {
				return err
			}
			w.buf = sse.AppendEvent(w.buf, c.End(), data)
		}
		q.after = part.Next
		if part.Ended {
			w.named("exit", p.Info())
			return w.flush()
		}
		if err := w.flush(); err != nil {
			return err
		}
		select {
		case <-part.More:
		case <-beat.C:
			w.buf = append(w.buf, sse.Heartbeat...)
		case <-ctx.Done():
			return nil
		}
	}
}
