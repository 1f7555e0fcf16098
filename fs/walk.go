package fs

import (
	"context"
	"errors"
	"io"
	iofs "io/fs"
	"os"
	"slices"
	"strings"
)

// maxDepth bounds how deep folders are walked; each level holds a descriptor.
const maxDepth = 256

// found is an entry that a walk comes to.
type found struct {
	dir  *os.Root // the folder it is in; closed after the visit of that folder
	rel  string   // from where the walk began, with slashes
	name string
	info os.FileInfo // of a symbolic link itself
}

// walk is one walk through folders: names in the order of their bytes, a folder
// before what is in it. Symbolic links are not followed.
type walk struct {
	s *Service
	// enter, if not nil, is called before the entries of a folder are read: what it sees appear
	// there from then on may be visited, too. Leave is called when they were visited.
	enter func(dir *os.Root, rel string) error
	leave func()
	// visit says whether to go into a folder.
	visit func(f found) (into bool, err error)
	// failed is told of folders that cannot be read; what it returns ends the walk.
	failed func(rel string, err error) error
}

// errStop ends a walk early.
var errStop = errors.New("stop")

// folder opens the folder at name for walking.
func (s *Service) folder(name string) (*os.Root, error) {
	info, err := s.tree().Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, failf(NotDirectory, "%s is not a directory", name)
	}
	return s.tree().OpenRoot(name)
}

// names returns the names in a folder, sorted.
func (s *Service) names(dir *os.Root) ([]string, error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if s.confined() && inProc(f) {
		return nil, failf(Escapes, "%s is in the process file system, which is not for clients of a server that is confined to a root", dir.Name())
	}
	names, err := f.Readdirnames(-1)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	slices.Sort(names)
	return names, nil
}

// below walks through dir, which is at rel.
func (w *walk) below(ctx context.Context, dir *os.Root, rel string) error {
	err := w.level(ctx, dir, rel, 0)
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

func (w *walk) level(ctx context.Context, dir *os.Root, rel string, depth int) error {
	if w.enter != nil {
		if err := w.enter(dir, rel); err != nil {
			return err
		}
		defer w.leave()
	}
	names, err := w.s.names(dir)
	if depth > 0 && replaced(err) {
		return nil
	}
	if err != nil {
		return w.failed(rel, err)
	}
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		info, err := dir.Lstat(name)
		if errors.Is(err, iofs.ErrNotExist) {
			continue // removed meanwhile
		}
		at := join(rel, name)
		if err != nil {
			if err := w.failed(at, err); err != nil {
				return err
			}
			continue
		}
		into, err := w.visit(found{dir, at, name, info})
		if err != nil {
			return err
		}
		if !into || !info.IsDir() {
			continue
		}
		if err := w.into(ctx, dir, name, at, depth+1); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) into(ctx context.Context, dir *os.Root, name, rel string, depth int) error {
	if depth > maxDepth {
		return w.failed(rel, failf(TooLarge, "folders are more than %d levels deep", maxDepth))
	}
	sub, err := dir.OpenRoot(name)
	if replaced(err) {
		return nil
	}
	if err != nil {
		return w.failed(rel, err)
	}
	defer sub.Close()
	return w.level(ctx, sub, rel, depth)
}

// replaced reports whether an error says that an entry is not any more what the walk has met: it was removed, or
// something else has its name.
func replaced(err error) bool {
	if err == nil {
		return false
	}
	code := codeOf(err)
	return code == NotFound || code == NotDirectory || code == Escapes
}

// join is a path below another, with slashes.
func join(rel, name string) string {
	if rel == "" {
		return name
	}
	return rel + "/" + name
}

// order compares paths as a walk meets them.
func order(a, b string) int {
	return strings.Compare(strings.ReplaceAll(a, "/", "\x00"), strings.ReplaceAll(b, "/", "\x00"))
}

// within reports whether path is dir or below it.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}
