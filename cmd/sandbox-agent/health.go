package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

func healthCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:        "health",
		Usage:       "check that the gateway answers",
		Description: "Needs no token. With --ready, which needs it, also that the gateway takes new work.",
		Flags: targetFlags(
			&cli.BoolFlag{Name: "ready", Usage: "also check that new work is accepted"},
			timeoutFlag(standardTimeout),
		),
		Action: func(c *cli.Context) error {
			if _, err := cmdline.Exactly(c); err != nil {
				return err
			}
			ctx, cancel, api, err := controlClientWith(c, c.Bool("ready"))
			if err != nil {
				return err
			}
			defer cancel()
			status, err := api.Health(ctx)
			if err == nil && c.Bool("ready") {
				status, err = api.Ready(ctx)
			}
			if err != nil {
				return err
			}
			if c.Bool("json") {
				cmdline.WriteJSON(std.out, status)
				return nil
			}
			fmt.Fprintln(std.out, status.Status)
			return nil
		},
	}
}
