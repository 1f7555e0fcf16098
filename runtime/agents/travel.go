package agents

import (
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
func (a *Agent) Options(n Needs) adapters.Options {
	o := a.options(&n)
	o.Program, _ = a.locate(n.Version)
	return o
}
