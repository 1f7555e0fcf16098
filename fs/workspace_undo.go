package fs

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	iofs "io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	undoFile    = arriving + "/undo"         // an undoing
	indexBefore = arriving + "/index.before" // git's index as it was; not there when there was none
	indexAfter  = arriving + "/index.after"
)

// undoing is what a workspace changes in the folder into which it is put. It is on the disk
// before anything is touched and until the workspace is kept: whoever finds it takes back
// what was done of it, be it this process or, when that was killed, another. It names states
// and no progress, so that it can be taken back again when that was cut off, too. What
// somebody has changed since stays.
type undoing struct {
	By    string   `json:"by,omitempty"`    // which arrival it is, as its caller calls it
	Made  bool     `json:"made,omitempty"`  // the folder was made for the workspace
	Whole bool     `json:"whole,omitempty"` // the folder was empty: changes are what is in moves
	Git   *gitUndo `json:"git,omitempty"`

	changes []change // in the order in which they are made
	moves   []string // names in the folder that come as a whole, behind the changes
	folders []string // that are made for them, the outer ones first
}

// gitUndo is what becomes of git's own.
type gitUndo struct {
	// HeadWas and HeadTo are branches by their full names, or commits; "" for no change.
	HeadWas string `json:"headWas,omitempty"`
	HeadTo  string `json:"headTo,omitempty"`
	// Ref is a branch that changes from one commit, "" for none, to another.
	Ref    string `json:"ref,omitempty"`
	RefWas string `json:"refWas,omitempty"`
	RefTo  string `json:"refTo,omitempty"`
	// Index is the SHA-256 of what git lists of the new index; "" for no change.
	Index string `json:"index,omitempty"`
}

const undoBegins = "sandbox-agent undo 1\x00"

// write puts it on the disk.
func (u *undoing) write(top *os.Root) error {
	head, err := json.Marshal(u)
	if err != nil {
		return err
	}
	b := bytes.NewBufferString(undoBegins + string(head) + "\x00")
	for _, name := range u.moves {
		b.WriteString("m" + name + "\x00")
	}
	for _, c := range u.changes {
		b.WriteString("c" + c.to + "\t" + c.path + "\x00")
	}
	for _, dir := range u.folders {
		b.WriteString("d" + dir + "\x00")
	}
	temp := undoFile + ".part"
	f, err := top.OpenFile(filepath.FromSlash(temp), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return explain(err, "write down what is changed")
	}
	_, err = b.WriteTo(f)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = top.Rename(filepath.FromSlash(temp), filepath.FromSlash(undoFile))
	}
	for _, dir := range []string{arriving, "."} {
		if err == nil {
			err = syncAt(top, dir)
		}
	}
	return explain(err, "write down what is changed")
}

// readUndo returns what is to be taken back in a folder, nil when nothing is.
func readUndo(top *os.Root) (*undoing, error) {
	b, err := top.ReadFile(filepath.FromSlash(undoFile))
	if nothingThere(err) {
		return nil, nil
	}
	if err != nil {
		return nil, explain(err, "read what is to be taken back")
	}
	return parseUndo(b)
}

func parseUndo(b []byte) (*undoing, error) {
	rest, ok := strings.CutPrefix(string(b), undoBegins)
	head, rest, whole := strings.Cut(rest, "\x00")
	u := new(undoing)
	if !ok || !whole || json.Unmarshal([]byte(head), u) != nil || u.Git != nil && !u.Git.plain() {
		return nil, failf(Refused, "%s cannot be read: remove it", undoFile)
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(rest, "\x00"), "\x00") {
		if line == "" {
			continue
		}
		kind, what := line[0], line[1:]
		to := ""
		if kind == 'c' {
			to, what, _ = strings.Cut(what, "\t")
		}
		if kind == 'm' && what == ".git" {
			u.moves = append(u.moves, what)
			continue
		}
		if !plainPath(what) || !filepath.IsLocal(filepath.FromSlash(what)) || kind == 'm' && strings.Contains(what, "/") {
			return nil, failf(Refused, "%s has the path %q, which is none: remove it", undoFile, what)
		}
		switch kind {
		case 'm':
			u.moves = append(u.moves, what)
		case 'c':
			u.changes = append(u.changes, change{path: what, to: to})
		case 'd':
			u.folders = append(u.folders, what)
		}
	}
	return u, nil
}

