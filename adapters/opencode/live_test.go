package opencode

import "testing"

// TestLive_Shared runs what needs no program of its own with the sessions of two: one
// for clients that show compactions, and one for those that show nothing more
// than they must.
func TestLive_Shared(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.probe = &probe{Adapter: New()}
	w.Use(w.probe)
	for _, part := range []struct {
		name string
		test func(t *testing.T, w *world)
	}{
		// The first one: it hears which directories are forgotten.
		{"MemoryIsGivenBack", liveMemoryIsGivenBack},
		{"Password", livePassword},
		{"Secrets", liveSecrets},
		{"Turn", liveTurn},
		{"PlanAndDiffs", livePlanAndDiffs},
		{"Undo", liveUndo},
		{"Question", liveQuestion},
		{"Subagent", liveSubagent},
		{"AbortLeavesNothing", liveAbortLeavesNothing},
		{"BrokenStreamOfEvents", liveBrokenStreamOfEvents},
		{"ManyTurns", liveManyTurns},
		{"Failures", liveFailures},
		{"Wishes", liveWishes},
		{"MCP", liveMCP},
		{"NoNetwork", liveNoNetwork},
		{"ForkListDeleteTitle", liveForkListDeleteTitle},
		{"SessionOfATerminal", liveSessionOfATerminal},
		{"LinkedDirectory", liveLinkedDirectory},
		{"MessagesOfATimeToCome", liveMessagesOfATimeToCome},
		// The last one: the probe has its agent then.
		{"CommandsAndCompaction", liveCommandsAndCompaction},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, &world{w.Part(t), w.probe}) })
	}
}
