package fs

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// arriving is the folder, in that of a workspace, in which one is made that comes. One
// that the end of a process has left there is removed by the next.
const arriving = temporary + "arriving"

// PlacedWorkspace is a workspace that was put into a folder. One of Undo and Keep is to be
// called; what is called afterwards does nothing. Until then no other workspace comes into that
// folder. It is not safe for concurrent use.
type PlacedWorkspace struct {
	// Snapshot is what has come, which is what the other machine has.
	Snapshot *Snapshot
	// Places is what came with it of other places.
	Places *Places
	undo   func() error
	keep   func() error
	leave  func() // lets others into the folder
	done   bool
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
	defer p.leave()
	return how()
}

// PlaceWorkspaceOptions say how a workspace is put into a folder.
type PlaceWorkspaceOptions struct {
	// Merge puts it together with what is there.
	Merge bool
	// By is what the caller calls this arrival, for RecoverWorkspace.
	By string
	// Base returns what the two were when they were the same, from what comes with it of
	// other places; nil when that is not known. May be nil.
	Base func(p *Places) *Snapshot
}

// PlaceWorkspace makes the workspace again in a folder that is empty or not there, or,
// with Merge, puts it together with what is there. What only one side has changed since
// the two were the same is taken from that side; when both have changed the same, the
// error is Conflicting and names it, and nothing is touched. All of it is made beside first.
// On an error nothing is left of it.
func (s *Service) PlaceWorkspace(ctx context.Context, dir string, ws *Workspace, o PlaceWorkspaceOptions, source Source) (placed *PlacedWorkspace, err error) {
	if ws.Sub != "" && !filepath.IsLocal(filepath.FromSlash(ws.Sub)) {
		return nil, failf(Refused, "the workspace is said to be in %q, which is not below its own folder", ws.Sub)
	}
	if ws.Place != "" && !plainPlaces([]string{ws.Place}) {
		return nil, failf(Refused, "the workspace is said to come from the place %.200q, which is no name of one", ws.Place)
	}
	if err := checkFiles(source.Open); err != nil {
		return nil, err
	}
	known, err := ReadPlaces(source.Open)
	if err != nil {
		return nil, err
	}
	var base *Snapshot
	if o.Base != nil {
		base = o.Base(known)
	}
	name, err := s.name(dir)
	if err != nil {
		return nil, err
	}
	isNew := false
	if _, err := s.tree().Lstat(name); errors.Is(err, os.ErrNotExist) {
		isNew = true
	}
	if err := s.mkdirAll(name, 0o777); err != nil {
		return nil, explain(err, "make the directory %s", dir)
	}
	top, err := s.folder(name)
	if err != nil {
		return nil, explain(err, "open %s", dir)
	}
	leave, err := s.arriving.enter(top)
	if err != nil {
		_ = top.Close()
		return nil, explain(err, "put a workspace into %s", dir)
	}
	defer func() {
		if placed == nil {
			leave()
		}
	}()
	p := &placing{s: s, dir: dir, name: name, top: top, ws: ws, source: source, base: base, isNew: isNew}
	made, err := p.place(ctx, o)
	if err != nil {
		return nil, errors.Join(err, p.takeBack(ctx))
	}
	made.Places, made.leave = known, leave
	return made, nil
}

// arrivals are the folders into which workspaces are being put, whatever paths lead there.
type arrivals struct {
	mu      sync.Mutex
	folders []os.FileInfo
}

// enter refuses a folder that another one comes into. leave lets others into it.
func (a *arrivals) enter(top *os.Root) (leave func(), err error) {
	info, err := top.Stat(".")
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	is := func(other os.FileInfo) bool { return os.SameFile(info, other) }
	if slices.ContainsFunc(a.folders, is) {
		return nil, failf(Changed, "another workspace is being put there: try again when it is there")
	}
	a.folders = append(a.folders, info)
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.folders = slices.DeleteFunc(a.folders, is)
	}, nil
}

// placing is a workspace that is put into a folder.
type placing struct {
	s         *Service
	dir, name string // of the folder, and what the tree calls it
	top       *os.Root
	ws        *Workspace
	source    Source
	base      *Snapshot // when the two were the same; nil when that is not known
	isNew     bool      // the folder was made for it

	came  arrived
	index []byte // of git, as it came
}

// staged are the new files, below the folder.
func (p *placing) stage() string { return arriving + "/new" }

// takeBack leaves the folder as it was before; one that was made for it is removed, and not
// the folders above it, which somebody may use meanwhile.
func (p *placing) takeBack(ctx context.Context) error {
	_, err := p.s.takeBack(context.WithoutCancel(ctx), p.dir, p.top)
	if p.isNew && err == nil {
		err = p.s.tree().Remove(p.name)
	}
	return errors.Join(err, p.top.Close())
}

