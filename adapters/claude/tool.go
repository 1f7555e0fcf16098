package claude

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// tool is a call of a tool.
type tool struct {
	native  string            // the program's id of it
	id      schema.ToolCallID // by which it is shown
	nth     int               // of the calls with its native id
	message string            // that it is of, "" until that is known
	name    string
	input   json.RawMessage
	parent  string            // the native id of the call whose subagent makes this one
	within  schema.ToolCallID // the id by which that is shown
	shown   bool              // it was announced
	task    string            // the background task that it became
	over    bool
	said    []schema.ToolCallContent // what its subagent said
	saidLen int                      // bytes of it
	before  *string                  // of the file that it changes, when it was read in time
	titled  bool                     // its title is what it does at the moment
}

// ownTitle is the title that a call gets back at its end, nil when it has it.
func (c *tool) ownTitle() *string {
	if !c.titled {
		return nil
	}
	title := describe(c.name, c.input, nil).title
	return &title
}

// planTools are shown as the plan and not as calls.
var planTools = []string{"TodoWrite", "TaskCreate", "TaskUpdate", "TaskList", "TaskGet"}

// call returns the call that begins, or goes on, with an id of the program's. One
// that has ended does not come back: another message with the id, or a question
// about it, is of another call.
func (t *translator) call(id, name, message string) *tool {
	c := t.tools[id]
	nth := 1
	if c != nil {
		if !c.over || message != "" && c.message == message {
			c.message = bridge.FirstOf(c.message, message)
			return c
		}
		nth = c.nth + 1
	}
	c = &tool{native: id, id: bridge.CallID(id, nth), nth: nth, message: message, name: name}
	t.remember(c)
	return c
}

// announce takes a call and shows it, or what is new about it. input is nil while
// it streams; message is "" for a question about the call.
func (t *translator) announce(id, name string, input json.RawMessage, parent, message string) []schema.SessionUpdate {
	if id == "" {
		return nil
	}
	c := t.call(id, name, message)
	// A request for a permission may lack what the program took elsewhere.
	if c.over || c.input != nil && (sameJSON(input, c.input) || string(input) == "{}") {
		return nil
	}
	if parent != "" {
		c.parent, c.within = parent, schema.ToolCallID(parent)
		if p := t.tools[parent]; p != nil {
			c.within = p.id
		}
	}
	c.input = input
	if parent == "" && slices.Contains(planTools, name) {
		return nil // the result tells what became of it
	}
	if input != nil && c.before == nil {
		c.before = t.readBefore(name, input)
	}
	look := describe(name, input, c.before)
	if !c.shown {
		c.shown = true
		call := &schema.ToolCall{
			ToolCallID: c.id, Title: look.title, Name: &c.name, Kind: look.kind, Status: schema.ToolCallStatusPending,
			Content: look.content, Locations: look.locations, RawInput: input, Meta: c.introduced().Meta(),
		}
		return []schema.SessionUpdate{{ToolCall: call}}
	}
	return []schema.SessionUpdate{{ToolCallUpdate: &schema.ToolCallUpdate{
		ToolCallID: c.id, Title: &look.title, Kind: look.kind,
		Content: look.content, Locations: look.locations, RawInput: input, Meta: c.known().Meta(),
	}}}
}

// remember keeps a call, and forgets the oldest one at the bound.
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
func (c *tool) own() bridge.Own { return bridge.Own{Parent: string(c.within)} }

func (c *tool) meta() map[string]json.RawMessage { return c.own().Meta() }

// subagentTools run subagents.
var subagentTools = []string{"Agent", "Task"}

// shells run commands.
var shells = []string{"Bash", "PowerShell"}

// introduced says whose call it is that begins, and what it shows.
func (c *tool) introduced() bridge.Own {
	own := c.known()
	if slices.Contains(subagentTools, c.name) {
		own.Subagent = &bridge.Subagent{Cancel: true}
	}
	return own
}

// known says whose call it is, and the command that it runs, once that is known.
func (c *tool) known() bridge.Own {
	own := c.own()
	if command := rawjson.MemberString(c.input, "command"); command != "" && slices.Contains(shells, c.name) {
		own.Terminal = &bridge.Terminal{Command: command}
	}
	return own
}

// readBefore returns the text of the file that a tool is about to change.
func (t *translator) readBefore(name string, input json.RawMessage) *string {
	path := changes(name, input)
	if path == "" || t.file == nil {
		return nil
	}
	s, ok := t.file(path)
	if !ok {
		return nil
	}
	return &s
}

// named gives a call the name that its server shows for it.
func (t *translator) named(id string, metas []toolMeta) []schema.SessionUpdate {
	for _, m := range metas {
		c := t.tools[id]
		if m.ID != id || c == nil || !c.shown || m.Name == "" {
			continue
		}
		title := m.Name
		if m.Server != "" {
			title = m.Server + ": " + m.Name
		}
		return []schema.SessionUpdate{{ToolCallUpdate: &schema.ToolCallUpdate{ToolCallID: c.id, Title: &title}}}
	}
	return nil
}

