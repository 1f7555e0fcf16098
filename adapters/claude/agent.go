package claude

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/uuid"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// agent is one connection. It serves the sessions that are set up on it, each
// with a process of its own.
type agent struct {
	o     adapters.Options
	conn  *bridge.Conn
	peer  acp.Peer
	log   *slog.Logger
	store *store
	files transcripts

	sessions *bridge.Sessions[*session]
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
	a := &agent{o: o, conn: c, peer: p, log: bridge.Logger(o), store: newStore(o.StateDir), sessions: bridge.NewSessions((*session).end)}
	a.files = transcriptsOf(a.environ())
	runs.Sweep(filepath.Join(o.StateDir, "run"), a.log)
	return a
}

// Initialize starts no program.
func (a *agent) Initialize(_ context.Context, r *schema.InitializeRequest) (*schema.InitializeResponse, error) {
	hello := bridge.Hello("claude-code", "Claude Code", a.o)
	bridge.CancelsCalls(hello)
	hello.AgentCapabilities.MCPCapabilities.SSE = true
	hello.AgentCapabilities.Auth = &schema.AgentAuthCapabilities{Status: &schema.AuthStatusCapabilities{}}
	hello.AuthMethods = authMethods(r.ClientCapabilities, a.o.Program.Path)
	return hello, nil
}

// bypass reports whether the program may be told to allow everything: as root it
// refuses to start when it is, unless it is in a sandbox.
func (a *agent) bypass() bool {
	if os.Geteuid() != 0 {
		return true
	}
	v := strings.ToLower(bridge.Lookup(a.environ(), "IS_SANDBOX"))
	return v == "1" || v == "true"
}

// open starts the program for a session and shows what it can do. On an error
// nothing is left of it.
func (a *agent) open(ctx context.Context, s *session, l *launch, args ...string) (*greeting, error) {
	g, err := s.start(ctx, l, args...)
	if err != nil {
		return nil, err
	}
	if err := a.sessions.Add(s.id, s); err != nil {
		return nil, err
	}
	select {
	case <-s.ended: // before anybody could notice
		a.conn.Fail(s.exit)
	default:
	}
	s.emit(func(*translator) []schema.SessionUpdate { return commandsUpdate(g.Commands) })
	s.lookAtServers()
	return g, nil
}

// sessionMeta is what a result says of a session beyond the protocol.
func sessionMeta(g *greeting, l *launch) map[string]json.RawMessage {
	m := map[string]any{"authState": g.Account.state()}
	if g.Version != "" {
		m["agentVersion"] = g.Version
	}
	if len(l.Unsupported) > 0 {
		m["unsupported"] = l.Unsupported
	}
	if l.anew {
		m["continuity"] = bridge.Fresh
	}
	return bridge.Meta(m)
}

// NewSession starts a conversation.
func (a *agent) NewSession(ctx context.Context, r *schema.NewSessionRequest) (*schema.NewSessionResponse, error) {
	l, err := newLaunch(bridge.OfNew(r), a.bypass())
	if err != nil {
		return nil, err
	}
	id := uuid.NewString()
	if err := a.store.made(id, record{Cwd: r.Cwd, Made: true}); err != nil {
		return nil, err
	}
	s := a.newSession(schema.SessionID(id), r.Cwd)
	s.title.Given(l.initialize["title"] != nil)
	g, err := a.open(ctx, s, l, "--session-id", id)
	if err == nil && g.Account.missing() {
		a.sessions.Remove(ctx, s.id)
		err = authRequired("claude has no credentials")
	}
	if err != nil {
		return nil, errors.Join(err, a.store.Forget(id))
	}
	return &schema.NewSessionResponse{SessionID: s.id, Modes: s.modes(), ConfigOptions: s.options(), Meta: sessionMeta(g, l)}, nil
}

func (s *session) modes() *schema.SessionModeState {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.set.modes()
}

// LoadSession opens a conversation of this program, wherever it was made, and
// replays it.
func (a *agent) LoadSession(ctx context.Context, r *schema.LoadSessionRequest) (*schema.LoadSessionResponse, error) {
	s, g, l, err := a.reopen(ctx, r.SessionID, bridge.OfLoad(r), true)
	if err != nil {
		return nil, err
	}
	return &schema.LoadSessionResponse{Modes: s.modes(), ConfigOptions: s.options(), Meta: sessionMeta(g, l)}, nil
}

