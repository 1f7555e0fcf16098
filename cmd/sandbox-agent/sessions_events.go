package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/runtime"
)

func sessionsEventsCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:        "events",
		Usage:       "print what happened in a session",
		ArgsUsage:   "SESSION",
		Description: "With --json every event is one line.",
		Flags: targetFlags(
			&cli.Uint64Flag{Name: "after", Usage: "begin behind this sequence number"},
			&cli.IntFlag{Name: "limit", Usage: "the most events to print, 0 is all"},
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "wait for more until Ctrl-C"},
			timeoutFlag(0),
		),
		Action: func(c *cli.Context) error {
			args, err := cmdline.Exactly(c, "SESSION")
			if err != nil {
				return err
			}
			return sessionsEvents(c, std, args[0])
		},
	}
}

func sessionsEvents(c *cli.Context, std stdio, id string) error {
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
	after := c.Uint64("after")
	if !c.IsSet("after") {
		info, err := api.Session(ctx, id)
		if err != nil {
			return err
		}
		if info.OldestSeq > 0 {
			fmt.Fprintf(std.err, "events before %d are no longer kept\n", info.OldestSeq)
			after = info.OldestSeq - 1
		}
	}
	events := allEvents(ctx, api.Events, id, after)
	if c.Bool("follow") {
		events = api.FollowEvents(ctx, id, after)
	}
	n := 0
	for ev, err := range events {
		if err != nil {
			if cause := context.Cause(ctx); cause != nil {
				return cause
			}
			return err
		}
		if c.Bool("json") {
			cmdline.WriteJSON(std.out, ev)
		} else {
			fmt.Fprintln(std.out, eventLine(ev))
		}
		if n++; n == limit {
			return nil
		}
	}
	if !c.Bool("follow") {
		return nil
	}
	_, err = api.Session(ctx, id)
	return cmp.Or(context.Cause(ctx), streamEnded(std, "the session", err))
}

// streamEnded says why a stream has ended that is to go on until Ctrl-C: what it was about
// is gone, or the gateway is. err is how a look at what it was about went.
func streamEnded(std stdio, what string, err error) error {
	if p, ok := errors.AsType[*problem.Error](err); ok && p.Kind.Status() == http.StatusNotFound {
		note(std, what+" is gone")
		return nil
	}
	return errConnectionLost
}

// eventReader reads a page of a session's events, as methods of [client.Client] do.
type eventReader func(ctx context.Context, id string, after uint64, limit int) (client.EventPage, error)

// allEvents yields the events that there are, page by page.
func allEvents(ctx context.Context, read eventReader, id string, after uint64) iter.Seq2[runtime.Event, error] {
	return func(yield func(runtime.Event, error) bool) {
		for {
			page, err := read(ctx, id, after, 1000)
			if err != nil {
				yield(runtime.Event{}, err)
				return
			}
			for _, ev := range page.Events {
				after = ev.Seq
				if !yield(ev, nil) {
					return
				}
			}
			if !page.HasMore || len(page.Events) == 0 {
				return
			}
		}
	}
}

func eventLine(ev runtime.Event) string {
	text := cmdline.Shorten(cmdline.OneLine(string(ev.Message)), summaryLen)
	if m, err := acp.Parse(ev.Message); err == nil {
		text = summary(m)
	}
	return fmt.Sprintf("%6d  %s  %-7s  %s", ev.Seq, ev.Time.Local().Format("15:04:05.000"), ev.Direction, text)
}
