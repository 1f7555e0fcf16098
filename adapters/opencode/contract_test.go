package opencode

import (
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/adaptertest"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

func TestContract(t *testing.T) {
	w := newWorld(t)
	adaptertest.Run(t, adaptertest.Subject{
		Adapter: w.Adapter(),
		Prompts: w.Prompts(`tr '\0' ' ' < /proc/$p/cmdline | grep -q ' serve --hostname'`),
		Crash:   adaptertest.Crash{Code: -1, Stderr: "about to crash"},
		Shows:   w.shows(),
		Skip:    map[string]string{"10-MiB-message": "opencode takes minutes for it; TestLive_Turn has one of a megabyte"},
	})
}

// shownBy names a test of each feature that is claimed.
func shownBy() bridgetest.ShownBy {
	return bridgetest.ShownBy{
		adapters.Text: TestContract, adapters.Streaming: TestContract, adapters.ToolCalls: TestContract,
		adapters.Permissions: TestContract, adapters.Resume: TestContract, adapters.Cancel: TestContract,
		adapters.ToolResults: TestLive_Turn, adapters.Reasoning: TestLive_Turn, adapters.CommandOutput: TestLive_Turn,
		adapters.Usage: TestLive_Turn, adapters.Cost: TestLive_Turn,
		adapters.Diffs: TestLive_PlanAndDiffs, adapters.Plan: TestLive_PlanAndDiffs,
		adapters.Images: TestLive_Attachments, adapters.Attachments: TestLive_Attachments, adapters.Questions: TestLive_Question,
		adapters.Modes: TestLive_ModesModelsEffort, adapters.Models: TestLive_ModesModelsEffort, adapters.ThoughtLevels: TestLive_ModesModelsEffort,
		adapters.MCPServers: TestLive_MCP, adapters.Skills: TestLive_Wishes, adapters.Instructions: TestLive_Wishes,
		adapters.SystemPrompt: TestLive_Wishes, adapters.Directories: TestLive_Wishes,
		adapters.Load: TestLive_SessionOfATerminal, adapters.NativeSessions: TestLive_SessionOfATerminal, adapters.Fork: TestLive_ForkListDeleteTitle,
		adapters.Commands: TestLive_CommandsAndCompaction, adapters.Compaction: TestLive_CommandsAndCompaction, adapters.Subagents: TestLive_Subagent,
	}
}

func TestInfo_EveryFeatureIsShown(t *testing.T) { shownBy().Check(t, New().Info().Features) }
