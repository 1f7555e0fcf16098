package amp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/ndjson"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/internal/process"
)

// startBound limits how long the program may take to begin. Tests lower it.
var startBound = 60 * time.Second

// ladder is how the program is ended behind a turn that ended well: at the end of
// its input it sends the thread to Amp's server. Behind any other turn, and before
// the first, it would wait for ever for an end: then it is told by SIGTERM, which
// has the same effect.
var ladder = process.Ladder{EOF: 4 * time.Second, Term: 3 * time.Second}

// maxBefore bounds the files whose text is read for a diff.
const maxBefore = 1 << 20

// maxAsks bounds the questions about permissions that are open in a session, more
// are refused.
const maxAsks = 64

// session is a session and the process that serves it now.
type session struct {
	a   *agent
	cwd string
	log *slog.Logger
	l   *launch

	dir    string             // of files for the program; removed at the end
	facts  facts              // of the program; set before it starts
	desk   *desk              // where delegates ask; nil when nobody is asked
	ctx    context.Context    // of the questions
	stop   context.CancelFunc // ends ctx
	work   sync.WaitGroup     // readers, the desk, the questions
	ending sync.Once
	slot   chan struct{} // cap 1: held by who runs a turn or changes the process

	out sync.Mutex  // guards tr, and orders updates; taken before mu
	tr  *translator // guarded by out

	mu      sync.Mutex
	id      acp.SessionID
	p       *proc // nil before the first
	thread  string
	said    bool // the thread has something to go on with
	mode    string
	turn    *turn // the prompt that runs
	asks    int   // open ones
	granted map[string]bool
	lines   chan struct{} // closed and replaced with each line
	titled  bool
	closed  bool // its end is wanted
}

// proc is a process of a session.
type proc struct {
	child *bridge.Child
	ready chan struct{} // closed when it says that it has begun
	ended chan struct{} // closed when it has ended and was read to its end
	exit  error         // valid when ended is closed

	once  sync.Once // of ready
	login bool      // it asks for a login; valid when ended is closed
	over  bool      // it takes no prompts any more; guarded by the session's mu
	well  bool      // its last turn ended well; guarded by the session's mu
}

// turn is a prompt that the program works on.
type turn struct {
	done      chan verdict  // cap 1
	cut       chan struct{} // cap 1: its last message was cut short
	stop      chan struct{} // cap 1: a client wants it to end, by its answer to a question
	cancelled bool          // guarded by the session's mu
	settled   bool          // done has its verdict; guarded by the session's mu
}

func (a *agent) newSession(id acp.SessionID, l *launch) *session {
	s := &session{
		a: a, id: id, cwd: l.Cwd, log: a.log, l: l, slot: make(chan struct{}, 1), granted: map[string]bool{}, mode: l.mode, lines: make(chan struct{}),
		dir: filepath.Join(a.o.StateDir, "run", runs.name()),
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.tr = newTranslator(s.textOf, uuid.NewString)
	return s
}

// textOf returns the text of a file that a tool is about to change.
func (s *session) textOf(path string) (string, bool) {
	if !filepath.IsAbs(path) {
		path = filepath.Join(s.cwd, path)
	}
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxBefore {
		return "", false
	}
	b, err := os.ReadFile(path)
	return string(b), err == nil
}

// prepare writes what the program reads, and opens the desk.
func (s *session) prepare() error {
	if err := checkWorkspace(s.cwd, s.l.permit); err != nil {
		return err
	}
	own, err := readSettings(userSettings(s.a.environ()))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("make a folder for amp: %w", err)
	}
	program := ""
	if s.l.permit == permitDefault || s.l.permit == permitWrite {
		if s.desk, err = newDesk(s.dir); err != nil {
			return err
		}
		program = s.desk.program
		s.work.Go(func() { s.desk.serve(s.ctx, s.work.Go, s.decide) })
	}
	return s.l.files(s.dir, own, program)
}

// spawn starts a process when there is none that takes prompts, and returns the
// one to wait for. The caller holds the slot.
func (s *session) spawn(ctx context.Context) (*proc, error) {
	s.mu.Lock()
	old, gone := s.p, s.p == nil || s.p.over
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
	args := slices.Concat(s.a.o.Program.Args, s.l.args(s.dir, thread, mode, s.facts.version))
	child, err := bridge.Start(ctx, process.Spec{Path: s.a.o.Program.Path, Args: args, Dir: s.cwd, Env: s.a.environ()})
	if err != nil {
		return nil, err
	}
	p := &proc{child: child, ready: make(chan struct{}), ended: make(chan struct{})}
	s.mu.Lock()
	closed := s.closed
	if !closed {
		s.p = p
		s.work.Go(func() { s.read(p) })
	}
	s.mu.Unlock()
	if closed {
		child.End(process.Ladder{})
		return nil, io.ErrClosedPipe
	}
	s.a.conn.SetProcess(child.Process)
	return p, nil
}

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
		return errCancelled
	case <-ctx.Done():
		return ctx.Err()
	case <-limit.C:
	}
	p.child.Stop(process.Ladder{Term: ladder.Term})
	<-p.ended
	if _, tail, _, _ := p.child.Stderr(); p.login || asksLogin(tail) {
		return authRequired("amp asks for a login")
	}
	return acp.Errorf(acp.CodeInternal, "amp did not begin within %v%s", startBound, s.about())
}

