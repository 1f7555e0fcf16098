package claude

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge/turn"
	"sandboxagent.dev/sandbox-agent/internal/process"
)

// startBound limits how long the program may take to say that it is ready.
const startBound = 90 * time.Second

// runs are the folders of all sessions.
var runs bridge.Folders

// session is a session and the process that serves it.
type session struct {
	a    *agent
	id   schema.SessionID
	cwd  string
	wish string // the permissionMode that it was opened with
	log  *slog.Logger

	child  *bridge.Child
	dir    string             // of files for the program; removed at the end
	native string             // the newest native id; the reader's own
	ctx    context.Context    // of the questions that the program asks
	stop   context.CancelFunc // ends ctx
	work   sync.WaitGroup     // the reader, and the questions
	ending sync.Once
	ended  chan struct{} // closed when the process has ended and was read to its end
	exit   error         // how it ended; valid when ended is closed
	turns  *turn.Turns[work]
	asks   turn.Asks // what the program asks
	title  bridge.Title

	looking bridge.Later // at the MCP servers
	servers sync.Mutex   // orders what is told of them; taken before mu

	out sync.Mutex  // guards tr, and orders updates; taken before mu
	tr  *translator // guarded by out

	mu     sync.Mutex
	lastID int
	calls  map[string]call            // what the program was asked
	askers map[string]*controlRequest // open questions, by their ids
	set    settings
	failed string // why the program did not start, in its own words
	tries  int    // refused attempts after which credentials are bad
	closed bool   // its end is wanted
	runs   bool   // the program works on a prompt, or on something of its own

	statuses map[string]string // of the MCP servers, as they were told last
	refused  map[string]string // why it did not take some of the session's
}

