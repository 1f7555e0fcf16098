package main

import (
	"fmt"
	"io"
	"sync"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/adapters/install"
)

// meter shows on a terminal how far a transfer is. A nil meter shows nothing.
type meter struct {
	view *progressView
	now  install.Progress
}

// newMeter returns nil unless there is a terminal to show it on.
func newMeter(std stdio, verb, what string, total int64) *meter {
	if !terminal(std.err) {
		return nil
	}
	return &meter{newProgressView(std), install.Progress{Source: "fs", Step: install.Step(verb), Detail: what, Total: max(total, 0)}}
}

func (m *meter) end() {
	if m != nil {
		m.view.end()
	}
}

// at sets what is done.
func (m *meter) at(done int64) {
	if m != nil {
		m.now.Done = done
		m.view.report(m.now)
	}
}

// reader counts what is read.
func (m *meter) reader(r io.Reader) io.Reader {
	if m == nil {
		return r
	}
	return &metered{r, m}
}

type metered struct {
	io.Reader
	m *meter
}

func (r *metered) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.m.at(r.m.now.Done + int64(n))
	return n, err
}

// transfer shows how far a session is on its way: on a terminal by a line that changes,
// elsewhere by lines. A nil transfer shows nothing.
type transfer struct {
	std   stdio
	view  *progressView
	ended sync.Once
}

// newTransfer returns nil when somebody wants JSON and nobody watches.
func newTransfer(c *cli.Context, std stdio) *transfer {
	if c.Bool("json") && !terminal(std.err) {
		return nil
	}
	return &transfer{std: std, view: newProgressView(std)}
}

// watch returns what shows how far a session is; total is about how many bytes it has, 0 for
// not known.
func (t *transfer) watch(verb, what string, total int64) func(done int64) {
	if t == nil {
		return func(int64) {}
	}
	now := install.Progress{Source: "session", Step: install.Step(verb), Detail: what, Total: max(total, 0)}
	t.view.report(now)
	return func(done int64) {
		now.Done = done
		if now.Total > 0 {
			now.Done = min(done, now.Total) // the total is not exact
		}
		t.view.report(now)
	}
}

// end removes the line, and says what was sent where there was none. It may be called
// more than once.
func (t *transfer) end() {
	if t == nil {
		return
	}
	t.view.end()
	t.ended.Do(func() {
		t.view.mu.Lock()
		defer t.view.mu.Unlock()
		if now := t.view.now; !t.view.moving && now.Done > 0 {
			fmt.Fprintf(t.std.err, "%s: %s %s\n", now.Source, now.Step, megabytes(now.Done))
		}
	})
}
