package codex

import (
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters"
)

// shownBy names a test of each feature that is claimed.
func shownBy() map[adapters.Feature]func(*testing.T) {
	return map[adapters.Feature]func(*testing.T){
		adapters.Text: TestContract, adapters.Streaming: TestContract, adapters.ToolCalls: TestContract,
		adapters.Permissions: TestContract, adapters.Resume: TestContract,
		adapters.ToolResults: TestLive_Turn, adapters.Reasoning: TestLive_Turn, adapters.CommandOutput: TestLive_Turn, adapters.Usage: TestLive_Turn,
		adapters.Diffs: TestLive_Diffs, adapters.Plan: TestLive_Plan, adapters.Images: TestLive_Attachments, adapters.Attachments: TestLive_Attachments,
		adapters.Questions: TestLive_Question,
		adapters.Modes:     TestLive_ModesModelsEffort, adapters.Models: TestLive_ModesModelsEffort, adapters.ThoughtLevels: TestLive_ModesModelsEffort,
		adapters.MCPServers: TestLive_MCP, adapters.Skills: TestLive_InstructionsSkillsDirectories,
		adapters.Instructions: TestLive_InstructionsSkillsDirectories, adapters.SystemPrompt: TestLive_InstructionsSkillsDirectories,
		adapters.Directories: TestLive_InstructionsSkillsDirectories, adapters.Load: TestLive_SessionsOfATerminal,
		adapters.NativeSessions: TestLive_SessionsOfATerminal, adapters.Fork: TestLive_ForkDeleteTitle,
		adapters.Commands: TestLive_CommandsAndCompaction, adapters.Compaction: TestLive_CommandsAndCompaction,
		adapters.Cancel: TestLive_CancelEverywhere,
	}
}

func TestInfo_EveryFeatureIsShown(t *testing.T) {
	f, tests := New().Info().Features, shownBy()
	for _, one := range adapters.AllFeatures {
		s, ok := f[one]
		switch {
		case !ok:
			t.Errorf("%s is missing", one)
		case s.Level == adapters.Unsupported && s.Reason == "":
			t.Errorf("%s is unsupported without a reason", one)
		case s.Level != adapters.Unsupported && tests[one] == nil:
			t.Errorf("%s is claimed, and no test shows it", one)
		}
	}
	if len(f) != len(adapters.AllFeatures) {
		t.Errorf("%d features, want %d", len(f), len(adapters.AllFeatures))
	}
}
