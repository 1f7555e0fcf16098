package codex

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"github.com/sourcegraph/jsonrpc2"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge/turn"
)

// asked takes a question. It runs on the goroutine that reads, which must not
// wait: the answer is found, and written, by a goroutine of its own.
func (s *server) asked(id jsonrpc2.ID, method string, params json.RawMessage) {
	q := &question{Method: method}
	if err := bridge.Lenient(params, q); err != nil {
		s.work.Go(func() { s.refuse(id, "the request cannot be read: %v", err) })
		return
	}
	s.a.mu.Lock()
	one := s.a.threads[q.Thread]
	held := one == nil && s.a.askLocked(id, q)
	s.a.mu.Unlock()
	if held {
		return
	}
	if one == nil || one.srv != s {
		s.work.Go(func() { s.refuse(id, "this host does not know %s of thread %q", method, q.Thread) })
		return
	}
	one.taking.Lock() // behind what was held of a session that is registered just now
	defer one.taking.Unlock()
	one.asked(id, q)
}

func (s *server) refuse(id jsonrpc2.ID, format string, args ...any) {
	err := s.rpc.ReplyWithError(context.Background(), id, &jsonrpc2.Error{Code: acp.CodeMethodNotFound, Message: fmt.Sprintf(format, args...)})
	if err != nil {
		s.log.Debug("refuse a request of codex", "err", err)
	}
}

func (s *server) respond(id jsonrpc2.ID, result any) {
	if err := s.rpc.Reply(context.Background(), id, result); err != nil {
		s.log.Debug("answer to codex", "err", err)
	}
}

func (s *session) asked(id jsonrpc2.ID, q *question) {
	key := id.String()
	t := s.turns.Current() // the answer may come when another one runs
	if !s.asksFor(t, q.Thread) {
		t = nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		s.srv.work.Go(func() { s.srv.refuse(id, "the session has ended") })
		return
	}
	// A turn that is being cancelled asks nothing any more.
	if t != nil && t.Stopping() {
		s.work.Go(func() { s.srv.respond(id, q.cancelled()) })
		return
	}
	until := s.ctx
	ours := t != nil && t.Work.answered && t.Work.ids[q.TurnID] // before the answer it may be codex's own
	if ours {                                                   // nobody waits for the answer when the turn is over
		until = t.Context()
	}
	ctx, done, ok := s.asks.Begin(until, key)
	if ok {
		s.askers[key] = asker{q.Thread, q.TurnID}
	}
	answer := func() {
		if !ok {
			s.srv.refuse(id, "too many questions are open")
			return
		}
		defer done()
		s.answer(ctx, id, q, t)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.askers, key)
	}
	if !ours || !t.Go(func(context.Context) { answer() }) {
		s.work.Go(answer)
	}
}

// asker is who asks a question.
type asker struct{ thread, turn string }

// asksFor reports whether a thread's question is one of turn t, or of what codex does by itself if that is nil. Those of subagents that
// an earlier turn has left behind are not. A subagent that no call has named yet is a new one.
func (s *session) asksFor(t *turn.Turn[work], thread string) bool {
	if thread == s.thread {
		return true
	}
	ours := s.turns.Owns
	if t != nil {
		s.mu.Lock()
		ids := maps.Clone(t.Work.ids)
		s.mu.Unlock()
		ours = func(turn string) bool { return ids[turn] }
	}
	s.out.Lock()
	defer s.out.Unlock()
	return s.tr.children[thread] == "" || s.tr.ofTurns(ours)[thread]
}

// dropAsksOf takes back the questions of turn t, or of what codex does by itself if that is nil, which is cancelled. Others are spared.
func (s *session) dropAsksOf(t *turn.Turn[work]) {
	s.mu.Lock()
	open := maps.Clone(s.askers)
	s.mu.Unlock()
	for key, one := range open {
		if s.asksFor(t, one.thread) {
			delete(open, key)
			s.asks.Withdraw(key)
		}
	}
	if t != nil {
		s.asks.Spare(func(key string) bool { return open[key] != asker{} })
	}
}

// endAsksOf takes back what a turn of the thread has asked that is over, and waits until the client knows.
func (s *session) endAsksOf(turn string) {
	s.mu.Lock()
	for key, one := range s.askers {
		if one == (asker{s.thread, turn}) {
			s.asks.Withdraw(key)
		}
	}
	s.mu.Unlock()
	s.asks.AwaitWithdrawn()
}

// withdrawn takes back a question: codex does not wait for the answer any more.
func (s *session) withdrawn(raw json.RawMessage) {
	var id jsonrpc2.ID
	if id.UnmarshalJSON(raw) == nil {
		s.asks.Withdraw(id.String())
	}
}

// answer finds the answer to a question of turn t, nil for one that nobody prompted, and
// gives it. A question that was withdrawn gets one too, which codex ignores.
func (s *session) answer(ctx context.Context, id jsonrpc2.ID, q *question, t *turn.Turn[work]) {
	var result any
	err := ctx.Err()
	if err == nil {
		result, err = s.decide(ctx, id, q, t)
	}
	s.asks.Told(id.String())
	switch {
	case ctx.Err() != nil:
		s.srv.respond(id, q.cancelled())
	case err != nil:
		s.log.Debug("ask the client", "method", q.Method, "err", err)
		s.srv.refuse(id, "the client did not answer: %v", err)
	default:
		s.srv.respond(id, result)
	}
}

