package fs

import (
	"os"
	"syscall"
)

const procSuperMagic = 0x9fa0

// inProc reports whether f is in the process file system. Its files show the
// environment and the memory of processes, the gateway's token among them, and
// its links lead anywhere: under a root they are not for clients.
func inProc(f *os.File) bool {
	var st syscall.Statfs_t
	raw, err := f.SyscallConn()
	if err != nil {
		return false
	}
	var serr error
	if err := raw.Control(func(fd uintptr) { serr = syscall.Fstatfs(int(fd), &st) }); err != nil || serr != nil {
		return false
	}
	return int64(st.Type) == procSuperMagic
}
