package codex

import (
	"fmt"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// notice shows what codex reports beside the conversation.
func (t *translator) notice(e *event) []schema.SessionUpdate {
	switch e.Method {
	case "error":
		f := e.failure()
		if f == nil || !e.Retry {
			return nil // the turn ends with it
		}
		t.echo.Broken()
		if f.unauthorized() {
			return nil // the prompt ends with it
		}
		return t.say(schema.NoticeSeverityWarning, bridge.OneLine(f.Message), f.Details)
	case "warning", "guardianWarning":
		return t.say(schema.NoticeSeverityWarning, bridge.OneLine(e.Message), e.Message)
	case "configWarning":
		if strings.Contains(e.Summary, "bubblewrap") {
			return nil // it has one of its own
		}
		return t.say(schema.NoticeSeverityWarning, bridge.OneLine(e.Summary), bridge.FirstOf(e.Details, e.Summary))
	case "model/rerouted":
		return t.say(schema.NoticeSeverityWarning, fmt.Sprintf("Model %s instead of %s", e.To, e.From), "")
	case "mcpServer/startupStatus/updated":
		if bridge.Text(e.Status) != "failed" {
			return nil
		}
		return t.say(schema.NoticeSeverityWarning, fmt.Sprintf("MCP server %s did not start", e.Name), bridge.Text(e.Error))
	}
	return nil
}

// say shows a notice.
func (t *translator) say(severity schema.NoticeSeverity, title, description string) []schema.SessionUpdate {
	return bridge.Notice(severity, bridge.FirstOf(title, bridge.OneLine(description), "Codex has a notice without a text"), description)
}

// compacting shows a compaction.
func (t *translator) compacting(s *shown, status schema.CompactionStatus) []schema.SessionUpdate {
	return []schema.SessionUpdate{{CompactionUpdate: &schema.CompactionUpdate{CompactionID: schema.CompactionID(s.item.ID), Status: status}}}
}

// unauthorized reports whether a failure means: log in, or give a valid key.
func (f *turnError) unauthorized() bool {
	kind, status := f.kind()
	return kind == "unauthorized" || status == 401 || strings.HasPrefix(f.Message, "Missing environment variable")
}