var errCancelled = errors.New("the turn was cancelled")

// about says what may be the reason for a start that fails.
func (s *session) about() string {
	if v := s.facts.version; onServer(v) {
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
	case strings.Contains(words, "does not exist"):
		return acp.Errorf(acp.CodeResourceNotFound, "amp does not know this thread: %s", strings.TrimSpace(words))
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
	for {
		line, err := p.child.ReadLine()
		if tooLong, ok := errors.AsType[*ndjson.TooLongError](err); ok {
			s.unparsed(line, tooLong)
			continue
		}
		if err != nil {
			break
		}
		e, err := parse(line)
		if err != nil {
			if asksLogin(string(line)) {
				p.login = true
				s.work.Go(func() { p.child.Stop(process.Ladder{Term: ladder.Term}) })
			}
			s.unparsed(line, err)
			continue
		}
		s.take(p, e)
	}
	exit := p.child.End(ladder)
	p.exit = exit
	s.mu.Lock()
	p.over = true
	t := s.turn
	lost := t != nil && !t.cancelled && !t.settled && !s.closed && s.p == p
	begun := isClosed(p.ready)
	s.mu.Unlock()
	close(p.ended)
	if lost && begun {
		s.a.conn.Fail(exit)
	}
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
	m := ndjson.Unparsed(line, reason)
	if err := s.a.peer.Notify(s.ctx, m.Method(), m.Params()); err != nil && !errors.Is(err, io.ErrClosedPipe) {
		s.log.Debug("report a line that is no message", "session", s.name(), "err", err)
	}
}

func (s *session) name() acp.SessionID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// take acts on a line. It runs on the reader, in order.
func (s *session) take(p *proc, e *event) {
	if e.Type == "system" && e.Subtype == "init" {
		s.mu.Lock()
		if e.Thread != "" {
			s.thread = e.Thread
		}
		s.mu.Unlock()
		p.once.Do(func() { close(p.ready) })
		return
	}
	s.mu.Lock()
	late := p.over && e.Type != "result" // what comes behind a cancel is of no turn
	s.mu.Unlock()
	if late {
		return
	}
	s.emit(func(t *translator) []acp.SessionUpdate { return t.translate(e) })
	s.mu.Lock()
	close(s.lines)
	s.lines = make(chan struct{})
	s.mu.Unlock()
	if e.Type == "user" || e.Type == "assistant" {
		s.spoken()
	}
	if e.Type == "result" {
		s.mu.Lock()
		p.over = true
		s.mu.Unlock()
		// It says nothing more, and ends when its input does.
		s.work.Go(func() { p.child.Stop(ladder) })
		s.settle(judge(e))
		return
	}
	switch v, ends, cut := over(e); {
	case ends:
		s.mu.Lock()
		p.well = v.reason == acp.StopReasonEndTurn
		s.mu.Unlock()
		s.settle(v)
	case cut:
		s.mu.Lock()
		if t := s.turn; t != nil {
			select {
			case t.cut <- struct{}{}:
			default:
			}
		}
		s.mu.Unlock()
	}
}

// spoken notes that the thread has something to go on with.
func (s *session) spoken() {
	s.mu.Lock()
	s.said = true
	s.mu.Unlock()
	s.keep()
}

// keep remembers the session. It is not worth failing for.
func (s *session) keep() {
	s.out.Lock()
	open := s.tr.open()
	s.out.Unlock()
	s.mu.Lock()
	now := record{Cwd: s.cwd, Thread: s.thread, Said: s.said, Mode: s.mode, Open: open}
	id := s.id
	s.mu.Unlock()
	if id == "" {
		return
	}
	if err := s.a.store.Change(string(id), func(r *record) { *r = now }); err != nil {
		s.log.Warn("remember a session", "session", id, "err", err)
	}
}

// settle ends the turn that runs.
func (s *session) settle(v verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.turn; t != nil && !t.settled {
		t.settled = true
		t.done <- v
	}
}

// emit sends the updates that f returns. f has the translator for itself.
func (s *session) emit(f func(t *translator) []acp.SessionUpdate) {
	s.out.Lock()
	defer s.out.Unlock()
	id := s.name()
	for _, u := range f(s.tr) {
		// It fails only when the connection has ended, which others notice.
		if err := s.a.peer.Update(s.ctx, id, u); err != nil {
			s.log.Debug("send an update", "session", id, "err", err)
		}
	}
}

// end ends the process, everything that it started, and every goroutine of the
// session. It may be called more than once, and returns when that is done.
func (s *session) end() {
	s.ending.Do(func() {
		s.mu.Lock()
		s.closed = true
		p, steps := s.p, s.stepsLocked()
		s.mu.Unlock()
		s.stop()
		if p != nil {
			p.child.Stop(steps)
			<-p.ended
		}
		if s.desk != nil {
			s.desk.close()
		}
		s.work.Wait()
		runs.remove(s.dir, s.log)
	})
}
