package opencode

import (
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters/adaptertest"
)

func TestContract(t *testing.T) {
	w := newWorld(t)
	prompts := w.Prompts(`tr '\0' ' ' < /proc/$p/cmdline | grep -q ' serve --hostname'`)
	prompts.Echo = func(text string) string { return "say " + text }
	adaptertest.Run(t, adaptertest.Subject{
		Adapter: w.Adapter(),
		Prompts: prompts,
		Crash:   adaptertest.Crash{Code: -1, Stderr: "about to crash"},
	})
}
