//go:build unix

package fs

import (
	"os"
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

// crossDevice reports whether a rename failed because the places are on
// different file systems.
const errCrossDevice = syscall.EXDEV
