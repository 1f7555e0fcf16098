package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
)

func sessionsCloseCommand(std stdio) *cli.Command {
	return endCommand(std, "close", "cancel what sessions do and let go of their agents; their events stay", "closed", (*client.Client).CloseSession)
}

func sessionsDeleteCommand(std stdio) *cli.Command {
	return endCommand(std, "delete", "end sessions and delete their events", "deleted", (*client.Client).DeleteSession)
}

// endCommand is a command that ends sessions in some way, and says done of each.
func endCommand(std stdio, name, usage, done string, end func(*client.Client, context.Context, string) error) *cli.Command {
	return &cli.Command{
		Name:      name,
		Usage:     usage,
		ArgsUsage: "SESSION...",
		Flags:     targetFlags(timeoutFlag(agentTimeout)),
		Action: func(c *cli.Context) error {
			ctx, cancel, api, err := controlClient(c)
			if err != nil {
				return err
			}
			defer cancel()
			return cmdline.Each(c, "SESSION", std.err, describe, func(id string) error {
				err := end(api, ctx, id)
				switch {
				case err != nil:
				case c.Bool("json"):
					cmdline.WriteJSON(std.out, object{"sessionId": id, done: true})
				default:
					fmt.Fprintf(std.out, "%s %s\n", done, id)
				}
				return err
			})
		},
	}
}
