package claim

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// File takes the lock of f without waiting. The locked byte lies behind the
// content, which others may read.
func File(f *os.File) error { return lockByte(f, windows.LOCKFILE_EXCLUSIVE_LOCK) }

// FileToLook takes a lock that goes with others of its kind, and not with
// that of File: those who only look do not take each other for the holder.
func FileToLook(f *os.File) error { return lockByte(f, 0) }

func lockByte(f *os.File, how uint32) error {
	at := &windows.Overlapped{Offset: 1 << 30}
	err := windows.LockFileEx(windows.Handle(f.Fd()), how|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return ErrHeld
	}
	return err
}

// ours is true: each user has temporary files of their own.
func ours(os.FileInfo) bool { return true }

// lockFolder has no lock to take: folders have none here, and a locked file cannot be removed.
func lockFolder(dir string) (*os.File, error) { return os.Open(dir) }
