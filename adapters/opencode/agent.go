package opencode

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/pattern"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// maxChildren bounds the sessions of subagents that are known by name: what
// more of them do is not shown, and what they ask is rejected.
const maxChildren = 4096

// record is what is remembered of a session beyond what OpenCode remembers.
type record struct {
	Made    bool   `json:"made"` // here, and not in a terminal
	Mode    string `json:"mode,omitempty"`
	Model   string `json:"model,omitempty"`
	Variant string `json:"variant,omitempty"`
	// Granted is what the client has allowed for the session. OpenCode, which would allow it in all sessions of the
	// directory, is not told of it.
	Granted bridge.Grants `json:"granted,omitempty"`
}

func newStore(dir string) *bridge.Store[record] {
	return &bridge.Store[record]{Dir: dir, Valid: native.MatchString}
}

// native is the form of OpenCode's ids of sessions.
var native = pattern.New(`^ses_[A-Za-z0-9]{1,64}$`)

// agent is one connection: sessions that share processes.
type agent struct {
	o     adapters.Options
	conn  *bridge.Conn
	peer  acp.Peer
	log   *slog.Logger
	store *bridge.Store[record]
	guard *guard                                                            // of the user's folders
	dial  func(ctx context.Context, network, addr string) (net.Conn, error) // nil for the usual

	abortBound time.Duration // how long the server may leave an abort unanswered

	mu       sync.Mutex
	servers  *bridge.Servers[kind, *server]
	sessions map[schema.SessionID]*session
	natives  map[string]*session // by native session, those of subagents included
	closed   bool

	tools   tools // MCP servers
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
	_ acp.Extender      = (*agent)(nil)
)

func newAgent(o adapters.Options, p acp.Peer, c *bridge.Conn) *agent {
	a := &agent{
		o: o, conn: c, peer: p, abortBound: abortBound, log: bridge.Logger(o), store: newStore(o.StateDir),
		sessions: map[schema.SessionID]*session{}, natives: map[string]*session{},
	}
	a.servers = bridge.NewServers(c, a.start, a.died)
	a.guard = newGuard(filepath.Join(o.StateDir, "folders"), a.log)
	return a
}

// Initialize starts no process.
func (a *agent) Initialize(_ context.Context, r *schema.InitializeRequest) (*schema.InitializeResponse, error) {
	hello := bridge.Hello("opencode", "OpenCode", a.o)
	bridge.CancelsCalls(hello)
	hello.AgentCapabilities.MCPCapabilities.SSE = true
	hello.AuthMethods = authMethods()
	return hello, nil
}

// died ends the connection because a process of it has ended by itself. What its
// sessions left open is closed first.
func (a *agent) died(s *server) {
	a.mu.Lock()
	mine := a.servers.Serves(s.kind, s) && !a.closed
	all := slices.Collect(maps.Values(a.sessions))
	a.mu.Unlock()
	if !mine { // its end was wanted
		all = slices.DeleteFunc(all, func(one *session) bool { return one.srv != s })
	} else {
		for _, one := range all {
			one.emit(func(t *translator) []schema.SessionUpdate { return t.abandon() })
		}
		a.conn.Fail(s.exit) // before their turns end as cancelled
	}
	for _, one := range all {
		one.stop()
	}
}

// unparsed reports what is no event.
func (a *agent) unparsed(frame []byte, reason error) {
	bridge.TellUnparsed(context.Background(), a.peer, a.log, frame, reason)
}

// take acts on an event. It runs on the goroutine that reads, in order.
func (a *agent) take(srv *server, e *event) {
	if e.Type == "mcp.tools.changed" {
		a.toolsChanged(srv, e.Directory)
	}
	if e.Session == "" {
		return
	}
	a.mu.Lock()
	s := a.natives[e.Session]
	if s == nil && e.session != nil && e.session.Parent != "" {
		if s = a.natives[e.session.Parent]; s != nil && len(a.natives) < maxChildren {
			a.natives[e.Session] = s
		}
	}
	a.mu.Unlock()
	if s != nil && s.srv == srv {
		s.take(e)
	}
}

// claim keeps a session from being opened or deleted by others; release gives it back. It waits for one that is about to end, is
// being opened or is being deleted.
func (a *agent) claim(ctx context.Context, id schema.SessionID) (release func(), err error) {
	if release, err = a.leaving.Claim(ctx, id); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.closed:
		err = bridge.ErrClosed
	case a.sessions[id] != nil:
		err = acp.Errorf(acp.CodeInvalidRequest, "session %s is open already", id)
	default:
		return release, nil
	}
	release()
	return nil, err
}

