package claude

import (
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// maxSaid bounds what is shown of a subagent's words, in bytes: the oldest
// leave. A call's content is always sent whole.
const maxSaid = 32 << 10

// subagentSaid shows a subagent's words as content of the call that it works
// for: they are not the agent's answer.
func (t *translator) subagentSaid(parent, message string, b contentBlock) []schema.SessionUpdate {
	c := t.tools[parent]
	s := b.Text
	if b.Type == "thinking" {
		s = b.Thinking
	}
	if c == nil || c.over || !c.shown || s == "" || b.Type != "text" && b.Type != "thinking" {
		return nil
	}
	c.said = append(c.said, bridge.TextContent(s)...)
	c.saidLen += len(s)
	for c.saidLen > maxSaid && len(c.said) > 1 {
		c.saidLen -= len(c.said[0].Content.Content.Text.Text)
		c.said = c.said[1:]
	}
	words := bridge.Said{Message: message, Text: s, Thought: b.Type == "thinking"}
	return c.own().Words(c.id, "", append([]schema.ToolCallContent(nil), c.said...), words)
}

// taskStarted takes the start of what a call runs beside the conversation: a
// subagent, or a command that takes long.
func (t *translator) taskStarted(e *event) []schema.SessionUpdate {
	c := t.tools[e.ToolUse]
	if c == nil || len(t.tasks) >= maxTools {
		return nil
	}
	t.tasks[e.TaskID] = c.native
	if c.over || !c.shown {
		return nil
	}
	own := c.own()
	own.Cancel = true
	return []schema.SessionUpdate{{ToolCallUpdate: &schema.ToolCallUpdate{ToolCallID: c.id, Status: schema.ToolCallStatusInProgress, Meta: own.Meta()}}}
}

// taskProgress shows what a subagent does at the moment.
func (t *translator) taskProgress(e *event) []schema.SessionUpdate {
	c := t.tools[bridge.FirstOf(e.ToolUse, t.tasks[e.TaskID])]
	if c == nil || c.over || !c.shown || e.Description == "" {
		return nil
	}
	var in input
	if c.input != nil {
		_ = bridge.Lenient(c.input, &in) // without it the title is the progress alone
	}
	title := bridge.OneLine(e.Description)
	if in.Description != "" && in.Description != e.Description {
		title = bridge.OneLine(in.Description) + ": " + title
	}
	c.titled = true
	return []schema.SessionUpdate{{ToolCallUpdate: &schema.ToolCallUpdate{ToolCallID: c.id, Title: &title}}}
}

// taskEnded takes the end of a task. That of one in the background is the end of
// its call; others have a result as well.
func (t *translator) taskEnded(e *event) []schema.SessionUpdate {
	c := t.tools[bridge.FirstOf(e.ToolUse, t.tasks[e.TaskID])]
	delete(t.tasks, e.TaskID)
	if c == nil || c.over || c.task == "" {
		return nil
	}
	u := &schema.ToolCallUpdate{ToolCallID: c.id, Title: c.ownTitle(), Status: schema.ToolCallStatusCompleted, Meta: c.meta()}
	if e.Status != nil && *e.Status != "completed" {
		u.Status = schema.ToolCallStatusFailed
	}
	if e.Summary != "" {
		u.Content = said(c, bridge.TextContent(e.Summary))
	}
	c.end()
	return []schema.SessionUpdate{{ToolCallUpdate: u}}
}

// said puts a subagent's report behind its words, of which it may be the last.
func said(c *tool, report []schema.ToolCallContent) []schema.ToolCallContent {
	out := append([]schema.ToolCallContent(nil), c.said...)
	if n := len(out); n > 0 && len(report) > 0 && report[0].Content != nil && report[0].Content.Content.Text != nil &&
		out[n-1].Content.Content.Text.Text == report[0].Content.Content.Text.Text {
		out = out[:n-1]
	}
	return append(out, report...)
}
