package adapters_test

import (
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters"
)

func TestModeFor(t *testing.T) {
	const addresses = "https://agentclientprotocol.com/protocol/session-modes"
	gemini := []adapters.Mode{{"default", "Default", "Prompts for approval"}, {"autoEdit", "Auto Edit", "Auto-approves edit tools"}, {"yolo", "YOLO", "Auto-approves all tools"}, {"plan", "Plan", "Read-only mode"}}
	qwen := []adapters.Mode{{"plan", "Plan", "Analyze only, do not modify files or execute commands"}, {"default", "Default", "Require approval"}, {"auto-edit", "Auto Edit", ""}, {"auto", "Auto", "LLM classifier"}, {"yolo", "YOLO", ""}}
	copilot := []adapters.Mode{{addresses + "#agent", "Agent", ""}, {addresses + "#plan", "Plan", "Plan mode for creating and executing multi-step plans"}, {addresses + "#autopilot", "Autopilot", "Enables allow-all"}}
	codex := []adapters.Mode{{"read-only", "Read Only", ""}, {"auto", "Auto", ""}, {"full-access", "Full Access", ""}}
	for _, c := range []struct {
		agent, wish, want string
		offered           []adapters.Mode
		table             map[string]string
	}{
		{"gemini", "readonly", "plan", gemini, nil},
		{"gemini", "write", "autoEdit", gemini, nil},
		{"gemini", "bypass", "yolo", gemini, nil},
		{"qwen", "readonly", "plan", qwen, nil},
		{"qwen", "write", "auto-edit", qwen, nil},
		{"qwen", "bypass", "yolo", qwen, nil},
		{"copilot, whose plan mode carries plans out", "readonly", "", copilot, nil},
		{"copilot", "bypass", addresses + "#autopilot", copilot, nil},
		{"codex over ACP", "readonly", "read-only", codex, nil},
		{"codex over ACP", "bypass", "full-access", codex, nil},
		{"one without modes", "readonly", "", nil, nil},
		{"a table", "bypass", "auto", codex, map[string]string{"bypass": "auto"}},
		{"a table of an older version", "bypass", "", codex, map[string]string{"bypass": "gone"}},
		{"a table that says there is none", "readonly", "", codex, map[string]string{"readonly": ""}},
	} {
		if got := (adapters.Info{PermissionModes: c.table}).ModeFor(c.wish, c.offered); got != c.want {
			t.Errorf("%s: %s is %q, want %q", c.agent, c.wish, got, c.want)
		}
	}
}
