package pi

import (
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// conversation returns the numbers of the lines that belong to the conversation
// as it ended: not what was said in branches that were given up. Early files have
// no branches, and all lines belong.
func conversation(path string) (func(n int) bool, error) {
	type link struct {
		line   int
		parent string
	}
	links := map[string]link{}
	last, tree := "", false
	err := bridge.EachEntry(path, func(n int, e *entry) error {
		if e.Type == "session" || e.ID == "" {
			return nil
		}
		l := link{line: n}
		if e.Parent != nil {
			l.parent, tree = *e.Parent, true
		}
		links[e.ID], last = l, e.ID
		return nil
	})
	if err != nil || !tree {
		return func(int) bool { return true }, err
	}
	wanted := map[int]bool{}
	for id := last; id != ""; {
		l, ok := links[id]
		if !ok || wanted[l.line] {
			break
		}
		wanted[l.line] = true
		id = l.parent
	}
	return func(n int) bool { return wanted[n] }, nil
}

// replay sends what was said in a conversation as updates.
func (s *session) replay(path string) error {
	// Nobody changed the files for this, so they are not looked at.
	s.out.Lock()
	file := s.tr.file
	s.tr.file = nil
	s.out.Unlock()
	err := replayFile(path, func(f func(t *translator) []schema.SessionUpdate) { s.emit(f) })
	s.out.Lock()
	s.tr.file = file
	s.out.Unlock()
	return err
}

// replayFile translates a conversation's file.
func replayFile(path string, emit func(func(t *translator) []schema.SessionUpdate)) error {
	belongs, err := conversation(path)
	if err != nil {
		return err
	}
	err = bridge.EachEntry(path, func(n int, e *entry) error {
		if belongs(n) {
			emit(func(t *translator) []schema.SessionUpdate { return t.entry(e) })
		}
		return nil
	})
	if err != nil {
		return err
	}
	emit(func(t *translator) []schema.SessionUpdate {
		t.echo.Begin()
		return t.abandoned()
	})
	return nil
}

// entry translates a line of a conversation's file.
func (t *translator) entry(e *entry) []schema.SessionUpdate {
	switch e.Type {
	case "compaction":
		t.compaction = "compaction-" + e.ID
		defer func() { t.compaction = "" }()
		return t.compactionIs(schema.CompactionStatusCompleted, e.Summary, "")
	case "message":
	default:
		return nil
	}
	m := decodeMessage(e.Message)
	if m == nil {
		return nil
	}
	switch m.Role {
	case "user":
		return t.prompted(m)
	case "assistant":
		t.message = ""
		used := t.usage
		out := t.whole(m)
		t.usage = used // Pi says what it is at the end
		return dropUsage(out)
	case "toolResult":
		if t.tools[m.ToolCallID] == nil {
			return nil
		}
		return t.ended(m.ToolCallID, m.ToolName, result{content: blocksOf(m.Content), details: m.Details, structured: m.Structured, failed: m.IsError})
	case "custom":
		if m.Display {
			return t.shown(m)
		}
	case "bashExecution":
		return t.commanded(e.ID, m)
	}
	return nil
}

func dropUsage(list []schema.SessionUpdate) []schema.SessionUpdate {
	var out []schema.SessionUpdate
	for _, u := range list {
		if u.UsageUpdate == nil {
			out = append(out, u)
		}
	}
	return out
}

// prompted shows what the user said.
func (t *translator) prompted(m *message) []schema.SessionUpdate {
	var out []schema.SessionUpdate
	say := func(c schema.ContentBlock) {
		u := schema.UserMessage(c)
		u.UserMessageChunk.MessageID = schema.MessageID(m.id())
		out = append(out, u)
	}
	for _, b := range blocksOf(m.Content) {
		switch {
		case b.Type == "text" && b.Text != "":
			say(schema.TextBlock(b.Text))
		case b.Type == "image" && b.Data != "":
			say(schema.ContentBlock{Image: &schema.ImageContent{Data: b.Data, MimeType: b.MimeType}})
		}
	}
	return out
}

// commanded shows a command that the user ran.
func (t *translator) commanded(id string, m *message) []schema.SessionUpdate {
	args, err := schema.Encode(map[string]string{"command": m.Command})
	if err != nil || m.Command == "" {
		return nil
	}
	raw, err := schema.Encode(map[string]any{"output": m.Output, "exitCode": m.ExitCode, "cancelled": m.Cancelled})
	id = "bash-" + id
	return append(t.announce(id, "bash", args, ""), t.ran(id, raw, err)...)
}
