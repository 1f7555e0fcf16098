package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
)

func fsCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:  "fs",
		Usage: "work with files on the gateway's machine",
		Description: `REMOTE is a path on the gateway's machine: absolute, or relative to the directory of --session, else to
the gateway's --fs-root or home directory.`,
		Subcommands: []*cli.Command{
			fsGetCommand(std),
			fsPutCommand(std),
			fsListCommand(std),
			fsStatCommand(std),
			fsMkdirCommand(std),
			fsPlaceCommand(std, "mv", "move a file or folder", client.Files.Move),
			fsPlaceCommand(std, "cp", "copy a file or folder", client.Files.Copy),
			fsRemoveCommand(std),
			fsUploadCommand(std),
			fsDownloadCommand(std),
			fsWatchCommand(std),
			fsSearchCommand(std),
			fsGitCommand(std),
		},
	}
}

// fsFlags are the flags of all of them.
func fsFlags(more ...cli.Flag) []cli.Flag {
	return targetFlags(append(more, &cli.StringFlag{Name: "session", Usage: "session whose directory relative paths belong to"})...)
}

// fsClient returns the gateway's files and a context that ends with --timeout
// and with signals; explain makes the error of what a signal ended say so.
func fsClient(c *cli.Context) (ctx context.Context, explain func(error) error, cancel context.CancelFunc, files client.Files, err error) {
	t, err := targetOf(c)
	if err != nil {
		return nil, nil, nil, files, err
	}
	api, err := t.client()
	if err != nil {
		return nil, nil, nil, files, cmdline.Usagef(c, "%s", err)
	}
	ctx, explain, cancel = untilSignal(c)
	return ctx, explain, cancel, api.Files(c.String("session")), nil
}

// onFiles runs a command on the gateway's files.
func onFiles(c *cli.Context, f func(ctx context.Context, files client.Files) error) error {
	ctx, explain, cancel, files, err := fsClient(c)
	if err != nil {
		return err
	}
	defer cancel()
	return explain(f(ctx, files))
}
