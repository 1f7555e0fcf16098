// Command sandbox-hub is one address before many gateways: they join it as nodes,
// and clients use them through it.
package main

import (
	"context"
	"os"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

// version is set when the binary is built.
var version = "dev"

func main() {
	cmdline.UnsetEmpty("SANDBOX_HUB_")
	os.Exit(run(context.Background(), os.Args[1:], stdio{out: os.Stdout, err: os.Stderr}))
}
