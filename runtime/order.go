package runtime

import (
	"context"
	"slices"
	"sync"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/internal/memory"
	"sandboxagent.dev/sandbox-agent/runtime/agents"
	"sandboxagent.dev/sandbox-agent/runtime/observe"
	"sandboxagent.dev/sandbox-agent/runtime/session"
	"sandboxagent.dev/sandbox-agent/runtime/viewer"
)

// maxBehind bounds what waits behind the loads of one session. What comes then is refused.
const maxBehind = 1024

// loads are the loads of sessions that are under way, and the makings of new ones, by the session's id, with what was sent behind them: that is
// for the session as it is loaded, and it is done in its order when the load is. An agent that is opened anew with
// other settings would else be found working, and the settings would have no effect.
type loads struct {
	held  *memory.Share // what waits
	tasks *agents.Tasks

	mu sync.Mutex
	of map[string]*behind
}

// behind is what waits behind the loads of a session.
type behind struct {
	loads int        // under way
	rest  []*waiting // at most maxBehind, and a cancel of all before them
	runs  bool       // one of rest is being run
}

// waiting is a message that waits.
type waiting struct {
	q      *viewer.Request // nil for a notification
	id     string          // the promptId of a prompt, "" for none
	size   int             // bytes of memory
	cancel bool            // it waits only for what is being run
	named  bool            // a cancel of some prompts alone
	run    func()          // does not wait for the agent
}

// begin has what comes for the session wait until end is called, once.
func (l *loads) begin(id string) (end func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.beginLocked(id)
}

// beginLocked is begin for who holds mu.
func (l *loads) beginLocked(id string) (end func()) {
	b := l.of[id]
	if b == nil {
		b = &behind{}
		l.of[id] = b
	}
	b.loads++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		b.loads--
		l.runLocked(id, b)
	}
}

// runLocked runs what has waited up to the next load that is found in it, one at a time. mu is let go of meanwhile.
func (l *loads) runLocked(id string, b *behind) {
	for !b.runs && len(b.rest) > 0 && (b.loads == 0 || b.rest[0].cancel) {
		w := b.rest[0]
		b.rest, b.runs = b.rest[1:], true
		l.held.Give(w.size)
		l.mu.Unlock()
		w.run()
		l.mu.Lock()
		b.runs = false
	}
	if b.loads == 0 && !b.runs && l.of[id] == b {
		delete(l.of, id)
	}
}

var errManyBehind = acp.Errorf(acp.CodeInternal, "%d messages wait for the session to be loaded already", maxBehind)

// await keeps what f returns for when the session's loads that are under way have ended, and reports whether there are any. Without
// them a load begins in that moment: of two that come together one finds what the other has changed. It is handled, and done is called,
// which is nil for other messages. q is nil for a notification.
func (l *loads) await(m *acp.Message, q *viewer.Request, f func() (run func())) (waits bool, done func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	id, size := m.Session(), len(m.Frame())
	b := l.of[id]
	switch {
	case b == nil && q != nil && opens(q.Method()):
		return false, l.beginLocked(id), nil
	case b == nil:
		return false, nil, nil
	case len(b.rest) >= maxBehind:
		return true, nil, errManyBehind
	}
	l.held.Count(size)
	b.rest = append(b.rest, &waiting{q: q, id: rawjson.MemberString(m.Meta(), acp.MetaKey, "promptId"), size: size, run: f()})
	return true, nil, nil
}

// takeLocked takes the requests that is picks out of what waits.
func (l *loads) takeLocked(b *behind, is func(w *waiting) bool) (taken []*viewer.Request) {
	b.rest = slices.DeleteFunc(b.rest, func(w *waiting) bool {
		takes := w.q != nil && is(w)
		if takes {
			l.held.Give(w.size)
			taken = append(taken, w.q)
		}
		return takes
	})
	return taken
}

// withdraw takes a request out of what waits, and reports whether it was there.
func (l *loads) withdraw(id string, q *viewer.Request) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.of[id]
	return b != nil && len(l.takeLocked(b, func(w *waiting) bool { return w.q == q })) > 0
}

