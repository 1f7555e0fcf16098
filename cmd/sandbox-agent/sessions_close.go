package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
)

func sessionsCloseCommand(std stdio) *cli.Command {
	return endCommand(std, "close", "cancel what a session does and let go of its agent; its events stay", "closed", (*client.Client).CloseSession)
}

func sessionsDeleteCommand(std stdio) *cli.Command {
	return endCommand(std, "delete", "end a session and delete its events", "deleted", (*client.Client).DeleteSession)
}

// endCommand is a command that ends a session in some way, and says done of it.
func endCommand(std stdio, name, usage, done string, end func(*client.Client, context.Context, string) error) *cli.Command {
	return &cli.Command{
		Name:      name,
		Usage:     usage,
		ArgsUsage: "SESSION",
		Flags:     targetFlags(timeoutFlag(agentTimeout)),
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
			if err := end(api, ctx, args[0]); err != nil {
				return err
			}
			if c.Bool("json") {
				cmdline.WriteJSON(std.out, object{"sessionId": args[0], done: true})
				return nil
			}
			fmt.Fprintf(std.out, "%s %s\n", done, args[0])
			return nil
		},
	}
}
