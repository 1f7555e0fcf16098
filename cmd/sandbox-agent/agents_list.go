package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/adapters/install"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
)

func agentsListCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:        "list",
		Usage:       "list the agents that sessions can use",
		Description: "Without a gateway it lists agents in the data directory and in PATH.",
		Flags:       targetFlags(append(installFlags(), timeoutFlag(standardTimeout))...),
		Action: func(c *cli.Context) error {
			if _, err := cmdline.Exactly(c); err != nil {
				return err
			}
			return eitherAgents(c, std, func(ctx context.Context, api *client.Client) error {
				raw, err := api.AgentsJSON(ctx)
				if err != nil {
					return err
				}
				if c.Bool("json") {
					cmdline.WriteJSON(std.out, object{"agents": raw})
					return nil
				}
				var rows []agentRow
				for _, r := range raw {
					row, err := rowOf(r)
					if err != nil {
						return fmt.Errorf("read the gateway's list of agents: %w", err)
					}
					rows = append(rows, row)
				}
				listAgents(std, rows, true)
				return nil
			}, func(in *install.Installer) error {
				rows, err := localAgents(in)
				if err != nil {
					return err
				}
				if c.Bool("json") {
					cmdline.WriteJSON(std.out, object{"agents": rows})
					return nil
				}
				listAgents(std, rows, false)
				return nil
			})
		},
	}
}

// listAgents writes a table of agents; running says whether a gateway knows
// what runs.
func listAgents(std stdio, agents []agentRow, running bool) {
	heading := []string{"AGENT", "NAME", "KIND", "INSTALLED", "VERSION", "SOURCE", "VERIFIED"}
	if running {
		heading = append(heading, "DEFAULT", "PROCESSES")
	}
	rows := [][]string{heading}
	for _, a := range agents {
		row := []string{a.ID, a.Name, a.Kind, yesNo(a.Installed), a.Version, a.Source, a.Verified}
		if running {
			row = append(row, yesNo(a.Default), strconv.Itoa(len(a.Processes)))
		}
		rows = append(rows, row)
	}
	cmdline.Table(std.out, rows)
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// merged returns an object with one more member.
func merged(raw json.RawMessage, name string, v any) (json.RawMessage, error) {
	var doc map[string]json.RawMessage
	if err := json.Unmarshal(raw, &doc); err != nil {
		return nil, err
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	doc[name] = b
	return json.Marshal(doc)
}
