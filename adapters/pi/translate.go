package pi

import (
	"fmt"
	"strconv"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

const (
	// maxTools bounds the tool calls that are remembered: the oldest is forgotten,
	// and what comes of it then is ignored.
	maxTools = 1024
	// partialPause is the least time between two pieces of a call's output: each
	// is the whole output so far.
	partialPause = 100 * time.Millisecond
)

// before is a file before a tool changes it.
type before struct {
	there bool
	read  bool // text is all of it; else it is large, or no text can be had
	text  string
}

// translator turns what Pi writes into updates. It does no I/O and is used by one
// goroutine.
type translator struct {
	cwd string
	// file looks at a file before a tool changes it. It may be nil.
	file func(path string) before
	// now tells the time; tests stop it.
	now func() time.Time

	echo    bridge.Echo
	message string // the id of the message that streams
	ids     map[string]int
	said    bool // some of its text was sent
	thought bool // some of its thinking was sent

	tools      map[string]*tool
	order      []string // their ids, oldest first
	typed      string   // the call that stands for a command of the user's
	typedSaid  string   // its output so far, shortened
	usage      usageState
	compaction string // the id of the one that goes on, "" for none
}

func newTranslator(cwd string, file func(path string) before) *translator {
	return &translator{cwd: cwd, file: file, now: time.Now, tools: map[string]*tool{}, ids: map[string]int{}}
}

// translate returns the updates that a line means.
func (t *translator) translate(e *event) []schema.SessionUpdate {
	switch e.Type {
	case "message_start":
		t.begin(e.message())
	case "message_update":
		return t.piece(e.Update)
	case "message_end":
		return t.whole(e.message())
	case "tool_execution_start":
		return t.started(e)
	case "tool_execution_update":
		return t.partial(e)
	case "tool_execution_end":
		return t.finished(e)
	case "bash_execution_update":
		return t.output(e.Delta)
	case "agent_settled":
		t.echo.Begin()
		return t.abandoned()
	case "auto_retry_start", "auto_retry_end", "extension_error", "summarization_retry_scheduled":
		return t.notice(e)
	case "compaction_start", "compaction_end":
		return t.compacting(e)
	case "session_info_changed":
		if e.Name != "" {
			return []schema.SessionUpdate{{SessionInfoUpdate: &schema.SessionInfoUpdate{Title: &e.Name}}}
		}
	}
	return nil
}

// begin takes the start of a message.
func (t *translator) begin(m *message) {
	if m == nil {
		return
	}
	switch m.Role {
	case "user":
		t.echo.Begin()
	case "assistant":
		t.message, t.said, t.thought = t.idOf(m), false, false
	}
}

// idOf is a message's id. Messages of one millisecond are told apart.
func (t *translator) idOf(m *message) string {
	id := m.id()
	if len(t.ids) > maxTools {
		clear(t.ids)
	}
	t.ids[id]++
	if n := t.ids[id]; n > 1 {
		id += "-" + strconv.Itoa(n)
	}
	return id
}

// piece takes a piece of a message.
func (t *translator) piece(u *messageUpdate) []schema.SessionUpdate {
	switch {
	case u == nil:
	case u.Type == "text_delta" && u.Delta != "":
		t.said = true
		return t.echo.Say(t.message, u.Delta, false)
	case u.Type == "thinking_delta" && u.Delta != "":
		t.thought = true
		return t.echo.Say(t.message+"-thought", u.Delta, true)
	case u.Type == "toolcall_start" && u.ID != "":
		return t.announce(u.ID, u.Tool, nil, "")
	case u.Type == "toolcall_end" && u.ToolCall != nil:
		return t.announce(u.ToolCall.ID, u.ToolCall.Name, u.ToolCall.Args, "")
	}
	return nil
}

// whole takes a whole message, which repeats what was streamed of it.
func (t *translator) whole(m *message) []schema.SessionUpdate {
	if m == nil || m.Role != "assistant" {
		if m != nil && m.Role == "custom" && m.Display {
			return t.shown(m)
		}
		return nil
	}
	if t.message == "" {
		t.begin(m)
	}
	var out []schema.SessionUpdate
	broken := m.Stop == "error" || m.Stop == "aborted"
	for _, b := range blocksOf(m.Content) {
		switch {
		case b.Type == "text" && !t.said && b.Text != "":
			out = append(out, t.echo.Say(t.message, b.Text, false)...)
		case b.Type == "thinking" && !t.thought && b.Thinking != "":
			out = append(out, t.echo.Say(t.message+"-thought", b.Thinking, true)...)
		case b.Type == "toolCall" && !broken:
			out = append(out, t.announce(b.ID, b.Name, b.Args, "")...)
		}
	}
	t.message, t.said, t.thought = "", false, false
	if broken {
		// What it wanted to call is never called, and what it said may come again.
		t.echo.Broken()
		out = append(out, t.neverStarted()...)
	} else {
		t.echo.Begin()
	}
	return append(out, t.usage.call(m.Usage)...)
}

// shown is a message that an extension adds to the conversation.
func (t *translator) shown(m *message) []schema.SessionUpdate {
	var out []schema.SessionUpdate
	for _, b := range blocksOf(m.Content) {
		if b.Type == "text" && b.Text != "" {
			u := schema.AgentMessage(schema.TextBlock(b.Text))
			u.AgentMessageChunk.MessageID = schema.MessageID(m.id())
			out = append(out, u)
		}
	}
	return out
}

// notice shows what Pi reports beside the conversation.
func (t *translator) notice(e *event) []schema.SessionUpdate {
	switch e.Type {
	case "auto_retry_start":
		t.echo.Broken() // it is so already, unless the failure left no message
		wait := time.Duration(e.Delay * float64(time.Millisecond)).Round(100 * time.Millisecond)
		title := fmt.Sprintf("The model's provider failed: attempt %d of %d follows in %v", e.Attempt, e.Attempts, wait)
		return bridge.Notice(schema.NoticeSeverityWarning, title, e.Failure)
	case "auto_retry_end":
		if !e.Success {
			t.echo.Begin()
		}
	case "extension_error":
		return bridge.Notice(schema.NoticeSeverityWarning, "An extension of pi failed: "+bridge.OneLine(e.Extension), e.Error)
	case "summarization_retry_scheduled":
		return bridge.Notice(schema.NoticeSeverityWarning, "The summary failed and is tried again", e.Failure)
	}
	return nil
}

// notified shows what an extension tells the user.
func (t *translator) notified(e *event) []schema.SessionUpdate {
	severity := schema.NoticeSeverityInfo
	if e.NotifyType == "warning" || e.NotifyType == "error" {
		severity = schema.NoticeSeverity(e.NotifyType)
	}
	said := bridge.Text(e.Message)
	if said == "" {
		return nil
	}
	return bridge.Notice(severity, bridge.OneLine(said), said)
}

// compacting takes the start and the end of a compaction.
func (t *translator) compacting(e *event) []schema.SessionUpdate {
	if e.Type == "compaction_start" {
		t.compaction = ""
		return t.compactionIs(schema.CompactionStatusInProgress, "", "")
	}
	defer func() { t.compaction = "" }()
	var r struct {
		Summary string  `json:"summary"`
		Before  uint64  `json:"tokensBefore"`
		After   *uint64 `json:"estimatedTokensAfter"`
		Usage   *usage  `json:"usage"`
	}
	switch {
	case e.Aborted:
		return t.compactionIs(schema.CompactionStatusCancelled, "", "")
	case len(e.Result) == 0 || e.Result[0] != '{' || bridge.Lenient(e.Result, &r) != nil:
		return t.compactionIs(schema.CompactionStatusFailed, "", bridge.FirstOf(e.Failure, "pi could not compact the conversation"))
	}
	out := t.compactionIs(schema.CompactionStatusCompleted, r.Summary, "")
	out[0].CompactionUpdate.Meta = bridge.Compacted(r.Before, 0)
	return append(out, t.usage.compacted(r.Usage, r.After)...)
}

func (t *translator) compactionIs(status schema.CompactionStatus, summary, failure string) []schema.SessionUpdate {
	if t.compaction == "" { // other processes have told of others in the session
		t.compaction = "compaction-" + strconv.FormatInt(t.now().UnixMilli(), 10)
	}
	u := &schema.CompactionUpdate{CompactionID: schema.CompactionID(t.compaction), Status: status}
	if summary != "" {
		u.Summary = []schema.ContentBlock{schema.TextBlock(summary)}
	}
	if failure != "" {
		u.Error = &failure
	}
	return []schema.SessionUpdate{{CompactionUpdate: u}}
}

// usageState knows how full the context is and what the session cost.
type usageState struct {
	used  uint64 // tokens of context
	size  uint64 // of the context, 0 when unknown
	cost  float64
	shown shownUsage
}

// shownUsage is what clients were told last.
type shownUsage struct {
	used, size uint64
	cost       float64
}

// call takes a call of the model. One that failed says nothing.
func (u *usageState) call(c *usage) []schema.SessionUpdate {
	if c == nil || c.total() == 0 {
		return nil
	}
	u.used = c.total()
	u.cost += c.Cost.Total
	return u.update()
}

func (u *usageState) compacted(c *usage, after *uint64) []schema.SessionUpdate {
	if c != nil {
		u.cost += c.Cost.Total
	}
	if after != nil {
		u.used = *after
	}
	return u.update()
}

func (u *usageState) update() []schema.SessionUpdate {
	if u.size == 0 {
		return nil
	}
	now := shownUsage{u.used, u.size, u.cost}
	if now == u.shown {
		return nil
	}
	u.shown = now
	return []schema.SessionUpdate{{UsageUpdate: &schema.UsageUpdate{Used: u.used, Size: u.size, Cost: &schema.Cost{Amount: u.cost, Currency: "USD"}}}}
}
