//go:build unix

package main

import (
	"os"
	"syscall"
)

// detached keeps a child from the terminal and the signals of this program.
func detached() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }

// askToEnd asks a process to end in order.
func askToEnd(p *os.Process) error { return p.Signal(syscall.SIGTERM) }
