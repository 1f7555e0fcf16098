package main

import (
	"fmt"
	goruntime "runtime"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

func healthCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:        "health",
		Usage:       "check that the hub answers and its store can be written to",
		Description: "Needs no token.",
		Flags:       targetFlags(),
		Action: func(c *cli.Context) error {
			if _, err := cmdline.Exactly(c); err != nil {
				return err
			}
			ctx, cancel, hub, err := hubOf(c)
			if err != nil {
				return err
			}
			defer cancel()
			status, err := hub.Ready(ctx)
			if err != nil {
				return err
			}
			if c.Bool("json") {
				cmdline.WriteJSON(std.out, map[string]string{"status": status})
				return nil
			}
			fmt.Fprintln(std.out, status)
			return nil
		},
	}
}

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
				cmdline.WriteJSON(std.out, map[string]string{"version": version, "goVersion": goruntime.Version(), "os": goruntime.GOOS, "arch": goruntime.GOARCH})
				return nil
			}
			fmt.Fprintf(std.out, "sandbox-hub %s (%s, %s/%s)\n", version, goruntime.Version(), goruntime.GOOS, goruntime.GOARCH)
			return nil
		},
	}
}
