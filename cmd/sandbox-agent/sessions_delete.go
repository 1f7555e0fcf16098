package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

func sessionsDeleteCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "delete",
		Usage:     "end a session and delete its events",
		ArgsUsage: "SESSION",
		Flags:     targetFlags(timeoutFlag(standardTimeout)),
		Action: func(c *cli.Context) error {
			args, err := cmdline.Exactly(c, "SESSION")
			if err != nil {
				return err
			}
			ctx, cancel, api, err := controlClient(c)
			if err != nil {
				return err
			}
			defer cancel()
			if err := api.DeleteSession(ctx, args[0]); err != nil {
				return err
			}
			if c.Bool("json") {
				cmdline.WriteJSON(std.out, object{"sessionId": args[0], "deleted": true})
				return nil
			}
			fmt.Fprintf(std.out, "deleted %s\n", args[0])
			return nil
		},
	}
}
