package main

import (
	"fmt"
	"strconv"

	"github.com/urfave/cli/v2"
)

func sessionsShowCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "show",
		Usage:     "show one session",
		ArgsUsage: "SESSION",
		Flags:     targetFlags(timeoutFlag(standardTimeout)),
		Action: func(c *cli.Context) error {
			args, err := exactly(c, "SESSION")
			if err != nil {
				return err
			}
			ctx, cancel, api, err := controlClient(c)
			if err != nil {
				return err
			}
			defer cancel()
			s, err := api.Session(ctx, args[0])
			if err != nil {
				return err
			}
			if c.Bool("json") {
				writeJSON(std.out, s)
				return nil
			}
			list(std.out,
				"session", s.ID, "title", s.Title, "agent", s.Agent, "agent's id", s.AgentSessionID,
				"directory", s.Cwd, "model", s.Model, "state", string(s.State), "continuity", string(s.Continuity),
				"created", clock(s.CreatedAt), "updated", clock(s.UpdatedAt), "events", strconv.FormatUint(s.EventCount, 10),
				"clients", strconv.Itoa(s.Clients), "open requests", strconv.Itoa(s.Pending), "metadata", string(s.Metadata),
			)
			if e := s.Ended; e != nil {
				list(std.out, "ended", clock(e.At), "reason", e.Reason, "by", e.TerminatedBy, "message", e.Message)
				if e.ExitCode != nil {
					list(std.out, "exit code", strconv.Itoa(*e.ExitCode))
				}
				if e.Stderr != nil && e.Stderr.Tail != "" {
					fmt.Fprintf(std.out, "stderr:\n%s\n", printable(e.Stderr.Tail))
				}
			}
			return nil
		},
	}
}
