package process

import (
	"errors"
	"os"
	"syscall"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"sandboxagent.dev/sandbox-agent/internal/process"
)

// openTerminal makes a terminal: own is the gateway's end, tty the program's.
func openTerminal(cols, rows int) (own, tty *os.File, err error) {
	blocking, tty, err := pty.Open()
	if err != nil {
		if errors.Is(err, pty.ErrUnsupported) {
			return nil, nil, errorf(Unsupported, "there are no terminals on this system")
		}
		return nil, nil, wrap(Busy, err, "open a terminal")
	}
	defer blocking.Close()
	// The library's file blocks a thread, and Close would wait for a read.
	fd, err := unix.FcntlInt(blocking.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		_ = tty.Close()
		return nil, nil, wrap(Busy, err, "open a terminal")
	}
	own = os.NewFile(uintptr(fd), "terminal")
	if err := setSize(own, cols, rows); err != nil {
		return nil, nil, errors.Join(err, own.Close(), tty.Close())
	}
	return own, tty, nil
}

func setSize(f *os.File, cols, rows int) error {
	return control(f, func(fd int) error {
		return unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: uint16(cols), Row: uint16(rows)})
	})
}

// control runs a system call on a file without making it block.
func control(f *os.File, call func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	if err := raw.Control(func(fd uintptr) { result = call(int(fd)) }); err != nil {
		return err
	}
	return result
}

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
		return errorf(Invalid, "there is no signal %q; it is one of %v", name, process.SignalNames())
	}
	if err := p.terminal(); err != nil {
		return err
	}
	group := 0
	err := control(p.pty, func(fd int) (err error) {
		group, err = unix.IoctlGetInt(fd, unix.TIOCGPGRP)
		return err
	})
	if err != nil || group <= 1 {
		return p.Signal(name)
	}
	if err := syscall.Kill(-group, s); err != nil {
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

// maxViewers bounds the viewers of one terminal; more are refused.
const maxViewers = 64