// register makes a session known.
func (a *agent) register(s *session) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed {
		return bridge.ErrClosed
	}
	if a.sessions[s.id] != nil {
		return acp.Errorf(acp.CodeInvalidRequest, "session %s is open already", s.id)
	}
	a.sessions[s.id], a.natives[string(s.id)] = s, s
	return nil
}

func (a *agent) session(id schema.SessionID) (*session, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.sessions[id]; s != nil {
		return s, nil
	}
	return nil, bridge.NotFound(id)
}

// remove ends what a session runs and forgets it. With the last session of a
// directory goes what OpenCode keeps in memory for the directory, which is more
// than for a session.
func (a *agent) remove(ctx context.Context, s *session) {
	defer a.leaving.Begin(s.id)()
	s.end(ctx)
	a.mu.Lock()
	if a.sessions[s.id] == s {
		delete(a.sessions, s.id)
	}
	maps.DeleteFunc(a.natives, func(_ string, one *session) bool { return one == s })
	a.mu.Unlock()
	a.tools.at(s.srv, s.cwd).left.Store(true)
	a.vacate(ctx, s.srv, s.cwd)
}

// vacate makes OpenCode forget a directory that a session has left, if none is left there. While one is being
// opened there, which may take long, whoever opens it does that in the end.
func (a *agent) vacate(ctx context.Context, srv *server, dir string) {
	box := a.tools.at(srv, dir)
	for box.left.Load() && box.open.tryAlone() {
		box.left.Store(false)
		used, shared := false, false
		a.mu.Lock()
		for _, one := range a.sessions {
			if one.cwd == dir {
				used, shared = true, shared || one.srv == srv
			}
		}
		a.mu.Unlock()
		if !shared {
			box.stale.Store(false)
			srv.dispose(ctx, dir)
		}
		if !used {
			a.guard.restore(dir)
		}
		box.open.leave()
	}
}

// CloseSession ends what a session runs.
func (a *agent) CloseSession(ctx context.Context, r *schema.CloseSessionRequest) (*schema.CloseSessionResponse, error) {
	s, err := a.session(r.SessionID)
	if err != nil {
		return nil, err
	}
	a.remove(ctx, s)
	return nil, nil
}

// DeleteSession removes a conversation that was made here. What people made in a
// terminal is theirs.
func (a *agent) DeleteSession(ctx context.Context, r *schema.DeleteSessionRequest) (*schema.DeleteSessionResponse, error) {
	id := string(r.SessionID)
	known, _ := a.store.Load(id)
	srv, done, err := a.any(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if !known.Made {
		if _, err := srv.find(ctx, r.SessionID); err != nil {
			return nil, err
		}
		return nil, acp.Errorf(acp.CodeInvalidRequest, "session %s was not made here, so it is not deleted: delete it with opencode itself", id)
	}
	over, err := a.leaving.Claim(ctx, r.SessionID)
	if err != nil {
		return nil, err
	}
	defer over()
	if s, err := a.session(r.SessionID); err == nil {
		a.remove(ctx, s)
	}
	if err := srv.call(ctx, "DELETE", "/session/"+id, nil, nil); err != nil && !unknown(err) {
		return nil, acp.Errorf(acp.CodeInternal, "opencode does not delete session %s: %v", id, err)
	}
	return nil, a.store.Forget(id)
}

// ExtMethod handles drafts.
func (a *agent) ExtMethod(ctx context.Context, method string, params json.RawMessage) (any, error) {
	switch method {
	case bridge.MethodCancelCall:
		return a.cancelCall(ctx, params)
	case acp.MethodSessionSetTitle:
	default:
		return nil, acp.Errorf(acp.CodeMethodNotFound, "method not found: %s", method)
	}
	id, title, err := bridge.TitleFor(params)
	if err != nil {
		return nil, err
	}
	s, err := a.session(id)
	if err != nil {
		return nil, err
	}
	if err := s.srv.call(ctx, "PATCH", s.path(""), map[string]string{"title": title}, nil); err != nil {
		return nil, acp.Errorf(acp.CodeInternal, "opencode does not set the title: %v", err)
	}
	return map[string]string{"title": title}, nil
}

// Close ends the processes and all sessions.
func (a *agent) Close() error {
	a.mu.Lock()
	a.closed = true
	all := slices.Collect(maps.Values(a.sessions))
	a.mu.Unlock()
	for _, s := range all {
		s.stop()
	}
	a.servers.Close()
	for _, s := range all {
		s.later.Stop()
		s.work.Wait()
	}
	a.guard.restoreAll()
	return nil
}
