package main

import (
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"
)

func promptCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "prompt",
		Usage:     "run one turn and show it",
		ArgsUsage: "TEXT",
		Description: `The agent's text goes to the standard output, everything else to the standard
error. Without TEXT, or with -, the prompt is read from the standard input.

Permission requests and questions are asked on the terminal. Where there is none
they are rejected, and the exit code is 7. Ctrl-C cancels the turn, a second one
ends the program. The session lives on and can be continued with --session.

With --json every message is printed as it came, one per line, the answer to the
prompt last.`,
		Flags: targetFlags(
			&cli.StringFlag{Name: "agent", Usage: "agent for the new session, if not the gateway's default"},
			&cli.StringFlag{Name: "session", Usage: "continue this session"},
			&cli.StringFlag{Name: "cwd", Usage: "directory of the new session", Value: "."},
			&cli.StringFlag{Name: "model", Usage: "model to use"},
			&cli.StringFlag{Name: "mode", Usage: "mode to use"},
			&cli.StringFlag{Name: "permission", Usage: "how permission requests are answered: allow, reject or ask", Value: "ask"},
			timeoutFlag(0),
		),
		Action: func(c *cli.Context) error {
			o, err := promptOptionsOf(c, std)
			if err != nil {
				return err
			}
			ctx, cancel := withTimeout(c.Context, c.Duration("timeout"))
			defer cancel()
			signals := make(chan os.Signal, 2)
			signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
			defer signal.Stop(signals)
			return runTurn(ctx, o, signals, std)
		},
	}
}

// promptOptions are what the flags of the prompt command say, checked.
type promptOptions struct {
	target                     target
	text                       string
	agent, session, cwd        string
	model, mode, permission    string
	json, interactive, colours bool
}

func promptOptionsOf(c *cli.Context, std stdio) (promptOptions, error) {
	o := promptOptions{
		agent: c.String("agent"), session: c.String("session"), model: c.String("model"), mode: c.String("mode"),
		permission: c.String("permission"), json: c.Bool("json"),
		text:        strings.Join(c.Args().Slice(), " "),
		interactive: terminal(std.in) && terminal(std.err),
		colours:     terminal(std.err) && os.Getenv("NO_COLOR") == "",
	}
	var err error
	if o.target, err = targetOf(c); err != nil {
		return o, err
	}
	if !slices.Contains([]string{"allow", "reject", "ask"}, o.permission) {
		return o, usagef(c, "--permission %s: use allow, reject or ask", o.permission)
	}
	if o.session != "" && (o.agent != "" || c.IsSet("cwd")) {
		return o, usagef(c, "--session continues a session: its agent and directory cannot be chosen")
	}
	if o.text == "-" || o.text == "" && !terminal(std.in) {
		b, err := io.ReadAll(std.in)
		if err != nil {
			return o, fmt.Errorf("read prompt: %w", err)
		}
		o.text, o.interactive = string(b), false
	}
	if strings.TrimSpace(o.text) == "" {
		return o, usagef(c, "TEXT is missing")
	}
	o.cwd, err = workDir(c.String("cwd"))
	return o, err
}
