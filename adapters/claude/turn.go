package claude

import (
	"fmt"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge/turn"
)

// work is what is known of a prompt that the program works on. The session's mu
// guards it.
type work struct {
	uuid    string          // of the prompt's line
	failure string          // the kind of error that the program reported of it
	status  int             // of the API with it
	left    map[string]bool // tasks that ran before it
}

// beside reports whether what subagents ask is not of the turn: an earlier one has left them behind.
func (t *work) beside(r *controlRequest) bool {
	return len(r.tasks) > 0 && !slices.ContainsFunc(r.tasks, func(task string) bool { return !t.left[task] })
}

// answers reports whether a result ends the turn. Turns that nobody prompted
// end with results of their own. Newer programs name the prompts; a prompt that
// was folded into another turn is named too.
func (t *work) answers(e *event) bool {
	if len(e.Prompts) > 0 {
		return slices.Contains(e.Prompts, t.uuid)
	}
	return e.Origin == nil || e.Origin.Kind == "" || e.Origin.Kind == "human"
}

// note takes what a line says about the turn's error.
func (t *work) note(e *event) {
	if e.Parent != "" || e.Error == "" {
		return
	}
	switch {
	case e.Type == "assistant", e.Type == "system" && e.Subtype == "api_retry" && e.Error == errAuth:
		t.failure = e.Error
		if e.ErrorStatus != nil {
			t.status = *e.ErrorStatus
		}
	}
}

// judge turns a result into what the prompt's response says.
func (t *work) judge(e *event) turn.Verdict {
	if t.failure == errAuth || e.IsError && e.APIStatus != nil && (*e.APIStatus == 401) {
		return turn.Verdict{Err: authRequired(t.reason(e))}
	}
	aborted := strings.HasPrefix(e.TerminalReason, "aborted_")
	switch {
	case aborted:
		return turn.Verdict{Reason: schema.StopReasonCancelled}
	case e.Subtype == "error_max_turns" || e.Subtype == "error_max_budget_usd":
		return turn.Verdict{Reason: schema.StopReasonMaxTurnRequests}
	case e.StopReason == "refusal":
		return turn.Verdict{Reason: schema.StopReasonRefusal}
	case t.failure == "max_output_tokens" || !e.IsError && e.StopReason == "max_tokens":
		return turn.Verdict{Reason: schema.StopReasonMaxTokens}
	case !e.IsError:
		return turn.Verdict{Reason: schema.StopReasonEndTurn}
	}
	data := map[string]any{"type": adapters.ErrorType("agent_error"), "kind": bridge.FirstOf(t.failure, e.TerminalReason, e.Subtype)}
	if e.APIStatus != nil {
		data["status"] = *e.APIStatus
	}
	return turn.Verdict{Err: acp.Errorf(acp.CodeInternal, "%s", t.reason(e)).WithData(data)}
}

// reason says in words why a turn failed.
func (t *work) reason(e *event) string {
	switch {
	case e.Result != "":
		return e.Result
	case t.failure == errAuth && t.status != 0:
		return fmt.Sprintf("the API refused the credentials with status %d", t.status)
	case len(e.Errors) > 0 && !strings.HasPrefix(e.Errors[0], "[ede_diagnostic]"):
		return strings.Join(e.Errors, "; ")
	}
	return "the turn failed: " + bridge.FirstOf(t.failure, e.TerminalReason, e.Subtype)
}
