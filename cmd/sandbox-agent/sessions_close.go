package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

func sessionsCloseCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "close",
		Usage:     "cancel what a session does and let go of its agent; its events stay",
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
			if err := api.CloseSession(ctx, args[0]); err != nil {
				return err
			}
			if c.Bool("json") {
				cmdline.WriteJSON(std.out, object{"sessionId": args[0], "closed": true})
				return nil
			}
			fmt.Fprintf(std.out, "closed %s\n", args[0])
			return nil
		},
	}
}
