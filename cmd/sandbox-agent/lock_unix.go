//go:build unix

package main

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// lockFile takes the lock of f without waiting.
func lockFile(f *os.File) error { return flock(f, unix.LOCK_EX) }

// lockFileToLook takes a lock that goes with others of its kind, and not with
// that of lockFile: those who only look do not take each other for the holder.
func lockFileToLook(f *os.File) error { return flock(f, unix.LOCK_SH) }

func flock(f *os.File, how int) error {
	err := unix.Flock(int(f.Fd()), how|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return errLocked
	}
	return err
}

// lockFolder takes the lock of a folder.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	err = lockFile(f)
	if errors.Is(err, unix.EBADF) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ENOLCK) {
		return f, nil // some network file systems lock files only
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
