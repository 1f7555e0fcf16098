package bridge

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/ndjson"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/internal/process"
)

// Child is a native process that speaks lines on its standard streams. One
// goroutine reads them, until an error, and then calls End.
type Child struct {
	*process.Process

	tap     adapters.Tap // may be nil
	lines   Lines
	once    sync.Once
	drained chan struct{} // closed when reading has ended
	watched chan struct{} // closed when watch has ended

	writing chan struct{} // cap 1; held by who writes
}

// Start starts a native process, of whose lines tap is told unless it is nil. ctx bounds only
// the start.
func Start(ctx context.Context, s process.Spec, tap adapters.Tap) (*Child, error) {
	p, err := process.Start(ctx, s)
	if err != nil {
		return nil, err
	}
	c := &Child{Process: p, tap: tap, lines: NewLines(p.Stdout, 0), drained: make(chan struct{}), watched: make(chan struct{}), writing: make(chan struct{}, 1)}
	go c.watch()
	return c, nil
}

// drainPause is how long the output of an ended process must be empty.
const drainPause = 500 * time.Millisecond

// watch ends reading when the process has ended and somebody else, whom nothing
// marks as its descendant, holds its stdout open.
func (c *Child) watch() {
	defer close(c.watched)
	<-c.Done()
	for {
		pause := time.NewTimer(drainPause)
		select {
		case <-c.drained:
			pause.Stop()
			return
		case <-pause.C:
		}
		if !c.Waiting() {
			_ = c.Stdout.Close()
			return
		}
	}
}

// ReadLine is [Lines.Next] of the process's stdout.
func (c *Child) ReadLine() ([]byte, error) {
	line, err := c.lines.Next()
	if _, ok := errors.AsType[*ndjson.TooLongError](err); err != nil && !ok { // with one too long comes its beginning
		c.once.Do(func() { close(c.drained) })
	} else if c.tap != nil {
		c.tap.FromAgent(line)
	}
	return line, err
}

// Each calls take for each line of the process's stdout until that ends. odd gets
// the lines that take refuses, and the beginning of those over the bound.
func (c *Child) Each(take func(line []byte) error, odd func(line []byte, reason error)) {
	for {
		line, err := c.ReadLine()
		tooLong, ok := errors.AsType[*ndjson.TooLongError](err)
		switch {
		case ok:
			odd(line, tooLong)
		case err != nil:
			return
		default:
			if err := take(line); err != nil {
				odd(line, err)
			}
		}
	}
}

// ErrUnwritten is why a line is not written: the process takes no input any more, and has
// been ended. It has read no whole line of it. It says nothing to people: how the process
// ended does, see [Unwritten].
var ErrUnwritten = errors.New("write to the agent process")

// Unwritten is how a process ended, as [Child.End] returns it, for who wanted to tell it
// something that it did not take: an [ErrUnwritten].
func Unwritten(exit error) error { return unwritten{exit} }

type unwritten struct{ exit error }

func (e unwritten) Error() string        { return e.exit.Error() }
func (e unwritten) Unwrap() error        { return e.exit }
func (e unwritten) Is(target error) bool { return target == ErrUnwritten }

// WriteLine writes one line; line must hold no line break. It is safe for
// concurrent use. A process that does not read makes it wait. ctx bounds that: a
// process that has not taken by then what it was given to read is of no use to anybody,
// as one that takes no input any more, or whose stdout has ended: it would answer nobody.
// It has been ended when WriteLine returns with an [ErrUnwritten]. Another error is that of ctx, when the line was behind others.
func (c *Child) WriteLine(ctx context.Context, line []byte) error {
	select {
	case c.writing <- struct{}{}:
		defer func() { <-c.writing }()
	case <-ctx.Done():
		return fmt.Errorf("wait until the agent process reads: %w", ctx.Err())
	}
	select {
	case <-c.drained:
		c.StopMute(process.DefaultLadder)
		return fmt.Errorf("%w: its output has ended", ErrUnwritten)
	default:
	}
	if c.tap != nil {
		c.tap.ToAgent(line)
	}
	defer context.AfterFunc(ctx, func() { c.Stop(process.DefaultLadder) })()
	if _, err := c.Write(append(line, '\n')); err != nil {
		c.StopMute(process.DefaultLadder) // it may be about to end, and to say why
		return fmt.Errorf("%w: %w", ErrUnwritten, err)
	}
	return nil
}

// End stops the process, gives its stdout back and returns how it ended. Call it
// when ReadLine has failed, or when nobody has read or will: what the process has written
// then is lost.
func (c *Child) End(l process.Ladder) *adapters.ExitError {
	c.StopMute(l)
	c.once.Do(func() { close(c.drained) })
	<-c.watched
	_ = c.Stdout.Close()
	return ExitError(c.Process)
}

// ExitError says how a process has ended; call it after Done.
func ExitError(p *process.Process) *adapters.ExitError {
	e := p.Exit()
	return &adapters.ExitError{Code: e.Code, Signal: e.Signal, Stderr: Stderr(p)}
}

// Stderr is what a process has written to stderr so far.
func Stderr(p *process.Process) adapters.Stderr {
	head, tail, truncated, lines := p.Stderr()
	return adapters.Stderr{Head: head, Tail: tail, Truncated: truncated, TotalLines: lines}
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
