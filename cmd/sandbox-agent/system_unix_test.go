//go:build unix

package main_test

import (
	"io/fs"
	"syscall"
)

const (
	sigStop = syscall.SIGSTOP
	sigCont = syscall.SIGCONT
)

func kill(pid int, sig syscall.Signal) error { return syscall.Kill(pid, sig) }

// ownGroup has a program be the first of a process group.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// ownerOf returns the user that a file belongs to.
func ownerOf(info fs.FileInfo) (uid int, ok bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(st.Uid), true
}
