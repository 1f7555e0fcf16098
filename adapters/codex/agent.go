package codex

import (
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// maxOrphans bounds the notifications about threads whose setup is not done,
// oldest out first.
const maxOrphans = 256

// agent is one connection: sessions that share a process.
type agent struct {
	o     adapters.Options
	conn  *bridge.Conn
	peer  acp.Peer
	log   *slog.Logger
	store *store

	mu       sync.Mutex
	servers  *bridge.Servers[struct{}, *server] // one
	sessions map[schema.SessionID]*session
	threads  map[string]*session // by thread, those of subagents included
	opening  map[string]*opening // by thread, those of subagents included
	orphans  []*event
	closed   bool

	leaving bridge.Leaving
}

var (
	_ acp.Agent         = (*agent)(nil)
	_ acp.SessionLoader = (*agent)(nil)
	_ acp.Resumer       = (*agent)(nil)
	_ acp.Forker        = (*agent)(nil)
	_ acp.Lister        = (*agent)(nil)
	_ acp.Closer        = (*agent)(nil)
	_ acp.Deleter       = (*agent)(nil)
	_ acp.ModeSetter    = (*agent)(nil)
	_ acp.ConfigSetter  = (*agent)(nil)
	_ acp.Authenticator = (*agent)(nil)
	_ acp.Logouter      = (*agent)(nil)
	_ acp.Extender      = (*agent)(nil)
)

func newAgent(o adapters.Options, p acp.Peer, c *bridge.Conn) *agent {
	a := &agent{
		o: o, conn: c, peer: p, log: bridge.Logger(o), store: newStore(o.StateDir),
		sessions: map[schema.SessionID]*session{}, threads: map[string]*session{}, opening: map[string]*opening{},
	}
	a.servers = bridge.NewServers(c, func(ctx context.Context, _ struct{}) (*server, error) { return a.start(ctx) }, a.died)
	return a
}

// server returns the process, and starts it when it does not run.
func (a *agent) server(ctx context.Context) (*server, error) { return a.servers.Get(ctx, struct{}{}) }

// Initialize starts no process.
func (a *agent) Initialize(_ context.Context, r *schema.InitializeRequest) (*schema.InitializeResponse, error) {
	hello := bridge.Hello("codex", "Codex", a.o)
	bridge.CancelsCalls(hello)
	hello.AgentCapabilities.Auth = &schema.AgentAuthCapabilities{Status: &schema.AuthStatusCapabilities{}, Logout: &schema.LogoutCapabilities{}}
	hello.AuthMethods = authMethods()
	return hello, nil
}

// died ends the connection because its process has ended by itself.
func (a *agent) died(s *server) {
	a.mu.Lock()
	mine := a.servers.Serves(struct{}{}, s) && !a.closed
	all := make([]*session, 0, len(a.sessions))
	for _, one := range a.sessions {
		all = append(all, one)
	}
	a.mu.Unlock()
	if mine {
		a.conn.Fail(s.exit) // before their turns end as cancelled
	}
	for _, one := range all {
		one.finish()
	}
}

// register makes a session known by its thread, and gives it what was said about
// the thread before.
func (a *agent) register(s *session) error {
	a.mu.Lock()
	if a.closed || a.sessions[s.id] != nil {
		a.mu.Unlock()
		return acp.Errorf(acp.CodeInvalidRequest, "session %s is open already", s.id)
	}
	a.sessions[s.id], a.threads[s.thread] = s, s
	var early []held
	var later []*event
	for _, e := range a.orphans {
		if e.Thread == s.thread {
			early = append(early, held{e: e})
		} else {
			later = append(later, e)
		}
	}
	a.orphans = later
	lost := false
	if o := a.opening[s.thread]; o != nil {
		a.closeLocked(o, func(id string) { a.threads[id] = s })
		early, lost, o.all = append(early, o.all...), o.lost, nil
	}
	s.taking.Lock() // what is read from now on comes behind them
	defer s.taking.Unlock()
	a.mu.Unlock()
	if lost {
		s.emit(func(t *translator) []schema.SessionUpdate {
			return t.say(schema.NoticeSeverityWarning, "Codex went on while the session was opened", "some of what it has done since is not shown")
		})
	}
	for _, one := range early {
		if one.q != nil {
			s.asked(one.id, one.q)
		} else {
			s.act(one.e)
		}
	}
	return nil
}

// take acts on a notification. It runs on the goroutine that reads, in order.
func (a *agent) take(srv *server, e *event) {
	switch e.Method {
	case "account/login/completed", "account/updated":
		if srv.ready.Load() {
			srv.work.Go(func() { srv.authChanged(e) })
		}
		return
	case "skills/changed":
		return
	}
	a.mu.Lock()
	s := a.threads[e.Thread]
	if s == nil && e.Thread != "" && e.Turn != nil && e.Turn.Root != "" {
		// A subagent's thread tells its turn's origin.
		for _, one := range a.sessions {
			if one.owns(e.Turn.Root) {
				s = one
				a.threads[e.Thread] = one
				break
			}
		}
	}
	switch {
	case s == nil && a.holdLocked(e):
	case s == nil && e.Thread == "" && (e.Method == "configWarning" || e.Method == "warning"):
		for _, one := range a.sessions {
			defer one.take(e)
		}
	case s == nil && e.Thread != "" && (e.Method == "mcpServer/startupStatus/updated" || e.Method == "warning" || e.Method == "thread/name/updated"):
		if len(a.orphans) >= maxOrphans {
			a.orphans = a.orphans[1:]
		}
		a.orphans = append(a.orphans, e)
	}
	if it := e.Item; s != nil && it != nil && it.Type == "collabAgentToolCall" {
		for _, child := range it.Receivers {
			if a.threads[child] == nil {
				a.threads[child] = s
			}
		}
	}
	a.mu.Unlock()
	if s != nil {
		s.take(e)
	}
}

func (a *agent) session(id schema.SessionID) (*session, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.sessions[id]; s != nil {
		return s, nil
	}
	return nil, bridge.NotFound(id)
}

// remove forgets a session and ends what it runs. It reports whether nobody had forgotten it before.
func (a *agent) remove(ctx context.Context, s *session) (first bool) {
	defer a.leaving.Begin(s.id)()
	a.mu.Lock()
	if first = a.sessions[s.id] == s; first {
		delete(a.sessions, s.id)
	}
	a.mu.Unlock()
	s.end(ctx)
	a.mu.Lock()
	for id, one := range a.threads {
		if one == s {
			delete(a.threads, id)
		}
	}
	a.mu.Unlock()
	return first
}

// CloseSession ends what a session runs and gives its thread back: another codex, in a
// terminal, can go on with it.
func (a *agent) CloseSession(ctx context.Context, r *schema.CloseSessionRequest) (*schema.CloseSessionResponse, error) {
	s, err := a.session(r.SessionID)
	if err != nil {
		return nil, err
	}
	defer a.leaving.Begin(s.id)()
	if !a.remove(ctx, s) {
		return nil, nil // who was first lets go of the thread
	}
	return nil, s.letGo(ctx)
}

// DeleteSession removes a conversation that was made here. What people made in a
// terminal is theirs.
func (a *agent) DeleteSession(ctx context.Context, r *schema.DeleteSessionRequest) (*schema.DeleteSessionResponse, error) {
	id := string(r.SessionID)
	known, ok := a.store.Load(id)
	srv, err := a.server(ctx)
	if err != nil {
		return nil, err
	}
	if !ok || !known.Made {
		if err := srv.call(ctx, "thread/read", map[string]any{"threadId": id}, nil); err != nil {
			return nil, bridge.NotFound(r.SessionID)
		}
		return nil, acp.Errorf(acp.CodeInvalidRequest, "session %s was not made here, so it is not deleted: delete it with codex itself", id)
	}
	over, err := a.leaving.Claim(ctx, r.SessionID) // who else closes or deletes it ends its turn at the thread
	if err != nil {
		return nil, err
	}
	defer over()
	if s, err := a.session(r.SessionID); err == nil {
		a.remove(ctx, s)
	}
	known, _ = a.store.Load(id) // who was opening it may have changed that
	err = srv.call(ctx, "thread/delete", map[string]string{"threadId": bridge.FirstOf(known.Thread, id)}, nil)
	switch {
	case strings.Contains(refused(err), "forked history"):
		return nil, acp.Errorf(acp.CodeInvalidRequest, "session %s cannot be deleted while there are sessions that were forked from it: delete those first", id)
	case err != nil && !unknownThread(err):
		return nil, acp.Errorf(acp.CodeInternal, "codex does not delete session %s: %v", id, err)
	}
	return nil, a.store.Forget(id)
}

// unknownThread reports whether codex refused because it has no such thread, or nothing
// in its file. One that nobody has prompted is not kept. Words about something else that is
// not found, such as a provider, are not meant: the thread is there.
func unknownThread(err error) bool {
	said := refused(err)
	for _, s := range []string{"no rollout found", "thread not found", "not materialized", "invalid session id", "empty session file", "failed to parse thread ID from rollout"} {
		if strings.Contains(said, s) {
			return true
		}
	}
	return false
}

// ExtMethod handles drafts.
func (a *agent) ExtMethod(ctx context.Context, method string, params json.RawMessage) (any, error) {
	switch method {
	case bridge.MethodCancelCall:
		return a.cancelCall(ctx, params)
	case acp.MethodAuthStatus:
		srv, err := a.server(ctx)
		if err != nil {
			return nil, err
		}
		now, err := srv.readAccount(ctx)
		if err != nil {
			return nil, err
		}
		return statusOf(&now), nil
	case acp.MethodSessionSetTitle:
		id, title, err := bridge.TitleFor(params)
		if err != nil {
			return nil, err
		}
		s, err := a.session(id)
		if err != nil {
			return nil, err
		}
		if err := s.srv.call(ctx, "thread/name/set", map[string]string{"threadId": s.thread, "name": title}, nil); err != nil {
			return nil, acp.Errorf(acp.CodeInternal, "codex does not set the title: %v", err)
		}
		s.title.Given(true)
		return map[string]string{"title": title}, nil
	}
	return nil, acp.Errorf(acp.CodeMethodNotFound, "method not found: %s", method)
}

// Close ends the process and all sessions.
func (a *agent) Close() error {
	a.mu.Lock()
	a.closed = true
	all := a.sessions
	a.sessions, a.threads = map[schema.SessionID]*session{}, map[string]*session{}
	a.mu.Unlock()
	for _, s := range all {
		s.finish()
	}
	a.servers.Close()
	for _, s := range all {
		s.later.Stop()
		s.work.Wait()
	}
	return nil
}
