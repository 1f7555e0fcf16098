//go:build unix

package docs_test

import "syscall"

// ownGroup has a program be the first of a process group, which endGroup ends.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func endGroup(first int) error { return syscall.Kill(-first, syscall.SIGKILL) }

// groupEnded is ESRCH when nobody is in the group any more.
func groupEnded(first int) error { return syscall.Kill(-first, 0) }
