package opencode

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

const (
	// maxShown bounds the parts and the messages that are remembered: the oldest
	// is forgotten, and what comes of it then is ignored.
	maxShown = 2048
	// maxSaid bounds the text of one part that is remembered. Beyond it only its
	// length is compared, and a repetition is shown.
	maxSaid = 1 << 20
)

// translator turns the events about one session, and about those of its
// subagents, into updates. It does no I/O but textOf, and is used by one goroutine at a time.
type translator struct {
	// window is how much a model's context holds, 0 when that is not known.
	window func(provider, model string) uint64
	// textOf reads a file that nobody has written since; nil where nothing is read.
	textOf func(path string, since time.Time) (string, bool)

	root string // the session
	cwd  string

	children map[string]*child // by session
	messages map[string]*said
	parts    map[string]*shown
	order    []string          // of the parts, oldest first
	calls    map[string]string // parts by message and call
	dirty    []string          // parts with output that was not shown yet

	changes changes // of the turn
	usage   usage
	title   string
}

// child is a session of a subagent.
type child struct {
	parent string // the session that made it
	call   string // the part of the call that made it; "" when it is not known
}

// said is a message as far as it matters.
type said struct {
	role    string
	session string
	summary string // of this compaction; "" for other messages
}

// shown is a part as the client knows it.
type shown struct {
	id      string
	session string
	message string
	kind    string // text, reasoning, tool, compaction
	over    bool   // nothing more is shown of it

	// Of a text.
	text  strings.Builder // what was shown, up to maxSaid
	size  int             // of everything that was shown
	stale bool            // pieces were missed: the next whole text counts
	from  *shown          // the part of a broken stream that this one repeats, as far as it does
	held  string          // of that repetition
	torn  bool            // its stream broke

	// Of a call.
	tool   string
	look   look
	told   string // the details that were shown
	last   string // what was shown last, encoded
	output string // that waits to be shown
	at     int64  // when output was shown last, Unix time in ms
	words  strings.Builder
	hunks  []schema.ToolCallContent // what a permission was asked for
	before *string                  // the text of the file that the call replaces, if it was read in time
}

func newTranslator(root, cwd string) *translator {
	return &translator{
		root: root, cwd: cwd, window: func(string, string) uint64 { return 0 },
		children: map[string]*child{}, messages: map[string]*said{}, parts: map[string]*shown{}, calls: map[string]string{},
		changes: newChanges(), usage: usage{costs: map[string]float64{}},
	}
}

// translate returns the updates that an event means.
func (t *translator) translate(e *event) []schema.SessionUpdate {
	switch e.Type {
	case "session.created", "session.updated":
		return t.described(e.session)
	case "session.status":
		return t.status(e)
	case "session.compacted":
		return t.compacted(e.Session, schema.CompactionStatusCompleted)
	case "message.updated":
		return t.messaged(e.message)
	case "message.part.updated":
		return t.parted(e.Part, e.At)
	case "message.part.delta":
		if e.Field != "text" {
			return nil
		}
		return t.piece(e.PartID, e.Delta)
	case "todo.updated":
		if e.Session != t.root {
			return nil // a subagent's list is its own
		}
		return t.planned(e.Todos)
	}
	return nil
}

// described takes what a session is.
func (t *translator) described(i *info) []schema.SessionUpdate {
	if i.ID != t.root {
		if i.Parent != "" && t.children[i.ID] == nil && (i.Parent == t.root || t.children[i.Parent] != nil) && len(t.children) < maxChildren {
			t.children[i.ID] = &child{parent: i.Parent}
		}
		if t.children[i.ID] == nil {
			return nil
		}
		return t.usage.cost(i.ID, i.Cost)
	}
	out := t.usage.cost(i.ID, i.Cost)
	if i.Title != "" && i.Title != t.title && !strings.HasPrefix(i.Title, "New session - ") {
		t.title = i.Title
		out = append(out, schema.SessionUpdate{SessionInfoUpdate: &schema.SessionInfoUpdate{Title: &i.Title}})
	}
	return out
}

// status shows that a request to the model is tried again.
func (t *translator) status(e *event) []schema.SessionUpdate {
	if e.Status == nil || e.Status.Type != "retry" {
		return nil
	}
	t.broken(e.Session)
	about := fmt.Sprintf("Trying again (attempt %d)", e.Status.Attempt+1)
	if e.Session != t.root {
		about = "Subagent: " + about
	}
	return bridge.Notice(schema.NoticeSeverityWarning, about+": "+bridge.OneLine(reason(e.Status.Message)), "")
}

