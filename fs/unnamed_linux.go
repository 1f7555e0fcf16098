package fs

import (
	"os"
	"strconv"
	"sync"
	"syscall"
	"unsafe"
)

// The flags of open and linkat that package syscall does not have.
const (
	openUnnamed = 0o20000000 | syscall.O_DIRECTORY // O_TMPFILE
	linkFollow  = 0x400                            // AT_SYMLINK_FOLLOW
)

// unnamed makes a file in dir that has no name until linkAt gives it one in the folder, which is dir. It is nil where the
// system or the file system has no such files.
func (s *Service) unnamed(dir *os.Root, perm os.FileMode) (f, folder *os.File) {
	folder, err := dir.Open(".")
	if err != nil {
		return nil, nil
	}
	if s.unnamedIn.works(dir, folder) {
		f, err = dir.OpenFile(".", openUnnamed|os.O_WRONLY, perm)
	}
	if f == nil || err != nil {
		_ = folder.Close()
		return nil, nil
	}
	return f, folder
}

// devices are file systems, and whether files without a name work there. The zero value has none.
type devices struct{ known sync.Map }

// works tries it once for each: that such a file can be given a name, and gets the mode of one that is made with it. Old
// kernels do not mind the process's mask.
func (d *devices) works(dir *os.Root, folder *os.File) bool {
	info, err := folder.Stat()
	if err != nil {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	if known, tried := d.known.Load(st.Dev); tried {
		return known.(bool)
	}
	works := tryUnnamed(dir, folder)
	d.known.Store(st.Dev, works)
	return works
}

func tryUnnamed(dir *os.Root, folder *os.File) bool {
	const perm = 0o666
	named, given := temporaryName(), temporaryName()
	defer func() { _, _ = dir.Remove(named), dir.Remove(given) }()
	one, err := dir.OpenFile(named, os.O_WRONLY|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return false
	}
	defer one.Close()
	other, err := dir.OpenFile(".", openUnnamed|os.O_WRONLY, perm)
	if err != nil {
		return false
	}
	defer other.Close()
	if linkAt(other, folder, given) != nil {
		return false
	}
	want, err := one.Stat()
	if err != nil {
		return false
	}
	got, err := other.Stat()
	return err == nil && got.Mode() == want.Mode()
}

// linkAt gives an open file a name in a folder.
func linkAt(f, folder *os.File, name string) error {
	from, err := syscall.BytePtrFromString("/proc/self/fd/" + strconv.Itoa(int(f.Fd())))
	if err != nil {
		return err
	}
	to, err := syscall.BytePtrFromString(name)
	if err != nil {
		return err
	}
	// The first number is not used: the path is absolute.
	if _, _, errno := syscall.Syscall6(syscall.SYS_LINKAT, 0, uintptr(unsafe.Pointer(from)), folder.Fd(), uintptr(unsafe.Pointer(to)), linkFollow, 0); errno != 0 {
		return errno
	}
	return nil
}
