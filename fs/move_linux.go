package fs

import (
	"os"
	"syscall"
)

// renameAt moves a file into a folder, in that very folder, wherever its path leads by now.
func renameAt(file string, dir *os.File, name string) error {
	conn, err := dir.SyscallConn()
	if err != nil {
		return err
	}
	if ctl := conn.Control(func(fd uintptr) { err = syscall.Renameat(-1, file, int(fd), name) }); ctl != nil { // file is an absolute path
		return ctl
	}
	return err
}

// changedAt returns when a file was changed in any way, which nobody can set.
func changedAt(info os.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Ctim.Nano()
	}
	return 0
}

// linked reports whether a file has more than one name.
func linked(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Nlink > 1
}
