package control

import (
	"strings"

	"github.com/labstack/echo/v4"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/runtime"
)

type agentsBody struct {
	Agents []runtime.AgentInfo `json:"agents"`
}

func (s *Server) agents() []runtime.AgentInfo {
	list := s.o.Sessions.Agents()
	out := make([]runtime.AgentInfo, len(list)) // an empty list is [] and not null
	for i, a := range list {
		if a.Processes == nil {
			a.Processes = []runtime.ProcessInfo{}
		}
		out[i] = a
	}
	return out
}

func (s *Server) listAgents(c echo.Context) error { return s.writeJSON(c, agentsBody{s.agents()}) }

func (s *Server) getAgent(c echo.Context) error {
	id, err := pathParam(c, "agent")
	if err != nil {
		return err
	}
	var known []string
	for _, a := range s.agents() {
		if a.ID == id {
			return s.writeJSON(c, a)
		}
		known = append(known, a.ID)
	}
	return problem.New(problem.NotFound, "there is no agent %q; the agents are %s", id, strings.Join(known, ", ")).With("agent", id).With("agents", known)
}
