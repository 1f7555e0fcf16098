//go:build unix

package claim

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// File takes the lock of f without waiting.
func File(f *os.File) error { return flock(f, unix.LOCK_EX) }

// FileToLook takes a lock that goes with others of its kind, and not with
// that of File: those who only look do not take each other for the holder.
func FileToLook(f *os.File) error { return flock(f, unix.LOCK_SH) }

func flock(f *os.File, how int) error {
	err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return ErrHeld
	}
	return err
}

// ours reports whether a folder is this user's alone.
func ours(info os.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid() && info.Mode().Perm()&0o077 == 0
}

// lockFolder takes the lock of a folder.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	err = File(f)
	if errors.Is(err, unix.EBADF) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ENOLCK) {
		return f, nil // some network file systems lock files only
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
