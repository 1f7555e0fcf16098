package pi

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"sandboxagent.dev/sandbox-agent/internal/pattern"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge/turn"
	"sandboxagent.dev/sandbox-agent/internal/process"
)

// maxEarly bounds the updates that wait for the session's id: beyond it pieces of messages are left out, beyond four times as many all
// others. The client is told.
const maxEarly = 256

// runs are the folders of all sessions.
var runs bridge.Folders

// session is a session and the process that serves it.
type session struct {
	a      *agent
	id     schema.SessionID // known when the program has started
	cwd    string
	launch *launch
	log    *slog.Logger

	mark    string             // of the gate's dialogs
	dir     string             // of files for Pi; removed at the end
	ctx     context.Context    // of the questions that Pi asks
	stop    context.CancelFunc // ends ctx
	work    sync.WaitGroup     // the questions
	ending  sync.Once
	dying   sync.Once
	dead    chan struct{} // closed when Pi has ended for good
	exit    error         // how it ended; valid when dead is closed
	turns   *turn.Turns[work]
	asks    turn.Asks     // what Pi asks
	reading chan struct{} // cap 1; held by who asks Pi for its state
	title   bridge.Title

	out   sync.Mutex // guards the following, and orders updates; taken before mu
	tr    *translator
	named bool                   // the client may be told of id
	early []schema.SessionUpdate // what came before it was; see maxEarly
	less  bool                   // some of that was left out
	mcp   []acp.MCPServer        // as Pi told of them before it was

	mu          sync.Mutex
	prog        *program
	version     string            // of Pi, "" when it is not known
	gated       bool              // the gate is in place
	calls       map[string]string // the calls that asks are about, by call
	granted     bridge.Grants     // what was allowed for the session
	set         settings
	runs        int  // how many have begun
	compactions int  // likewise
	levelled    int  // how often Pi has told of its level of thinking
	retry       bool // Pi will go on by itself
	settles     bool // Pi says when it has settled
	served      bool // the client knows of the session, so it can be asked
	closed      bool // its end is wanted
}

func (a *agent) newSession(l *launch) *session {
	s := &session{
		a: a, cwd: l.Cwd, launch: l, log: a.log, mark: rand.Text(), dead: make(chan struct{}), reading: make(chan struct{}, 1),
		calls: map[string]string{},
	}
	s.dir = filepath.Join(a.o.StateDir, "run", runs.Name())
	s.set.mode = l.mode
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.turns = turn.New[work](s.ctx)
	s.turns.Watch(bridge.Works(s.ctx, a.peer, func() schema.SessionID { return s.id }))
	s.tr = newTranslator(l.Cwd, s.textOf)
	return s
}

// textOf returns the text of a file that a tool is about to change.
func (s *session) textOf(path string) before {
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return before{}
	}
	text, read := bridge.TextBefore(s.cwd, path)
	return before{there: true, read: read, text: text}
}

// greeting is what Pi says of itself when it has started.
type greeting struct {
	state
	Commands []command
}

// start starts Pi and returns how it greets. On an error nothing is left.
func (s *session) start(ctx context.Context, args ...string) (_ *greeting, err error) {
	defer func() {
		if err != nil {
			s.end()
		}
	}()
	return s.run(ctx, args...)
}

// run starts a process, with which the session goes on.
func (s *session) run(ctx context.Context, args ...string) (*greeting, error) {
	all, err := s.launch.write(s.dir, s.a.files.config, gateFacts{Mark: s.mark, Servers: s.launch.servers, Providers: s.a.redirected(), Keys: s.a.keys()})
	if err != nil {
		return nil, err
	}
	p := &program{odd: s.unparsed, over: s.over}
	p.take = func(e *event) { s.take(p, e) }
	err = startProgram(ctx, process.Spec{
		Path: s.a.o.Program.Path, Args: slices.Concat(s.a.o.Program.Args, all, args), Dir: s.cwd, Env: s.a.environ(),
	}, s.a.o.Tap, p)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	s.prog = p
	closed := s.closed
	s.mu.Unlock()
	if closed { // end has not seen it
		p.end()
		return nil, p.exit
	}
	g, err := s.greet(ctx, p)
	if err != nil {
		return nil, s.startError(p, err)
	}
	return g, nil
}

