package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
)

func sessionsImportCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "import",
		Usage:     "make a session of a file that sessions export has written",
		ArgsUsage: "FILE",
		Description: "FILE is - for the standard input. The session keeps its id; paths of the other machine\n" +
			"are replaced by those of this one in what the agent keeps of it. Settings that can run\n" +
			"programs, or allow something, come along with --trust only.",
		Flags: targetFlags(
			&cli.StringFlag{Name: "cwd", Usage: "the session's directory at the gateway; the same as it was, if it is not given"},
			&cli.BoolFlag{Name: "trust", Usage: "take over MCP servers, skills, permission modes and the like: for files of your own"},
			&cli.BoolFlag{Name: "workspace", Usage: "make the workspace of the file in --cwd, which must be empty or not there: its files can tell agents what to run"},
			&cli.BoolFlag{Name: "merge", Usage: "put the workspace of the file together with files that are in --cwd; what both have changed is named, and nothing is touched then"},
			timeoutFlag(0),
		),
		Action: func(c *cli.Context) error {
			args, err := cmdline.Exactly(c, "FILE")
			if err != nil {
				return err
			}
			o := client.ImportOptions{Cwd: c.String("cwd"), Trust: c.Bool("trust"), Workspace: c.Bool("workspace") || c.Bool("merge"), Merge: c.Bool("merge")}
			if o.Cwd != "" {
				if o.Cwd, err = filepath.Abs(o.Cwd); err != nil {
					return err
				}
			}
			var in io.Reader = std.in
			if args[0] != "-" {
				if wrong := refusedFile(args[0]); wrong != "" {
					return cmdline.Usagef(c, "%s: %s", args[0], wrong)
				}
				f, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer f.Close()
				if info, err := f.Stat(); err == nil {
					o.Size = info.Size()
				}
				in = f
			}
			ctx, cancel, api, err := controlClient(c)
			if err != nil {
				return err
			}
			defer cancel()
			m := newMeter(std, "import", filepath.Base(args[0]), o.Size)
			defer m.end()
			got, err := api.ImportSession(ctx, m.reader(in), o)
			m.end()
			if err != nil {
				return withConflicts(err)
			}
			if c.Bool("json") {
				cmdline.WriteJSON(std.out, got)
				return nil
			}
			fmt.Fprintf(std.out, "imported %s of agent %s in %s\n", got.Session.ID, got.Session.Agent, got.Session.Cwd)
			if len(got.LeftOut) > 0 {
				fmt.Fprintf(std.err, "not taken over: %s\n", cmdline.Printable(strings.Join(got.LeftOut, ", ")))
			}
			return nil
		},
	}
}
