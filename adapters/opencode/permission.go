package opencode

import (
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// The options of a permission.
const (
	optionOnce   = "once"
	optionAlways = "always"
	optionReject = "reject"
	optionStop   = "reject_stop"
)

// rejected is what the model is told when the user says no and no more.
const rejected = "The user does not allow this. Go on without it, or ask how to proceed."

// permission is the request for the client, and what has to be shown before it.
func (t *translator) permission(id schema.SessionID, session string, q *ask) (*schema.RequestPermissionRequest, []schema.SessionUpdate) {
	meta := decoded[metadata](q.Metadata)
	c := schema.ToolCallUpdate{ToolCallID: schema.ToolCallID(q.ID), Status: schema.ToolCallStatusPending, Meta: t.parentMeta(session)}
	what := bridge.OneLine(bridge.FirstOf(meta.Command, strings.Join(q.Patterns, ", ")))
	l := look{title: bridge.OneLine(strings.TrimSpace(q.Permission + " " + what)), kind: schema.ToolKindOther}
	path := t.absolute(meta.FilePath)
	switch q.Permission {
	case "bash":
		l.title, l.kind = bridge.FirstOf(what, "Command"), schema.ToolKindExecute
	case "edit":
		l.title, l.kind = bridge.FirstOf(what, "Edit"), schema.ToolKindEdit
		l.locations = bridge.At(path, 0)
		l.content = diffOf(path, meta.Diff)
	case "read":
		l.kind = schema.ToolKindRead
	case "external_directory":
		l.title = bridge.FirstOf("Outside of the workspace: "+bridge.FirstOf(meta.FilePath, what), l.title)
		l.locations = bridge.At(path, 0)
	case "doom_loop":
		l.title = "The same call again and again: " + what
	case "webfetch", "websearch":
		l.kind = schema.ToolKindFetch
	}
	var before []schema.SessionUpdate
	if s := t.asking(q); s != nil {
		c.ToolCallID = schema.ToolCallID(s.id)
		if q.Permission == "edit" {
			s.hunks = l.content
		}
		if s.look.kind != schema.ToolKindOther && s.look.kind != "" {
			l.kind = s.look.kind
		}
	} else if session == t.root || t.children[session] != nil {
		// Nothing was shown of the call, so that this announces it.
		s := t.remember(&part{ID: q.ID, Session: session, Type: "tool"})
		s.tool, s.look = q.Permission, l
		before = t.announce(s, &toolState{Input: q.Metadata})
	}
	if session != t.root {
		l.title = "Subagent: " + l.title
	}
	c.Title, c.Kind, c.Locations, c.Content = &l.title, l.kind, l.locations, l.content
	if !empty(q.Metadata) {
		c.RawInput = q.Metadata
	}
	req := &schema.RequestPermissionRequest{SessionID: id, ToolCall: c}
	offer := func(option, name string, kind schema.PermissionOptionKind) {
		req.Options = append(req.Options, schema.PermissionOption{OptionID: schema.PermissionOptionID(option), Name: name, Kind: kind})
	}
	offer(optionOnce, "Allow once", schema.PermissionOptionKindAllowOnce)
	if len(q.Always) > 0 {
		offer(optionAlways, "Allow in this session: "+scope(q.Permission, q.Always), schema.PermissionOptionKindAllowAlways)
	}
	offer(optionReject, "Reject", schema.PermissionOptionKindRejectOnce)
	offer(optionStop, "Reject and end the turn", schema.PermissionOptionKindRejectOnce)
	req.Meta = bridge.Meta(map[string]any{"permission": q.Permission, "patterns": q.Patterns, "always": q.Always})
	return req, before
}

// asking is the call that a permission is for, nil when it is not known.
func (t *translator) asking(q *ask) *shown {
	if q.Tool == nil {
		return nil
	}
	return t.parts[t.calls[q.Tool.Message+" "+q.Tool.Call]]
}

// besides reports whether the message that asks has other calls that are open.
func (t *translator) besides(q *ask) bool {
	if q.Tool == nil {
		return false
	}
	for _, s := range t.parts {
		if s.kind == "tool" && !s.over && s.message == q.Tool.Message && s != t.asking(q) {
			return true
		}
	}
	return false
}

// decided shows that an asked call goes on, or that one is over which the
// request alone had announced.
func (t *translator) decided(q *ask, allowed bool) []schema.SessionUpdate {
	if s := t.parts[q.ID]; s != nil && !s.over {
		s.over = true
		u := t.update(s, schema.ToolCallStatusCompleted)
		if !allowed {
			u.Status = schema.ToolCallStatusFailed
		}
		return []schema.SessionUpdate{{ToolCallUpdate: u}}
	}
	if s := t.asking(q); s != nil && !s.over && allowed {
		return t.fresh(s, t.update(s, schema.ToolCallStatusInProgress))
	}
	return nil
}

// scope names what is allowed when a permission is given for more than once.
func scope(permission string, patterns []string) string {
	all := len(patterns) == 1 && patterns[0] == "*"
	list := bridge.OneLine(strings.Join(patterns, ", "))
	switch {
	case permission == "bash":
		return "commands like " + list
	case permission == "edit" && all:
		return "every edit"
	case permission == "external_directory":
		return "everything below " + list
	case all:
		return "every use of " + permission
	}
	return permission + " of " + list
}
