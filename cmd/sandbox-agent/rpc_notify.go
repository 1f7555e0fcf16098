package main

import (
	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/acp"
)

func rpcNotifyCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "notify",
		Usage:     "send one notification",
		ArgsUsage: "METHOD [PARAMS|@FILE|-]",
		Flags:     rpcFlags(timeoutFlag(0)),
		Action: func(c *cli.Context) error {
			method, params, err := rpcArgs(c, std)
			if err != nil {
				return err
			}
			ctx, stop := interruptible(c.Context)
			defer stop()
			ctx, cancel := withTimeout(ctx, c.Duration("timeout"))
			defer cancel()
			l, params, err := openRPC(ctx, c, params, func(*link, acp.Message) {})
			if err != nil {
				return err
			}
			// The connection carries messages in order, so the gateway has read
			// the notification before it reads the goodbye.
			defer l.close()
			return l.notify(ctx, method, params)
		},
	}
}
