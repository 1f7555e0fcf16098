package control

import (
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

type sessionsBody struct {
	Sessions   []runtime.SessionInfo `json:"sessions"`
	NextCursor string                `json:"nextCursor,omitempty"`
}

func (s *Server) listSessions(c echo.Context) error {
	limit, err := limitParam(c)
	if err != nil {
		return err
	}
	page, next, err := s.o.Sessions.Sessions(runtime.SessionFilter{
		Cwd: c.QueryParam("cwd"), Agent: c.QueryParam("agent"), Cursor: c.QueryParam("cursor"), Limit: limit,
	})
	if err != nil {
		return err
	}
	if page == nil {
		page = []runtime.SessionInfo{}
	}
	return writeJSON(c, sessionsBody{page, next})
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
	return writeJSON(c, info)
}

func (s *Server) deleteSession(c echo.Context) error {
	id, err := pathParam(c, "id")
	if err != nil {
		return err
	}
	if err := s.o.Sessions.DeleteSession(c.Request().Context(), id); err != nil {
		return err
	}
	return c.NoContent(http.StatusNoContent)
}

func (s *Server) closeSession(c echo.Context) error {
	id, err := pathParam(c, "id")
	if err != nil {
		return err
	}
	if err := s.o.Sessions.CloseSession(c.Request().Context(), id); err != nil {
		return err
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
