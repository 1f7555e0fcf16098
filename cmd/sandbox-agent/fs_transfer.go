package main

import (
	"io"

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
