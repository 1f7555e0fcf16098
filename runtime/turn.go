package runtime

import (
	"bytes"
	"context"
	"errors"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// turn is one prompt from its arrival to its response.
type turn struct {
	req       *request
	prompt    acp.Message // as the client sent it; dropped when the agent has it
	name      []byte      // the JSON string by which its client knows it elsewhere, nil without one
	agentID   int64       // the request's id at the agent
	given     bool        // the prompt is on its way to the agent
	sent      bool        // the agent has the prompt, or it is queued for it
	cancelled bool        // the agent is told when it has the prompt
	withdrawn bool        // by $/cancel_request; likewise
	ended     bool
	watchdog  *time.Timer
	span      Span // from its arrival to its response
}

var cancelledResult = []byte(`{"stopReason":"cancelled"}`)

// submit takes a prompt: it starts the turn, or queues it behind the running one.
func (s *Session) submit(ctx context.Context, req *request, m *acp.Message) {
	t := &turn{req: req, prompt: m.Clone()}
	if name, ok := rawjson.Member(m.Meta(), acp.MetaKey, "promptId"); ok && name[0] == '"' {
		t.name = bytes.Clone(name)
	}
	s.mu.Lock()
	if err := s.openErrorLocked(); err != nil {
		s.mu.Unlock()
		req.fail(s, err)
		return
	}
	if s.turn != nil {
		if len(s.queue) >= maxQueued {
			s.mu.Unlock()
			req.fail(s, acp.Errorf(acp.CodeInternal, "the session has %d prompts waiting already: wait for one to end, or send session/cancel", maxQueued))
			return
		}
		t.span = s.watchTurn(ctx, m)
		s.queue = append(s.queue, t)
		s.mu.Unlock()
		return
	}
	t.span = s.watchTurn(ctx, m)
	s.turn = t
	s.mu.Unlock()
	s.begin(t)
}

// watchTurn begins the span of a prompt that was accepted.
func (s *Session) watchTurn(ctx context.Context, m *acp.Message) Span {
	return s.r.watch.Begin(ctx, Work{Name: m.Method(), Agent: s.rec.Agent, Session: s.id, Meta: m.Meta()})
}

// openErrorLocked says why the session takes no prompt, nil when it does.
func (s *Session) openErrorLocked() error {
	switch {
	case s.gone:
		return acp.Errorf(acp.CodeResourceNotFound, "session %s was deleted", s.id)
	case s.rec.Ended != nil:
		return acp.Errorf(acp.CodeResourceNotFound, "session %s has ended (%s): start a new one", s.id, s.rec.Ended.Reason)
	case s.rec.Closed:
		return acp.Errorf(acp.CodeResourceNotFound, "session %s is closed: open it with session/load or session/resume", s.id)
	case s.r.closing.Load():
		return acp.Errorf(acp.CodeInternal, "the gateway is shutting down")
	}
	return nil
}

// begin records the turn's prompt and gives it to the agent.
func (s *Session) begin(t *turn) {
	s.settleCalls()
	num := t.req.client.num
	s.log().Append(journal.Client, num, t.prompt.Frame())
	blocks, _ := rawjson.Member(t.prompt.Params(), "prompt")
	for _, block := range rawjson.Elements(blocks) {
		// The sender knows what it sent; everybody else, and everybody later,
		// is shown it as ACP shows a user's words.
		s.log().Append(journal.Echo, journal.Except(num),
			[]byte(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":`), s.quoted,
			[]byte(`,"update":{"sessionUpdate":"user_message_chunk","content":`), block, []byte(`}}}`))
	}
	if p := s.live(); p != nil {
		s.give(t, p)
		s.flush() // the agent is at work meanwhile
		return
	}
	s.flush()
	s.r.work.Go(func() {
		p, err := s.ensure(within(s.r.ctx, t.span.Context()), t.req.client)
		if err != nil {
			s.finish(t, nil, err)
			return
		}
		s.give(t, p)
	})
}

// give sends the turn's prompt to the agent, unless it was cancelled meanwhile.
func (s *Session) give(t *turn, p *proc) {
	s.mu.Lock()
	if t.cancelled || t.ended {
		s.mu.Unlock()
		s.finish(t, nil, nil)
		return
	}
	t.given = true
	prompt := t.prompt
	t.prompt = acp.Message{}
	if limit := s.r.o.TurnIdleTimeout; limit > 0 {
		t.watchdog = time.AfterFunc(limit, func() { s.watch(t, limit) })
	}
	s.mu.Unlock()
	native := s.toAgent()
	build := func(id acp.ID) []byte {
		n, _ := id.Int()
		s.mu.Lock()
		t.agentID = n
		s.mu.Unlock()
		return withTrace(prompt.AppendRewritten(make([]byte, 0, len(prompt.Frame())+64), id, native), t.span)
	}
	t.req.proc.Store(p)
	s.awaited.Store(t)
	p.call(s.r.ctx, 0, build, func(res *acp.Message, err error) { s.finish(t, res, err) })
	s.mu.Lock()
	t.sent = true
	cancelled, withdrawn := t.cancelled, t.withdrawn
	s.mu.Unlock()
	// What came while the prompt was on its way must not overtake it.
	if cancelled {
		s.tellCancelled(t)
	}
	if withdrawn {
		s.tellWithdrawn(t)
	}
}

// watch cancels a turn that has been silent for limit.
func (s *Session) watch(t *turn, limit time.Duration) {
	silent := time.Since(time.UnixMilli(s.active.Load()))
	s.mu.Lock()
	if s.turn != t || t.ended {
		s.mu.Unlock()
		return
	}
	if silent < limit {
		t.watchdog.Reset(limit - silent)
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	s.r.log.Warn("cancel silent turn", "session", s.id, "silent", silent)
	s.cancelTurn()
}

// finish ends the turn with the agent's response, or with err, or as cancelled,
// and begins the next one.
func (s *Session) finish(t *turn, res *acp.Message, err error) {
	s.mu.Lock()
	if t.ended {
		s.mu.Unlock()
		return
	}
	t.ended = true
	if t.watchdog != nil {
		t.watchdog.Stop()
	}
	s.mu.Unlock()
	s.awaited.CompareAndSwap(t, nil)
	switch {
	case err != nil && t.cancelled && errors.Is(err, context.Canceled), res == nil && err == nil:
		t.span.End(Outcome{Result: Cancelled})
		s.turnEnded(t, cancelledResult, nil)
		t.req.result(s, cancelledResult)
	case err != nil:
		t.span.End(outcomeOf(err))
		s.turnEnded(t, nil, callError(err))
		t.req.fail(s, err)
	default:
		t.span.End(outcomeOfTurn(res))
		s.turnEnded(t, res.Result(), res.Err())
		t.req.forward(s, res)
	}
	s.flush() // in case it was answered before
	s.active.Store(time.Now().UnixMilli())
	s.r.syncer.soon(s)
	s.mu.Lock()
	if s.unsaved { // on its own goroutine: this one may be the agent's pump
		s.r.work.Go(s.save)
	}
	if s.turn != t {
		s.mu.Unlock()
		return
	}
	var next *turn
	if s.turn = nil; len(s.queue) > 0 {
		next, s.queue = s.queue[0], s.queue[1:]
		s.turn = next
	} else if s.idle != nil {
		close(s.idle)
		s.idle = nil
	}
	s.mu.Unlock()
	if next != nil {
		s.r.work.Go(func() { s.begin(next) })
	}
}

// turnEnded tells the session's other clients, the turn's own on a later
// connection among them, how it ended, if one may want to know. The response
// follows and is written with it.
func (s *Session) turnEnded(t *turn, result []byte, failure *acp.Error) {
	if t.name == nil && !s.watched(t.req.client) {
		return
	}
	frame := append(make([]byte, 0, 256+len(result)), `{"jsonrpc":"2.0","method":"_sandboxagent/session/turn_ended","params":{"sessionId":`...)
	frame = append(frame, s.quoted...)
	if t.name != nil {
		frame = append(append(frame, `,"promptId":`...), t.name...)
	}
	if failure != nil {
		b, err := schema.Encode(failure)
		if err != nil {
			return
		}
		frame = append(append(frame, `,"error":`...), b...)
	} else {
		frame = append(append(frame, `,"result":`...), result...)
	}
	s.log().Append(journal.TurnEnd, journal.Except(t.req.client.num), append(frame, "}}"...))
}

// watched reports whether a client other than c wants to know how turns end.
func (s *Session) watched(c *Client) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.feeds {
		if f.client != c && f.client.caps.turns {
			return true
		}
	}
	return false
}

// cancel is a client's session/cancel: it ends the running turn and everything
// that waits behind it.
func (s *Session) cancel(c *Client, m *acp.Message) {
	s.log().Append(journal.Client, c.num, m.Frame())
	s.flush()
	s.cancelAll()
}

// cancelAll cancels the queued turns and the running one.
func (s *Session) cancelAll() {
	s.mu.Lock()
	queued := s.queue
	s.queue = nil
	s.mu.Unlock()
	for _, t := range queued {
		t.span.End(Outcome{Result: Cancelled})
		s.turnEnded(t, cancelledResult, nil)
		t.req.result(s, cancelledResult)
	}
	s.cancelTurn()
}

// cancelTurn ends the running turn: by the agent when it has the prompt, at once
// when it has not. Requests of the agent that are open between turns are answered
// as cancelled, too.
func (s *Session) cancelTurn() {
	s.mu.Lock()
	t := s.turn
	if t == nil || t.ended { // an ended one is its session's until the next begins
		s.mu.Unlock()
		if p := s.live(); p != nil && s.openAsks() > 0 {
			s.tellCancel(p)
		}
		return
	}
	t.cancelled = true
	given, sent := t.given, t.sent
	s.mu.Unlock()
	switch {
	case sent:
		s.tellCancelled(t)
	case !given:
		s.finish(t, nil, nil)
	}
}

// tellCancelled sends session/cancel for a turn whose prompt was sent.
func (s *Session) tellCancelled(t *turn) {
	p := s.live()
	s.mu.Lock()
	current := s.turn == t && !t.ended
	s.mu.Unlock()
	if p != nil && current {
		s.tellCancel(p)
	}
}

// tellCancel sends session/cancel and answers as cancelled what the agent asks of
// people.
func (s *Session) tellCancel(p *proc) {
	native := s.native()
	n := acp.NewNotification("session/cancel", append(append([]byte(`{"sessionId":`), rawjson.AppendQuoted(nil, native)...), '}'))
	p.trySend(n.Frame())
	s.dropAsks(p)
}

// tellWithdrawn sends $/cancel_request for a prompt that was sent.
func (s *Session) tellWithdrawn(t *turn) {
	s.mu.Lock()
	id := t.agentID
	s.mu.Unlock()
	if p := s.live(); p != nil {
		n := acp.NewNotification(methodCancelReq, append(append([]byte(`{"requestId":`), acp.IntID(id)...), '}'))
		p.trySend(n.Frame())
	}
}

// withdraw handles $/cancel_request for a prompt: a queued one is answered with
// error -32800, a running one's request is passed on to the agent.
func (s *Session) withdraw(req *request) {
	s.mu.Lock()
	for i, t := range s.queue {
		if t.req == req {
			s.queue = append(s.queue[:i:i], s.queue[i+1:]...)
			s.mu.Unlock()
			t.span.End(Outcome{Result: Cancelled})
			withdrawn := acp.Errorf(acp.CodeCancelled, "the prompt was cancelled before it began")
			s.turnEnded(t, nil, withdrawn)
			req.fail(s, withdrawn)
			return
		}
	}
	t := s.turn
	if t == nil || t.req != req {
		s.mu.Unlock()
		return
	}
	t.withdrawn = true
	sent := t.sent
	s.mu.Unlock()
	if sent {
		s.tellWithdrawn(t)
	}
}
