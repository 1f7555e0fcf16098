package claude

import "testing"

// TestLive_Shared runs what needs nothing of its own in one session of one client.
func TestLive_Shared(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.OneSession = true
	w.Write(".claude/settings.json", `{"permissions":{"allow":["Read","Bash(sh:*)","Bash(echo:*)","Bash(sleep:*)"]}}`, 0o600)
	for _, part := range []struct {
		name string
		test func(t *testing.T, w *world)
	}{
		// The first one: it sees how the session begins.
		{"UsageCostTitle", liveUsageCostTitle},
		{"ModesModelsEffort", liveModesModelsEffort},
		{"Thoughts", liveThoughts},
		{"Attachments", liveAttachments},
		{"AlwaysAllowHoldsInUntrustedFolders", liveAlwaysAllowHoldsInUntrustedFolders},
		{"DenyWithMessage", liveDenyWithMessage},
		{"Diffs", liveDiffs},
		{"Question", liveQuestion},
		{"PlanApproval", livePlanApproval},
		{"Subagents", liveSubagents},
		{"LeftBehind", liveLeftBehind},
		{"BadKeyEndsAtTheFirstRetry", liveBadKeyEndsAtTheFirstRetry},
		{"CallIsCut", liveCallIsCut},
		{"SecondPromptWaits", liveSecondPromptWaits},
		{"TurnsThatNobodyPrompted", liveTurnsThatNobodyPrompted},
		{"SlashCommandsAndCompaction", liveSlashCommandsAndCompaction},
		{"AutoCompaction", liveAutoCompaction},
		{"CancelEverywhere", liveCancelEverywhere},
		{"WithoutForms", liveWithoutForms},
		{"Readonly", liveReadonly},
		{"Budget", liveBudget},
		// The last one: it fills the session.
		{"LargeMessages", liveLargeMessages},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, &world{w.Part(t)}) })
	}
}
