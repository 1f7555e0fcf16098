package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

func agentsRemoveCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "remove",
		Usage:     "remove every installed version of an agent's program",
		ArgsUsage: "AGENT",
		Description: `Programs in PATH stay. A version that a session runs is removed, too, and its agent may fail: close the session first.

` + placeText,
		Flags: targetFlags(append(installFlags(), timeoutFlag(standardTimeout))...),
		Action: func(c *cli.Context) error {
			args, err := cmdline.Exactly(c, "AGENT")
			if err != nil {
				return err
			}
			api, err := namedGateway(c)
			if err != nil {
				return err
			}
			ctx, explain, cancel := untilSignal(c)
			defer cancel()
			if api != nil {
				err = api.RemoveInstall(ctx, args[0])
			} else {
				in, end, oerr := localInstaller(c)
				if oerr != nil {
					return oerr
				}
				defer end()
				err = in.Remove(ctx, args[0])
			}
			if err != nil {
				return explain(err)
			}
			if c.Bool("json") {
				cmdline.WriteJSON(std.out, object{"agent": args[0], "removed": true})
				return nil
			}
			fmt.Fprintf(std.out, "removed %s\n", args[0])
			return nil
		},
	}
}
