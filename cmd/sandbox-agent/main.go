// Command sandbox-agent is one binary between clients of the Agent Client
// Protocol and coding agents: the gateway, and command line tools that use one.
//
// It also runs as child processes of itself, under names that are not in its
// help. Those are recognised before anything else is set up.
package main

import (
	"context"
	"os"

	"sandboxagent.dev/sandbox-agent/adapters/all"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

// version is set when the binary is built.
var version = "dev"

func main() {
	if code, ok := all.RunChild(os.Args[1:]); ok {
		os.Exit(code)
	}
	cmdline.UnsetEmpty("SANDBOX_AGENT_")
	os.Exit(run(context.Background(), os.Args[1:], stdio{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}