// plain reports whether it names branches and commits as git does.
func (g *gitUndo) plain() bool {
	for _, name := range []string{g.HeadWas, g.HeadTo, g.Ref} {
		if name != "" && !strings.HasPrefix(name, "refs/heads/") && !isObjectName(name) {
			return false
		}
	}
	for _, name := range []string{g.RefWas, g.RefTo} {
		if name != "" && !isObjectName(name) {
			return false
		}
	}
	return true
}

// takeBack takes back what a workspace has changed in a folder, and removes the folder of
// those on their way. made reports whether the folder itself was made for it.
func (s *Service) takeBack(ctx context.Context, dir string, top *os.Root) (made bool, err error) {
	u, err := readUndo(top)
	if err != nil {
		return false, err
	}
	if u != nil {
		m := &merge{s: s, top: top, from: arriving + "/new", old: arriving + "/" + before}
		if u.Git != nil {
			err = s.takeBackGit(ctx, dir, u.Git)
		}
		stays := false
		if err == nil {
			stays, err = u.takeBackMoves(m)
		}
		if err == nil && !stays && !u.Whole {
			err = u.takeBackChanges(m)
		}
		if err != nil {
			return false, err
		}
		made = u.Made
	}
	return made, s.letGo(dir, top)
}

// letGo removes what is needed to take a workspace back, and what is not in its place.
func (s *Service) letGo(dir string, top *os.Root) error {
	s.reach("let go")
	err := top.Remove(filepath.FromSlash(undoFile))
	if err == nil { // else the next one that comes would take this one back behind a power cut
		err = syncAt(top, arriving)
	}
	if err != nil && !nothingThere(err) {
		return explain(err, "keep the workspace in %s", dir)
	}
	s.reach("let go of the rest")
	return explain(top.RemoveAll(arriving), "remove what is left in %s of a workspace that came", dir)
}

// takeBackMoves takes away what came as a whole. All of the workspace stays when somebody
// has changed something of that.
func (u *undoing) takeBackMoves(m *merge) (stays bool, err error) {
	came := map[string]string{}
	for _, c := range u.changes {
		came[c.path] = c.to
	}
	written, err := m.top.Lstat(filepath.FromSlash(undoFile))
	if err != nil {
		return false, explain(err, "look when the workspace came")
	}
	var there []string
	for _, name := range slices.Backward(u.moves) {
		if _, err := m.top.Lstat(filepath.FromSlash(path.Join(m.from, name))); err == nil {
			continue // it has not come
		}
		if _, err := m.top.Lstat(filepath.FromSlash(name)); err != nil {
			continue
		}
		same := func(p string) bool {
			now, info, err := m.state(p)
			return err == nil && (now == came[p] || came[p] != "" && emptied(info))
		}
		if name == ".git" {
			same = func(p string) bool {
				info, err := m.top.Lstat(filepath.FromSlash(p))
				return err == nil && !info.ModTime().After(written.ModTime())
			}
		}
		if !m.all(name, same) {
			return true, nil
		}
		there = append(there, name)
	}
	for _, name := range there {
		m.s.reach("take back " + name)
		if err := m.top.Rename(filepath.FromSlash(name), filepath.FromSlash(path.Join(m.from, name))); err != nil {
			return false, explain(err, "take back %s", name)
		}
	}
	return false, nil
}

// all reports whether something holds for each file at or below a path.
func (m *merge) all(name string, holds func(p string) bool) bool {
	return iofs.WalkDir(m.top.FS(), name, func(p string, d iofs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !holds(p) {
			err = errStop
		}
		return err
	}) == nil
}

