package amp

import (
	"context"
	"slices"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge/turn"
)

// decide answers a delegate. It is called by a goroutine of the delegate's. What is asked
// about a call ends with the turn.
func (s *session) decide(ctx context.Context, r *request) reply {
	a := make(chan reply, 1)
	t := s.turns.Current()
	if t == nil || !t.Go(func(over context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(over, cancel)()
		a <- s.decideIn(ctx, t, r)
	}) {
		return reply{Reason: saidCancel}
	}
	return <-a
}

// decideIn answers a delegate in turn t: by what was allowed before, by the session's
// mode, or as the client says.
func (s *session) decideIn(ctx context.Context, t *turn.Turn[work], r *request) reply {
	ctx, done, ok := s.asks.Begin(ctx, r.ID)
	if !ok {
		return reply{Reason: "Too many questions about permissions are open."}
	}
	defer done()
	s.announced(ctx, r.ID)
	if ctx.Err() != nil || t.Stopping() { // what came before that is withdrawn with the rest
		return reply{Reason: saidCancel}
	}
	var c tool
	s.emit(func(t *translator) []schema.SessionUpdate {
		out := t.asked(r)
		if known := t.tools[r.ID]; known != nil {
			c = *known
		}
		return out
	})
	s.keep()
	a, stop := s.answer(ctx, r, &c)
	if stop {
		t.Stop()
	}
	s.emit(func(t *translator) []schema.SessionUpdate {
		if a.Allow {
			return t.allowed(r.ID)
		}
		return t.refused(r.ID)
	})
	return a
}

// linePause limits how long the line of a call may come after the question about
// it: the program writes lines every 100 ms.
const linePause = 600 * time.Millisecond

// announced waits for the line that tells of a call. Of a subagent's there is none,
// but then that of the call which it works for has come.
func (s *session) announced(ctx context.Context, id string) {
	limit := time.NewTimer(linePause)
	defer limit.Stop()
	for {
		s.mu.Lock()
		next := s.lines
		s.mu.Unlock()
		s.out.Lock()
		known := s.tr.tools[id] != nil
		s.out.Unlock()
		if known {
			return
		}
		select {
		case <-next:
		case <-limit.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// answer finds the answer; stop says that the client wants the turn to end.
func (s *session) answer(ctx context.Context, r *request, c *tool) (a reply, stop bool) {
	key, name := grant(s.cwd, r)
	s.mu.Lock()
	known := key != "" && s.granted.Has(key)
	id := s.id
	s.mu.Unlock()
	if known || s.l.permit == permitWrite && slices.Contains(edits, r.Tool) && key != "" {
		return reply{Allow: true}, false
	}
	var resp schema.RequestPermissionResponse
	req := permissionRequest(id, s.cwd, r, c)
	if err := s.a.peer.Ask(ctx, acp.MethodSessionRequestPermission, req, &resp); err != nil {
		return reply{Reason: "Nobody answered whether this may be done: " + err.Error()}, false
	}
	a, always, stop := chosen(&resp)
	if always && key != "" {
		s.mu.Lock()
		s.granted.Add(bridge.Given(key, name, req.ToolCall.Kind))
		s.mu.Unlock()
		s.keep()
	}
	return a, stop
}
