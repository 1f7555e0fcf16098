package control

import (
	"cmp"
	"context"
	"errors"
	"io"
	"iter"
	"slices"

	"github.com/labstack/echo/v4"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/control/transcript"
	"sandboxagent.dev/sandbox-agent/internal/memory"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// getTranscript writes a session's log for people to read, up to what it has now.
func (s *Server) getTranscript(c echo.Context) error {
	id, err := pathParam(c, "id")
	if err != nil {
		return err
	}
	o := transcript.Options{Format: transcript.Format(c.QueryParam("format"))}
	if o.Format == "" {
		o.Format = transcript.Markdown
	}
	if !slices.Contains(transcript.Formats, o.Format) {
		return problem.New(problem.InvalidRequest, "format must be one of %s, not %q", transcript.FormatNames(), o.Format).With("parameter", "format")
	}
	if err := flags(c, map[string]*bool{"thoughts": &o.Thoughts, "keepSecrets": &o.KeepSecrets}); err != nil {
		return err
	}
	if o.Redact, err = transcript.Patterns(c.QueryParams()["redact"]); err != nil {
		return problem.New(problem.InvalidRequest, "%v", err).With("parameter", "redact")
	}
	info, err := s.o.Sessions.Session(id)
	if err != nil {
		return err
	}
	h := c.Response().Header()
	h.Set("Content-Type", o.Format.ContentType())
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'; img-src data:; style-src 'unsafe-inline'")
	about := transcript.Session{
		ID: info.ID, Title: cmp.Or(info.Title, info.Gist), Agent: info.Agent, Model: info.Model, Cwd: info.Cwd, Created: info.CreatedAt, Updated: info.UpdatedAt,
	}
	return s.sendWhole(c, "transcript", id, heldBack, func(w io.Writer) error {
		return transcript.Write(w, o, about, s.eventsUntil(c.Request().Context(), id, info.EventCount))
	})
}

// eventsUntil yields the events that a session has, to the one numbered last. Those
// that a log has no more are left out.
func (s *Server) eventsUntil(ctx context.Context, id string, last uint64) iter.Seq2[runtime.Event, error] {
	return func(yield func(runtime.Event, error) bool) {
		for after := uint64(0); after < last; {
			memory.From(ctx).GiveAll() // the page before was written
			events, more, err := s.o.Sessions.Events(ctx, id, after, maxPage)
			if p, ok := errors.AsType[*problem.Error](err); ok && p.Kind == problem.EventsExpired {
				if from, ok := p.Extensions["oldestSeq"].(uint64); ok && from > after+1 {
					after = from - 1
					continue
				}
			}
			if err != nil {
				yield(runtime.Event{}, err)
				return
			}
			for _, ev := range events {
				after = ev.Seq
				if ev.Seq > last || !yield(ev, nil) {
					return
				}
			}
			if !more || len(events) == 0 {
				return
			}
		}
	}
}
