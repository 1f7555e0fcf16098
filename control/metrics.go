package control

import (
	"github.com/labstack/echo/v4"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// getMetrics shows the metrics, in the form that the scraper asks for.
func (s *Server) getMetrics(c echo.Context) error {
	if s.o.Metrics == nil {
		return problem.New(problem.NotSupported, "this server keeps no metrics: start it without --no-metrics")
	}
	c.Response().Header().Set("Cache-Control", "no-store")
	s.o.Metrics.ServeHTTP(timed{c.Response(), takesOf(c.Response())}, c.Request())
	return nil
}
