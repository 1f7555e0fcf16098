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
	adaptertest.Run(t, adaptertest.Subject{
		Adapter:   w.Adapter(),
		Servers:   true,
		Forget:    w.Forget(".pi/agent/sessions"),
		Elsewhere: bridgetest.Scenarios("lost-record"),
		Prompts:   prompts,
		Crash:     adaptertest.Crash{Code: -1, Stderr: "about to crash"},
		Unshown:   shownBy().Elsewhere(),
		Skip: map[string]string{
			"10-MiB-message": "pi takes it, in a minute: the suite's model says it in pieces of 16 letters; liveLargeMessages has larger pieces",
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
		adapters.ToolResults: liveTurn, adapters.Reasoning: liveTurn, adapters.CommandOutput: liveTurn,
		adapters.Usage: liveTurn, adapters.Cost: liveTurn, adapters.Diffs: liveDiffs,
		adapters.Images: liveAttachments, adapters.Attachments: liveAttachments, adapters.Questions: liveExtensions,
		adapters.Modes: liveModes, adapters.Models: TestLive_OpenedAgain, adapters.ThoughtLevels: TestLive_OpenedAgain,
		adapters.MCPServers: liveWishes, adapters.MCPStatus: liveWishes, adapters.Skills: liveWishes, adapters.Instructions: liveWishes,
		adapters.SystemPrompt: liveWishes, adapters.Directories: liveWishes,
		adapters.Load: liveSessionOfATerminal, adapters.NativeSessions: liveSessionOfATerminal, adapters.Fork: liveForkListDeleteTitle,
		adapters.Commands: liveCommandsAndCompaction, adapters.Compaction: liveCommandsAndCompaction,
	}
}

func TestInfo_EveryFeatureIsShown(t *testing.T) { shownBy().Check(t, New().Info().Features) }
