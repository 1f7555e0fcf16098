package control

import (
	"github.com/labstack/echo/v4"

	"sandboxagent.dev/sandbox-agent/runtime"
)

type permissionsBody struct {
	Permissions []runtime.Grant `json:"permissions"`
}

type forgottenBody struct {
	Forgotten []runtime.Grant `json:"forgotten"`
}

// listPermissions lists what clients have allowed a session's agent for more than one call.
func (s *Server) listPermissions(c echo.Context) error {
	id, err := pathParam(c, "id")
	if err != nil {
		return err
	}
	list, err := s.o.Sessions.Permissions(id)
	if err != nil {
		return err
	}
	return s.writeJSON(c, permissionsBody{list})
}

// forgetPermissions takes back all of it that can be.
func (s *Server) forgetPermissions(c echo.Context) error { return s.forget(c) }

// forgetPermission takes one back.
func (s *Server) forgetPermission(c echo.Context) error {
	grant, err := pathParam(c, "grant")
	if err != nil {
		return err
	}
	return s.forget(c, grant)
}

func (s *Server) forget(c echo.Context, grants ...string) error {
	id, err := pathParam(c, "id")
	if err != nil {
		return err
	}
	forgotten, err := s.o.Sessions.ForgetPermissions(c.Request().Context(), id, grants...)
	if err != nil {
		return err
	}
	return s.writeJSON(c, forgottenBody{forgotten})
}
