package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/control/process"
)

func processListCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:        "ls",
		Usage:       "list processes",
		Description: "Of those that have ended a few are kept for some time. With --json every process is one line.",
		Flags:       targetFlags(timeoutFlag(standardTimeout)),
		Action: func(c *cli.Context) error {
			if _, err := cmdline.Exactly(c); err != nil {
				return err
			}
			return onGateway(c, func(ctx context.Context, api *client.Client) error {
				all, err := api.Processes(ctx)
				if err != nil {
					return err
				}
				rows := [][]string{{"ID", "STATE", "PID", "STARTED", "TERMINAL", "COMMAND"}}
				for _, i := range all {
					if c.Bool("json") {
						cmdline.WriteJSON(std.out, i)
					}
					rows = append(rows, []string{i.ID, stateOf(i), number(i.PID), cmdline.Clock(i.StartedAt), sizeOf(i), cmdline.Shorten(lineOf(i), 60)})
				}
				if !c.Bool("json") {
					cmdline.Table(std.out, rows)
				}
				return nil
			})
		},
	}
}

func lineOf(i process.Info) string { return strings.Join(append([]string{i.Command}, i.Args...), " ") }

func stateOf(i process.Info) string {
	switch {
	case i.State == process.Running:
		return string(i.State)
	case i.ExitCode != nil:
		return "exited " + strconv.Itoa(*i.ExitCode)
	}
	return "ended by " + i.Signal
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func endOfProcess(i process.Info) string {
	if i.EndedAt == nil {
		return ""
	}
	return cmdline.Clock(*i.EndedAt)
}

func sizeOf(i process.Info) string {
	if !i.TTY {
		return ""
	}
	return fmt.Sprintf("%dx%d", i.Cols, i.Rows)
}

func bytesOf(i process.Info) string {
	s := strconv.FormatUint(i.OutputBytes, 10) + " bytes"
	if i.DroppedBytes > 0 {
		s += fmt.Sprintf(", the first %d are no longer kept", i.DroppedBytes)
	}
	return s
}

// onProcess is a command about one process.
func onProcess(std stdio, name, usage, description string, flags []cli.Flag, f func(ctx context.Context, c *cli.Context, api *client.Client, id string) error) *cli.Command {
	return &cli.Command{
		Name: name, Usage: usage, ArgsUsage: "ID", Description: description, Flags: targetFlags(flags...),
		Action: func(c *cli.Context) error {
			args, err := cmdline.Exactly(c, "ID")
			if err != nil {
				return err
			}
			return onGateway(c, func(ctx context.Context, api *client.Client) error { return f(ctx, c, api, args[0]) })
		},
	}
}

func processShowCommand(std stdio) *cli.Command {
	return onProcess(std, "show", "describe a process", "", []cli.Flag{timeoutFlag(standardTimeout)},
		func(ctx context.Context, c *cli.Context, api *client.Client, id string) error {
			i, err := api.Process(ctx, id)
			if err != nil {
				return err
			}
			showProcess(c, std, i)
			return nil
		})
}

func processStopCommand(std stdio) *cli.Command {
	return onProcess(std, "stop", "end a process and all that it started",
		"Its input is closed and it gets SIGTERM; what is still there after --patience is killed. The process stays in the list for some time.",
		[]cli.Flag{&cli.DurationFlag{Name: "patience", Usage: "how long it has; 0 kills it at once, without the flag it is the gateway's limit"}, timeoutFlag(0)},
		func(ctx context.Context, c *cli.Context, api *client.Client, id string) error {
			patience := time.Duration(-1)
			if c.IsSet("patience") {
				patience = c.Duration("patience")
			}
			i, err := api.StopProcess(ctx, id, patience)
			if err != nil {
				return err
			}
			showProcess(c, std, i)
			return nil
		})
}

func processKillCommand(std stdio) *cli.Command {
	return onProcess(std, "kill", "kill a process and all that it started, or send it a signal", "",
		[]cli.Flag{&cli.StringFlag{Name: "signal", Aliases: []string{"s"}, Usage: "only send this signal, such as INT, to the process and its group"}, timeoutFlag(standardTimeout)},
		func(ctx context.Context, c *cli.Context, api *client.Client, id string) error {
			if name := c.String("signal"); name != "" {
				return api.SignalProcess(ctx, id, name)
			}
			i, err := api.StopProcess(ctx, id, 0)
			if err != nil {
				return err
			}
			showProcess(c, std, i)
			return nil
		})
}

func processRemoveCommand(std stdio) *cli.Command {
	return onProcess(std, "rm", "end a process, if it runs, and forget it with its output", "", []cli.Flag{timeoutFlag(0)},
		func(ctx context.Context, _ *cli.Context, api *client.Client, id string) error {
			return api.DeleteProcess(ctx, id)
		})
}

// inputPart is how much input is sent at one time.
const inputPart = 64 << 10

func processStdinCommand(std stdio) *cli.Command {
	return onProcess(std, "stdin", "give a process the standard input as its input", "",
		[]cli.Flag{&cli.BoolFlag{Name: "close", Usage: "then end the process's input"}, timeoutFlag(0)},
		func(ctx context.Context, c *cli.Context, api *client.Client, id string) error {
			if _, err := api.Process(ctx, id); err != nil { // also when there is nothing to give it
				return err
			}
			b := make([]byte, inputPart)
			for {
				n, err := io.ReadFull(std.in, b)
				last := err != nil
				if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
					return fmt.Errorf("read the standard input: %w", err)
				}
				if n > 0 || last && c.Bool("close") {
					if err := api.WriteProcess(ctx, id, b[:n], last && c.Bool("close")); err != nil {
						return err
					}
				}
				if last {
					return nil
				}
			}
		})
}

func processLimitsCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:        "limits",
		Usage:       "show the limits of processes, or change them",
		ArgsUsage:   "[NAME=NUMBER...]",
		Description: "Changes are gone when the gateway starts again.",
		Flags:       targetFlags(timeoutFlag(standardTimeout)),
		Action: func(c *cli.Context) error {
			change := map[string]int64{}
			for _, arg := range c.Args().Slice() {
				name, value, ok := strings.Cut(arg, "=")
				n, err := strconv.ParseInt(value, 10, 64)
				if !ok || err != nil {
					return cmdline.Usagef(c, "%s is not NAME=NUMBER", arg)
				}
				change[name] = n
			}
			return onGateway(c, func(ctx context.Context, api *client.Client) error {
				l, err := api.ProcessLimits(ctx)
				for name := range change {
					if names := limitNames(l); err == nil && !slices.Contains(names, name) {
						return cmdline.Usagef(c, "there is no limit %s: there are %s", name, strings.Join(names, ", "))
					}
				}
				if err == nil && len(change) > 0 {
					l, err = api.ChangeProcessLimits(ctx, change)
				}
				if err != nil {
					return err
				}
				if c.Bool("json") {
					cmdline.WriteJSON(std.out, l)
					return nil
				}
				cmdline.List(std.out, limitPairs(l)...)
				return nil
			})
		},
	}
}

// limitPairs are the names of the limits, each with its value behind it.
func limitPairs(l process.Limits) []string {
	n := func(n int64) string { return strconv.FormatInt(n, 10) }
	return []string{
		"running", n(int64(l.Running)), "ended", n(int64(l.Ended)), "endedMs", n(l.EndedMs), "logBytes", n(l.LogBytes), "runMs", n(l.RunMs), "maxRunMs", n(l.MaxRunMs),
		"runBytes", n(l.RunBytes), "maxRunBytes", n(l.MaxRunBytes), "inputBytes", n(l.InputBytes), "stopMs", n(l.StopMs),
	}
}

func limitNames(l process.Limits) (names []string) {
	for pair := range slices.Chunk(limitPairs(l), 2) {
		names = append(names, pair[0])
	}
	return names
}