// asked takes a request for a permission. It may come before the call's own
// line.
func (t *translator) asked(r *controlRequest) []schema.SessionUpdate {
	c := t.tools[r.ToolUse]
	r.turns = r.Agent == "" && (len(t.tasks) == 0 || c != nil && c.parent == "")
	switch {
	case r.Agent != "":
		r.tasks = []string{r.Agent}
	case !r.turns:
		r.tasks = slices.Collect(maps.Keys(t.tasks))
	}
	out := t.announce(r.ToolUse, r.ToolName, r.Input, t.tasks[r.Agent], "")
	if c := t.tools[r.ToolUse]; c != nil {
		r.call, r.before, r.within, r.shown = c.id, c.before, c.meta(), c.input
	}
	return out
}

// allowed says that a call that was asked about goes on.
func (t *translator) allowed(id string) []schema.SessionUpdate {
	c := t.tools[id]
	if c == nil || c.over || !c.shown {
		return nil
	}
	return []schema.SessionUpdate{{ToolCallUpdate: &schema.ToolCallUpdate{ToolCallID: c.id, Status: schema.ToolCallStatusInProgress}}}
}

// ended takes the result of a call.
func (t *translator) ended(b contentBlock, output json.RawMessage) []schema.SessionUpdate {
	c := t.tools[b.ToolUseID]
	if c == nil || c.over {
		return nil
	}
	if !c.shown && !b.IsError {
		c.over = true
		return t.plan.result(c.name, c.input, output)
	}
	var out []schema.SessionUpdate
	if !c.shown {
		c.shown = true
		look := describe(c.name, c.input, nil)
		out = append(out, schema.SessionUpdate{ToolCall: &schema.ToolCall{
			ToolCallID: c.id, Title: look.title, Name: &c.name, Kind: look.kind, Status: schema.ToolCallStatusPending, RawInput: c.input,
		}})
	}
	u := &schema.ToolCallUpdate{ToolCallID: c.id, Status: schema.ToolCallStatusCompleted, Meta: c.meta()}
	if !launched(output) {
		u.Content, u.Locations = outcome(c, b, output)
	}
	if slices.Contains(shells, c.name) {
		own := c.own()
		if own.Terminal = ofTerminal(b, output); own.Terminal != nil {
			u.Meta = own.Meta()
		}
	}
	u.RawOutput = rawOutput(b, output)
	if !launched(output) {
		u.Title = c.ownTitle()
	}
	switch task := backgroundTask(output); {
	case b.IsError:
		u.Status = schema.ToolCallStatusFailed
	case task != "":
		// It goes on behind the turn; a notification ends it.
		c.task, u.Status = task, schema.ToolCallStatusInProgress
		t.tasks[task] = c.native
	}
	if u.Status != schema.ToolCallStatusInProgress {
		c.end()
	}
	return append(out, schema.SessionUpdate{ToolCallUpdate: u})
}

// end gives up what is needed of a running call only.
func (c *tool) end() {
	c.over, c.input, c.said, c.before = true, nil, nil, nil
}

// abandoned ends the calls of a turn that was broken off, which get no result.
func (t *translator) abandoned(e *event) []schema.SessionUpdate {
	if !e.IsError {
		return nil
	}
	return t.fail(func(c *tool) bool { return c.task == "" && (t.tools[c.parent] == nil || t.tools[c.parent].task == "") })
}

// cut ends the calls of the message that streams which never came whole: the connection to the
// model broke in the middle, and the program has the model begin them anew.
func (t *translator) cut() []schema.SessionUpdate {
	if t.streaming == "" {
		return nil
	}
	return t.fail(func(c *tool) bool { return c.input == nil && c.message == t.streaming })
}

// fail ends calls as failed, those that are shown and for which ok holds.
func (t *translator) fail(ok func(c *tool) bool) []schema.SessionUpdate {
	var out []schema.SessionUpdate
	for _, id := range t.order {
		c := t.tools[id]
		if c.over || !c.shown || !ok(c) {
			continue
		}
		title := c.ownTitle()
		c.end()
		out = append(out, schema.SessionUpdate{ToolCallUpdate: &schema.ToolCallUpdate{ToolCallID: c.id, Title: title, Status: schema.ToolCallStatusFailed}})
	}
	return out
}

// sameJSON reports whether two texts are the same value. Lines about one call
// differ in the order of members.
func sameJSON(a, b json.RawMessage) bool {
	if string(a) == string(b) {
		return true
	}
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && reflect.DeepEqual(x, y)
}

// launched reports whether a result says only that a subagent works in the
// background, in words for the model.
func launched(output json.RawMessage) bool {
	return len(output) > 0 && output[0] == '{' && rawjson.MemberBool(output, "isAsync")
}

func backgroundTask(output json.RawMessage) string {
	if len(output) == 0 || output[0] != '{' {
		return ""
	}
	var o struct {
		Task  string `json:"backgroundTaskId"`
		Async bool   `json:"isAsync"`
		Agent string `json:"agentId"`
	}
	if bridge.Lenient(output, &o) != nil {
		return ""
	}
	if o.Async {
		return o.Agent
	}
	return o.Task
}
