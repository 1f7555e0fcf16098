package claude

import (
	"bytes"
	"slices"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

// shownBy names a test of each feature that is claimed.
func shownBy() bridgetest.ShownBy {
	return bridgetest.ShownBy{
		adapters.Text: TestContract, adapters.Streaming: TestContract, adapters.ToolCalls: TestContract,
		adapters.ToolResults: liveThoughts, adapters.Permissions: TestContract, adapters.Resume: TestContract,
		adapters.Reasoning: liveThoughts, adapters.Diffs: liveDiffs, adapters.CommandOutput: liveThoughts,
		adapters.Plan: TestLive_Wishes, adapters.Images: liveAttachments, adapters.Attachments: liveAttachments,
		adapters.Questions: liveQuestion, adapters.PlanApproval: livePlanApproval,
		adapters.Modes: liveModesModelsEffort, adapters.Models: liveModesModelsEffort, adapters.ThoughtLevels: liveModesModelsEffort,
		adapters.MCPServers: TestLive_Wishes, adapters.MCPStatus: TestLive_Wishes, adapters.Skills: TestLive_Wishes,
		adapters.Instructions: TestLive_Wishes, adapters.SystemPrompt: TestLive_Wishes,
		adapters.Directories: TestLive_Wishes, adapters.Load: TestLive_OpenedAgain,
		adapters.NativeSessions: TestLive_OpenedAgain, adapters.Fork: TestLive_OpenedAgain,
		adapters.Usage: liveUsageCostTitle, adapters.Cost: liveUsageCostTitle,
		adapters.Commands: liveSlashCommandsAndCompaction, adapters.Compaction: liveSlashCommandsAndCompaction,
		adapters.Subagents: liveSubagents, adapters.Cancel: liveCancelEverywhere,
	}
}

func TestInfo_EveryFeatureIsShown(t *testing.T) { shownBy().Check(t, New().Info().Features) }

func liveThoughts(t *testing.T, w *world) {
	c := w.open(noticing, nil)
	id := c.New("")
	_, got := c.Turn(id, "think deeply about it")
	thought := ""
	for _, u := range got {
		if u.AgentThoughtChunk != nil {
			thought += u.AgentThoughtChunk.Content.Text.Text
		}
	}
	if thought != "deeply about it" || bridgetest.Said(got) != "thought" {
		t.Errorf("thought %q, said %q", thought, bridgetest.Said(got))
	}
	_, got = c.Turn(id, "read "+w.Write("result.txt", "what it says\n", 0o600))
	if !slices.ContainsFunc(got, func(u schema.SessionUpdate) bool {
		return u.ToolCallUpdate != nil && u.ToolCallUpdate.Status == schema.ToolCallStatusCompleted && bytes.Contains(bridgetest.Encoded(u.ToolCallUpdate.Content), []byte("what it says"))
	}) {
		t.Errorf("the result is not shown\n%s", c.Quote())
	}
	_, got = c.Turn(id, "run echo one two")
	for _, u := range got {
		if up := u.ToolCallUpdate; up != nil && len(up.Content) == 1 && up.Content[0].Content.Content.Text.Text == "```console\none two\n```" {
			return
		}
	}
	t.Errorf("the command's output was not shown\n%s", c.Quote())
}
