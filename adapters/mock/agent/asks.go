package agent

import (
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
)

// permission asks the client before a pretended edit. The client answers
// cancelled when the turn is cancelled, so the answer is waited for. The
// request for a tool of another kind leaves the kind to the tool call.
func (t *turn) permission(of string) (acp.StopReason, error) {
	id := t.newCall()
	title, kind := "Edit notes.txt", acp.ToolKindEdit
	asked := kind
	if of != "" {
		title, kind, asked = "Use a tool: "+of, acp.ToolKind(of), ""
	}
	err := t.send(acp.SessionUpdate{ToolCall: &acp.ToolCall{ToolCallID: id, Title: title, Kind: kind, Status: acp.ToolCallStatusPending}})
	if err != nil {
		return "", err
	}
	var answer acp.RequestPermissionResponse
	err = t.a.peer.Ask(t.ctx, acp.MethodSessionRequestPermission, &acp.RequestPermissionRequest{
		SessionID: t.s.id,
		ToolCall:  acp.ToolCallUpdate{ToolCallID: id, Title: &title, Kind: asked, Status: acp.ToolCallStatusPending},
		Options: []acp.PermissionOption{
			{OptionID: "allow_once", Name: "Allow", Kind: acp.PermissionOptionKindAllowOnce},
			{OptionID: "allow_always", Name: "Always allow", Kind: acp.PermissionOptionKindAllowAlways},
			{OptionID: "reject_once", Name: "Reject", Kind: acp.PermissionOptionKindRejectOnce},
		},
	}, &answer)
	said, status, reason := "", acp.ToolCallStatusFailed, acp.StopReasonEndTurn
	switch chosen := answer.Outcome.Selected; {
	case err != nil:
		said = "permission error: " + err.Error()
	case chosen == nil:
		reason = acp.StopReasonCancelled
	default:
		said = "permission: " + string(chosen.OptionID)
		if strings.HasPrefix(string(chosen.OptionID), "allow") {
			status = acp.ToolCallStatusCompleted
		}
	}
	if said != "" {
		if err := t.say(said); err != nil {
			return "", err
		}
	}
	return reason, t.progress(id, status)
}

func (t *turn) stop(reason string) (acp.StopReason, error) { return acp.StopReason(reason), nil }

func (t *turn) question(rest string) (acp.StopReason, error) {
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
		return acp.StopReasonEndTurn, t.say("question error: " + err.Error())
	}
	switch answer.Outcome {
	case acp.QuestionAnswered:
		b, err := acp.Encode(answer.Answers)
		if err != nil {
			return "", err
		}
		return acp.StopReasonEndTurn, t.say("answers: " + string(b))
	case acp.QuestionCancelled:
		return acp.StopReasonCancelled, nil
	}
	return acp.StopReasonEndTurn, t.say("question " + string(answer.Outcome))
}

func (t *turn) readFile(path string) (acp.StopReason, error) {
	var file acp.ReadTextFileResponse
	err := t.a.peer.Ask(t.ctx, acp.MethodFSReadTextFile, &acp.ReadTextFileRequest{SessionID: t.s.id, Path: path}, &file)
	if err != nil {
		return acp.StopReasonEndTurn, t.say("fs error: " + err.Error())
	}
	return acp.StopReasonEndTurn, t.say(file.Content)
}

// terminal runs a command in a terminal of the client and says its output. A
// cancelled turn kills the command.
func (t *turn) terminal(line string) (acp.StopReason, error) {
	output, err := t.runInTerminal(line)
	if err != nil {
		return acp.StopReasonEndTurn, t.say("terminal error: " + err.Error())
	}
	return acp.StopReasonEndTurn, t.say(output)
}

func (t *turn) runInTerminal(line string) (output string, err error) {
	p, s := t.a.peer, t.s.id
	var created acp.CreateTerminalResponse
	create := &acp.CreateTerminalRequest{SessionID: s, Command: "sh", Args: []string{"-c", line}, Cwd: new(t.s.cwd())}
	if err := p.Ask(t.ctx, acp.MethodTerminalCreate, create, &created); err != nil {
		return "", err
	}
	id := created.TerminalID
	defer func() {
		releaseErr := p.Ask(t.ctx, acp.MethodTerminalRelease, &acp.ReleaseTerminalRequest{SessionID: s, TerminalID: id}, nil)
		if err == nil {
			err = releaseErr
		}
	}()
	ctx, cancel := t.untilCancelled()
	defer cancel()
	var exit acp.WaitForTerminalExitResponse
	if err := p.Ask(ctx, acp.MethodTerminalWaitForExit, &acp.WaitForTerminalExitRequest{SessionID: s, TerminalID: id}, &exit); err != nil {
		if ctx.Err() == nil {
			return "", err
		}
		if err := p.Ask(t.ctx, acp.MethodTerminalKill, &acp.KillTerminalRequest{SessionID: s, TerminalID: id}, nil); err != nil {
			return "", err
		}
	}
	var out acp.TerminalOutputResponse
	if err := p.Ask(t.ctx, acp.MethodTerminalOutput, &acp.TerminalOutputRequest{SessionID: s, TerminalID: id}, &out); err != nil {
		return "", err
	}
	return out.Output, nil
}
