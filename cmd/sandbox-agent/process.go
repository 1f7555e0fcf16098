package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/control/process"
)

// commandLine is what commands take that run a program: flags behind its name
// are its own.
const commandLine = "COMMAND [ARG...]"

func processCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:  "process",
		Usage: "run programs on the gateway's machine",
		Description: `A program begins in --cwd: absolute, or relative to the directory of --session, else to the gateway's
--fs-root or home directory. There is no shell in between; for a command line run sh -c 'LINE'.`,
		Subcommands: []*cli.Command{
			processRunCommand(std),
			processStartCommand(std),
			processListCommand(std),
			processShowCommand(std),
			processLogsCommand(std),
			processStdinCommand(std),
			processStopCommand(std),
			processKillCommand(std),
			processRemoveCommand(std),
			processAttachCommand(std),
			processLimitsCommand(std),
		},
	}
}

// programFlags are the flags of commands that run a program.
func programFlags(more ...cli.Flag) []cli.Flag {
	return targetFlags(append(more,
		&cli.StringFlag{Name: "cwd", Usage: "folder to begin in"},
		&cli.StringFlag{Name: "session", Usage: "session whose directory --cwd is relative to"},
		&cli.StringSliceFlag{Name: "env", Usage: "variable for the program, as `NAME=VALUE`; may be repeated"},
	)...)
}

// program reads the command line of the program and its variables.
func program(c *cli.Context) (command string, args []string, env map[string]string, err error) {
	line := c.Args().Slice()
	if len(line) == 0 || line[0] == "" {
		return "", nil, nil, cmdline.Usagef(c, "COMMAND is missing")
	}
	env, err = variablesOf(c)
	return line[0], line[1:], env, err
}

// onGateway runs a command with a client and a context that ends with
// --timeout, where the command has it, and with signals.
func onGateway(c *cli.Context, f func(ctx context.Context, api *client.Client) error) error {
	t, err := targetOf(c)
	if err != nil {
		return err
	}
	api, err := t.client()
	if err != nil {
		return cmdline.Usagef(c, "%s", err)
	}
	ctx, explain, cancel := untilSignal(c)
	defer cancel()
	return explain(f(ctx, api))
}

// programExit is the error of a command whose program did not end with 0: the
// command ends in the same way and says nothing of its own.
type programExit struct{ code int }

func (e *programExit) Error() string { return "the program failed" }

// exitOf makes the command end as its program did, by a signal as shells show it.
func exitOf(code *int, signal string) error {
	switch {
	case code != nil && *code == 0:
		return nil
	case code != nil:
		return &programExit{*code}
	case signalNumber(signal) > 0:
		return &programExit{128 + signalNumber(signal)}
	}
	return &programExit{cmdline.ExitFailure}
}

// showProcess writes what is known of a process.
func showProcess(c *cli.Context, std stdio, i process.Info) {
	if c.Bool("json") {
		cmdline.WriteJSON(std.out, i)
		return
	}
	cmdline.List(std.out, "id", i.ID, "command", lineOf(i), "state", stateOf(i), "pid", number(i.PID), "cwd", i.Cwd, "started", cmdline.Clock(i.StartedAt), "ended", endOfProcess(i),
		"terminal", sizeOf(i), "viewers", number(i.Viewers), "output", bytesOf(i))
}
