package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters/install"
)

const methodInstallProgress = "_sandboxagent/agent/install_progress"

// installing shows a person how the installation goes on that a request waits
// for. It is safe for concurrent use.
type installing struct {
	std   stdio
	quiet bool // nothing is shown

	mu   sync.Mutex
	view *progressView // nil when nothing is installed
}

// receive takes every message of a link, in order. It reports whether the
// message is about an installation; any other ends the view of one.
func (i *installing) receive(m acp.Message) bool {
	if m.Method() != methodInstallProgress {
		i.end()
		return false
	}
	var p install.Progress
	if i.quiet || json.Unmarshal(m.Params(), &p) != nil {
		return true
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.view == nil {
		note(i.std, "installing "+p.Agent)
		i.view = newProgressView(i.std)
	}
	i.view.report(p)
	return true
}

// end removes what is shown.
func (i *installing) end() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.view != nil {
		i.view.end()
		i.view = nil
	}
}

// logInstalling writes the steps of an installation to a log: editors show it,
// and have no place for progress before there is a session.
type logInstalling struct {
	acp.Conn
	log  *slog.Logger
	last install.Progress // Read is called by one goroutine
}

// Read implements acp.Conn.
func (c *logInstalling) Read(ctx context.Context) (acp.Message, error) {
	m, err := c.Conn.Read(ctx)
	var p install.Progress
	if err != nil || m.Method() != methodInstallProgress || json.Unmarshal(m.Params(), &p) != nil {
		return m, err
	}
	if p.Source != c.last.Source || p.Step != c.last.Step {
		c.log.Info("installing", "agent", p.Agent, "source", p.Source, "step", p.Step)
	}
	c.last = p
	return m, nil
}
