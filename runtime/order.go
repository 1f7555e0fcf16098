package runtime

import (
	"context"
	"sync"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/internal/memory"
	"sandboxagent.dev/sandbox-agent/runtime/observe"
	"sandboxagent.dev/sandbox-agent/runtime/viewer"
)

// maxBehind bounds what waits behind the loads of one session. What comes then is refused.
const maxBehind = 1024

// loads are the loads of sessions that are under way, by the session's id, with what was sent behind them: that is
// for the session as it is loaded, and it is done in its order when the load is. An agent that is opened anew with
// other settings would else be found working, and the settings would have no effect.
type loads struct {
	held *memory.Share // what waits

	mu sync.Mutex
	of map[string]*behind
}

// behind is what waits behind the loads of a session.
type behind struct {
	loads int      // under way
	rest  []func() // at most maxBehind
	runs  bool     // one of rest is being run
}

// begin has what comes for the session wait until end is called, once.
func (l *loads) begin(id string) (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.of[id]
	if b == nil {
		b = &behind{}
		l.of[id] = b
	}
	b.loads++
	return func() { l.end(id, b) }
}

// end runs what has waited up to the next load that is found in it.
func (l *loads) end(id string, b *behind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b.loads--
	for b.loads == 0 && !b.runs && len(b.rest) > 0 {
		f := b.rest[0]
		b.rest, b.runs = b.rest[1:], true
		l.mu.Unlock()
		f()
		l.mu.Lock()
		b.runs = false
	}
	if b.loads == 0 && !b.runs {
		delete(l.of, id)
	}
}

// await keeps f for when the session's loads that are under way have ended, and reports whether there are any. size is
// what f holds in memory.
func (l *loads) await(id string, size int, f func() func()) (waits bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.of[id]
	switch {
	case b == nil:
		return false, nil
	case len(b.rest) >= maxBehind:
		return true, acp.Errorf(acp.CodeInternal, "%d messages wait for the session to be loaded already", maxBehind)
	}
	l.held.Count(size)
	run := f()
	b.rest = append(b.rest, func() {
		l.held.Give(size)
		run()
	})
	return true, nil
}

// opens reports whether a method opens a session.
func opens(method string) bool {
	return method == acp.MethodSessionLoad || method == acp.MethodSessionResume
}

// followsLoads reports whether a request for a session that is being loaded waits for that: what the session's agent is to do, and
// what changes the session. To end it, and to read, nobody waits.
func (c *Client) followsLoads(m *acp.Message) bool {
	switch m.Method() {
	case acp.MethodSessionLoad, acp.MethodSessionResume: // of one that is not here yet two are refused
		return !c.watch && c.r.sessions.Find(m.Session()) != nil
	case acp.MethodSessionNew, acp.MethodSessionClose, acp.MethodSessionDelete, acp.MethodSessionList, acp.MethodInitialize:
		return false
	case "_sandboxagent/session/set_metadata", "_sandboxagent/session/detach":
		return true
	}
	return !ours(m.Method()) && !c.cancels(m)
}

// inOrder handles a request when the loads that were sent before it are done.
func (c *Client) inOrder(ctx context.Context, q *viewer.Request, m *acp.Message, handle func(ctx context.Context, m *acp.Message)) {
	if !m.HasSession() || !c.followsLoads(m) {
		handle(ctx, m)
		return
	}
	waits, err := c.r.loads.await(m.Session(), len(m.Frame()), func() func() {
		own := m.Clone()
		return func() {
			if q.Withdrawn() {
				q.Fail(nil, acp.Errorf(acp.CodeCancelled, "%s was cancelled before it began", q.Method()))
				return
			}
			if opens(q.Method()) && c.r.sessions.Find(own.Session()) == nil { // it was deleted: what its agent may still have of it was not asked for
				q.Fail(nil, notFound(own.Session()))
				return
			}
			handle(observe.Within(c.r.ctx, ctx), &own)
		}
	})
	switch {
	case err != nil:
		q.Fail(nil, err)
	case !waits:
		handle(ctx, m)
	}
}
