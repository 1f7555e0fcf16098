package claude

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// questionsOf reads the questions of a call of AskUserQuestion.
func questionsOf(session schema.SessionID, r *controlRequest) (*acp.QuestionRequest, bool) {
	var in struct {
		Questions []acp.Question `json:"questions"`
	}
	if r.ToolName != "AskUserQuestion" || bridge.Lenient(r.Input, &in) != nil || len(in.Questions) == 0 {
		return nil, false
	}
	for i := range in.Questions {
		in.Questions[i].ID, in.Questions[i].OwnWords = "q"+strconv.Itoa(i+1), true
		if in.Questions[i].Options == nil {
			in.Questions[i].Options = []acp.QuestionOption{}
		}
	}
	return &acp.QuestionRequest{SessionID: session, ToolCallID: r.call, Questions: in.Questions}, true
}

// answered turns the client's answers into the answer for the program: the
// input, completed by them.
func answered(q *acp.QuestionRequest, r *controlRequest, resp *acp.QuestionResponse) answer {
	switch resp.Outcome {
	case acp.QuestionAnswered:
	case acp.QuestionCancelled:
		a := deny(saidCancel)
		a.Interrupt = true
		return a
	default:
		return deny("The user does not want to answer these questions.")
	}
	answers := map[string]string{}
	for i, one := range q.Questions {
		if i < len(resp.Answers) && len(resp.Answers[i]) > 0 {
			answers[one.Question] = strings.Join(resp.Answers[i], ", ")
		}
	}
	b, err := schema.Encode(answers)
	if err != nil {
		return deny("The answers cannot be read.")
	}
	a := allow(r)
	a.Input = rawjson.SetMember(a.Input, b, "answers")
	return a
}

// elicit asks what an MCP server wants to know. The gateway knows which clients can
// show it, now and later; where there is none, it is declined.
func (s *session) elicit(ctx context.Context, r *controlRequest) any {
	declined := map[string]string{"action": "decline"}
	params := map[string]any{"sessionId": s.id, "message": r.Message, "mode": "form"}
	if r.Mode == "url" || r.URL != "" {
		params["mode"], params["url"], params["elicitationId"] = "url", r.URL, r.ElicitationID
	} else {
		params["requestedSchema"] = firstRaw(r.Schema, `{"type":"object","properties":{}}`)
	}
	if r.Server != "" {
		params["_meta"] = bridge.Meta(map[string]string{"mcpServer": r.Server})
	}
	var resp struct {
		Action  string          `json:"action"`
		Content json.RawMessage `json:"content,omitempty"`
	}
	switch err := s.a.peer.Ask(ctx, acp.MethodElicitationCreate, params, &resp); {
	case err != nil:
		s.log.Debug("elicitation failed", "session", s.id, "err", err)
		return declined
	case resp.Action == "":
		return declined
	}
	return resp
}

// elicited tells the client that what it showed by an URL is done.
func (s *session) elicited(id string) {
	if err := s.a.peer.Notify(s.ctx, acp.MethodElicitationComplete, map[string]string{"elicitationId": id}); err != nil {
		s.log.Debug("report the end of an elicitation", "session", s.id, "err", err)
	}
}

func firstRaw(raw json.RawMessage, fallback string) json.RawMessage {
	if len(raw) == 0 || string(raw) == "null" {
		return json.RawMessage(fallback)
	}
	return raw
}
