package claude

import (
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// shownBy names a test of each feature that is claimed.
func shownBy() bridgetest.ShownBy {
	return bridgetest.ShownBy{
		adapters.Text: TestContract, adapters.Streaming: TestContract, adapters.ToolCalls: TestContract,
		adapters.ToolResults: TestContract, adapters.Permissions: TestContract, adapters.Resume: TestContract,
		adapters.Reasoning: TestLive_Thoughts, adapters.Diffs: TestLive_Diffs, adapters.CommandOutput: TestLive_Thoughts,
		adapters.Plan: TestLive_Todo, adapters.Images: TestLive_Attachments, adapters.Attachments: TestLive_Attachments,
		adapters.Questions: TestLive_Question, adapters.PlanApproval: TestLive_PlanApproval,
		adapters.Modes: TestLive_ModesModelsEffort, adapters.Models: TestLive_ModesModelsEffort, adapters.ThoughtLevels: TestLive_ModesModelsEffort,
		adapters.MCPServers: TestLive_MCPServersAndElicitation, adapters.Skills: TestLive_InstructionsSkillsDirectories,
		adapters.Instructions: TestLive_InstructionsSkillsDirectories, adapters.SystemPrompt: TestLive_InstructionsSkillsDirectories,
		adapters.Directories: TestLive_InstructionsSkillsDirectories, adapters.Load: TestLive_SessionsOfATerminal,
		adapters.NativeSessions: TestLive_SessionsOfATerminal, adapters.Fork: TestLive_ForkAndDelete,
		adapters.Usage: TestLive_UsageCostTitle, adapters.Cost: TestLive_UsageCostTitle,
		adapters.Commands: TestLive_SlashCommandsAndCompaction, adapters.Compaction: TestLive_SlashCommandsAndCompaction,
		adapters.Subagents: TestLive_Subagents, adapters.Cancel: TestLive_CancelEverywhere,
	}
}

func TestInfo_EveryFeatureIsShown(t *testing.T) { shownBy().Check(t, New().Info().Features) }

func TestLive_Thoughts(t *testing.T) {
	w := newWorld(t)
	w.Write(".claude/settings.json", `{"permissions":{"allow":["Bash(echo:*)"]}}`, 0o600)
	c := w.open(acp.ClientCapabilities{}, nil)
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
	_, got = c.Turn(id, "run echo one two")
	for _, u := range got {
		if up := u.ToolCallUpdate; up != nil && len(up.Content) == 1 && up.Content[0].Content.Content.Text.Text == "```console\none two\n```" {
			return
		}
	}
	t.Errorf("the command's output was not shown\n%s", c.Quote())
}

// TestLive_ChoicesOutliveTheProcess: the program forgets them, and people do not
// expect it.
func TestLive_ChoicesOutliveTheProcess(t *testing.T) {
	w := newWorld(t)
	c := w.open(acp.ClientCapabilities{}, nil)
	id := c.New("")
	set := func(option, v string) {
		quoted, _ := acp.Encode(v)
		c.Must(acp.MethodSessionSetConfigOption, &acp.SetSessionConfigOptionRequest{SessionID: id, ConfigID: acp.SessionConfigID(option), Value: quoted})
	}
	set(configModel, "sonnet")
	set(configEffort, "low")
	set(configMode, modePlan)
	_, got := c.Turn(id, "say one")
	cost := func(list []acp.SessionUpdate) (last float64) {
		for _, u := range list {
			if u.UsageUpdate != nil && u.UsageUpdate.Cost != nil {
				last = u.UsageUpdate.Cost.Amount
			}
		}
		return last
	}
	first := cost(got)
	c.Close()
	again := w.open(acp.ClientCapabilities{}, nil)
	r := again.Must(acp.MethodSessionResume, w.load(id))
	options, _ := acp.Member(r, "configOptions")
	want := map[string]string{configModel: "sonnet", configEffort: "low", configMode: modePlan}
	for _, o := range acp.Elements(options) {
		if name := acp.MemberString(o, "id"); acp.MemberString(o, "currentValue") != want[name] {
			t.Errorf("%s is %s, want %s", name, acp.MemberString(o, "currentValue"), want[name])
		}
	}
	_, got = again.Turn(id, "say two")
	if second := cost(got); first <= 0 || second < 1.5*first {
		t.Errorf("the session cost %v, then %v", first, second)
	}
	if turns := w.Model.Turns(); turns[len(turns)-1].Model != turns[0].Model {
		t.Errorf("model %s, then %s", turns[0].Model, turns[len(turns)-1].Model)
	}
}
