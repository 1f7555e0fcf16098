package main

import (
	"fmt"

	"github.com/urfave/cli/v2"
)

func sessionsCloseCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "close",
		Usage:     "cancel what a session does and let go of its agent; its events stay",
		ArgsUsage: "SESSION",
		Flags:     targetFlags(timeoutFlag(standardTimeout)),
		Action: func(c *cli.Context) error {
			args, err := exactly(c, "SESSION")
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
				writeJSON(std.out, object{"sessionId": args[0], "closed": true})
				return nil
			}
			fmt.Fprintf(std.out, "closed %s\n", args[0])
			return nil
		},
	}
}
