package fs

import (
	"archive/tar"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// PlaceWorkspace makes the workspace again in a folder that is empty or not there. open
// returns the parts that were written, nil for one that was not. All of it is made beside
// first; undo takes it away again. On an error nothing is left of it.
func (s *Service) PlaceWorkspace(ctx context.Context, dir string, ws *Workspace, open func(part string) (io.ReadCloser, error)) (undo func() error, err error) {
	if ws.Sub != "" && !filepath.IsLocal(filepath.FromSlash(ws.Sub)) {
		return nil, failf(Refused, "the workspace is said to be in %q, which is not below its own folder", ws.Sub)
	}
	if err := checkFiles(open); err != nil {
		return nil, err
	}
	name, err := s.name(dir)
	if err != nil {
		return nil, err
	}
	isNew := false
	if _, err := s.tree.Lstat(name); errors.Is(err, os.ErrNotExist) {
		isNew = true
	}
	if err := s.mkdirAll(name, 0o777); err != nil {
		return nil, explain(err, "make the directory %s", dir)
	}
	top, err := s.folder(name)
	if err != nil {
		return nil, explain(err, "open %s", dir)
	}
	defer top.Close()
	forget := func() error {
		if !isNew {
			return nil
		}
		return s.tree.Remove(name) // not the folders above it, which somebody may use meanwhile
	}
	there, err := s.names(top)
	if err != nil {
		return nil, explain(err, "read %s", dir)
	}
	if len(there) > 0 {
		return nil, failf(NotEmpty, "%s is not empty, so no workspace can be put there: name another directory, or import the session without its workspace", dir)
	}
	beside := temporaryName()
	if err := top.Mkdir(beside, 0o777); err != nil {
		return nil, errors.Join(explain(err, "make a folder in %s", dir), forget())
	}
	clear := func() error { return errors.Join(top.RemoveAll(beside), forget()) }
	at := filepath.Join(dir, beside)
	if err := s.fillWorkspace(ctx, at, ws, open); err != nil {
		return nil, errors.Join(err, clear())
	}
	in, err := top.OpenRoot(beside)
	if err != nil {
		return nil, errors.Join(explain(err, "open %s", at), clear())
	}
	made, err := s.names(in)
	_ = in.Close()
	if err != nil {
		return nil, errors.Join(explain(err, "read %s", at), clear())
	}
	undo = func() error {
		top, err := s.folder(name)
		if err != nil {
			return explain(err, "open %s", dir)
		}
		defer top.Close()
		var errs []error
		for _, one := range made {
			errs = append(errs, top.RemoveAll(one))
		}
		return errors.Join(append(errs, forget())...)
	}
	for _, one := range made {
		if err == nil {
			err = top.Rename(filepath.Join(beside, one), one)
		}
	}
	if err == nil {
		err = top.Remove(beside)
	}
	if err != nil {
		return nil, errors.Join(explain(err, "put the workspace into %s", dir), top.RemoveAll(beside), undo())
	}
	return undo, nil
}

// fillWorkspace unpacks the files of a workspace and makes its repository.
func (s *Service) fillWorkspace(ctx context.Context, at string, ws *Workspace, open func(part string) (io.ReadCloser, error)) error {
	files, err := open(partFiles)
	if err != nil {
		return err
	}
	if files != nil {
		_, err = s.Unpack(ctx, at, files, nil)
		if err = errors.Join(err, files.Close()); err != nil {
			return err
		}
	}
	if !ws.Git {
		return nil
	}
	return s.makeRepository(ctx, at, ws, open)
}

// checkFiles looks at the names of a workspace's files before any is written: none may be
// of a repository, whose configuration and hooks name programs.
func checkFiles(open func(part string) (io.ReadCloser, error)) error {
	files, err := open(partFiles)
	if err != nil || files == nil {
		return err
	}
	defer func() { _ = files.Close() }()
	for r := tar.NewReader(files); ; {
		h, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return failf(Refused, "the files of the workspace are no archive: %v", err)
		}
		for part := range strings.SplitSeq(h.Name, "/") {
			if isGit(part) {
				return failf(Refused, "the workspace has the file %q, which would be a part of git's own", h.Name)
			}
		}
	}
}

// isGit reports whether some file system takes a name for that of git's own folder.
func isGit(name string) bool {
	plain := strings.Map(func(r rune) rune {
		switch {
		case r >= 0x200b && r <= 0x200f, r >= 0x202a && r <= 0x202e, r >= 0x206a && r <= 0x206f, r == 0xfeff: // which macOS ignores
			return -1
		}
		return r
	}, strings.ToLower(name))
	plain, _, _ = strings.Cut(plain, ":")
	plain = strings.TrimRight(plain, " .")
	return plain == ".git" || plain == "git~1"
}
