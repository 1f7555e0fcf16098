package agents

import (
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// Traveller returns what knows what the agent keeps of its sessions, nil for an agent that
// tells nobody.
func (a *Agent) Traveller() adapters.Traveller {
	t, _ := a.adapter.(adapters.Traveller)
	return t
}

// Options returns what a process with these needs would be opened with. It installs
// nothing: the program is the zero one when there is none.
func (a *Agent) Options(n Needs) (adapters.Options, error) {
	o, err := a.options(&n)
	if err != nil {
		return o, problem.Wrap(problem.Unavailable, err, "agent %s cannot be asked for what it keeps", a.id)
	}
	o.Program, _ = a.locate(n.Version)
	return o, nil
}
