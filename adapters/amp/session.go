package amp

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/google/uuid"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge/turn"
	"sandboxagent.dev/sandbox-agent/internal/awake"
)

// runs are the folders of all sessions.
var runs bridge.Folders

// session is a session and the process that serves it now.
type session struct {
	a   *agent
	cwd string
	log *slog.Logger
	l   *launch

	dir     string             // of files for the program; removed at the end
	version string             // of the program, "" if that is not known; set before it starts
	desk    *desk              // where delegates ask; nil when nobody is asked
	ctx     context.Context    // of the questions
	stop    context.CancelFunc // ends ctx
	work    sync.WaitGroup     // readers, the desk, the questions
	ending  sync.Once
	turns   *turn.Turns[work]
	asks    turn.Asks // about permissions
	title   bridge.Title

	out sync.Mutex  // guards tr, and orders updates; taken before mu
	tr  *translator // guarded by out

	mu      sync.Mutex
	id      schema.SessionID
	p       *proc // nil before the first
	thread  string
	said    bool // the thread has something to go on with
	mode    string
	modes   []string // that there are; nil if that is not known
	granted bridge.Grants
	lines   chan struct{} // closed and replaced with each line
	closed  bool          // its end is wanted
}

func (a *agent) newSession(id schema.SessionID, l *launch) *session {
	s := &session{
		a: a, id: id, cwd: l.Cwd, log: a.log, l: l, mode: l.mode, lines: make(chan struct{}),
		dir: filepath.Join(a.o.StateDir, "run", runs.Name()),
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.turns = turn.New[work](s.ctx)
	s.tr = newTranslator(func(path string) (string, bool) { return bridge.TextBefore(l.Cwd, path) }, uuid.NewString)
	return s
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

func (s *session) name() schema.SessionID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.id
}

// take acts on a line. It runs on the reader, in order.
func (s *session) take(p *proc, e *event) {
	s.mu.Lock()
	p.heard = time.Now()
	s.mu.Unlock()
	if e.Type == "system" && e.Subtype == "init" {
		s.mu.Lock()
		if e.Thread != "" {
			s.thread = e.Thread
		}
		if s.id == "" { // it is new
			s.id = schema.SessionID(s.thread)
		}
		s.mu.Unlock()
		p.once.Do(func() { close(p.ready) })
		bridge.TellServers(s.ctx, s.a.peer, s.log, s.name(), serversOf(e))
		return
	}
	s.mu.Lock()
	late := p.over && e.Type != "result" // what comes behind a cancel is of no turn
	if e.repeats() {
		p.untold, p.goesOn = false, false
	}
	untold := p.untold
	s.mu.Unlock()
	if late {
		return
	}
	s.emit(func(t *translator) []schema.SessionUpdate { return t.translate(e) })
	s.mu.Lock()
	close(s.lines)
	s.lines = make(chan struct{})
	s.mu.Unlock()
	if t := s.turnOf(p); t != nil && s.again() {
		t.Go(func(ctx context.Context) { s.watch(ctx, t) })
	}
	if e.Type == "user" || e.Type == "assistant" {
		s.spoken()
	}
	if e.Type == "result" {
		s.mu.Lock()
		p.over, p.well = true, true
		s.mu.Unlock()
		// It says nothing more, and ends when its input does.
		s.work.Go(func() { p.child.Stop(ladder) })
		s.settle(p, judge(e))
		return
	}
	switch v, ends, cut := over(e); {
	case untold: // it is the end of the turn before
	case ends:
		s.mu.Lock()
		p.well = v.Reason == schema.StopReasonEndTurn
		s.mu.Unlock()
		s.settle(p, v)
	case cut:
		if t := s.turnOf(p); t != nil && !t.Work.cut {
			t.Work.cut = true
			t.Go(func(ctx context.Context) { s.settleCut(ctx, t) })
		}
	}
}

// stuckPause is how long the program may say nothing behind a call whose id was
// used before.
const stuckPause = 2 * time.Minute

// again reports whether the model has used the id of a call again.
func (s *session) again() bool {
	s.out.Lock()
	defer s.out.Unlock()
	again := s.tr.again
	s.tr.again = false
	return again
}

// watch ends a turn whose program says nothing more behind a call whose id was
// used before: it takes the result of the first for that of the second, and waits
// for ever.
func (s *session) watch(ctx context.Context, t *turn.Turn[work]) {
	s.mu.Lock()
	next := s.lines
	s.mu.Unlock()
	for {
		late, stop := awake.After(s.a.stuck)
		select {
		case <-next:
			stop()
			return
		case <-ctx.Done():
			stop()
			return
		case <-late:
		}
		if s.asks.Open() {
			continue // a client is asked about it
		}
		// Who is told that the turn has failed may prompt again at once, and must not be
		// given this process.
		s.mu.Lock()
		p := t.Work.p
		p.over, p.well = true, true
		s.mu.Unlock()
		if t.Settle(turn.Verdict{Err: acp.Errorf(acp.CodeInternal, "amp does not go on: the model has used the id of a tool call again, which amp cannot tell from the first")}) {
			s.interrupt(p)
		}
		return
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
	now := record{Cwd: s.cwd, Thread: s.thread, Said: s.said, Mode: s.mode, Open: open, Granted: s.granted}
	id := s.id
	s.mu.Unlock()
	if id == "" {
		return
	}
	if err := s.a.store.Change(string(id), func(r *record) { *r = now }); err != nil {
		s.log.Warn("remember a session", "session", id, "err", err)
	}
}

// turnOf returns the turn that a process works on. One that was given up may end
// its turn when the next has begun.
func (s *session) turnOf(p *proc) *turn.Turn[work] {
	t := s.turns.Current()
	s.mu.Lock()
	defer s.mu.Unlock()
	if t == nil || t.Work.p != p {
		return nil
	}
	return t
}

// settle ends the turn that a process works on.
func (s *session) settle(p *proc, v turn.Verdict) {
	if t := s.turnOf(p); t != nil {
		t.Settle(v)
	}
}

// settleCut ends a turn whose last message was cut short, unless an error follows
// in a moment. A busy machine writes the reason later.
func (s *session) settleCut(ctx context.Context, t *turn.Turn[work]) {
	pause := time.NewTicker(cutPause)
	defer pause.Stop()
	s.mu.Lock()
	given := t.Work.given
	s.mu.Unlock()
	for left := maxCutPauses; ; left-- {
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
		if reason, known := s.cutReason(given); known || left == 1 {
			t.Settle(judgeCut(reason))
			return
		}
	}
}

// emit sends the updates that f returns. f has the translator for itself.
func (s *session) emit(f func(t *translator) []schema.SessionUpdate) {
	s.out.Lock()
	defer s.out.Unlock()
	bridge.Tell(s.ctx, s.a.peer, s.log, s.name(), f(s.tr))
}

// end ends the process, everything that it started, and every goroutine of the
// session. It may be called more than once, and returns when that is done.
func (s *session) end() {
	s.ending.Do(func() {
		s.turns.Close()
		overtaken := s.overtaken()
		s.mu.Lock()
		s.closed = true
		p, steps := s.p, s.stepsLocked()
		s.mu.Unlock()
		if overtaken { // when it sees its end coming it writes its own copy over the other
			p.child.Kill()
		}
		s.stop()
		if p != nil {
			p.child.Stop(steps)
			<-p.ended
		}
		if s.desk != nil {
			s.desk.close()
		}
		s.work.Wait()
		runs.Remove(s.dir, s.log)
	})
}