// emptied reports whether a file has nothing: a power cut leaves one so that was not on the disk when it got its name. If
// somebody has emptied it instead, there is nothing of theirs in it.
func emptied(info os.FileInfo) bool {
	return info != nil && info.Mode().IsRegular() && info.Size() == 0
}

// takeBackChanges takes away what has come, and puts what was there before in its place.
func (u *undoing) takeBackChanges(m *merge) error {
	for _, c := range slices.Backward(u.changes) {
		if c.to == "" {
			continue
		}
		new := path.Join(m.from, c.path)
		if _, err := m.top.Lstat(filepath.FromSlash(new)); err == nil {
			continue // it has not come, or was taken back
		}
		now, info, err := m.state(c.path)
		if err != nil {
			return err
		}
		if info == nil || now != c.to && !emptied(info) {
			continue
		}
		m.s.reach("take back " + c.path)
		err = m.top.MkdirAll(filepath.FromSlash(path.Dir(new)), 0o777)
		if err == nil {
			err = m.top.Rename(filepath.FromSlash(c.path), filepath.FromSlash(new))
		}
		if err != nil {
			return explain(err, "take back %s", c.path)
		}
	}
	for _, dir := range slices.Backward(u.folders) {
		if info, err := m.top.Lstat(filepath.FromSlash(dir)); err == nil && info.IsDir() {
			_ = m.top.Remove(filepath.FromSlash(dir)) // one that somebody uses stays
		}
	}
	for i, c := range slices.Backward(u.changes) {
		old := filepath.FromSlash(path.Join(m.old, strconv.Itoa(i)))
		if _, err := m.top.Lstat(old); nothingThere(err) {
			continue
		}
		if _, err := m.top.Lstat(filepath.FromSlash(c.path)); !nothingThere(err) {
			continue // somebody has put something there
		}
		m.s.reach("put back " + c.path)
		if err := m.top.MkdirAll(filepath.FromSlash(path.Dir(c.path)), 0o777); err != nil {
			return explain(err, "put back %s", c.path)
		}
		if err := m.top.Rename(old, filepath.FromSlash(c.path)); err != nil {
			return explain(err, "put back %s", c.path)
		}
	}
	return nil
}

// takeBackGit gives a repository back its branches and its index, as far as they are what
// has come.
func (s *Service) takeBackGit(ctx context.Context, dir string, u *gitUndo) error {
	g, err := s.repository(ctx, dir)
	if err != nil {
		return err
	}
	defer g.end()
	g.dir = g.root
	w := g.writer()
	if u.HeadTo != "" {
		head, err := w.head(ctx)
		if err == nil && head == u.HeadTo {
			s.reach("take back HEAD")
			err = w.setHead(ctx, u.HeadWas)
		}
		if err != nil {
			return err
		}
	}
	if u.Ref != "" {
		now, err := w.ref(ctx, u.Ref)
		if err == nil && now == u.RefTo {
			s.reach("take back " + u.Ref)
			err = w.setRef(ctx, u.Ref, u.RefWas, u.RefTo)
		}
		if err != nil {
			return err
		}
	}
	if u.Index == "" {
		return nil
	}
	if info, err := os.Lstat(g.indexPath() + ".lock"); err == nil && info.Size() == 0 {
		_ = os.Remove(g.indexPath() + ".lock") // ours, see replaceIndex
	}
	if now, err := g.listed(ctx); err != nil || now != u.Index {
		return err
	}
	b, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(indexBefore)))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return explain(err, "read git's index as it was")
	}
	s.reach("take back the index")
	return g.replaceIndex(b, nil)
}

