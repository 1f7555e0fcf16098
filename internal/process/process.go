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

// Process is a running child process.
type Process struct {
	Stdin  io.WriteCloser
	Stdout io.ReadCloser

	cmd     *exec.Cmd
	stdout  *os.File
	mark    string
	started time.Time
	stderr  *tail

	done chan struct{} // closed when the process and what it left have ended
	exit Exit          // valid when done is closed

	stop sync.Once
}

// Start starts a process. ctx bounds only the start.
func Start(ctx context.Context, s Spec) (*Process, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p := &Process{cmd: exec.Command(s.Path, s.Args...), mark: rand.Text(), stderr: newTail(), done: make(chan struct{})}
	p.cmd.Dir = s.Dir
	p.cmd.Env = append(stripMarks(s.Env), OwnerVar+"="+owner, ProcessVar+"="+p.mark)
	p.cmd.SysProcAttr = attributes()
	// The pipes are made here and not by exec.Cmd: its Wait closes the read end
	// of stdout, and what the process wrote last would be lost.
	inR, inW, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", s.Path, err)
	}
	outR, outW, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", s.Path, err), inR.Close(), inW.Close())
	}
	widen(outR)
	errR, errW, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", s.Path, err), inR.Close(), inW.Close(), outR.Close(), outW.Close())
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = inR, outW, errW
	p.Stdin, p.Stdout, p.stdout = inW, outR, outR
	err = startChild(p.cmd)
	_, _, _ = inR.Close(), outW.Close(), errW.Close() // the child has its own
	if err != nil {
		_, _, _ = inW.Close(), outR.Close(), errR.Close()
		return nil, fmt.Errorf("start %s: %w", s.Path, err)
	}
	p.started = time.Now()
	go p.wait(errR)
	return p, nil
}

// wait owns the process's end: it reaps it, ends what it left running, and
// drains stderr.
func (p *Process) wait(stderr *os.File) {
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		_, _ = io.Copy(p.stderr, stderr) // ends when every holder of the pipe is gone
	}()
	_ = p.cmd.Wait() // the state says more than the error
	forget(p.cmd.Process.Pid)
	p.sweep()
	select {
	case <-drained:
	case <-time.After(200 * time.Millisecond): // somebody unmarked holds stderr open
	}
	_ = stderr.Close()
	<-drained
	st := p.cmd.ProcessState
	p.exit.Code = st.ExitCode()
	if ws, ok := st.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		p.exit = Exit{Code: -1, Signal: signalName(ws.Signal())}
	}
	close(p.done)
}

// sweep ends what is left of the process: its group, and marked processes that
// left the group.
func (p *Process) sweep() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
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

// Stop ends the process and everything it started, step by step, and returns
// when that is done. It is idempotent and safe for concurrent use.
func (p *Process) Stop(l Ladder) {
	p.stop.Do(func() {
		_ = p.Stdin.Close()
		if p.ended(l.EOF) {
			return
		}
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM)
		if p.ended(l.Term) {
			return
		}
		_ = p.cmd.Process.Kill()
		p.sweep()
	})
	<-p.done
	_ = p.Stdin.Close()
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
