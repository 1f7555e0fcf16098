package main

import (
	"context"
	"io"
	"slices"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

// stdio are the streams of one run of the program.
type stdio struct{ out, err io.Writer }

const description = `One address before many gateways, which join it as nodes.

Start one with "sandbox-hub serve". Commands that talk to a hub find it by --endpoint
or SANDBOX_HUB_ENDPOINT, and present the token of --token-file or SANDBOX_HUB_TOKEN.

EXIT CODES:
   0    success
   1    failure
   2    wrong usage
   3    the hub cannot be reached
   4    the token is missing or wrong, or does not allow it
   5    the node, session or token does not exist`

// run runs the program with its arguments and returns its exit code.
func run(ctx context.Context, args []string, std stdio) int {
	out, unwritten := cmdline.Written(std.out)
	std.out = out
	err := cmdline.Run(ctx, newApp(std), args, nil)
	if err == nil {
		err = unwritten()
	}
	if err == nil {
		return cmdline.ExitOK
	}
	r := describe(err)
	r.Print(std.err, slices.Contains(args, "--json"))
	return r.Exit
}

func newApp(std stdio) *cli.App {
	app := &cli.App{
		Name:        "sandbox-hub",
		Usage:       "one address before many gateways",
		Description: description,
		Writer:      std.out,
		ErrWriter:   std.err,
		Commands:    []*cli.Command{serveCommand(std), tokenCommand(std), nodeCommand(std), sessionCommand(std), healthCommand(std), versionCommand(std)},
	}
	cmdline.Prepare(app)
	return app
}
