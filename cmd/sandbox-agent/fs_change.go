package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/fs"
)

func fsMkdirCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "mkdir",
		Usage:     "make a folder",
		ArgsUsage: "REMOTE",
		Flags: fsFlags(
			&cli.BoolFlag{Name: "parents", Aliases: []string{"p"}, Usage: "make missing folders, and be content with one that is there"},
			&cli.StringFlag{Name: "mode", Usage: "permissions in octal"},
			timeoutFlag(standardTimeout),
		),
		Action: func(c *cli.Context) error {
			args, err := cmdline.Exactly(c, "REMOTE")
			if err != nil {
				return err
			}
			return onFiles(c, func(ctx context.Context, files client.Files) error {
				e, err := files.Mkdir(ctx, args[0], c.String("mode"), c.Bool("parents"))
				if err == nil && c.Bool("json") {
					cmdline.WriteJSON(std.out, e)
				}
				return advise(err, problem.NotFound, parentsHint)
			})
		},
	}
}

func fsPlaceCommand(std stdio, name, what string, place func(client.Files, context.Context, string, string, fs.PlaceOptions) (fs.Entry, error)) *cli.Command {
	return &cli.Command{
		Name:        name,
		Usage:       what,
		ArgsUsage:   "REMOTE REMOTE",
		Description: "Both are paths on the gateway's machine. The second is the new path itself, also when a folder is there.",
		Flags: fsFlags(
			&cli.BoolFlag{Name: "force", Aliases: []string{"f"}, Usage: "replace what is there, a folder with all that is in it"},
			&cli.BoolFlag{Name: "parents", Aliases: []string{"p"}, Usage: "make missing folders"},
			timeoutFlag(0),
		),
		Action: func(c *cli.Context) error {
			args, err := cmdline.Exactly(c, "the old path", "the new path")
			if err != nil {
				return err
			}
			return onFiles(c, func(ctx context.Context, files client.Files) error {
				e, err := place(files, ctx, args[0], args[1], fs.PlaceOptions{Overwrite: c.Bool("force"), Parents: c.Bool("parents")})
				if err == nil && c.Bool("json") {
					cmdline.WriteJSON(std.out, e)
				}
				return err
			})
		},
	}
}

func fsRemoveCommand(stdio) *cli.Command {
	return &cli.Command{
		Name:      "rm",
		Usage:     "delete a file or folder",
		ArgsUsage: "REMOTE",
		Flags: fsFlags(
			&cli.BoolFlag{Name: "recursive", Aliases: []string{"r"}, Usage: "also a folder that is not empty"},
			timeoutFlag(0),
		),
		Action: func(c *cli.Context) error {
			args, err := cmdline.Exactly(c, "REMOTE")
			if err != nil {
				return err
			}
			return onFiles(c, func(ctx context.Context, files client.Files) error {
				return advise(files.Delete(ctx, args[0], c.Bool("recursive")), problem.DirectoryNotEmpty, "--recursive deletes it with all that is in it")
			})
		},
	}
}
