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
