package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
)

func fsPutCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "put",
		Usage:     "upload a file",
		ArgsUsage: "LOCAL REMOTE",
		Description: `LOCAL is a file or - for the standard input. REMOTE is the file's new path or, when it ends in a slash, the
folder to put it into. The file takes its place when all of it has arrived.`,
		Flags: fsFlags(
			&cli.StringFlag{Name: "mode", Usage: "permissions in octal, instead of those of the file that is replaced"},
			&cli.BoolFlag{Name: "parents", Aliases: []string{"p"}, Usage: "make missing folders"},
			&cli.StringFlag{Name: "if-match", Usage: "write only if the file has this ETag"},
			&cli.BoolFlag{Name: "new", Usage: "write only if there is no file yet"},
			timeoutFlag(0),
		),
		Action: func(c *cli.Context) error {
			args, err := cmdline.Exactly(c, "LOCAL", "REMOTE")
			if err != nil {
				return err
			}
			return fsPut(c, std, args[0], args[1])
		},
	}
}

func fsPut(c *cli.Context, std stdio, local, remote string) error {
	in, size := std.in, int64(-1)
	if local != "-" {
		if isFolder(local) {
			return cmdline.Usagef(c, "%s is a directory: use sandbox-agent fs upload", local)
		}
		if wrong := refusedFile(local); wrong != "" {
			return cmdline.Usagef(c, "%s: %s", local, wrong)
		}
		f, err := os.Open(local)
		if err != nil {
			return fmt.Errorf("read the file: %w", err)
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return fmt.Errorf("read the file: %w", err)
		}
		if in = io.Reader(f); info.Mode().IsRegular() {
			size = info.Size()
			in = &measured{f, size}
		}
	}
	if strings.HasSuffix(remote, "/") {
		if local == "-" {
			return cmdline.Usagef(c, "%s is a folder, and the standard input has no name: name a file", remote)
		}
		remote += filepath.Base(local)
	}
	m := newMeter(std, "upload", local, size)
	defer m.end()
	return onFiles(c, func(ctx context.Context, files client.Files) error {
		e, err := files.Put(ctx, remote, m.reader(in), client.PutOptions{
			Mode: c.String("mode"), Parents: c.Bool("parents"), IfMatch: c.String("if-match"), New: c.Bool("new"), Size: size,
		})
		m.end()
		if err == nil && c.Bool("json") {
			cmdline.WriteJSON(std.out, e)
		}
		if unread, ok := errors.AsType[*os.PathError](err); ok { // and not that the gateway is not reached
			return fmt.Errorf("read the file: %w", unread)
		}
		if c.Bool("new") {
			err = advise(err, problem.PreconditionFailed, "it exists already: without --new it is replaced")
		}
		return advise(err, problem.NotFound, parentsHint)
	})
}

// measured is a file as long as it was when its upload began, which tells the gateway the length beforehand:
// what is written behind that meanwhile, as to a log, is not part of it.
type measured struct {
	file *os.File
	left int64
}

// Read implements io.Reader.
func (m *measured) Read(p []byte) (int, error) {
	if m.left == 0 {
		return 0, io.EOF
	}
	n, err := m.file.Read(p[:min(int64(len(p)), m.left)])
	if m.left -= int64(n); err == io.EOF {
		err = &os.PathError{Op: "read", Path: m.file.Name(), Err: errors.New("it became shorter while it was uploaded")}
	}
	return n, err
}
