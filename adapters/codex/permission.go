package codex

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// choice is one option of a request for a permission, and what it means.
type choice struct {
	option schema.PermissionOption
	answer any
}

func offer(id, name string, kind schema.PermissionOptionKind, answer any) choice {
	return choice{schema.PermissionOption{OptionID: schema.PermissionOptionID(id), Name: name, Kind: kind}, answer}
}

func decision(d any) any { return map[string]any{"decision": d} }

func elicited(a string, meta any) any {
	return map[string]any{"action": a, "content": nil, "_meta": meta}
}

// cancelled is the answer to a question whose turn is broken off.
func (q *question) cancelled() any {
	switch q.Method {
	case "item/tool/requestUserInput":
		return map[string]any{"answers": map[string]any{}}
	case "mcpServer/elicitation/request":
		return elicited("cancel", nil)
	case "item/permissions/requestApproval":
		return map[string]any{"permissions": map[string]any{}, "scope": "turn"}
	}
	return decision("cancel")
}

// declined is the answer to a question that is not granted, and whose turn goes on.
func (q *question) declined() any {
	if q.Method == "item/tool/requestUserInput" {
		return q.cancelled()
	}
	all := q.choices()
	return all[len(all)-1].answer // the last one rejects
}

// choices are what can be answered to a question about a permission.
func (q *question) choices() []choice {
	const once, always, reject = schema.PermissionOptionKindAllowOnce, schema.PermissionOptionKindAllowAlways, schema.PermissionOptionKindRejectOnce
	switch q.Method {
	case "item/permissions/requestApproval":
		granted := q.Permissions
		if len(granted) == 0 {
			granted = json.RawMessage("{}")
		}
		return []choice{
			offer("allow_once", "Allow for this turn", once, map[string]any{"permissions": granted, "scope": "turn"}),
			offer("allow_session", "Allow in this session", always, map[string]any{"permissions": granted, "scope": "session"}),
			offer("reject_once", "Reject", reject, map[string]any{"permissions": map[string]any{}, "scope": "turn"}),
		}
	case "mcpServer/elicitation/request":
		out := []choice{offer("allow_once", "Allow", once, elicited("accept", nil))}
		if q.Meta != nil && slices.Contains(q.Meta.Persist, "session") {
			out = append(out, offer("allow_session", "Allow in this session", always, elicited("accept", map[string]string{"persist": "session"})))
		}
		if q.Meta != nil && slices.Contains(q.Meta.Persist, "always") {
			out = append(out, offer(optionRule, "Always allow, in all sessions", always, elicited("accept", map[string]string{"persist": "always"})))
		}
		return append(out, offer("reject_once", "Reject", reject, elicited("decline", nil)))
	}
	out := []choice{
		offer("allow_once", "Allow", once, decision("accept")),
		offer("allow_session", "Allow in this session", always, decision("acceptForSession")),
	}
	if len(q.Amendment) > 0 {
		name := "Always allow commands that begin with " + bridge.OneLine(strings.Join(q.Amendment, " ")) + ", in all sessions"
		out = append(out, offer(optionRule, name, always, decision(map[string]any{
			"acceptWithExecpolicyAmendment": map[string]any{"execpolicy_amendment": q.Amendment},
		})))
	}
	return append(out, offer("reject_once", "Reject", reject, decision("decline")))
}

// optionRule is the option that is written to a file of codex's.
const optionRule = "allow_rule"

