package pi

import (
	"context"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge/turn"
)

// dialog takes what an extension shows or asks. It is called by the reader, which
// must not wait: the answer is found, and written, by a goroutine of its own.
func (s *session) dialog(p *program, e *event) {
	if a, ok := announced(e, s.mark); ok {
		if p.gate == nil {
			p.gate = a
		} else {
			s.goOn(p, a)
		}
		return
	}
	if q, ok := questionIn(e, s.mark); ok {
		s.questionIs(p, q)
		return
	}
	if servers, ok := serversIn(e, s.mark); ok {
		s.serversAre(servers)
		return
	}
	switch e.Method {
	case "select", "confirm", "input", "editor":
	case "notify":
		s.emit(func(t *translator) []schema.SessionUpdate { return t.notified(e) })
		return
	default:
		return // what only a terminal shows
	}
	p.last = e.ID
	q, gate := asked(e, s.mark)
	t := s.turns.Current() // the answer may come when another one runs
	s.mu.Lock()
	served := s.served // before there is a session nobody can be asked
	s.mu.Unlock()
	ctx, done, ok := s.asks.Begin(s.ctx, e.ID)
	if ok && gate {
		s.mu.Lock()
		s.calls[q.Call] = e.ID
		s.mu.Unlock()
	}
	if s.turns.Stopping() {
		s.asks.Withdraw(e.ID) // while it is open Pi would not end the turn
	}
	s.work.Go(func() {
		if !ok {
			s.answer(p, e.ID, nil)
			return
		}
		defer done()
		switch {
		case !served:
			s.asks.Told(e.ID)
			s.answer(p, e.ID, nil)
		case gate:
			said, end := s.decide(ctx, q)
			s.asks.Told(e.ID)
			s.answerGate(p, t, e.ID, q, said, end)
		default:
			said := s.question(ctx, e)
			s.asks.Told(e.ID)
			s.answer(p, e.ID, said)
		}
		if gate {
			s.mu.Lock()
			delete(s.calls, q.Call)
			s.mu.Unlock()
		}
	})
}

// questionIs takes what the gate says of a question that an extension may take back. One
// that it may not is open until it is answered, also behind its turn.
func (s *session) questionIs(p *program, q *openQuestion) {
	switch {
	case q.Over:
		s.asks.Withdraw(p.asked[q.Name])
		delete(p.asked, q.Name)
	case len(p.asked) < turn.MaxAsks: // else it was refused
		if p.asked == nil {
			p.asked = map[string]string{}
		}
		p.asked[q.Name] = p.last
	}
}

// answerGate answers whether a call that was made in turn t, nil for none, may be made. end
// says that the client wants the end of the run.
func (s *session) answerGate(p *program, t *turn.Turn[work], id string, q *gateQuestion, said string, end bool) {
	if end {
		s.giveUp(t) // before Pi has the answer and goes on
	}
	if said == gateAllow {
		s.emit(func(t *translator) []schema.SessionUpdate { return t.allowed(q.Call) })
	}
	s.answer(p, id, map[string]any{"value": said})
}

// giveUp ends the run in which a call was made while turn t was there, nil for none, and
// returns when Pi was told. When that is over the prompt that Pi works on by now goes on.
func (s *session) giveUp(t *turn.Turn[work]) {
	at := offered
	if t != nil {
		s.mu.Lock()
		at = t.Work.stage
		s.mu.Unlock()
	}
	abort := s.abort
	switch at {
	case running:
		t.Stop()
	case beside:
		// It is the prompt's, a command that waits for it, or Pi's own. The turn goes on: Pi
		// will say how the prompt ended.
		abort = s.abortRun
	default:
		s.abortOwn()
		return
	}
	told := make(chan struct{})
	if t.Go(func(context.Context) {
		defer close(told)
		abort()
	}) {
		<-told
	}
}

// answer answers a dialog; nil cancels it.
func (s *session) answer(p *program, id string, fields map[string]any) {
	line := map[string]any{"type": "extension_ui_response", "id": id}
	if fields == nil {
		fields = map[string]any{"cancelled": true}
	}
	for name, v := range fields {
		line[name] = v
	}
	if err := p.send(s.ctx, line); err != nil {
		s.log.Debug("answer to pi", "err", err)
	}
}

// question asks the client what an extension wants to know, nil for no answer.
func (s *session) question(ctx context.Context, e *event) map[string]any {
	one := acp.Question{ID: "q1", Header: bridge.OneLine(e.Title), Question: e.Title, Options: []acp.QuestionOption{}}
	switch e.Method {
	case "select":
		for _, o := range e.Options {
			one.Options = append(one.Options, acp.QuestionOption{Label: o})
		}
	case "confirm":
		one.Options = []acp.QuestionOption{{Label: "Yes"}, {Label: "No"}}
		one.Question = strings.TrimSpace(e.Title + "\n" + bridge.Text(e.Message))
	default:
		if hint := bridge.FirstOf(e.Placeholder, e.Prefill); hint != "" {
			one.Question = e.Title + "\n" + hint
		}
	}
	if one.Question == "" {
		one.Question = "An extension asks."
	}
	if e.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = bridge.Within(ctx, time.Duration(e.Timeout*float64(time.Millisecond)))
		defer cancel()
	}
	var resp acp.QuestionResponse
	r := &acp.QuestionRequest{SessionID: s.id, Questions: []acp.Question{one}}
	if err := s.a.peer.Ask(ctx, acp.MethodRequestQuestion, r, &resp); err != nil {
		s.log.Debug("ask the client for an extension", "session", s.id, "err", err)
		return nil
	}
	if ctx.Err() != nil || resp.Outcome != acp.QuestionAnswered || len(resp.Answers) == 0 || len(resp.Answers[0]) == 0 {
		return nil
	}
	said := strings.Join(resp.Answers[0], ", ")
	if e.Method == "confirm" {
		return map[string]any{"confirmed": said == "Yes"}
	}
	return map[string]any{"value": said}
}
