package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/urfave/cli/v2"
)

func agentsShowCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "show",
		Usage:     "show one agent and its processes",
		ArgsUsage: "AGENT",
		Flags:     targetFlags(timeoutFlag(standardTimeout)),
		Action: func(c *cli.Context) error {
			args, err := exactly(c, "AGENT")
			if err != nil {
				return err
			}
			ctx, cancel, api, err := controlClient(c)
			if err != nil {
				return err
			}
			defer cancel()
			a, err := api.Agent(ctx, args[0])
			if err != nil {
				return err
			}
			if c.Bool("json") {
				writeJSON(std.out, a)
				return nil
			}
			list(std.out, "agent", a.ID, "name", a.Name, "kind", a.Kind, "installed", yesNo(a.Installed), "default", yesNo(a.Default))
			if len(a.Processes) == 0 {
				return nil
			}
			rows := [][]string{{"PROCESS", "UP", "SESSIONS", "RESTARTS", "MEMORY", "LAST ERROR"}}
			for _, p := range a.Processes {
				up := (time.Duration(p.UptimeMS) * time.Millisecond).Round(time.Second)
				rows = append(rows, []string{
					strconv.Itoa(p.PID), up.String(), strconv.Itoa(p.Sessions), strconv.Itoa(p.Restarts),
					fmt.Sprintf("%.1f MB", float64(p.RSSBytes)/1e6), p.LastError,
				})
			}
			table(std.out, rows)
			return nil
		},
	}
}