// ResumeSession opens a conversation and replays nothing.
func (a *agent) ResumeSession(ctx context.Context, r *schema.ResumeSessionRequest) (*schema.ResumeSessionResponse, error) {
	s, g, l, err := a.reopen(ctx, r.SessionID, bridge.OfResume(r), false)
	if err != nil {
		return nil, err
	}
	return &schema.ResumeSessionResponse{Modes: s.modes(), ConfigOptions: s.options(), Meta: sessionMeta(g, l)}, nil
}

func (a *agent) reopen(ctx context.Context, id schema.SessionID, from bridge.Request, replay bool) (*session, *greeting, *launch, error) {
	over, err := a.sessions.Claim(ctx, id)
	if err != nil {
		return nil, nil, nil, err
	}
	defer over()
	l, err := newLaunch(from, a.bypass())
	if err != nil {
		return nil, nil, nil, err
	}
	known, made := a.store.Load(string(id))
	native := known.newest(string(id))
	file, err := a.files.find(native, from.Cwd)
	args := []string{"--resume", native}
	switch here := made && known.Made && bridge.SameDir(known.Cwd, from.Cwd); {
	case err == nil:
	case !here || !bridge.IsNotFound(err):
		return nil, nil, nil, err
	case known.Fork != "" && native == string(id):
		if file, err = a.files.find(known.Fork, from.Cwd); err == nil {
			err = fork(file, native)
		}
		if err != nil {
			return nil, nil, nil, err
		}
	case native == string(id):
		args, file, l.anew = []string{"--session-id", native}, "", true // nothing was said yet, or it is lost
	default:
		return nil, nil, nil, err
	}
	s := a.newSession(id, from.Cwd)
	s.title.Given(file != "")
	s.tr.usage.before = known.Cost
	args = append(args, l.chosen(known)...)
	if replay && file != "" {
		if err := s.replay(file); err != nil {
			s.end()
			return nil, nil, nil, err
		}
	}
	g, err := a.open(ctx, s, l, args...)
	if err != nil {
		return nil, nil, nil, err
	}
	if known.Again(l.PermissionMode) == "" { // else a later load would bring it back
		s.keep(func(r *record) {
			if r.Mode == known.Mode {
				r.Mode = bridge.Mode{}
			}
		})
	}
	return s, g, l, nil
}

// CloseSession ends a session's process.
func (a *agent) CloseSession(ctx context.Context, r *schema.CloseSessionRequest) (*schema.CloseSessionResponse, error) {
	if !a.sessions.Remove(ctx, r.SessionID) {
		return nil, bridge.NotFound(r.SessionID)
	}
	return nil, nil
}

// DeleteSession removes a conversation that was made here. What people made in a
// terminal is theirs.
func (a *agent) DeleteSession(ctx context.Context, r *schema.DeleteSessionRequest) (*schema.DeleteSessionResponse, error) {
	id := string(r.SessionID)
	known, ok := a.store.Load(id)
	if !ok || !known.Made {
		if _, err := a.files.find(id, ""); err != nil {
			return nil, bridge.NotFound(r.SessionID)
		}
		return nil, acp.Errorf(acp.CodeInvalidRequest, "session %s was not made here, so it is not deleted: delete it with claude itself", id)
	}
	return nil, a.sessions.Erase(ctx, r.SessionID, func() error {
		known, _ := a.store.Load(id) // its end may have changed that
		for _, native := range append([]string{id}, known.Native...) {
			if err := a.files.remove(native); err != nil {
				return err
			}
		}
		return a.store.Forget(id)
	})
}

// ExtMethod handles drafts.
func (a *agent) ExtMethod(ctx context.Context, method string, params json.RawMessage) (any, error) {
	switch method {
	case bridge.MethodCancelCall:
		return a.cancelCall(ctx, params)
	case acp.MethodAuthStatus:
		return a.authStatus(ctx)
	case acp.MethodSessionSetTitle:
		id, title, err := bridge.TitleFor(params)
		if err != nil {
			return nil, err
		}
		s, err := a.sessions.Get(id)
		if err != nil {
			return nil, err
		}
		if _, err := s.control(ctx, map[string]string{"subtype": "rename_session", "title": title}); err != nil {
			return nil, err
		}
		s.title.Given(true)
		return map[string]string{"title": title}, nil
	}
	return nil, acp.Errorf(acp.CodeMethodNotFound, "method not found: %s", method)
}

// Close ends all processes.
func (a *agent) Close() error {
	a.sessions.Close()
	return nil
}
