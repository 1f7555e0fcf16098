package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/internal/claim"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
	"sandboxagent.dev/sandbox-agent/runtime/session"
)

func journalCommand(std stdio) *cli.Command {
	json := &cli.BoolFlag{Name: "json", Usage: "print JSON"}
	return &cli.Command{
		Name:  "journal",
		Usage: "check, read and repair the logs of sessions on this machine",
		Subcommands: []*cli.Command{
			{
				Name: "verify", Usage: "read logs from beginning to end and say what is in them", ArgsUsage: "FILE...",
				Description: `It exits with 1 when a file has damage, or ends before what the session.json beside it knows of. A file is
sessions/ID/log.journal below the data directory.`,
				Flags:  []cli.Flag{json},
				Action: func(c *cli.Context) error { return verifyJournals(c, std) },
			},
			{
				Name: "cat", Usage: "print the entries of a log, one line each", ArgsUsage: "FILE",
				Description: "Damage is a line of its own, in its place.",
				Action: func(c *cli.Context) error {
					if c.NArg() != 1 {
						return cmdline.Usagef(c, "give one file")
					}
					reached, err := session.Reached(c.Args().First())
					if err != nil {
						return err
					}
					out := bufio.NewWriter(std.out)
					return errors.Join(journal.Cat(c.Args().First(), reached, out), out.Flush())
				},
			},
			{
				Name: "repair", Usage: "write a log again, without what cannot be read", ArgsUsage: "FILE",
				Description: `The gateway must be stopped, or the session closed for good: it is refused while a gateway uses the
data directory. What cannot be read is appended to FILE.damaged; what is lost stays noted. A copy must be of the same
session and have the same entries; those that it has behind the end of FILE are taken, too.`,
				Flags: []cli.Flag{
					&cli.StringFlag{Name: "from", TakesFile: true, Usage: "take lost entries from this copy of the log"},
				},
				Action: func(c *cli.Context) error { return repairJournal(c, std) },
			},
		},
	}
}

func verifyJournals(c *cli.Context, std stdio) error {
	if !c.Args().Present() {
		return cmdline.Usagef(c, "give one or more files")
	}
	bad := 0
	for _, path := range c.Args().Slice() {
		if wrong := refusedFile(path); wrong != "" {
			return cmdline.Usagef(c, "%s: %s", path, wrong)
		}
		reached, err := session.Reached(path)
		if err != nil {
			return err
		}
		rep, err := journal.Verify(path, reached)
		if err != nil {
			return err
		}
		if len(rep.Damage) > 0 {
			bad++
		}
		if c.Bool("json") {
			cmdline.WriteJSON(std.out, rep)
			continue
		}
		fmt.Fprintf(std.out, "%s: format %d, %d entries from %d to %d in %d bytes", path, rep.Format, rep.Entries, rep.First, rep.Last, rep.Bytes)
		if rep.Closed {
			fmt.Fprint(std.out, ", closed in good order")
		}
		fmt.Fprintln(std.out)
		for _, d := range rep.Lost {
			fmt.Fprintf(std.out, "  entries %d to %d were lost before\n", d.First, d.Last)
		}
		for _, d := range rep.Damage {
			fmt.Fprintf(std.out, "  damaged: %d bytes at %d: %s", d.Length, d.Offset, d.Reason)
			if d.First > 0 {
				fmt.Fprintf(std.out, "; entries %d to %d", d.First, d.Last)
			}
			fmt.Fprintln(std.out)
		}
		if rep.Torn > 0 {
			fmt.Fprintf(std.out, "  %d bytes at the end are half a block: a write, or the file, was cut off there\n", rep.Torn)
		}
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d files have damage: sandbox-agent journal repair puts it aside", bad, c.NArg())
	}
	return nil
}

func repairJournal(c *cli.Context, std stdio) error {
	if c.NArg() != 1 {
		return cmdline.Usagef(c, "give one file")
	}
	path, err := filepath.Abs(c.Args().First())
	if err != nil {
		return err
	}
	// sessions/ID/log.journal below the data directory, or a copy elsewhere.
	if dir := filepath.Dir(filepath.Dir(path)); filepath.Base(dir) == "sessions" {
		if _, err := os.Stat(filepath.Join(filepath.Dir(dir), "lock")); err == nil {
			unlock, err := claim.DirSoon(filepath.Dir(dir))
			if err != nil {
				return err
			}
			defer unlock()
		}
	}
	reached, err := session.Reached(path)
	if err != nil {
		return err
	}
	did, err := journal.Repair(path, c.String("from"), reached)
	if err != nil {
		return err
	}
	if !did.Done {
		fmt.Fprintln(std.out, "there is nothing to repair")
		return nil
	}
	fmt.Fprint(std.out, "repaired")
	if did.Taken > 0 {
		fmt.Fprintf(std.out, "; %d entries were taken from %s", did.Taken, c.String("from"))
	}
	if did.Aside != "" {
		fmt.Fprintf(std.out, "; what could not be read is in %s", did.Aside)
	}
	fmt.Fprintln(std.out)
	return nil
}
