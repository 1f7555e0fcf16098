package process

import (
	"context"
	"errors"
	iofs "io/fs"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/process"
)

// Process is a program that was started.
type Process struct {
	s       *Service
	id      string
	spec    Spec
	proc    *process.Process
	started time.Time
	output  *log
	taken   *capture      // takes the output of a run; nil for others
	pty     *os.File      // the gateway's end of the terminal; nil without one
	tty     *os.File      // the program's end, open until that has ended: a program that lets go of it may open it again
	stdin   chan struct{} // holds one while input is written
	done    chan struct{} // closed when it has ended and its output is in the log
	expiry  *time.Timer   // guarded by s.mu; nil before it has ended

	mu         sync.Mutex
	cols, rows int
	closedIn   bool
	viewers    int
	shown      uint64    // what some viewer has ends here
	showing    []uint64  // where that ends which is on its way to viewers, one for each at most
	ended      time.Time // set before done is closed
}

// State says whether a process runs.
type State string

// The states.
const (
	Running State = "running"
	Exited  State = "exited"
)

// Info describes a process. What a program was given in its environment is not
// in it.
type Info struct {
	ID        string     `json:"id"`
	Command   string     `json:"command"`
	Args      []string   `json:"args"`
	Cwd       string     `json:"cwd"`
	PID       int        `json:"pid"`
	State     State      `json:"state"`
	ExitCode  *int       `json:"exitCode,omitempty"` // when it exited by itself
	Signal    string     `json:"signal,omitempty"`   // when one ended it
	StartedAt time.Time  `json:"startedAt"`
	EndedAt   *time.Time `json:"endedAt,omitempty"`
	TTY       bool       `json:"tty"`
	Cols      int        `json:"cols,omitempty"`
	Rows      int        `json:"rows,omitempty"`
	StdinOpen bool       `json:"stdinOpen"`
	Viewers   int        `json:"viewers"` // of its terminal
	// OutputBytes is how much it wrote, DroppedBytes how much of that the log
	// has let go.
	OutputBytes  uint64 `json:"outputBytes"`
	DroppedBytes uint64 `json:"droppedBytes"`
}

// ID returns the process's id.
func (p *Process) ID() string { return p.id }

// Done is closed when the process and what it started have ended, and the log
// has all of its output.
func (p *Process) Done() <-chan struct{} { return p.done }

func (p *Process) isEnded() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Info describes the process as it is now.
func (p *Process) Info() Info {
	first, next := p.output.bounds()
	p.mu.Lock()
	defer p.mu.Unlock()
	i := Info{
		ID: p.id, Command: p.spec.Command, Args: append([]string{}, p.spec.Args...), Cwd: p.spec.Dir, PID: p.proc.PID(), State: Running,
		StartedAt: p.started, TTY: p.spec.TTY, Cols: p.cols, Rows: p.rows, StdinOpen: !p.closedIn, Viewers: p.viewers,
		OutputBytes: next, DroppedBytes: first,
	}
	if p.isEnded() {
		ended, exit := p.ended, p.proc.Exit()
		i.State, i.EndedAt, i.Signal, i.StdinOpen = Exited, &ended, exit.Signal, false
		if exit.Signal == "" {
			i.ExitCode = &exit.Code
		}
	}
	return i
}

// begin starts the program and what reads its output.
func (p *Process) begin(ctx context.Context, ready prepared) error {
	o := process.Spec{Path: ready.path, Args: p.spec.Args, Env: ready.env, Dir: p.spec.Dir, OwnStderr: true}
	if p.spec.TTY {
		var err error
		if p.pty, o.TTY, err = openTerminal(p.cols, p.rows); err != nil {
			return err
		}
		p.tty = o.TTY
	}
	var err error
	if p.proc, err = process.Start(ctx, o); err != nil {
		if p.pty != nil {
			_ = p.pty.Close()
			_ = p.tty.Close()
		}
		return startProblem(err)
	}
	p.started = p.proc.StartedAt()
	var readers sync.WaitGroup
	read := func(s Stream, f *os.File) {
		readers.Go(func() { p.read(s, f) })
	}
	if p.spec.TTY {
		read(PTY, p.pty)
	} else {
		read(Stdout, p.proc.Stdout.(*os.File))
		read(Stderr, p.proc.StderrPipe)
	}
	go p.wait(&readers)
	return nil
}

