package amp

import (
	"encoding/json"
	"path/filepath"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

const (
	// maxTools bounds the tool calls that are remembered: the oldest is
	// forgotten, and what comes of it then is ignored.
	maxTools = 1024
	// maxSaid bounds what is shown of a subagent's words, its middle left out.
	maxSaid = 64 << 10
)

// translator turns what the program writes into updates. It does no I/O and is
// used by one goroutine.
type translator struct {
	// file returns the text of a file before a tool changes it; ok is false when
	// it cannot be read. It may be nil.
	file func(path string) (string, bool)
	// mint makes ids of messages, of which the program has none.
	mint func() string

	tools map[string]*tool
	order []string     // their native ids, oldest first
	again bool         // a call has the id of one that had ended; who reads it resets it
	turn  schema.Usage // of the turn so far
	shown schema.UsageUpdate
}

// tool is a call of a tool.
type tool struct {
	native  string // the program's id of it
	id      string // by which it is shown
	nth     int    // of the calls with its native id
	name    string
	input   json.RawMessage
	parent  string // the native id of the call whose subagent makes this one
	before  *string
	said    string // by its subagent
	hidden  bool   // nothing but the question about it tells of it
	allowed bool   // the answer to the question
	over    bool
}

func newTranslator(file func(path string) (string, bool), mint func() string) *translator {
	return &translator{file: file, mint: mint, tools: map[string]*tool{}}
}

// translate returns the updates that a line means.
func (t *translator) translate(e *event) []schema.SessionUpdate {
	switch e.Type {
	case "assistant":
		return t.assistant(e)
	case "user":
		return t.user(e)
	case "result":
		if e.IsError {
			return t.abandoned(false)
		}
	}
	return nil
}

// assistant takes a whole message.
func (t *translator) assistant(e *event) []schema.SessionUpdate {
	id := schema.MessageID(t.mint())
	var out []schema.SessionUpdate
	for _, b := range e.Message.blocks() {
		switch {
		case b.Type == "tool_use":
			out = append(out, t.announce(b.ID, b.Name, b.Input, e.Parent)...)
		case e.Parent != "":
			out = append(out, t.subagentSaid(e.Parent, string(id), b.Text)...)
		case b.Type == "text" && b.Text != "":
			u := schema.AgentMessage(schema.TextBlock(b.Text))
			u.AgentMessageChunk.MessageID = id
			out = append(out, u)
		case b.Type == "thinking" && b.Thinking != "":
			u := schema.AgentThought(schema.TextBlock(b.Thinking))
			u.AgentThoughtChunk.MessageID = id
			out = append(out, u)
		}
	}
	return append(out, t.used(e)...)
}

// user takes results of tools. The rest is an echo.
func (t *translator) user(e *event) []schema.SessionUpdate {
	var out []schema.SessionUpdate
	for _, b := range e.Message.blocks() {
		if b.Type == "tool_result" {
			out = append(out, t.ended(&b)...)
		}
	}
	return out
}

// announce takes notice of a call and shows it. A question about the call may
// have done so before.
func (t *translator) announce(id, name string, input json.RawMessage, parent string) []schema.SessionUpdate {
	if id == "" {
		return nil
	}
	nth := 1
	if c := t.tools[id]; c != nil {
		if !c.over {
			c.hidden = false // its own line has come, so its result will
			return nil
		}
		nth, t.again = c.nth+1, true
	}
	c := &tool{native: id, id: string(bridge.CallID(id, nth)), nth: nth, name: name, input: input, parent: parent}
	if path := changes(name, input); path != "" && t.file != nil {
		if s, ok := t.file(path); ok {
			c.before = &s
		}
	}
	t.remember(c)
	l := describe(name, input, c.before)
	return []schema.SessionUpdate{{ToolCall: &schema.ToolCall{
		ToolCallID: schema.ToolCallID(c.id), Title: l.title, Name: &c.name, Kind: l.kind, Status: schema.ToolCallStatusPending,
		Content: l.content, Locations: l.locations, RawInput: input, Meta: c.introduced(),
	}}}
}

func (t *translator) remember(c *tool) {
	if t.tools[c.native] == nil {
		if len(t.order) >= maxTools {
			delete(t.tools, t.order[0])
			t.order = t.order[1:]
		}
		t.order = append(t.order, c.native)
	}
	t.tools[c.native] = c
}

// own says whose call it is.
func (c *tool) own() bridge.Own { return bridge.Own{Parent: c.parent} }

// introduced says whose call it is that begins, and whether it shows a subagent.
func (c *tool) introduced() map[string]json.RawMessage {
	own := c.own()
	if c.name == toolTask {
		own.Subagent = &bridge.Subagent{}
	}
	if c.name == toolBash {
		var in input
		_ = bridge.Lenient(c.input, &in) // a command that cannot be read is not shown
		own.Terminal = &bridge.Terminal{Command: in.Command}
		if filepath.IsAbs(in.Cwd) {
			own.Terminal.Cwd = in.Cwd
		}
	}
	return own.Meta()
}

// asked takes a question about a call. While a subagent runs, a call that no line
// has told of is the subagent's; of several nobody knows which.
func (t *translator) asked(r *request) []schema.SessionUpdate {
	if c := t.tools[r.ID]; c != nil && !c.over {
		return nil
	}
	parent := ""
	for _, id := range t.order {
		if c := t.tools[id]; c.name == toolTask && !c.over {
			if parent != "" {
				parent = ""
				break
			}
			parent = id
		}
	}
	out := t.announce(r.ID, r.Tool, r.Input, parent)
	if c := t.tools[r.ID]; c != nil {
		c.hidden = true
	}
	return out
}

// allowed says that a call that was asked about goes on.
func (t *translator) allowed(id string) []schema.SessionUpdate {
	c := t.tools[id]
	if c == nil || c.over {
		return nil
	}
	c.allowed = true
	return status(c.id, schema.ToolCallStatusInProgress)
}

// refused ends a call that was asked about and whose result nobody tells.
func (t *translator) refused(id string) []schema.SessionUpdate {
	c := t.tools[id]
	if c == nil || c.over || !c.hidden {
		return nil
	}
	c.end()
	return status(c.id, schema.ToolCallStatusFailed)
}

// ended takes the result of a call.
func (t *translator) ended(b *block) []schema.SessionUpdate {
	c := t.tools[b.ToolUseID]
	if c == nil || c.over {
		return nil
	}
	var out []schema.SessionUpdate
	for _, id := range t.order { // what its subagent did has no results of its own
		if child := t.tools[id]; child.parent == c.native && child.hidden && !child.over {
			child.end()
			now := schema.ToolCallStatusCompleted
			if b.IsError {
				now = schema.ToolCallStatusFailed
			}
			out = append(out, status(child.id, now)...)
		}
	}
	u := outcome(c, b)
	c.end()
	return append(out, schema.SessionUpdate{ToolCallUpdate: u})
}

// end gives up what is needed of a running call only.
func (c *tool) end() { c.over, c.input, c.before, c.said = true, nil, nil, "" }

// abandoned ends the calls of a turn that is over, which get no result. Those of
// subagents never do: they count as done when the turn has ended well.
func (t *translator) abandoned(well bool) []schema.SessionUpdate {
	var out []schema.SessionUpdate
	for _, id := range t.order {
		c := t.tools[id]
		if c.over {
			continue
		}
		now := schema.ToolCallStatusFailed
		if well && c.hidden && c.allowed {
			now = schema.ToolCallStatusCompleted
		}
		c.end()
		out = append(out, status(c.id, now)...)
	}
	return out
}

// open lists the calls that have no end.
func (t *translator) open() []string {
	var out []string
	for _, id := range t.order {
		if c := t.tools[id]; !c.over {
			out = append(out, c.id)
		}
	}
	return out
}

func status(id string, now schema.ToolCallStatus) []schema.SessionUpdate {
	return []schema.SessionUpdate{{ToolCallUpdate: &schema.ToolCallUpdate{ToolCallID: schema.ToolCallID(id), Status: now}}}
}

// subagentSaid shows the words of a subagent in the call that it works for.
func (t *translator) subagentSaid(parent, message, s string) []schema.SessionUpdate {
	c := t.tools[parent]
	if c == nil || c.over || s == "" {
		return nil
	}
	if c.said != "" {
		c.said += "\n\n"
	}
	c.said = bridge.Capped(c.said+s, maxSaid)
	return c.own().Words(schema.ToolCallID(c.id), "", bridge.TextContent(c.said), bridge.Said{Message: message, Text: s})
}

// used takes a message's tokens.
func (t *translator) used(e *event) []schema.SessionUpdate {
	u := e.Message.Usage
	if u == nil || e.Parent != "" {
		return nil
	}
	t.turn.InputTokens += u.Input
	t.turn.OutputTokens += u.Output
	t.turn.CachedReadTokens = add(t.turn.CachedReadTokens, u.CacheRead)
	t.turn.CachedWriteTokens = add(t.turn.CachedWriteTokens, u.CacheWrite)
	context := u.Input + u.CacheRead + u.CacheWrite
	t.turn.TotalTokens += context + u.Output
	now := schema.UsageUpdate{Used: context + u.Output, Size: u.Size}
	if now.Size == 0 || now.Used == t.shown.Used && now.Size == t.shown.Size {
		return nil
	}
	t.shown = now
	return []schema.SessionUpdate{{UsageUpdate: &now}}
}

func add(sum *uint64, n uint64) *uint64 {
	if sum != nil {
		n += *sum
	}
	return &n
}

// ofTurn returns the tokens since the last call of it.
func (t *translator) ofTurn() *schema.Usage {
	u := t.turn
	t.turn = schema.Usage{}
	if u.TotalTokens == 0 {
		return nil
	}
	return &u
}
