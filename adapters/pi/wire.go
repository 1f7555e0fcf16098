package pi

import (
	"encoding/json"
	"strconv"

	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// event is a line that Pi writes.
type event struct {
	Type string `json:"type"`
	ID   string `json:"id"` // of the command that a response answers, or of a dialog

	// A response.
	Command string          `json:"command"`
	Success bool            `json:"success"` // also of auto_retry_end
	Error   string          `json:"error"`
	Data    json.RawMessage `json:"data"`

	Message json.RawMessage `json:"message"` // a message, or a text of a dialog
	Update  *messageUpdate  `json:"assistantMessageEvent"`

	// A tool.
	Call    string          `json:"toolCallId"`
	Parent  string          `json:"parentToolCallId"`
	Tool    string          `json:"toolName"`
	Args    json.RawMessage `json:"args"`
	Partial *toolResult     `json:"partialResult"`
	Result  json.RawMessage `json:"result"` // of a tool, or of a compaction
	IsError bool            `json:"isError"`

	// A run, a retry, a compaction.
	Aborted   bool    `json:"aborted"`
	WillRetry bool    `json:"willRetry"`
	Reason    string  `json:"reason"`
	Failure   string  `json:"errorMessage"`
	Final     string  `json:"finalError"`
	Attempt   int     `json:"attempt"`
	Attempts  int     `json:"maxAttempts"`
	Delay     float64 `json:"delayMs"`

	Name  string `json:"name"`  // of the session
	Level string `json:"level"` // of thinking
	Delta string `json:"delta"` // of a command's output

	// A dialog, or what an extension shows.
	Method      string   `json:"method"`
	Title       string   `json:"title"`
	Options     []string `json:"options"`
	Placeholder string   `json:"placeholder"`
	Prefill     string   `json:"prefill"`
	NotifyType  string   `json:"notifyType"`
	Timeout     float64  `json:"timeout"` // in milliseconds; then Pi goes on without an answer
	StatusKey   string   `json:"statusKey"`
	StatusText  string   `json:"statusText"`
	Extension   string   `json:"extensionPath"`
	Event       string   `json:"event"`
}

// messageUpdate is a piece of a message that streams.
type messageUpdate struct {
	Type     string `json:"type"`
	Index    int    `json:"contentIndex"`
	Delta    string `json:"delta"`
	ID       string `json:"id"`
	Tool     string `json:"toolName"`
	ToolCall *block `json:"toolCall"`
}

// message is a message of a conversation.
type message struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"` // a text, or blocks
	Stop       string          `json:"stopReason"`
	RawStop    string          `json:"rawStopReason"`
	Failure    string          `json:"errorMessage"`
	Usage      *usage          `json:"usage"`
	Timestamp  float64         `json:"timestamp"` // in milliseconds
	ToolCallID string          `json:"toolCallId"`
	ToolName   string          `json:"toolName"`
	Details    json.RawMessage `json:"details"`
	Structured json.RawMessage `json:"structuredContent"`
	IsError    bool            `json:"isError"`

	// Of a command that the user ran.
	Command   string `json:"command"`
	Output    string `json:"output"`
	ExitCode  *int   `json:"exitCode"`
	Cancelled bool   `json:"cancelled"`

	Display bool `json:"display"` // of an extension's message
}

// id is the message's id for clients. The conversation's file has the same time.
func (m *message) id() string { return "pi-" + strconv.FormatInt(int64(m.Timestamp), 10) }

// block is a part of a message.
type block struct {
	Type     string          `json:"type"`
	Text     string          `json:"text"`
	Thinking string          `json:"thinking"`
	ID       string          `json:"id"`
	Name     string          `json:"name"`
	Args     json.RawMessage `json:"arguments"`
	Data     string          `json:"data"`
	MimeType string          `json:"mimeType"`
}

// toolResult is what a tool returned, or has so far.
type toolResult struct {
	Content    json.RawMessage `json:"content"`
	Details    json.RawMessage `json:"details"`
	Structured json.RawMessage `json:"structuredContent"`
}

type usage struct {
	Input      uint64  `json:"input"`
	Output     uint64  `json:"output"`
	CacheRead  uint64  `json:"cacheRead"`
	CacheWrite uint64  `json:"cacheWrite"`
	Reasoning  *uint64 `json:"reasoning"`
	Cost       struct {
		Total float64 `json:"total"`
	} `json:"cost"`
}

// total are the tokens of context after the call.
func (u *usage) total() uint64 { return u.Input + u.CacheRead + u.CacheWrite + u.Output }

// model is a model that Pi knows.
type model struct {
	ID        string   `json:"id"`
	Name      string   `json:"name"`
	Provider  string   `json:"provider"`
	Reasoning bool     `json:"reasoning"`
	Input     []string `json:"input"`
	Window    uint64   `json:"contextWindow"`
}

// none reports that it stands for no model at all.
func (m *model) none() bool { return m == nil || m.ID == "" || m.Provider == "unknown" }

// value is the model's value as a config option.
func (m *model) value() string { return m.Provider + "/" + m.ID }

// state is Pi's answer to get_state.
type state struct {
	Model      *model `json:"model"`
	Thinking   string `json:"thinkingLevel"`
	Streaming  bool   `json:"isStreaming"`
	Compacting bool   `json:"isCompacting"`
	File       string `json:"sessionFile"`
	Session    string `json:"sessionId"`
	Name       string `json:"sessionName"`
}

func parse(line []byte) (*event, error) {
	e := new(event)
	if err := bridge.Lenient(line, e); err != nil {
		return nil, err
	}
	return e, nil
}

// message decodes the event's message, nil when it has none.
func (e *event) message() *message { return decodeMessage(e.Message) }

func decodeMessage(raw json.RawMessage) *message {
	if len(raw) == 0 || raw[0] != '{' {
		return nil
	}
	m := new(message)
	if bridge.Lenient(raw, m) != nil {
		return nil
	}
	return m
}

// blocksOf decodes content; a text is one block.
func blocksOf(content json.RawMessage) []block {
	if len(content) == 0 {
		return nil
	}
	if s := bridge.Text(content); s != "" {
		return []block{{Type: "text", Text: s}}
	}
	var parts []json.RawMessage
	if json.Unmarshal(content, &parts) != nil {
		return nil
	}
	out := make([]block, 0, len(parts))
	for _, p := range parts {
		var b block
		if bridge.Lenient(p, &b) == nil {
			out = append(out, b)
		}
	}
	return out
}
