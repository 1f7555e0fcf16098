package runtime

import (
	"context"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// locate finds the agent's program without asking the network.
func (a *agent) locate(version string) (adapters.Program, bool) {
	if l, ok := a.adapter.(adapters.Locator); ok {
		p, err := l.Locate()
		return p, err == nil
	}
	name := a.adapter.Info().Program
	if name == "" {
		return adapters.Program{}, true
	}
	if a.r.o.Installer == nil {
		return adapters.Program{}, false
	}
	return a.r.o.Installer.Find(name, version)
}

// installed reports whether the agent's program is on this machine.
func (a *agent) installed() bool {
	_, ok := a.locate("")
	return ok
}

// program finds the agent's program and installs it when it is missing and may
// be installed. An installation takes as long as it takes; the end of the start
// that wants it ends it.
func (a *agent) program(ctx context.Context, version string) (adapters.Program, error) {
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
	if a.r.o.Installer == nil || a.r.o.RequirePreinstall {
		return adapters.Program{}, problem.New(problem.AgentNotInstalled,
			"agent %s is not installed: run `%s`, or POST /v2/agents/%s/install", a.id, command, a.id).With("command", command)
	}
	a.r.log.Info("install agent on first use", "agent", a.id, "version", version)
	p, err := a.r.o.Installer.Install(ctx, name, version, a.announce())
	a.mu.Lock()
	a.progress = nil
	a.mu.Unlock()
	if err != nil {
		return p, err
	}
	a.r.log.Info("agent installed", "agent", a.id, "version", p.Version, "source", p.Source)
	return p, nil
}

// listen makes f hear of installations until the returned function is called,
// of one in progress at once.
func (a *agent) listen(f func(adapters.InstallProgress)) (stop func()) {
	a.mu.Lock()
	a.hearerN++
	n := a.hearerN
	a.hearers[n] = f
	now := a.progress
	a.mu.Unlock()
	if now != nil {
		f(*now)
	}
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.hearers, n)
	}
}

// progressEvery bounds how often a download's progress is told.
const progressEvery = 200 * time.Millisecond

// announce returns what tells everybody who waits for the installation of its
// progress: every step, and within a step not more often than progressEvery.
func (a *agent) announce() func(adapters.InstallProgress) {
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
		hearers := make([]func(adapters.InstallProgress), 0, len(a.hearers))
		for _, f := range a.hearers {
			hearers = append(hearers, f)
		}
		a.mu.Unlock()
		for _, f := range hearers {
			f(p)
		}
	}
}

// progressFrame is the notification that tells a client of an installation.
func progressFrame(p adapters.InstallProgress) []byte {
	b, err := schema.Encode(p)
	if err != nil {
		return nil
	}
	n := acp.NewNotification("_sandboxagent/agent/install_progress", b)
	return n.Frame()
}

// installing tells the client of an installation that it waits for.
func (c *Client) installing(p adapters.InstallProgress) {
	c.post(journal.Notice, progressFrame(p))
}
