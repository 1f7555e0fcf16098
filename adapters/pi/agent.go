package pi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"

	"sandboxagent.dev/sandbox-agent/acp"
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
	files conversations

	client bridge.Client // what it has said of itself

	mu       sync.Mutex
	sessions map[acp.SessionID]*session
	closed   bool
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
	a := &agent{o: o, conn: c, peer: p, log: bridge.Logger(o), store: newStore(o.StateDir), sessions: map[acp.SessionID]*session{}}
	a.files = conversationsOf(a.environ())
	return a
}

// Initialize starts no program.
func (a *agent) Initialize(_ context.Context, r *acp.InitializeRequest) (*acp.InitializeResponse, error) {
	a.client.Hears(r)
	hello := bridge.Hello(ID, "Pi", a.o)
	hello.AuthMethods = authMethods()
	return hello, nil
}

// add makes a session that has started one of the connection's.
func (a *agent) add(s *session, g *greeting) error {
	a.mu.Lock()
	closed := a.closed
	_, taken := a.sessions[s.id]
	if !closed && !taken {
		a.sessions[s.id] = s
	}
	a.mu.Unlock()
	if closed || taken {
		s.end()
		return acp.Errorf(acp.CodeInvalidRequest, "session %s is open already", s.id)
	}
	a.conn.SetProcess(s.program().child.Process)
	select {
	case <-s.dead: // before anybody could notice
		a.conn.Fail(s.exit)
	default:
	}
	s.mu.Lock()
	s.served = true
	s.mu.Unlock()
	s.emit(func(*translator) []acp.SessionUpdate { return commandsUpdate(g.Commands) })
	return nil
}

// CloseSession ends a session's process.
func (a *agent) CloseSession(_ context.Context, r *acp.CloseSessionRequest) (*acp.CloseSessionResponse, error) {
	s, err := a.session(r.SessionID)
	if err != nil {
		return nil, err
	}
	a.remove(s)
	return nil, nil
}

// DeleteSession removes a conversation that was made here. What people made in a
// terminal is theirs.
func (a *agent) DeleteSession(_ context.Context, r *acp.DeleteSessionRequest) (*acp.DeleteSessionResponse, error) {
	id := string(r.SessionID)
	known, ok := a.store.Load(id)
	if !ok || !known.Made {
		if _, err := a.files.find(id, ""); err != nil {
			return nil, bridge.NotFound(r.SessionID)
		}
		return nil, acp.Errorf(acp.CodeInvalidRequest, "session %s was not made here, so it is not deleted: delete it with pi itself", id)
	}
	if s, err := a.session(r.SessionID); err == nil {
		a.remove(s)
	}
	if known.File != "" {
		if err := os.Remove(known.File); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("delete session %s: %w", id, err)
		}
	}
	return nil, a.store.Forget(id)
}

// ExtMethod handles drafts.
func (a *agent) ExtMethod(ctx context.Context, method string, params json.RawMessage) (any, error) {
	if method != acp.MethodSessionSetTitle {
		return nil, acp.Errorf(acp.CodeMethodNotFound, "method not found: %s", method)
	}
	s, err := a.session(acp.SessionID(acp.MemberString(params, "sessionId")))
	if err != nil {
		return nil, err
	}
	title := strings.TrimSpace(acp.MemberString(params, "title"))
	if title == "" {
		return nil, acp.Errorf(acp.CodeInvalidParams, "session/set_title needs params.title, a text that is not empty")
	}
	return map[string]string{"title": title}, s.entitle(ctx, title)
}

// died ends the connection because a session's process has ended by itself.
func (a *agent) died(s *session, exit error) {
	a.mu.Lock()
	open := a.sessions[s.id] == s
	a.mu.Unlock()
	if open {
		a.conn.Fail(exit)
	}
}

// Close ends all processes.
func (a *agent) Close() error {
	a.mu.Lock()
	a.closed = true
	all := a.sessions
	a.sessions = map[acp.SessionID]*session{}
	a.mu.Unlock()
	var ending sync.WaitGroup
	for _, s := range all {
		ending.Go(s.end)
	}
	ending.Wait()
	return nil
}

func (a *agent) remove(s *session) {
	a.mu.Lock()
	if a.sessions[s.id] == s {
		delete(a.sessions, s.id)
	}
	a.mu.Unlock()
	s.end()
}

func (a *agent) session(id acp.SessionID) (*session, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s := a.sessions[id]; s != nil {
		return s, nil
	}
	return nil, bridge.NotFound(id)
}
