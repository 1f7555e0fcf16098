package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/acp/acphttp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/adapters/all"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/runtime"
)

// completionPatience bounds what a press of the tab key waits for a gateway.
const completionPatience = 2 * time.Second

// completedSessions bounds how many sessions are offered, the newest.
const completedSessions = 50

// offers are what the scripts ask this program for, by its name.
var offers = map[string]func(ctx context.Context, api *client.Client, agent string) ([]string, error){
	"agents": func(ctx context.Context, api *client.Client, _ string) ([]string, error) {
		list, err := api.Agents(ctx)
		var ids []string
		for _, a := range list {
			ids = append(ids, a.ID)
		}
		return ids, err
	},
	"sessions": func(ctx context.Context, api *client.Client, _ string) ([]string, error) {
		page, err := api.Sessions(ctx, runtime.SessionFilter{Limit: completedSessions})
		var ids []string
		for _, s := range page.Sessions {
			ids = append(ids, s.ID)
		}
		return ids, err
	},
	"nodes": func(ctx context.Context, api *client.Client, _ string) ([]string, error) { return api.Nodes(ctx) },
	"models": func(ctx context.Context, api *client.Client, agent string) ([]string, error) {
		return choices(ctx, api, agent, func(a runtime.AgentInfo) []runtime.Choice { return a.Models })
	},
	"modes": func(ctx context.Context, api *client.Client, agent string) ([]string, error) {
		return choices(ctx, api, agent, func(a runtime.AgentInfo) []runtime.Choice { return a.Modes })
	},
}

// choices lists what an agent offered in its newest session, or all agents.
func choices(ctx context.Context, api *client.Client, agent string, of func(runtime.AgentInfo) []runtime.Choice) ([]string, error) {
	list, err := api.Agents(ctx)
	if err == nil && agent != "" {
		if list = slices.DeleteFunc(list, func(a runtime.AgentInfo) bool { return a.ID != agent }); len(list) == 0 {
			err = problem.New(problem.NotFound, "no agent %s is known: sandbox-agent agents list shows those there are", agent)
		}
	}
	var ids []string
	for _, a := range list {
		for _, c := range of(a) {
			if !slices.Contains(ids, c.ID) {
				ids = append(ids, c.ID)
			}
		}
	}
	return ids, err
}

// offer prints what may stand in a place of the command line. The scripts leave out its errors: who
// presses the tab key wants none.
func offer(c *cli.Context, out io.Writer, what, agent string) error {
	t, err := targetOf(c)
	if err != nil {
		return err
	}
	if what == "nodes" { // of the hub, also where one of them is chosen
		t = t.ofSessions()
	}
	api, err := t.client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Context, completionPatience)
	defer cancel()
	values, err := offers[what](ctx, api, agent)
	if what == "agents" && (cmdline.Unreachable(err) || errors.Is(err, acphttp.ErrForeign)) { // any gateway has these
		values, err = builtinAgents()
	}
	if err != nil {
		return err
	}
	for _, v := range values {
		fmt.Fprintln(out, v)
	}
	return nil
}

func builtinAgents() ([]string, error) {
	list, err := all.Adapters(all.Options{})
	ids := make([]string, len(list))
	for i, a := range list {
		ids[i] = a.Info().ID
	}
	return ids, err
}

// targetPattern matches the flags that say which gateway is asked, in shells.
const targetPattern = "--endpoint|--node|--token|--token-file"

// offeredFlags are the flags whose values are offered.
var offeredFlags = map[string]string{"agent": "agents", "session": "sessions", "node": "nodes", "model": "models", "mode": "modes"}

// knownValues are the values of flags that have the same ones everywhere.
var knownValues = map[string][]string{
	"permission-mode": permissionModes, "acp": {"1", "2"}, "log-level": {"debug", "info", "warn", "error"}, "log-format": {"text", "json"}, "fsync": fsyncs,
}

// offeredArgs are the arguments that are offered, by their names in ArgsUsage.
var offeredArgs = map[string]string{"AGENT": "agents", "SESSION": "sessions"}

// pathsWith lists the commands whose arguments are of a kind.
func pathsWith(commands []*cli.Command, path, args string) []string {
	var all []string
	for _, c := range commands {
		at := strings.TrimSpace(path + " " + c.Name)
		if strings.TrimSuffix(c.ArgsUsage, "...") == args {
			all = append(all, at)
		}
		all = append(all, pathsWith(c.Subcommands, at, args)...)
	}
	return all
}
