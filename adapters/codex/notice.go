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

// say shows a notice. A client that does not know notices gets it as a thought,
// since a long silence would say less.
func (t *translator) say(severity schema.NoticeSeverity, title, description string) []schema.SessionUpdate {
	title = bridge.FirstOf(title, bridge.OneLine(description), "Codex has a notice without a text")
	if description == title {
		description = ""
	}
	if t.notices {
		n := &schema.Notice{Severity: severity, Title: title}
		if description != "" {
			n.Description = &description
		}
		return []schema.SessionUpdate{{Notice: n}}
	}
	s := title
	if description != "" {
		s += " (" + description + ")"
	}
	return []schema.SessionUpdate{schema.AgentThought(schema.TextBlock(s + "\n"))}
}

// compacting shows a compaction.
func (t *translator) compacting(s *shown, status schema.CompactionStatus) []schema.SessionUpdate {
	if t.compaction {
		return []schema.SessionUpdate{{CompactionUpdate: &schema.CompactionUpdate{CompactionID: schema.CompactionID(s.item.ID), Status: status}}}
	}
	if status != schema.CompactionStatusCompleted {
		return nil
	}
	return []schema.SessionUpdate{schema.AgentThought(schema.TextBlock("The conversation was compacted.\n"))}
}

// unauthorized reports whether a failure means: log in, or give a valid key.
func (f *turnError) unauthorized() bool {
	kind, status := f.kind()
	return kind == "unauthorized" || status == 401 || strings.HasPrefix(f.Message, "Missing environment variable")
}