func (p *placing) place(ctx context.Context, o PlaceWorkspaceOptions) (*PlacedWorkspace, error) {
	merging := o.Merge
	if _, err := p.top.Lstat(arriving); err == nil {
		merging = true // one was killed while it came: it is finished
		made, err := p.s.takeBack(ctx, p.dir, p.top)
		if err != nil {
			return nil, err
		}
		p.isNew = p.isNew || made
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
	snapshot := &Snapshot{Git: p.ws.Git, Branch: p.ws.Branch, Commit: p.ws.Commit, Files: p.came.states}
	if snapshot.Index, err = indexByPath(p.index); err != nil {
		return nil, err
	}
	m := &merge{s: p.s, top: p.top, from: p.stage(), old: arriving + "/" + before}
	u := &undoing{By: o.By, Made: p.isNew, Whole: len(there) == 0}
	var g *gitMerge
	switch {
	case u.Whole:
	case real == nil:
		if err = p.planFiles(ctx, m); p.ws.Git {
			u.moves = []string{".git"}
		}
	default:
		if g, err = p.s.planGit(ctx, real, made, p.ws.Format, p.base, snapshot); err == nil {
			err = g.planFiles(ctx, m, p.came.states)
		}
	}
	if err != nil {
		return nil, err
	}
	if len(m.conflicts) > 0 {
		return nil, conflicting(p.dir, m.conflicts)
	}
	if g != nil {
		if u.Git, err = g.prepare(ctx, p.dir, p.source.Open); err != nil {
			return nil, err
		}
	}
	if err := p.apply(ctx, m, g, u); err != nil {
		return nil, err
	}
	return &PlacedWorkspace{
		Snapshot: snapshot,
		undo:     func() error { return p.takeBack(ctx) },
		keep:     func() error { return errors.Join(p.s.letGo(p.dir, p.top), p.top.Close()) },
	}, nil
}

// apply writes down what is changed, and changes it.
func (p *placing) apply(ctx context.Context, m *merge, g *gitMerge, u *undoing) (err error) {
	if u.Whole {
		for _, path := range slices.Sorted(maps.Keys(p.came.states)) {
			u.changes = append(u.changes, change{path: path, to: p.came.states[path]})
		}
	} else {
		if u.folders, err = m.order(); err != nil {
			return err
		}
		u.changes = m.changes
		if err := p.top.Mkdir(filepath.FromSlash(m.old), 0o700); err != nil {
			return explain(err, "make a folder for what was there")
		}
	}
	if err := p.fetch(ctx, u); err != nil {
		return err
	}
	if u.Whole {
		if u.moves, err = p.moves(); err != nil {
			return err
		}
	}
	if err := m.makeDurable(ctx); err != nil {
		return err
	}
	if err := u.write(p.top); err != nil {
		return err
	}
	if err := m.apply(); err != nil {
		return err
	}
	for _, name := range u.moves {
		if err := m.move(m.from+"/"+name, name); err != nil {
			return err
		}
	}
	if g != nil {
		err = g.apply(ctx, p.dir, u.Git)
	}
	return err
}

// fetch makes those files beside that are needed and whose content was not in the archive.
func (p *placing) fetch(ctx context.Context, u *undoing) error {
	in := folders{top: p.top, open: map[string]*os.Root{}}
	defer in.close()
	for _, c := range u.changes {
		at, ok := p.came.elsewhere[c.path]
		if c.to == "" || !ok {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		dir, name, err := in.of(path.Join(p.stage(), c.path))
		if err != nil {
			return explain(err, "make %s", c.path)
		}
		if at.part {
			err = p.fetchPart(dir, name, at)
		} else {
			err = p.fetchHere(dir, name, at)
		}
		if err != nil {
			return explain(err, "make %s", c.path)
		}
	}
	return nil
}

// fetchPart makes a file of a part: it moves the part's own file where that can be done.
func (p *placing) fetchPart(dir *os.Root, name string, at elsewhere) error {
	file, sum := p.source.File(at.path)
	if file != "" && sum == at.sum {
		if err := moveInto(file, dir, name, at.mode); err == nil {
			return nil
		}
	}
	r, err := p.source.Open(at.path)
	if err != nil || r == nil { // it may have been moved away
		return failf(Refused, "the part %s is missing, or there twice", at.path)
	}
	defer func() { _ = r.Close() }()
	same, err := makeFile(dir, name, at, r)
	if err == nil && !same {
		err = failf(Refused, "the part %s is not what it is said to be", at.path)
	}
	return err
}

// fetchHere makes a file of one that is here.
func (p *placing) fetchHere(dir *os.Root, name string, at elsewhere) error {
	in := opened{top: p.top}
	defer in.close()
	f, err := in.find(at.path)
	if err == nil && !f.info.Mode().IsRegular() {
		err = errBehind
	}
	var file *os.File
	if err == nil {
		file, err = f.dir.OpenFile(f.name, os.O_RDONLY|nonblock, 0)
	}
	if err != nil {
		return failf(Changed, "%s, which the other side did not send, is not here any more: try again", at.path)
	}
	defer file.Close()
	same, err := makeFile(dir, name, at, file)
	if err == nil && !same {
		err = failf(Changed, "%s, which the other side did not send, was changed meanwhile: try again", at.path)
	}
	return err
}

// makeFile makes a new file, and reports whether its content is what it should be.
func makeFile(dir *os.Root, name string, at elsewhere, from io.Reader) (same bool, err error) {
	to, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, at.mode)
	if err != nil {
		return false, err
	}
	sum := sha256.New()
	_, err = transfer(io.MultiWriter(to, sum), from)
	return bytes.Equal(sum.Sum(nil), at.sum[:]), errors.Join(err, to.Close())
}

// moveInto moves a file of this program's own to a new name in a folder, with the mode that
// a new file has there.
func moveInto(file string, dir *os.Root, name string, mode os.FileMode) error {
	new, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	info, err := new.Stat()
	if err = errors.Join(err, new.Close()); err == nil {
		err = os.Chmod(file, info.Mode().Perm())
	}
	var at *os.File
	if err == nil {
		at, err = dir.Open(".")
	}
	if err == nil {
		err = errors.Join(renameAt(file, at, name), at.Close())
	}
	if err != nil {
		err = errors.Join(err, dir.Remove(name))
	}
	return err
}

// moves returns the names that come into a folder that is empty, git's own at the end: before that
// the folder is files that came, and afterwards it is a whole workspace.
func (p *placing) moves() ([]string, error) {
	in, err := p.top.OpenRoot(filepath.FromSlash(p.stage()))
	if err != nil {
		return nil, explain(err, "open %s", p.dir)
	}
	defer in.Close()
	made, err := p.s.names(in)
	if err != nil {
		return nil, explain(err, "read %s", p.dir)
	}
	slices.SortStableFunc(made, func(a, b string) int { return rank(a) - rank(b) })
	return made, nil
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
func (p *placing) planFiles(ctx context.Context, m *merge) error {
	base, known := func(string, string) string { return "" }, []string(nil)
	if p.base != nil {
		base, known = func(path, _ string) string { return p.base.Files[path] }, slices.Collect(maps.Keys(p.base.Files))
	} else if stranger, err := m.strangers(ctx, p.came.states); err != nil || stranger != "" {
		if err == nil {
			err = failf(NotEmpty, "%s has files that have nothing to do with the workspace, such as %s, so it cannot be put together with them: name another directory, or leave the files with --no-workspace", p.dir, stranger)
		}
		return err
	}
	return m.plan(ctx, p.came.states, known, base)
}

// fill unpacks the files of a workspace and makes its repository, which may lack what
// the one has that is there.
func (p *placing) fill(ctx context.Context, real *repository) (*repository, error) {
	at := filepath.Join(p.dir, filepath.FromSlash(p.stage()))
	p.came = arrived{states: map[string]string{}, elsewhere: map[string]elsewhere{}}
	files, err := p.source.Open(partFiles)
	if err != nil {
		return nil, err
	}
	if files != nil {
		_, err = p.s.unpack(ctx, at, files, nil, &p.came)
		if err = errors.Join(err, files.Close()); err != nil {
			return nil, err
		}
	}
	if !p.ws.Git {
		return nil, nil
	}
	index, err := p.source.Open(partIndex)
	if err != nil {
		return nil, err
	}
	if index != nil {
		p.index, err = readIndex(index)
		if err = errors.Join(err, index.Close()); err != nil {
			return nil, err
		}
	}
	return p.s.makeRepository(ctx, at, p.ws, p.index, p.source.Open, real)
}

// ReadPlaces reads what comes of other places, of the parts that open returns.
func ReadPlaces(open func(part string) (io.ReadCloser, error)) (*Places, error) {
	r, err := open(partPlaces)
	if err != nil || r == nil {
		return new(Places), err
	}
	var b bytes.Buffer
	_, err = b.ReadFrom(io.LimitReader(r, MaxSnapshot+maxPlacesHead))
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, explain(err, "read what the workspace was at other places")
	}
	return ParsePlaces(b.Bytes())
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
