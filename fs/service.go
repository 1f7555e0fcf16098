package fs

import (
	"errors"
	"fmt"
	"hash/maphash"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options configure a Service. Limits that are 0 have a default.
type Options struct {
	// Root is the folder that nothing leaves; "" makes the machine the boundary.
	Root string
	// Home is what relative paths belong to when the caller names no folder: the
	// root if there is one, else by default the user's home directory.
	Home string
	// Keep are folders that are not deleted, moved or replaced, and nothing that they are in.
	Keep []string
	// Temp is where folders are that live for one request; New empties it of those that a
	// program that was killed has left. "" is the system's folder for such, where they stay.
	Temp string

	Unpack UnpackLimits
	Search SearchLimits
	// GitTimeout bounds one run of git, GitOutput the bytes taken from it.
	GitTimeout time.Duration // 20 s
	GitOutput  int64         // 16 MiB
	// Watches bounds the folders that one watcher observes.
	Watches int // 16384
}

// Service gives access to files. It is safe for concurrent use. Paths are
// absolute; [Service.Resolve] makes them so.
type Service struct {
	o    Options
	root root
	// dirs are the root's names: as given, and with its symbolic links resolved. It has none without a root.
	dirs  []string
	keep  []string // with symbolic links resolved, too
	seed  maphash.Seed
	locks [64]sync.Mutex // by path: held from checking a precondition to renaming

	arriving  arrivals
	unnamedIn devices           // where files are written
	reached   func(step string) // is told how far a workspace is, in tests; nil otherwise
}

// New opens the root, if there is one. Close gives it back.
func New(o Options) (*Service, error) {
	o.Unpack, o.Search = o.Unpack.withDefaults(), o.Search.withDefaults()
	if o.GitTimeout <= 0 {
		o.GitTimeout = 20 * time.Second
	}
	if o.GitOutput <= 0 {
		o.GitOutput = 16 << 20
	}
	if o.Watches <= 0 {
		o.Watches = 16384
	}
	if o.Temp != "" {
		_ = os.RemoveAll(o.Temp) // what stays is in nobody's way
	}
	s := &Service{o: o, seed: maphash.MakeSeed()}
	for _, dir := range o.Keep {
		s.keep = append(s.keep, filepath.Clean(dir))
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			s.keep = append(s.keep, real)
		}
	}
	if o.Root == "" {
		if s.o.Home == "" {
			home, err := os.UserHomeDir()
			if err != nil || !filepath.IsAbs(home) {
				home = string(filepath.Separator)
			}
			s.o.Home = home
		}
		return s, nil
	}
	dir, err := filepath.Abs(o.Root)
	if err != nil {
		return nil, fmt.Errorf("find the root of files: %w", err)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err == nil {
		err = s.root.open(real)
	}
	if err != nil {
		return nil, fmt.Errorf("open the root of files: %w", err)
	}
	s.o.Home, s.dirs = dir, []string{dir}
	if real != dir {
		s.dirs = append(s.dirs, real)
	}
	return s, nil
}

// Close gives the root back. No method may be called afterwards.
func (s *Service) Close() error {
	if !s.confined() {
		return nil
	}
	return s.root.now.Load().Close()
}

// confined reports whether there is a root.
func (s *Service) confined() bool { return len(s.dirs) > 0 }

// tree is what names are of.
func (s *Service) tree() tree {
	if !s.confined() {
		return machine{}
	}
	return s.root.now.Load()
}

// Root returns the root, "" when there is none.
func (s *Service) Root() string {
	if len(s.dirs) == 0 {
		return ""
	}
	return s.dirs[0]
}

// Resolve returns the absolute form of a path. A relative one belongs to base
// or, when that is empty, to Options.Home. ".." is taken off by its words, as a
// shell does it, before symbolic links are looked at.
func (s *Service) Resolve(path, base string) (string, error) {
	switch {
	case path == "":
		return "", failf(Invalid, "the path is empty")
	case strings.IndexByte(path, 0) >= 0:
		return "", failf(Invalid, "the path %q has a zero byte, which no file name can have", path)
	}
	if !filepath.IsAbs(path) {
		if base == "" {
			base = s.o.Home
		}
		path = filepath.Join(base, path)
	}
	path = filepath.Clean(path)
	if _, err := s.name(path); err != nil {
		return "", err
	}
	return path, nil
}

// name returns what the tree calls an absolute path.
func (s *Service) name(path string) (string, error) {
	if !filepath.IsAbs(path) {
		return "", failf(Invalid, "the path %q is not absolute", path)
	}
	path = filepath.Clean(path)
	if !s.confined() {
		return path, nil
	}
	if err := s.root.look(s.dirs[0], s.dirs[len(s.dirs)-1]); err != nil {
		return "", err
	}
	for _, dir := range s.dirs {
		if path == dir {
			return ".", nil
		}
		if rest, ok := strings.CutPrefix(path, strings.TrimSuffix(dir, string(filepath.Separator))+string(filepath.Separator)); ok {
			return rest, nil
		}
	}
	return "", failf(Escapes, "%s is outside of %s, the root that this server is confined to", path, s.dirs[0])
}

// top reports whether the path is the root itself, or the machine's.
func (s *Service) top(path string) bool {
	path = filepath.Clean(path)
	return slices.Contains(s.dirs, path) || filepath.Dir(path) == path
}

// mayBe returns an error when path is the root, or has in it what is kept: it cannot be done,
// as deleted, then.
func (s *Service) mayBe(done, path string) error {
	if s.top(path) {
		return failf(Denied, "%s is the root, which cannot be %s", path, done)
	}
	path = filepath.Clean(path)
	names := []string{path}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		names = append(names, filepath.Join(dir, filepath.Base(path)))
	}
	for _, dir := range s.keep {
		for _, name := range names {
			if name == dir {
				return failf(Denied, "%s is a folder that the gateway needs, which cannot be %s", path, done)
			}
			if within(filepath.ToSlash(dir), filepath.ToSlash(name)) {
				return failf(Denied, "%s has the folder %s in it, which the gateway needs: it cannot be %s", path, dir, done)
			}
		}
	}
	return nil
}

