package fs

import (
	"os"
	"strconv"
	"sync"
	"syscall"
	"unsafe"
)

// ownFiles says whether open files of this process can be reached by path, as giving one a name needs.
var ownFiles = sync.OnceValue(func() bool {
	_, err := os.Stat("/proc/self/fd")
	return err == nil
})

// The flags of open and linkat that package syscall does not have.
const (
	openUnnamed = 0o20000000 | syscall.O_DIRECTORY // O_TMPFILE
	linkFollow  = 0x400                            // AT_SYMLINK_FOLLOW
)

// unnamed makes a file in dir that has no name until give gives it one. It is nil where the system or the file system
// has no such files.
func unnamed(dir *os.Root, name string, perm os.FileMode) (f *os.File, give func() error) {
	if !ownFiles() {
		return nil, nil
	}
	f, err := dir.OpenFile(".", openUnnamed|os.O_WRONLY, perm)
	if err != nil {
		return nil, nil
	}
	return f, func() error {
		folder, err := dir.Open(".")
		if err != nil {
			return err
		}
		defer folder.Close()
		return linkAt("/proc/self/fd/"+strconv.Itoa(int(f.Fd())), folder, name)
	}
}

// linkAt gives the file to which a link leads a name in a folder.
func linkAt(link string, folder *os.File, name string) error {
	from, err := syscall.BytePtrFromString(link)
	if err != nil {
		return err
	}
	to, err := syscall.BytePtrFromString(name)
	if err != nil {
		return err
	}
	// The first number is not used: link is an absolute path.
	if _, _, errno := syscall.Syscall6(syscall.SYS_LINKAT, 0, uintptr(unsafe.Pointer(from)), folder.Fd(), uintptr(unsafe.Pointer(to)), linkFollow, 0); errno != 0 {
		return errno
	}
	return nil
}
