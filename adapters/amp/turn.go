package amp

import (
	"regexp"
	"strconv"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// turn is a prompt that the program works on.
type turn struct {
	done      chan verdict  // cap 1
	cut       chan struct{} // cap 1: its last message was cut short
	stop      chan struct{} // cap 1: a client wants it to end, by its answer to a question
	cancelled bool          // guarded by the session's mu
	settled   bool          // done has its verdict; guarded by the session's mu
}

// verdict is how a turn ended.
type verdict struct {
	reason schema.StopReason
	err    error
}

// over says how a message ends the turn, and whether it does. A message without
// calls is the last one. Of one that was cut short the program does not say why:
// then cut is true, and an error may follow.
func over(e *event) (v verdict, ends, cut bool) {
	if e.Type != "assistant" || e.Parent != "" || e.Message.calls() {
		return verdict{}, false, false
	}
	switch e.Message.Stop {
	case "tool_use", "pause_turn":
		return verdict{}, false, false
	case "max_tokens":
		return verdict{reason: schema.StopReasonMaxTokens}, true, false
	case "refusal":
		return verdict{reason: schema.StopReasonRefusal}, true, false
	case "":
		return verdict{}, false, true
	}
	return verdict{reason: schema.StopReasonEndTurn}, true, false
}

// statusOf finds the HTTP status that an error begins with.
var statusOf = regexp.MustCompile(`^(\d{3})\b`)

// unauthorized is in errors about credentials that do not begin with a status.
var unauthorized = regexp.MustCompile(`(?i)\b(unauthorized|invalid (or missing )?api key|authentication_error|log ?in again|not logged in)\b`)

// judge turns a result into how the turn ended.
func judge(e *event) verdict {
	text := strings.TrimSpace(e.Error)
	status := 0
	if m := statusOf.FindString(text); m != "" {
		status, _ = strconv.Atoi(m)
	}
	switch {
	case !e.IsError:
		return verdict{reason: schema.StopReasonEndTurn}
	case strings.HasPrefix(text, "User cancelled"):
		return verdict{reason: schema.StopReasonCancelled}
	case e.Subtype == "error_max_turns":
		return verdict{reason: schema.StopReasonMaxTurnRequests}
	case status == 401 || unauthorized.MatchString(text):
		return verdict{err: authRequired(text)}
	case text == "":
		text = "amp ended the turn with " + e.Subtype
	}
	data := map[string]any{"type": "urn:sandbox-agent:error:agent_error", "kind": e.Subtype}
	if status != 0 {
		data["status"] = status
	}
	return verdict{err: acp.Errorf(acp.CodeInternal, "%s", text).WithData(data)}
}

// judgeCut turns the reason that the thread's copy gives for a message that was
// cut short into how the turn ended.
func judgeCut(reason string) verdict {
	switch {
	case reason == "" || reason == "max_tokens":
		return verdict{reason: schema.StopReasonMaxTokens}
	case strings.Contains(reason, "refused to respond"):
		return verdict{reason: schema.StopReasonRefusal}
	}
	return judge(&event{Type: "result", Subtype: "error_during_execution", IsError: true, Error: reason})
}
