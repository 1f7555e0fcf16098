package bridge

import (
	"encoding/json"
	"strings"
	"sync"

	"sandboxagent.dev/sandbox-agent/acp"
)

// Sessions are those that are open on a connection whose sessions have nothing in
// common. Its methods are safe for concurrent use.
type Sessions[S comparable] struct {
	end func(S)

	mu     sync.Mutex
	open   map[acp.SessionID]S
	closed bool
}

// NewSessions returns an empty table. end ends everything that a session runs and
// returns when that is done; it may be called more than once for a session.
func NewSessions[S comparable](end func(S)) *Sessions[S] {
	return &Sessions[S]{end: end, open: map[acp.SessionID]S{}}
}

// Add opens a session. One that cannot be opened is ended.
func (t *Sessions[S]) Add(id acp.SessionID, s S) error {
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

func errOpen(id acp.SessionID) error {
	return acp.Errorf(acp.CodeInvalidRequest, "session %s is open already", id)
}

// Get returns a session, or an error for the client when it is not open.
func (t *Sessions[S]) Get(id acp.SessionID) (S, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.open[id]
	if !ok {
		return s, NotFound(id)
	}
	return s, nil
}

// Free returns an error for the client when a session is open.
func (t *Sessions[S]) Free(id acp.SessionID) error {
	if _, err := t.Get(id); err == nil {
		return errOpen(id)
	}
	return nil
}

// Has reports whether it is s that is open as id.
func (t *Sessions[S]) Has(id acp.SessionID, s S) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	one, ok := t.open[id]
	return ok && one == s
}

// Remove ends a session, and reports whether it was open.
func (t *Sessions[S]) Remove(id acp.SessionID) bool {
	t.mu.Lock()
	s, ok := t.open[id]
	delete(t.open, id)
	t.mu.Unlock()
	if ok {
		t.end(s)
	}
	return ok
}

// Close ends all sessions, and lets no further one be opened.
func (t *Sessions[S]) Close() {
	t.mu.Lock()
	t.closed = true
	all := t.open
	t.open = map[acp.SessionID]S{}
	t.mu.Unlock()
	var ending sync.WaitGroup
	for _, s := range all {
		ending.Go(func() { t.end(s) })
	}
	ending.Wait()
}

// TitleFor reads the parameters of session/set_title.
func TitleFor(params json.RawMessage) (id acp.SessionID, title string, err error) {
	title = strings.TrimSpace(acp.MemberString(params, "title"))
	if title == "" {
		return "", "", acp.Errorf(acp.CodeInvalidParams, "session/set_title needs params.title, a text that is not empty")
	}
	return acp.SessionID(acp.MemberString(params, "sessionId")), title, nil
}
