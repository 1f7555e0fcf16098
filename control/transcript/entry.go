package transcript

import (
	"encoding/json"
	"time"
)

// Kind says what an [Entry] is.
type Kind string

const (
	User     Kind = "user"     // a prompt
	Agent    Kind = "agent"    // what the agent said, as Markdown
	Thought  Kind = "thought"  // what it thought
	Call     Kind = "tool"     // a tool call
	Plan     Kind = "plan"     // the plan, as it was at the end of the turn
	Question Kind = "question" // what the agent asked, and what it was told
	Note     Kind = "note"     // what happened around the conversation
	Lost     Kind = "lost"     // stands in the place of events that the log has no more
	TurnEnd  Kind = "turn"     // how a turn ended
)

// Entry is one thing in a conversation.
type Entry struct {
	Kind  Kind      `json:"kind"`
	Time  time.Time `json:"time"`
	Text  string    `json:"text,omitempty"`
	Files []File    `json:"files,omitempty"` // what went along with the text
	Tool  *Tool     `json:"tool,omitempty"`
	Plan  []Step    `json:"plan,omitempty"`
	Turn  *Turn     `json:"turn,omitempty"`
	Lost  *Range    `json:"lost,omitempty"`

	message string // the id of an agent's message
	pieces  []byte // of its text, until it is whole
}

// File is an image, or the name of what was attached.
type File struct {
	Name     string `json:"name,omitempty"`
	MIMEType string `json:"mimeType,omitempty"`
	Data     string `json:"data,omitempty"` // base64, for images
}

// Tool is a tool call as it was at its end.
type Tool struct {
	ID      string   `json:"id"`
	Title   string   `json:"title"`
	Kind    string   `json:"kind,omitempty"`
	Status  string   `json:"status,omitempty"`
	Command string   `json:"command,omitempty"`
	Output  string   `json:"output,omitempty"`
	Diffs   []Diff   `json:"diffs,omitempty"`
	Images  []File   `json:"images,omitempty"`
	Answer  string   `json:"answer,omitempty"` // to the request for a permission
	Parts   []*Entry `json:"parts,omitempty"`  // what a subagent said and did
}

// Diff is what an edit changed, in unified form.
type Diff struct {
	Path string `json:"path"`
	Text string `json:"text"`
}

// Step is an entry of a plan.
type Step struct {
	Content string `json:"content"`
	Status  string `json:"status"`
}

// Turn is how a turn ended.
type Turn struct {
	StopReason string          `json:"stopReason,omitempty"`
	Error      string          `json:"error,omitempty"`
	Usage      json.RawMessage `json:"usage,omitempty"`
}

// Range are events, by their numbers.
type Range struct {
	First uint64 `json:"firstSeq"`
	Last  uint64 `json:"lastSeq"`
}

// Session is what stands at the head of a transcript.
type Session struct {
	ID      string    `json:"session"`
	Title   string    `json:"title,omitempty"`
	Agent   string    `json:"agent,omitempty"`
	Model   string    `json:"model,omitempty"`
	Cwd     string    `json:"cwd,omitempty"`
	Created time.Time `json:"created"`
	Updated time.Time `json:"updated"`
}

// LeftOut counts what a transcript does not have.
type LeftOut struct {
	Thoughts int `json:"thoughts,omitempty"`
	Images   int `json:"images,omitempty"`  // too large, or of a kind that browsers run
	Output   int `json:"output,omitempty"`  // bytes of tools' output
	Diffs    int `json:"diffs,omitempty"`   // too large to be compared
	Secrets  int `json:"secrets,omitempty"` // places where a pattern matched
	// Events says that the log begins later than the session.
	Events bool `json:"events,omitempty"`
	// Missing counts the events at the end that whoever writes has not got.
	Missing uint64 `json:"missing,omitempty"`
	// MayMiss says that there may be more at the end, of which nobody knows.
	MayMiss bool `json:"mayMiss,omitempty"`
	// Lost are the events in the middle or at the end that the log has no more.
	Lost []Range `json:"lost,omitempty"`
}