func startProblem(err error) error {
	pe, ok := errors.AsType[*iofs.PathError](err)
	if !ok {
		return err
	}
	switch {
	case errors.Is(err, iofs.ErrNotExist):
		return wrap(NoProgram, pe.Err, "start %s; if it is there, its interpreter is not", pe.Path)
	case errors.Is(err, iofs.ErrPermission), errors.Is(err, syscall.ENOEXEC):
		return wrap(Denied, pe.Err, "start %s", pe.Path)
	case errors.Is(err, syscall.E2BIG):
		return wrap(Invalid, pe.Err, "start %s", pe.Path)
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.ENOMEM):
		return wrap(Busy, pe.Err, "start %s", pe.Path)
	}
	return err
}

// Somebody who holds a stream of a process that has ended, and was not found by its mark,
// is heard until nothing comes for a while, and at most for longer.
const (
	linger     = 200 * time.Millisecond
	mostLinger = 2 * time.Second
)

// output is where a stream goes.
type output struct {
	p *Process
	s Stream
}

// Write implements io.Writer.
func (o output) Write(b []byte) (int, error) {
	switch {
	case o.p.taken != nil:
		o.p.taken.write(o.s, b)
	case len(b) > 0:
		o.p.output.write(o.s, b)
	}
	return len(b), nil
}

// read puts a stream into the log until all who could write to it are gone.
func (p *Process) read(s Stream, f *os.File) {
	// Wakes the reader when the process has ended; from then on it does not wait for long.
	defer f.Close()
	woken := make(chan struct{})
	go func() {
		defer close(woken)
		<-p.proc.Done()
		if p.tty != nil {
			_ = p.tty.Close()
		}
		_ = f.SetReadDeadline(time.Now())
	}()
	defer func() { <-woken }() // before the file is closed
	to := output{p, s}
	buf := make([]byte, 32<<10)
	for until := (time.Time{}); ; {
		n, err := f.Read(buf)
		_, _ = to.Write(buf[:n]) // which never fails
		switch {
		case err != nil && !errors.Is(err, os.ErrDeadlineExceeded):
			return // the end, which a terminal calls an I/O error
		case until.IsZero() && err == nil:
			continue
		case until.IsZero():
			until = time.Now().Add(mostLinger)
		case err != nil || time.Now().After(until):
			process.ReadRest(f, to) // what the process has written is in it, however late it is here
			return
		}
		_ = f.SetReadDeadline(time.Now().Add(linger))
	}
}

// wait ends what belongs to the program when that has ended.
func (p *Process) wait(readers *sync.WaitGroup) {
	<-p.proc.Done()
	readers.Wait()
	if p.proc.Stdin != nil {
		_ = p.proc.Stdin.Close()
	}
	p.mu.Lock()
	p.ended = time.Now()
	p.mu.Unlock()
	p.output.end() // first: of one that has ended the log says so, too
	p.s.gone(p)
	p.s.log.Debug("process ended", "process", p.id, "code", p.proc.Exit().Code, "signal", p.proc.Exit().Signal)
	p.s.work.Done()
}

// Output returns what follows a position of the output, about most bytes of it.
func (p *Process) Output(after uint64, most int) Part {
	part := p.output.read(after, most)
	if part.Ended {
		<-p.done // at once: who has read the end is told how it was
	}
	return part
}

// Tail returns the position at which the last lines of some streams begin; none
// are all.
func (p *Process) Tail(lines int, of ...Stream) uint64 { return p.output.tail(lines, of) }

