package main

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/fs"
)

// getAttempts bounds how often a download that broke off is continued without
// anything having come meanwhile.
const getAttempts = 4

func fsGetCommand(std stdio) *cli.Command {
	return &cli.Command{
		Name:      "get",
		Usage:     "download a file",
		ArgsUsage: "REMOTE [LOCAL]",
		Description: `LOCAL is a file, a folder to put it into, or - for the standard output; without it the file gets its own
name here. A link is followed, a device or a pipe is written into, and a file that is replaced keeps its permissions. A download that breaks off is continued, also by running the command again, as long as the
file on the gateway's machine stays the same.`,
		Flags: fsFlags(timeoutFlag(0)),
		Action: func(c *cli.Context) error {
			remote, local, err := oneOrTwo(c, "REMOTE", "LOCAL")
			if err != nil {
				return err
			}
			return onFiles(c, func(ctx context.Context, files client.Files) error { return fsGet(ctx, c, std, files, remote, local) })
		},
	}
}

// oneOrTwo returns the arguments of a command whose second may be left out.
func oneOrTwo(c *cli.Context, first, second string) (a, b string, err error) {
	if c.NArg() == 2 {
		args, err := cmdline.Exactly(c, first, second)
		if err != nil {
			return "", "", err
		}
		return args[0], args[1], nil
	}
	if c.NArg() > 2 {
		return "", "", cmdline.Usagef(c, "unexpected argument %q", c.Args().Get(2))
	}
	args, err := cmdline.Exactly(c, first)
	if err != nil {
		return "", "", err
	}
	return args[0], "", nil
}

func fsGet(ctx context.Context, c *cli.Context, std stdio, files client.Files, remote, local string) error {
	e, err := files.Stat(ctx, remote, true)
	if err != nil {
		return err
	}
	if e.Type == fs.Directory {
		return problem.New(problem.NotAFile, "%s is a directory: use sandbox-agent fs download", remote)
	}
	m := newMeter(std, "download", path.Base(remote), e.Size)
	defer m.end()
	if local == "-" {
		return receive(ctx, files, remote, &arriving{w: std.out, etag: e.ETag, meter: m})
	}
	if local == "" {
		local = path.Base(remote)
	}
	if info, err := os.Stat(local); err == nil && info.IsDir() {
		local = filepath.Join(local, path.Base(remote))
	}
	place, into, err := cmdline.Place(local)
	if err != nil {
		return fmt.Errorf("make a file to download into: %w", err)
	}
	if into != nil {
		err := receive(ctx, files, remote, &arriving{w: into, etag: e.ETag, meter: m})
		if err = errors.Join(err, into.Close()); err != nil {
			return err
		}
		return gotten(c, std, m, e)
	}
	part := &received{place: place, mode: 0o666}
	perm, replaces := cmdline.Replaced(place)
	if replaces {
		part.mode = perm | 0o600 // it can be continued
	}
	have, err := part.open(e.ETag)
	if err != nil {
		return err
	}
	defer part.close()
	if have > e.Size || e.ETag == "" { // then nobody knows of which version it is
		if have, err = 0, part.begin(e.ETag); err != nil {
			return fmt.Errorf("continue %s: %w", part.name(), err)
		}
	}
	a := &arriving{w: part, etag: e.ETag, have: have, meter: m, begin: part.begin}
	if have < e.Size || have == 0 {
		if err := receive(ctx, files, remote, a); err != nil {
			return err
		}
	}
	err = part.file.Truncate(a.have)
	whole, serr := part.file.Stat()
	if err = errors.Join(err, serr); err == nil && replaces {
		err = part.file.Chmod(perm)
	}
	if err = errors.Join(err, part.file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", part.name(), err)
	}
	if err := os.Rename(part.name(), place); err != nil {
		if there, gone := os.Stat(place); gone != nil || !os.SameFile(there, whole) { // else another download of the same has put it there
			return fmt.Errorf("put the download into its place: %w", err)
		}
	}
	if a.etag != e.ETag {
		if c.Bool("json") {
			if now, err := files.Stat(ctx, remote, true); err == nil { // else it is gone since, and has come all the same
				e = now
			}
		}
		e.ETag, e.Size = a.etag, a.have
	}
	return gotten(c, std, m, e)
}

