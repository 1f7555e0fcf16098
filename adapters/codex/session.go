package codex

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge/turn"
)

// session is a session and its thread.
type session struct {
	anew bool // opened again, and codex has nothing of it; set before it is shared

	a      *agent
	srv    *server
	id     schema.SessionID
	thread string
	cwd    string
	roots  []string // further folders that it may write to
	wish   string   // the permissionMode that it was opened with
	log    *slog.Logger

	ctx  context.Context // of everything that the session does by itself
	stop context.CancelFunc
	work sync.WaitGroup

	turns *turn.Turns[work]
	asks  turn.Asks
	title bridge.Title
	later bridge.Later // shows output that was held back

	looking bridge.Later             // at the MCP servers
	telling sync.Mutex               // guards told, and orders what is told of them
	told    map[string]acp.MCPServer // by name; at most maxServers
	starts  int                      // how often one has told how its start goes; telling guards it

	taking sync.Mutex // orders what is taken; taken behind the agent's mu, before all others

	out sync.Mutex  // guards tr, and orders updates; taken before mu
	tr  *translator // guarded by out

	mu      sync.Mutex
	set     settings
	askers  map[string]asker // by the ids of open questions
	skills  []skill
	own     []skill         // of the session's setup
	latest  map[string]bool // ids of the newest prompt's turn
	servers map[string]bool // MCP servers of the setup that are starting
	tooled  chan struct{}   // closed when servers is empty
}

func (a *agent) newSession(srv *server, id schema.SessionID, got *opened, up *setup) *session {
	s := &session{
		a: a, srv: srv, id: id, thread: got.Thread.ID, cwd: up.Cwd, roots: up.Roots, wish: up.PermissionMode, log: a.log.With("session", id),
		tr: newTranslator(), own: up.skills, told: map[string]acp.MCPServer{}, askers: map[string]asker{},
	}
	s.servers, s.tooled = up.servers(), make(chan struct{})
	if len(s.servers) == 0 {
		close(s.tooled)
	}
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.turns = turn.New[work](s.ctx)
	s.turns.Watch(bridge.Works(s.ctx, a.peer, func() schema.SessionID { return s.id }))
	s.tr.thread = s.thread
	s.set = settings{models: srv.models, confined: srv.confined}
	s.set.take(&threadSettings{Approval: got.Approval, Sandbox: got.Sandbox, Model: got.Model, Effort: got.Effort})
	return s
}

// open makes a session known and chooses what it was, or is wished to be. On an
// error nothing is left.
func (s *session) open(ctx context.Context, up *setup, known record) error {
	if err := s.a.register(s); err != nil {
		s.stop()
		return err
	}
	err := s.choose(ctx, up, known)
	if err != nil {
		s.a.remove(ctx, s)
		return err
	}
	s.keep(func(r *record) { r.Archived = false; r.Granted.Reopened() })
	s.listSkills(ctx)
	s.emit(func(*translator) []schema.SessionUpdate { return s.commandsUpdate() })
	if s.srv.confined != nil {
		s.emit(func(t *translator) []schema.SessionUpdate {
			return t.say(schema.NoticeSeverityWarning, "Codex cannot confine commands on this machine",
				s.srv.confined.Error()+"; commands fail in modes "+modeReadOnly+" and "+modeAgent+", mode "+modeFullAccess+" works")
		})
	}
	return nil
}

// take acts on a notification about the session's threads. It runs on the
// goroutine that reads, in order, and must not wait for codex.
func (s *session) take(e *event) {
	s.taking.Lock()
	defer s.taking.Unlock()
	s.act(e)
}

// act is take; taking is held.
func (s *session) act(e *event) {
	if e.Method == "serverRequest/resolved" {
		s.withdrawn(e.RequestID)
		return
	}
	if e.Method == "mcpServer/startupStatus/updated" && e.Thread == s.thread {
		s.serverStarts(e)
		if bridge.Text(e.Status) != "starting" {
			s.tooling(e.Name)
		}
	}
	s.observe(e)
	s.emit(func(t *translator) []schema.SessionUpdate { return t.translate(e) })
	if it := e.Item; e.Method == "item/completed" && it != nil && it.Type == "mcpToolCall" && it.Status == "failed" {
		s.lookAtServers() // it may be gone
	}
	switch {
	case e.Method == "turn/completed" && e.Turn != nil && e.Thread == s.thread:
		s.settle(e.Turn)
	case e.Method == "thread/settings/updated" && e.Thread == s.thread:
		s.changed(e.Settings)
	}
	s.showLater()
}

