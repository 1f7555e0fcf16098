package main

import (
	"cmp"
	"fmt"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/runtime"
)

func sessionsListCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:  "list",
		Usage: "list sessions",
		Flags: targetFlags(
			&cli.StringFlag{Name: "cwd", Usage: "only those in this directory"},
			&cli.StringFlag{Name: "agent", Usage: "only those of this agent"},
			&cli.StringSliceFlag{Name: "state", Usage: "only those in this state: idle, running, waiting, dormant, closed or ended; can be given again"},
			&cli.StringFlag{Name: "search", Usage: "only those with these words in their title or messages"},
			&cli.StringFlag{Name: "sort", Usage: "activity, the last in use first, or created, the newest first", Value: "activity"},
			&cli.StringFlag{Name: "cursor", Usage: "begin at this page"},
			&cli.IntFlag{Name: "limit", Usage: "size of a page, at most 1000", Value: 100},
			&cli.BoolFlag{Name: "all", Usage: "all pages"},
			timeoutFlag(standardTimeout),
		),
		Action: func(c *cli.Context) error {
			if _, err := cmdline.Exactly(c); err != nil {
				return err
			}
			return sessionsList(c, std)
		},
	}
}

func sessionsList(c *cli.Context, std stdio) error {
	ctx, cancel, api, err := controlClient(c)
	if err != nil {
		return err
	}
	defer cancel()
	f := runtime.SessionFilter{Cwd: c.String("cwd"), Agent: c.String("agent"), Query: c.String("search"), Order: runtime.SessionOrder(c.String("sort")), Cursor: c.String("cursor"), Limit: c.Int("limit")}
	for _, state := range c.StringSlice("state") {
		f.States = append(f.States, runtime.State(state))
	}
	if f.Limit < 1 || f.Limit > 1000 {
		return cmdline.Usagef(c, "--limit must be between 1 and 1000")
	}
	if f.Cwd != "" {
		if f.Cwd, err = filepath.Abs(f.Cwd); err != nil {
			return fmt.Errorf("find directory: %w", err)
		}
	}
	page, err := api.Sessions(ctx, f)
	for err == nil && c.Bool("all") && page.NextCursor != "" {
		f.Cursor = page.NextCursor
		next, nextErr := api.Sessions(ctx, f)
		page.Sessions, page.NextCursor, page.Unsearched, err = append(page.Sessions, next.Sessions...), next.NextCursor, page.Unsearched+next.Unsearched, nextErr
	}
	if err != nil {
		return err
	}
	if page.Unsearched > 0 {
		fmt.Fprintf(std.err, "%d sessions could not be searched: their logs cannot be read, and the gateway's log says why\n", page.Unsearched)
	}
	if c.Bool("json") {
		cmdline.WriteJSON(std.out, page)
		return nil
	}
	rows := [][]string{{"SESSION", "AGENT", "STATE", "UPDATED", "EVENTS", "TITLE", "DIRECTORY"}}
	for _, s := range page.Sessions {
		rows = append(rows, []string{s.ID, s.Agent, string(s.State), cmdline.Clock(s.UpdatedAt), fmt.Sprint(s.EventCount), cmdline.Shorten(cmdline.OneLine(cmp.Or(s.Title, s.Gist)), 40), s.Cwd})
	}
	cmdline.Table(std.out, rows)
	if page.NextCursor != "" {
		fmt.Fprintf(std.err, "more: --cursor %s, or --all\n", quoteWord(page.NextCursor))
	}
	return nil
}
