package acme

import (
	"os"
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/adaptertest"
)

// TestContract runs the contract against the bridge of the page about adding
// agents. ACME names the program.
func TestContract(t *testing.T) {
	none := "Acme has no tools"
	adaptertest.Run(t, adaptertest.Subject{
		Adapter: Adapter{},
		Options: adapters.Options{Program: adapters.Program{Path: os.Getenv("ACME")}},
		NoLoad:  true, NoResume: true,
		Crash: adaptertest.Crash{Code: 3, Stderr: "boom"},
		Prompts: adaptertest.Prompts{
			Say:     adaptertest.Prompt{Text: "hello", Says: "hello"},
			Stream:  adaptertest.Prompt{Text: "stream"},
			Run:     adaptertest.Prompt{Text: "run"},
			Echo:    func(s string) string { return "echo " + s },
			Garbage: adaptertest.Prompt{Text: "garbage", Says: "fine"},
			Crash:   adaptertest.Prompt{Text: "crash"},
		},
		Skip: map[string]string{
			"tool-call-lifecycle": none, "reused-call-id": none, "permission-allow": none, "permission-reject": none, "permission-cancelled": none,
		},
	})
}
