package claude

import (
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

const (
	synthetic = "<synthetic>" // the model of messages that the program made up

	// maxTools bounds the tool calls that are remembered: the oldest is
	// forgotten, and what comes of it then is ignored.
	maxTools = 1024
	// maxSeen bounds the remembered uuids of whole messages, oldest out first.
	maxSeen = 1024
)

// translator turns what the program writes into updates. It does no I/O and is
// used by one goroutine.
type translator struct {
	// file returns the text of a file before a tool changes it; ok is false when
	// it cannot be read. It may be nil.
	file func(path string) (string, bool)

	streaming string // id of the main thread's message that streams
	said      bool   // some of its text was sent
	thought   bool   // some of its thinking was sent

	tools map[string]*tool
	order []string          // their ids, oldest first
	tasks map[string]string // the tool calls of running tasks, by task
	seen  []string          // uuids of messages that were shown whole
	plan  plan
	usage usageState

	mode    string // the permission mode, as last reported
	session string // the newest native id
	last    string // the uuid of the newest whole message of the main thread
	compact string // the id of the compaction that goes on, "" for none
}

func newTranslator(file func(path string) (string, bool)) *translator {
	return &translator{file: file, tools: map[string]*tool{}, tasks: map[string]string{}}
}

// translate returns the updates that a line means. Control lines mean none by
// themselves: see [translator.asked].
func (t *translator) translate(e *event) []schema.SessionUpdate {
	switch e.Type {
	case "stream_event":
		return t.stream(e)
	case "assistant":
		return t.assistant(e)
	case "user":
		return t.user(e)
	case "system":
		return t.system(e)
	case "result":
		return t.result(e)
	case "conversation_reset":
		t.session = e.NewConversation
		return t.plan.clear()
	case "rate_limit_event":
		return t.limited(e.RateLimit)
	}
	return nil
}

// stream takes a piece of a message of the main thread.
func (t *translator) stream(e *event) []schema.SessionUpdate {
	s := e.Event
	if s == nil || e.Parent != "" {
		return nil
	}
	switch s.Type {
	case "message_start":
		if s.Message == nil {
			return nil
		}
		out := t.cut()
		t.streaming, t.said, t.thought = s.Message.ID, false, false
		t.usage.begin(s.Message)
		return out
	case "message_stop":
		return t.cut()
	case "content_block_start":
		if b := s.Block; b != nil && b.Type == "tool_use" {
			return t.announce(b.ID, b.Name, nil, "", t.streaming)
		}
	case "content_block_delta":
		switch d := s.Delta; {
		case d == nil:
		case d.Type == "text_delta" && d.Text != "":
			t.said = true
			return []schema.SessionUpdate{t.chunk(schema.AgentMessage(schema.TextBlock(d.Text)), t.streaming)}
		case d.Type == "thinking_delta" && d.Thinking != "":
			t.thought = true
			return []schema.SessionUpdate{t.chunk(schema.AgentThought(schema.TextBlock(d.Thinking)), t.streaming)}
		}
	case "message_delta":
		return t.usage.delta(s.Usage)
	}
	return nil
}

// chunk gives a chunk its message's id.
func (t *translator) chunk(u schema.SessionUpdate, message string) schema.SessionUpdate {
	switch id := schema.MessageID(message); {
	case u.AgentMessageChunk != nil:
		u.AgentMessageChunk.MessageID = id
	case u.AgentThoughtChunk != nil:
		u.AgentThoughtChunk.MessageID = id
	case u.UserMessageChunk != nil:
		u.UserMessageChunk.MessageID = id
	}
	return u
}

// assistant takes a whole message, which repeats what was streamed of it.
func (t *translator) assistant(e *event) []schema.SessionUpdate {
	m := e.message()
	if m == nil || e.Replay || t.repeated(e, m) {
		return nil
	}
	if e.Parent == "" && m.Model != synthetic {
		t.last = e.UUID
	}
	var out []schema.SessionUpdate
	for _, b := range blocks(m.Content) {
		switch {
		case b.Type == "tool_use" || b.Type == "server_tool_use" || b.Type == "mcp_tool_use":
			out = append(out, t.announce(b.ID, b.Name, b.Input, e.Parent, m.ID)...)
			out = append(out, t.named(b.ID, e.Tools)...)
		case strings.HasSuffix(b.Type, "tool_result"): // of a tool that the API runs
			b.IsError = b.IsError || strings.HasSuffix(rawjson.MemberString(b.Content, "type"), "_error")
			out = append(out, t.ended(b, e.Output)...)
		case e.Parent != "":
			out = append(out, t.subagentSaid(e.Parent, m.ID, b)...)
		case b.Type == "text" && !(m.ID == t.streaming && t.said) && !t.silent(e, m, b.Text):
			out = append(out, t.chunk(schema.AgentMessage(schema.TextBlock(b.Text)), m.ID))
		case b.Type == "thinking" && !(m.ID == t.streaming && t.thought) && b.Thinking != "":
			out = append(out, t.chunk(schema.AgentThought(schema.TextBlock(b.Thinking)), m.ID))
		}
	}
	return out
}

// silent reports whether a text of the main thread is not the agent's: the
// prompt's error says it, or it says nothing.
func (t *translator) silent(e *event, m *apiMessage, s string) bool {
	return s == "" || m.Model == synthetic && (e.Error != "" || s == "(no content)" || s == "No response requested.")
}

// repeated reports whether a message that was shown whole comes again, as it
// does after the conversation was compacted.
func (t *translator) repeated(e *event, m *apiMessage) bool {
	if e.UUID == "" || e.Parent != "" || m.ID == t.streaming {
		return false
	}
	for _, id := range t.seen {
		if id == e.UUID {
			return true
		}
	}
	if len(t.seen) >= maxSeen {
		t.seen = append(t.seen[:0], t.seen[maxSeen/2:]...)
	}
	t.seen = append(t.seen, e.UUID)
	return false
}

// user takes results of tools. Everything else that looks like the user's words
// is an echo or the program's own.
func (t *translator) user(e *event) []schema.SessionUpdate {
	m := e.message()
	if m == nil || e.Replay {
		return nil
	}
	var out []schema.SessionUpdate
	for _, b := range blocks(m.Content) {
		if strings.HasSuffix(b.Type, "tool_result") {
			out = append(out, t.ended(b, e.Output)...)
		}
	}
	return out
}

// system takes the program's reports about itself.
func (t *translator) system(e *event) []schema.SessionUpdate {
	switch e.Subtype {
	case "init":
		t.session = e.Session
		t.usage.model = e.Model
		return t.modeIs(e.Mode)
	case "status":
		return append(t.modeIs(e.Mode), t.compacting(e)...)
	case "compact_boundary":
		return t.compacted(e)
	case "commands_changed":
		return commandsUpdate(e.Commands)
	case "task_started":
		return t.taskStarted(e)
	case "task_progress":
		return t.taskProgress(e)
	case "task_notification":
		return t.taskEnded(e)
	case "local_command_output":
		if s := bridge.Text(e.Content); s != "" {
			return []schema.SessionUpdate{schema.AgentMessage(schema.TextBlock(s))}
		}
	case "api_retry", "model_fallback", "model_refusal_fallback", "model_refusal_no_fallback", "informational",
		"notification", "permission_denied", "hook_response", "mirror_error":
		return t.notice(e)
	}
	return nil
}

// modeIs notes the permission mode and says so when it changed.
func (t *translator) modeIs(mode string) []schema.SessionUpdate {
	if mode == "" || mode == t.mode {
		return nil
	}
	t.mode = mode
	return []schema.SessionUpdate{{CurrentModeUpdate: &schema.CurrentModeUpdate{CurrentModeID: schema.SessionModeID(mode)}}}
}

// result takes the end of a turn.
func (t *translator) result(e *event) []schema.SessionUpdate {
	if e.Session != "" {
		t.session = e.Session
	}
	out := t.cut()
	t.streaming = ""
	return slices.Concat(out, t.abandoned(e), t.notCompacted(e), t.usage.result(e))
}

// commandsUpdate lists the slash commands.
func commandsUpdate(list []command) []schema.SessionUpdate {
	out := make([]schema.AvailableCommand, 0, len(list))
	for _, c := range list {
		a := schema.AvailableCommand{Name: c.Name, Description: c.Description}
		if c.ArgumentHint != "" {
			a.Input = &schema.AvailableCommandInput{Unstructured: &schema.UnstructuredCommandInput{Hint: c.ArgumentHint}}
		}
		out = append(out, a)
	}
	return []schema.SessionUpdate{{AvailableCommandsUpdate: &schema.AvailableCommandsUpdate{AvailableCommands: out}}}
}
