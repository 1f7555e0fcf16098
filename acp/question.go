package acp

import "sandboxagent.dev/sandbox-agent/acp/schema"

// MethodRequestQuestion is the gateway's extension by which an agent asks the
// person behind the client to choose among answers. The gateway gives each client
// the form that it can answer.
const MethodRequestQuestion = "_sandboxagent/session/request_question"

// QuestionRequest is the params of [MethodRequestQuestion].
type QuestionRequest struct {
	SessionID  schema.SessionID  `json:"sessionId"`
	ToolCallID schema.ToolCallID `json:"toolCallId,omitempty"` // that asks
	Questions  []Question        `json:"questions"`
}

// Question is one question of a request. Without options it wants a text.
type Question struct {
	ID          string           `json:"id"`
	Header      string           `json:"header"` // short
	Question    string           `json:"question"`
	Options     []QuestionOption `json:"options"`
	MultiSelect bool             `json:"multiSelect"`
	OwnWords    bool             `json:"ownWords,omitempty"` // they are an answer, too
}

// QuestionOption is one answer to choose.
type QuestionOption struct {
	Label       string `json:"label"`
	Description string `json:"description"`
}

// QuestionOutcome says what became of a question.
type QuestionOutcome string

// The outcomes of questions.
const (
	QuestionAnswered  QuestionOutcome = "answered"
	QuestionRejected  QuestionOutcome = "rejected"  // the person does not want to answer
	QuestionCancelled QuestionOutcome = "cancelled" // the turn was cancelled
)

// QuestionResponse is the result of [MethodRequestQuestion]: the labels that were
// chosen, or the text, for each question in order.
type QuestionResponse struct {
	Outcome QuestionOutcome `json:"outcome"`
	Answers [][]string      `json:"answers"`
}
