package bridge

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/process"
)

// Child is a native process that speaks lines on its standard streams.
type Child struct {
	*process.Process
	Lines *Lines

	mu sync.Mutex // orders writes
}

// Start starts a native process. ctx bounds only the start.
func Start(ctx context.Context, s process.Spec) (*Child, error) {
	p, err := process.Start(ctx, s)
	if err != nil {
		return nil, err
	}
	return &Child{Process: p, Lines: NewLines(p.Stdout, 0)}, nil
}

// WriteLine writes one line; line must hold no line break. It is safe for
// concurrent use. A process that does not read makes it wait, until it reads or
// ends.
func (c *Child) WriteLine(line []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.Stdin.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write to the agent process: %w", err)
	}
	return nil
}

// End stops the process, gives its stdout back and returns how it ended.
func (c *Child) End(l process.Ladder) *adapters.ExitError {
	c.Stop(l)
	if closer, ok := c.Stdout.(io.Closer); ok {
		_ = closer.Close()
	}
	e := c.Exit()
	head, tail, truncated, lines := c.Stderr()
	return &adapters.ExitError{Code: e.Code, Signal: e.Signal, Stderr: adapters.Stderr{Head: head, Tail: tail, Truncated: truncated, TotalLines: lines}}
}

// WritePrivate writes a file that only this user can read, and replaces what
// was there. Configuration that may hold secrets goes to agents by such files,
// since everybody can read a command line.
func WritePrivate(path string, content []byte) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make a private directory: %w", err)
	}
	f, err := os.CreateTemp(dir, filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write a private file: %w", err)
	}
	_, err = f.Write(content)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
		return fmt.Errorf("write a private file: %w", err)
	}
	return nil
}
