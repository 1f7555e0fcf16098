package main

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

// errLocked is returned by lockFile when another process holds the lock.
var errLocked = errors.New("in use by another gateway")

// lockDataDirSoon is lockDataDir for who must have this directory: a command that
// looks who holds it holds it for a moment itself.
func lockDataDirSoon(dir string) (unlock func(), err error) {
	for range 20 {
		if unlock, err = lockDataDir(dir); !errors.Is(err, errLocked) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return unlock, err
}

// lockDataDir creates the data directory and claims it until unlock. The
// operating system ends the claim with the process, however that ends.
func lockDataDir(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create data directory: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open lock of data directory: %w", err)
	}
	if err := lockFile(f); err != nil {
		defer f.Close()
		if !errors.Is(err, errLocked) {
			return nil, fmt.Errorf("lock data directory %s: %w", dir, err)
		}
		who := ""
		if b, err := io.ReadAll(io.LimitReader(f, 32)); err == nil && len(b) > 0 {
			who = " (process " + strings.TrimSpace(string(b)) + ")"
		}
		return nil, fmt.Errorf("the data directory %s is %w%s: stop that one, or give another --data-dir, or --ephemeral", dir, errLocked, who)
	}
	// The file can be removed while it is locked, the directory is what it is
	// about.
	folder, err := lockFolder(dir)
	if err != nil {
		defer f.Close()
		if errors.Is(err, errLocked) {
			return nil, fmt.Errorf("the data directory %s is %w, and its lock file was removed: stop that one, or give another --data-dir, or --ephemeral", dir, errLocked)
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
