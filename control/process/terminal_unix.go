//go:build unix

package process

import (
	"errors"
	"os"
	"syscall"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
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

// signalForeground sends a signal to what is in the foreground of a terminal, if
// that is known.
func signalForeground(f *os.File, s syscall.Signal) (known bool, err error) {
	group := 0
	err = control(f, func(fd int) (err error) {
		group, err = unix.IoctlGetInt(fd, unix.TIOCGPGRP)
		return err
	})
	if err != nil || group <= 1 {
		return false, nil
	}
	return true, syscall.Kill(-group, s)
}
