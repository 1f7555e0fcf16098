package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"syscall"

	"github.com/labstack/echo/v4"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/internal/memory"
)

// handleError is the only place where the API's errors become answers.
func (s *Server) handleError(err error, c echo.Context) {
	if !c.Response().Committed {
		problem.Write(c.Response(), s.shown(c.Request(), err))
	}
}

// shown returns the problem that a client may see of an error, and logs what it
// may not.
func (s *Server) shown(r *http.Request, err error) *problem.Error {
	if p, ok := errors.AsType[*problem.Error](err); ok {
		return p
	}
	if refused, ok := errors.AsType[*acp.Error](err); ok { // by the agent
		return problem.New(problem.AgentError, "%s", refused.Message).With("code", refused.Code)
	}
	switch {
	case errors.Is(err, echo.ErrNotFound):
		return problem.New(problem.NotFound, "there is nothing at %s; /v2/openapi.json lists what there is", r.URL.Path)
	case errors.Is(err, echo.ErrMethodNotAllowed):
		return problem.New(problem.MethodNotAllowed, "%s does not accept %s; see the Allow header", r.URL.Path, r.Method)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return problem.New(problem.InsufficientStorage, "there is no room on the disk for it: free some, and try again")
	case r.Context().Err() == nil || !errors.Is(err, context.Canceled): // else the client has left, which ended it
		s.log.Error("request failed", "request_id", r.Header.Get(problem.RequestIDHeader), "method", r.Method, "path", r.URL.Path, "err", err)
	}
	return internal()
}

// internal is the problem for causes that only the log may show.
func internal() *problem.Error {
	return problem.New(problem.Internal, "the gateway could not handle the request; its log says why")
}

// serializer writes JSON without HTML escaping, to a client that is not waited for if it reads nothing.
type serializer struct{ s *Server }

// Serialize implements echo.JSONSerializer.
func (z serializer) Serialize(c echo.Context, v any, _ string) error {
	return z.s.counted(c, v, func(b []byte) error {
		writePieces(c.Response(), memory.From(c.Request().Context()), b)
		return nil
	})
}

// Deserialize implements echo.JSONSerializer. No route reads a JSON body.
func (serializer) Deserialize(echo.Context, any) error {
	return problem.New(problem.UnsupportedMediaType, "this request takes no body")
}

// writeJSON answers with a JSON document of the state at this moment.
func (s *Server) writeJSON(c echo.Context, v any) error {
	c.Response().Header().Set("Cache-Control", "no-store")
	return s.counted(c, v, func(b []byte) error { return writeDocument(c, b) })
}

// counted writes v, which nobody changes, as JSON. One that is large takes its memory of what all clients have together, for as long as its client takes it.
func (s *Server) counted(c echo.Context, v any, write func(b []byte) error) error {
	b, err := encoded(v)
	if err != nil {
		return err
	}
	if len(b) <= fewBytes {
		return write(b)
	}
	share, ctx, end := s.share(c)
	defer end()
	if room := len(b); !share.Try(room) {
		b = nil // nothing waits that is not counted: it is made once more when it has room
		if share.Take(ctx, room) != nil {
			if c.Request().Method == http.MethodGet && !c.Response().Committed {
				return errMemory()
			}
			share.Count(room) // of what is done already: who asked for it would do it once more
		}
		if b, err = encoded(v); err != nil {
			return err
		}
		share.Count(max(len(b)-room, 0))
	}
	return write(b)
}

// encoded returns v as a line of JSON.
func encoded(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode the answer: %w", err)
	}
	return b.Bytes(), nil
}
