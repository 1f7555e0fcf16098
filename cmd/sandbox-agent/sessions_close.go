package main

import (
	"context"
	"fmt"
	"slices"

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

// endCommand is a command that ends sessions in some way, and says done of each. One that cannot be ended keeps
// none behind it from that.
func endCommand(std stdio, name, usage, done string, end func(*client.Client, context.Context, string) error) *cli.Command {
	return &cli.Command{
		Name:      name,
		Usage:     usage,
		ArgsUsage: "SESSION...",
		Flags:     targetFlags(timeoutFlag(agentTimeout)),
		Action: func(c *cli.Context) error {
			ids := c.Args().Slice()
			switch {
			case len(ids) == 0:
				return cmdline.Usagef(c, "SESSION is missing")
			case slices.Contains(ids, ""):
				return cmdline.Usagef(c, "SESSION is empty")
			}
			ctx, cancel, api, err := controlClient(c)
			if err != nil {
				return err
			}
			defer cancel()
			var failed error
			for _, id := range ids {
				err := end(api, ctx, id)
				if err != nil && failed != nil {
					r := describe(failed)
					r.Print(std.err, c.Bool("json"))
				}
				switch {
				case err != nil:
					if failed = err; ctx.Err() != nil || cmdline.Unreachable(err) {
						return err // it is the same for all
					}
				case c.Bool("json"):
					cmdline.WriteJSON(std.out, object{"sessionId": id, done: true})
				default:
					fmt.Fprintf(std.out, "%s %s\n", done, id)
				}
			}
			return failed
		},
	}
}