// RecoverWorkspace ends what a process that was killed has left in a folder: with keep the
// workspace stays that came, else it is taken back. By is which arrival it was. Of another one, which
// has ended that one before it came, it leaves all.
func (s *Service) RecoverWorkspace(ctx context.Context, dir, by string, keep bool) error {
	name, err := s.name(dir)
	if err != nil {
		return err
	}
	top, err := s.folder(name)
	if nothingThere(err) {
		return nil
	}
	if err != nil {
		return explain(err, "open %s", dir)
	}
	defer top.Close()
	if u, err := readUndo(top); err == nil && u != nil && u.By != by && u.By != "" { // an earlier version did not say it
		return nil
	}
	if keep {
		return s.letGo(dir, top)
	}
	made, err := s.takeBack(ctx, dir, top)
	if err == nil && made {
		_ = s.tree().Remove(name) // one that somebody uses stays
	}
	return err
}

// reach tells a test how far a workspace is.
func (s *Service) reach(step string) {
	if s.reached != nil {
		s.reached(step)
	}
}

// head returns what is checked out: the full name of a branch, or a commit.
func (g *repository) head(ctx context.Context) (string, error) {
	out, _, err := g.run(ctx, "symbolic-ref", "-q", "HEAD")
	if nothingFound(err) {
		out, _, err = g.run(ctx, "rev-parse", "--verify", "HEAD")
	}
	return strings.TrimSpace(string(out)), err
}

// setHead changes what is checked out, and no file.
func (g *repository) setHead(ctx context.Context, to string) error {
	args := []string{"symbolic-ref", "-m", reflog, "HEAD", to}
	if !strings.HasPrefix(to, "refs/") {
		args = []string{"update-ref", "--no-deref", "-m", reflog, "HEAD", to}
	}
	return g.stream(ctx, nil, io.Discard, args...)
}

// ref returns the commit of a branch by its full name, "" when there is none.
func (g *repository) ref(ctx context.Context, name string) (string, error) {
	out, _, err := g.run(ctx, "for-each-ref", "--format=%(objectname) %(refname)", "--", name)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(out)) {
		if commit, ref, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " "); ref == name {
			return commit, nil
		}
	}
	return "", nil
}

// setRef changes the commit of a branch, which must be was before; "" for none.
func (g *repository) setRef(ctx context.Context, name, to, was string) error {
	args := []string{"update-ref", "-m", reflog, name, to, cmp.Or(was, strings.Repeat("0", len(to)))}
	if to == "" {
		args = []string{"update-ref", "-d", name, was}
	}
	return g.stream(ctx, nil, io.Discard, args...)
}

// reflog is what git notes of changes.
const reflog = "sandbox-agent: workspace"

func (g *repository) indexPath() string { return filepath.Join(g.found.own, "index") }

// listed returns the SHA-256 of what git lists of the index.
func (g *repository) listed(ctx context.Context) (string, error) {
	sum := sha256.New()
	err := g.stream(ctx, nil, sum, "ls-files", "--stage", "-z")
	return hex.EncodeToString(sum.Sum(nil)), err
}

// replaceIndex gives the repository another index, none for an empty one, under git's own
// lock, as an empty file. was, if not nil, is what it must be.
func (g *repository) replaceIndex(b []byte, was *[]byte) error {
	lock := g.indexPath() + ".lock"
	f, err := os.OpenFile(lock, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if errors.Is(err, os.ErrExist) {
		return failf(Changed, "git is at work in %s, or has left %s: try again when it is gone", g.root, lock)
	}
	if err != nil {
		return explain(err, "lock git's index of %s", g.root)
	}
	_ = f.Close()
	g.s.reach("the index is locked")
	if was != nil {
		if now, err := os.ReadFile(g.indexPath()); err != nil && !errors.Is(err, os.ErrNotExist) || !bytes.Equal(now, *was) {
			_ = os.Remove(lock)
			return failf(Changed, "git's index of %s was changed while the workspace was put together: try again", g.root)
		}
	}
	if len(b) > 0 {
		_, _, err = g.s.Write(g.indexPath(), bytes.NewReader(b), WriteOptions{Sync: true})
	} else if err = os.Remove(g.indexPath()); errors.Is(err, os.ErrNotExist) {
		err = nil
	}
	g.s.reach("the index is changed")
	return errors.Join(err, os.Remove(lock))
}
