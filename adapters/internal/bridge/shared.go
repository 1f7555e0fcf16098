package bridge

import (
	"context"
	"sync"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/internal/process"
)

// Server is a process that serves many sessions.
type Server interface {
	comparable
	Process() *process.Process
	Ended() <-chan struct{} // closed when it has ended and was read to its end
	End()                   // ends it, and returns when nothing of it is left
}

// Servers are those of a connection, one of each kind, which start with the first
// request that needs them. Its methods are safe for concurrent use.
type Servers[K comparable, S Server] struct {
	conn  *Conn
	start func(ctx context.Context, k K) (S, error)
	died  func(S)

	starting sync.Mutex // held while one starts
	mu       sync.Mutex
	open     map[K]S
	closed   bool
}

// NewServers returns an empty table. start starts a server, and leaves nothing on
// an error. died is called for one that ended before it was in the table.
func NewServers[K comparable, S Server](c *Conn, start func(ctx context.Context, k K) (S, error), died func(S)) *Servers[K, S] {
	return &Servers[K, S]{conn: c, start: start, died: died, open: map[K]S{}}
}

// ErrClosed is the answer to a request that comes when the connection is closed.
var ErrClosed = acp.Errorf(acp.CodeInvalidRequest, "the connection to the agent is closed")

// Get returns the server of a kind, and starts it when there is none.
func (t *Servers[K, S]) Get(ctx context.Context, k K) (S, error) {
	t.starting.Lock()
	defer t.starting.Unlock()
	var none S
	s, ok := t.Open(k)
	switch {
	case t.isClosed():
		return none, ErrClosed
	case ok:
		return s, nil
	}
	s, err := t.start(ctx, k)
	if err != nil {
		return none, err
	}
	t.mu.Lock()
	closed := t.closed
	if !closed {
		t.open[k] = s
	}
	t.mu.Unlock()
	if closed {
		s.End()
		return none, ErrClosed
	}
	t.conn.SetProcess(s.Process())
	select {
	case <-s.Ended(): // before anybody could notice
		t.died(s)
	default:
	}
	return s, nil
}

// Remove takes a server out of the table, so that the next request starts another
// one. It is the caller's to end.
func (t *Servers[K, S]) Remove(k K, s S) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.open[k] == s {
		delete(t.open, k)
	}
}

func (t *Servers[K, S]) isClosed() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.closed
}

// Open returns the server of a kind, if it was started.
func (t *Servers[K, S]) Open(k K) (S, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s, ok := t.open[k]
	return s, ok
}

// Serves reports whether s is the server of a kind, and the connection is open.
func (t *Servers[K, S]) Serves(k K, s S) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return !t.closed && t.open[k] == s
}

// Close ends all servers, also one that is starting, and lets no further one
// start.
func (t *Servers[K, S]) Close() {
	t.mu.Lock()
	t.closed = true
	all := t.open
	t.open = map[K]S{}
	t.mu.Unlock()
	var ends sync.WaitGroup
	for _, s := range all {
		ends.Go(s.End)
	}
	ends.Wait()
	t.starting.Lock() // one that is starting is ended by who starts it
	defer t.starting.Unlock()
}
