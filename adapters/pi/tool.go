package pi

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// maxShown bounds the output of a tool that is shown.
const maxShown = 64 << 10

func decimal(n int) string { return strconv.Itoa(n) }

// tool is a call of a tool.
type tool struct {
	native       string            // Pi's id of it
	id           schema.ToolCallID // by which it is shown
	nth          int               // of the calls with its native id
	message      string            // that it is of, "" when it is of none
	name, parent string
	args         json.RawMessage
	before       *before // the file that it changes; nil when it changes none
	shown        bool    // it was announced
	running      bool    // it was said to run
	executed     bool    // Pi has begun with it
	over         bool
	partial      string    // the output that was shown last
	at           time.Time // when that was
}

// meta says whose call it is.
func (c *tool) meta() map[string]json.RawMessage {
	return bridge.Own{Parent: c.parent}.Meta()
}

// shells run commands.
var shells = []string{"bash", "powershell"}

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

// call returns the call that begins, or goes on, with an id of Pi's. One that has
// ended does not come back: another message, or Pi's beginning with it, makes
// another call of the id.
func (t *translator) call(id, name, parent string) *tool {
	c := t.tools[id]
	if c != nil && !(c.over && c.message != t.message) {
		return c
	}
	nth := 1
	if c != nil {
		nth = c.nth + 1
	}
	if p := t.tools[parent]; p != nil {
		parent = string(p.id)
	}
	c = &tool{native: id, id: bridge.CallID(id, nth), nth: nth, message: t.message, name: name, parent: parent}
	t.remember(c)
	return c
}

// announce shows a call, or what is new of it. args is nil while they stream.
func (t *translator) announce(id, name string, args json.RawMessage, parent string) []schema.SessionUpdate {
	if id == "" {
		return nil
	}
	c := t.call(id, name, parent)
	if c.over || c.shown && (object(args) == nil || string(args) == string(c.args)) {
		return nil
	}
	c.name = bridge.FirstOf(name, c.name, "tool")
	if a := object(args); a != nil {
		c.args = slices.Clone(a)
	}
	if path := t.changes(c); path != "" && c.before == nil {
		c.before = new(t.file(path))
	}
	look := describe(t.cwd, c.name, c.args, c.before)
	own := bridge.Own{}
	if command := readInput(c.args).Command; command != "" && slices.Contains(shells, c.name) {
		own.Terminal = &bridge.Terminal{Command: command, Cwd: t.cwd}
	}
	if !c.shown {
		c.shown, own.Parent = true, c.parent
		return []schema.SessionUpdate{{ToolCall: &schema.ToolCall{
			ToolCallID: c.id, Title: look.title, Name: &c.name, Kind: look.kind, Status: schema.ToolCallStatusPending,
			Content: look.content, Locations: look.locations, RawInput: c.args, Meta: own.Meta(),
		}}}
	}
	return []schema.SessionUpdate{{ToolCallUpdate: &schema.ToolCallUpdate{
		ToolCallID: c.id, Title: &look.title, Kind: look.kind, Content: look.content, Locations: look.locations, RawInput: c.args, Meta: own.Meta(),
	}}}
}

// changes is the path of the file that a call changes, "" when there is none to
// look at.
func (t *translator) changes(c *tool) string {
	path := absolute(t.cwd, changes(c.name, c.args))
	if t.file == nil || !filepath.IsAbs(path) {
		return ""
	}
	return path
}

// started takes the begin of a call, before anybody is asked about it.
func (t *translator) started(e *event) []schema.SessionUpdate {
	out := t.announce(e.Call, e.Tool, e.Args, e.Parent)
	c := t.tools[e.Call]
	if c == nil || c.over {
		return out
	}
	c.executed = true
	if path := t.changes(c); path != "" {
		// Another call may have changed it since the model asked for this one.
		if now := t.file(path); c.before == nil || now != *c.before {
			c.before = &now
			content := describe(t.cwd, c.name, c.args, c.before).content
			out = append(out, schema.SessionUpdate{ToolCallUpdate: &schema.ToolCallUpdate{ToolCallID: c.id, Content: content}})
		}
	}
	if slices.Contains(reading, c.name) {
		out = append(out, t.allowed(c.native)...)
	}
	return out
}

// allowed says that a call goes on.
func (t *translator) allowed(id string) []schema.SessionUpdate {
	c := t.tools[id]
	if c == nil || c.over || !c.shown || c.running {
		return nil
	}
	c.running = true
	return []schema.SessionUpdate{{ToolCallUpdate: &schema.ToolCallUpdate{ToolCallID: c.id, Status: schema.ToolCallStatusInProgress}}}
}

