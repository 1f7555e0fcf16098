package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/control/process"
)

func processRunCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "run",
		Usage:     "run a program to its end and print what it wrote",
		ArgsUsage: commandLine,
		Description: `Ends as the program does: with its exit code, or 128 and the number of the signal that ended it. Ctrl-C
ends the program. Of a long output the beginning is printed. With --json the outputs are in base64.`,
		Flags: programFlags(
			&cli.BoolFlag{Name: "stdin", Aliases: []string{"i"}, Usage: "give the program the standard input"},
			&cli.DurationFlag{Name: "limit", Usage: "kill the program after this time; without the flag it is the gateway's limit"},
			&cli.StringFlag{Name: "max-output", Usage: "how much of each output is wanted, as 4MiB"},
		),
		Action: func(c *cli.Context) error {
			command, args, env, err := program(c)
			if err != nil {
				return err
			}
			r := client.ProcessRun{Command: command, Args: args, Env: env, Cwd: c.String("cwd"), SessionID: c.String("session")}
			if d := c.Duration("limit"); c.IsSet("limit") {
				if r.TimeoutMs = d.Milliseconds(); r.TimeoutMs < 1 {
					return cmdline.Usagef(c, "--limit must be at least a millisecond")
				}
			}
			if v := c.String("max-output"); v != "" {
				if r.MaxOutputBytes, err = cmdline.Size(v); err != nil {
					return cmdline.Usagef(c, "--max-output %s", err)
				}
			}
			if c.Bool("stdin") {
				if r.Stdin, err = io.ReadAll(std.in); err != nil {
					return fmt.Errorf("read the standard input: %w", err)
				}
			}
			return onGateway(c, func(ctx context.Context, api *client.Client) error { return processRun(ctx, c, std, api, r) })
		},
	}
}

func processRun(ctx context.Context, c *cli.Context, std stdio, api *client.Client, r client.ProcessRun) error {
	result, err := api.Run(ctx, r)
	if r.TimeoutMs > 0 {
		err = advise(err, problem.InvalidRequest, "the longest --limit is maxRunMs of: sandbox-agent process limits")
	}
	if err != nil {
		return err
	}
	if c.Bool("json") {
		cmdline.WriteJSON(std.out, result)
		return exitOf(result.ExitCode, result.Signal)
	}
	_, _ = std.out.Write(result.Stdout.Data) // output that cannot be written has nowhere to be reported
	_, _ = std.err.Write(result.Stderr.Data)
	for name, o := range map[string]client.ProcessOutput{"output": result.Stdout, "error output": result.Stderr} {
		if o.Truncated {
			note(std, fmt.Sprintf("these are the first %d of %d bytes of its %s: --max-output shows more", len(o.Data), o.Bytes, name))
		}
	}
	if result.TimedOut {
		note(std, fmt.Sprintf("the program was killed after %v: --limit gives it more time", time.Duration(result.DurationMs)*time.Millisecond))
	}
	return exitOf(result.ExitCode, result.Signal)
}

func processStartCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:        "start",
		Usage:       "start a program in the background and print its id",
		ArgsUsage:   commandLine,
		Description: "It ends with the gateway at the latest. See process logs, attach, stop.",
		Flags: programFlags(
			&cli.BoolFlag{Name: "tty", Aliases: []string{"t"}, Usage: "give the program a terminal"},
			&cli.BoolFlag{Name: "attach", Aliases: []string{"a"}, Usage: "give it a terminal and attach to that at once"},
			detachFlag(),
		),
		Action: func(c *cli.Context) error {
			command, args, env, err := program(c)
			if err != nil {
				return err
			}
			key, err := detachKey(c)
			if err != nil {
				return err
			}
			s := client.ProcessStart{Command: command, Args: args, Env: env, Cwd: c.String("cwd"), SessionID: c.String("session"), TTY: c.Bool("tty") || c.Bool("attach")}
			if f, ok := std.out.(*os.File); ok && s.TTY {
				if cols, rows, err := term.GetSize(int(f.Fd())); err == nil && cols > 0 && rows > 0 {
					s.Cols, s.Rows = cols, rows
				}
			}
			attach := c.Bool("attach")
			var started process.Info
			err = onGateway(c, func(ctx context.Context, api *client.Client) (err error) {
				started, err = cmdline.Made(ctx, notesOf(c, std), "the gateway has not answered: the program may be started, and would be in sandbox-agent process list",
					func(ctx context.Context) (process.Info, error) { return api.Start(ctx, s) })
				switch {
				case err != nil:
				case attach && ctx.Err() != nil:
					err = &leftError{"the program is started: sandbox-agent process attach " + started.ID, errInterrupted}
				case attach:
				case c.Bool("json"):
					cmdline.WriteJSON(std.out, started)
				default:
					fmt.Fprintln(std.out, started.ID)
				}
				return err
			})
			if err != nil || !attach {
				return err
			}
			return attachTo(c, std, started.ID, key)
		},
	}
}
