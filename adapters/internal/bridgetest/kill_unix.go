//go:build unix

package bridgetest

import "syscall"

// Kill ends a process at once.
func Kill(pid int) error { return syscall.Kill(pid, syscall.SIGKILL) }

// Stop has a process do nothing any more.
func Stop(pid int) error { return syscall.Kill(pid, syscall.SIGSTOP) }