// grant is what the client allows with an option for longer than a turn. call is how it was shown, home is codex's folder.
func (q *question) grant(option string, call *schema.ToolCallUpdate, home string) bridge.Grant {
	title := ""
	if call.Title != nil {
		title = *call.Title
	}
	var key []string
	switch q.Method {
	case "mcpServer/elicitation/request":
		key, title = []string{"mcp", q.Server}, "the MCP server "+bridge.OneLine(q.Server)
		if q.Meta != nil && q.Meta.Tool != "" {
			key, title = append(key, q.Meta.Tool), bridge.OneLine(q.Meta.Tool+" of the MCP server "+q.Server)
		}
	case "item/permissions/requestApproval":
		key = []string{"permissions", string(q.Permissions)}
	case "item/commandExecution/requestApproval":
		command := commandOf(q.Command, q.Actions)
		key, title = []string{"command", q.Cwd, bridge.CommandKey(command)}, "`"+bridge.OneLine(command)+"`"
	default: // edits: codex says only which call it is
		key = []string{"edits", bridge.CommandKey(title), q.ItemID}
	}
	if option != optionRule {
		g := bridge.Given(strings.Join(key, " "), title, call.Kind)
		g.Process = true
		return g
	}
	file := filepath.Join(home, "config.toml")
	if len(q.Amendment) > 0 {
		key = append([]string{"prefix_rule"}, string(encoded(q.Amendment)))
		title, file = "commands that begin with "+bridge.OneLine(strings.Join(q.Amendment, " ")), filepath.Join(home, "rules", "default.rules")
	}
	g := bridge.Given(strings.Join(key, " "), title, call.Kind)
	g.File = file
	return g
}

// permission is the request for the client, with what can be answered.
func (t *translator) permission(id schema.SessionID, q *question) (*schema.RequestPermissionRequest, []choice) {
	list := q.choices()
	req := &schema.RequestPermissionRequest{SessionID: id, ToolCall: t.about(q)}
	for _, c := range list {
		req.Options = append(req.Options, c.option)
	}
	more := map[string]any{}
	if q.Reason != "" {
		more["reason"] = q.Reason
	}
	if q.GrantRoot != "" {
		more["grantRoot"] = q.GrantRoot
	}
	if len(q.Permissions) > 0 {
		more["permissions"] = q.Permissions
	}
	if v := rawOrNil(q.Network); v != nil {
		more["network"] = v
	}
	if len(more) > 0 {
		req.Meta = bridge.Meta(more)
	}
	return req, list
}

// about is the tool call that a question is about.
func (t *translator) about(q *question) schema.ToolCallUpdate {
	if q.Method == "mcpServer/elicitation/request" {
		q.ItemID = t.calling(q)
	}
	out := schema.ToolCallUpdate{ToolCallID: t.shownID(q.ItemID), Status: schema.ToolCallStatusPending, Meta: t.parentMeta(t.children[q.Thread])}
	if s := t.items[q.ItemID]; s != nil && s.call {
		l := describe(s.item)
		out.Title, out.Kind, out.Content, out.Locations, out.RawInput = &l.title, l.kind, l.content, l.locations, encoded(l.input)
		if q.Reason != "" {
			out.Content = append(bridge.TextContent(q.Reason), out.Content...)
		}
		return out
	}
	// It is shown by the request alone.
	out.Kind = schema.ToolKindOther
	title := bridge.FirstOf(bridge.OneLine(q.Message), "Permission")
	switch q.Method {
	case "item/commandExecution/requestApproval":
		title = bridge.FirstOf(bridge.OneLine(commandOf(q.Command, q.Actions)), "Command")
		out.Kind, out.Locations = actionsOf(q.Actions, q.Cwd)
		out.RawInput = encoded(map[string]any{"command": commandOf(q.Command, q.Actions), "cwd": q.Cwd})
	case "item/fileChange/requestApproval":
		title, out.Kind = "Edit files", schema.ToolKindEdit
	case "item/permissions/requestApproval":
		title = "More permissions"
		out.RawInput = encoded(rawOrNil(q.Permissions))
	case "mcpServer/elicitation/request":
		if q.Meta != nil {
			out.RawInput = encoded(rawOrNil(q.Meta.Params))
		}
	}
	if q.Reason != "" {
		out.Content = bridge.TextContent(q.Reason)
	}
	out.Title = &title
	if out.ToolCallID == "" {
		out.ToolCallID = schema.ToolCallID("permission-" + bridge.FirstOf(q.TurnID, q.Thread))
	}
	return out
}

// calling is the newest open call of the tool that a question is about.
func (t *translator) calling(q *question) string {
	for _, id := range slices.Backward(t.order) {
		s := t.items[id]
		if !s.over && s.item.Type == "mcpToolCall" && s.item.Server == q.Server && s.thread == q.Thread && (q.Meta == nil || s.item.Tool == q.Meta.Tool) {
			return id
		}
	}
	return ""
}
