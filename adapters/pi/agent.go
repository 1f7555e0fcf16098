package pi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

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
	files conversations

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
	a.files = conversationsOf(a.environ())
	runs.Sweep(filepath.Join(o.StateDir, "run"), a.log)
	return a
}

// Initialize starts no program.
func (a *agent) Initialize(_ context.Context, r *schema.InitializeRequest) (*schema.InitializeResponse, error) {
	hello := bridge.Hello(ID, "Pi", a.o)
	hello.AuthMethods = authMethods()
	return hello, nil
}

// add makes a session that has started one of the connection's.
func (a *agent) add(s *session, g *greeting) error {
	if err := a.sessions.Add(s.id, s); err != nil {
		return err
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
	s.emit(func(*translator) []schema.SessionUpdate { return commandsUpdate(g.Commands) })
	return nil
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
		if _, err := a.files.find(id); err != nil {
			return nil, bridge.NotFound(r.SessionID)
		}
		return nil, acp.Errorf(acp.CodeInvalidRequest, "session %s was not made here, so it is not deleted: delete it with pi itself", id)
	}
	return nil, a.sessions.Erase(ctx, r.SessionID, func() error {
		known, _ := a.store.Load(id) // its end may have changed that
		for _, file := range known.own() {
			if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("delete session %s: %w", id, err)
			}
		}
		return a.store.Forget(id)
	})
}

// ExtMethod handles drafts.
func (a *agent) ExtMethod(ctx context.Context, method string, params json.RawMessage) (any, error) {
	if method != acp.MethodSessionSetTitle {
		return nil, acp.Errorf(acp.CodeMethodNotFound, "method not found: %s", method)
	}
	id, title, err := bridge.TitleFor(params)
	if err != nil {
		return nil, err
	}
	s, err := a.sessions.Get(id)
	if err != nil {
		return nil, err
	}
	return map[string]string{"title": title}, s.entitle(ctx, title)
}

// Close ends all processes.
func (a *agent) Close() error {
	a.sessions.Close()
	return nil
}
