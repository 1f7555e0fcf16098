package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
)

func sessionsRawCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "raw",
		Usage:     "print what a session's agent and the gateway said to each other, in the agent's own language",
		ArgsUsage: "SESSION",
		Description: "For bug reports, of a session that was made with prompt --include-raw, or with includeRaw by\n" +
			"another client. Each line is a JSON object. What looks like a key was taken out as it was recorded.",
		Flags: targetFlags(
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write to this `FILE`, - is the standard output"},
			timeoutFlag(standardTimeout),
		),
		Action: func(c *cli.Context) error {
			args, err := cmdline.Exactly(c, "SESSION")
			if err != nil {
				return err
			}
			return onGateway(c, func(ctx context.Context, api *client.Client) error {
				raw, err := api.Raw(ctx, args[0])
				if err != nil {
					return advise(err, problem.NotFound, "traffic is recorded from the start of a session that is made with: sandbox-agent prompt --include-raw TEXT")
				}
				defer raw.Close()
				return saveBody(std, raw, c.String("output"), "the recording")
			})
		},
	}
}
