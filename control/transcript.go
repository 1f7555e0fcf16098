package control

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"iter"
	"net/http"
	"slices"

	"github.com/labstack/echo/v4"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/control/transcript"
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
		return problem.New(problem.InvalidRequest, "format must be one of %v, not %q", transcript.Formats, o.Format).With("parameter", "format")
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
	r := fileRequest{Context: c}
	release, err := s.transfer(r)
	if err != nil {
		return err
	}
	defer release()
	out := newOutgoing(r)
	defer out.done()
	// Until this is full nothing is sent, so that a session which goes away meanwhile,
	// or a log that cannot be read, is answered with why.
	held := bufio.NewWriterSize(begun{out, c.Response()}, 64<<10)
	err = transcript.Write(held, o, transcript.Session{
		ID: info.ID, Title: cmp.Or(info.Title, info.Gist), Agent: info.Agent, Model: info.Model, Cwd: info.Cwd, Created: info.CreatedAt, Updated: info.UpdatedAt,
	}, s.eventsUntil(c.Request().Context(), id, info.EventCount))
	if err == nil {
		err = held.Flush()
	}
	if err != nil && c.Response().Committed {
		s.log.Warn("transcript ended early", "session", id, "err", err)
		panic(http.ErrAbortHandler) // so that nobody takes a part for the whole
	}
	return err
}

// begun writes the header before the first bytes of a body.
type begun struct {
	*outgoing
	response *echo.Response
}

// Write implements io.Writer.
func (b begun) Write(p []byte) (int, error) {
	if !b.response.Committed {
		b.WriteHeader(http.StatusOK)
	}
	return b.outgoing.Write(p)
}

// eventsUntil yields the events that a session has, to the one numbered last. Those
// that a log has no more are left out.
func (s *Server) eventsUntil(ctx context.Context, id string, last uint64) iter.Seq2[runtime.Event, error] {
	return func(yield func(runtime.Event, error) bool) {
		for after := uint64(0); after < last; {
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
