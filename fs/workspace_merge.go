package fs

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	iofs "io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// States of paths that no workspace has.
const (
	isFolder  = "folder"
	isStrange = "strange" // a device, a pipe, or what cannot be reached
)

// maxConflicts bounds the conflicts that are named.
const maxConflicts = 256

// before is the folder, in that of a workspace on its way, of what was there before.
const before = "before"

// change is one path that becomes another.
type change struct {
	path string
	to   string      // "" to remove it
	was  os.FileInfo // nil when there was nothing
}

// merge puts the files of a workspace together with those of a folder. Nothing is touched
// before apply; see [undoing] for how it is taken back.
type merge struct {
	s    *Service
	top  *os.Root // the folder
	from string   // where the new files are, below it
	old  string   // where what was there before goes, below it

	changes   []change
	removed   map[string]bool
	conflicts []string
}

// plan compares what is there with what comes. base returns what a path was when both
// were the same; known says which paths it has.
func (m *merge) plan(ctx context.Context, comes map[string]string, known []string, base func(path, now string) string) error {
	paths := slices.Sorted(maps.Keys(comes))
	for _, p := range known {
		if _, ok := comes[p]; !ok {
			paths = append(paths, p)
		}
	}
	slices.Sort(paths)
	m.removed = map[string]bool{}
	for _, p := range paths {
		if err := ctx.Err(); err != nil {
			return err
		}
		now, info, err := m.state(p)
		if err != nil {
			return err
		}
		was, to := base(p, now), comes[p]
		switch {
		case now == to, to == was, to == "" && now == isFolder: // the file is gone
		case now == was && (now != "" || m.free(p)):
			m.changes = append(m.changes, change{p, to, info})
			m.removed[p] = to == ""
		case now == isFolder && m.empties(p, comes, base):
			m.changes = append(m.changes, change{p, to, nil})
		default:
			m.conflicts = append(m.conflicts, p)
		}
	}
	return nil
}

// state says what is at a path of the folder now, "" for nothing.
func (m *merge) state(p string) (string, os.FileInfo, error) {
	name := filepath.FromSlash(p)
	if (&folders{top: m.top}).real(p) != nil {
		return "", nil, nil // behind a link or a file: see free
	}
	info, err := m.top.Lstat(name)
	if nothingThere(err) {
		return "", nil, nil
	}
	if err != nil {
		return "", nil, explain(err, "look at %s", p)
	}
	switch typeOf(info.Mode()) {
	case Directory:
		return isFolder, info, nil
	case Symlink:
		target, err := m.top.Readlink(name)
		if err != nil {
			return "", nil, explain(err, "read the link %s", p)
		}
		return linkState(target), info, nil
	case Other:
		return isStrange, info, nil
	}
	f, err := m.top.OpenFile(name, os.O_RDONLY|nonblock, 0)
	if err != nil {
		return "", nil, explain(err, "read %s", p)
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := transfer(sum, f); err != nil {
		return "", nil, explain(err, "read %s", p)
	}
	return fileState(info.Mode(), sum.Sum(nil)), info, nil
}

// nothingThere reports whether an error says that there is nothing at a path, nor above it.
func nothingThere(err error) bool {
	return err != nil && (errors.Is(err, os.ErrNotExist) || codeOf(err) == NotDirectory)
}

func fileState(mode os.FileMode, sum []byte) string {
	if mode&0o100 != 0 {
		return "x" + hex.EncodeToString(sum)
	}
	return "-" + hex.EncodeToString(sum)
}

func linkState(target string) string {
	sum := sha256.Sum256([]byte(target))
	return "l" + hex.EncodeToString(sum[:])
}

// free reports whether a file can be made at a path: what is above it are folders, or is
// removed before.
func (m *merge) free(p string) bool {
	for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
		if m.removed[dir] {
			return true
		}
	}
	return (&folders{top: m.top}).real(p) == nil
}

// empties reports whether all that is in a folder will be removed.
func (m *merge) empties(dir string, comes map[string]string, base func(path, now string) string) bool {
	err := iofs.WalkDir(m.top.FS(), dir, func(p string, d iofs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		now, _, err := m.state(p)
		if err == nil && (now == "" || base(p, now) != now || comes[p] != "") {
			err = errStop
		}
		return err
	})
	return err == nil
}

// order puts what goes before what comes, which may need its place, and returns the folders
// that are made, the outer ones first.
func (m *merge) order() (folders []string, err error) {
	slices.SortStableFunc(m.changes, func(a, b change) int { return min(len(a.to), 1) - min(len(b.to), 1) })
	known := map[string]bool{}
	for _, c := range m.changes {
		for dir := path.Dir(c.path); c.to != "" && dir != "." && !known[dir]; dir = path.Dir(dir) {
			known[dir] = true
			info, err := m.top.Lstat(filepath.FromSlash(dir))
			if err != nil && !nothingThere(err) {
				return nil, explain(err, "look at %s", dir)
			}
			if err != nil || !info.IsDir() {
				folders = append(folders, dir)
			}
		}
	}
	slices.Sort(folders)
	return folders, nil
}

// syncsAtOnce is how many files are made durable at one time. The disk takes them together: ten thousand take half a second.
const syncsAtOnce = 8

