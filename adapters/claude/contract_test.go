package claude

import (
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters/adaptertest"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

// isAgent is a shell condition: p is the agent.
const isAgent = `[ "$(cat /proc/$p/comm)" = claude ]`

func TestContract(t *testing.T) {
	w := newWorld(t)
	w.Write(".claude/settings.json", `{"permissions":{"allow":["Read","Bash(sh:*)"]}}`, 0o600)
	adaptertest.Run(t, adaptertest.Subject{
		Adapter:   w.Adapter(),
		Elsewhere: bridgetest.Scenarios(),
		Prompts:   w.Prompts(isAgent),
		Crash:     adaptertest.Crash{Code: -1, Stderr: "about to crash"},
		Unshown:   shownBy().Elsewhere(),
		Skip: map[string]string{
			"10-MiB-message": "claude refuses prompts beyond the model's context; TestLargeMessages has the largest that it takes",
		},
	})
}