// mkdirAll makes folders. Where something else is in the way, it says so.
func (s *Service) mkdirAll(name string, mode os.FileMode) error {
	err := s.tree().MkdirAll(name, mode)
	if errors.Is(err, os.ErrExist) {
		return failf(NotDirectory, "a part of %s is there and is not a directory", name)
	}
	return err
}

// lock serialises those who check a path and then change it.
func (s *Service) lock(path string) (unlock func()) {
	mu := &s.locks[maphash.String(s.seed, path)%uint64(len(s.locks))]
	mu.Lock()
	return mu.Unlock
}

// maxLinks bounds the symbolic links that are followed to a path's end.
const maxLinks = 16

// follow returns the name that the last part of name leads to over symbolic
// links. What it leads to need not exist.
func (s *Service) follow(name string) (string, error) {
	for range maxLinks {
		info, err := s.tree().Lstat(name)
		if err != nil || info.Mode()&os.ModeSymlink == 0 {
			return name, nil // whoever uses the name hears why it cannot
		}
		target, err := s.tree().Readlink(name)
		if err != nil {
			return "", err
		}
		if filepath.IsAbs(target) {
			if s.confined() {
				return "", errEscapes()
			}
			name = target
			continue
		}
		// Not joined: that would take off ".." by words, and the folder may be
		// a symbolic link itself.
		dir, _ := split(name)
		name = dir + string(filepath.Separator) + target
	}
	return "", failf(Invalid, "more than %d symbolic links follow each other at %s", maxLinks, name)
}

// split returns the folder and the last part of a name.
func split(name string) (dir, base string) {
	name = strings.TrimRight(name, string(filepath.Separator))
	i := strings.LastIndexByte(name, filepath.Separator)
	switch {
	case i < 0:
		return ".", name
	case i == 0:
		return string(filepath.Separator), name[1:]
	}
	return name[:i], name[i+1:]
}

// parent opens the folder that a name is in, so that all further steps work in
// that very folder, and returns the last part of the name.
func (s *Service) parent(name string) (*os.Root, string, error) {
	dir, base := split(name)
	if base == "" || base == "." || base == ".." {
		return nil, "", failf(Invalid, "%q names no entry of a folder", name)
	}
	d, err := s.tree().OpenRoot(dir)
	return d, base, err
}
