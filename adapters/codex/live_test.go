package codex

import (
	"path/filepath"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// showing are the capabilities of a client that shows all there is.
var showing = schema.ClientCapabilities{
	Session: &schema.ClientSessionCapabilities{Notices: &schema.NoticeCapabilities{}, Compaction: &schema.CompactionCapabilities{}},
}

// TestLive_Shared runs what needs no program of its own with the sessions of two: one
// for clients that show all there is, and one for those that do not.
func TestLive_Shared(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config := filepath.Join(w.Home, ".codex/config.toml")
	w.Write(config, "developer_instructions = \"CONFIGURED\"\n"+w.Read(config), 0o600)
	for _, part := range []struct {
		name string
		test func(t *testing.T, w *world)
	}{
		{"Turn", liveTurn},
		{"Diffs", liveDiffs},
		{"Plan", livePlan},
		{"Attachments", liveAttachments},
		{"ImageView", liveImageView},
		{"LargePrompt", liveLargePrompt},
		{"CancelEverywhere", liveCancelEverywhere},
		{"CancelEndsTheCommand", liveCancelEndsTheCommand},
		{"CancelKeepsEarlierTerminals", liveCancelKeepsEarlierTerminals},
		{"BackgroundTerminal", liveBackgroundTerminal},
		{"BusyIsNotSteered", liveBusyIsNotSteered},
		{"ManyThreads", liveManyThreads},
		{"Subagents", liveSubagents},
		{"CodeMode", liveCodeMode},
		{"Question", liveQuestion},
		{"FilePermissions", liveFilePermissions},
		{"ExtraPermissions", liveExtraPermissions},
		{"AnswersLateTwiceAfterCancel", liveAnswersLateTwiceAfterCancel},
		{"ModesConfine", liveModesConfine},
		{"TrustIsNotWritten", liveTrustIsNotWritten},
		{"InstructionsSkillsDirectories", liveInstructionsSkillsDirectories},
		{"MCPPermissions", liveMCPPermissions},
		{"MCPOverHTTP", liveMCPOverHTTP},
		{"SessionsOfATerminal", liveSessionsOfATerminal},
		{"ForkDeleteTitle", liveForkDeleteTitle},
		{"Failures", liveFailures},
		{"CommandsAndCompaction", liveCommandsAndCompaction},
		{"MCP", liveMCP},
		// The last one: it leaves a rule behind.
		{"Permissions", livePermissions},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, &world{w.Part(t)}) })
	}
}
