package agent

import (
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// optionAlways allows such a call for the session.
const optionAlways = "allow_always"

// optionBefore is the answer to what is not asked, because it was always allowed.
const optionBefore = "allowed before"

// permission asks the client before a pretended edit. The client answers
// cancelled when the turn is cancelled, so the answer is waited for. The
// request for a tool of another kind leaves the kind to the tool call.
func (t *turn) permission(of string) (schema.StopReason, error) {
	id := t.newCall()
	title, kind := "Edit notes.txt", schema.ToolKindEdit
	asked := kind
	if of != "" {
		title, kind, asked = "Use a tool: "+of, schema.ToolKind(of), ""
	}
	err := t.send(schema.SessionUpdate{ToolCall: &schema.ToolCall{ToolCallID: id, Title: title, Kind: kind, Status: schema.ToolCallStatusPending}})
	if err != nil {
		return "", err
	}
	answer, err := t.allowed(kind, schema.ToolCallUpdate{ToolCallID: id, Title: &title, Kind: asked, Status: schema.ToolCallStatusPending})
	said, status, reason := "", schema.ToolCallStatusFailed, schema.StopReasonEndTurn
	switch chosen := answer.Outcome.Selected; {
	case err != nil:
		said = "permission error: " + err.Error()
	case chosen == nil:
		reason = schema.StopReasonCancelled
	default:
		said = "permission: " + string(chosen.OptionID)
		if strings.HasPrefix(string(chosen.OptionID), "allow") {
			status = schema.ToolCallStatusCompleted
		}
	}
	if said != "" {
		if err := t.say(said); err != nil {
			return "", err
		}
	}
	return reason, t.progress(id, status)
}

// allowed asks for the permission to make a call with a title, unless such a call was always allowed. In the mode plan that counts
// for nothing.
func (t *turn) allowed(kind schema.ToolKind, call schema.ToolCallUpdate) (answer schema.RequestPermissionResponse, err error) {
	if t.s.allows(*call.Title) {
		answer.Outcome.Selected = &schema.SelectedPermissionOutcome{OptionID: optionBefore}
		return answer, nil
	}
	err = t.a.peer.Ask(t.ctx, acp.MethodSessionRequestPermission, &schema.RequestPermissionRequest{
		SessionID: t.s.id,
		ToolCall:  call,
		Options: []schema.PermissionOption{
			{OptionID: "allow_once", Name: "Allow", Kind: schema.PermissionOptionKindAllowOnce},
			{OptionID: optionAlways, Name: "Always allow", Kind: schema.PermissionOptionKindAllowAlways},
			{OptionID: "reject_once", Name: "Reject", Kind: schema.PermissionOptionKindRejectOnce},
		},
	}, &answer)
	if chosen := answer.Outcome.Selected; err == nil && chosen != nil && chosen.OptionID == optionAlways {
		err = t.s.change(func(in *info) { in.Granted.Add(bridge.Given(*call.Title, *call.Title, kind)) })
	}
	return answer, err
}

func (t *turn) stop(reason string) (schema.StopReason, error) { return schema.StopReason(reason), nil }

func (t *turn) question(rest string) (schema.StopReason, error) {
	r := &acp.QuestionRequest{SessionID: t.s.id, Questions: []acp.Question{{
		ID: "color", Header: "Color", Question: "Which color do you like?",
		Options: []acp.QuestionOption{{Label: "Red", Description: "Like fire"}, {Label: "Blue", Description: "Like the sea"}},
	}}}
	if rest == "2" {
		r.Questions = append(r.Questions, acp.Question{
			ID: "fruit", Header: "Fruit", Question: "Which fruits do you eat?", MultiSelect: true,
			Options: []acp.QuestionOption{{Label: "Apple", Description: "Grows here"}, {Label: "Mango", Description: "Grows far away"}, {Label: "Plum", Description: "Grows here too"}},
		})
	}
	var answer acp.QuestionResponse
	if err := t.a.peer.Ask(t.ctx, acp.MethodRequestQuestion, r, &answer); err != nil {
		return schema.StopReasonEndTurn, t.say("question error: " + err.Error())
	}
	switch answer.Outcome {
	case acp.QuestionAnswered:
		b, err := schema.Encode(answer.Answers)
		if err != nil {
			return "", err
		}
		return schema.StopReasonEndTurn, t.say("answers: " + string(b))
	case acp.QuestionCancelled:
		return schema.StopReasonCancelled, nil
	}
	return schema.StopReasonEndTurn, t.say("question " + string(answer.Outcome))
}

func (t *turn) readFile(path string) (schema.StopReason, error) {
	if t.a.second.isTwo() {
		return endTurn(t.say("fs error: clients of version 2 have no files"))
	}
	var file schema.ReadTextFileResponse
	err := t.a.peer.Ask(t.ctx, acp.MethodFSReadTextFile, &schema.ReadTextFileRequest{SessionID: t.s.id, Path: path}, &file)
	if err != nil {
		return schema.StopReasonEndTurn, t.say("fs error: " + err.Error())
	}
	return schema.StopReasonEndTurn, t.say(file.Content)
}

// terminal runs a command in a terminal of the client and says its output. A
// cancelled turn kills the command.
func (t *turn) terminal(line string) (schema.StopReason, error) {
	if t.a.second.isTwo() {
		return endTurn(t.say("terminal error: clients of version 2 have no terminals"))
	}
	output, err := t.runInTerminal(line)
	if err != nil {
		return schema.StopReasonEndTurn, t.say("terminal error: " + err.Error())
	}
	return schema.StopReasonEndTurn, t.say(output)
}

func (t *turn) runInTerminal(line string) (output string, err error) {
	p, s := t.a.peer, t.s.id
	var created schema.CreateTerminalResponse
	create := &schema.CreateTerminalRequest{SessionID: s, Command: "sh", Args: []string{"-c", line}, Cwd: new(t.s.cwd())}
	if err := p.Ask(t.ctx, acp.MethodTerminalCreate, create, &created); err != nil {
		return "", err
	}
	id := created.TerminalID
	defer func() {
		releaseErr := p.Ask(t.ctx, acp.MethodTerminalRelease, &schema.ReleaseTerminalRequest{SessionID: s, TerminalID: id}, nil)
		if err == nil {
			err = releaseErr
		}
	}()
	ctx, cancel := t.untilCancelled()
	defer cancel()
	var exit schema.WaitForTerminalExitResponse
	if err := p.Ask(ctx, acp.MethodTerminalWaitForExit, &schema.WaitForTerminalExitRequest{SessionID: s, TerminalID: id}, &exit); err != nil {
		if ctx.Err() == nil {
			return "", err
		}
		if err := p.Ask(t.ctx, acp.MethodTerminalKill, &schema.KillTerminalRequest{SessionID: s, TerminalID: id}, nil); err != nil {
			return "", err
		}
	}
	var out schema.TerminalOutputResponse
	if err := p.Ask(t.ctx, acp.MethodTerminalOutput, &schema.TerminalOutputRequest{SessionID: s, TerminalID: id}, &out); err != nil {
		return "", err
	}
	return out.Output, nil
}
