package main

import "github.com/urfave/cli/v2"

func agentsCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:        "agents",
		Usage:       "list and show agents",
		Subcommands: []*cli.Command{agentsListCommand(std), agentsShowCommand(std)},
	}
}
