package control

import (
	"io"

	"github.com/labstack/echo/v4"
)

// getRaw writes what was recorded of a session's agent and the gateway, up to what there is
// now. Nothing that looks like a key is in it: that was taken out as it was recorded.
func (s *Server) getRaw(c echo.Context) error {
	id, err := pathParam(c, "id")
	if err != nil {
		return err
	}
	raw, err := s.o.Sessions.Raw(c.Request().Context(), id)
	if err != nil {
		return err
	}
	defer func() { _ = raw.Close() }()
	h := c.Response().Header()
	h.Set("Content-Type", "application/x-ndjson")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	return s.sendWhole(c, "raw", id, heldBack, func(w io.Writer) error {
		_, err := io.Copy(w, raw)
		return err
	})
}
