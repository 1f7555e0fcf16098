package codex

import (
	"maps"
	"strings"

	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// maxItems bounds the items that are remembered: the oldest is forgotten, and what
// comes of it then is ignored.
const maxItems = 1024

// translator turns the notifications about one thread, and about those of its
// subagents, into updates. It does no I/O and is used by one goroutine at a time.
type translator struct {
	thread   string
	children map[string]string // threads of subagents, and the calls that show what they do
	told     map[string]string // calls that told subagents something while they worked, by thread
	runs     map[string]string // threads of subagents that have a turn, and the turn it comes from; "" for unknown
	unnamed  []*event          // what threads said that no call has named yet
	items    map[string]*shown
	order    []string // their ids, oldest first
	dirty    []string // commands with output that was not shown yet

	echo  bridge.Echo
	usage usageState
	title string
}

// shown is an item as the client knows it.
type shown struct {
	item    *item
	id      schema.ToolCallID // by which it is shown, if it is a call
	nth     int               // of the calls with its item's id
	thread  string
	turn    string
	over    bool // nothing more is shown of it
	said    bool // some of its text was
	call    bool // it was announced as a tool call
	output  tail
	at      int64  // when its output was shown last, Unix time in ms
	waits   bool   // its output is to be shown
	process string // that runs although the item was closed
	words   strings.Builder
}

func newTranslator() *translator {
	return &translator{children: map[string]string{}, told: map[string]string{}, runs: map[string]string{}, items: map[string]*shown{}}
}

// translate returns the updates that a notification means. On a busy machine a
// subagent speaks before the end of its call says which thread it has: its words
// wait for that, and are not taken for those of the thread itself.
func (t *translator) translate(e *event) []schema.SessionUpdate {
	parent := t.children[e.Thread]
	if parent == "" && e.Thread != "" && !t.of(e) {
		if len(t.unnamed) >= maxItems {
			t.unnamed = t.unnamed[1:]
		}
		t.unnamed = append(t.unnamed, e)
		return nil
	}
	out := t.shows(e, parent)
	if it := e.Item; it != nil && it.Type == "collabAgentToolCall" && len(it.Receivers) > 0 {
		waited := t.unnamed
		t.unnamed = nil
		for _, e := range waited {
			out = append(out, t.translate(e)...)
		}
	}
	return out
}

// shows returns the updates for a notification of the thread itself or of a
// subagent, whose call is its parent.
func (t *translator) shows(e *event, parent string) []schema.SessionUpdate {
	switch e.Method {
	case "turn/started":
		if parent == "" && t.of(e) {
			t.echo.Begin()
			t.usage.begin()
		}
		return t.subagentBegins(e, parent)
	case "turn/completed":
		return t.turnOver(e, parent)
	case "item/started":
		return t.started(e, parent)
	case "item/completed":
		return t.completed(e, parent)
	case "item/agentMessage/delta", "item/plan/delta":
		return t.words(e, parent, false)
	case "item/reasoning/summaryTextDelta", "item/reasoning/textDelta":
		return t.words(e, parent, true)
	case "item/reasoning/summaryPartAdded":
		if e.Index != nil && *e.Index > 0 {
			e.Delta = "\n\n"
			return t.words(e, parent, true)
		}
		return nil
	case "item/commandExecution/outputDelta":
		return t.outputs(e)
	case "item/commandExecution/terminalInteraction":
		return nil // a terminal echoes it
	}
	if parent != "" {
		return nil // plans, usage and errors of a subagent are its own
	}
	switch e.Method {
	case "turn/plan/updated":
		return t.planned(e)
	case "thread/tokenUsage/updated":
		t.echo.Begin()
		return t.usage.take(e.Usage)
	case "thread/name/updated":
		if e.ThreadName == "" || e.ThreadName == t.title {
			return nil
		}
		t.title = e.ThreadName
		return []schema.SessionUpdate{{SessionInfoUpdate: &schema.SessionInfoUpdate{Title: &e.ThreadName}}}
	}
	return t.notice(e)
}

// of reports whether a notification is about the thread itself.
func (t *translator) of(e *event) bool { return e.Thread == t.thread || t.thread == "" }

// remember keeps an item, and forgets the oldest one at the bound.
func (t *translator) remember(e *event, it *item) *shown {
	old := t.items[it.ID]
	if old != nil && !old.over {
		old.item = it
		return old
	}
	s := &shown{item: it, nth: 1, thread: e.Thread, turn: e.TurnID}
	if old != nil {
		s.nth = old.nth + 1
	} else {
		if len(t.order) >= maxItems {
			delete(t.items, t.order[0])
			t.order = t.order[1:]
		}
		t.order = append(t.order, it.ID)
	}
	s.id = bridge.CallID(it.ID, s.nth)
	t.items[it.ID] = s
	return s
}

// shownID is the id by which a call is shown.
func (t *translator) shownID(id string) schema.ToolCallID {
	if s := t.items[id]; s != nil {
		return s.id
	}
	return schema.ToolCallID(id)
}

// words takes a piece of a text.
func (t *translator) words(e *event, parent string, thought bool) []schema.SessionUpdate {
	s := t.items[e.ItemID]
	if s == nil {
		s = t.remember(e, &item{ID: e.ItemID})
	}
	if s.over || e.Delta == "" {
		return nil
	}
	// Where there are summaries, the raw reasoning is not shown as well.
	if e.Method == "item/reasoning/textDelta" && s.said && s.words.Len() > 0 {
		return nil
	}
	if e.Method == "item/reasoning/summaryTextDelta" {
		s.words.WriteByte('s')
	}
	s.said = true
	if parent != "" {
		return t.subagentSaid(parent, s, e.Delta, thought)
	}
	return t.echo.Say(e.ItemID, e.Delta, thought)
}

// whole shows a text that came without pieces.
func (t *translator) whole(s *shown, parent, text string, thought bool) []schema.SessionUpdate {
	if s.said || s.over || text == "" {
		return nil
	}
	s.said = true
	if parent != "" {
		return t.subagentSaid(parent, s, text, thought)
	}
	return t.echo.Say(s.item.ID, text, thought)
}

func (t *translator) planned(e *event) []schema.SessionUpdate {
	p := &schema.Plan{Entries: []schema.PlanEntry{}}
	for _, step := range e.Plan {
		status := schema.PlanEntryStatusPending
		switch step.Status {
		case "inProgress":
			status = schema.PlanEntryStatusInProgress
		case "completed":
			status = schema.PlanEntryStatusCompleted
		}
		p.Entries = append(p.Entries, schema.PlanEntry{Content: step.Step, Priority: schema.PlanEntryPriorityMedium, Status: status})
	}
	return []schema.SessionUpdate{{Plan: p}}
}

// started takes the begin of an item.
func (t *translator) started(e *event, parent string) []schema.SessionUpdate {
	it := e.Item
	if it == nil || it.ID == "" {
		return nil
	}
	// A call that begins with the id of one that has ended is another one: models
	// use ids again.
	if s := t.items[it.ID]; s != nil && s.over && !s.call {
		return nil
	}
	s := t.remember(e, it)
	switch it.Type {
	case "userMessage", "enteredReviewMode", "exitedReviewMode", "hookPrompt":
		return nil
	case "collabAgentToolCall":
		t.tells(it)
	case "agentMessage", "plan":
		return t.whole(s, parent, it.Text, false)
	case "reasoning":
		return t.whole(s, parent, reasoned(it), true)
	case "contextCompaction":
		return t.compacting(s, schema.CompactionStatusInProgress)
	}
	return t.announce(s, parent)
}

// completed takes the end of an item.
func (t *translator) completed(e *event, parent string) []schema.SessionUpdate {
	it := e.Item
	if it == nil || it.ID == "" {
		return nil
	}
	if s := t.items[it.ID]; s != nil && s.over {
		return nil
	}
	s := t.remember(e, it)
	var out []schema.SessionUpdate
	switch it.Type {
	case "userMessage", "enteredReviewMode", "exitedReviewMode", "hookPrompt":
	case "agentMessage", "plan":
		out = t.whole(s, parent, it.Text, false)
	case "reasoning":
		out = t.whole(s, parent, reasoned(it), true)
	case "contextCompaction":
		out = t.compacting(s, schema.CompactionStatusCompleted)
	default:
		return t.ended(s, parent)
	}
	s.over = true
	return out
}

// turnOver takes the end of a turn and closes what it left open. A command that
// the turn left running goes on, unless the turn was broken off. A subagent goes
// on even then, until it is ended: see [session.sweep].
func (t *translator) turnOver(e *event, parent string) []schema.SessionUpdate {
	if e.Turn == nil {
		return nil
	}
	var out []schema.SessionUpdate
	for _, id := range t.order {
		s := t.items[id]
		if s.over || s.thread != e.Thread {
			continue
		}
		switch s.item.Type {
		case "commandExecution", "collabAgentToolCall":
			if e.Turn.Status == "completed" || s.turn != e.Turn.ID && s.turn != e.Turn.Root || t.made(s) {
				continue
			}
		}
		out = append(out, t.abandon(s, parent)...)
	}
	if parent != "" {
		delete(t.runs, e.Thread)
		out = append(out, t.subagentOver(e, parent)...)
	}
	return out
}

// abandon closes an item that gets no end of its own.
func (t *translator) abandon(s *shown, parent string) []schema.SessionUpdate {
	s.over = true
	if s.item.Type == "commandExecution" {
		s.process = s.item.Process
	}
	switch {
	case s.item.Type == "contextCompaction":
		return t.compacting(s, schema.CompactionStatusFailed)
	case !s.call:
		return nil
	}
	own := t.own(parent)
	u := &schema.ToolCallUpdate{ToolCallID: s.id, Status: schema.ToolCallStatusFailed}
	if s.output.len() > 0 {
		u.Content, own.Terminal = shownOutput(s.output.text()), &bridge.Terminal{Output: true}
	}
	u.Meta = own.Meta()
	return []schema.SessionUpdate{{ToolCallUpdate: u}}
}

// running are the processes of commands that turns left running when they were
// broken off. They are told once.
func (t *translator) running(turns map[string]bool) []string {
	var out []string
	for _, id := range t.order {
		if s := t.items[id]; s.process != "" && s.thread == t.thread && turns[s.turn] {
			out = append(out, s.process)
			s.process = ""
		}
	}
	return out
}

// made reports whether a call shows what a subagent does.
func (t *translator) made(s *shown) bool {
	for _, call := range t.children {
		if call == s.item.ID {
			return true
		}
	}
	return false
}

// below returns the threads of the subagents that calls show, and of those that these have made.
func (t *translator) below(made func(s *shown) bool) map[string]bool {
	out := map[string]bool{}
	for more := true; more; {
		more = false
		for child, call := range t.children {
			if s := t.items[call]; s != nil && !out[child] && (made(s) || out[s.thread]) {
				out[child], more = true, true
			}
		}
	}
	return out
}

// ofTurns returns the threads of the subagents that work for turns, or did last.
func (t *translator) ofTurns(ours func(turn string) bool) map[string]bool {
	out := t.below(func(s *shown) bool { return s.thread == t.thread && ours(s.turn) })
	for child, root := range t.runs {
		if root != "" {
			out[child] = ours(root)
		}
	}
	maps.DeleteFunc(out, func(_ string, of bool) bool { return !of })
	return out
}

// all are the threads of all subagents.
func (t *translator) all() map[string]bool {
	out := map[string]bool{}
	for child := range t.children {
		out[child] = true
	}
	return out
}

// working are those of some subagents' threads that have a turn, or are about to have one.
func (t *translator) working(of map[string]bool) []string {
	var out []string
	for child := range of {
		_, runs := t.runs[child]
		if s := t.items[t.children[child]]; runs || s != nil && !s.over {
			out = append(out, child)
		}
	}
	return out
}

// abandonTurns closes everything that turns left open, their subagents included.
func (t *translator) abandonTurns(turns map[string]bool) []schema.SessionUpdate {
	var out []schema.SessionUpdate
	children := t.ofTurns(func(turn string) bool { return turns[turn] })
	for _, id := range t.order {
		s := t.items[id]
		if !s.over && (turns[s.turn] || children[s.thread]) {
			out = append(out, t.abandon(s, t.children[s.thread])...)
		}
	}
	return out
}

// reasoned is what a reasoning item says.
func reasoned(it *item) string {
	if len(it.Summary) > 0 {
		return strings.Join(it.Summary, "\n\n")
	}
	var parts []string
	for _, raw := range rawjson.Elements(it.Content) {
		if s := bridge.Text(raw); s != "" {
			parts = append(parts, s)
		}
	}
	return strings.Join(parts, "\n\n")
}
