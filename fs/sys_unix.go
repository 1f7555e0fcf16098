//go:build unix

package fs

import (
	"os"
	"os/exec"
	"syscall"
)

// nonblock keeps opening a pipe from waiting for its other side.
const nonblock = syscall.O_NONBLOCK

func inode(info os.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Ino)
	}
	return 0
}

// keepOwner gives f the owner of the file that it replaces. Only a privileged
// process can, and only for it there is a difference.
func keepOwner(f *os.File, old os.FileInfo) {
	st, ok := old.Sys().(*syscall.Stat_t)
	if ok && (int(st.Uid) != os.Geteuid() || int(st.Gid) != os.Getegid()) {
		_ = f.Chown(int(st.Uid), int(st.Gid))
	}
}

// ownGroup makes the end of a command that of all that it started.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}

// errCrossDevice is what a rename between file systems fails with.
const errCrossDevice = syscall.EXDEV
