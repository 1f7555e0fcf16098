package fs

import (
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"
)

// ownFiles says whether open files of this process can be reached by path, as giving one a name needs.
var ownFiles = sync.OnceValue(func() bool {
	_, err := os.Stat("/proc/self/fd")
	return err == nil
})

// unnamed makes a file in dir that has no name until give gives it one. It is nil where the system or the file system
// has no such files.
func unnamed(dir *os.Root, name string, perm os.FileMode) (f *os.File, give func() error) {
	if !ownFiles() {
		return nil, nil
	}
	folder, err := dir.Open(".")
	if err != nil {
		return nil, nil
	}
	defer folder.Close()
	fd, err := unix.Openat(int(folder.Fd()), ".", unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, uint32(perm))
	if err != nil {
		return nil, nil
	}
	return os.NewFile(uintptr(fd), name), func() error {
		folder, err := dir.Open(".")
		if err != nil {
			return err
		}
		defer folder.Close()
		return unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), int(folder.Fd()), name, unix.AT_SYMLINK_FOLLOW)
	}
}
