package amp

import (
	"encoding/json"
	"errors"

	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// event is one line that the program wrote. It has the members of all kinds of
// lines; what a line does not have is zero. Lines of unknown kinds are harmless.
type event struct {
	Type    string  `json:"type"`
	Subtype string  `json:"subtype"`
	Thread  string  `json:"session_id"`
	Parent  string  `json:"parent_tool_use_id"` // the call that a subagent works for
	Message message `json:"message"`

	// init
	Servers []mcpServer `json:"mcp_servers"`
	Tools   []string    `json:"tools"`

	// result
	IsError bool   `json:"is_error"`
	Error   string `json:"error"`
}

type (
	message struct {
		Content json.RawMessage `json:"content"` // blocks, or a text
		Stop    string          `json:"stop_reason"`
		Usage   *usage          `json:"usage"`
	}
	block struct {
		Type      string          `json:"type"`
		Text      string          `json:"text"`
		Thinking  string          `json:"thinking"`
		ID        string          `json:"id"`
		Name      string          `json:"name"`
		Input     json.RawMessage `json:"input"`
		ToolUseID string          `json:"tool_use_id"`
		Content   json.RawMessage `json:"content"` // a text, or blocks
		IsError   bool            `json:"is_error"`
	}
	usage struct {
		Input      uint64 `json:"input_tokens"`
		Output     uint64 `json:"output_tokens"`
		CacheRead  uint64 `json:"cache_read_input_tokens"`
		CacheWrite uint64 `json:"cache_creation_input_tokens"`
		Size       uint64 `json:"max_tokens"` // of the context
	}
)

var errNoEvent = errors.New("the line has no type")

// parse reads a line. Members of other types than expected are left out.
func parse(line []byte) (*event, error) {
	e := new(event)
	if err := bridge.Lenient(line, e); err != nil {
		return nil, err
	}
	if e.Type == "" {
		return nil, errNoEvent
	}
	return e, nil
}

// blocks reads a message's content.
func (m *message) blocks() []block { return blocksOf(m.Content) }

func blocksOf(raw json.RawMessage) []block {
	if len(raw) > 0 && raw[0] == '"' {
		return []block{{Type: "text", Text: bridge.Text(raw)}}
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return nil
	}
	out := make([]block, 0, len(list))
	for _, one := range list {
		var b block
		if bridge.Lenient(one, &b) == nil {
			out = append(out, b)
		}
	}
	return out
}

// text is a result's content as a text.
func (b *block) text() string {
	s := ""
	for _, one := range blocksOf(b.Content) {
		if one.Type == "text" {
			s += one.Text
		}
	}
	return s
}

// calls reports whether a message calls tools.
func (m *message) calls() bool {
	for _, b := range m.blocks() {
		if b.Type == "tool_use" {
			return true
		}
	}
	return false
}
