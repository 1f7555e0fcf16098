package main

import (
	"os"
	"syscall"
)

// detached keeps a child from the console of this program.
func detached() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{CreationFlags: syscall.CREATE_NEW_PROCESS_GROUP}
}

// askToEnd ends a process: there is no signal by which one could be asked. Its agents end with it, as their job object does.
func askToEnd(p *os.Process) error { return p.Kill() }
