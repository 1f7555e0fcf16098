package amp

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// The gateway's names of permission modes.
const (
	permitDefault  = "default"
	permitReadonly = "readonly"
	permitWrite    = "write"
	permitBypass   = "bypass"
)

const (
	optionAllow  = "allow"
	optionAlways = "allow_always"
	optionReject = "reject"
)

// Messages that the model gets in place of a result.
const (
	saidReject   = "The user rejected this tool call. Do not try it again in another way; ask what to do instead if it is unclear."
	saidCancel   = "The user cancelled the turn."
	saidReadonly = "This session is read-only: nothing may be changed and no command may run."
)

// request is what a delegate asks: whether a call may be made.
type request struct {
	Tool   string          `json:"tool"`
	ID     string          `json:"id"`
	Thread string          `json:"thread"`
	Input  json.RawMessage `json:"input"`
}

// reply is the answer for the delegate.
type reply struct {
	Allow  bool   `json:"allow"`
	Reason string `json:"reason,omitempty"` // for the model
}

// rule is a rule of the program's permissions. Members that are not known here
// are kept.
type rule = map[string]json.RawMessage

func newRule(tool, action string, more ...string) rule {
	r := rule{"tool": quoted(tool), "action": quoted(action)}
	for i := 0; i+1 < len(more); i += 2 {
		r[more[i]] = quoted(more[i+1])
	}
	return r
}

func quoted(s string) json.RawMessage {
	b, _ := schema.Encode(s)
	return b
}

// sensitive are globs of files that the program guards: it wants a consent for
// them, on a terminal, whatever its rules say. That is switched off, and a rule is
// put before the first one that allows something.
var sensitive = []string{"*/.*", "*/amp.json", "*.db", "*.sqlite", "*.sqlite3", "*.code-workspace"}

// rulesOf returns a session's rules: the user's own, of which those that ask are
// put to the client, then those of the permission mode. In a session that only reads
// none of the user's allows anything. The program takes the
// first that matches; its own, which ask on a terminal that is not there, are
// never reached. delegate is the program that asks.
func rulesOf(mode string, own []rule, delegate string) []rule {
	var out []rule
	all := func(tools []string, action string, more ...string) {
		for _, tool := range tools {
			out = append(out, newRule(tool, action, more...))
		}
	}
	if mode == permitReadonly {
		all(edits, "reject", "message", saidReadonly)
	}
	guarding := mode != permitReadonly
	for _, r := range own {
		if mode == permitReadonly && (bridge.Text(r["action"]) == "allow" || bridge.Text(r["action"]) == "delegate") {
			continue // what only reads is allowed below
		}
		if guarding && bridge.Text(r["action"]) == "allow" {
			guarding = false
			for _, tool := range edits {
				r := newRule(tool, "delegate", "to", delegate)
				r["matches"], _ = schema.Encode(map[string]any{"path": sensitive})
				out = append(out, r)
			}
		}
		if bridge.Text(r["action"]) == "ask" {
			asks := rule{}
			for k, v := range r {
				asks[k] = v
			}
			asks["action"], asks["to"] = quoted("delegate"), quoted(delegate)
			if mode == permitReadonly {
				delete(asks, "to")
				asks["action"], asks["message"] = quoted("reject"), quoted(saidReadonly)
			}
			r = asks
		}
		out = append(out, r)
	}
	all(reads, "allow")
	if mode == permitReadonly {
		return append(out, newRule("*", "reject", "message", saidReadonly))
	}
	return append(out, newRule("*", "delegate", "to", delegate))
}

// grant names what is allowed with a call for the rest of the session: this
// command in its folder, edits of files, or the tool. "" is nothing: sensitive files, those
// outside of the workspace cwd, and commands that are not understood are asked about each time.
func grant(cwd string, r *request) (key, name string) {
	var in input
	_ = bridge.Lenient(r.Input, &in) // then the path is ""
	switch {
	case r.Tool == toolBash:
		return grantCommand(cwd, r.Input)
	case slices.Contains(edits, r.Tool) && guarded(cwd, in.Path):
		return "", ""
	case slices.Contains(edits, r.Tool):
		return "edits", "edits of files"
	}
	return "tool " + r.Tool, r.Tool
}

