package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/control/parcel"
	"sandboxagent.dev/sandbox-agent/control/transcript"
)

func sessionsExportCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "export",
		Usage:     "write all of a session into one file, for sessions import of another gateway",
		ArgsUsage: "SESSION",
		Description: "The file has the session's record, its log, and what the agent itself keeps of it.\n" +
			"Credentials, and the values of variables and headers, are not in it; what looks like a\n" +
			"key is taken out of it, and what --redact names. The session takes no prompts\n" +
			"meanwhile.",
		Flags: targetFlags(
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write to this `FILE`, - is the standard output"},
			&cli.StringSliceFlag{Name: "redact", Usage: "take out what this regular expression matches; may be repeated"},
			&cli.BoolFlag{Name: "keep-secrets", Usage: "leave in what looks like a key"},
			&cli.BoolFlag{Name: "workspace", Usage: "take along the files of the session's directory, with the repository that they are in; what git ignores stays"},
			timeoutFlag(0),
		),
		Action: func(c *cli.Context) error {
			args, err := cmdline.Exactly(c, "SESSION")
			if err != nil {
				return err
			}
			if c.String("output") == "" {
				return cmdline.Usagef(c, "name the file with -o FILE, or -o - for the standard output")
			}
			o := client.ExportOptions{Redact: c.StringSlice("redact"), KeepSecrets: c.Bool("keep-secrets"), Workspace: c.Bool("workspace")}
			if _, err := transcript.Patterns(o.Redact); err != nil {
				return cmdline.Usagef(c, "--redact: %v", err)
			}
			return onGateway(c, func(ctx context.Context, api *client.Client) error {
				var m *meter
				o.Begun = func(bytes int64) { m = newMeter(std, "export", args[0], bytes) }
				body, err := api.ExportSession(ctx, args[0], o)
				if err != nil {
					return err
				}
				defer body.Close()
				defer m.end()
				return saveBody(std, parcel.Passing(body, m.at), c.String("output"), "the session")
			})
		},
	}
}
