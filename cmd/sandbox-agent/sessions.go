package main

import (
	"github.com/urfave/cli/v2"
)

func sessionsCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:  "sessions",
		Usage: "list, show, close, delete and move sessions",
		Subcommands: []*cli.Command{
			sessionsListCommand(std),
			sessionsShowCommand(std),
			sessionsEventsCommand(std),
			sessionsRawCommand(std),
			sessionsWatchCommand(std),
			sessionsPermissionsCommand(std),
			sessionsCloseCommand(std),
			sessionsTerminateCommand(std),
			sessionsDeleteCommand(std),
			sessionsReportCommand(std),
			sessionsExportCommand(std),
			sessionsImportCommand(std),
			sessionsHandoffCommand(std),
		},
	}
}
