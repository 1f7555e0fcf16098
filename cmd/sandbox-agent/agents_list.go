package main

import (
	"strconv"

	"github.com/urfave/cli/v2"
)

func agentsListCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:  "list",
		Usage: "list the agents that sessions can use",
		Flags: targetFlags(timeoutFlag(standardTimeout)),
		Action: func(c *cli.Context) error {
			if _, err := exactly(c); err != nil {
				return err
			}
			ctx, cancel, api, err := controlClient(c)
			if err != nil {
				return err
			}
			defer cancel()
			agents, err := api.Agents(ctx)
			if err != nil {
				return err
			}
			if c.Bool("json") {
				writeJSON(std.out, object{"agents": agents})
				return nil
			}
			rows := [][]string{{"AGENT", "NAME", "KIND", "INSTALLED", "DEFAULT", "PROCESSES"}}
			for _, a := range agents {
				rows = append(rows, []string{a.ID, a.Name, a.Kind, yesNo(a.Installed), yesNo(a.Default), strconv.Itoa(len(a.Processes))})
			}
			table(std.out, rows)
			return nil
		},
	}
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
