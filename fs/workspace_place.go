package fs

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// arriving is the folder, in that of a workspace, in which one is made that comes. One
// that the end of a process has left there is removed by the next.
const arriving = temporary + "arriving"

// PlacedWorkspace is a workspace that was put into a folder. One of Undo and Keep is to be
// called; what is called afterwards does nothing. It is not safe for concurrent use.
type PlacedWorkspace struct {
	// Snapshot is what has come, which is what the other machine has.
	Snapshot *Snapshot
	undo     func() error
	keep     func() error
	done     bool
}

// Undo takes the workspace away again: the folder is as it was before.
func (p *PlacedWorkspace) Undo() error { return p.end(p.undo) }

// Keep lets go of what was there before.
func (p *PlacedWorkspace) Keep() error { return p.end(p.keep) }

func (p *PlacedWorkspace) end(how func() error) error {
	if p.done {
		return nil
	}
	p.done = true
	return how()
}

// PlaceWorkspaceOptions say how a workspace is put into a folder.
type PlaceWorkspaceOptions struct {
	// Merge puts it together with what is there.
	Merge bool
	// Base is what the two were when they were the same; nil is what comes with it.
	Base *Snapshot
}

// PlaceWorkspace makes the workspace again in a folder that is empty or not there, or,
// with Merge, puts it together with what is there. What only one side has changed since
// the two were the same is taken from that side; when both have changed the same, the
// error is Conflicting and names it, and nothing is touched. open returns the parts that
// were written, nil for one that was not. All of it is made beside first. On an error
// nothing is left of it.
func (s *Service) PlaceWorkspace(ctx context.Context, dir string, ws *Workspace, o PlaceWorkspaceOptions, open func(part string) (io.ReadCloser, error)) (*PlacedWorkspace, error) {
	if ws.Sub != "" && !filepath.IsLocal(filepath.FromSlash(ws.Sub)) {
		return nil, failf(Refused, "the workspace is said to be in %q, which is not below its own folder", ws.Sub)
	}
	if err := checkFiles(open); err != nil {
		return nil, err
	}
	base, err := readBase(open)
	if err != nil {
		return nil, err
	}
	if o.Base != nil {
		base = o.Base
	}
	name, err := s.name(dir)
	if err != nil {
		return nil, err
	}
	if _, busy := s.arriving.LoadOrStore(name, true); busy {
		return nil, failf(Changed, "another workspace is being put into %s: try again when it is there", dir)
	}
	defer s.arriving.Delete(name)
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
	p := &placing{s: s, dir: dir, name: name, top: top, ws: ws, open: open, base: base, isNew: isNew}
	placed, err := p.place(ctx, o.Merge)
	if err != nil {
		return nil, errors.Join(err, p.clear(), top.Close())
	}
	return placed, nil
}

// placing is a workspace that is put into a folder.
type placing struct {
	s         *Service
	dir, name string // of the folder, and what the tree calls it
	top       *os.Root
	ws        *Workspace
	open      func(part string) (io.ReadCloser, error)
	base      *Snapshot // when the two were the same; nil when that is not known
	isNew     bool      // the folder was made for it

	came  map[string]string // by path; see Snapshot.Files
	index []byte            // of git, as it came
}

// staged are the new files, below the folder.
func (p *placing) stage() string { return arriving + "/new" }

// clear removes what is not in its place yet, and the folder if it was made.
func (p *placing) clear() error {
	err := p.top.RemoveAll(arriving)
	if p.isNew {
		err = errors.Join(err, p.s.tree.Remove(p.name)) // not the folders above it, which somebody may use meanwhile
	}
	return err
}