// received is what has come of a file, beside the place where that is to be. Its name says of which version of which file
// it is, so that nothing of another one gets into it.
type received struct {
	place string
	mode  os.FileMode // of a new one
	etag  string
	file  *os.File
}

// name is shorter than what the system permits.
func (p *received) name() string {
	sum := sha256.Sum256([]byte(p.etag + " " + filepath.Base(p.place)))
	return filepath.Join(filepath.Dir(p.place), fmt.Sprintf(".%x.part", sum[:8]))
}

// open opens the part of a version, and returns how much is in it.
func (p *received) open(etag string) (have int64, err error) {
	p.etag = etag
	if p.file, err = os.OpenFile(p.name(), os.O_CREATE|os.O_RDWR, p.mode); err != nil {
		return 0, fmt.Errorf("make a file to download into: %w", err)
	}
	if have, err = p.file.Seek(0, io.SeekEnd); err != nil {
		p.close()
		return 0, fmt.Errorf("continue %s: %w", p.name(), err)
	}
	return have, nil
}

// begin makes what is written next the beginning of a version. Nothing is cut off: another download of the same may be
// writing behind it.
func (p *received) begin(etag string) error {
	if etag != p.etag {
		p.close()
		_ = os.Remove(p.name()) // that version is gone
		if _, err := p.open(etag); err != nil {
			return err
		}
	}
	_, err := p.file.Seek(0, io.SeekStart)
	return err
}

// Write implements io.Writer.
func (p *received) Write(b []byte) (int, error) { return p.file.Write(b) }

func (p *received) close() { _ = p.file.Close() }

// gotten says which file has come.
func gotten(c *cli.Context, std stdio, m *meter, e fs.Entry) error {
	m.end()
	if c.Bool("json") {
		cmdline.WriteJSON(std.out, e)
	}
	return nil
}

// arriving is a file on its way here.
type arriving struct {
	w     io.Writer
	etag  string
	have  int64                   // bytes that are here
	begin func(etag string) error // has a version be written from its beginning; nil when what was written cannot be taken back
	meter *meter
}

// receive receives a file, and continues when the connection breaks.
func receive(ctx context.Context, files client.Files, remote string, a *arriving) error {
	for idle := 0; ; {
		had := a.have
		err := a.once(ctx, files, remote)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if _, ok := errors.AsType[*problem.Error](err); ok {
			return err
		}
		if _, ok := errors.AsType[*os.PathError](err); ok {
			return err // of the local file
		}
		if idle++; a.have > had {
			idle = 1
		}
		if idle >= getAttempts {
			return err
		}
		wait := time.NewTimer(time.Duration(idle) * 250 * time.Millisecond)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return context.Cause(ctx)
		}
	}
}

func (a *arriving) once(ctx context.Context, files client.Files, remote string) error {
	got, err := files.Get(ctx, remote, a.have, a.etag)
	if err != nil {
		return err
	}
	defer got.Close()
	if got.From != a.have || got.ETag != a.etag {
		switch {
		case got.From == 0 && a.begin != nil:
			if err := a.begin(got.ETag); err != nil {
				return err
			}
		case got.From == 0 && a.have == 0: // nothing was written
		default:
			return problem.New(problem.PreconditionFailed, "%s has changed while it was downloaded", remote)
		}
		a.have, a.etag = 0, got.ETag
	}
	a.meter.at(a.have)
	n, err := io.CopyBuffer(struct{ io.Writer }{a.w}, a.meter.reader(got), make([]byte, 256<<10))
	a.have += n
	if err != nil {
		return fmt.Errorf("receive %s: %w", remote, err)
	}
	if got.Size >= 0 && a.have != got.Size {
		return fmt.Errorf("receive %s: %w", remote, io.ErrUnexpectedEOF)
	}
	return nil
}
