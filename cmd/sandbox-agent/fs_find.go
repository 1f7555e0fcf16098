package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/fs"
)

func fsWatchCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "watch",
		Usage:     "print changes in a folder until Ctrl-C",
		ArgsUsage: "[REMOTE]",
		Description: `A gateway that ends is looked for until it is there again; "overflow" says that changes of between may be lost. With --json
every change is one line.`,
		Flags: fsFlags(
			&cli.BoolFlag{Name: "recursive", Aliases: []string{"r"}, Usage: "also in folders below"},
			&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "also names that begin with a dot"},
			timeoutFlag(0),
		),
		Action: func(c *cli.Context) error {
			remote, err := optional(c, "REMOTE", ".")
			if err != nil {
				return err
			}
			o := fs.WatchOptions{Recursive: c.Bool("recursive"), Hidden: c.Bool("all")}
			begun := false
			return follow(c, std, "the folder", func(ctx context.Context, api *client.Client, opened func()) (bool, error) {
				files := api.Files(c.String("session"))
				ready := func() {
					if opened(); !begun {
						note(std, "watching "+remote)
					} else { // nobody has watched meanwhile
						showChange(c, std, fs.Change{Type: fs.Overflow})
					}
					begun = true
				}
				for change, err := range files.Watch(ctx, remote, o, ready) {
					if err != nil {
						return false, err
					}
					showChange(c, std, change)
				}
				_, err := files.Stat(ctx, remote, true)
				return false, err
			})
		},
	}
}

func showChange(c *cli.Context, std stdio, change fs.Change) {
	switch {
	case c.Bool("json"):
		cmdline.WriteJSON(std.out, change)
	case change.Type == fs.Overflow:
		fmt.Fprintln(std.out, "overflow: changes were lost")
	case change.From != "":
		fmt.Fprintln(std.out, cmdline.OneLine(string(change.Type)+" "+change.From+" -> "+change.Path))
	default:
		fmt.Fprintln(std.out, cmdline.OneLine(string(change.Type)+" "+change.Path))
	}
}

func fsSearchCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:        "search",
		Usage:       "find names, or lines of files",
		ArgsUsage:   "[REMOTE]",
		Description: `Searches below the folder REMOTE, without what git ignores. With --json every match is one line.`,
		Flags: fsFlags(
			&cli.StringFlag{Name: "name", Usage: "a part of a name, or a pattern such as *.go or src/**/*.go"},
			&cli.StringFlag{Name: "content", Usage: "what a line contains"},
			&cli.BoolFlag{Name: "regexp", Aliases: []string{"e"}, Usage: "--content is a regular expression (RE2)"},
			&cli.BoolFlag{Name: "ignore-case", Aliases: []string{"i"}, Usage: "capital and small letters are alike"},
			&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "also names that begin with a dot"},
			&cli.BoolFlag{Name: "ignored", Usage: "also what git ignores"},
			&cli.IntFlag{Name: "limit", Usage: "the most matches to print, 0 is all", Value: 1000},
			timeoutFlag(0),
		),
		Action: func(c *cli.Context) error {
			remote, err := optional(c, "REMOTE", ".")
			if err != nil {
				return err
			}
			if c.String("name") == "" && c.String("content") == "" {
				return cmdline.Usagef(c, "--name or --content is missing")
			}
			if c.Int("limit") < 0 {
				return cmdline.Usagef(c, "--limit cannot be negative")
			}
			o := fs.SearchOptions{
				Name: c.String("name"), Content: c.String("content"), Regexp: c.Bool("regexp"), IgnoreCase: c.Bool("ignore-case"),
				Hidden: c.Bool("all"), Ignored: c.Bool("ignored"),
			}
			return onFiles(c, func(ctx context.Context, files client.Files) error { return fsSearch(ctx, c, std, files, remote, o) })
		},
	}
}

func fsSearch(ctx context.Context, c *cli.Context, std stdio, files client.Files, remote string, o fs.SearchOptions) error {
	left := c.Int("limit")
	for {
		o.Limit = fsPage
		if left > 0 {
			o.Limit = min(left, fsPage)
		}
		found, err := files.Search(ctx, remote, o)
		if err != nil {
			return err
		}
		for _, m := range found.Matches {
			switch {
			case c.Bool("json"):
				cmdline.WriteJSON(std.out, m)
			case m.Line > 0:
				fmt.Fprintf(std.out, "%s:%d:%d: %s\n", cmdline.OneLine(m.Path), m.Line, m.Column, cmdline.Printable(m.Text))
			default:
				fmt.Fprintln(std.out, cmdline.OneLine(m.Path))
			}
		}
		o.Cursor = found.NextCursor
		if left -= len(found.Matches); o.Cursor == "" || c.Int("limit") > 0 && left <= 0 {
			if o.Cursor != "" {
				note(std, "there are more: --limit 0 prints all")
			}
			return nil
		}
	}
}
