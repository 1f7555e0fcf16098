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
		adapters.ToolResults: liveTurn, adapters.Reasoning: liveTurn, adapters.CommandOutput: liveTurn, adapters.Usage: liveTurn,
		adapters.Diffs: liveDiffs, adapters.Plan: livePlan, adapters.Images: liveAttachments, adapters.Attachments: liveAttachments,
		adapters.Questions: liveQuestion,
		adapters.Modes:     restartModesModelsEffort, adapters.Models: restartModesModelsEffort, adapters.ThoughtLevels: restartModesModelsEffort,
		adapters.MCPServers: liveMCP, adapters.MCPStatus: liveMCP, adapters.Skills: liveInstructionsSkillsDirectories,
		adapters.Instructions: liveInstructionsSkillsDirectories, adapters.SystemPrompt: liveInstructionsSkillsDirectories,
		adapters.Directories: liveInstructionsSkillsDirectories, adapters.Load: liveSessionsOfATerminal,
		adapters.NativeSessions: liveSessionsOfATerminal, adapters.Fork: liveForkDeleteTitle,
		adapters.Commands: liveCommandsAndCompaction, adapters.Compaction: liveCommandsAndCompaction,
		adapters.Subagents: liveSubagents, adapters.Cancel: liveCancelEverywhere,
	}
}

func TestInfo_EveryFeatureIsShown(t *testing.T) { shownBy().Check(t, New().Info().Features) }
