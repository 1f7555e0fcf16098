package claude

import (
	"encoding/json"
	"errors"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// event is one line that the program wrote. It has the members of all kinds of
// lines; what a line does not have is zero. Lines of unknown kinds are harmless.
type event struct {
	Type      string          `json:"type"`
	Subtype   string          `json:"subtype"`
	UUID      string          `json:"uuid"`
	Session   string          `json:"session_id"`
	Parent    string          `json:"parent_tool_use_id"` // the call that a subagent works for
	Agent     string          `json:"agent_id"`
	Replay    bool            `json:"isReplay"`    // an echo
	Synthetic bool            `json:"isSynthetic"` // put in by the program
	Error     string          `json:"error"`
	Message   json.RawMessage `json:"message"` // a message, or a text
	Content   json.RawMessage `json:"content"`
	Event     *streamEvent    `json:"event"`
	Output    json.RawMessage `json:"tool_use_result"`
	Tools     []toolMeta      `json:"tool_use_meta"`

	// Control lines.
	RequestID string           `json:"request_id"`
	Request   json.RawMessage  `json:"request"`
	Response  *controlResponse `json:"response"`

	// system
	Mode           string        `json:"permissionMode"`
	Servers        []mcpServer   `json:"mcp_servers"`
	Model          string        `json:"model"`
	Status         *string       `json:"status"`
	CompactResult  string        `json:"compact_result"`
	CompactError   string        `json:"compact_error"`
	Compact        *compactFacts `json:"compact_metadata"`
	TaskID         string        `json:"task_id"`
	ToolUse        string        `json:"tool_use_id"`
	ToolName       string        `json:"tool_name"`
	Description    string        `json:"description"`
	Summary        string        `json:"summary"`
	Commands       []command     `json:"commands"`
	Attempt        int           `json:"attempt"`
	MaxRetries     int           `json:"max_retries"`
	RetryDelay     float64       `json:"retry_delay_ms"`
	ErrorStatus    *int          `json:"error_status"`
	OriginalModel  string        `json:"original_model"`
	FallbackModel  string        `json:"fallback_model"`
	Trigger        string        `json:"trigger"`
	HookName       string        `json:"hook_name"`
	HookEvent      string        `json:"hook_event"`
	HookOutput     string        `json:"output"`
	HookStdout     string        `json:"stdout"`
	HookStderr     string        `json:"stderr"`
	HookOutcome    string        `json:"outcome"`
	DecisionReason string        `json:"decision_reason_type"`
	Text           string        `json:"text"`
	Title          string        `json:"title"`
	Level          string        `json:"level"`

	RateLimit       *rateLimit `json:"rate_limit_info"`
	ElicitationID   string     `json:"elicitation_id"`
	NewConversation string     `json:"new_conversation_id"`
	CommandUUID     string     `json:"command_uuid"`
	CommandState    string     `json:"state"`

	// result
	IsError        bool                `json:"is_error"`
	Result         string              `json:"result"`
	Errors         []string            `json:"errors"`
	StopReason     string              `json:"stop_reason"`
	TerminalReason string              `json:"terminal_reason"`
	APIStatus      *int                `json:"api_error_status"`
	Cost           *float64            `json:"total_cost_usd"`
	Usage          *usage              `json:"usage"`
	ModelUsage     map[string]modelUse `json:"modelUsage"`
	Origin         *origin             `json:"origin"`
	Prompts        []string            `json:"user_message_uuids"` // those it answers
}

type (
	streamEvent struct {
		Type    string        `json:"type"`
		Message *apiMessage   `json:"message"`
		Block   *contentBlock `json:"content_block"`
		Delta   *struct {
			Type       string `json:"type"`
			Text       string `json:"text"`
			Thinking   string `json:"thinking"`
			StopReason string `json:"stop_reason"`
		} `json:"delta"`
		Usage *usage `json:"usage"`
	}
	apiMessage struct {
		ID      string          `json:"id"`
		Model   string          `json:"model"`
		Content json.RawMessage `json:"content"` // a text, or blocks
		Usage   *usage          `json:"usage"`
	}
	contentBlock struct {
		Type      string          `json:"type"`
		Text      string          `json:"text"`
		Thinking  string          `json:"thinking"`
		ID        string          `json:"id"`
		Name      string          `json:"name"`
		Input     json.RawMessage `json:"input"`
		ToolUseID string          `json:"tool_use_id"`
		Content   json.RawMessage `json:"content"`
		IsError   bool            `json:"is_error"`
		Source    *struct {
			Type      string `json:"type"`
			MediaType string `json:"media_type"`
			Data      string `json:"data"`
		} `json:"source"`
	}
	usage struct {
		Input      uint64 `json:"input_tokens"`
		CacheRead  uint64 `json:"cache_read_input_tokens"`
		CacheWrite uint64 `json:"cache_creation_input_tokens"`
		Output     uint64 `json:"output_tokens"`
	}
	modelUse struct {
		ContextWindow uint64 `json:"contextWindow"`
	}
	toolMeta struct {
		ID     string `json:"id"`
		Name   string `json:"display_name"`
		Server string `json:"server_display_name"`
	}
	compactFacts struct {
		Trigger    string `json:"trigger"`
		PreTokens  uint64 `json:"pre_tokens"`
		PostTokens uint64 `json:"post_tokens"`
	}
	origin struct {
		Kind string `json:"kind"`
	}
	rateLimit struct {
		Status      string  `json:"status"`
		ResetsAt    float64 `json:"resetsAt"`
		Type        string  `json:"rateLimitType"`
		Utilization float64 `json:"utilization"`
		Overage     bool    `json:"isUsingOverage"`
	}
	command struct {
		Name         string `json:"name"`
		Description  string `json:"description"`
		ArgumentHint string `json:"argumentHint"`
	}
	controlResponse struct {
		Subtype   string          `json:"subtype"`
		RequestID string          `json:"request_id"`
		Response  json.RawMessage `json:"response"`
		Error     string          `json:"error"`
	}
	// controlRequest is what the program asks of its host.
	controlRequest struct {
		Subtype     string          `json:"subtype"`
		ToolName    string          `json:"tool_name"`
		DisplayName string          `json:"display_name"`
		Input       json.RawMessage `json:"input"`
		Description string          `json:"description"`
		Title       string          `json:"title"`
		Suggestions []suggestion    `json:"permission_suggestions"`
		BlockedPath string          `json:"blocked_path"`
		Reason      string          `json:"decision_reason"`
		ToolUse     string          `json:"tool_use_id"`
		Agent       string          `json:"agent_id"` // a task, for a subagent's call

		// elicitation
		Server        string          `json:"mcp_server_name"`
		Message       string          `json:"message"`
		Mode          string          `json:"mode"`
		Schema        json.RawMessage `json:"requested_schema"`
		URL           string          `json:"url"`
		ElicitationID string          `json:"elicitation_id"`

		shown  json.RawMessage // the input as clients know it
		before *string         // of the file that the call changes, when it was read in time
		// The call's id, and whose it is, as clients know them.
		call   schema.ToolCallID
		within map[string]json.RawMessage
		// turns says that the call is the turn's own, and not of a subagent. That may not be named; what the turn
		// calls is streamed before it is asked about, and what a subagent calls is not.
		turns bool
		own   bool     // it is of what the program does by itself
		tasks []string // of the subagents that may have made the call, none for the turn's own
	}
	// suggestion is a change of permissions, both ways.
	suggestion struct {
		Type        string           `json:"type"`
		Rules       []permissionRule `json:"rules,omitempty"`
		Behavior    string           `json:"behavior,omitempty"`
		Mode        string           `json:"mode,omitempty"`
		Directories []string         `json:"directories,omitempty"`
		Destination string           `json:"destination"`
	}
	permissionRule struct {
		ToolName string `json:"toolName"`
		Content  string `json:"ruleContent,omitempty"`
	}
)

// parse reads a line. A member of an unexpected type stays zero: it belongs to a
// kind of line that is newer than this package.
func parse(line []byte) (*event, error) {
	e := new(event)
	if err := bridge.Lenient(line, e); err != nil {
		return nil, err
	}
	if e.Type == "" {
		return nil, errors.New("the object has no type")
	}
	return e, nil
}

// message decodes the message of an assistant or user line.
func (e *event) message() *apiMessage {
	m := new(apiMessage)
	if len(e.Message) == 0 || bridge.Lenient(e.Message, m) != nil {
		return nil
	}
	return m
}

// messageText is the message of a line whose message is a text.
func (e *event) messageText() string { return bridge.Text(e.Message) }

// blocks returns a message's content; a text is one block.
func blocks(content json.RawMessage) []contentBlock {
	if s := bridge.Text(content); s != "" {
		return []contentBlock{{Type: "text", Text: s}}
	}
	var list []json.RawMessage
	if json.Unmarshal(content, &list) != nil {
		return nil
	}
	out := make([]contentBlock, 0, len(list))
	for _, raw := range list {
		var b contentBlock
		if bridge.Lenient(raw, &b) == nil {
			out = append(out, b)
		}
	}
	return out
}
