package install

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/claim"
)

// lock takes the lock that installers of one agent share, in this process and
// in others, and waits for it as long as ctx allows. waiting is called once if
// it is taken. The kernel frees the lock of a process that dies.
func (in *Installer) lock(ctx context.Context, agent string, waiting func()) (unlock func(), err error) {
	if err := in.makeRoot(); err != nil {
		return nil, fmt.Errorf("make the directory of agents: %w", err)
	}
	f, err := os.OpenFile(filepath.Join(in.root, "."+agent+".lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the lock of %s: %w", agent, err)
	}
	if err := await(ctx, f, claim.File, waiting); err != nil {
		_ = f.Close()
		if ctx.Err() != nil {
			return nil, fmt.Errorf("wait for another installation of %s: %w", agent, err)
		}
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return func() { _ = f.Close() }, nil
}

// await takes the lock of f, and waits for it as long as ctx allows. waiting is called once if it is taken. A blocking
// flock cannot be cancelled, and the goroutine that would wait in it would outlive the call; so it is tried again and
// again.
func await(ctx context.Context, f *os.File, take func(*os.File) error, waiting func()) error {
	for wait := 5 * time.Millisecond; ; wait = min(2*wait, 200*time.Millisecond) {
		err := take(f)
		if err == nil || !errors.Is(err, claim.ErrHeld) && !errors.Is(err, syscall.EINTR) {
			return err
		}
		if waiting != nil {
			waiting()
			waiting = nil
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

// makeRoot makes the directory of agents. The data directory around it also
// holds what others may not read.
func (in *Installer) makeRoot() error {
	if err := os.MkdirAll(filepath.Dir(in.root), 0o700); err != nil {
		return err
	}
	return os.MkdirAll(in.root, 0o755)
}

// pause waits for d or for the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
