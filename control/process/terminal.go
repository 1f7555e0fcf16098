package process

import (
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/internal/process"
)

func (p *Process) terminal() error {
	switch {
	case p.pty == nil:
		return errorf(NoTerminal, "the process has no terminal: start it with tty")
	case p.isEnded():
		return errorf(Ended, "the process has ended")
	}
	return nil
}

// Resize sets the terminal's size, of which the program hears by SIGWINCH. Of
// several viewers the last one to resize decides.
func (p *Process) Resize(cols, rows int) error {
	if err := checkSize(cols, rows); err != nil {
		return err
	}
	if err := p.terminal(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := setSize(p.pty, cols, rows); err != nil {
		return errorf(Ended, "the process has ended")
	}
	p.cols, p.rows = cols, rows
	return nil
}

// Interrupt sends a signal to what is in the foreground of the terminal, as its
// keys do.
func (p *Process) Interrupt(name string) error {
	s, ok := process.SignalNamed(name)
	if !ok {
		return errorf(Invalid, "there is no signal %q; it is one of %s", name, strings.Join(process.SignalNames(), ", "))
	}
	if err := p.terminal(); err != nil {
		return err
	}
	known, err := signalForeground(p.pty, s)
	if !known {
		return p.Signal(name)
	}
	if err != nil {
		return wrap(Ended, err, "send %s to what is in the foreground", name)
	}
	return nil
}

// View counts a viewer of the terminal until leave is called.
func (p *Process) View() (leave func(), err error) {
	if p.pty == nil {
		return nil, errorf(NoTerminal, "the process has no terminal: start it with tty, or follow its logs")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.viewers >= maxViewers {
		return nil, errorf(Busy, "%d clients view the terminal, which is the most", maxViewers)
	}
	p.viewers++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.viewers--
	}, nil
}

// Show notes that a viewer is shown the output up to a position. It is called before that one
// has it. It is followed by one of seen, when the viewer has it, and undo, when it does not get it.
func (p *Process) Show(to uint64) (seen, undo func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.showing = append(p.showing, to)
	end := func(shown uint64) {
		p.mu.Lock()
		defer p.mu.Unlock()
		at := slices.Index(p.showing, to)
		p.showing = slices.Delete(p.showing, at, at+1)
		p.shown = max(p.shown, shown)
	}
	return func() { end(to) }, func() { end(0) }
}

// Shown is the position behind the last byte that some viewer has been shown.
func (p *Process) Shown() uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return max(p.shown, slices.Max(append([]uint64{0}, p.showing...)))
}

// maxViewers bounds the viewers of one terminal; more are refused.
const maxViewers = 64