// greet waits until Pi is ready, and asks it what clients will want to know. Pi
// starts the extensions before it reads, so the gate has announced itself when
// the first answer comes, or it is not there.
func (s *session) greet(ctx context.Context, p *program) (*greeting, error) {
	bound, cancel := bridge.Within(ctx, startBound)
	defer cancel()
	raw, err := p.call(bound, "get_state", nil)
	if err != nil {
		return nil, err
	}
	g := new(greeting)
	if err := bridge.Lenient(raw, &g.state); err != nil {
		return nil, fmt.Errorf("read pi's state: %w", err)
	}
	s.mu.Lock()
	a := p.gate
	s.gated = a != nil
	if a != nil {
		s.version, s.settles = a.Version, atLeast(a.Version, 0, 80, 4)
	}
	mode := s.set.mode
	s.mu.Unlock()
	switch {
	case a == nil && mode != modeBypass:
		return nil, acp.Errorf(acp.CodeInternal, "pi did not load the gateway's permission gate, so nothing would be asked for and no session starts; "+
			"check that this pi loads extensions (`pi --extension FILE`), or set permissionMode to bypass to do without")
	case a == nil && len(s.launch.servers) > 0:
		s.launch.Cannot("mcpServers", "pi did not load the extension that connects them")
	case len(s.launch.servers) > 0 && !a.MCP:
		s.launch.Cannot("mcpServers", "pi %s has no MCP: 0.99.0 and newer have", a.Version)
	case a != nil:
		for name, reason := range a.Failed {
			s.launch.Cannot("mcpServers."+name, "%s", reason)
		}
	}
	if _, _, key := s.a.provider(); key != "" && (a == nil || !a.Keyed) {
		s.launch.Cannot("credentials", "a login of the user's for the same provider goes before them")
	}
	s.mu.Lock()
	told := s.levelled
	s.mu.Unlock()
	if err := s.readModels(ctx, p, &g.state, told); err != nil {
		return nil, err
	}
	g.Commands = s.readCommands(ctx, p)
	var stats struct {
		Cost    float64 `json:"cost"`
		Context struct {
			Tokens *uint64 `json:"tokens"`
		} `json:"contextUsage"`
	}
	if err := p.ask(ctx, "get_session_stats", nil, &stats); err != nil {
		s.log.Debug("pi does not say what the session cost", "err", err)
	}
	s.out.Lock()
	s.tr.usage.cost = stats.Cost
	s.out.Unlock()
	return g, nil
}

// readCommands asks Pi for its commands.
func (s *session) readCommands(ctx context.Context, p *program) []command {
	var list struct {
		Commands []command `json:"commands"`
	}
	if err := p.ask(ctx, "get_commands", nil, &list); err != nil {
		s.log.Debug("pi does not list its commands", "err", err)
	}
	return list.Commands
}

// goOn takes that an extension has Pi go on with another conversation, or load everything
// anew. The reader calls it.
func (s *session) goOn(p *program, a *announcement) {
	s.mu.Lock()
	served := s.served
	s.mu.Unlock()
	if !served {
		return
	}
	if a.File != "" {
		s.keep(func(r *record) { r.goOn(a.File, a.made()) })
	}
	s.work.Go(func() {
		if err := s.readState(s.ctx, p); err != nil {
			s.log.Debug("ask pi what it goes on with", "session", s.id, "err", err)
			return
		}
		list := s.readCommands(s.ctx, p)
		s.emit(func(*translator) []schema.SessionUpdate { return commandsUpdate(list) })
		s.showOptions()
	})
}

// startError says why Pi did not get ready.
func (s *session) startError(p *program, err error) error {
	if _, refused := errors.AsType[*acp.Error](err); refused {
		return err
	}
	p.end()
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &acp.Error{Code: acp.CodeInternal, Message: "pi did not start: " + p.exit.Error() + remedyFor(p.exit.Stderr.Tail), Data: p.exit.Data()}
}

// nodeForm finds the version with which Node.js ends the report of an error that
// nobody caught.
var nodeForm = pattern.New(`Node\.js v(\d+)\.`)

// remedyFor says what to do about what Pi wrote when it ended, "" when that says
// all.
func remedyFor(stderr string) string {
	m := nodeForm.FindStringSubmatch(stderr)
	if m == nil || atLeast(m[1], 22) {
		return ""
	}
	return "\nNewer versions of pi need Node.js 22.19 or newer; the `node` that was found is of version " + m[1] + ": put a newer one first in PATH"
}

// errStarting is the answer to a request that comes between two processes.
var errStarting = acp.Errorf(acp.CodeInternal, "pi is being started with another choice: send it again in a moment")

// program returns the process that serves the session now, nil between two.
func (s *session) program() *program {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.prog
}

// over is called when a process has ended.
func (s *session) over(p *program) {
	s.mu.Lock()
	replaced, wanted := s.prog != p, s.closed
	s.mu.Unlock()
	if replaced {
		return
	}
	fail := func() {
		if !wanted && s.a.sessions.Has(s.id, s) {
			s.a.conn.Fail(p.exit)
		}
	}
	// First the connection: who is told that a turn has failed may prompt again at
	// once, and must not be given this process.
	fail()
	s.lost(p.exit)
	fail() // in case it was opened meanwhile
}

