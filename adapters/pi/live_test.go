package pi

import (
	"testing"

	"sandboxagent.dev/sandbox-agent/internal/agentcache"
)

// TestLive_Shared runs what needs nothing of its own in the sessions of two clients: one
// that shows all there is, and one that shows nothing more than it must.
func TestLive_Shared(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		w.OneSession = true
		w.Write(".pi/agent/prompts/greet.md", "---\ndescription: Greets\n---\nsay greetings to $1\n", 0o600)
		for _, part := range []struct {
			name   string
			newest bool // only with the newest version
			test   func(t *testing.T, w *world)
		}{
			// The first one: it sees how the session begins.
			{"CommandsAndCompaction", false, liveCommandsAndCompaction},
			{"Turn", false, liveTurn},
			{"Errors", false, liveErrors},
			{"RetriesSayNothingTwice", false, liveRetriesSayNothingTwice},
			{"CancelEverywhere", false, liveCancelEverywhere},
			{"SecondPromptWaits", false, liveSecondPromptWaits},
			{"QueueOfAnExtension", true, liveQueueOfAnExtension},
			{"Extensions", false, liveExtensions},
			{"SummaryOfAnExtension", true, liveSummaryOfAnExtension},
			{"RejectWithMessage", true, liveRejectWithMessage},
			{"ParallelCallsAskOneByOne", false, liveParallelCallsAskOneByOne},
			{"Permissions", false, livePermissions},
			{"Modes", false, liveModes},
			{"ModeInARunningTurn", true, liveModeInARunningTurn},
			{"ModelInARunningTurn", false, liveModelInARunningTurn},
			{"Diffs", false, liveDiffs},
			{"Attachments", false, liveAttachments},
			{"Wishes", false, liveWishes},
			{"BadStart", false, liveBadStart},
			{"SessionOfATerminal", false, liveSessionOfATerminal},
			{"AnotherConversation", false, liveAnotherConversation},
			{"ForkListDeleteTitle", false, liveForkListDeleteTitle},
			{"LargeMessages", true, liveLargeMessages},
		} {
			if w.version == agentcache.PiLegacy && part.newest {
				continue
			}
			t.Run(part.name, func(t *testing.T) { part.test(t, &world{w.Part(t), w.version}) })
		}
	})
}
