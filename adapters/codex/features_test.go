package codex

import (
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

// shownBy names a test of each feature that is claimed.
func shownBy() bridgetest.ShownBy {
	return bridgetest.ShownBy{
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
		adapters.Subagents: TestLive_Subagents, adapters.Cancel: TestLive_CancelEverywhere,
	}
}

func TestInfo_EveryFeatureIsShown(t *testing.T) { shownBy().Check(t, New().Info().Features) }
