package pi

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// The modes, which are the gateway's own names of them.
const (
	modeDefault  = "default"
	modeReadonly = "readonly"
	modeWrite    = "write"
	modeBypass   = "bypass"
)

var modes = []struct{ id, name, about string }{
	{modeDefault, "Ask", "Asks before every tool but those that read"},
	{modeReadonly, "Read only", "Denies every tool but those that read"},
	{modeWrite, "Write", "Edits files of the session's folders without asking, and asks before everything else"},
	{modeBypass, "Bypass permissions", "Allows everything"},
}

func modeIDs() []string {
	var ids []string
	for _, m := range modes {
		ids = append(ids, m.id)
	}
	return ids
}

func modeKnown(id string) bool {
	for _, m := range modes {
		if m.id == id {
			return true
		}
	}
	return false
}

const (
	optionAllow  = "allow"
	optionAlways = "allow_always" // this command, or this tool
	optionTool   = "allow_tool"   // all commands
	optionReject = "reject"
)

// Messages that the model gets in place of a result.
const (
	saidReject   = "The user rejected this tool call. Do not try it again in another way; ask what to do instead if it is unclear."
	saidCancel   = "The user cancelled the turn."
	saidReadonly = "This session may only read. Nothing was done."
	saidUnknown  = "The client answered with an option that was not offered. Nothing was done."
	saidNothing  = "The client gave no answer. Nothing was done."
)

// rules are the names of what can be allowed for the session: one for what
// optionAlways allows, and one for the whole tool, the same for most. Of a command that is no text, or an empty one, one is "".
func (q *gateQuestion) rules() (one, tool string) {
	switch q.Tool {
	case "edit", "write":
		return "edit", "edit"
	case "bash", "powershell":
		if command := q.command(); strings.TrimSpace(command) != "" {
			return q.Tool + "\x00" + bridge.CommandKey(command), q.Tool
		}
		return "", q.Tool
	}
	return q.Tool, q.Tool
}

// command is the command that a call runs, "" if that is no text.
func (q *gateQuestion) command() string { return rawjson.MemberString(q.Args, "command") }

// decided returns what needs no question: the answer for the gate, and whether
// there is one.
func (s *session) decided(q *gateQuestion) (string, bool) {
	one, tool := q.rules()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.turns.Stopping():
		return saidCancel, true
	case s.set.mode == modeBypass:
		return gateAllow, true
	case s.set.mode == modeReadonly:
		return saidReadonly, true
	case s.granted.Has(one) || s.granted.Has(tool):
		return gateAllow, true
	case s.set.mode == modeWrite && (q.Tool == "edit" || q.Tool == "write"):
		if inside(s.cwd, append([]string{s.cwd}, s.launch.Roots...), rawjson.MemberString(q.Args, "path")) {
			return gateAllow, true
		}
	}
	return "", false
}

// inside reports whether a path that Pi would write lies in one of the folders,
// wherever links lead. What Pi reads in a way of its own counts as outside.
func inside(cwd string, roots []string, path string) bool {
	if path == "" || odd(path) {
		return false
	}
	path = absolute(cwd, path)
	real, ok := resolved(filepath.Clean(path))
	if !ok {
		return false
	}
	for _, root := range roots {
		root, err := filepath.EvalSymlinks(root)
		if err != nil {
			continue
		}
		if rel, err := filepath.Rel(root, real); err == nil && filepath.IsLocal(rel) && rel != "." {
			return true
		}
	}
	return false
}

// resolved is a path without links; its end need not exist. A link that leads
// nowhere is not resolved: writing it would make what it names.
func resolved(path string) (string, bool) {
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		return real, true
	}
	if _, there := os.Lstat(path); there == nil || !os.IsNotExist(err) {
		return "", false
	}
	dir := filepath.Dir(path)
	if dir == path {
		return "", false
	}
	real, ok := resolved(dir)
	return filepath.Join(real, filepath.Base(path)), ok
}

