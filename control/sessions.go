package control

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/labstack/echo/v4"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/runtime"
)

const (
	defaultPage = 100
	maxPage     = 1000
)

func (s *Server) listSessions(c echo.Context) error {
	limit, err := limitParam(c)
	if err != nil {
		return err
	}
	f := runtime.SessionFilter{
		Cwd: c.QueryParam("cwd"), Agent: c.QueryParam("agent"), Query: c.QueryParam("q"), Order: runtime.SessionOrder(c.QueryParam("sort")),
		Cursor: c.QueryParam("cursor"), Limit: limit,
	}
	for _, state := range c.QueryParams()["state"] {
		f.States = append(f.States, runtime.State(state))
	}
	page, err := s.o.Sessions.Sessions(c.Request().Context(), f)
	if err != nil {
		return err
	}
	return s.writeJSON(c, page)
}

// followSessions writes how the list of sessions changes.
func (s *Server) followSessions(c echo.Context) error {
	after, err := uintParam("after", c.QueryParam("after"), 0)
	if err != nil {
		return err
	}
	if last := c.Request().Header.Get("Last-Event-ID"); last != "" {
		if after, err = uintParam("Last-Event-ID", last, 0); err != nil {
			return err
		}
	}
	return follow(s, c, func(ctx context.Context) iter.Seq2[runtime.SessionChange, error] {
		return s.o.Sessions.FollowSessions(ctx, after)
	}, (*eventWriter).change, func(runtime.SessionChange) int { return 0 })
}

func (s *Server) getSession(c echo.Context) error {
	id, err := pathParam(c, "id")
	if err != nil {
		return err
	}
	info, err := s.o.Sessions.Session(id)
	if err != nil {
		return err
	}
	return s.writeJSON(c, info)
}

func (s *Server) deleteSession(c echo.Context) error {
	id, err := pathParam(c, "id")
	if err != nil {
		return err
	}
	went, err := s.o.Sessions.DeleteSession(c.Request().Context(), id)
	return done(c, went, err)
}

func (s *Server) closeSession(c echo.Context) error {
	id, err := pathParam(c, "id")
	if err != nil {
		return err
	}
	if c.QueryParams().Has(movedTo) || c.QueryParams().Has("lastSeq") || c.QueryParams().Has("edits") {
		return done(c, "", s.departSession(c, id))
	}
	went, err := s.o.Sessions.CloseSession(c.Request().Context(), id)
	return done(c, went, err)
}

// HeaderMovedTo says where a session went of which only what was left here was closed or deleted.
const HeaderMovedTo = "Sandbox-Agent-Moved-To"

// done answers what has no answer but that, and where the session is.
func done(c echo.Context, went string, err error) error {
	if err != nil {
		return err
	}
	if went != "" {
		c.Response().Header().Set(HeaderMovedTo, went)
	}
	return c.NoContent(http.StatusNoContent)
}

// pathParam returns a part of the path as the client meant it. The framework
// matches the escaped path when there is one and leaves its parts escaped.
func pathParam(c echo.Context, name string) (string, error) {
	v := c.Param(name)
	if c.Request().URL.RawPath == "" {
		return v, nil
	}
	plain, err := url.PathUnescape(v)
	if err != nil {
		return "", problem.New(problem.InvalidRequest, "the path is not escaped correctly").With("parameter", name)
	}
	return plain, nil
}

// limitParam returns the size of a page.
func limitParam(c echo.Context) (int, error) {
	n, err := uintParam("limit", c.QueryParam("limit"), defaultPage)
	if err != nil {
		return 0, err
	}
	if n < 1 || n > maxPage {
		return 0, problem.New(problem.InvalidRequest, "limit must be between 1 and %d", maxPage).With("parameter", "limit")
	}
	return int(n), nil
}

func uintParam(name, value string, absent uint64) (uint64, error) {
	if value == "" {
		return absent, nil
	}
	n, err := strconv.ParseUint(value, 10, 63)
	if err != nil {
		return 0, problem.New(problem.InvalidRequest, "%s must be a whole number, not %q", name, value).With("parameter", name)
	}
	return n, nil
}
