package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/fs"
)

func fsUploadCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "upload",
		Usage:     "upload files and whole folders",
		ArgsUsage: "LOCAL... REMOTE",
		Description: `Each LOCAL gets into the folder REMOTE under its own name. A single - takes a tar archive, plain, gzip or
zstd, from the standard input.`,
		Flags: fsFlags(timeoutFlag(0)),
		Action: func(c *cli.Context) error {
			locals, remote, err := manyAndOne(c, "LOCAL", "REMOTE")
			if err != nil {
				return err
			}
			return fsUpload(c, std, locals, remote)
		},
	}
}

// manyAndOne returns the arguments of a command that takes several and a last
// one.
func manyAndOne(c *cli.Context, many, last string) ([]string, string, error) {
	args := c.Args().Slice()
	for i, name := range []string{many, last} {
		if len(args) <= i {
			return nil, "", cmdline.Usagef(c, "%s is missing", name)
		}
	}
	for _, a := range args {
		if a == "" {
			return nil, "", cmdline.Usagef(c, "an argument is empty")
		}
	}
	return args[:len(args)-1], args[len(args)-1], nil
}

// localFiles are those of this machine.
func localFiles() (*fs.Service, error) {
	here, err := os.Getwd()
	if err != nil {
		return nil, fmt.Errorf("find the working directory: %w", err)
	}
	return fs.New(fs.Options{Home: here})
}

func fsUpload(c *cli.Context, std stdio, locals []string, remote string) error {
	here, err := localFiles()
	if err != nil {
		return err
	}
	defer func() { _ = here.Close() }() // it holds nothing
	m := newMeter(std, "upload", remote, 0)
	defer m.end()
	return onFiles(c, func(ctx context.Context, files client.Files) error {
		u, err := upload(ctx, std, here, files, locals, remote, m)
		m.end()
		if err != nil {
			return err
		}
		showUnpacked(c, std, "uploaded", u)
		return nil
	})
}

func upload(ctx context.Context, std stdio, here *fs.Service, files client.Files, locals []string, remote string, m *meter) (fs.Unpacked, error) {
	if len(locals) == 1 && locals[0] == "-" {
		in := bufio.NewReader(std.in)
		if _, err := in.Peek(1); err == io.EOF {
			return fs.Unpacked{}, problem.New(problem.InvalidRequest, "the standard input is empty: it must be a tar archive")
		}
		return files.Upload(ctx, remote, m.reader(in))
	}
	paths := make([]string, len(locals))
	for i, l := range locals {
		p, err := here.Resolve(l, "")
		if err != nil {
			return fs.Unpacked{}, err
		}
		if _, err := here.Stat(p, false); err != nil {
			return fs.Unpacked{}, err
		}
		paths[i] = p
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	r, w := io.Pipe()
	packed := make(chan error, 1)
	go func() {
		err := here.Pack(ctx, w, paths)
		_ = w.CloseWithError(err)
		packed <- err
	}()
	u, err := files.Upload(ctx, remote, m.reader(r))
	_ = r.Close() // the packer must not wait for who has left
	if perr := <-packed; perr != nil && !errors.Is(perr, io.ErrClosedPipe) && ctx.Err() == nil {
		if _, answered := errors.AsType[*problem.Error](err); !answered || err == nil {
			return u, perr
		}
	}
	return u, err
}

func fsDownloadCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "download",
		Usage:     "download files and whole folders",
		ArgsUsage: "REMOTE... LOCAL",
		Description: `Each REMOTE gets into the folder LOCAL under its own name. With - for LOCAL a tar archive goes to the
standard output.`,
		Flags: fsFlags(timeoutFlag(0)),
		Action: func(c *cli.Context) error {
			remotes, local, err := manyAndOne(c, "REMOTE", "LOCAL")
			if err != nil {
				return err
			}
			return fsDownload(c, std, remotes, local)
		},
	}
}

func fsDownload(c *cli.Context, std stdio, remotes []string, local string) error {
	here, err := localFiles()
	if err != nil {
		return err
	}
	defer func() { _ = here.Close() }() // it holds nothing
	m := newMeter(std, "download", filepath.Base(local), 0)
	defer m.end()
	return onFiles(c, func(ctx context.Context, files client.Files) error {
		archive, err := files.Download(ctx, remotes...)
		if err != nil {
			return err
		}
		defer archive.Close()
		if local == "-" {
			if _, err := io.Copy(std.out, m.reader(archive)); err != nil {
				return fmt.Errorf("receive the archive: %w", err)
			}
			return nil
		}
		to, err := here.Resolve(local, "")
		if err != nil {
			return err
		}
		u, err := here.Unpack(ctx, to, m.reader(archive), nil)
		m.end()
		if err != nil {
			return err
		}
		showUnpacked(c, std, "downloaded", u)
		return nil
	})
}

func showUnpacked(c *cli.Context, std stdio, verb string, u fs.Unpacked) {
	if c.Bool("json") {
		cmdline.WriteJSON(std.out, u)
		return
	}
	files := "files"
	if u.Files == 1 {
		files = "file"
	}
	fmt.Fprintf(std.out, "%s %d %s, %d bytes\n", verb, u.Files, files, u.Bytes)
}
