package amp

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/pattern"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge/turn"
)

// work is what is known of a prompt that the program works on.
type work struct {
	p     *proc     // that works on it; guarded by the session's mu
	given time.Time // when the program got the prompt; guarded by the session's mu
	cut   bool      // its last message was cut short; the reader's own
}

// over says how a message ends the turn, and whether it does. A message without
// calls is the last one. Of one that was cut short the program does not say why:
// then cut is true, and an error may follow.
func over(e *event) (v turn.Verdict, ends, cut bool) {
	if e.Type != "assistant" || e.Parent != "" || e.Message.calls() {
		return turn.Verdict{}, false, false
	}
	switch e.Message.Stop {
	case "tool_use", "pause_turn":
		return turn.Verdict{}, false, false
	case "max_tokens":
		return turn.Verdict{Reason: schema.StopReasonMaxTokens}, true, false
	case "refusal":
		return turn.Verdict{Reason: schema.StopReasonRefusal}, true, false
	case "":
		return turn.Verdict{}, false, true
	}
	return turn.Verdict{Reason: schema.StopReasonEndTurn}, true, false
}

// repeats reports whether a line repeats a prompt: the program has taken it.
func (e *event) repeats() bool {
	if e.Type != "user" || e.Parent != "" {
		return false
	}
	return slices.ContainsFunc(e.Message.blocks(), func(b block) bool { return b.Type == "text" })
}

// repeats reports whether a release is known to repeat prompts.
func repeats(version string) bool { return version != "" && !onServer(version) }

// statusOf finds the HTTP status that an error begins with.
var statusOf = pattern.New(`^(\d{3})\b`)

// unauthorized is in errors about credentials that do not begin with a status.
var unauthorized = pattern.New(`(?i)\b(unauthorized|invalid (or missing )?api key|authentication_error|log ?in again|not logged in)\b`)

// judge turns a result into how the turn ended.
func judge(e *event) turn.Verdict {
	text := strings.TrimSpace(e.Error)
	status := 0
	if m := statusOf.FindString(text); m != "" {
		status, _ = strconv.Atoi(m)
	}
	switch {
	case !e.IsError:
		return turn.Verdict{Reason: schema.StopReasonEndTurn}
	case strings.HasPrefix(text, "User cancelled"):
		return turn.Verdict{Reason: schema.StopReasonCancelled}
	case e.Subtype == "error_max_turns":
		return turn.Verdict{Reason: schema.StopReasonMaxTurnRequests}
	case status == 401 || unauthorized.MatchString(text):
		return turn.Verdict{Err: authRequired(text)}
	case text == "":
		text = "amp ended the turn with " + e.Subtype
	}
	data := map[string]any{"type": adapters.ErrorType("agent_error"), "kind": e.Subtype}
	if status != 0 {
		data["status"] = status
	}
	return turn.Verdict{Err: acp.Errorf(acp.CodeInternal, "%s", text).WithData(data)}
}

// judgeCut turns the reason that the thread's copy gives for a message that was
// cut short into how the turn ended.
func judgeCut(reason string) turn.Verdict {
	switch {
	case reason == "" || reason == "max_tokens":
		return turn.Verdict{Reason: schema.StopReasonMaxTokens}
	case strings.Contains(reason, "refused to respond"):
		return turn.Verdict{Reason: schema.StopReasonRefusal}
	}
	return judge(&event{Type: "result", Subtype: "error_during_execution", IsError: true, Error: reason})
}
