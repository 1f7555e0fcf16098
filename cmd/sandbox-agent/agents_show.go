package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/adapters/install"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
)

func agentsShowCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:        "show",
		Usage:       "show one agent, its program and its processes",
		ArgsUsage:   "AGENT",
		Description: "Without a gateway it looks in the data directory and in PATH.",
		Flags:       targetFlags(append(installFlags(), timeoutFlag(standardTimeout))...),
		Action: func(c *cli.Context) error {
			args, err := cmdline.Exactly(c, "AGENT")
			if err != nil {
				return err
			}
			return eitherAgents(c, std, func(ctx context.Context, api *client.Client) error {
				return showRemote(ctx, c, std, api, args[0])
			}, func(in *install.Installer) error {
				return showLocal(c, std, in, args[0])
			})
		},
	}
}

func showRemote(ctx context.Context, c *cli.Context, std stdio, api *client.Client, agent string) error {
	raw, err := api.AgentJSON(ctx, agent)
	if err != nil {
		return err
	}
	status, err := api.InstallStatus(ctx, agent)
	// An agent of the user's own is not one that can be installed.
	p, _ := errors.AsType[*problem.Error](err)
	if known := err == nil; !known && (p == nil || p.Kind != problem.NotFound && p.Kind != problem.NotSupported) {
		return err
	} else if c.Bool("json") {
		if known {
			if raw, err = merged(raw, "install", status); err != nil {
				return fmt.Errorf("read what the gateway says of agent %s: %w", agent, err)
			}
		}
		cmdline.WriteJSON(std.out, raw)
		return nil
	}
	row, err := rowOf(raw)
	if err != nil {
		return fmt.Errorf("read what the gateway says of agent %s: %w", agent, err)
	}
	showAgent(std, row)
	showStatus(std, status)
	return nil
}

func showLocal(c *cli.Context, std stdio, in *install.Installer, agent string) error {
	rows, err := localAgents(in)
	if err != nil {
		return err
	}
	status, err := in.Status(agent)
	i := slices.IndexFunc(rows, func(r agentRow) bool { return r.ID == agent })
	if err != nil && i < 0 {
		return err
	}
	row := agentRow{ID: agent, Name: agent}
	if i >= 0 {
		row = rows[i]
	}
	if c.Bool("json") {
		cmdline.WriteJSON(std.out, struct {
			agentRow
			Install install.Status `json:"install"`
		}{row, status})
		return nil
	}
	showAgent(std, row)
	showStatus(std, status)
	return nil
}

func showAgent(std stdio, a agentRow) {
	failure := ""
	if len(a.Processes) == 0 { // else it stands with those that run
		failure = a.LastError
	}
	cmdline.List(std.out, "agent", a.ID, "name", a.Name, "kind", a.Kind, "installed", yesNo(a.Installed), "default", yesNo(a.Default),
		"version", a.Version, "source", a.Source, "program", a.Path, "login", a.AuthState, "last failure", failure)
	if len(a.Processes) == 0 {
		return
	}
	rows := [][]string{{"PROCESS", "UP", "SESSIONS", "RESTARTS", "MEMORY", "LAST ERROR"}}
	for _, p := range a.Processes {
		up := (time.Duration(p.UptimeMS) * time.Millisecond).Round(time.Second)
		rows = append(rows, []string{
			strconv.Itoa(p.PID), up.String(), strconv.Itoa(p.Sessions), strconv.Itoa(p.Restarts),
			fmt.Sprintf("%.1f MB", float64(p.RSSBytes)/1e6), p.LastError,
		})
	}
	cmdline.Table(std.out, rows)
	for _, p := range a.Processes {
		if p.Stderr != nil && p.Stderr.Tail != "" {
			fmt.Fprintf(std.out, "\nstderr of %d, its end:\n%s\n", p.PID, strings.TrimRight(p.Stderr.Tail, "\n"))
		}
	}
}

// showStatus shows every installed version and where it came from.
func showStatus(std stdio, s install.Status) {
	if len(s.Installed) == 0 {
		return
	}
	rows := [][]string{{"VERSION", "IN USE", "SOURCE", "VERIFIED", "PROVED BY", "INSTALLED", "FROM"}}
	for _, i := range s.Installed {
		used := s.InUse != nil && s.InUse.Program == i.Program
		rows = append(rows, []string{i.Version, yesNo(used), string(i.Source), string(i.Verification.How), i.Handshake, cmdline.Clock(i.InstalledAt), origin(i)})
	}
	cmdline.Table(std.out, rows)
	for _, i := range s.Installed {
		fmt.Fprintf(std.out, "%s is verified: %s\n", cmdline.OneLine(i.Version), cmdline.OneLine(i.Verification.String()))
	}
}

// origin names what an installation was made of.
func origin(i install.Installation) string {
	from := slices.Clone(i.Packages)
	for _, d := range i.Downloads {
		from = append(from, d.URL)
	}
	return strings.Join(from, " ")
}
