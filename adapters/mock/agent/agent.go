package agent

import (
	"context"
	"io"
	"os"
	"sync"
	"sync/atomic"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

const (
	protocolVersion = 1
	loginMethod     = "mock-login"
)

// agent is one process of the mock agent.
type agent struct {
	store   *store
	stderr  io.Writer
	auth    bool // sessions need a login
	noLoad  bool
	peer    acp.Peer
	lines   acp.LineWriter
	closed  chan struct{} // closed by Close
	outlive atomic.Bool   // the process does not end with stdin
	second  *second       // nil for an agent of version 1 alone
	works   works

	mu       sync.Mutex
	loggedIn bool
	sessions map[schema.SessionID]*session // open in this process
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

func newAgent(s *store, stderr io.Writer, auth, noLoad bool) *agent {
	return &agent{
		store: s, stderr: stderr, auth: auth, noLoad: noLoad,
		closed: make(chan struct{}), sessions: make(map[schema.SessionID]*session),
	}
}

func (a *agent) serve(p acp.Peer) acp.Agent {
	a.peer, a.lines = p, p.(acp.LineWriter)
	return a
}

func (a *agent) Initialize(context.Context, *schema.InitializeRequest) (*schema.InitializeResponse, error) {
	caps := &schema.AgentCapabilities{
		LoadSession:        !a.noLoad,
		PromptCapabilities: &schema.PromptCapabilities{Image: true, Audio: true, EmbeddedContext: true},
		MCPCapabilities:    &schema.MCPCapabilities{HTTP: true, SSE: true},
		SessionCapabilities: &schema.SessionCapabilities{
			List:                  &schema.SessionListCapabilities{},
			Close:                 &schema.SessionCloseCapabilities{},
			Delete:                &schema.SessionDeleteCapabilities{},
			Fork:                  &schema.SessionForkCapabilities{},
			AdditionalDirectories: &schema.SessionAdditionalDirectoriesCapabilities{},
		},
		Auth: &schema.AgentAuthCapabilities{Logout: &schema.LogoutCapabilities{}},
	}
	if !a.noLoad {
		caps.SessionCapabilities.Resume = &schema.SessionResumeCapabilities{}
	}
	r := &schema.InitializeResponse{
		ProtocolVersion:   protocolVersion,
		AgentCapabilities: caps,
		AgentInfo:         &schema.Implementation{Name: "mock-agent", Title: new("Mock agent"), Version: "1.0.0"},
		AuthMethods:       []schema.AuthMethod{},
	}
	if a.auth {
		r.AuthMethods = append(r.AuthMethods, schema.AuthMethod{Agent: &schema.AuthMethodAgent{
			ID: loginMethod, Name: "Mock login", Description: new("Always succeeds."),
		}})
	}
	return r, nil
}

func (a *agent) Authenticate(_ context.Context, r *schema.AuthenticateRequest) (*schema.AuthenticateResponse, error) {
	if r.MethodID != loginMethod {
		return nil, acp.Errorf(acp.CodeInvalidParams, "unknown login method %q", r.MethodID)
	}
	a.setLogin(true)
	return nil, nil
}

func (a *agent) Logout(context.Context, *schema.LogoutRequest) (*schema.LogoutResponse, error) {
	a.setLogin(false)
	return nil, nil
}

func (a *agent) setLogin(in bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.loggedIn = in
}

// admit refuses to set a session up without a login.
func (a *agent) admit() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.auth && !a.loggedIn {
		return acp.Errorf(acp.CodeAuthRequired, "authentication required")
	}
	return nil
}

func (a *agent) NewSession(_ context.Context, r *schema.NewSessionRequest) (*schema.NewSessionResponse, error) {
	if err := a.admit(); err != nil {
		return nil, err
	}
	s, err := a.store.create(r.Cwd, r.AdditionalDirectories)
	if err != nil {
		return nil, err
	}
	a.add(s)
	return &schema.NewSessionResponse{SessionID: s.id, Modes: s.modes(), ConfigOptions: s.configOptions()}, nil
}

func (a *agent) LoadSession(_ context.Context, r *schema.LoadSessionRequest) (*schema.LoadSessionResponse, error) {
	s, err := a.reopen(r.SessionID, acp.MethodSessionLoad)
	if err != nil {
		return nil, err
	}
	if err := s.replay(a.lines); err != nil {
		return nil, err
	}
	return &schema.LoadSessionResponse{Modes: s.modes(), ConfigOptions: s.configOptions()}, nil
}

func (a *agent) ResumeSession(_ context.Context, r *schema.ResumeSessionRequest) (*schema.ResumeSessionResponse, error) {
	s, err := a.reopen(r.SessionID, acp.MethodSessionResume)
	if err != nil {
		return nil, err
	}
	return &schema.ResumeSessionResponse{Modes: s.modes(), ConfigOptions: s.configOptions()}, nil
}

// reopen returns a session that exists, open in this process or not.
func (a *agent) reopen(id schema.SessionID, method string) (*session, error) {
	if a.noLoad {
		return nil, acp.Errorf(acp.CodeMethodNotFound, "method not found: %s", method)
	}
	if err := a.admit(); err != nil {
		return nil, err
	}
	if s, err := a.session(id); err == nil {
		return s, nil
	}
	s, err := a.store.open(id)
	if err != nil {
		return nil, err
	}
	a.add(s)
	return s, nil
}

func (a *agent) ForkSession(_ context.Context, r *schema.ForkSessionRequest) (*schema.ForkSessionResponse, error) {
	if err := a.admit(); err != nil {
		return nil, err
	}
	s, err := a.store.fork(r.SessionID, r.Cwd, r.AdditionalDirectories)
	if err != nil {
		return nil, err
	}
	a.add(s)
	return &schema.ForkSessionResponse{SessionID: s.id, Modes: s.modes(), ConfigOptions: s.configOptions()}, nil
}

func (a *agent) ListSessions(_ context.Context, r *schema.ListSessionsRequest) (*schema.ListSessionsResponse, error) {
	all, err := a.store.list()
	if err != nil {
		return nil, err
	}
	out := &schema.ListSessionsResponse{Sessions: []schema.SessionInfo{}}
	for _, info := range all {
		if r.Cwd == nil || *r.Cwd == info.Cwd {
			out.Sessions = append(out.Sessions, info)
		}
	}
	return out, nil
}

func (a *agent) CloseSession(_ context.Context, r *schema.CloseSessionRequest) (*schema.CloseSessionResponse, error) {
	s, err := a.session(r.SessionID)
	if err != nil {
		return nil, err
	}
	a.remove(s)
	return nil, nil
}

func (a *agent) DeleteSession(_ context.Context, r *schema.DeleteSessionRequest) (*schema.DeleteSessionResponse, error) {
	if s, err := a.session(r.SessionID); err == nil {
		a.remove(s)
	}
	return nil, a.store.remove(r.SessionID)
}

func (a *agent) Prompt(ctx context.Context, r *schema.PromptRequest) (*schema.PromptResponse, error) {
	s, err := a.session(r.SessionID)
	if err != nil {
		return nil, err
	}
	reason, err := a.run(ctx, s, r.Prompt)
	if err != nil {
		return nil, err
	}
	return &schema.PromptResponse{StopReason: reason, Meta: r.Meta}, nil
}

// Cancel does nothing: turns watch acp.TurnCancelled.
func (a *agent) Cancel(context.Context, *schema.CancelNotification) error { return nil }

// Close ends what hangs and closes the sessions' files.
func (a *agent) Close() error {
	close(a.closed)
	defer a.works.group.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.sessions {
		s.close()
	}
	return nil
}

func (a *agent) add(s *session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.sessions[s.id] = s
}

func (a *agent) remove(s *session) {
	a.mu.Lock()
	delete(a.sessions, s.id)
	a.mu.Unlock()
	s.close()
}

func (a *agent) session(id schema.SessionID) (*session, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.sessions[id]; s != nil {
		return s, nil
	}
	return nil, notFound(id)
}

func notFound(id schema.SessionID) error {
	return acp.Errorf(acp.CodeResourceNotFound, "session not found: %s", id)
}

// exit ends the process, as a crash does: without answers.
func (a *agent) exit(code int) { os.Exit(code) }
