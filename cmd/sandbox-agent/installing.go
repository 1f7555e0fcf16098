package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
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
	log   *slog.Logger
	last  install.Progress // Read is called by one goroutine
	plain atomic.Bool      // the editor does not know the gateway's own notifications
}

// Write implements acp.Conn. It asks the gateway for the steps in the editor's place.
func (c *logInstalling) Write(ctx context.Context, m acp.Message) error {
	if m.IsRequest() && m.Method() == acp.MethodInitialize {
		own, _ := rawjson.Member(m.Params(), "clientCapabilities", "_meta", acp.MetaKey)
		c.plain.Store(len(own) == 0 || rawjson.IsEmptyObject(own))
		m = acp.NewRequest(m.ID(), m.Method(), rawjson.SetMember(m.Params(), []byte("true"), "clientCapabilities", "_meta", acp.MetaKey, "installProgress"))
	}
	return c.Conn.Write(ctx, m)
}

// Read implements acp.Conn. Editors that do not know the gateway's own notifications
// are given none.
func (c *logInstalling) Read(ctx context.Context) (acp.Message, error) {
	for {
		m, err := c.Conn.Read(ctx)
		if err != nil {
			return m, err
		}
		c.note(m)
		if !c.plain.Load() || !m.IsNotification() || !strings.HasPrefix(m.Method(), "_sandboxagent/") {
			return m, nil
		}
	}
}

// note logs a step of an installation.
func (c *logInstalling) note(m acp.Message) {
	var p install.Progress
	if m.Method() != methodInstallProgress || json.Unmarshal(m.Params(), &p) != nil {
		return
	}
	if p.Source != c.last.Source || p.Step != c.last.Step {
		c.log.Info("installing", "agent", p.Agent, "source", p.Source, "step", p.Step)
	}
	c.last = p
}
