package codex

import (
	"context"
	"encoding/json"
	"fmt"

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
	s.a.mu.Unlock()
	if one == nil || one.srv != s {
		s.work.Go(func() { s.refuse(id, "this host does not know %s of thread %q", method, q.Thread) })
		return
	}
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
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx.Err() != nil {
		s.srv.work.Go(func() { s.srv.refuse(id, "the session has ended") })
		return
	}
	// A turn that is being cancelled asks nothing any more.
	if s.turns.Stopping() {
		s.work.Go(func() { s.srv.respond(id, q.cancelled()) })
		return
	}
	t := s.turns.Current() // the answer may come when another one runs
	ctx, done, ok := s.asks.Begin(s.ctx, key)
	answer := func() {
		if !ok {
			s.srv.refuse(id, "too many questions are open")
			return
		}
		defer done()
		s.answer(ctx, id, q, t)
	}
	if t != nil && t.Work.ids[q.TurnID] && t.Go(func(over context.Context) {
		defer context.AfterFunc(over, func() { s.asks.Withdraw(key) })()
		answer()
	}) {
		return // nobody waits for the answer when the turn is over
	}
	s.work.Go(answer)
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
	result, err := s.decide(ctx, q, t)
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
func (s *session) decide(ctx context.Context, q *question, t *turn.Turn[work]) (any, error) {
	switch q.Method {
	case "item/tool/requestUserInput":
		return s.inquire(ctx, q, t)
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
	var resp schema.RequestPermissionResponse
	if err := s.a.peer.Ask(ctx, acp.MethodSessionRequestPermission, req, &resp); err != nil {
		return nil, err
	}
	picked := resp.Outcome.Selected
	if picked == nil {
		if q.Method != "item/commandExecution/requestApproval" && q.Method != "item/fileChange/requestApproval" {
			s.nudge(t) // these do not end the turn
		}
		return q.cancelled(), nil
	}
	for _, c := range list {
		if c.option.OptionID != picked.OptionID {
			continue
		}
		if c.option.Kind == schema.PermissionOptionKindAllowOnce || c.option.Kind == schema.PermissionOptionKindAllowAlways {
			s.emit(func(t *translator) []schema.SessionUpdate { return t.allowed(string(req.ToolCall.ToolCallID)) })
		}
		return c.answer, nil
	}
	return nil, fmt.Errorf("it chose %q, which was not offered", picked.OptionID)
}

// inquire asks the client what the model wants to know.
func (s *session) inquire(ctx context.Context, q *question, t *turn.Turn[work]) (any, error) {
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
		s.nudge(t)
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
