package fs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// NewDirectory is the mode of new folders, less what the mask of the process
// takes away.
const NewDirectory os.FileMode = 0o777

// Mkdir makes a folder. With parents missing folders above it are made too, and
// a folder that is there already is no error.
func (s *Service) Mkdir(path string, mode os.FileMode, parents bool) (Entry, error) {
	name, err := s.name(path)
	if err != nil {
		return Entry{}, err
	}
	if parents {
		err = s.mkdirAll(name, mode)
	} else if s.top(path) {
		err = os.ErrExist
	} else {
		err = s.tree().Mkdir(name, mode)
	}
	if err != nil {
		return Entry{}, explain(err, "make the directory %s", path)
	}
	return s.Stat(path, true)
}

// Delete removes what is at path; a symbolic link itself. A folder with entries
// is removed only with recursive.
func (s *Service) Delete(path string, recursive bool) error {
	name, err := s.name(path)
	if err != nil {
		return err
	}
	if err := s.mayBe("deleted", path); err != nil {
		return err
	}
	// RemoveAll is content with nothing.
	info, err := s.tree().Lstat(name)
	if err != nil {
		return explain(err, "delete %s", path)
	}
	if recursive && info.IsDir() {
		return explain(s.tree().RemoveAll(name), "delete %s", path)
	}
	err = s.tree().Remove(name)
	if info.IsDir() && err != nil && codeOf(err) == NotEmpty {
		return failf(NotEmpty, "the directory %s is not empty: ask for recursive to delete what is in it", path)
	}
	return explain(err, "delete %s", path)
}

// PlaceOptions say how something comes to a new path.
type PlaceOptions struct {
	Overwrite bool // replace what is there, a folder with all that is in it
	Parents   bool // make missing folders
}

// Move renames from to to. Across file systems it copies, and then deletes what it has copied: what came or was changed
// meanwhile stays, and is an error.
func (s *Service) Move(ctx context.Context, from, to string, o PlaceOptions) (Entry, error) {
	src, dst, err := s.both(from, to, "move")
	if err == nil {
		err = s.mayBe("moved", from)
	}
	if err != nil {
		return Entry{}, err
	}
	unlock, err := s.prepare(src, dst, from, to, o)
	if err != nil {
		return Entry{}, err
	}
	err = s.replace(src, dst)
	unlock()
	if errors.Is(err, errCrossDevice) {
		err = s.moveAcross(ctx, src, dst, from, to, o)
	}
	if err != nil {
		return Entry{}, explain(err, "move %s to %s", from, to)
	}
	return s.Stat(to, false)
}

// Copy copies a file, a symbolic link, or a folder with all that is in it.
// Nothing is at the new path before the copy is whole.
func (s *Service) Copy(ctx context.Context, from, to string, o PlaceOptions) (Entry, error) {
	src, dst, err := s.both(from, to, "copy")
	if err != nil {
		return Entry{}, err
	}
	unlock, err := s.prepare(src, dst, from, to, o)
	if err != nil {
		return Entry{}, err
	}
	unlock() // the copy takes long; what is there is looked at again
	in, base, err := s.parent(src)
	if err != nil {
		return Entry{}, explain(err, "copy %s to %s", from, to)
	}
	defer in.Close()
	if err := s.copyTo(ctx, in, base, dst, to, o, nil); err != nil {
		return Entry{}, explain(err, "copy %s to %s", from, to)
	}
	return s.Stat(to, false)
}

// both returns the names of two paths of which neither is in the other.
func (s *Service) both(from, to, verb string) (src, dst string, err error) {
	if src, err = s.name(from); err != nil {
		return "", "", err
	}
	if dst, err = s.name(to); err != nil {
		return "", "", err
	}
	a, b := filepath.ToSlash(src), filepath.ToSlash(dst)
	switch {
	case s.top(from), s.top(to):
		return "", "", failf(Denied, "cannot %s %s to %s: one of them is the root", verb, from, to)
	case a == b:
		return "", "", failf(Invalid, "cannot %s %s to itself", verb, from)
	case within(b, a):
		return "", "", failf(Invalid, "cannot %s %s into itself, to %s", verb, from, to)
	case within(a, b):
		return "", "", failf(Invalid, "cannot %s %s over %s, which it is in", verb, from, to)
	}
	return src, dst, nil
}

// prepare makes the way to dst and holds its lock.
func (s *Service) prepare(src, dst, from, to string, o PlaceOptions) (unlock func(), err error) {
	if _, err := s.tree().Lstat(src); err != nil {
		return nil, explain(err, "find %s", from)
	}
	if o.Parents {
		dir, _ := split(dst)
		if err := s.mkdirAll(dir, 0o777); err != nil {
			return nil, explain(err, "make the folders of %s", to)
		}
	}
	unlock = s.lock(filepath.Clean(to))
	if err := s.free(dst, to, o); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

// free reports an error when something is at dst that must not be replaced.
func (s *Service) free(dst, to string, o PlaceOptions) error {
	_, err := s.tree().Lstat(dst)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return explain(err, "stat %s", to)
	case !o.Overwrite:
		return failf(Exists, "%s is there already: ask for overwrite to replace it", to)
	}
	return s.mayBe("replaced", to)
}

// replace renames src to dst, over what is there.
func (s *Service) replace(src, dst string) error {
	info, err := s.tree().Lstat(src)
	if err != nil {
		return err
	}
	old, err := s.tree().Lstat(dst)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err != nil || !old.IsDir() && !info.IsDir() {
		return s.tree().Rename(src, dst)
	}
	// A folder does not give way: it goes aside, and comes back on failure.
	dir, _ := split(dst)
	aside := dir + string(filepath.Separator) + temporaryName()
	if err := s.tree().Rename(dst, aside); err != nil {
		return err
	}
	if err := s.tree().Rename(src, dst); err != nil {
		return errors.Join(err, s.tree().Rename(aside, dst))
	}
	return s.tree().RemoveAll(aside)
}
