package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/runtime"
)

func sessionsPermissionsCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "permissions",
		Usage:     "list what a session's agent was always allowed, and take it back",
		ArgsUsage: "SESSION",
		Description: "The agent asks again about what is taken back. That is refused while something goes on in the session.\n" +
			"Some grants cannot be taken back; the list says why.",
		Flags: targetFlags(
			&cli.StringSliceFlag{Name: "forget", Usage: "take back the grant with this `ID`; may be repeated"},
			&cli.BoolFlag{Name: "all", Usage: "take back all that can be taken back"},
			timeoutFlag(agentTimeout),
		),
		Action: func(c *cli.Context) error {
			args, err := cmdline.Exactly(c, "SESSION")
			if err != nil {
				return err
			}
			ids, all := c.StringSlice("forget"), c.Bool("all")
			if all && len(ids) > 0 {
				return cmdline.Usagef(c, "say either --forget or --all")
			}
			ctx, cancel, api, err := controlClient(c)
			if err != nil {
				return err
			}
			defer cancel()
			if !all && len(ids) == 0 {
				list, err := api.Permissions(ctx, args[0])
				if err != nil {
					return err
				}
				if c.Bool("json") {
					cmdline.WriteJSON(std.out, object{"permissions": list})
				} else {
					listPermissions(std, list)
				}
				return nil
			}
			forgotten := []runtime.Grant{}
			if all {
				forgotten, err = api.ForgetPermissions(ctx, args[0])
			}
			for _, id := range ids {
				if err != nil || slices.ContainsFunc(forgotten, func(g runtime.Grant) bool { return g.ID == id }) {
					continue // some agents forget more than they were asked to
				}
				var more []runtime.Grant
				more, err = api.ForgetPermission(ctx, args[0], id)
				forgotten = append(forgotten, more...)
			}
			if c.Bool("json") && err == nil {
				cmdline.WriteJSON(std.out, object{"forgotten": forgotten})
			} else {
				for _, g := range forgotten { // also when one of more than one failed
					fmt.Fprintf(std.out, "taken back: %s\n", cmdline.Printable(g.Title))
				}
			}
			if err != nil || !all {
				return err
			}
			if len(forgotten) == 0 {
				fmt.Fprintln(std.err, "nothing was taken back")
			}
			left, err := api.Permissions(ctx, args[0])
			sayStays(std.err, left)
			return err
		},
	}
}

// sayStays says what cannot be taken back, and each reason once.
func sayStays(w io.Writer, list []runtime.Grant) {
	said := map[string]bool{}
	for _, first := range list {
		if first.Revocable || said[first.Reason] {
			continue
		}
		said[first.Reason] = true
		var titles []string
		for _, g := range list {
			if !g.Revocable && g.Reason == first.Reason {
				titles = append(titles, cmdline.OneLine(g.Title))
			}
		}
		fmt.Fprintf(w, "stays allowed: %s: %s\n", strings.Join(titles, ", "), cmdline.OneLine(first.Reason))
	}
}

// listPermissions writes a table of grants, and why some cannot be taken back.
func listPermissions(std stdio, list []runtime.Grant) {
	rows := [][]string{{"ID", "ALLOWED", "SINCE", "WHERE"}}
	for _, g := range list {
		since := ""
		if g.GivenAt != nil {
			since = cmdline.Clock(*g.GivenAt)
		}
		rows = append(rows, []string{g.ID, g.Title, since, string(g.Where)})
	}
	cmdline.Table(std.out, rows)
	for _, g := range list {
		if !g.Revocable {
			fmt.Fprintf(std.out, "%s cannot be taken back: %s\n", g.ID, cmdline.Printable(g.Reason))
		}
	}
}
