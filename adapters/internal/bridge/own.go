package bridge

import (
	"encoding/json"

	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// Own is what a bridge says of a tool call that version 1 has no words for. Package
// acp/version reads it: subagents are sessions of their own for those who know them.
type Own struct {
	// Parent is the call that shows the subagent whose call this is.
	Parent string `json:"parentToolCallId,omitempty"`
	// Subagent says that the call shows a subagent.
	Subagent *Subagent `json:"subagent,omitempty"`
	// Said is what is new of the words of the subagent that the call shows.
	Said *Said `json:"said,omitempty"`
	// Cancel says that the call can be cancelled by itself, see [CancelsCalls].
	Cancel bool `json:"cancel,omitempty"`
	// Terminal says that the call runs a command, which is a terminal in version 2.
	Terminal *Terminal `json:"terminal,omitempty"`
}

// Terminal is what is new of a command that a call runs.
type Terminal struct {
	Command  string `json:"command,omitempty"`
	Cwd      string `json:"cwd,omitempty"`    // absolute
	Output   bool   `json:"output,omitempty"` // all of it so far is the last of the call's content, as [Fenced] shows it
	ExitCode *int   `json:"exitCode,omitempty"`
}

// Subagent is a subagent that a call shows.
type Subagent struct {
	Cancel bool `json:"cancel,omitempty"` // see [CancelsCalls]
}

// Said are words of a subagent.
type Said struct {
	Message string `json:"messageId,omitempty"` // that they are of; without one they are a message
	Text    string `json:"text"`
	Thought bool   `json:"thought,omitempty"`
}

// Compacted is the _meta of a compaction that says how many tokens there were, and how many
// are left, 0 for what is not known. Those who know no compactions are told so in words.
func Compacted(before, after uint64) map[string]json.RawMessage {
	type tokens struct {
		Before uint64 `json:"before"`
		After  uint64 `json:"after,omitempty"`
	}
	return Meta(map[string]tokens{"tokens": {before, after}})
}

// Meta returns it as the _meta of a call, nil when it says nothing.
func (o Own) Meta() map[string]json.RawMessage {
	if o == (Own{}) {
		return nil
	}
	return Meta(o)
}

// Words is an update of a call that shows a subagent: it has said something. content is
// all that the call shows, nil when that is not changed.
func (o Own) Words(id schema.ToolCallID, status schema.ToolCallStatus, content []schema.ToolCallContent, said Said) []schema.SessionUpdate {
	o.Said = &said
	return []schema.SessionUpdate{{ToolCallUpdate: &schema.ToolCallUpdate{ToolCallID: id, Status: status, Content: content, Meta: o.Meta()}}}
}
