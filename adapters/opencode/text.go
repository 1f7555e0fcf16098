package opencode

import (
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// maxSubagent bounds the text that a call shows of a subagent: later text is
// shown to those only who know subagents.
const maxSubagent = 64 << 10

// piece takes an increment of a text. It is ignored when pieces before it were
// missed: the whole text will come.
func (t *translator) piece(id, delta string) []schema.SessionUpdate {
	s := t.parts[id]
	if s == nil || s.over || s.stale || delta == "" || s.kind != "text" && s.kind != "reasoning" {
		return nil
	}
	return t.more(s, delta)
}

// whole takes a text as a whole and shows what is new of it.
func (t *translator) whole(p *part) []schema.SessionUpdate {
	s := t.parts[p.ID]
	if s == nil {
		s = t.remember(p)
		t.repeats(s)
	}
	if s.over {
		return nil
	}
	var out []schema.SessionUpdate
	if rest, ok := s.beyond(p.Text); ok && rest != "" {
		s.stale = s.stale && !p.over()
		out = t.more(s, rest)
	}
	if p.over() {
		s.over = true
		if !s.torn {
			s.text.Reset()
		}
	}
	return out
}

// beyond returns what a whole text has beyond what came of it before.
func (s *shown) beyond(text string) (string, bool) {
	known := s.size + len(s.held)
	if len(text) < known {
		return "", false
	}
	if s.from == nil && s.size <= maxSaid && text[:s.size] != s.text.String() {
		return "", false
	}
	return text[known:], true
}

// more shows a further piece of a text.
func (t *translator) more(s *shown, text string) []schema.SessionUpdate {
	id := s.id
	if s.from != nil {
		old := s.from.text.String()
		s.held += text
		if strings.HasPrefix(old, s.held) {
			return nil // as before the stream broke, so far
		}
		if strings.HasPrefix(s.held, old) {
			// It goes on where the stream broke, as the same message.
			id, text = s.from.id, s.held[len(old):]
		} else {
			text = s.held
		}
		whole := s.held
		s.id, s.from, s.held = id, nil, ""
		s.size += len(whole) - len(text)
		s.text.WriteString(whole[:len(whole)-len(text)])
	}
	s.size += len(text)
	if s.size <= maxSaid {
		s.text.WriteString(text)
	}
	if m := t.messages[s.message]; m != nil && m.summary != "" {
		return t.summarized(m.summary, s, text)
	}
	if s.session != t.root {
		return t.subagentSaid(s, text)
	}
	if s.kind == "reasoning" {
		u := schema.AgentThought(schema.TextBlock(text))
		u.AgentThoughtChunk.MessageID = schema.MessageID(id)
		return []schema.SessionUpdate{u}
	}
	u := schema.AgentMessage(schema.TextBlock(text))
	u.AgentMessageChunk.MessageID = schema.MessageID(id)
	return []schema.SessionUpdate{u}
}

// broken takes notice that a request to the model failed while it was answered,
// and that the whole answer will come again, in new parts.
func (t *translator) broken(session string) {
	for _, id := range t.order {
		s := t.parts[id]
		if s == nil || s.session != session || s.over || s.kind != "text" && s.kind != "reasoning" {
			continue
		}
		s.over = true
		if s.from != nil {
			// It did not get as far as the one before.
			s.text.Reset()
			s.text.WriteString(s.from.text.String())
			s.id, s.from, s.held = s.from.id, nil, ""
		}
		s.torn = s.text.Len() > 0
	}
}

// repeats finds the part of a broken stream that a new part repeats.
func (t *translator) repeats(s *shown) {
	for _, id := range t.order {
		b := t.parts[id]
		if b != nil && b != s && b.torn && b.message == s.message && b.kind == s.kind {
			b.torn = false
			s.from = b
			return
		}
	}
}

// missed takes notice that pieces of texts may be lost: what comes next of each
// open text counts as a whole only.
func (t *translator) missed() {
	for _, s := range t.parts {
		s.stale = !s.over && (s.kind == "text" || s.kind == "reasoning")
	}
}

// subagentSaid takes a text of a subagent, and shows it in its call's content.
func (t *translator) subagentSaid(m *shown, text string) []schema.SessionUpdate {
	s := t.parts[t.parent(m.session)]
	if s == nil || s.over || m.kind == "reasoning" {
		return nil
	}
	own, said := t.own(s.session), bridge.Said{Message: m.id, Text: text}
	if s.words.Len()+len(text) > maxSubagent {
		return own.Words(schema.ToolCallID(s.id), "", nil, said)
	}
	if m.size == len(text) && s.words.Len() > 0 {
		s.words.WriteString("\n\n")
	}
	s.words.WriteString(text)
	return own.Words(schema.ToolCallID(s.id), schema.ToolCallStatusInProgress, s.content(), said)
}

// compacting takes the begin of a compaction, which a message of the user's
// stands for.
func (t *translator) compacting(p *part) []schema.SessionUpdate {
	if t.parts[p.ID] != nil {
		return nil
	}
	t.remember(p)
	return []schema.SessionUpdate{{CompactionUpdate: &schema.CompactionUpdate{CompactionID: schema.CompactionID(p.Message), Status: schema.CompactionStatusInProgress}}}
}

// summarized shows a piece of what a compaction keeps.
func (t *translator) summarized(compaction string, s *shown, text string) []schema.SessionUpdate {
	if s.session != t.root || s.kind != "text" {
		return nil
	}
	return []schema.SessionUpdate{{CompactionSummaryChunk: &schema.CompactionSummaryChunk{
		CompactionID: schema.CompactionID(compaction), Content: schema.TextBlock(text),
	}}}
}

// compacted takes the end of a compaction.
func (t *translator) compacted(session string, how schema.CompactionStatus) []schema.SessionUpdate {
	if session != t.root {
		return nil
	}
	for _, id := range t.order {
		if s := t.parts[id]; s != nil && s.kind == "compaction" && !s.over {
			return t.compactionOver(s.message, how)
		}
	}
	return nil
}

func (t *translator) compactionOver(message string, how schema.CompactionStatus) []schema.SessionUpdate {
	for _, id := range t.order {
		s := t.parts[id]
		if s == nil || s.kind != "compaction" || s.message != message || s.over {
			continue
		}
		s.over = true
		return []schema.SessionUpdate{{CompactionUpdate: &schema.CompactionUpdate{CompactionID: schema.CompactionID(message), Status: how}}}
	}
	return nil
}

// shownOutput shows what a command wrote.
func shownOutput(s string) []schema.ToolCallContent {
	return bridge.TextContent(bridge.Fenced(strings.ReplaceAll(s, "\r\n", "\n"), "console"))
}