// decide asks the client.
func (s *session) decide(ctx context.Context, id jsonrpc2.ID, q *question, t *turn.Turn[work]) (any, error) {
	switch q.Method {
	case "item/tool/requestUserInput":
		return s.inquire(ctx, id, q, t)
	case "mcpServer/elicitation/request":
		if q.Meta == nil || q.Meta.Approval == "" {
			return s.elicit(ctx, q), nil
		}
	case "item/commandExecution/requestApproval", "item/fileChange/requestApproval", "item/permissions/requestApproval":
	case "currentTime/read":
		return nil, fmt.Errorf("this host has no clock for codex")
	default:
		return nil, fmt.Errorf("this host does not know %s", q.Method)
	}
	s.out.Lock()
	req, list := s.tr.permission(s.id, q)
	s.out.Unlock()
	if known, _ := s.a.store.Load(string(s.id)); len(known.Granted) > 0 {
		s.keep(func(r *record) { r.Granted.Asked(q.grant(optionRule, &req.ToolCall, "").Key) })
	}
	var resp schema.RequestPermissionResponse
	if err := s.a.peer.Ask(ctx, acp.MethodSessionRequestPermission, req, &resp); err != nil {
		return nil, err
	}
	picked := resp.Outcome.Selected
	if picked == nil {
		return s.cancelled(id, q, t), nil
	}
	for _, c := range list {
		if c.option.OptionID != picked.OptionID {
			continue
		}
		if c.option.Kind == schema.PermissionOptionKindAllowOnce || c.option.Kind == schema.PermissionOptionKindAllowAlways {
			s.emit(func(t *translator) []schema.SessionUpdate { return t.allowed(string(req.ToolCall.ToolCallID)) })
		}
		if c.option.Kind == schema.PermissionOptionKindAllowAlways {
			given := q.grant(string(c.option.OptionID), &req.ToolCall, home(s.a.environ()))
			s.keep(func(r *record) { r.Granted.Add(given) })
		}
		return c.answer, nil
	}
	return nil, fmt.Errorf("it chose %q, which was not offered", picked.OptionID)
}

// cancelled ends what a question is of that the client has cancelled, and returns the answer. A client cancels all that is asked with a
// turn: a subagent that an earlier turn has left behind goes on beside it, and may ask again.
func (s *session) cancelled(id jsonrpc2.ID, q *question, t *turn.Turn[work]) any {
	left := t == nil && q.Thread != s.thread
	switch {
	case left && (s.asks.Spared(id.String()) || s.turns.Current() != nil):
		return q.declined()
	case q.Method == "item/commandExecution/requestApproval" || q.Method == "item/fileChange/requestApproval": // the answer ends it
	case left:
		s.beside(func() {
			if err := s.endThread(s.ctx, q.Thread); err != nil {
				s.log.Debug("end a subagent", "err", err)
			}
		})
	default:
		if s.turns.Current() != t && s.turns.Owns(q.TurnID) {
			t = nil // codex did not take the prompt
		}
		s.nudge(t)
	}
	return q.cancelled()
}

// inquire asks the client what the model wants to know.
func (s *session) inquire(ctx context.Context, id jsonrpc2.ID, q *question, t *turn.Turn[work]) (any, error) {
	req := &acp.QuestionRequest{SessionID: s.id, Questions: []acp.Question{}}
	for _, one := range q.Questions {
		next := acp.Question{ID: one.ID, Header: one.Header, Question: one.Question, OwnWords: one.Other, Options: []acp.QuestionOption{}}
		for _, o := range one.Options {
			next.Options = append(next.Options, acp.QuestionOption{Label: o.Label, Description: o.Description})
		}
		req.Questions = append(req.Questions, next)
	}
	var resp acp.QuestionResponse
	if err := s.a.peer.Ask(ctx, acp.MethodRequestQuestion, req, &resp); err != nil {
		return nil, err
	}
	if resp.Outcome == acp.QuestionCancelled {
		return s.cancelled(id, q, t), nil
	}
	return answered(q, &resp), nil
}

// answered turns the client's answers into codex's.
func answered(q *question, resp *acp.QuestionResponse) any {
	out := map[string]any{}
	for i, one := range q.Questions {
		list := []string{}
		if resp.Outcome == acp.QuestionAnswered && i < len(resp.Answers) && resp.Answers[i] != nil {
			list = resp.Answers[i]
		}
		if len(list) > 0 {
			out[one.ID] = map[string]any{"answers": list}
		}
	}
	return map[string]any{"answers": out}
}

// elicit asks what an MCP server wants to know. The gateway knows which clients can
// show it, now and later; where there is none, it is declined.
func (s *session) elicit(ctx context.Context, q *question) any {
	declined := map[string]any{"action": "decline", "content": nil}
	params := map[string]any{"sessionId": s.id, "message": q.Message, "mode": "form", "_meta": bridge.Meta(map[string]string{"mcpServer": q.Server})}
	switch {
	case q.Mode == "url":
		params["mode"], params["url"], params["elicitationId"] = "url", q.URL, q.ElicitationID
	case q.Mode != "form" && q.Mode != "":
		return declined
	case len(q.Schema) == 0 || string(q.Schema) == "null":
		params["requestedSchema"] = json.RawMessage(`{"type":"object","properties":{}}`)
	default:
		params["requestedSchema"] = q.Schema
	}
	var resp struct {
		Action  string          `json:"action"`
		Content json.RawMessage `json:"content"`
	}
	if err := s.a.peer.Ask(ctx, acp.MethodElicitationCreate, params, &resp); err != nil || resp.Action == "" {
		s.log.Debug("elicitation", "err", err)
		return declined
	}
	return map[string]any{"action": resp.Action, "content": rawOrNil(resp.Content)}
}