// grantCommand is [grant] for a command. One does something else in each folder.
func grantCommand(cwd string, raw json.RawMessage) (key, name string) {
	command, dir := rawjson.MemberString(raw, "cmd"), cwd
	if asked, given := rawjson.Member(raw, "cwd"); given {
		if dir = bridge.Text(asked); dir == "" {
			return "", ""
		}
		if !filepath.IsAbs(dir) {
			dir = filepath.Join(cwd, dir)
		}
	}
	if strings.TrimSpace(command) == "" {
		return "", ""
	}
	name = "`" + bridge.OneLine(command) + "`"
	if dir = resolved(dir); dir != resolved(cwd) {
		name += " in " + dir
	}
	return "Bash " + dir + "\x00" + bridge.CommandKey(command), name
}

// guarded reports whether a file is sensitive, or outside of cwd.
func guarded(cwd, path string) bool {
	rel, err := filepath.Rel(resolved(cwd), resolved(path))
	if err != nil || path == "" || !filepath.IsLocal(rel) {
		return true
	}
	for part := range strings.SplitSeq(filepath.ToSlash(rel), "/") {
		if strings.HasPrefix(part, ".") {
			return true
		}
	}
	base := filepath.Base(rel)
	return slices.ContainsFunc(sensitive, func(glob string) bool {
		ok, err := filepath.Match(strings.TrimPrefix(glob, "*/"), base)
		return ok || err != nil
	})
}

// resolved follows the symbolic links of as much of a path as is there.
func resolved(path string) string {
	path = filepath.Clean(path)
	for dir, rest := path, ""; ; dir, rest = filepath.Dir(dir), filepath.Join(filepath.Base(dir), rest) {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			return filepath.Join(real, rest)
		}
		if dir == filepath.Dir(dir) {
			return path
		}
	}
}

// permissionRequest is the request for the client.
func permissionRequest(id schema.SessionID, cwd string, r *request, c *tool) *schema.RequestPermissionRequest {
	var before *string
	parent, shown := "", r.ID
	if c != nil {
		before, parent, shown = c.before, c.parent, bridge.FirstOf(c.id, r.ID)
	}
	l := describe(r.Tool, r.Input, before)
	out := &schema.RequestPermissionRequest{SessionID: id, ToolCall: schema.ToolCallUpdate{
		ToolCallID: schema.ToolCallID(shown), Title: &l.title, Name: &r.Tool, Kind: l.kind, Status: schema.ToolCallStatusPending,
		Content: l.content, Locations: l.locations, RawInput: r.Input,
	}}
	out.ToolCall.Meta = bridge.Own{Parent: parent}.Meta()
	offer := func(id, name string, kind schema.PermissionOptionKind) {
		out.Options = append(out.Options, schema.PermissionOption{OptionID: schema.PermissionOptionID(id), Name: name, Kind: kind})
	}
	offer(optionAllow, "Allow", schema.PermissionOptionKindAllowOnce)
	if key, name := grant(cwd, r); key != "" {
		offer(optionAlways, "Always allow "+name+" in this session", schema.PermissionOptionKindAllowAlways)
	}
	offer(optionReject, "Reject", schema.PermissionOptionKindRejectOnce)
	return out
}

// chosen turns the client's response into the answer. always says that it counts
// for the session; stop that the turn is to end.
func chosen(resp *schema.RequestPermissionResponse) (a reply, always, stop bool) {
	picked := resp.Outcome.Selected
	if picked == nil {
		return reply{Reason: saidCancel}, false, true
	}
	switch picked.OptionID {
	case optionAllow:
		return reply{Allow: true}, false, false
	case optionAlways:
		return reply{Allow: true}, true, false
	case optionReject:
		if s := rawjson.MemberString(resp.Meta[acp.MetaKey], "message"); s != "" {
			return reply{Reason: s}, false, false
		}
		return reply{Reason: saidReject}, false, false
	}
	return reply{Reason: "The client answered with an option that was not offered."}, false, false
}
