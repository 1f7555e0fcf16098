package agents

import (
	"context"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// locate finds the agent's program without asking the network.
func (a *Agent) locate(version string) (adapters.Program, bool) {
	if l, ok := a.adapter.(adapters.Locator); ok {
		p, err := l.Locate()
		return p, err == nil
	}
	name := a.adapter.Info().Program
	if name == "" {
		return adapters.Program{}, true
	}
	if a.set.o.Installer == nil {
		return adapters.Program{}, false
	}
	return a.set.o.Installer.Find(name, version)
}

// Installed reports whether the agent's program is on this machine.
func (a *Agent) Installed() bool {
	_, ok := a.locate("")
	return ok
}

// program finds the agent's program and installs it when it is missing and may
// be installed. An installation takes as long as it takes; the end of the start
// that wants it ends it.
func (a *Agent) program(ctx context.Context, version string) (adapters.Program, error) {
	if l, ok := a.adapter.(adapters.Locator); ok {
		p, err := l.Locate()
		if err != nil {
			return p, problem.Wrap(problem.AgentNotInstalled, err, "cannot start agent %s", a.id)
		}
		return p, nil
	}
	if p, ok := a.locate(version); ok {
		return p, nil
	}
	name := a.adapter.Info().Program
	command := "sandbox-agent agents install " + name
	if version != "" {
		command += " --agent-version " + version
	}
	if a.set.o.Installer == nil || a.set.o.RequirePreinstall {
		return adapters.Program{}, problem.New(problem.AgentNotInstalled,
			"agent %s is not installed: run `%s`, or POST /v2/agents/%s/install", a.id, command, a.id).With("command", command)
	}
	a.log.Info("install agent on first use", "version", version)
	p, err := a.set.o.Installer.Install(ctx, name, version, a.announce())
	a.mu.Lock()
	a.progress = nil
	a.mu.Unlock()
	if err != nil {
		return p, err
	}
	a.log.Info("agent installed", "version", p.Version, "source", p.Source)
	return p, nil
}

// listen tells f of installations until the returned function is called, of one in
// progress at once.
func (a *Agent) listen(f func(adapters.InstallProgress)) (stop func()) {
	a.mu.Lock()
	a.listenerN++
	n := a.listenerN
	a.listeners[n] = f
	now := a.progress
	a.mu.Unlock()
	if now != nil {
		f(*now)
	}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.listeners, n)
	}
}

// progressEvery bounds how often a download's progress is told.
const progressEvery = 200 * time.Millisecond

// announce returns what tells everybody who waits for the installation of its
// progress: every step, and within a step not more often than progressEvery.
func (a *Agent) announce() func(adapters.InstallProgress) {
	var mu sync.Mutex
	var last adapters.InstallProgress
	var at time.Time
	return func(p adapters.InstallProgress) {
		mu.Lock()
		same := p.Step == last.Step && p.Source == last.Source && p.Detail == last.Detail
		if same && time.Since(at) < progressEvery && (p.Total == 0 || p.Done < p.Total) {
			mu.Unlock()
			return
		}
		last, at = p, time.Now()
		mu.Unlock()
		p.Agent = a.id
		a.mu.Lock()
		a.progress = &p
		listeners := make([]func(adapters.InstallProgress), 0, len(a.listeners))
		for _, f := range a.listeners {
			listeners = append(listeners, f)
		}
		a.mu.Unlock()
		for _, f := range listeners {
			f(p)
		}
	}
}
