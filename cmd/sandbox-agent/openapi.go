package main

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

func openapiCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:  "openapi",
		Usage: "print the description of the gateway's HTTP API",
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
			doc, err := api.OpenAPI(ctx)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(std.out, "%s\n", doc)
			return err
		},
	}
}
