package bridge

import (
	"context"
	"encoding/json"
	"strings"
	"sync"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// Sessions are those that are open on a connection whose sessions have nothing in
// common. Its methods are safe for concurrent use.
type Sessions[S comparable] struct {
	end     func(S)
	leaving Leaving

	mu     sync.Mutex
	open   map[schema.SessionID]S
	closed bool
}

// NewSessions returns an empty table. end ends everything that a session runs and
// returns when that is done; it may be called more than once for a session.
func NewSessions[S comparable](end func(S)) *Sessions[S] {
	return &Sessions[S]{end: end, open: map[schema.SessionID]S{}}
}

// Add opens a session. One that cannot be opened is ended.
func (t *Sessions[S]) Add(id schema.SessionID, s S) error {
	t.mu.Lock()
	_, taken := t.open[id]
	closed := t.closed
	if !taken && !closed {
		t.open[id] = s
	}
	t.mu.Unlock()
	switch {
	case closed:
		t.end(s)
		return acp.Errorf(acp.CodeInvalidRequest, "the connection to the agent is closed")
	case taken:
		t.end(s)
		return errOpen(id)
	}
	return nil
}

// Fresh is the continuity in the result of a request that opens a session again, when
// the agent begins it anew: it has nothing of it. Whether something was said in it, and
// is lost, the gateway knows.
const Fresh = "fresh"

// Works returns what tells the gateway that a session's agent works though nobody has
// prompted it, and when it does no more.
func Works(ctx context.Context, p acp.Peer, id func() schema.SessionID) func(bool) {
	return func(works bool) {
		// It fails with the connection, and then says nothing of interest.
		_ = p.Notify(ctx, acp.MethodWorking, map[string]any{"sessionId": id(), "working": works})
	}
}

// NoMode refuses a mode that an agent does not have.
func NoMode(format string, args ...any) *acp.Error {
	return acp.Errorf(acp.CodeInvalidParams, format, args...).WithData(map[string]string{"type": adapters.ErrorType("mode_not_supported")})
}

func errOpen(id schema.SessionID) error {
	return acp.Errorf(acp.CodeInvalidRequest, "session %s is open already", id)
}

// Get returns a session, or an error for the client when it is not open.
func (t *Sessions[S]) Get(id schema.SessionID) (S, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.open[id]
	if !ok {
		return s, NotFound(id)
	}
	return s, nil
}

// Claim keeps a session from being opened or deleted by others until over is called, or returns an error for the client when it is
// open. It waits for one that is about to end, is being opened or is being deleted.
func (t *Sessions[S]) Claim(ctx context.Context, id schema.SessionID) (over func(), err error) {
	if over, err = t.leaving.Claim(ctx, id); err != nil {
		return nil, err
	}
	if _, err := t.Get(id); err == nil {
		over()
		return nil, errOpen(id)
	}
	return over, nil
}

// Has reports whether it is s that is open as id.
func (t *Sessions[S]) Has(id schema.SessionID, s S) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	one, ok := t.open[id]
	return ok && one == s
}

// Remove ends a session, and reports whether it was open. One that is about to end is not any more; one that is being opened is. Remove
// waits for either, or for the end of ctx.
func (t *Sessions[S]) Remove(ctx context.Context, id schema.SessionID) bool {
	return t.remove(id) || t.leaving.Wait(ctx, id) == nil && t.remove(id)
}

func (t *Sessions[S]) remove(id schema.SessionID) bool {
	t.mu.Lock()
	s, ok := t.open[id]
	if !ok {
		t.mu.Unlock()
		return false
	}
	delete(t.open, id)
	over := t.leaving.Begin(id)
	t.mu.Unlock()
	defer over()
	t.end(s)
	return true
}

// Erase ends a session if it is open, and has erase remove what the agent keeps of it. Ends and openings that are under
// way come before that. Who opens the session again waits for it.
func (t *Sessions[S]) Erase(ctx context.Context, id schema.SessionID, erase func() error) error {
	over, err := t.leaving.Claim(ctx, id)
	if err != nil {
		return err
	}
	defer over()
	t.mu.Lock()
	s, open := t.open[id]
	delete(t.open, id)
	t.mu.Unlock()
	if open {
		t.end(s)
	}
	return erase()
}

// Close ends all sessions, and lets no further one be opened.
func (t *Sessions[S]) Close() {
	t.mu.Lock()
	t.closed = true
	all := t.open
	t.open = map[schema.SessionID]S{}
	t.mu.Unlock()
	var ending sync.WaitGroup
	for _, s := range all {
		ending.Go(func() { t.end(s) })
	}
	ending.Wait()
}

// TitleFor reads the parameters of session/set_title.
func TitleFor(params json.RawMessage) (id schema.SessionID, title string, err error) {
	title = strings.TrimSpace(rawjson.MemberString(params, "title"))
	if title == "" {
		return "", "", acp.Errorf(acp.CodeInvalidParams, "session/set_title needs params.title, a text that is not empty")
	}
	return schema.SessionID(rawjson.MemberString(params, "sessionId")), title, nil
}
