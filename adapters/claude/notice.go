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
		return bridge.Notice(schema.NoticeSeverityWarning, retryTitle(e), "")
	case "model_fallback", "model_refusal_fallback":
		title := "The model was changed"
		if e.FallbackModel != "" {
			title = fmt.Sprintf("Model %s instead of %s", e.FallbackModel, e.OriginalModel)
		}
		return bridge.Notice(schema.NoticeSeverityWarning, title, bridge.FirstOf(said, e.Trigger))
	case "model_refusal_no_fallback":
		return bridge.Notice(schema.NoticeSeverityWarning, "The model refused to answer", said)
	case "permission_denied":
		return bridge.Notice(schema.NoticeSeverityInfo, e.ToolName+" was denied", said)
	case "hook_response":
		output := bridge.FirstOf(e.HookOutput, e.HookStdout, e.HookStderr)
		if output == "" {
			return nil
		}
		severity := schema.NoticeSeverityInfo
		if e.HookOutcome == "error" {
			severity = schema.NoticeSeverityWarning
		}
		return bridge.Notice(severity, "Hook "+bridge.FirstOf(e.HookName, e.HookEvent), output)
	case "mirror_error":
		return bridge.Notice(schema.NoticeSeverityWarning, "The conversation could not be saved", bridge.FirstOf(e.Error, said))
	}
	if said == "" && e.Title == "" {
		return nil
	}
	severity := schema.NoticeSeverityInfo
	if e.Level == "warning" || e.Level == "error" {
		severity = schema.NoticeSeverity(e.Level)
	}
	return bridge.Notice(severity, bridge.FirstOf(e.Title, bridge.OneLine(said)), said)
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
	return bridge.Notice(severity, title, strings.Join(about, ", "))
}

// compacting takes the start and the failure of a compaction.
func (t *translator) compacting(e *event) []schema.SessionUpdate {
	switch {
	case e.Status != nil && *e.Status == "compacting":
		t.compact = ""
		return t.compactionIs(e, schema.CompactionStatusInProgress)
	case e.CompactResult != "" && e.CompactResult != "success" || e.CompactError != "":
		out := t.compactionIs(e, schema.CompactionStatusFailed)
		failure := bridge.FirstOf(e.CompactError, e.CompactResult)
		out[0].CompactionUpdate.Error, t.compact = &failure, ""
		return out
	}
	return nil
}

// compacted takes the end of a compaction.
func (t *translator) compacted(e *event) []schema.SessionUpdate {
	out := t.compactionIs(e, schema.CompactionStatusCompleted)
	t.compact = ""
	if e.Compact == nil {
		return out
	}
	out[0].CompactionUpdate.Meta = bridge.Compacted(e.Compact.PreTokens, e.Compact.PostTokens)
	if e.Compact.PostTokens > 0 {
		t.usage.used = e.Compact.PostTokens
		out = append(out, t.usage.update()...)
	}
	return out
}

// notCompacted ends a compaction that the end of a turn has broken off.
func (t *translator) notCompacted(e *event) []schema.SessionUpdate {
	if t.compact == "" {
		return nil
	}
	out := t.compactionIs(e, schema.CompactionStatusFailed)
	t.compact = ""
	return out
}

// compactionIs tells of a compaction, which has the id of the first event of it.
func (t *translator) compactionIs(e *event, status schema.CompactionStatus) []schema.SessionUpdate {
	t.compact = bridge.FirstOf(t.compact, "compaction-"+e.UUID)
	return []schema.SessionUpdate{{CompactionUpdate: &schema.CompactionUpdate{CompactionID: schema.CompactionID(t.compact), Status: status}}}
}
