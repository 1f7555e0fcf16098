package main

import (
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/adapters/install"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

// doctorTimeout is for the slowest machines: agents are really started.
const doctorTimeout = 5 * time.Minute

func doctorCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "doctor",
		Usage:     "check this machine, where programs come from, and agents",
		ArgsUsage: "[AGENT...]",
		Description: `Agents that are named must be installed and work; without names, those that are installed must.
It exits with 1 when a check fails, and says what to do. It changes nothing.

` + placeText,
		Flags: targetFlags(append(installFlags(), timeoutFlag(doctorTimeout))...),
		Action: func(c *cli.Context) error {
			api, err := namedGateway(c)
			if err != nil {
				return err
			}
			ctx, explain, cancel := untilSignal(c)
			defer cancel()
			var rep install.Report
			if api != nil {
				rep, err = api.Doctor(ctx, c.Args().Slice()...)
			} else {
				in, end, oerr := localInstaller(c)
				if oerr != nil {
					return oerr
				}
				defer end()
				rep, err = in.Doctor(ctx, c.Args().Slice())
			}
			if err == nil {
				err = ctx.Err() // then the checks were cut short
			}
			if err != nil {
				return explain(err)
			}
			if c.Bool("json") {
				cmdline.WriteJSON(std.out, rep)
			} else {
				showReport(std, rep)
			}
			if n := failures(rep); n > 0 {
				return fmt.Errorf("%d of %d checks failed; the lines with an arrow say what to do", n, len(rep.Checks))
			}
			return nil
		},
	}
}

func failures(rep install.Report) (n int) {
	for _, c := range rep.Checks {
		if c.Status == install.CheckFailed {
			n++
		}
	}
	return n
}

func showReport(std stdio, rep install.Report) {
	marks := map[install.CheckStatus]string{install.CheckOK: "✓", install.CheckAbsent: "·", install.CheckWarning: "!", install.CheckFailed: "✗"}
	group := "?"
	for _, c := range rep.Checks {
		if c.Agent != group {
			if group = c.Agent; group == "" {
				fmt.Fprintln(std.out, "machine")
			} else {
				fmt.Fprintln(std.out, cmdline.OneLine(group))
			}
		}
		fmt.Fprintf(std.out, "  %s %s: %s\n", marks[c.Status], cmdline.OneLine(c.Name), cmdline.OneLine(c.Found))
		if c.Remedy != "" {
			fmt.Fprintf(std.out, "      → %s\n", cmdline.OneLine(c.Remedy))
		}
	}
}
