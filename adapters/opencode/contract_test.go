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
		Adapter:   w.Adapter(),
		Servers:   true,
		Forget:    w.Forget(".local/share/opencode"),
		Elsewhere: bridgetest.Scenarios(),
		Prompts:   w.Prompts(`tr '\0' ' ' < /proc/$p/cmdline | grep -q ' serve --hostname'`),
		Crash:     adaptertest.Crash{Code: -1, Stderr: "about to crash"},
		Unshown:   shownBy().Elsewhere(),
		Skip:      map[string]string{"10-MiB-message": "opencode takes minutes for it; liveTurn has one of a megabyte"},
	})
}

// shownBy names a test of each feature that is claimed.
func shownBy() bridgetest.ShownBy {
	return bridgetest.ShownBy{
		adapters.Text: TestContract, adapters.Streaming: TestContract, adapters.ToolCalls: TestContract,
		adapters.Permissions: TestContract, adapters.Resume: TestContract, adapters.Cancel: TestContract,
		adapters.ToolResults: liveTurn, adapters.Reasoning: liveTurn, adapters.CommandOutput: liveTurn,
		adapters.Usage: liveTurn, adapters.Cost: liveTurn,
		adapters.Diffs: livePlanAndDiffs, adapters.Plan: livePlanAndDiffs,
		adapters.Images: restartAttachments, adapters.Attachments: restartAttachments, adapters.Questions: liveQuestion,
		adapters.Modes: restartModesModelsEffort, adapters.Models: restartModesModelsEffort, adapters.ThoughtLevels: restartModesModelsEffort,
		adapters.MCPServers: liveMCP, adapters.MCPStatus: liveMCP, adapters.Skills: liveWishes, adapters.Instructions: liveWishes,
		adapters.SystemPrompt: liveWishes, adapters.Directories: liveWishes,
		adapters.Load: liveSessionOfATerminal, adapters.NativeSessions: liveSessionOfATerminal, adapters.Fork: liveForkListDeleteTitle,
		adapters.Commands: liveCommandsAndCompaction, adapters.Compaction: liveCommandsAndCompaction, adapters.Subagents: liveSubagent,
	}
}

func TestInfo_EveryFeatureIsShown(t *testing.T) { shownBy().Check(t, New().Info().Features) }
