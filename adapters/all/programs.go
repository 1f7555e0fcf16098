package all

import (
	"context"

	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/install"
)

// programs is an installer as the runtime knows it.
type programs struct{ in *install.Installer }

// Programs returns what finds and installs agents' programs with in.
func Programs(in *install.Installer) adapters.Installer { return programs{in} }

func (p programs) Find(agent, version string) (adapters.Program, bool) {
	i, ok := p.in.FindVersion(agent, version)
	return program(i), ok
}

func (p programs) Install(ctx context.Context, agent, version string, progress func(adapters.InstallProgress)) (adapters.Program, error) {
	req := install.Request{Agent: agent, Version: version}
	if progress != nil {
		req.Progress = func(s install.Progress) {
			progress(adapters.InstallProgress{Agent: s.Agent, Source: string(s.Source), Step: string(s.Step), Detail: s.Detail, Done: s.Done, Total: s.Total})
		}
	}
	res, err := p.in.Install(ctx, req)
	return program(res.Installation), err
}

func program(i install.Installation) adapters.Program {
	return adapters.Program{Path: i.Program, Args: i.Args, Env: i.Env, ACPArgs: i.ACPArgs, Version: i.Version, Source: string(i.Source)}
}
