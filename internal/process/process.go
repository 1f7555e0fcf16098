package process

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/socket"
)

// Environment variables that mark what belongs to a gateway and to one of its
// processes. They are inherited by everything that is started below.
const (
	OwnerVar   = "SANDBOX_AGENT_OWNER"
	ProcessVar = "SANDBOX_AGENT_PROCESS"
)

// owner is this gateway's mark.
var owner = rand.Text()

// Spec says what to run.
type Spec struct {
	Path string
	Args []string // without the program's name
	Env  []string // the whole environment; markers are added
	Dir  string
	// OwnStderr leaves stderr to the caller, as [Process.StderrPipe].
	OwnStderr bool
	// TTY, if not nil, is the terminal that the process gets for all of its
	// standard streams, as the leader of a session. The caller closes it.
	TTY *os.File
}

// Ladder bounds the steps of [Process.Stop].
type Ladder struct {
	EOF  time.Duration // after stdin was closed
	Term time.Duration // after SIGTERM
}

// DefaultLadder suits agents that save their state at the end of input.
var DefaultLadder = Ladder{EOF: 1500 * time.Millisecond, Term: 1500 * time.Millisecond}

// Exit says how a process ended.
type Exit struct {
	Code   int    // -1 when a signal ended it
	Signal string // "" when it exited
}

// Process is a running child process. Its streams belong to the caller; they are
// nil when it has a terminal.
type Process struct {
	Stdin      io.WriteCloser
	Stdout     io.ReadCloser
	StderrPipe *os.File // only with Spec.OwnStderr

	input   input
	room    *socket.Room // in stdin
	cmd     *exec.Cmd
	group   group
	stdout  *os.File
	ahead   ahead
	mark    string
	tty     bool
	started time.Time
	stderr  *tail

	mu     sync.Mutex // held while its group is signalled
	reaped bool       // its number may be another's

	done chan struct{} // closed when the process and what it left have ended
	exit Exit          // valid when done is closed

	term sync.Once // asks it to end
}

// Start starts a process. ctx bounds only the start.
func Start(ctx context.Context, s Spec) (*Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p := &Process{cmd: exec.Command(s.Path, s.Args...), mark: rand.Text(), tty: s.TTY != nil, stderr: newTail(), done: make(chan struct{})}
	p.cmd.Dir = s.Dir
	p.cmd.Env = append(stripMarks(s.Env), OwnerVar+"="+owner, ProcessVar+"="+p.mark)
	p.cmd.SysProcAttr = attributes()
	var stderr *os.File
	var err error
	if p.tty {
		leadTerminal(p.cmd.SysProcAttr)
		p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = s.TTY, s.TTY, s.TTY
		err = p.launch()
	} else {
		stderr, err = p.startPiped(s)
	}
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Path, err)
	}
	p.started = time.Now()
	countStart(p)
	go p.wait(stderr)
	return p, nil
}

// launch starts the process and takes what it will start into its group.
func (p *Process) launch() error {
	if err := startChild(p.cmd); err != nil {
		return err
	}
	return p.group.take(p.cmd)
}

// startPiped starts the process with a pipe for each stream, and returns the one
// of stderr unless the caller has it. The pipes are made
// here and not by exec.Cmd: its Wait closes the read end of stdout, and what the
// process wrote last would be lost.
func (p *Process) startPiped(s Spec) (stderr *os.File, err error) {
	var all []*os.File
	pipe := func() (r, w *os.File, err error) {
		if r, w, err = os.Pipe(); err == nil {
			all = append(all, r, w)
		}
		return r, w, err
	}
	inR, inW, err := pipe()
	outR, outW, err2 := pipe()
	errR, errW, err3 := pipe()
	if err = errors.Join(err, err2, err3); err == nil {
		widen(outR)
		p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = inR, outW, errW
		err = p.launch()
	}
	if err != nil {
		for _, f := range all {
			_ = f.Close()
		}
		return nil, err
	}
	_, _, _ = inR.Close(), outW.Close(), errW.Close() // the child has its own
	p.Stdin, p.Stdout, p.stdout, p.room = inW, outR, outR, socket.RoomOf(inW)
	if s.OwnStderr {
		p.StderrPipe = errR
		return nil, nil
	}
	return errR, nil
}

