package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/runtime"
)

func sessionsEventsCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "events",
		Usage:     "print what happened in a session",
		ArgsUsage: "SESSION",
		Description: `With --json every event is one line. With --follow a gateway that ends is looked for until it is there again: each event
comes once.`,
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
	p := &eventPrinter{c: c, std: std, id: id, after: c.Uint64("after"), limit: limit}
	if c.Bool("follow") {
		return follow(c, std, "the session", p.follow)
	}
	ctx, cancel, api, err := controlClient(c)
	if err != nil {
		return err
	}
	defer cancel()
	ctx, stop := interruptible(ctx)
	defer stop()
	if !c.IsSet("after") {
		if err := p.skip(ctx, api); err != nil {
			return err
		}
	}
	if _, err := p.print(allEvents(ctx, api.Events, id, p.after)); err != nil {
		return cmp.Or(context.Cause(ctx), err)
	}
	return nil
}

// eventPrinter prints the events of a session, each once.
type eventPrinter struct {
	c     *cli.Context
	std   stdio
	id    string
	after uint64 // the event that was printed last
	limit int    // the most to print, 0 is all
	n     int
	begun bool // it has followed
}

// skip goes to the oldest event that there is.
func (p *eventPrinter) skip(ctx context.Context, api *client.Client) error {
	info, err := api.Session(ctx, p.id)
	if err == nil && info.OldestSeq > p.after+1 {
		fmt.Fprintf(p.std.err, "events before %d are no longer kept\n", info.OldestSeq)
		p.after = info.OldestSeq - 1
	}
	return err
}

// follow is an [opener].
func (p *eventPrinter) follow(ctx context.Context, api *client.Client, opened func()) (enough bool, err error) {
	if p.begun || !p.c.IsSet("after") {
		if err := p.skip(ctx, api); err != nil {
			return false, err
		}
	}
	enough, err = p.print(api.FollowEvents(ctx, p.id, p.after, func() { p.begun = true; opened() }))
	if expired, ok := errors.AsType[*problem.Error](err); ok && expired.Kind == problem.EventsExpired && p.begun {
		return enough, nil // the reader was too slow: it goes on with the oldest that there is
	}
	if enough || err != nil {
		return enough, err
	}
	_, err = api.Session(ctx, p.id)
	return false, err
}

// print prints events until there are enough or no more of them.
func (p *eventPrinter) print(events iter.Seq2[runtime.Event, error]) (enough bool, err error) {
	for ev, err := range events {
		if err != nil {
			return false, err
		}
		if p.after = ev.Seq; p.c.Bool("json") {
			cmdline.WriteJSON(p.std.out, ev)
		} else {
			fmt.Fprintln(p.std.out, eventLine(ev))
		}
		if p.n++; p.n == p.limit {
			return true, nil
		}
	}
	return false, nil
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
