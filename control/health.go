package control

import (
	"errors"
	"net/http"
	goruntime "runtime"

	"github.com/labstack/echo/v4"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

type statusBody struct {
	Status string `json:"status"`
}

type versionBody struct {
	Version         string `json:"version"`
	ProtocolVersion int    `json:"protocolVersion"` // of ACP
	GoVersion       string `json:"goVersion"`
	OS              string `json:"os"`
	Arch            string `json:"arch"`
	Instance        string `json:"instance,omitempty"`
}

var healthy = []byte(`{"status":"ok"}` + "\n")

// getHealth says that the process answers. Probes call it often, so it looks at
// nothing.
func (s *Server) getHealth(c echo.Context) error {
	c.Response().Header().Set("Cache-Control", "no-store")
	return c.Blob(http.StatusOK, "application/json", healthy)
}

// getReady says whether new work is accepted.
func (s *Server) getReady(c echo.Context) error {
	if s.draining.Load() {
		return errStopping()
	}
	if err := s.o.Sessions.Ready(); err != nil {
		if p, ok := errors.AsType[*problem.Error](err); ok && p.Kind == problem.Unavailable {
			return p
		}
		return problem.Wrap(problem.Unavailable, err, "the gateway is not ready")
	}
	return s.writeJSON(c, statusBody{"ready"})
}

func (s *Server) getVersion(c echo.Context) error {
	return s.writeJSON(c, versionBody{
		Version: s.o.Version, ProtocolVersion: 1,
		GoVersion: goruntime.Version(), OS: goruntime.GOOS, Arch: goruntime.GOARCH, Instance: s.instance,
	})
}