// wait owns the process's end: it reaps it, ends what it left running, and
// drains stderr.
func (p *Process) wait(stderr *os.File) {
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		if stderr != nil {
			_, _ = io.Copy(p.stderr, stderr) // ends when every holder of the pipe is gone
		}
	}()
	_ = p.cmd.Wait() // the state says more than the error
	p.mu.Lock()
	p.reaped = true
	p.mu.Unlock()
	forget(p.cmd.Process.Pid)
	p.sweep()
	p.group.close()
	select {
	case <-drained:
	case <-time.After(200 * time.Millisecond): // somebody unmarked holds stderr open, or its reader stands still
		if stderr != nil && stderr.SetReadDeadline(time.Now()) == nil {
			<-drained
			ReadRest(stderr, p.stderr)
		}
	}
	if stderr != nil {
		_ = stderr.Close()
	}
	<-drained
	countEnd(p)
	st := p.cmd.ProcessState
	p.exit.Code = st.ExitCode()
	if ws, ok := st.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		p.exit = Exit{Code: -1, Signal: SignalName(ws.Signal())}
	}
	close(p.done)
}

// sweep ends what is left of the process: its group, and marked processes that
// left the group.
func (p *Process) sweep() {
	p.group.kill()
	killMarked(ProcessVar + "=" + p.mark)
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// StartedAt returns when the process was started.
func (p *Process) StartedAt() time.Time { return p.started }

// Done is closed when the process has ended and nothing it started is left.
func (p *Process) Done() <-chan struct{} { return p.done }

// Exit returns how the process ended; call it after Done.
func (p *Process) Exit() Exit { return p.exit }

// Stderr returns the beginning and the end of what the process wrote to stderr,
// whether something between them is missing, and the number of lines.
func (p *Process) Stderr() (head, end string, truncated bool, lines int) { return p.stderr.read() }

// Signal sends a signal to the process's group.
func (p *Process) Signal(s syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return os.ErrProcessDone
	}
	if err := p.group.signal(s); errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone // it is reaped, and wait has not come to say so
	} else if err != nil {
		return fmt.Errorf("signal process %d: %w", p.cmd.Process.Pid, err)
	}
	return nil
}

func (p *Process) resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped {
		p.group.resume()
	}
}

// Stop ends the process and everything it started, step by step, and returns
// when that is done. A terminal is hung up together with SIGTERM, which shells
// ignore. It is idempotent and safe for concurrent use: each call goes down its own
// ladder, so the shortest decides, and the signals are sent once.
func (p *Process) Stop(l Ladder) {
	if p.Stdin != nil {
		_ = p.Stdin.Close()
	}
	if l.EOF > 0 && p.ended(l.EOF) {
		return
	}
	p.term.Do(func() {
		_ = p.Signal(syscall.SIGTERM) // it has ended if that fails
		if p.tty {
			_ = p.Signal(syscall.SIGHUP)
		}
		p.resume()
	})
	if !p.ended(l.Term) {
		p.Kill()
	}
	<-p.done
}

// Kill ends the process and everything it started, now. Done tells when that is
// so.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.reaped { // else it is swept already
		p.sweep()
	}
}

func (p *Process) ended(within time.Duration) bool {
	t := time.NewTimer(within)
	defer t.Stop()
	select {
	case <-p.done:
		return true
	case <-t.C:
		return false
	}
}

// stripMarks removes markers that an outer gateway left in the environment.
func stripMarks(env []string) []string {
	out := make([]string, 0, len(env)+2)
	for _, kv := range env {
		if !strings.HasPrefix(kv, OwnerVar+"=") && !strings.HasPrefix(kv, ProcessVar+"=") {
			out = append(out, kv)
		}
	}
	return out
}