// lost says that no process serves the session any more. The first call counts.
func (s *session) lost(exit error) {
	s.dying.Do(func() {
		s.exit = exit
		close(s.dead)
		s.stop()
	})
}

// replace lets the session go on with a new process, between two turns.
func (s *session) replace(ctx context.Context, why string, args ...string) error {
	release, ok := s.turns.Hold()
	if !ok {
		return acp.Errorf(acp.CodeInvalidRequest, "this pi changes %s only between turns: cancel the turn, or wait for its end", why)
	}
	defer release()
	if s.turns.Alone() {
		return acp.Errorf(acp.CodeInvalidRequest, "this pi changes %s only when it does nothing: cancel what it does by itself, or wait for its end", why)
	}
	s.mu.Lock()
	old := s.prog
	s.prog = nil
	s.mu.Unlock()
	if old != nil {
		old.end()
		s.left()
	}
	if file := s.record().File; exists(file) {
		args = append(args, "--session", file)
	}
	g, err := s.run(ctx, args...)
	if err != nil {
		err = fmt.Errorf("pi did not start again: %w", err)
		s.mu.Lock()
		wanted := s.closed // then the session ends, and the connection does not
		s.mu.Unlock()
		if !wanted {
			s.a.conn.Fail(err)
		}
		s.lost(err)
		return err
	}
	s.a.conn.SetProcess(s.program().child.Process)
	s.keep(func(r *record) { r.File = g.File })
	return nil
}

// left gives up what a process has left open that another one takes the place of: it may
// have begun something as it was told to end.
func (s *session) left() {
	s.asks.WithdrawAll()
	s.emit(func(t *translator) []schema.SessionUpdate { return t.abandoned() })
	s.mu.Lock()
	s.retry = false
	s.mu.Unlock()
	s.turns.OwnOver(ownRun, ownCompaction)
}

func exists(file string) bool {
	if file == "" {
		return false
	}
	_, err := os.Stat(file)
	return !errors.Is(err, fs.ErrNotExist) // else it says itself why it cannot be read
}

func (s *session) unparsed(line []byte, reason error) {
	bridge.TellUnparsed(s.ctx, s.a.peer, s.log, line, reason)
}

// emit sends the updates that f returns. f has the translator for itself.
func (s *session) emit(f func(t *translator) []schema.SessionUpdate) {
	s.out.Lock()
	defer s.out.Unlock()
	for _, u := range f(s.tr) {
		switch {
		case s.named:
			s.update(u)
		case len(s.early) < maxEarly || len(s.early) < 4*maxEarly && u.AgentMessageChunk == nil && u.AgentThoughtChunk == nil:
			s.early = append(s.early, u)
		default:
			s.less = true
		}
	}
}

// update sends updates; the caller holds out.
func (s *session) update(u ...schema.SessionUpdate) {
	bridge.Tell(s.ctx, s.a.peer, s.log, s.id, u)
}

// name gives the session its id, and sends what has waited for it. Until then
// only the goroutine that sets it up knows the id.
func (s *session) name(id schema.SessionID) {
	s.out.Lock()
	defer s.out.Unlock()
	s.id, s.named = id, true
	if s.less {
		s.update(bridge.Notice(schema.NoticeSeverityWarning, "Pi worked before the session was there", "some of what it has said since is not shown")...)
	}
	s.update(s.early...)
	if s.mcp != nil {
		bridge.TellServers(s.ctx, s.a.peer, s.log, s.id, s.mcp)
	}
	s.early, s.mcp = nil, nil
}

// serversAre takes how the MCP servers are.
func (s *session) serversAre(now []acp.MCPServer) {
	s.out.Lock()
	defer s.out.Unlock()
	if s.named {
		bridge.TellServers(s.ctx, s.a.peer, s.log, s.id, now)
	} else {
		s.mcp = now
	}
}

func (s *session) record() record {
	r, _ := s.a.store.Load(string(s.id))
	return r
}

// keep edits the session's record. It is not worth failing for.
func (s *session) keep(edit func(r *record)) {
	err := s.a.store.Change(string(s.id), func(r *record) {
		r.Cwd = bridge.FirstOf(r.Cwd, s.cwd)
		edit(r)
	})
	if err != nil {
		s.log.Warn("remember a session", "session", s.id, "err", err)
	}
}

// end ends the process, everything that it started, and every goroutine of the
// session. It may be called more than once, and returns when that is done.
func (s *session) end() {
	s.ending.Do(func() {
		s.turns.Close()
		s.mu.Lock()
		s.closed = true
		p := s.prog
		s.mu.Unlock()
		s.stop()
		if p != nil {
			p.end()
		}
		s.work.Wait()
		runs.Remove(s.dir, s.log)
	})
}
