package claude

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// errAuth is the kind of error that means: log in, or give a valid key.
const errAuth = "authentication_failed"

// notice shows what the program reports beside the conversation.
func (t *translator) notice(e *event) []schema.SessionUpdate {
	said := bridge.FirstOf(bridge.Text(e.Content), e.messageText(), e.Text)
	switch e.Subtype {
	case "api_retry":
		if e.Error == errAuth {
			return nil // the prompt ends with it
		}
		return t.say(schema.NoticeSeverityWarning, retryTitle(e), "")
	case "model_fallback", "model_refusal_fallback":
		title := "The model was changed"
		if e.FallbackModel != "" {
			title = fmt.Sprintf("Model %s instead of %s", e.FallbackModel, e.OriginalModel)
		}
		return t.say(schema.NoticeSeverityWarning, title, bridge.FirstOf(said, e.Trigger))
	case "model_refusal_no_fallback":
		return t.say(schema.NoticeSeverityWarning, "The model refused to answer", said)
	case "permission_denied":
		return t.say(schema.NoticeSeverityInfo, e.ToolName+" was denied", said)
	case "hook_response":
		output := bridge.FirstOf(e.HookOutput, e.HookStdout, e.HookStderr)
		if output == "" {
			return nil
		}
		severity := schema.NoticeSeverityInfo
		if e.HookOutcome == "error" {
			severity = schema.NoticeSeverityWarning
		}
		return t.say(severity, "Hook "+bridge.FirstOf(e.HookName, e.HookEvent), output)
	case "mirror_error":
		return t.say(schema.NoticeSeverityWarning, "The conversation could not be saved", bridge.FirstOf(e.Error, said))
	}
	if said == "" && e.Title == "" {
		return nil
	}
	severity := schema.NoticeSeverityInfo
	if e.Level == "warning" || e.Level == "error" {
		severity = schema.NoticeSeverity(e.Level)
	}
	return t.say(severity, bridge.FirstOf(e.Title, bridge.OneLine(said)), said)
}

func retryTitle(e *event) string {
	what := "The API cannot be reached"
	if e.ErrorStatus != nil {
		switch code := *e.ErrorStatus; code {
		case 429:
			what = "The API limits the rate of requests (429)"
		case 529:
			what = "The API is overloaded (529)"
		default:
			what = "The API failed (" + strconv.Itoa(code) + ")"
		}
	}
	wait := time.Duration(e.RetryDelay * float64(time.Millisecond)).Round(100 * time.Millisecond)
	return fmt.Sprintf("%s: attempt %d of %d follows in %v", what, e.Attempt, e.MaxRetries, wait)
}

// limited shows the state of the plan's limits when it matters.
func (t *translator) limited(r *rateLimit) []schema.SessionUpdate {
	if r == nil || r.Status == "allowed" || r.Status == "" {
		return nil
	}
	severity, title := schema.NoticeSeverityWarning, "The usage limit is near"
	if r.Status == "rejected" {
		severity, title = schema.NoticeSeverityError, "The usage limit is reached"
	}
	var about []string
	if r.Type != "" {
		about = append(about, strings.ReplaceAll(r.Type, "_", " "))
	}
	if r.Utilization > 0 {
		about = append(about, fmt.Sprintf("%.0f%% used", 100*r.Utilization))
	}
	if r.ResetsAt > 0 {
		about = append(about, "resets at "+time.Unix(int64(r.ResetsAt), 0).UTC().Format(time.RFC3339))
	}
	return t.say(severity, title, strings.Join(about, ", "))
}

func (t *translator) say(severity schema.NoticeSeverity, title, description string) []schema.SessionUpdate {
	return bridge.Notice(t.notices, severity, title, description)
}

// compacting takes the start and the failure of a compaction.
func (t *translator) compacting(e *event) []schema.SessionUpdate {
	switch {
	case e.Status != nil && *e.Status == "compacting":
		t.compact++
		return t.compactionIs(schema.CompactionStatusInProgress, "")
	case e.CompactResult != "" && e.CompactResult != "success" || e.CompactError != "":
		return t.compactionIs(schema.CompactionStatusFailed, bridge.FirstOf(e.CompactError, e.CompactResult))
	}
	return nil
}

// compacted takes the end of a compaction.
func (t *translator) compacted(f *compactFacts) []schema.SessionUpdate {
	if t.compact == 0 {
		t.compact++ // it was not announced
	}
	out := t.compactionIs(schema.CompactionStatusCompleted, "")
	if f != nil && f.PostTokens > 0 {
		t.usage.used = f.PostTokens
		out = append(out, t.usage.update()...)
	}
	if !t.compaction && f != nil {
		s := fmt.Sprintf("The conversation was compacted from %d to %d tokens.\n", f.PreTokens, f.PostTokens)
		out = append(out, schema.AgentThought(schema.TextBlock(s)))
	}
	return out
}

func (t *translator) compactionIs(status schema.CompactionStatus, failure string) []schema.SessionUpdate {
	if !t.compaction {
		return nil
	}
	u := &schema.CompactionUpdate{CompactionID: schema.CompactionID("compaction-" + strconv.Itoa(t.compact)), Status: status}
	if failure != "" {
		u.Error = &failure
	}
	return []schema.SessionUpdate{{CompactionUpdate: u}}
}
