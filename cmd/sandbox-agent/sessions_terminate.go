package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

func sessionsTerminateCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:        "terminate",
		Usage:       "end a session for good; its events stay",
		ArgsUsage:   "SESSION",
		Description: "What it does is cancelled, its agent ends, and it cannot be opened again.",
		Flags:       targetFlags(timeoutFlag(agentTimeout)),
		Action: func(c *cli.Context) error {
			args, err := cmdline.Exactly(c, "SESSION")
			if err != nil {
				return err
			}
			t, err := targetOf(c)
			if err != nil {
				return err
			}
			ctx, cancel := withTimeout(c.Context, c.Duration("timeout"))
			defer cancel()
			l, err := sessionLink(ctx, t, args[0])
			if err != nil {
				return err
			}
			defer l.close()
			res, err := l.call(ctx, "_sandboxagent/session/terminate", object{"sessionId": args[0]})
			if err != nil {
				return err
			}
			switch {
			case c.Bool("json"):
				cmdline.WriteJSON(std.out, res)
			case rawjson.MemberBool(res, "alreadyEnded"):
				fmt.Fprintf(std.out, "%s had ended already\n", args[0])
			default:
				fmt.Fprintf(std.out, "terminated %s\n", args[0])
			}
			return nil
		},
	}
}
