package viewer

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/runtime/observe"
)

// Ask is a request of an agent as clients see it. It does not change once it is open.
type Ask struct {
	ID      int64
	Session string // "" for none
	Method  string
	Params  json.RawMessage
	Answers [][]string // given to earlier pieces of a question asked piece by piece
}

// ForPerson reports whether a person answers the request: it is listed as pending and
// answered as cancelled with its turn.
func (a *Ask) ForPerson() bool {
	switch a.Method {
	case acp.MethodSessionRequestPermission, acp.MethodElicitationCreate, acp.MethodRequestQuestion:
		return true
	}
	return false
}

// Decision is what a person's response m says, in one word.
func (a *Ask) Decision(m *acp.Message) observe.Outcome {
	if e := m.Err(); e != nil {
		return observe.OutcomeOf(e)
	}
	res := m.Result()
	if action := rawjson.MemberString(res, "action"); action != "" { // of an elicitation
		return observe.Outcome{Result: action}
	}
	if rawjson.MemberString(res, "outcome", "outcome") != "selected" {
		if outcome := rawjson.MemberString(res, "outcome"); outcome != "" { // of a question
			return observe.Outcome{Result: outcome}
		}
		return observe.Outcome{Result: observe.Cancelled}
	}
	chosen := rawjson.MemberString(res, "outcome", "optionId")
	options, _ := rawjson.Member(a.Params, "options")
	for _, o := range rawjson.Elements(options) {
		if rawjson.MemberString(o, "optionId") == chosen {
			return observe.Outcome{Result: rawjson.MemberString(o, "kind")}
		}
	}
	return observe.Outcome{Result: "answered"}
}

// Questions come from agents as _sandboxagent/session/request_question. A
// client is given the form it can answer: an ACP elicitation, the request as it
// is, or one permission request per question with an option per answer.

func (a *Ask) questions() []acp.Question {
	var p struct {
		Questions []acp.Question `json:"questions"`
	}
	if json.Unmarshal(a.Params, &p) != nil {
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

// formFor returns the frame by which a client that can so much is asked the question.
func (a *Ask) formFor(caps Capabilities, frame []byte) []byte {
	switch {
	case caps.question:
		return frame
	case caps.form:
		return a.elicitation()
	}
	return a.Piece()
}

// ownWords ends the name of the property for an answer that is not among the choices.
const ownWords = "_own"

// elicitation is the question as a form: a property per question, and one for the
// person's own words where these are an answer.
func (a *Ask) elicitation() []byte {
	type object = map[string]any
	props, required := object{}, []string{}
	var lines []string
	for i, q := range a.questions() {
		labels := make([]any, 0, len(q.Options))
		for _, o := range q.Options {
			title := o.Label
			if o.Description != "" {
				title += ": " + o.Description
			}
			labels = append(labels, object{"const": o.Label, "title": title})
		}
		key := questionKey(q, i)
		prop := object{"type": "string", "title": q.Header, "description": q.Question}
		switch {
		case q.MultiSelect:
			prop = object{"type": "array", "title": q.Header, "description": q.Question, "items": object{"anyOf": labels}}
		case len(labels) > 0:
			prop["oneOf"] = labels
		}
		props[key] = prop
		if q.OwnWords && len(labels) > 0 {
			props[key+ownWords] = object{"type": "string", "title": "Own words", "description": "Instead of a choice, or beside it: " + q.Question}
		} else {
			required = append(required, key)
		}
		lines = append(lines, q.Question)
	}
	params, err := schema.Encode(map[string]any{
		"sessionId": a.Session, "mode": "form", "message": strings.Join(lines, "\n"),
		"requestedSchema": object{"type": "object", "properties": props, "required": required},
	})
	if err != nil {
		return nil
	}
	m := acp.NewRequest(acp.IntID(a.ID), acp.MethodElicitationCreate, params)
	return m.Frame()
}

// Piece is the first question without an answer as a permission request with an
// option per answer.
func (a *Ask) Piece() []byte {
	qs, i := a.questions(), len(a.Answers)
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
		"sessionId": a.Session, "options": options,
		"toolCall": map[string]any{
			"toolCallId": fmt.Sprintf("question-%d", a.ID), "title": q.Question, "kind": "other", "status": "pending",
			"content": []any{map[string]any{"type": "content", "content": map[string]any{"type": "text", "text": q.Question}}},
		},
	})
	if err != nil {
		return nil
	}
	m := acp.NewRequest(acp.IntID(a.ID), acp.MethodSessionRequestPermission, params)
	return m.Frame()
}

// Interpret turns the response of a client into the result for the agent; nil means
// that the response is passed on as it is. more are the answers so far when the next
// piece of the question must be asked.
func (a *Ask) Interpret(caps Capabilities, m *acp.Message) (result []byte, more [][]string) {
	if a.Method != acp.MethodRequestQuestion {
		return nil, nil
	}
	whole := len(a.Answers) == 0 // later pieces are permission requests for everybody
	if whole && caps.question {
		return nil, nil
	}
	if m.Err() != nil {
		return encodeAnswer("rejected", nil), nil
	}
	qs := a.questions()
	if whole && caps.form {
		return formAnswer(qs, m.Result()), nil
	}
	if rawjson.MemberString(m.Result(), "outcome", "outcome") != "selected" {
		return encodeAnswer("cancelled", nil), nil
	}
	i := len(a.Answers)
	picked := rawjson.MemberString(m.Result(), "outcome", "optionId")
	k, err := strconv.Atoi(strings.TrimPrefix(picked, "answer-"))
	if i >= len(qs) || err != nil || k < 0 || k >= len(qs[i].Options) {
		return encodeAnswer("rejected", nil), nil
	}
	answers := append(slices.Clone(a.Answers), []string{qs[i].Options[k].Label})
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
		if !q.OwnWords {
			continue
		}
		if own := strings.TrimSpace(rawjson.MemberString(res, "content", questionKey(q, i)+ownWords)); own != "" {
			if !q.MultiSelect {
				answers[i] = nil
			}
			answers[i] = append(answers[i], own)
		}
	}
	return encodeAnswer("answered", answers)
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
