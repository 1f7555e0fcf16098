package install

import (
	"os"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// Status says what of one agent is on this machine.
type Status struct {
	Agent     string         `json:"agent"`
	InUse     *Installation  `json:"inUse,omitempty"` // what [Installer.Find] finds; nil when it finds nothing
	Installed []Installation `json:"installed"`       // every version in the data directory, the newest first
}

// Status returns what of one agent is on this machine. It runs nothing and asks
// no network. An agent that is neither known nor installed is a *problem.Error
// of kind unsupported_agent; one that only the ACP registry knows is known when
// a copy of the registry is stored.
func (in *Installer) Status(agent string) (Status, error) {
	if !agentID.MatchString(agent) {
		return Status{}, badID(agent)
	}
	s := Status{Agent: agent, Installed: []Installation{}}
	list, err := in.List()
	if err != nil {
		return s, problem.Wrap(problem.Internal, err, "what is installed of %s is not known", agent)
	}
	for _, i := range list {
		if i.Agent == agent {
			s.Installed = append(s.Installed, i)
		}
	}
	if i, ok := in.Find(agent); ok {
		s.InUse = &i
	}
	if s.InUse == nil && len(s.Installed) == 0 && !in.known(agent) {
		return s, in.unheardOf(agent)
	}
	return s, nil
}

// known reports whether the table or the stored copy of the registry has an
// agent.
func (in *Installer) known(agent string) bool {
	if _, ok := recipes[agent]; ok {
		return true
	}
	index, _, err := in.cachedIndex()
	if err != nil {
		return false
	}
	_, ok := index.entry(agent)
	return ok
}

// unheardOf is the problem of an agent that is not known and not installed.
func (in *Installer) unheardOf(agent string) *problem.Error {
	return problem.New(problem.UnsupportedAgent, "no agent %s is known: nothing of it is installed, it is none of %s, and no stored copy of the ACP registry lists it", agent, strings.Join(Known(), ", ")).With("agent", agent).With("agents", Known())
}

func badID(agent string) *problem.Error {
	return problem.New(problem.InvalidRequest, "%q is no agent's id; ids are lower-case letters, digits and dashes", agent)
}

func unknownAgent(agent string) *problem.Error {
	return problem.New(problem.UnsupportedAgent, "no agent %s is known: it is none of %s, and the ACP registry does not list it", agent, strings.Join(Known(), ", ")).With("agent", agent).With("agents", Known())
}

// BuiltIn is the source of agents that are part of this program. It is not one
// to ask.
const BuiltIn Source = "builtin"

// ours describes an agent that is part of this program.
func (in *Installer) ours(agent string) (Installation, bool) {
	self, err := os.Executable()
	i := in.foreign(agent, self)
	i.Source, i.Artifacts[0].Source, i.Verified = BuiltIn, BuiltIn, true
	i.Verification = Verification{How: ByBuild}
	return i, err == nil
}
