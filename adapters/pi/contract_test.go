package pi

import (
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/adaptertest"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

// isAgent is a shell condition: p is the agent.
const isAgent = `tr '\0' ' ' < /proc/$p/cmdline | grep -q -e ' --mode rpc' -e '^pi *$'`

func TestContract(t *testing.T) {
	w := newWorld(t)
	prompts := w.Prompts(isAgent)
	// Pi asks before every command, but not before those that the client gives.
	for _, p := range []*adaptertest.Prompt{&prompts.Garbage, &prompts.Crash, &prompts.Spawn} {
		p.Text, p.Says = "/bash"+p.Text[len("run"):], ""
	}
	shows, unshown := w.shows(), map[adapters.Feature]string{}
	if !hasMCP(version) {
		delete(shows, adapters.MCPServers)
		unshown[adapters.MCPServers] = "version " + version + " has none, and says so"
	}
	adaptertest.Run(t, adaptertest.Subject{
		Adapter: w.Adapter(),
		Prompts: prompts,
		Crash:   adaptertest.Crash{Code: -1, Stderr: "about to crash"},
		Shows:   shows,
		Unshown: unshown,
		Skip: map[string]string{
			"10-MiB-message": "pi takes it, in a minute: the suite's model says it in pieces of 16 letters; TestLive_LargeMessages has larger pieces",
		},
	})
}

// hasMCP reports whether a version of Pi connects to MCP servers.
func hasMCP(version string) bool { return atLeast(version, 0, 99, 0) }

// shownBy names a test of each feature that is claimed.
func shownBy() bridgetest.ShownBy {
	return bridgetest.ShownBy{
		adapters.Text: TestContract, adapters.Streaming: TestContract, adapters.ToolCalls: TestContract,
		adapters.Permissions: TestContract, adapters.Resume: TestContract, adapters.Cancel: TestContract,
		adapters.ToolResults: TestContract, adapters.Reasoning: TestLive_Turn, adapters.CommandOutput: TestLive_Turn,
		adapters.Usage: TestLive_Turn, adapters.Cost: TestLive_Turn, adapters.Diffs: TestLive_Diffs,
		adapters.Images: TestLive_Attachments, adapters.Attachments: TestLive_Attachments, adapters.Questions: TestLive_ExtensionsOfTheUser,
		adapters.Modes: TestLive_Modes, adapters.Models: TestLive_ChoicesLeaveTheUsersSettings, adapters.ThoughtLevels: TestLive_ChoicesLeaveTheUsersSettings,
		adapters.MCPServers: TestLive_MCP, adapters.Skills: TestLive_Wishes, adapters.Instructions: TestLive_Wishes,
		adapters.SystemPrompt: TestLive_Wishes, adapters.Directories: TestLive_Wishes,
		adapters.Load: TestLive_SessionOfATerminal, adapters.NativeSessions: TestLive_SessionOfATerminal, adapters.Fork: TestLive_ForkListDeleteTitle,
		adapters.Commands: TestLive_CommandsAndCompaction, adapters.Compaction: TestLive_CommandsAndCompaction,
	}
}

func TestInfo_EveryFeatureIsShown(t *testing.T) { shownBy().Check(t, New().Info().Features) }
