package codex

import (
	"path/filepath"
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters/adaptertest"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

// isAgent is a shell condition: p is the agent.
const isAgent = `tr '\0' ' ' < /proc/$p/cmdline | grep -q 'codex app-server'`

func TestContract(t *testing.T) {
	w := newWorld(t)
	// Outside of the sandbox, where the scripts find the agent.
	w.Write(".codex/config.toml", `approval_policy = "on-request"
sandbox_mode = "danger-full-access"
`+w.Read(filepath.Join(w.Home, ".codex/config.toml")), 0o600)
	w.Write(".codex/rules/default.rules", `prefix_rule(pattern=["touch"], decision="prompt")
`, 0o600)
	adaptertest.Run(t, adaptertest.Subject{
		Adapter:   w.Adapter(),
		Servers:   true,
		Forget:    w.Forget(".codex/sessions"),
		Elsewhere: bridgetest.Scenarios("lost-record"),
		Prompts:   w.Prompts(isAgent),
		Crash:     adaptertest.Crash{Code: -1, Stderr: "about to crash"},
		Unshown:   shownBy().Elsewhere(),
		Skip: map[string]string{
			"10-MiB-message": "codex refuses prompts beyond 1048576 characters; liveLargePrompt has the largest that it takes",
		},
	})
}
