package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/adapters/install"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
)

func agentsInstallCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "install",
		Usage:     "make sure that an agent's program is installed",
		ArgsUsage: "AGENT",
		Description: `AGENT is an agent of the list command or of the ACP registry. Nothing is done when it is there
already, in the data directory or in PATH. When an installation fails, what was there before stays,
and what each source answered is shown; with --json also when another source could install it.

` + placeText,
		Flags: targetFlags(append(installFlags(),
			&cli.StringFlag{Name: "agent-version", Usage: "exact version, or latest for the newest also when another one is there"},
			&cli.BoolFlag{Name: "reinstall", Usage: "install it even if it is there"},
			timeoutFlag(0),
		)...),
		Action: func(c *cli.Context) error {
			args, err := cmdline.Exactly(c, "AGENT")
			if err != nil {
				return err
			}
			return installAgent(c, std, args[0])
		},
	}
}

func installAgent(c *cli.Context, std stdio, agent string) error {
	sources, err := sourcesOf(c)
	if err != nil {
		return err
	}
	api, err := namedGateway(c)
	if err != nil {
		return err
	}
	ctx, explain, cancel := untilSignal(c)
	defer cancel()
	var show *progressView
	if !c.Bool("json") || terminal(std.err) {
		show = newProgressView(std)
		defer show.end()
	}
	began := time.Now()
	var r install.Result
	if api != nil {
		r, err = api.Install(ctx, agent, client.InstallRequest{AgentVersion: c.String("agent-version"), Reinstall: c.Bool("reinstall"), Sources: sources}, show.report)
	} else {
		in, end, oerr := localInstaller(c)
		if oerr != nil {
			return oerr
		}
		defer end()
		r, err = in.Install(ctx, install.Request{Agent: agent, Version: c.String("agent-version"), Reinstall: c.Bool("reinstall"), Progress: show.report})
	}
	show.end()
	switch {
	case err != nil && c.Bool("json"):
		return explain(err)
	case err != nil:
		return showSources(std, explain(err))
	case c.Bool("json"):
		cmdline.WriteJSON(std.out, r)
		return nil
	}
	showResult(std, r, time.Since(began))
	return nil
}

func showResult(std stdio, r install.Result, took time.Duration) {
	what := cmdline.OneLine(r.Agent + " " + r.Version)
	if r.Already {
		fmt.Fprintf(std.out, "%s is there already\n", what)
	} else {
		fmt.Fprintf(std.out, "installed %s in %s\n", what, took.Round(100*time.Millisecond))
	}
	cmdline.List(std.out, "program", r.Program, "source", string(r.Source), "from", origin(r.Installation), "verified", cmdline.OneLine(r.Verification.String()),
		"says", r.Reported, "proved by", r.Handshake, "newer", newer(r.Newer))
}

// newer says why an older version than the newest was installed.
func newer(n *install.Newer) string {
	if n == nil {
		return ""
	}
	return "version " + n.Version + " cannot be installed: " + n.Reason
}

// showSources writes what each source answered on lines of their own, and
// returns the error without them.
func showSources(std stdio, err error) error {
	p, ok := errors.AsType[*problem.Error](err)
	if !ok || p.Extensions["sources"] == nil {
		return err
	}
	var sources []install.Attempt // from here, or as a gateway wrote them
	b, merr := json.Marshal(p.Extensions["sources"])
	if merr != nil || json.Unmarshal(b, &sources) != nil || len(sources) == 0 {
		return err
	}
	for _, a := range sources {
		note(std, string(a.Source)+": "+a.Answer)
	}
	return problem.New(p.Kind, "no source could install it; what each of them answered stands above")
}

// note writes a line that is not the command's answer.
func note(std stdio, s string) { fmt.Fprintln(std.err, cmdline.OneLine(s)) }