func (p *placing) place(ctx context.Context, merging bool) (*PlacedWorkspace, error) {
	if _, err := p.top.Lstat(arriving); err == nil {
		merging = true // one was killed while it came: it is finished
	}
	if err := p.top.RemoveAll(arriving); err != nil {
		return nil, explain(err, "remove what is left in %s of a workspace that came before", p.dir)
	}
	there, err := p.s.names(p.top)
	if err != nil {
		return nil, explain(err, "read %s", p.dir)
	}
	if len(there) > 0 && !merging {
		return nil, failf(NotEmpty, "%s is not empty, so no workspace can be put there: name another directory, or import the session without its workspace", p.dir)
	}
	if err := p.top.MkdirAll(filepath.FromSlash(p.stage()), 0o777); err != nil {
		return nil, explain(err, "make a folder in %s", p.dir)
	}
	var real *repository // that is there
	if p.ws.Git && slices.Contains(there, ".git") {
		if real, err = p.s.repository(ctx, p.dir); err != nil {
			return nil, err
		}
		defer real.end()
		if at, err := filepath.EvalSymlinks(p.dir); err != nil || at != real.root {
			return nil, failf(Unsupported, "the git repository in %s has its files at %s: name another directory", p.dir, real.root)
		}
		real.dir = real.root
	}
	made, err := p.fill(ctx, real)
	if err != nil {
		return nil, err
	}
	snapshot := &Snapshot{Git: p.ws.Git, Branch: p.ws.Branch, Commit: p.ws.Commit, Files: p.came}
	if snapshot.Index, err = indexByPath(p.index); err != nil {
		return nil, err
	}
	m := &merge{s: p.s, top: p.top, from: p.stage(), old: arriving + "/" + before}
	var g *gitMerge
	switch {
	case len(there) == 0:
		err = p.planAll(m)
	case real == nil:
		err = p.planFiles(ctx, m, p.ws.Git && !slices.Contains(there, ".git"))
	default:
		if g, err = p.s.planGit(ctx, real, made, p.ws.Format, p.base, snapshot); err == nil {
			err = g.planFiles(ctx, m, p.came)
		}
	}
	if err != nil {
		return nil, err
	}
	if len(m.conflicts) > 0 {
		return nil, conflicting(p.dir, m.conflicts)
	}
	if err := m.apply(); err != nil {
		return nil, err
	}
	if g != nil {
		if err := g.apply(ctx, p.open); err != nil {
			return nil, errors.Join(err, m.undo())
		}
	}
	return &PlacedWorkspace{
		Snapshot: snapshot,
		undo: func() error {
			var err error
			if g != nil {
				err = g.undo(context.WithoutCancel(ctx))
			}
			return errors.Join(err, m.undo(), p.clear(), p.top.Close())
		},
		keep: func() error { return errors.Join(p.top.RemoveAll(arriving), p.top.Close()) },
	}, nil
}

// planAll moves everything into a folder that is empty, git's own at the end: before that
// the folder is files that came, and afterwards it is a whole workspace.
func (p *placing) planAll(m *merge) error {
	in, err := p.top.OpenRoot(filepath.FromSlash(p.stage()))
	if err != nil {
		return explain(err, "open %s", p.dir)
	}
	defer in.Close()
	made, err := p.s.names(in)
	if err != nil {
		return explain(err, "read %s", p.dir)
	}
	slices.SortStableFunc(made, func(a, b string) int { return rank(a) - rank(b) })
	for _, one := range made {
		m.changes = append(m.changes, change{path: one, to: "new"})
	}
	return nil
}

// rank puts git's own behind everything.
func rank(name string) int {
	if name == ".git" {
		return 1
	}
	return 0
}

// planFiles puts the files together with those of a folder that is no repository, or of
// which only the files came.
func (p *placing) planFiles(ctx context.Context, m *merge, repository bool) error {
	base, known := func(string, string) string { return "" }, []string(nil)
	if p.base != nil {
		base, known = func(path, _ string) string { return p.base.Files[path] }, slices.Collect(maps.Keys(p.base.Files))
	} else if stranger, err := m.strangers(ctx, p.came); err != nil || stranger != "" {
		if err == nil {
			err = failf(NotEmpty, "%s has files that have nothing to do with the workspace, such as %s, so it cannot be put together with them: name another directory, or leave the files with --no-workspace", p.dir, stranger)
		}
		return err
	}
	err := m.plan(ctx, p.came, known, base)
	if err == nil && repository {
		m.changes = append(m.changes, change{path: ".git", to: "new"})
	}
	return err
}

// fill unpacks the files of a workspace and makes its repository, which may lack what
// the one has that is there.
func (p *placing) fill(ctx context.Context, real *repository) (*repository, error) {
	at := filepath.Join(p.dir, filepath.FromSlash(p.stage()))
	p.came = map[string]string{}
	files, err := p.open(partFiles)
	if err != nil {
		return nil, err
	}
	if files != nil {
		_, err = p.s.unpack(ctx, at, files, nil, p.came)
		if err = errors.Join(err, files.Close()); err != nil {
			return nil, err
		}
	}
	if !p.ws.Git {
		return nil, nil
	}
	index, err := p.open(partIndex)
	if err != nil {
		return nil, err
	}
	if index != nil {
		p.index, err = readIndex(index)
		if err = errors.Join(err, index.Close()); err != nil {
			return nil, err
		}
	}
	return p.s.makeRepository(ctx, at, p.ws, p.index, p.open, real)
}

// readBase reads what the workspace was when the two sides were the same, nil when that is
// not known.
func readBase(open func(part string) (io.ReadCloser, error)) (*Snapshot, error) {
	r, err := open(partBase)
	if err != nil || r == nil {
		return nil, err
	}
	var b bytes.Buffer
	_, err = b.ReadFrom(io.LimitReader(r, MaxSnapshot+1))
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, explain(err, "read what the workspace was before")
	}
	if b.Len() > MaxSnapshot {
		return nil, failf(TooLarge, "what the workspace was before has more than %d bytes", MaxSnapshot)
	}
	return ParseSnapshot(b.Bytes())
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
