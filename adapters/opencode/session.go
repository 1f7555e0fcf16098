package opencode

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge/turn"
)

// session is a session; its native one has the same id.
type session struct {
	a      *agent
	srv    *server
	id     schema.SessionID
	cwd    string
	system string // what every prompt adds to the system prompt
	grant  grant  // what the session's setup allows
	log    *slog.Logger

	ctx  context.Context // of everything that the session does by itself
	quit context.CancelFunc
	work sync.WaitGroup

	turns *turn.Turns[work]
	later bridge.Later // shows output that was held back

	own     map[string]string // the session's MCP servers: the names under which they run, and its own; set before it is shared
	looking bridge.Later      // at them
	telling sync.Mutex        // orders what is told of them
	told    atomic.Bool       // it has some

	out sync.Mutex  // guards tr, and orders updates; taken before mu
	tr  *translator // guarded by out

	mu      sync.Mutex
	set     settings
	skills  []bridge.Skill    // of the session's setup
	asks    map[string]*asked // by id
	granted bridge.Grants     // what the client has allowed for the session
	stopped bool              // nothing more begins
}

func (a *agent) newSession(srv *server, id schema.SessionID, up *setup, c *catalog) *session {
	s := &session{
		a: a, srv: srv, id: id, cwd: up.Cwd, system: up.system(), grant: up.grant, log: a.log.With("session", id),
		tr: newTranslator(string(id), up.Cwd), set: settings{catalog: c}, skills: up.skills, asks: map[string]*asked{},
	}
	s.ctx, s.quit = context.WithCancel(context.Background())
	s.turns = turn.New[work](s.ctx)
	s.tr.window = c.window
	s.tr.textOf = textBefore
	return s
}

// path is the path of a request about the session.
func (s *session) path(rest string) string { return at("/session/"+string(s.id)+rest, s.cwd) }

// take acts on an event about the session or a subagent's. It runs on the
// goroutine that reads, in order, and must not wait for the server.
func (s *session) take(e *event) {
	first := false
	s.emit(func(t *translator) []schema.SessionUpdate {
		first = e.message != nil && t.messages[e.message.ID] == nil
		return t.translate(e)
	})
	switch e.Type {
	case "permission.asked", "question.asked":
		s.asked(e)
	case "permission.replied", "question.replied", "question.rejected":
		s.withdrawn(e.RequestID)
	case "message.updated":
		// A message that nobody here has sent may go on in another mode.
		if m := e.message; first && m.Role == "user" && m.Session == string(s.id) {
			s.switched(m.Agent, s.sent(m.ID))
		}
	}
	if e.Type == "session.idle" && e.Session == string(s.id) && s.told.Load() {
		s.lookAtServers() // the turn may have ended one
	}
	s.observe(e) // when what it means is shown
	s.showLater()
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
	if err := s.a.store.Change(string(s.id), edit); err != nil {
		s.log.Warn("remember a session", "err", err)
	}
}

// endBound limits what is asked of the server when a session ends.
const endBound = 5 * time.Second

// drainBound is how much of that the turn may take that runs.
const drainBound = 2 * time.Second

// end breaks off what the session does, and waits for what it began.
func (s *session) end(ctx context.Context) {
	ctx, cancel := bridge.Within(context.WithoutCancel(ctx), endBound)
	defer cancel()
	stopping, stopped := bridge.Within(ctx, drainBound)
	s.turns.Drain(stopping)
	stopped()
	if s.turns.Busy() {
		if err := s.srv.call(ctx, "POST", s.path("/abort"), nil, nil); err != nil {
			s.log.Debug("abort a turn", "err", err)
		}
	}
	s.a.tools.leave(ctx, s)
	s.stop()
	s.later.Stop()
	s.looking.Stop()
	s.work.Wait()
}

// stop ends what the session does by itself, and lets nothing more begin.
func (s *session) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	s.quit()
}
