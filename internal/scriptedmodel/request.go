package scriptedmodel

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"time"
)

// Dialect names a provider's protocol.
type Dialect string

// The dialects.
const (
	Anthropic Dialect = "anthropic" // POST .../messages
	Responses Dialect = "responses" // POST .../responses
	Chat      Dialect = "chat"      // POST .../chat/completions
	Gemini    Dialect = "gemini"    // POST .../models/NAME:streamGenerateContent and :generateContent
)

// Kind says what a request is for.
type Kind string

// The kinds of requests.
const (
	Turn       Kind = "turn"       // a user's turn; also everything that is not recognised
	Title      Kind = "title"      // a title for the conversation
	Compaction Kind = "compaction" // a summary of the conversation
	Structured Kind = "structured" // JSON by a schema, such as a router's decision
)

// Role says who speaks.
type Role string

// The roles of messages. System messages are in [Request].System.
const (
	User      Role = "user"
	Assistant Role = "assistant"
	ToolRole  Role = "tool" // results of tools
)

// Outcome says how a request ended.
type Outcome string

// The outcomes.
const (
	InFlight   Outcome = ""
	Answered   Outcome = "answered"    // completely, according to the script
	Failed     Outcome = "failed"      // with an error, according to the script
	Dropped    Outcome = "dropped"     // cut, according to the script
	ClientLeft Outcome = "client left" // before the end, as after a cancel
)

// Request is one model call as it was received. It must not be changed.
type Request struct {
	Dialect  Dialect
	Path     string
	Header   http.Header
	Body     json.RawMessage
	Received time.Time

	Model    string
	Effort   string // of reasoning: a level, or "budget N"
	System   string
	Messages []Message
	Tools    []Tool
	Stream   bool
	Schema   json.RawMessage // that the answer must satisfy, if any

	Kind    Kind
	Prompt  string // that chose the step; the newest one when no rule matched
	Rule    string // that matched; "" for none
	Round   int    // of tool results since the prompt, from 0
	Outcome Outcome
}

// Message is one message of a conversation, in no provider's terms. Consecutive
// items of one role are one message.
type Message struct {
	Role     Role
	Texts    []string // parts
	Thinking string
	Calls    []ToolCall
	Results  []ToolResult
	Files    int // images and other parts that are no text
}

// Text returns the message's texts, one a line.
func (m *Message) Text() string { return strings.Join(m.Texts, "\n") }

// ToolCall is a call that an earlier answer made.
type ToolCall struct {
	ID, Name string
	Args     string // JSON, or the text of a freeform tool
}

// ToolResult is what a tool returned.
type ToolResult struct {
	CallID string
	Text   string
	Failed bool // as far as the dialect says so
}

// Tool is a tool that the request offers.
type Tool struct {
	Name      string
	Namespace string // Responses only
	Type      string // "function", or what else the dialect has
	Schema    json.RawMessage
}

// Says reports whether text is in any message of the conversation.
func (r *Request) Says(role Role, text string) bool {
	for i := range r.Messages {
		m := &r.Messages[i]
		if m.Role != role {
			continue
		}
		if strings.Contains(m.Text(), text) {
			return true
		}
		for _, res := range m.Results {
			if strings.Contains(res.Text, text) {
				return true
			}
		}
	}
	return false
}

// Results returns the newest round of tool results.
func (r *Request) Results() []ToolResult {
	for i := len(r.Messages) - 1; i >= 0; i-- {
		if m := r.Messages[i]; m.Role == ToolRole {
			return m.Results
		}
	}
	return nil
}

// Prompts returns the user's prompts, without what agents add, oldest first.
func (r *Request) Prompts() []string {
	var all []string
	for _, m := range r.Messages {
		if m.Role != User {
			continue
		}
		for _, s := range m.Texts {
			if s = own(s); s != "" {
				all = append(all, s)
			}
		}
	}
	return all
}

// message returns the message to add to: the last one if it has the role.
func (r *Request) message(role Role) *Message {
	if n := len(r.Messages); n == 0 || r.Messages[n-1].Role != role {
		r.Messages = append(r.Messages, Message{Role: role})
	}
	return &r.Messages[len(r.Messages)-1]
}

func (r *Request) system(text string) {
	if r.System != "" && text != "" {
		r.System += "\n"
	}
	r.System += text
}

var (
	opening = regexp.MustCompile(`^<([\w-]+)[^<>]*>`)
	closing = regexp.MustCompile(`</([\w-]+)>$`)
)

// own returns what the user wrote: the text without the tagged blocks, such as
// <system-reminder>...</system-reminder>, that agents put on lines of their own
// before and after it.
func own(text string) string {
	for {
		text = strings.TrimSpace(text)
		if m := opening.FindStringSubmatch(text); m != nil {
			if _, rest, ok := strings.Cut(text, "</"+m[1]+">"); ok && (rest == "" || rest[0] == '\n') {
				text = rest
				continue
			}
		}
		if m := closing.FindStringSubmatch(text); m != nil {
			if i := strings.LastIndex(text, "\n<"+m[1]); i >= 0 {
				text = text[:i]
				continue
			}
		}
		return text
	}
}

var (
	titleWords   = regexp.MustCompile(`(?i)title generator|generate a (short |concise |brief )*(\S+ )?title|(sentence-case|session) title`)
	compactWords = regexp.MustCompile(`(?i)context checkpoint|context summarization|summariz\w+ (internal chat history|conversations)|` +
		`distilling chat history|detailed summary of the conversation|prompt for continuing our conversation|<state_snapshot>`)
)

// classify sets Kind. A request that offers tools is a turn, unless its last
// message asks for a summary: some agents leave their tools in that request.
func (r *Request) classify() {
	last := ""
	if n := len(r.Messages); n > 0 && r.Messages[n-1].Role == User {
		last = r.Messages[n-1].Text()
	}
	switch {
	case compactWords.MatchString(last), len(r.Tools) == 0 && compactWords.MatchString(r.System):
		r.Kind = Compaction
	case len(r.Schema) > 0:
		r.Kind = Structured
	case len(r.Tools) == 0 && titleWords.MatchString(r.System+"\n"+last), r.wantsAmpTitle():
		r.Kind = Title
	default:
		r.Kind = Turn
	}
}