// partial takes the output so far, which replaces what was shown.
func (t *translator) partial(e *event) []schema.SessionUpdate {
	c := t.tools[e.Call]
	if c == nil || c.over || !c.shown {
		return nil
	}
	out := t.allowed(c.native)
	if e.Partial == nil {
		return out
	}
	said := plain(blocksOf(e.Partial.Content))
	return append(out, t.soFar(c, said)...)
}

func (t *translator) soFar(c *tool, said string) []schema.SessionUpdate {
	now := t.now()
	if said == "" || said == c.partial || !c.at.IsZero() && now.Sub(c.at) < partialPause {
		return nil
	}
	c.partial, c.at = said, now
	own := bridge.Own{}
	if slices.Contains(shells, c.name) {
		own.Terminal = &bridge.Terminal{Output: true}
	}
	return []schema.SessionUpdate{{ToolCallUpdate: &schema.ToolCallUpdate{
		ToolCallID: c.id, Status: schema.ToolCallStatusInProgress, Content: bridge.TextContent(bridge.Fenced(bridge.Capped(said, maxShown), "console")), Meta: own.Meta(),
	}}}
}

// output takes a piece of what a command of the user's prints.
func (t *translator) output(delta string) []schema.SessionUpdate {
	c := t.tools[t.typed]
	if c == nil || c.over {
		return nil
	}
	t.typedSaid = bridge.Capped(t.typedSaid+delta, 2*maxShown)
	return t.soFar(c, t.typedSaid)
}

// result is what a call returned.
type result struct {
	content    []block
	details    json.RawMessage
	structured json.RawMessage
	failed     bool
	code       *int // of a command of the user's
}

// exitCode is how a command has ended, nil when that is not known.
func (r *result) exitCode() *int {
	var o struct {
		Code *int `json:"exit_code"`
	}
	if object(r.structured) == nil || bridge.Lenient(r.structured, &o) != nil {
		return r.code
	}
	return o.Code
}

// finished takes the result of a call.
func (t *translator) finished(e *event) []schema.SessionUpdate {
	r := new(toolResult)
	if object(e.Result) != nil {
		_ = bridge.Lenient(e.Result, r) // what cannot be read is not shown
	}
	var out []schema.SessionUpdate
	if t.tools[e.Call] == nil {
		out = t.announce(e.Call, e.Tool, e.Args, e.Parent)
	}
	return append(out, t.ended(e.Call, e.Tool, result{content: blocksOf(r.Content), details: r.Details, structured: r.Structured, failed: e.IsError})...)
}

func (t *translator) ended(id, name string, r result) []schema.SessionUpdate {
	c := t.tools[id]
	if c == nil || c.over {
		return nil
	}
	var out []schema.SessionUpdate
	if !c.shown {
		out = t.announce(id, name, nil, "")
	}
	u := &schema.ToolCallUpdate{ToolCallID: c.id, Status: schema.ToolCallStatusCompleted}
	if r.failed {
		u.Status = schema.ToolCallStatusFailed
	}
	u.Content, u.Locations = outcome(t.cwd, c, r)
	own := bridge.Own{Parent: c.parent}
	if slices.Contains(shells, c.name) {
		own.Terminal = &bridge.Terminal{Output: u.Content != nil, ExitCode: r.exitCode()}
	}
	u.Meta = own.Meta()
	u.RawOutput = rawOutput(r)
	c.end()
	return append(out, schema.SessionUpdate{ToolCallUpdate: u})
}

// end gives up what is needed of a running call only.
func (c *tool) end() { c.over, c.args, c.before, c.partial = true, nil, nil, "" }

// abandon ends a call that gets no result.
func (t *translator) abandon(id string) []schema.SessionUpdate {
	c := t.tools[id]
	if c == nil || c.over || !c.shown {
		return nil
	}
	c.end()
	return []schema.SessionUpdate{{ToolCallUpdate: &schema.ToolCallUpdate{ToolCallID: c.id, Status: schema.ToolCallStatusFailed}}}
}

// neverStarted ends the calls of a message that broke off.
func (t *translator) neverStarted() []schema.SessionUpdate {
	var out []schema.SessionUpdate
	for _, id := range t.order {
		if c := t.tools[id]; !c.executed && id != t.typed {
			out = append(out, t.abandon(id)...)
		}
	}
	return out
}

// abandoned ends the calls that are open when Pi has settled.
func (t *translator) abandoned() []schema.SessionUpdate {
	var out []schema.SessionUpdate
	for _, id := range t.order {
		if id != t.typed {
			out = append(out, t.abandon(id)...)
		}
	}
	return out
}