// makeDurable has those new files on the disk that take the place of others. One that is not is empty behind a power cut,
// and what was there before would be let go.
func (m *merge) makeDurable(ctx context.Context) error {
	var replacing []string
	for _, c := range m.changes {
		if c.was != nil && c.to != "" {
			replacing = append(replacing, c.path)
		}
	}
	errs := make([]error, min(syncsAtOnce, len(replacing)))
	var next atomic.Int64
	var work sync.WaitGroup
	for k := range errs {
		work.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(replacing) && errs[k] == nil; i = int(next.Add(1)) - 1 {
				errs[k] = cmp.Or(ctx.Err(), explain(syncAt(m.top, path.Join(m.from, replacing[i])), "force %s to disk", replacing[i]))
			}
		})
	}
	work.Wait()
	return errors.Join(errs...)
}

// syncAt makes durable what a file or folder has, and nothing of a link.
func syncAt(top *os.Root, p string) error {
	name := filepath.FromSlash(p)
	info, err := top.Lstat(name)
	if err != nil || !info.Mode().IsRegular() && !info.IsDir() {
		return err
	}
	f, err := top.OpenFile(name, os.O_RDWR|nonblock, 0)
	if err != nil { // a folder, or one may only read it
		f, err = top.OpenFile(name, os.O_RDONLY|nonblock, 0)
	}
	if err != nil {
		return err
	}
	return errors.Join(forced(f), f.Close())
}

// forced makes durable what an open file or folder has. Some systems do that only for what one may write, and not for folders.
func forced(f *os.File) error {
	err := f.Sync()
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, iofs.ErrInvalid) || errors.Is(err, iofs.ErrPermission) {
		return nil
	}
	return err
}

// apply makes the changes, in the order of order.
func (m *merge) apply() error {
	var emptied []string
	for i, c := range m.changes {
		if c.to != "" && len(emptied) > 0 {
			m.clear(emptied)
			emptied = nil
		}
		err := m.aside(c, i)
		if err == nil && c.to != "" {
			err = m.bring(c.path)
		}
		if err != nil {
			return err
		}
		if c.to == "" {
			emptied = append(emptied, path.Dir(c.path))
		}
	}
	m.clear(emptied)
	return nil
}

// aside moves away what a change replaces or removes.
func (m *merge) aside(c change, i int) error {
	info, err := m.top.Lstat(filepath.FromSlash(c.path))
	switch {
	case c.was == nil && nothingThere(err):
		return nil
	case err != nil || c.was == nil || !os.SameFile(info, c.was) || info.Size() != c.was.Size() || !info.ModTime().Equal(c.was.ModTime()):
		return failf(Changed, "%s was changed while the workspace was put together: try again", c.path)
	}
	return m.move(c.path, path.Join(m.old, strconv.Itoa(i)))
}

// bring puts a new file in its place.
func (m *merge) bring(p string) error {
	if err := m.top.MkdirAll(filepath.FromSlash(path.Dir(p)), 0o777); err != nil {
		return explain(err, "make the directory %s", path.Dir(p))
	}
	return m.move(path.Join(m.from, p), p)
}

func (m *merge) move(from, to string) error {
	m.s.reach("move " + from)
	return explain(m.top.Rename(filepath.FromSlash(from), filepath.FromSlash(to)), "put %s in its place", to)
}

// clear removes folders that have become empty, and those above them.
func (m *merge) clear(dirs []string) {
	slices.Sort(dirs)
	for _, dir := range slices.Backward(slices.Compact(dirs)) {
		for ; dir != "." && m.top.Remove(filepath.FromSlash(dir)) == nil; dir = path.Dir(dir) {
		}
	}
}

// strangers returns a file of the folder that the workspace has not, "" for none.
func (m *merge) strangers(ctx context.Context, comes map[string]string) (found string, err error) {
	err = iofs.WalkDir(m.top.FS(), ".", func(p string, d iofs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case p == ".git" || strings.HasPrefix(d.Name(), temporary):
			if d.IsDir() {
				return iofs.SkipDir
			}
			return nil
		case d.IsDir() || comes[p] != "":
			return nil
		}
		found = p
		return iofs.SkipAll
	})
	return found, explain(err, "look into the folder")
}

// three compares three tables by path: it returns what becomes of those that only the
// other side has changed, and the paths that both have.
func three(now, base, comes map[string]string) (changed map[string]string, conflicts []string) {
	changed = map[string]string{}
	paths := map[string]bool{}
	for _, of := range []map[string]string{now, base, comes} {
		for p := range of {
			paths[p] = true
		}
	}
	for _, p := range slices.Sorted(maps.Keys(paths)) {
		switch {
		case now[p] == comes[p], comes[p] == base[p]:
		case now[p] == base[p]:
			changed[p] = comes[p]
		default:
			conflicts = append(conflicts, p)
		}
	}
	return changed, conflicts
}

// conflicting is the error of what both sides have changed.
func conflicting(dir string, paths []string) error {
	slices.Sort(paths)
	paths = slices.Compact(paths)
	e := failf(Conflicting, "%d things were changed in %s and in what comes, since the two were the same: nothing was touched. Make each the same on both sides, or name another directory", len(paths), dir)
	e.Conflicts = paths
	if len(paths) > maxConflicts {
		e.Conflicts = append(paths[:maxConflicts:maxConflicts], fmt.Sprintf("and %d more", len(paths)-maxConflicts))
	}
	return e
}
