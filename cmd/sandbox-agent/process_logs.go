package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/control/process"
)

func processLogsCommand(std stdio) *cli.Command {
	return onProcess(std, "logs", "print what a process wrote",
		"What it wrote to stderr goes to stderr. With --follow a connection that breaks is made again: each piece\ncomes once. With --json every piece of output is one line, in base64.",
		[]cli.Flag{
			&cli.BoolFlag{Name: "follow", Aliases: []string{"f"}, Usage: "go on until the process has ended"},
			&cli.IntFlag{Name: "tail", Aliases: []string{"n"}, Usage: "only so many of the last lines"},
			&cli.StringFlag{Name: "since", Usage: "only what was written since, as 5m or a time as 2026-03-04T05:06:07Z"},
			&cli.StringFlag{Name: "stream", Usage: "stdout, stderr, pty or combined", Value: "combined"},
			timeoutFlag(0),
		},
		func(ctx context.Context, c *cli.Context, api *client.Client, id string) error {
			o := client.LogOptions{Stream: c.String("stream"), Tail: c.Int("tail")}
			if !slices.Contains([]string{"combined", string(process.Stdout), string(process.Stderr), string(process.PTY)}, o.Stream) {
				return cmdline.Usagef(c, "--stream %s: use stdout, stderr, pty or combined", o.Stream)
			}
			if o.Tail < 0 || c.IsSet("tail") && o.Tail == 0 {
				return cmdline.Usagef(c, "--tail must be at least 1")
			}
			if v := c.String("since"); v != "" {
				if o.Tail > 0 {
					return cmdline.Usagef(c, "--tail and --since are both given: use one")
				}
				ago, err := time.ParseDuration(v)
				if o.Since = time.Now().Add(-ago); err != nil {
					if o.Since, err = time.Parse(time.RFC3339Nano, v); err != nil {
						return cmdline.Usagef(c, "--since %s: give a duration as 5m or a time as 2026-03-04T05:06:07Z", v)
					}
				}
			}
			if c.Bool("follow") {
				return follow(c, std, "the process", (&logFollower{c: c, std: std, id: id, o: o}).follow)
			}
			return printLogs(ctx, c, std, api, id, o)
		})
}

func printLogs(ctx context.Context, c *cli.Context, std stdio, api *client.Client, id string, o client.LogOptions) error {
	for {
		page, err := api.ProcessLog(ctx, id, o)
		if err != nil {
			return err
		}
		if page.Missed > 0 && o.After == 0 {
			note(std, fmt.Sprintf("the first %d bytes are no longer kept", page.Missed))
		}
		for _, chunk := range page.Chunks {
			printChunk(c, std, chunk)
		}
		if !page.HasMore {
			return nil
		}
		o = client.LogOptions{Stream: o.Stream, After: page.Next}
	}
}

func printChunk(c *cli.Context, std stdio, chunk client.LogChunk) {
	if c.Bool("json") {
		cmdline.WriteJSON(std.out, chunk)
		return
	}
	var w io.Writer = std.out
	if chunk.Stream == process.Stderr {
		w = std.err
	}
	_, _ = w.Write(chunk.Data) // output that cannot be written has nowhere to be reported
}

// logFollower prints what a process writes, each piece once.
type logFollower struct {
	c   *cli.Context
	std stdio
	id  string
	o   client.LogOptions // of what was not printed yet
}

// follow is an [opener].
func (f *logFollower) follow(ctx context.Context, api *client.Client, opened func()) (enough bool, err error) {
	for e, err := range api.FollowProcess(ctx, f.id, f.o, opened) {
		switch {
		case err != nil:
			return false, err
		case e.Chunk != nil:
			printChunk(f.c, f.std, *e.Chunk)
			f.o = client.LogOptions{Stream: f.o.Stream, After: e.Chunk.Position + uint64(len(e.Chunk.Data))}
		case e.Missed > 0:
			note(f.std, fmt.Sprintf("%d bytes are no longer kept", e.Missed))
		case e.Exit != nil:
			return true, nil
		}
	}
	return false, nil
}