// Since returns the position of the first output at or after t, or a moment before: output of 50 milliseconds may be kept
// together.
func (p *Process) Since(t time.Time) uint64 { return p.output.since(t) }

// inputPatience is how long a process may leave its input unread.
const inputPatience = 30 * time.Second

// Write gives the process input and, with end, ends it; on a terminal that is
// what Ctrl-D is. Inputs do not mix. It returns how much was taken, also with an
// error.
func (p *Process) Write(ctx context.Context, b []byte, end bool) (int64, error) {
	return p.write(ctx, b, end, inputPatience)
}

func (p *Process) write(ctx context.Context, b []byte, end bool, patience time.Duration) (int64, error) {
	select {
	case p.stdin <- struct{}{}:
		defer func() { <-p.stdin }()
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	case <-p.done:
	}
	p.mu.Lock()
	closed := p.closedIn
	p.mu.Unlock()
	switch {
	case p.isEnded():
		return 0, errorf(Ended, "the process has ended and takes no input")
	case closed && len(b) > 0:
		return 0, errorf(Ended, "the input of the process was closed before")
	case closed:
		return 0, nil
	}
	f, input := p.pty, b
	if f == nil {
		f = p.proc.Stdin.(*os.File)
	} else if end {
		input = append(b[:len(b):len(b)], 4)
	}
	n, err := writeInput(ctx, f, input, patience)
	n = min(n, int64(len(b))) // Ctrl-D is none of what the caller gave
	if err == nil && end && p.pty == nil {
		p.mu.Lock()
		p.closedIn = true
		p.mu.Unlock()
		_ = f.Close()
	}
	switch {
	case err == nil:
	case errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil:
		err = errorf(TimedOut, "the process has not read its input for %s, after %d of %d bytes", patience, n, len(b))
	case errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.EIO), errors.Is(err, os.ErrClosed):
		err = errorf(Ended, "the process has closed its input, after %d of %d bytes", n, len(b))
	}
	if e, ok := errors.AsType[*Error](err); ok {
		e.Written = n
	}
	return n, err
}

// writeInput writes until the reader takes nothing for a while or ctx ends.
func writeInput(ctx context.Context, f *os.File, b []byte, patience time.Duration) (int64, error) {
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(over)
		_ = f.SetWriteDeadline(time.Now())
	})
	defer func() {
		if !stop() {
			<-over // or it would end what the next one writes
		}
	}()
	total := int64(0)
	for len(b) > 0 {
		_ = f.SetWriteDeadline(time.Now().Add(patience))
		if ctx.Err() != nil {
			return total, context.Cause(ctx)
		}
		n, err := f.Write(b[:min(len(b), 64<<10)])
		total += int64(n)
		b = b[n:]
		if err != nil {
			return total, err
		}
	}
	return total, nil
}

// Signal sends a signal, by its name, to the process and its group.
func (p *Process) Signal(name string) error {
	s, ok := process.SignalNamed(name)
	if !ok {
		return errorf(Invalid, "there is no signal %q; it is one of %s", name, strings.Join(process.SignalNames(), ", "))
	}
	if err := p.proc.Signal(s); errors.Is(err, os.ErrProcessDone) {
		return errorf(Ended, "the process has ended")
	} else if err != nil {
		return wrap(Denied, err, "send %s", name)
	}
	return nil
}

// Stop ends the process and everything it started, and returns when that is
// done: its input is closed and it gets SIGTERM, a terminal is hung up as well,
// and after patience it is killed. Less than 0 is the limit's patience.
func (p *Process) Stop(patience time.Duration) {
	if patience < 0 {
		patience = millis(p.s.Limits().StopMs)
	}
	if patience == 0 {
		p.proc.Kill()
	}
	p.proc.Stop(process.Ladder{Term: patience})
	<-p.done
}