func (a *agent) newSession(id schema.SessionID, cwd string) *session {
	s := &session{
		a: a, id: id, cwd: cwd, log: a.log, ended: make(chan struct{}),
		calls: map[string]call{}, askers: map[string]*controlRequest{},
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.turns = turn.New[work](s.ctx)
	s.turns.Watch(bridge.Works(s.ctx, a.peer, func() schema.SessionID { return s.id }))
	s.tr = newTranslator(func(path string) (string, bool) { return bridge.TextBefore(cwd, path) })
	return s
}

// start starts the program and returns its answer to initialize. On an error
// nothing is left.
func (s *session) start(ctx context.Context, l *launch, args ...string) (_ *greeting, err error) {
	s.wish, s.dir = l.PermissionMode, filepath.Join(s.a.o.StateDir, "run", runs.Name())
	defer func() {
		if err != nil {
			s.end()
		}
	}()
	l.redirect(s.a.o.Credentials.BaseURL)
	if err := l.files(s.dir); err != nil {
		return nil, err
	}
	l.args = append(l.args, args...)
	s.child, err = bridge.Start(ctx, process.Spec{
		Path: s.a.o.Program.Path, Args: slices.Concat(s.a.o.Program.Args, l.args), Dir: s.cwd, Env: s.a.environ(),
	}, s.a.o.Tap)
	if err != nil {
		return nil, err
	}
	s.work.Go(s.read)
	g, err := s.greet(ctx, l)
	if err != nil {
		return nil, s.startError(err)
	}
	s.a.conn.SetProcess(s.child.Process)
	return g, nil
}

// greeting is the program's answer to initialize.
type greeting struct {
	Commands []command `json:"commands"`
	Models   []model   `json:"models"`
	Account  account   `json:"account"`
	Version  string    `json:"claude_code_version"`
	Mode     string    `json:"current_permission_mode"`
}

func (s *session) greet(ctx context.Context, l *launch) (*greeting, error) {
	raw, err := s.controlWithin(ctx, startBound, l.initialize, func() {})
	if err != nil {
		return nil, err
	}
	g := new(greeting)
	if err := bridge.Lenient(raw, g); err != nil {
		return nil, fmt.Errorf("read claude's greeting: %w", err)
	}
	now, err := s.readSettings(ctx)
	if err != nil {
		s.log.Debug("claude does not say which settings are in effect", "session", s.id, "err", err)
	}
	mode := bridge.FirstOf(g.Mode, flagOf(l.args, "--permission-mode"), modeDefault)
	s.out.Lock()
	s.tr.mode = mode
	s.out.Unlock()
	s.mu.Lock()
	s.tries = g.Account.attempts()
	s.set = settings{models: g.Models, mode: mode, bypass: flagOf(l.args, "--allow-dangerously-skip-permissions") != ""}
	if len(g.Models) > 0 {
		s.set.model = g.Models[0].Value
	}
	s.set.take(now)
	s.mu.Unlock()
	if len(l.servers) > 0 {
		s.connect(ctx, l)
	}
	return g, nil
}

// connect gives the program its MCP servers on stdin, because their
// configuration may hold secrets. A server that fails does not end the session.
func (s *session) connect(ctx context.Context, l *launch) {
	raw, err := s.control(ctx, map[string]any{"subtype": "mcp_set_servers", "servers": l.servers})
	if err != nil {
		l.Cannot("mcpServers", "%v", err)
		return
	}
	var r struct {
		Errors map[string]string `json:"errors"`
	}
	if bridge.Lenient(raw, &r) == nil {
		for name, reason := range r.Errors {
			l.Cannot("mcpServers."+name, "%s", reason)
		}
		s.mu.Lock()
		s.refused = r.Errors
		s.mu.Unlock()
	}
}

// flagOf returns the value of a flag, or the flag itself when it has none.
func flagOf(args []string, name string) string {
	value := ""
	for i, a := range args {
		switch {
		case strings.HasPrefix(a, name+"="):
			value = a[len(name)+1:]
		case a == name && i+1 < len(args) && !strings.HasPrefix(args[i+1], "--"):
			value = args[i+1]
		case a == name:
			value = name
		}
	}
	return value
}

// startError says why the program did not get ready.
func (s *session) startError(err error) error {
	if !errors.Is(err, errEnded) {
		return err
	}
	s.mu.Lock()
	failed := s.failed
	s.mu.Unlock()
	exit, _ := errors.AsType[*adapters.ExitError](s.exit)
	if exit != nil {
		failed = bridge.FirstOf(failed, exit.Stderr.Tail)
	}
	switch {
	case strings.Contains(failed, "No conversation found"):
		return acp.Errorf(acp.CodeResourceNotFound, "claude does not know this session in %s: %s", s.cwd, failed)
	case strings.Contains(failed, "already in use"):
		return acp.Errorf(acp.CodeInvalidParams, "%s", failed)
	case exit != nil:
		return &acp.Error{Code: acp.CodeInternal, Message: "claude did not start: " + exit.Error(), Data: exit.Data()}
	}
	return fmt.Errorf("claude did not start: %w", err)
}

// read takes every line of the program until it ends.
func (s *session) read() {
	s.child.Each(func(line []byte) error {
		e, err := parse(line)
		if err == nil {
			s.take(e)
		}
		return err
	}, s.unparsed)
	// A program that closed its stdout can do nothing more for anybody.
	exit := s.child.End(process.DefaultLadder)
	s.exit = exit
	s.mu.Lock()
	wanted := s.closed
	s.runs = false
	s.mu.Unlock()
	fail := func() {
		if !wanted && s.a.sessions.Has(s.id, s) {
			s.a.conn.Fail(exit)
		}
	}
	// First the connection: who is told that a turn has failed may prompt again at
	// once, and must not be given this process.
	fail()
	close(s.ended)
	s.stop()
	fail() // in case it was opened meanwhile
}

func (s *session) unparsed(line []byte, reason error) {
	bridge.TellUnparsed(s.ctx, s.a.peer, s.log, line, reason)
}

// emit sends the updates that f returns. f has the translator for itself.
func (s *session) emit(f func(t *translator) []schema.SessionUpdate) {
	if mode := s.emitLocked(f); mode != "" {
		s.keep(func(r *record) { r.Mode = bridge.In(mode, s.wish) })
	}
}

// emitLocked is emit but for what goes to disk: it returns a new mode.
func (s *session) emitLocked(f func(t *translator) []schema.SessionUpdate) (mode string) {
	s.out.Lock()
	defer s.out.Unlock()
	for _, u := range f(s.tr) {
		s.update(u)
		if u.CurrentModeUpdate == nil {
			continue
		}
		mode = string(u.CurrentModeUpdate.CurrentModeID)
		s.mu.Lock()
		s.set.mode = mode
		s.mu.Unlock()
		s.update(schema.SessionUpdate{ConfigOptionUpdate: &schema.ConfigOptionUpdate{ConfigOptions: s.options()}})
	}
	return mode
}

func (s *session) update(u ...schema.SessionUpdate) {
	bridge.Tell(s.ctx, s.a.peer, s.log, s.id, u)
}

// end ends the process, everything that it started, and every goroutine of the
// session. It may be called more than once, and returns when that is done.
func (s *session) end() {
	s.ending.Do(func() {
		s.turns.Close()
		s.mu.Lock()
		s.closed = true
		s.mu.Unlock()
		if s.child != nil {
			s.farewell()
			s.child.Stop(process.DefaultLadder)
			<-s.ended
		}
		s.stop()
		s.looking.Stop()
		s.work.Wait()
		if s.dir != "" {
			runs.Remove(s.dir, s.log)
		}
	})
}

// farewellBound limits how long the program may take for the end of a running
// turn before its input ends.
const farewellBound = 2 * time.Second

// farewell asks the program to stop what it does and to go. It would finish its
// turn first if only its input ended, and leave its commands running if it was
// killed.
func (s *session) farewell() {
	done := make(chan struct{})
	s.work.Go(func() {
		defer close(done)
		for _, what := range []string{"interrupt", "end_session"} {
			if err := s.send(s.ctx, map[string]any{"type": "control_request", "request_id": "gateway-" + what, "request": map[string]string{"subtype": what}}); err != nil {
				return // it has gone already
			}
		}
	})
	limit := time.NewTimer(farewellBound)
	defer limit.Stop()
	select {
	case <-done:
	case <-s.ended:
		return
	case <-limit.C:
		return // it does not read
	}
	if !s.turns.Busy() {
		return
	}
	select {
	case <-s.ended:
	case <-limit.C:
	}
}
