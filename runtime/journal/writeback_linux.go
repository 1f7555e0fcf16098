package journal

import (
	"os"
	"syscall"
)

const (
	syncRange = 7 // SYNC_FILE_RANGE_WAIT_BEFORE | WRITE | WAIT_AFTER
	dropPages = 4 // POSIX_FADV_DONTNEED
)

// writeOut has the kernel write a range of the file to disk and give up its
// pages. It is a hint: an error changes nothing.
func writeOut(f *os.File, off, n int64) {
	raw, err := f.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) {
		if syscall.SyncFileRange(int(fd), off, n, syncRange) == nil {
			_, _, _ = syscall.Syscall6(syscall.SYS_FADVISE64, fd, uintptr(off), uintptr(n), dropPages, 0, 0)
		}
	})
}
