package install

import (
	"context"

	"sandboxagent.dev/sandbox-agent/adapters"
)

// Programs returns the installer as adapters know it. Equal installations that
// run at the same time take turns, and the second finds the first one's.
func (in *Installer) Programs() adapters.Installer { return programs{in} }

type programs struct{ in *Installer }

// Find implements adapters.Installer.
func (p programs) Find(agent, version string) (adapters.Program, bool) {
	i, ok := p.in.Find(agent)
	if ok && version != "" && i.Version != version && agentID.MatchString(agent) && checkVersion(version) == nil {
		// An older version that is still there does not have to be in use.
		var err error
		i, err = p.in.load(agent, version)
		ok = err == nil
	}
	if ok = ok && (version == "" || i.Version == version); ok && version != "" && i.Dir != "" {
		p.in.noteUse(agent, version)
	}
	return programOf(i), ok
}

// Install implements adapters.Installer.
func (p programs) Install(ctx context.Context, agent, version string, progress func(adapters.InstallProgress)) (adapters.Program, error) {
	req := Request{Agent: agent, Version: version, Beside: version != ""}
	if progress != nil {
		req.Progress = func(r Progress) {
			progress(adapters.InstallProgress{Agent: r.Agent, Source: string(r.Source), Step: string(r.Step), Detail: r.Detail, Done: r.Done, Total: r.Total})
		}
	}
	r, err := p.in.Install(ctx, req)
	return programOf(r.Installation), err
}

func programOf(i Installation) adapters.Program {
	return adapters.Program{Dir: i.Dir, Path: i.Program, Args: i.Args, Env: i.Env, ACPArgs: i.ACPArgs, Version: i.Version, Source: string(i.Source), Verified: string(i.Verification.How)}
}
