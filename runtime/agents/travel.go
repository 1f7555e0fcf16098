package agents

import (
	"path/filepath"

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
	program, _ := a.locate(n.Version)
	return a.options(program, n)
}

func (a *Agent) options(program adapters.Program, n Needs) adapters.Options {
	o := adapters.Options{Logger: a.log, Program: program, Env: n.Env, Credentials: n.Credentials}
	if a.set.o.StateDir != "" {
		o.StateDir = filepath.Join(a.set.o.StateDir, a.id)
	}
	return o
}
