package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/runtime"
)

func sessionsWatchCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:        "watch",
		Usage:       "print how the list of sessions changes, until Ctrl-C",
		Description: "Begins with all sessions, unless --after says how far they are known. With --json every change is one line, with its position.",
		Flags: targetFlags(
			&cli.Uint64Flag{Name: "after", Usage: "begin behind this position of a change or a list"},
			&cli.IntFlag{Name: "limit", Usage: "the most changes to print, 0 is all"},
			timeoutFlag(0),
		),
		Action: func(c *cli.Context) error {
			if _, err := cmdline.Exactly(c); err != nil {
				return err
			}
			return sessionsWatch(c, std)
		},
	}
}

func sessionsWatch(c *cli.Context, std stdio) error {
	limit := c.Int("limit")
	if limit < 0 {
		return cmdline.Usagef(c, "--limit cannot be negative")
	}
	ctx, cancel, api, err := controlClient(c)
	if err != nil {
		return err
	}
	defer cancel()
	ctx, stop := interruptible(ctx)
	defer stop()
	n := 0
	for change, err := range api.FollowSessions(ctx, c.Uint64("after")) {
		if err != nil {
			return cmp.Or(context.Cause(ctx), err)
		}
		if c.Bool("json") {
			cmdline.WriteJSON(std.out, change)
		} else if line := changeLine(change); line != "" {
			fmt.Fprintln(std.out, line)
		} else {
			continue
		}
		if n++; n == limit {
			return nil
		}
	}
	return cmp.Or(context.Cause(ctx), errConnectionLost)
}

// changeLine shows a change to people, "" for one that says nothing of a session.
func changeLine(change runtime.SessionChange) string {
	switch s := change.Session; {
	case change.Type == runtime.ChangeDeleted:
		return fmt.Sprintf("%s  %-8s", change.SessionID, "deleted")
	case s != nil:
		line := fmt.Sprintf("%s  %-8s  %s  %s  %d events", s.ID, s.State, s.Agent, cmdline.Clock(s.UpdatedAt), s.EventCount)
		if s.Pending > 0 {
			line += fmt.Sprintf(", %d to answer", s.Pending)
		}
		if s.Cost != nil {
			line += fmt.Sprintf(", %.4g %s", s.Cost.Amount, s.Cost.Currency)
		}
		if title := cmp.Or(s.Title, s.Gist); title != "" {
			line += "  " + cmdline.Shorten(cmdline.OneLine(title), 40)
		}
		return line
	}
	return ""
}
