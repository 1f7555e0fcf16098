package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/fs"
)

// fsPage is how many entries are asked for at one time.
const fsPage = 1000

func fsListCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:        "ls",
		Usage:       "list what is in a folder",
		ArgsUsage:   "[REMOTE]",
		Description: "With --json every entry is one line.",
		Flags: fsFlags(
			&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "also names that begin with a dot"},
			&cli.BoolFlag{Name: "recursive", Aliases: []string{"r"}, Usage: "also what is in folders below"},
			&cli.StringFlag{Name: "sort", Usage: "name, size or modified", Value: string(fs.ByName)},
			&cli.BoolFlag{Name: "reverse", Usage: "the other way round"},
			timeoutFlag(0),
		),
		Action: func(c *cli.Context) error {
			remote, err := optional(c, "REMOTE", ".")
			if err != nil {
				return err
			}
			o := fs.ListOptions{Recursive: c.Bool("recursive"), Hidden: c.Bool("all"), Sort: fs.Sort(c.String("sort")), Descending: c.Bool("reverse"), Limit: fsPage}
			return onFiles(c, func(ctx context.Context, files client.Files) error { return fsList(ctx, c, std, files, remote, o) })
		},
	}
}

// optional returns the only argument of a command, or what stands for it.
func optional(c *cli.Context, name, absent string) (string, error) {
	if c.NArg() == 0 {
		return absent, nil
	}
	args, err := cmdline.Exactly(c, name)
	if err != nil {
		return "", err
	}
	return args[0], nil
}

func fsList(ctx context.Context, c *cli.Context, std stdio, files client.Files, remote string, o fs.ListOptions) error {
	base := ""
	if o.Recursive && !c.Bool("json") { // names are shown from the folder on
		e, err := files.Stat(ctx, remote, true)
		if err != nil {
			return err
		}
		base = strings.TrimSuffix(e.Path, "/") + "/"
	}
	for {
		page, err := files.List(ctx, remote, o)
		if err != nil {
			return err
		}
		var rows [][]string
		for _, e := range page.Entries {
			if c.Bool("json") {
				cmdline.WriteJSON(std.out, e)
				continue
			}
			name := e.Name
			if base != "" {
				name = strings.TrimPrefix(e.Path, base)
			}
			rows = append(rows, row(e.Entry, name))
			if e.Error != "" {
				note(std, e.Path+": "+e.Error)
			}
		}
		if len(rows) > 0 {
			cmdline.Table(std.out, rows)
		}
		if o.Cursor = page.NextCursor; o.Cursor == "" {
			return nil
		}
	}
}

func row(e fs.Entry, name string) []string {
	size := ""
	switch e.Type {
	case fs.File:
		size = strconv.FormatInt(e.Size, 10)
	case fs.Directory:
		name += "/"
	case fs.Symlink:
		name += " -> " + e.Target
	}
	return []string{e.Mode, size, cmdline.Clock(e.ModifiedAt), name}
}

func fsStatCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "stat",
		Usage:     "describe a file or folder",
		ArgsUsage: "REMOTE",
		Flags: fsFlags(
			&cli.BoolFlag{Name: "follow", Usage: "describe what a symbolic link leads to"},
			timeoutFlag(standardTimeout),
		),
		Action: func(c *cli.Context) error {
			args, err := cmdline.Exactly(c, "REMOTE")
			if err != nil {
				return err
			}
			return onFiles(c, func(ctx context.Context, files client.Files) error {
				e, err := files.Stat(ctx, args[0], c.Bool("follow"))
				if err != nil {
					return err
				}
				showEntry(c, std, e)
				return nil
			})
		},
	}
}

func showEntry(c *cli.Context, std stdio, e fs.Entry) {
	if c.Bool("json") {
		cmdline.WriteJSON(std.out, e)
		return
	}
	size := ""
	if e.Type == fs.File {
		size = fmt.Sprintf("%d bytes", e.Size)
	}
	cmdline.List(std.out, "path", e.Path, "type", string(e.Type), "size", size, "mode", e.Mode, "modified", cmdline.Clock(e.ModifiedAt), "leads to", e.Target, "etag", e.ETag)
}
