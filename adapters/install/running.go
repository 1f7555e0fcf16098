package install

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/internal/claim"
)

// runningName is a file of a version whose lock all share that run its program. The kernel frees the lock of a process
// that dies.
const runningName = "running"

// Keep implements adapters.Installer.
func (p programs) Keep(ctx context.Context, program adapters.Program) (release func()) {
	if program.Dir == "" {
		return func() {}
	}
	f, err := os.OpenFile(filepath.Join(program.Dir, runningName), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		if err = await(ctx, f, claim.FileToLook, nil); err == nil {
			return func() { _ = f.Close() }
		}
		_ = f.Close()
	}
	// Of a folder in which this user may not write, nobody like it removes anything.
	p.in.log.Debug("it is not noted that a program runs", "program", program.Path, "err", err)
	return func() {}
}

// running reports whether some process runs a program of a folder.
func running(dir string) bool {
	f, err := os.OpenFile(filepath.Join(dir, runningName), os.O_RDWR, 0)
	if err != nil {
		return seenRunning(dir) // no gateway has started it
	}
	defer f.Close()
	return errors.Is(claim.File(f), claim.ErrHeld) || seenRunning(dir)
}
