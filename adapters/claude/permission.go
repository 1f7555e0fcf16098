package claude

import (
	"encoding/json"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// The permission modes, by the program's names.
const (
	modeDefault     = "default"
	modeAcceptEdits = "acceptEdits"
	modePlan        = "plan"
	modeAuto        = "auto"
	modeDontAsk     = "dontAsk"
	modeBypass      = "bypassPermissions"
)

// forSession is the destination of all changes of permissions that a client
// chooses. Other destinations are files of the user's, and are ignored in
// folders that nobody has declared trusted.
const forSession = "session"

const (
	optionAllow  = "allow"
	optionAlways = "allow_always"
	optionReject = "reject"
)

// Messages that the model gets in place of a result.
const (
	saidReject   = "The user rejected this tool call. Do not try it again in another way; ask what to do instead if it is unclear."
	saidCancel   = "The user cancelled the turn."
	saidBeside   = "The user cancelled what another agent does, and did not decide about this call. Make it again if it is still needed."
	saidKeepPlan = "The user rejected the plan. Stay in plan mode, ask what to change, and revise it."
)

// answer is what the program is told about a call.
type answer struct {
	Behavior    string          `json:"behavior"`
	Input       json.RawMessage `json:"updatedInput,omitempty"`
	Permissions []suggestion    `json:"updatedPermissions,omitempty"`
	Message     string          `json:"message,omitempty"`
	Interrupt   bool            `json:"interrupt,omitempty"`
}

func deny(message string) answer { return answer{Behavior: "deny", Message: message} }

// allow lets a call go on. The input has to be there, even unchanged.
func allow(r *controlRequest, more ...suggestion) answer {
	in := r.Input
	if len(in) == 0 {
		in = json.RawMessage("{}")
	}
	return answer{Behavior: "allow", Input: in, Permissions: more}
}

// choice is one option of a request for a permission, and what it means.
type choice struct {
	option schema.PermissionOption
	answer answer
}

func offer(id, name string, kind schema.PermissionOptionKind, a answer) choice {
	return choice{schema.PermissionOption{OptionID: schema.PermissionOptionID(id), Name: name, Kind: kind}, a}
}

// choicesOf returns what can be answered to a request. modes are those that the
// session can have.
func choicesOf(r *controlRequest, modes []string) []choice {
	if r.ToolName == "ExitPlanMode" {
		return planChoices(r, modes)
	}
	out := []choice{offer(optionAllow, "Allow", schema.PermissionOptionKindAllowOnce, allow(r))}
	var always, folders []suggestion
	var names, paths []string
	for _, s := range r.Suggestions {
		s.Destination = forSession
		switch {
		case s.Type == "addRules" && s.Behavior == "allow":
			always = append(always, s)
			for _, rule := range s.Rules {
				names = append(names, ruleName(rule))
			}
		case s.Type == "addDirectories":
			folders = append(folders, s)
			paths = append(paths, s.Directories...)
		}
	}
	for _, s := range r.Suggestions {
		if s.Type != "setMode" {
			continue
		}
		s.Destination = forSession
		name := "Allow, and go on in mode " + s.Mode
		if s.Mode == modeAcceptEdits {
			name = "Allow, and accept all edits in this session"
		}
		if len(paths) > 0 {
			// Outside of the workspace neither the mode nor the folder is enough for the
			// next one.
			name += ", also in " + strings.Join(paths, " and ")
		}
		out = append(out, offer("allow_mode_"+s.Mode, name, schema.PermissionOptionKindAllowAlways, allow(r, append(slices.Clone(folders), s)...)))
	}
	if len(always) > 0 || len(out) == 1 && len(folders) > 0 {
		always = append(always, folders...)
		for _, d := range paths {
			names = append(names, "access to "+d)
		}
		name := "Always allow " + strings.Join(names, " and ") + " in this session"
		out = slices.Insert(out, 1, offer(optionAlways, name, schema.PermissionOptionKindAllowAlways, allow(r, always...)))
	}
	return append(out, offer(optionReject, "Reject", schema.PermissionOptionKindRejectOnce, deny(saidReject)))
}

func ruleName(r permissionRule) string {
	if r.Content == "" {
		return r.ToolName
	}
	return r.ToolName + "(" + r.Content + ")"
}

// planChoices are the modes in which a plan that was accepted is carried out.
func planChoices(r *controlRequest, modes []string) []choice {
	in := func(mode string) answer {
		return allow(r, suggestion{Type: "setMode", Mode: mode, Destination: forSession})
	}
	out := []choice{
		offer(modeDefault, "Yes, and ask before each edit", schema.PermissionOptionKindAllowOnce, in(modeDefault)),
		offer(modeAcceptEdits, "Yes, and accept all edits", schema.PermissionOptionKindAllowAlways, in(modeAcceptEdits)),
	}
	if slices.Contains(modes, modeAuto) {
		out = append(out, offer(modeAuto, "Yes, and let the model decide what needs a permission", schema.PermissionOptionKindAllowAlways, in(modeAuto)))
	}
	if slices.Contains(modes, modeBypass) {
		out = append(out, offer(modeBypass, "Yes, and allow everything", schema.PermissionOptionKindAllowAlways, in(modeBypass)))
	}
	return append(out, offer(optionReject, "No, keep planning", schema.PermissionOptionKindRejectOnce, deny(saidKeepPlan)))
}

// permissionRequest is the request for the client.
func permissionRequest(id schema.SessionID, r *controlRequest, list []choice) *schema.RequestPermissionRequest {
	in := r.Input
	if r.shown != nil {
		in = r.shown
	}
	l := describe(r.ToolName, in, r.before)
	if r.DisplayName != "" && l.title == r.ToolName {
		l.title = r.DisplayName
	}
	out := &schema.RequestPermissionRequest{SessionID: id, ToolCall: schema.ToolCallUpdate{
		ToolCallID: r.call, Title: &l.title, Name: &r.ToolName, Kind: l.kind, Status: schema.ToolCallStatusPending,
		Content: l.content, Locations: l.locations, RawInput: in,
	}}
	out.ToolCall.Meta = r.within
	about := map[string]string{}
	if r.Reason != "" {
		about["reason"] = r.Reason
	}
	if r.BlockedPath != "" {
		about["blockedPath"] = r.BlockedPath
	}
	if len(about) > 0 {
		out.Meta = bridge.Meta(about)
	}
	for _, c := range list {
		out.Options = append(out.Options, c.option)
	}
	return out
}

// chosen turns the client's response into the answer.
func chosen(resp *schema.RequestPermissionResponse, list []choice) answer {
	picked := resp.Outcome.Selected
	if picked == nil {
		a := deny(saidCancel)
		a.Interrupt = true
		return a
	}
	for _, c := range list {
		if c.option.OptionID != picked.OptionID {
			continue
		}
		a := c.answer
		if s := rawjson.MemberString(resp.Meta[acp.MetaKey], "message"); s != "" && a.Behavior == "deny" {
			a.Message = s
		}
		return a
	}
	return deny("The client answered with an option that was not offered.")
}
