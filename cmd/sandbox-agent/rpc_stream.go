package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/lasting"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

func rpcStreamCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:  "stream",
		Usage: "attach to a session and print every message",
		Description: `Prints what the session's clients are sent until Ctrl-C. --after 0 begins with the
session's first message, without --after only new ones are shown. Nothing is
answered. With --json every message is printed as it came.`,
		Flags: targetFlags(
			retryFlag(time.Minute),
			&cli.StringFlag{Name: "session", Usage: "the session"},
			versionFlag(),
			&cli.Uint64Flag{Name: "after", Usage: "begin behind this sequence number", DefaultText: "the newest"},
		),
		Action: func(c *cli.Context) error {
			if _, err := cmdline.Exactly(c); err != nil {
				return err
			}
			if c.String("session") == "" {
				return cmdline.Usagef(c, "--session is missing")
			}
			return rpcStream(c, std)
		},
	}
}

func rpcStream(c *cli.Context, std stdio) error {
	ctx, stop := interruptible(c.Context)
	defer stop()
	t, err := targetOf(c)
	if err != nil {
		return err
	}
	id := c.String("session")
	cwd, agent, err := sessionCwd(ctx, t, id, "")
	if err != nil {
		return err
	}
	asJSON := c.Bool("json")
	speaks, err := versionOf(c)
	if err != nil {
		return err
	}
	receive := func(_ *link, m acp.Message) {
		switch {
		case m.IsResponse():
		case asJSON:
			fmt.Fprintf(std.out, "%s\n", m.Frame())
		default:
			fmt.Fprintln(std.out, summary(m))
		}
	}
	defer cmdline.NoticeSleep()()
	l, err := dialLastingLink(ctx, t, max(c.Duration("retry"), 1), linkNews{changed: func(l lasting.Link) { fmt.Fprintln(std.err, linkLine(l, id, false)) }}, receive)
	if err != nil {
		return err
	}
	defer l.close()
	if _, err := l.initializeAs(ctx, speaks, agent, object{"eventIds": true, "requestQuestion": true}); err != nil {
		return err
	}
	var own object
	if c.IsSet("after") {
		own = object{"after": c.Uint64("after")}
	}
	_, err = l.resume(ctx, id, cwd, own)
	if err == nil {
		select {
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-l.ended:
			err = l.err
		}
	}
	switch {
	case errors.Is(context.Cause(ctx), errInterrupted): // which is how it ends, in what is replayed too
		return nil
	case errors.Is(err, errConnectionLost):
		return errConnectionLost
	}
	return err
}
