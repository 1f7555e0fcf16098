package fleet

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"iter"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/sse"
	"sandboxagent.dev/sandbox-agent/control/transcript"
	"sandboxagent.dev/sandbox-agent/fleet/replica"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/runtime"
)

const (
	mostEvents = 1000    // in a page
	pageBytes  = 8 << 20 // of a page of events, and one event more
	maxReading = 16      // transcripts that are written at one time; more are refused
	heldBack   = 64 << 10
)

// during returns the context of a request that takes its time: it ends with the request, with
// the token that allowed it, and with the hub.
func (h *Hub) during(r *http.Request, c call) (ctx context.Context, done func()) {
	ctx, cancel := context.WithCancelCause(r.Context())
	stop := h.whenOver(c, cancel)
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// whenOver calls end, with why, when the hub ends or the token that allowed a request, until stop is called.
func (h *Hub) whenOver(c call, end func(why error)) (stop func()) {
	unhook := context.AfterFunc(h.stop, func() { end(errEnding) })
	unlet := func() bool { return false }
	if c.over != nil {
		unlet = context.AfterFunc(c.over, func() { end(context.Cause(c.over)) })
	}
	return func() {
		unlet()
		unhook()
	}
}

// endOf is the problem of a request whose context has ended.
func endOf(ctx context.Context) error {
	if p, ok := errors.AsType[*problem.Error](context.Cause(ctx)); ok {
		return p
	}
	return problem.Wrap(problem.Unavailable, context.Cause(ctx), "the request was given up")
}

// unreadable is the problem of a request for which the store could not be read. One that is a problem already stays it.
func unreadable(ctx context.Context, err error) error {
	switch p, known := errors.AsType[*problem.Error](err); {
	case ctx.Err() != nil:
		return endOf(ctx)
	case known:
		return p
	case errors.Is(err, store.ErrRemoved):
		return problem.Wrap(problem.SessionNotFound, err, "the session is not there any more")
	}
	return problem.Wrap(problem.Unavailable, err, "the hub cannot read its store")
}

// getEvents answers with a page of the events that the hub has of a session.
func (h *Hub) getEvents(w http.ResponseWriter, r *http.Request, c call) error {
	s, state, err := h.sessionOf(r, c)
	if err != nil {
		return err
	}
	accept := strings.ToLower(r.Header.Get("Accept"))
	follows := strings.Contains(accept, sse.ContentType) && !strings.Contains(accept, "application/json") && !strings.Contains(accept, "*/*")
	q := r.URL.Query()
	version, err := numberParam(q, "acp", 1, 1, 2)
	if err != nil {
		return err
	}
	if follows || version != 1 {
		if s, state, err = h.sessionThere(r, c); err != nil {
			return err
		}
	}
	switch {
	case !follows && version == 1:
		if err := queries.Check(r, "/v2/sessions/{id}/events"); err != nil {
			return err
		}
	case h.atNode(s, state):
		return h.toNodeOf(s, w, r, c)
	default:
		return problem.New(problem.NotSupported, "%s is not there, and of what the hub has it gives pages, in version 1 of ACP", s.Node)
	}
	after, err := numberParam(q, "after", 0, 0, 1<<62)
	if err != nil {
		return err
	}
	limit, err := numberParam(q, "limit", 100, 1, mostEvents)
	if err != nil {
		return err
	}
	ctx, done := h.during(r, c)
	defer done()
	var b bytes.Buffer
	b.WriteString(`{"events":[`)
	count, more := uint64(0), false
	for l, err := range replica.Lines(ctx, h.o.Store, s.ReplicaID, after) {
		if err != nil {
			return unreadable(ctx, err)
		}
		if l.Gap && count == 0 && l.Seq > after+1 {
			return problem.New(problem.EventsExpired, "the events up to %d were let go of by the node before they could be copied: the oldest behind them is %d", l.Seq-1, l.Seq).
				With("oldestSeq", l.Seq)
		}
		if more = count == limit || b.Len() > pageBytes || l.Gap && count > 0; more {
			break
		}
		if count > 0 {
			b.WriteByte(',')
		}
		b.Write(l.Text)
		count++
	}
	b.WriteString(`],"hasMore":` + strconv.FormatBool(more) + "}\n")
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(b.Bytes()) // a client that is gone needs no answer
	return nil
}

// getTranscript writes what the hub has of a session for people to read, and what it has not.
func (h *Hub) getTranscript(w http.ResponseWriter, r *http.Request, c call) error {
	q := r.URL.Query()
	o := transcript.Options{Format: cmp.Or(transcript.Format(q.Get("format")), transcript.Markdown)}
	if !slices.Contains(transcript.Formats, o.Format) {
		return invalidParam("format", "format must be one of %v, not %q", transcript.Formats, o.Format)
	}
	for name, p := range map[string]*bool{"thoughts": &o.Thoughts, "keepSecrets": &o.KeepSecrets} {
		if text := q.Get(name); text != "" {
			var err error
			if *p, err = strconv.ParseBool(text); err != nil {
				return invalidParam(name, "%s must be true or false, not %q", name, text)
			}
		}
	}
	var err error
	if o.Redact, err = transcript.Patterns(q["redact"]); err != nil {
		return invalidParam("redact", "%v", err)
	}
	s, state, err := h.sessionOf(r, c)
	if err != nil {
		return err
	}
	shown, err := h.sessionShown(r.Context(), s, state, true)
	if err != nil {
		return err
	}
	select {
	case h.reading <- struct{}{}:
		defer func() { <-h.reading }()
	default:
		return problem.New(problem.TooManyRequests, "%d transcripts are being written: try again when some are done", maxReading)
	}
	ctx, done := h.during(r, c)
	defer done()
	o.Missing, o.MayMiss = shown.Replica.Missing, shown.Replica.MayMiss
	out := w.Header()
	out.Set("Content-Type", o.Format.ContentType())
	out.Set("Cache-Control", "no-store")
	out.Set("Content-Security-Policy", dataPolicy)
	held := bufio.NewWriterSize(w, heldBack)
	err = transcript.Write(held, o, transcript.Session{
		ID: shown.ID, Title: cmp.Or(shown.Title, shown.Gist), Agent: shown.Agent, Model: shown.Model, Cwd: shown.Cwd, Created: shown.CreatedAt, Updated: shown.UpdatedAt,
	}, h.events(ctx, s, 0, shown.EventCount))
	if err == nil {
		err = held.Flush()
	}
	if rec, ok := w.(*recorder); err != nil && ok && rec.status != 0 {
		h.log.Debug("a transcript ended early", "session", s.Session, "node", s.Node, "err", err)
		panic(http.ErrAbortHandler) // it must not look whole
	}
	if err != nil {
		return unreadable(ctx, err)
	}
	return nil
}

// events yields what a replica has of a session behind an event, to the one numbered last. In the place of those that are
// missing between two, for the node let go of them before they were copied or had lost them, stands one that says so.
// Its errors are problems; those with a number are of a line that cannot be read, and others follow.
func (h *Hub) events(ctx context.Context, s *store.Session, after, last uint64) iter.Seq2[runtime.Event, error] {
	return func(yield func(runtime.Event, error) bool) {
		before := after
		for l, err := range replica.Lines(ctx, h.o.Store, s.ReplicaID, after) {
			if err != nil {
				yield(runtime.Event{}, unreadable(ctx, err))
				return
			}
			if l.Seq > last {
				return
			}
			ev, err := replica.EventOf(l.Text)
			if err != nil {
				before = l.Seq
				if !yield(runtime.Event{Seq: before}, ofHub(err)) {
					return
				}
				continue
			}
			gap := l.Gap && before > 0 && l.Seq > before+1
			switch first, lost := ev.Lost(); {
			case lost && (gap || first <= before): // as far as nothing else tells of them
				ev = runtime.Missing(s.Session, before+1, l.Seq, ev.Time)
			case gap:
				if !yield(runtime.Missing(s.Session, before+1, l.Seq-1, ev.Time), nil) {
					return
				}
			}
			before = l.Seq
			if !yield(ev, nil) {
				return
			}
		}
	}
}