// decide finds the answer to the gate's question, and remembers what is allowed
// for the session. end says that the client wants the turn to end.
func (s *session) decide(ctx context.Context, q *gateQuestion) (answer string, end bool) {
	if answer, ok := s.decided(q); ok {
		return answer, false
	}
	var shown *schema.RequestPermissionRequest
	s.emit(func(t *translator) []schema.SessionUpdate {
		out := t.announce(q.Call, q.Tool, q.Args, "")
		shown = s.permissionRequest(q, t.tools[q.Call])
		return out
	})
	var resp schema.RequestPermissionResponse
	if err := s.a.peer.Ask(ctx, acp.MethodSessionRequestPermission, shown, &resp); err != nil {
		if ctx.Err() != nil {
			return saidCancel, false
		}
		s.log.Debug("ask for a permission", "session", s.id, "err", err)
		return saidNothing, false
	}
	switch {
	case ctx.Err() != nil: // it is of no turn any more
		return saidCancel, false
	case resp.Outcome.Selected == nil:
		return saidCancel, true
	}
	one, tool := q.rules()
	switch option := string(resp.Outcome.Selected.OptionID); {
	case option == optionAllow:
		return gateAllow, false
	case option == optionAlways && one != "":
		command := ""
		if one != tool {
			command = q.command()
		}
		s.allowAlways(bridge.Given(one, grantTitle(tool, command), kindOf(tool)))
		return gateAllow, false
	case option == optionTool && one != tool:
		s.allowAlways(bridge.Given(tool, grantTitle(tool, ""), kindOf(tool)))
		return gateAllow, false
	case option == optionReject:
		// What reads like the answer that allows is none.
		if said := rawjson.MemberString(resp.Meta[acp.MetaKey], "message"); said != "" {
			return "The user rejected this tool call: " + said, false
		}
		return saidReject, false
	}
	return saidUnknown, false
}

// allowAlways allows something for the session, also behind the end of this process.
func (s *session) allowAlways(g bridge.Grant) {
	s.mu.Lock()
	s.granted.Add(g)
	s.mu.Unlock()
	s.keep(func(r *record) { r.Granted.Add(g) })
}

// grantTitle says what is allowed of a tool, as [gateQuestion.rules] names it: a command, or all that it does.
func grantTitle(tool, command string) string {
	switch {
	case command != "":
		return "`" + bridge.OneLine(command) + "`"
	case tool == "bash" || tool == "powershell":
		return "all commands"
	case tool == "edit":
		return "edits of files"
	}
	return bridge.OneLine(tool)
}

// permissionRequest is the request for the client. c is what is known of the call.
func (s *session) permissionRequest(q *gateQuestion, c *tool) *schema.RequestPermissionRequest {
	r := &schema.RequestPermissionRequest{SessionID: s.id, ToolCall: schema.ToolCallUpdate{
		ToolCallID: bridge.CallID(q.Call, 1), Name: &q.Tool, Status: schema.ToolCallStatusPending,
	}}
	var old *before
	if c != nil {
		old = c.before
		r.ToolCall.ToolCallID = c.id
		r.ToolCall.Meta = c.meta()
	}
	look := describe(s.cwd, q.Tool, q.Args, old)
	r.ToolCall.Title, r.ToolCall.Kind, r.ToolCall.Content, r.ToolCall.Locations = &look.title, look.kind, look.content, look.locations
	r.ToolCall.RawInput = object(q.Args)
	offer := func(id, name string, kind schema.PermissionOptionKind) {
		r.Options = append(r.Options, schema.PermissionOption{OptionID: schema.PermissionOptionID(id), Name: name, Kind: kind})
	}
	offer(optionAllow, "Allow", schema.PermissionOptionKindAllowOnce)
	switch one, tool := q.rules(); {
	case one != tool:
		if one != "" {
			offer(optionAlways, "Always allow `"+bridge.OneLine(q.command())+"` in this session", schema.PermissionOptionKindAllowAlways)
		}
		offer(optionTool, "Always allow all commands in this session", schema.PermissionOptionKindAllowAlways)
	case tool == "edit":
		offer(optionAlways, "Always allow edits of files in this session", schema.PermissionOptionKindAllowAlways)
	default:
		offer(optionAlways, "Always allow "+bridge.OneLine(q.Tool)+" in this session", schema.PermissionOptionKindAllowAlways)
	}
	offer(optionReject, "Reject", schema.PermissionOptionKindRejectOnce)
	return r
}

// object is raw if it is an object, else nil.
func object(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || raw[0] != '{' {
		return nil
	}
	return raw
}
