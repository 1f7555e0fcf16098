package fleet

import (
	"context"
	"slices"
	"time"

	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/fleet/replica"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// A move waits for what a node tells the hub by itself. None of these waits lasts for ever.

// awaitListed returns when the hub has heard of the session from the node that has it now: who has
// moved it finds it in the list, as it is there, and can move it on. It does not wait for ever.
func (m *move) awaitListed(ctx context.Context, to *client.Client, now runtime.SessionInfo) {
	within, cancel := context.WithTimeout(ctx, settleFor)
	defer cancel()
	again := time.NewTicker(askAgain) // somebody may have closed or deleted it since
	defer again.Stop()
	for {
		news := m.h.o.Store.SessionNews()
		if slices.ContainsFunc(m.h.o.Store.Sessions(), func(s *store.Session) bool {
			return s.Node == m.to && store.LineOf(s.Info) == m.line && s.Gone == nil && replica.Told(&s.Info) >= replica.Told(&now) &&
				(s.Info.State == runtime.StateClosed) == (now.State == runtime.StateClosed)
		}) {
			return
		}
		select {
		case <-news:
		case <-again.C:
			later, err := to.Session(within, now.ID)
			if err != nil && within.Err() == nil {
				return // there is nothing to wait for
			}
			if err == nil {
				now = later
			}
		case <-within.Done():
			if ctx.Err() == nil {
				m.h.log.Warn("a session has moved, and the node that has it has not told of it yet", "session", m.line.Session, "node", m.to)
			}
			return
		}
	}
}

// awaitUnlisted returns when the hub has heard that the other node has nothing of the session. What it had would be a
// session of its own until then. False says that the hub has not heard it.
func (m *move) awaitUnlisted(ctx context.Context) bool {
	gone := func() bool {
		return !slices.ContainsFunc(m.h.o.Store.SessionsNamed(m.line.Session), func(s *store.Session) bool {
			return s.Node == m.to && store.LineOf(s.Info) == m.line && s.Gone == nil
		})
	}
	return m.h.until(ctx, settleFor, gone) == nil && gone()
}

// awaitOpen returns when the node that has given the session, or a part of it, has opened it again: it
// is a moment before the node notices that nobody takes more, and who has waited for the end of the move
// would find the session closed. It does not wait for ever: somebody may have closed it.
func (m *move) awaitOpen(ctx context.Context, from *client.Client) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), settleFor)
	defer cancel()
	again := time.NewTicker(askAgain)
	defer again.Stop()
	for {
		news := m.h.o.Store.SessionNews()
		if now, err := from.Session(ctx, m.line.Session); err != nil || now.State != runtime.StateClosed {
			return
		}
		select {
		case <-news:
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}
