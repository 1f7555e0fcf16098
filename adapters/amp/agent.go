package amp

import (
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"time"

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
	store *bridge.Store[record]
	stuck time.Duration // see stuckPause

	sessions *bridge.Sessions[*session]
}

var (
	_ acp.Agent         = (*agent)(nil)
	_ acp.SessionLoader = (*agent)(nil)
	_ acp.Resumer       = (*agent)(nil)
	_ acp.Lister        = (*agent)(nil)
	_ acp.Closer        = (*agent)(nil)
	_ acp.ModeSetter    = (*agent)(nil)
	_ acp.ConfigSetter  = (*agent)(nil)
	_ acp.Authenticator = (*agent)(nil)
)

func newAgent(o adapters.Options, p acp.Peer, c *bridge.Conn, stuck time.Duration) *agent {
	a := &agent{o: o, conn: c, peer: p, log: bridge.Logger(o), store: newStore(o.StateDir), stuck: stuck, sessions: bridge.NewSessions((*session).end)}
	runs.Sweep(filepath.Join(o.StateDir, "run"), a.log)
	return a
}

// Initialize starts no program.
func (a *agent) Initialize(_ context.Context, r *schema.InitializeRequest) (*schema.InitializeResponse, error) {
	hello := bridge.Hello("amp", "Amp", a.o)
	can := hello.AgentCapabilities
	can.PromptCapabilities.Image = false
	can.MCPCapabilities.SSE = true
	can.SessionCapabilities = &schema.SessionCapabilities{
		List:         &schema.SessionListCapabilities{},
		SystemPrompt: &schema.SessionSystemPromptCapabilities{},
		Resume:       &schema.SessionResumeCapabilities{},
		Close:        &schema.SessionCloseCapabilities{},
	}
	hello.AuthMethods = authMethods(r.ClientCapabilities, a.o.Program.Path)
	return hello, nil
}

// open starts the program for a session. On an error nothing is left of it.
func (a *agent) open(ctx context.Context, s *session) (err error) {
	defer func() {
		if err != nil {
			s.end()
		}
	}()
	if err := s.prepare(); err != nil {
		return err
	}
	asking, stop := context.WithCancel(ctx)
	defer stop()
	version, modes := a.ask(asking)
	s.version = version
	p, err := s.spawn(ctx)
	if err == nil {
		err = s.begun(ctx, p, nil)
	}
	if err != nil {
		stop()
		modes()
		return err
	}
	list := modes()
	s.mu.Lock()
	s.modes = list
	s.mu.Unlock()
	if err := a.sessions.Add(s.name(), s); err != nil {
		return err
	}
	s.keep()
	return nil
}

// sessionMeta is what a result says of a session beyond the protocol.
func (a *agent) sessionMeta(s *session) map[string]json.RawMessage {
	s.mu.Lock()
	m := map[string]any{"nativeSessionId": s.thread}
	s.mu.Unlock()
	if v := s.version; v != "" {
		m["agentVersion"] = v
		if onServer(v) {
			m["agentVersionVerified"] = false
		}
	}
	if len(s.l.Unsupported) > 0 {
		m["unsupported"] = s.l.Unsupported
	}
	return bridge.Meta(m)
}

// NewSession starts a thread.
func (a *agent) NewSession(ctx context.Context, r *schema.NewSessionRequest) (*schema.NewSessionResponse, error) {
	l, err := newLaunch(bridge.OfNew(r))
	if err != nil {
		return nil, err
	}
	s := a.newSession("", l)
	s.title.Given(l.Title != "")
	if err := a.open(ctx, s); err != nil {
		return nil, err
	}
	return &schema.NewSessionResponse{SessionID: s.name(), Modes: s.modeState(), ConfigOptions: s.options(), Meta: a.sessionMeta(s)}, nil
}

// LoadSession opens a thread, wherever it was made, and replays it if there is a
// copy of it on this machine.
func (a *agent) LoadSession(ctx context.Context, r *schema.LoadSessionRequest) (*schema.LoadSessionResponse, error) {
	s, err := a.reopen(ctx, r.SessionID, bridge.OfLoad(r), true)
	if err != nil {
		return nil, err
	}
	return &schema.LoadSessionResponse{Modes: s.modeState(), ConfigOptions: s.options(), Meta: a.sessionMeta(s)}, nil
}

// ResumeSession opens a thread and replays nothing.
func (a *agent) ResumeSession(ctx context.Context, r *schema.ResumeSessionRequest) (*schema.ResumeSessionResponse, error) {
	s, err := a.reopen(ctx, r.SessionID, bridge.OfResume(r), false)
	if err != nil {
		return nil, err
	}
	return &schema.ResumeSessionResponse{Modes: s.modeState(), ConfigOptions: s.options(), Meta: a.sessionMeta(s)}, nil
}

func (a *agent) reopen(ctx context.Context, id schema.SessionID, from bridge.Request, replay bool) (*session, error) {
	if !isThread(string(id)) {
		return nil, bridge.NotFound(id)
	}
	over, err := a.sessions.Claim(ctx, id)
	if err != nil {
		return nil, err
	}
	defer over()
	l, err := newLaunch(from)
	if err != nil {
		return nil, err
	}
	s := a.newSession(id, l)
	known, made := a.store.Load(string(id))
	s.thread, s.said = string(id), true
	if made {
		s.thread, s.said, s.granted = known.Thread, known.Said, known.Granted
		s.mode = bridge.FirstOf(l.mode, known.Mode)
	}
	s.title.Given(s.said)
	if replay && s.said {
		if err := s.replay(); err != nil {
			s.end()
			return nil, err
		}
	}
	if !replay {
		s.emit(func(*translator) (out []schema.SessionUpdate) {
			for _, id := range known.Open {
				out = append(out, status(id, schema.ToolCallStatusFailed)...)
			}
			return out
		})
	}
	if err := a.open(ctx, s); err != nil {
		return nil, err
	}
	return s, nil
}

// CloseSession ends a session's process.
func (a *agent) CloseSession(ctx context.Context, r *schema.CloseSessionRequest) (*schema.CloseSessionResponse, error) {
	if !a.sessions.Remove(ctx, r.SessionID) {
		return nil, bridge.NotFound(r.SessionID)
	}
	return nil, nil
}

// Close ends all processes.
func (a *agent) Close() error {
	a.sessions.Close()
	return nil
}