// tooling notes that an MCP server has started, or has not.
func (s *session) tooling(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.servers[name] {
		return
	}
	delete(s.servers, name)
	if len(s.servers) == 0 {
		close(s.tooled)
	}
}

// showLater shows output that was held back, after a moment.
func (s *session) showLater() {
	s.out.Lock()
	waits := len(s.tr.dirty) > 0
	s.out.Unlock()
	if waits {
		s.later.In(s.ctx, showEvery*time.Millisecond, func() {
			s.emit(func(t *translator) []schema.SessionUpdate { return t.showOutputs() })
		})
	}
}

// emit sends the updates that f returns. f has the translator for itself.
func (s *session) emit(f func(t *translator) []schema.SessionUpdate) {
	s.out.Lock()
	defer s.out.Unlock()
	bridge.Tell(s.ctx, s.a.peer, s.log, s.id, f(s.tr))
}

// keep edits the session's record. It is not worth failing for.
func (s *session) keep(edit func(r *record)) {
	if err := s.a.store.change(string(s.id), s.cwd, edit); err != nil {
		s.log.Warn("remember a session", "err", err)
	}
}

// endBound limits what is asked of codex when a session ends.
const endBound = 5 * time.Second

// drainBound is how much of that the turn may take that runs. What comes behind it lets go of the thread, and who
// ends the session waits for that no longer than for all of it.
const drainBound = 2 * time.Second

// end breaks off what the session does, and gives its thread back.
func (s *session) end(ctx context.Context) {
	ctx, cancel := bridge.Within(context.WithoutCancel(ctx), endBound)
	defer cancel()
	stopping, stopped := bridge.Within(ctx, drainBound)
	s.turns.Drain(stopping)
	stopped()
	about := map[string]string{"threadId": s.thread}
	if s.turns.Busy() {
		if err := s.srv.call(ctx, "turn/interrupt", map[string]string{"threadId": s.thread, "turnId": ""}, nil); err != nil {
			s.log.Debug("interrupt a turn", "err", err)
		}
	}
	ending, ended := bridge.Within(ctx, drainBound)
	s.endSubagents(ending, (*translator).all)
	ended()
	for _, method := range []string{"thread/backgroundTerminals/clean", "thread/unsubscribe"} {
		if err := s.srv.call(ctx, method, about, nil); err != nil {
			s.log.Debug("end a session", "method", method, "err", err)
		}
	}
	s.finish()
	s.later.Stop()
	s.looking.Stop()
	s.work.Wait()
}

// letGo has codex unload the thread. As long as it is loaded no other codex may write to
// it, and there is no request for just that: a thread that is archived is not loaded.
func (s *session) letGo(ctx context.Context) error {
	ctx, cancel := bridge.Within(context.WithoutCancel(ctx), endBound)
	defer cancel()
	s.keep(func(r *record) { r.Archived = true }) // the process may end in between
	if err := s.srv.call(ctx, "thread/archive", map[string]string{"threadId": s.thread}, nil); err != nil {
		s.log.Debug("let go of a thread", "err", err)
		if refused(err) != "" { // else it may be there: codex did not say
			s.keep(func(r *record) { r.Archived = false })
		}
		return nil
	}
	if err := s.srv.takeOut(ctx, string(s.id), s.thread); err != nil {
		return acp.Errorf(acp.CodeInternal, "codex has put session %s into its archive and does not take it out again: %v; its next process is told to, and codex unarchive %s does it", s.id, err, s.thread)
	}
	return nil
}

// takeOut takes a session's thread out of codex's archive.
func (s *server) takeOut(ctx context.Context, id, thread string) error {
	err := s.call(ctx, "thread/unarchive", map[string]string{"threadId": thread}, nil)
	if err != nil && !unknownThread(err) { // one that nobody has prompted is not kept
		return err
	}
	return s.a.store.Change(id, func(r *record) { r.Archived = false })
}

// takeAllOut takes the threads out of the archive that a process has left there which ended, or failed, as it let go of them.
func (s *server) takeAllOut() {
	for id, r := range s.a.store.All() {
		if !r.Archived {
			continue
		}
		if err := s.takeOut(context.Background(), id, bridge.FirstOf(r.Thread, id)); err != nil {
			s.log.Warn("take a session out of codex's archive", "session", id, "err", err)
		}
	}
}

// finish ends what the session does by itself, and lets nothing more begin.
func (s *session) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stop()
}
