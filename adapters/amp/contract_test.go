package amp

import (
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/adaptertest"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// isAgent is a shell condition: p is the agent.
const isAgent = `[ "$(cat /proc/$p/comm)" = node ]`

func TestContract(t *testing.T) {
	w := newWorld(t)
	// Amp shows no part of a message, so a turn without end is one of many calls.
	w.Model.OnRequest(scriptedmodel.Exactly("forever"), forever)
	prompts := w.Prompts(isAgent)
	prompts.Reread = adaptertest.Prompt{} // liveReusedCallID has it: amp does not go on
	adaptertest.Run(t, adaptertest.Subject{
		Adapter:   w.Adapter(),
		Servers:   true,
		Forget:    w.Forget(".local/share/amp/threads"),
		Elsewhere: bridgetest.Scenarios(),
		Prompts:   prompts,
		Chunks:    1,
		Crash:     adaptertest.Crash{Code: -1, Stderr: "about to crash"},
		Shows:     w.shows(),
		Unshown: map[adapters.Feature]string{
			adapters.Modes: `the scenario "mode at the start, and one that is not allowed" shows it through the gateway`,
		},
		Skip: map[string]string{
			"10-MiB-message": "amp never answers a prompt of several MiB; liveLargePrompt has the largest that it is given",
		},
	})
}

// forever calls the shell in each round.
func forever(r *scriptedmodel.Request) []scriptedmodel.Step {
	rounds := 0
	for _, m := range r.Messages {
		if m.Role == scriptedmodel.ToolRole {
			rounds++
		}
	}
	steps := make([]scriptedmodel.Step, rounds+1)
	for i := range steps {
		steps[i] = scriptedmodel.Step{scriptedmodel.Shell("sh -c 'sleep 0.2; echo tick'")}
	}
	return steps
}
