package main

import (
	"cmp"
	"strings"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/fleet/client"
	"sandboxagent.dev/sandbox-agent/fleet/tunnel"
)

func nodeCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:        "node",
		Usage:       "list nodes, and forget them",
		Subcommands: []*cli.Command{nodeListCommand(std), nodeRemoveCommand(std)},
	}
}

func nodeListCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:  "list",
		Usage: "list the nodes that the token is for",
		Flags: targetFlags(&cli.StringSliceFlag{Name: "label", Usage: "only nodes with this label, as `NAME=VALUE`; may be repeated"}),
		Action: func(c *cli.Context) error {
			if _, err := cmdline.Exactly(c); err != nil {
				return err
			}
			ctx, cancel, hub, err := hubOf(c)
			if err != nil {
				return err
			}
			defer cancel()
			nodes, err := hub.Nodes(ctx, c.StringSlice("label")...)
			if err != nil {
				return err
			}
			if c.Bool("json") {
				cmdline.WriteJSON(std.out, nodes)
				return nil
			}
			rows := [][]string{{"NAME", "STATE", "LABELS", "VERSION", "SINCE"}}
			for _, n := range nodes {
				rows = append(rows, []string{n.Name, n.State, strings.Join(tunnel.FormatLabels(n.Labels), ","), n.Version, cmp.Or(cmdline.Clock(n.Since), "unknown")})
			}
			cmdline.Table(std.out, rows)
			return nil
		},
	}
}

func nodeRemoveCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:        "remove",
		Usage:       "forget nodes that are offline",
		ArgsUsage:   "NAME...",
		Description: "A gateway that joins by the name again is a new node.",
		Flags:       targetFlags(),
		Action:      onEach(std, "NAME", "removed", (*client.Client).RemoveNode),
	}
}
