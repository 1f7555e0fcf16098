package main

import (
	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

func metricsCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:  "metrics",
		Usage: "print the gateway's metrics",
		Description: `They are in the text format of Prometheus, as its scraper reads them at /metrics.
With --json, an object with them in its member metrics.`,
		Flags: targetFlags(timeoutFlag(standardTimeout)),
		Action: func(c *cli.Context) error {
			if _, err := cmdline.Exactly(c); err != nil {
				return err
			}
			ctx, cancel, api, err := controlClient(c)
			if err != nil {
				return err
			}
			defer cancel()
			text, err := api.Metrics(ctx)
			if err != nil {
				return err
			}
			if c.Bool("json") {
				cmdline.WriteJSON(std.out, object{"metrics": string(text)})
				return nil
			}
			_, err = std.out.Write(text)
			return err
		},
	}
}