// reason is an error's text without the JSON around it.
func reason(s string) string {
	if raw := json.RawMessage(s); strings.HasPrefix(s, "{") {
		return bridge.FirstOf(rawjson.MemberString(raw, "message"), rawjson.MemberString(raw, "error", "message"), s)
	}
	return bridge.FirstOf(s, "the model provider failed without a reason")
}

// messaged takes a message without its parts.
func (t *translator) messaged(m *message) []schema.SessionUpdate {
	known := t.messages[m.ID]
	if known == nil {
		if len(t.messages) >= maxShown {
			t.forgetMessages()
		}
		known = &said{role: m.Role, session: m.Session}
		t.messages[m.ID] = known
	}
	if m.Role != "assistant" {
		return nil
	}
	var out []schema.SessionUpdate
	if m.summary() {
		known.summary = m.Parent
		if m.Error != nil {
			out = t.compactionOver(m.Parent, schema.CompactionStatusFailed)
		}
	}
	if m.Session == t.root && m.Tokens != nil && m.Time.Completed != 0 {
		out = append(out, t.usage.take(m, t.window(m.Provider, m.Model))...)
	}
	return out
}

// forgetMessages forgets messages that have no part left.
func (t *translator) forgetMessages() {
	live := map[string]bool{}
	for _, p := range t.parts {
		live[p.message] = true
	}
	for id := range t.messages {
		if !live[id] {
			delete(t.messages, id)
		}
	}
	if len(t.messages) >= maxShown {
		clear(t.messages)
	}
}

// remember keeps a part, and forgets the oldest one at the bound.
func (t *translator) remember(p *part) *shown {
	if s := t.parts[p.ID]; s != nil {
		return s
	}
	if len(t.order) >= maxShown {
		if t.parts[t.order[0]] != nil {
			delete(t.parts, t.order[0])
			maps.DeleteFunc(t.calls, func(_, id string) bool { return id == t.order[0] })
		}
		t.order = t.order[1:]
	}
	s := &shown{id: p.ID, session: p.Session, message: p.Message, kind: p.Type}
	t.parts[p.ID] = s
	t.order = append(t.order, p.ID)
	return s
}

// parted takes a part as a whole.
func (t *translator) parted(p *part, at int64) []schema.SessionUpdate {
	m := t.messages[p.Message]
	if m != nil && m.role == "user" {
		if p.Type == "compaction" && p.Session == t.root {
			return t.compacting(p)
		}
		return nil // the client knows what it said
	}
	switch p.Type {
	case "text", "reasoning":
		if p.Synthetic || p.Ignored {
			return nil
		}
		return t.whole(p)
	case "tool":
		if p.State != nil {
			return t.called(p, at)
		}
	}
	return nil
}

func (t *translator) planned(list []todo) []schema.SessionUpdate {
	p := &schema.Plan{Entries: []schema.PlanEntry{}}
	for _, one := range list {
		e := schema.PlanEntry{Content: one.Content, Priority: schema.PlanEntryPriorityMedium, Status: schema.PlanEntryStatusPending}
		switch one.Status {
		case "in_progress":
			e.Status = schema.PlanEntryStatusInProgress
		case "completed":
			e.Status = schema.PlanEntryStatusCompleted
		case "cancelled":
			continue // a plan has no such entries
		}
		switch one.Priority {
		case "high":
			e.Priority = schema.PlanEntryPriorityHigh
		case "low":
			e.Priority = schema.PlanEntryPriorityLow
		}
		p.Entries = append(p.Entries, e)
	}
	return []schema.SessionUpdate{{Plan: p}}
}

// parent is the call that made a subagent's session, "" for the session itself.
func (t *translator) parent(session string) string {
	if session == t.root {
		return ""
	}
	c := t.children[session]
	if c == nil {
		return ""
	}
	if c.call == "" {
		// The call has not named it yet: it is the newest that waits for one.
		for _, id := range slices.Backward(t.order) {
			s := t.parts[id]
			taken := false
			for _, other := range t.children {
				taken = taken || other.call == id
			}
			if s != nil && s.tool == toolTask && s.session == c.parent && !s.over && !taken {
				c.call = id
				break
			}
		}
	}
	return c.call
}

// abandon closes everything that is open.
func (t *translator) abandon() []schema.SessionUpdate {
	var out []schema.SessionUpdate
	for _, id := range t.order {
		s := t.parts[id]
		if s == nil || s.over {
			continue
		}
		switch s.kind {
		case "tool":
			out = append(out, t.shut(s)...)
		case "compaction":
			out = append(out, t.compactionOver(s.message, schema.CompactionStatusFailed)...)
		case "text", "reasoning":
			s.over = true
			s.text.Reset()
		}
	}
	return out
}
