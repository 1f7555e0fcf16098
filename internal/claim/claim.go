// Package claim says which process a folder belongs to. The operating system ends a
// claim with the process, however that ends.
package claim

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ErrHeld is returned when another process has the claim.
var ErrHeld = errors.New("in use by another process")

// DirSoon is Dir for who must have this directory: a command that looks who holds it
// holds it for a moment itself, and so does a program that a killed process was just
// starting, until it runs. A busy machine makes that moment long.
func DirSoon(dir string) (unlock func(), err error) {
	for range 100 {
		if unlock, err = Dir(dir); !errors.Is(err, ErrHeld) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return unlock, err
}

// Abandoned claims a folder whose claim has ended with its process. It takes only one that nobody but this user
// can change: where others make folders, too, the lock of theirs could lead to any file.
func Abandoned(dir string) (unlock func(), ok bool) {
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || !ours(info) {
		return nil, false
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR, 0)
	if err != nil {
		return nil, false // it is of an earlier version, or is being made
	}
	if File(f) != nil {
		_ = f.Close()
		return nil, false
	}
	return func() { _ = f.Close() }, true
}

// Dir creates a data directory and claims it until unlock.
func Dir(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create data directory: %w: give --data-dir a folder that this user can write to", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock of data directory: %w: give --data-dir a folder that this user can write to", err)
	}
	if err := File(f); err != nil {
		defer f.Close()
		if !errors.Is(err, ErrHeld) {
			return nil, fmt.Errorf("lock data directory %s: %w", dir, err)
		}
		who := ""
		if b, err := io.ReadAll(io.LimitReader(f, 32)); err == nil && len(b) > 0 {
			who = " (process " + strings.TrimSpace(string(b)) + ")"
		}
		return nil, fmt.Errorf("the data directory %s is %w%s: stop that one, or give another --data-dir", dir, ErrHeld, who)
	}
	// The file can be removed while it is locked, the directory is what it is
	// about.
	folder, err := lockFolder(dir)
	if err != nil {
		defer f.Close()
		if errors.Is(err, ErrHeld) {
			return nil, fmt.Errorf("the data directory %s is %w, and its lock file was removed: stop that one, or give another --data-dir", dir, ErrHeld)
		}
		return nil, fmt.Errorf("lock data directory %s: %w", dir, err)
	}
	// The process id only makes the message above better.
	if f.Truncate(0) == nil {
		_, _ = f.WriteString(strconv.Itoa(os.Getpid()) + "\n")
	}
	return func() {
		_ = folder.Close()
		_ = f.Close()
	}, nil
}
