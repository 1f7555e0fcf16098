package amp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge/turn"
	"sandboxagent.dev/sandbox-agent/internal/pattern"
	"sandboxagent.dev/sandbox-agent/internal/process"
)

// startBound limits how long the program may take to begin. Tests lower it.
var startBound = 60 * time.Second

// ladder is how the program is ended behind a turn that ended well: at the end of
// its input it sends the thread to Amp's server. Behind any other turn, and before
// the first, it would wait for ever for an end: then it is told by SIGTERM, which
// has the same effect.
var ladder = process.Ladder{EOF: 4 * time.Second, Term: 3 * time.Second}

// noThread is what the program says of a thread that is neither here nor at Amp's server.
var noThread = pattern.New(`Thread \S+ does not exist`)

// proc is a process of a session.
type proc struct {
	child *bridge.Child
	ready chan struct{} // closed when it says that it has begun
	ended chan struct{} // closed when it has ended and was read to its end
	exit  error         // valid when ended is closed

	once  sync.Once // of ready
	login bool      // it asks for a login; valid when ended is closed
	over  bool      // it takes no prompts any more; guarded by the session's mu
	well  bool      // its last turn ended well, or it ends by itself; guarded by the session's mu
	// goesOn says that the thread may have been left in the middle of a turn, which the
	// program goes on with until it takes a prompt.
	goesOn bool
	untold bool // it has not repeated the prompt that it was given, so it works on another; guarded by the session's mu
	// heard is when it last said something, or was given a prompt; guarded by the session's mu.
	heard time.Time
}

// spawn starts a process when there is none that takes prompts, and returns the
// one to wait for. The caller holds the slot.
func (s *session) spawn(ctx context.Context) (*proc, error) {
	s.mu.Lock()
	old, gone := s.p, s.p == nil || s.p.over || isClosed(s.p.child.Done())
	steps := s.stepsLocked()
	thread, mode := s.thread, s.mode
	if !s.said {
		thread = ""
	}
	s.mu.Unlock()
	if !gone {
		return old, nil
	}
	if old != nil {
		// Two processes on one thread would overwrite each other's copy of it.
		old.child.Stop(steps)
		<-old.ended
	}
	args := slices.Concat(s.a.o.Program.Args, s.l.args(s.dir, thread, mode, s.version))
	child, err := bridge.Start(ctx, process.Spec{Path: s.a.o.Program.Path, Args: args, Dir: s.cwd, Env: s.a.environ()}, s.a.o.Tap)
	if err != nil {
		return nil, err
	}
	p := &proc{child: child, ready: make(chan struct{}), ended: make(chan struct{}), goesOn: thread != "" && repeats(s.version)}
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.p = p
		s.work.Go(func() { s.read(p) })
	}
	s.mu.Unlock()
	if closed {
		_ = child.End(process.Ladder{})
		return nil, io.ErrClosedPipe
	}
	s.a.conn.SetProcess(child.Process)
	return p, nil
}

// halt ends a process that cannot be talked to any more.
func (p *proc) halt() { p.child.Stop(process.Ladder{Term: ladder.Term}) }

// stepsLocked returns the ladder that suits the present process.
func (s *session) stepsLocked() process.Ladder {
	l := ladder
	if s.p != nil && !s.p.well {
		l.EOF = 0
	}
	return l
}

// begun waits until a process has begun. cancelled may be nil.
func (s *session) begun(ctx context.Context, p *proc, cancelled <-chan struct{}) error {
	limit := time.NewTimer(startBound)
	defer limit.Stop()
	select {
	case <-p.ready:
		return nil
	case <-p.ended:
		return s.startError(p)
	case <-cancelled:
		return turn.ErrCancelled
	case <-ctx.Done():
		return ctx.Err()
	case <-limit.C:
	}
	p.halt()
	<-p.ended
	if _, tail, _, _ := p.child.Stderr(); p.login || asksLogin(tail) {
		return authRequired("amp asks for a login")
	}
	return acp.Errorf(acp.CodeInternal, "amp did not begin within %v%s", startBound, s.about())
}

// about says what may be the reason for a start that fails.
func (s *session) about() string {
	if v := s.version; onServer(v) {
		return fmt.Sprintf("; release %s runs its loop on Amp's server, which must be reachable and take the access token (the newest release that was verified with this gateway is %s)", v, Verified)
	}
	return ""
}

// startError says why a process ended before it had begun.
func (s *session) startError(p *proc) error {
	exit, _ := errors.AsType[*adapters.ExitError](p.exit)
	words := ""
	if exit != nil {
		words = exit.Stderr.Tail
	}
	switch {
	case p.login || asksLogin(words):
		return authRequired("amp asks for a login")
	case noThread.MatchString(words):
		return acp.Errorf(acp.CodeResourceNotFound, "amp does not know this thread, nor does its server: %s; go on in a new session", strings.TrimSpace(words))
	case unauthorized.MatchString(words):
		return authRequired(strings.TrimSpace(words))
	case exit == nil:
		return fmt.Errorf("amp did not start: %w", p.exit)
	}
	return &acp.Error{Code: acp.CodeInternal, Message: "amp ended before it had begun: " + exit.Error() + s.about(), Data: exit.Data()}
}

// asksLogin reports whether a text is the program's request for a login, for
// which it waits on a terminal.
func asksLogin(s string) bool {
	return strings.Contains(s, "/auth/cli-login") || strings.Contains(s, "Starting login flow")
}

// read takes every line of a process until it ends.
func (s *session) read(p *proc) {
	p.child.Each(func(line []byte) error {
		e, err := parse(line)
		switch {
		case err == nil:
			s.take(p, e)
		case asksLogin(string(line)):
			p.login = true
			s.work.Go(p.halt)
		}
		return err
	}, s.unparsed)
	exit := p.child.End(ladder)
	p.exit = exit
	s.mu.Lock()
	p.over = true
	t := s.turns.Current()
	lost := t != nil && t.Work.p == p && !t.Stopping() && !s.closed
	begun := isClosed(p.ready)
	s.mu.Unlock()
	// First the connection: who is told that a turn has failed may prompt again at
	// once, and must not be given this process.
	if lost && begun {
		s.a.conn.Fail(exit)
	}
	close(p.ended)
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func (s *session) unparsed(line []byte, reason error) {
	bridge.TellUnparsed(s.ctx, s.a.peer, s.log, line, reason)
}
