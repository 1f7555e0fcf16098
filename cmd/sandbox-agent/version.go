package main

import (
	"fmt"
	goruntime "runtime"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

func versionCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "print the version of this program",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "write JSON"}},
		Action: func(c *cli.Context) error {
			if _, err := cmdline.Exactly(c); err != nil {
				return err
			}
			if c.Bool("json") {
				cmdline.WriteJSON(std.out, object{
					"version": version, "goVersion": goruntime.Version(), "os": goruntime.GOOS, "arch": goruntime.GOARCH,
				})
				return nil
			}
			fmt.Fprintf(std.out, "sandbox-agent %s (%s, %s/%s)\n", version, goruntime.Version(), goruntime.GOOS, goruntime.GOARCH)
			return nil
		},
	}
}