// cancel ends the prompts that wait as cancelled before they began, and runs what f returns before anything that waits: a cancel is for
// what goes on, and for what was sent before it alone. One that names prompts is for those. It reports whether loads are under way; else
// nothing is done. The error says why it cannot run: what waits has ended all the same.
func (l *loads) cancel(m *acp.Message, f func() (run func())) (waits bool, err error) {
	id := m.Session()
	ids, named := acp.PromptIDs(m)
	l.mu.Lock()
	b := l.of[id]
	if b == nil {
		l.mu.Unlock()
		return false, nil
	}
	prompts := l.takeLocked(b, func(w *waiting) bool {
		return w.q.Method() == acp.MethodSessionPrompt && (!named || w.id != "" && slices.Contains(ids, w.id))
	})
	switch {
	case named && len(b.rest) >= maxBehind:
		err = errManyBehind
	case named:
		l.held.Count(len(m.Frame()))
		b.rest = slices.Insert(b.rest, 0, &waiting{size: len(m.Frame()), cancel: true, named: true, run: f()})
	case len(b.rest) == 0 || !b.rest[0].cancel || b.rest[0].named: // else one waits that is for the same
		b.rest = slices.Insert(b.rest, 0, &waiting{cancel: true, run: f()})
	}
	l.tasks.Go(func() { // behind it may be all of the rest, if the load ends meanwhile: who cancels does not wait for that
		l.mu.Lock()
		defer l.mu.Unlock()
		l.runLocked(id, b)
	})
	l.mu.Unlock()
	for _, q := range prompts {
		q.Result(nil, session.UnbegunResult)
	}
	return true, err
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
		s := c.r.sessions.Find(m.Session())
		return s == nil || !s.Making() // of one that is being made these change nothing of how its agent works
	}
	return !ours(m.Method()) && !c.cancels(m)
}

// inOrder handles a request when the loads that were sent before it are done.
func (c *Client) inOrder(ctx context.Context, q *viewer.Request, m *acp.Message, handle func(ctx context.Context, m *acp.Message)) {
	if !m.HasSession() || !c.followsLoads(m) {
		handle(ctx, m)
		return
	}
	waits, done, err := c.r.loads.await(m, q, func() func() {
		own, ctx := m.Clone(), c.behindLoads(ctx)
		q.OnWithdraw(func(context.Context) {
			if c.r.loads.withdraw(own.Session(), q) {
				q.Fail(nil, acp.Errorf(acp.CodeCancelled, "%s was cancelled before it began", q.Method()))
			}
		})
		return func() {
			if opens(q.Method()) && c.r.sessions.Find(own.Session()) == nil { // it was deleted: what its agent may still have of it was not asked for
				q.Fail(nil, notFound(own.Session()))
				return
			}
			handle(ctx, &own)
			if q.Withdrawn() { // meanwhile, perhaps before it was said what to do then
				q.Withdraw(ctx)
			}
		}
	})
	switch {
	case err != nil:
		q.Fail(nil, err)
	case !waits:
		handle(ctx, m)
		if done != nil {
			done()
		}
	}
}

// tellInOrder is inOrder for a notification.
func (c *Client) tellInOrder(ctx context.Context, m *acp.Message) {
	later := func() func() {
		own, ctx := m.Clone(), c.behindLoads(ctx)
		return func() { c.tell(ctx, &own) }
	}
	var waits bool
	var err error
	if m.Method() == acp.MethodSessionCancel {
		waits, err = c.r.loads.cancel(m, later)
	} else {
		waits, _, err = c.r.loads.await(m, nil, later)
	}
	switch {
	case err != nil: // it has no answer
		c.r.log.Warn("notification that cannot wait", "client", c.ID(), "session", m.Session(), "method", m.Method(), "err", err)
	case !waits:
		c.tell(ctx, m)
	}
}

// behindLoads is the context of what was sent behind loads: its client may be gone by then, and what is behind it does not wait for
// an agent that reads slowly.
func (c *Client) behindLoads(ctx context.Context) context.Context {
	return agents.Queued(observe.Within(c.r.ctx, ctx))
}
