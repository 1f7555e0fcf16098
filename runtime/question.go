package runtime

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// Questions come from agents as _sandboxagent/session/request_question. A
// client is given the form it can answer: an ACP elicitation, the request as it
// is, or one permission request per question with an option per answer.

func (a *ask) questions() []acp.Question {
	var p struct {
		Questions []acp.Question `json:"questions"`
	}
	if json.Unmarshal(a.params, &p) != nil {
		return nil
	}
	return p.Questions
}

func questionKey(q acp.Question, i int) string {
	if q.ID != "" {
		return q.ID
	}
	return "q" + strconv.Itoa(i+1)
}

// renderQuestion returns the frame by which client c is asked a.
func (c *Client) renderQuestion(a *ask, frame []byte) []byte {
	switch {
	case c.caps.question:
		return frame
	case c.caps.form:
		return a.elicitation()
	}
	return a.permission(a.id, 0)
}

// elicitation is the question as a form: a property per question.
func (a *ask) elicitation() []byte {
	type node = map[string]any
	props, required := node{}, []string{}
	var lines []string
	for i, q := range a.questions() {
		labels := make([]any, 0, len(q.Options))
		for _, o := range q.Options {
			title := o.Label
			if o.Description != "" {
				title += ": " + o.Description
			}
			labels = append(labels, node{"const": o.Label, "title": title})
		}
		prop := node{"type": "string", "title": q.Header, "description": q.Question}
		switch {
		case q.MultiSelect:
			prop = node{"type": "array", "title": q.Header, "description": q.Question, "items": node{"anyOf": labels}}
		case len(labels) > 0:
			prop["oneOf"] = labels
		}
		props[questionKey(q, i)] = prop
		required = append(required, questionKey(q, i))
		lines = append(lines, q.Question)
	}
	params, err := schema.Encode(map[string]any{
		"sessionId": a.session.id, "mode": "form", "message": strings.Join(lines, "\n"),
		"requestedSchema": node{"type": "object", "properties": props, "required": required},
	})
	if err != nil {
		return nil
	}
	m := acp.NewRequest(acp.IntID(a.id), methodElicit, params)
	return m.Frame()
}

// permission is question i as a permission request with an option per answer.
func (a *ask) permission(id int64, i int) []byte {
	qs := a.questions()
	if i >= len(qs) {
		return nil
	}
	q := qs[i]
	options := make([]map[string]any, 0, len(q.Options)+1)
	for k, o := range q.Options {
		options = append(options, map[string]any{"optionId": "answer-" + strconv.Itoa(k), "name": o.Label, "kind": "allow_once"})
	}
	options = append(options, map[string]any{"optionId": "reject", "name": "Do not answer", "kind": "reject_once"})
	params, err := schema.Encode(map[string]any{
		"sessionId": a.session.id, "options": options,
		"toolCall": map[string]any{
			"toolCallId": fmt.Sprintf("question-%d", a.id), "title": q.Question, "kind": "other", "status": "pending",
			"content": []any{map[string]any{"type": "content", "content": map[string]any{"type": "text", "text": q.Question}}},
		},
	})
	if err != nil {
		return nil
	}
	m := acp.NewRequest(acp.IntID(id), methodPermission, params)
	return m.Frame()
}

// interpret turns the response of client c into the answer for the agent; nil
// means that the response is passed on as it is. more are the answers so far
// when the next piece of the question must be asked.
func (r *Runtime) interpret(c *Client, a *ask, m *acp.Message) (result []byte, more [][]string) {
	if a.method != methodQuestion {
		return nil, nil
	}
	whole := len(a.answers) == 0 // later pieces are permission requests for everybody
	if whole && c.caps.question {
		return nil, nil
	}
	if m.Err() != nil {
		return encodeAnswer("rejected", nil), nil
	}
	qs := a.questions()
	if whole && c.caps.form {
		return formAnswer(qs, m.Result()), nil
	}
	if rawjson.MemberString(m.Result(), "outcome", "outcome") != "selected" {
		return encodeAnswer("cancelled", nil), nil
	}
	i := len(a.answers)
	picked := rawjson.MemberString(m.Result(), "outcome", "optionId")
	k, err := strconv.Atoi(strings.TrimPrefix(picked, "answer-"))
	if i >= len(qs) || err != nil || k < 0 || k >= len(qs[i].Options) {
		return encodeAnswer("rejected", nil), nil
	}
	answers := append(slices.Clone(a.answers), []string{qs[i].Options[k].Label})
	if len(answers) == len(qs) {
		return encodeAnswer("answered", answers), nil
	}
	return nil, answers
}

// formAnswer reads the response to an elicitation.
func formAnswer(qs []acp.Question, res json.RawMessage) []byte {
	switch rawjson.MemberString(res, "action") {
	case "accept":
	case "decline":
		return encodeAnswer("rejected", nil)
	default:
		return encodeAnswer("cancelled", nil)
	}
	answers := make([][]string, len(qs))
	for i, q := range qs {
		v, _ := rawjson.Member(res, "content", questionKey(q, i))
		var one string
		if json.Unmarshal(v, &answers[i]) != nil && json.Unmarshal(v, &one) == nil {
			answers[i] = []string{one}
		}
	}
	return encodeAnswer("answered", answers)
}

// askOn asks the next piece of a question under an id of its own.
func (r *Runtime) askOn(a *ask, answers [][]string) {
	next := *a
	next.id, next.answers = r.nextAsk(), answers
	next.observe(a.span.Context())
	r.mu.Lock()
	r.asks[next.id] = &next
	r.mu.Unlock()
	s := a.session
	s.asksMu.Lock()
	s.recordAskLocked(&next, next.permission(next.id, len(answers)))
	s.asksMu.Unlock()
	s.flush()
}

func encodeAnswer(outcome string, answers [][]string) []byte {
	if answers == nil {
		answers = [][]string{}
	}
	for i, a := range answers {
		if a == nil {
			answers[i] = []string{}
		}
	}
	b, err := schema.Encode(acp.QuestionResponse{Outcome: acp.QuestionOutcome(outcome), Answers: answers})
	if err != nil {
		return nil
	}
	return b
}
