package fs

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// gitMerge puts the repository of a workspace together with one that is there.
type gitMerge struct {
	s    *Service
	real *repository // that is there
	none string      // the name of no object
	made *repository // of what comes, which borrows the objects of real
	now  GitStatus   // of real
	come *Snapshot
	base *Snapshot // when the two were the same; with derived, what real has committed
	// derived says that base was not told: its Files are those that were committed and
	// are as they were.
	derived bool

	index     map[string]string // what becomes of git's entries
	toBranch  bool              // HEAD becomes that of what comes
	conflicts []string
	refWas    string // the commit of that branch here, "" for none
}

// planGit compares a repository with what comes.
func (s *Service) planGit(ctx context.Context, real, made *repository, format string, base, come *Snapshot) (*gitMerge, error) {
	g := &gitMerge{s: s, real: real, made: made, base: base, come: come, none: strings.Repeat("0", 40)}
	if format == "sha256" {
		g.none = strings.Repeat("0", 64)
	}
	if base != nil && !base.Git {
		g.base = nil
	}
	out, cut, err := real.run(ctx, "status", "--porcelain=v2", "--branch", "-z", "--untracked-files=no", "--ignore-submodules=all")
	if err == nil && cut {
		err = failf(TooLarge, "the repository at %s has more changed files than can be listed", real.root)
	}
	if err != nil {
		return nil, err
	}
	g.now = parseStatus(real.root, out, false)
	listed, cut, err := real.run(ctx, "ls-files", "--stage", "-z")
	if err == nil && cut {
		err = failf(TooLarge, "the repository at %s has more files than can be listed", real.root)
	}
	if err != nil {
		return nil, err
	}
	index, err := indexByPath(listed)
	if err != nil {
		return nil, err
	}
	if g.base == nil {
		if err := g.derive(ctx); err != nil {
			return nil, err
		}
	}
	var both []string
	g.index, both = three(index, g.base.Index, come.Index)
	for _, p := range both {
		g.conflicts = append(g.conflicts, p+" (staged)")
	}
	return g, g.planHead(ctx)
}

// derive finds out by the commits when the two were the same: the commit that is here, if
// what comes goes on from it.
func (g *gitMerge) derive(ctx context.Context) error {
	g.derived = true
	g.base = &Snapshot{Git: true, Branch: g.now.Branch, Commit: g.now.Commit, Files: map[string]string{}, Index: map[string]string{}}
	if g.now.Commit == "" {
		return nil
	}
	if !g.goesOn(ctx, g.now.Commit, g.come.Commit) {
		return failf(NotEmpty, "%s has a git repository at commit %s, and what comes does not go on from it: bring the two together by git, name another directory, or leave the files with --no-workspace", g.real.root, g.now.Commit)
	}
	tree, cut, err := g.real.run(ctx, "ls-tree", "-r", "-z", "--full-tree", g.now.Commit)
	if err == nil && cut {
		err = failf(TooLarge, "the repository at %s has more files than can be listed", g.real.root)
	}
	if err != nil {
		return err
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(string(tree), "\x00"), "\x00") {
		what, path, _ := strings.Cut(line, "\t")
		if f := strings.Fields(what); len(f) == 3 {
			g.base.Index[path] = f[0] + " " + f[2] + " 0"
		}
	}
	changed := map[string]bool{}
	for _, f := range g.now.Files {
		for _, p := range []string{f.Path, f.From} {
			if rel, err := filepath.Rel(g.real.root, cmp.Or(p, f.Path)); err == nil {
				changed[filepath.ToSlash(rel)] = true
			}
		}
	}
	for p, entry := range g.base.Index {
		if !changed[p] {
			g.base.Files[p] = "" // as it is here
		} else if g.base.Files[p], err = g.committed(ctx, entry); err != nil {
			return err
		}
	}
	return nil
}

// committed returns the state that a file has in a commit, by its entry.
func (g *gitMerge) committed(ctx context.Context, entry string) (string, error) {
	f := strings.Fields(entry)
	if f[0] == submodule {
		return isFolder, nil
	}
	sum := sha256.New()
	if err := g.real.stream(ctx, nil, sum, "cat-file", "blob", f[1]); err != nil {
		return "", err
	}
	switch f[0] {
	case "120000":
		return fmt.Sprintf("l%x", sum.Sum(nil)), nil
	case "100755":
		return fmt.Sprintf("x%x", sum.Sum(nil)), nil
	}
	return fmt.Sprintf("-%x", sum.Sum(nil)), nil
}

// goesOn reports whether a commit is one before another, or the same.
func (g *gitMerge) goesOn(ctx context.Context, from, to string) bool {
	return from == to || from != "" && to != "" && g.made.stream(ctx, nil, io.Discard, "merge-base", "--is-ancestor", from, to) == nil
}

// planHead says what becomes of what is checked out.
func (g *gitMerge) planHead(ctx context.Context) error {
	type head struct{ branch, commit string }
	now, base, come := head{g.now.Branch, g.now.Commit}, head{g.base.Branch, g.base.Commit}, head{g.come.Branch, g.come.Commit}
	switch {
	case now == come, come == base:
		return nil
	case now == base, now.branch == come.branch && g.goesOn(ctx, now.commit, come.commit):
		g.toBranch = true
	case now.branch == come.branch && g.goesOn(ctx, come.commit, now.commit):
		return nil
	default:
		g.conflicts = append(g.conflicts, fmt.Sprintf("what is checked out: %s here, %s in what comes", shown(now.branch, now.commit), shown(come.branch, come.commit)))
		return nil
	}
	if come.branch == "" {
		return nil
	}
	was, err := g.real.writer().ref(ctx, "refs/heads/"+come.branch)
	if err != nil {
		return err
	}
	if g.refWas = was; was != "" && !(now == base && now.branch == come.branch) && !g.goesOn(ctx, was, come.commit) {
		g.conflicts = append(g.conflicts, fmt.Sprintf("the branch %s, at commit %s here, which %s in what comes does not go on from", come.branch, was, come.commit))
	}
	return nil
}

func shown(branch, commit string) string {
	return cmp.Or(branch, "no branch") + " at " + cmp.Or(commit, "no commit")
}

// planFiles compares the files. What both have changed is added to what conflicts.
func (g *gitMerge) planFiles(ctx context.Context, m *merge, came map[string]string) error {
	base := func(path, _ string) string { return g.base.Files[path] }
	if g.derived {
		base = func(path, now string) string {
			if was, committed := g.base.Files[path]; was != "" || !committed {
				return was
			}
			return now
		}
		if g.now.Commit == "" {
			if stranger, err := m.strangers(ctx, came); err != nil || stranger != "" {
				if err == nil {
					err = failf(NotEmpty, "%s has files that have nothing to do with the workspace, such as %s, so it cannot be put together with them: name another directory, or leave the files with --no-workspace", g.real.root, stranger)
				}
				return err
			}
		}
	}
	err := m.plan(ctx, came, slices.Collect(maps.Keys(g.base.Files)), base)
	m.conflicts = append(m.conflicts, g.conflicts...)
	return err
}

// writer is git at the repository itself, for what changes branches. It runs nothing that
// the configuration names.
func (g *repository) writer() *repository {
	w := *g
	off := [][2]string{{"safe.directory", "*"}, {"core.hookspath", os.DevNull}, {"core.fsmonitor", "false"}}
	w.env = slices.DeleteFunc(gitEnvironment(), func(v string) bool { return strings.HasPrefix(v, "GIT_CONFIG_") })
	for _, name := range g.hooks {
		off = append(off, [2]string{"hook." + name + ".enabled", "false"})
	}
	w.env = append(w.env, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_SYSTEM="+os.DevNull, "GIT_CONFIG_GLOBAL="+os.DevNull,
		"GIT_DIR="+g.found.own, "GIT_WORK_TREE="+g.root, "GIT_CONFIG_COUNT="+strconv.Itoa(len(off)),
		"GIT_COMMITTER_NAME=sandbox-agent", "GIT_COMMITTER_EMAIL=sandbox-agent@localhost")
	for i, kv := range off {
		w.env = append(w.env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, kv[0]), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, kv[1]))
	}
	return &w
}

// prepare brings the objects into the repository, makes the new index beside, in the folder
// dir, and returns what apply changes. Objects that nothing refers to do no harm.
func (g *gitMerge) prepare(ctx context.Context, dir string, open func(part string) (io.ReadCloser, error)) (*gitUndo, error) {
	pack, err := open(partPack)
	if err != nil {
		return nil, err
	}
	if pack != nil {
		err = g.real.stream(ctx, pack, io.Discard, "index-pack", "--stdin")
		if err = errors.Join(err, pack.Close()); err != nil {
			return nil, err
		}
	}
	if err := g.bringShallow(); err != nil {
		return nil, err
	}
	u := new(gitUndo)
	if u.Index, err = g.prepareIndex(ctx, dir); err != nil || !g.toBranch {
		return u, err
	}
	if u.HeadWas, err = g.real.writer().head(ctx); err != nil {
		return nil, err
	}
	if g.come.Branch == "" {
		u.HeadTo = g.come.Commit
		return u, nil
	}
	if g.come.Commit != "" {
		u.Ref, u.RefWas, u.RefTo = "refs/heads/"+g.come.Branch, g.refWas, g.come.Commit
	}
	if to := "refs/heads/" + g.come.Branch; to != u.HeadWas {
		u.HeadTo = to
	}
	return u, nil
}

// bringShallow notes where the history ends that has come, if it is not whole.
func (g *gitMerge) bringShallow() error {
	path := filepath.Join(g.real.found.common, "shallow")
	was, err := g.s.gitFile(path)
	if err != nil {
		return err
	}
	come, err := os.ReadFile(filepath.Join(g.made.root, ".git", "shallow"))
	if errors.Is(err, os.ErrNotExist) || err == nil && bytes.Equal(was, come) {
		return nil
	}
	if err != nil {
		return explain(err, "read where the history ends")
	}
	_, _, err = g.s.Write(path, bytes.NewReader(come), WriteOptions{Sync: true})
	return err
}

// prepareIndex makes the new index in a folder, beside the one that is there, and returns
// the SHA-256 of what git lists of it; "" when nothing changes.
func (g *gitMerge) prepareIndex(ctx context.Context, dir string) (string, error) {
	if len(g.index) == 0 {
		return "", nil
	}
	was, err := os.ReadFile(g.real.indexPath())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", explain(err, "read the index of %s", g.real.root)
	}
	after := filepath.Join(dir, filepath.FromSlash(indexAfter))
	if err == nil {
		for _, path := range []string{filepath.Join(dir, filepath.FromSlash(indexBefore)), after} {
			if _, _, err := g.s.Write(path, bytes.NewReader(was), WriteOptions{Sync: true}); err != nil {
				return "", err
			}
		}
	}
	var b bytes.Buffer
	for _, p := range slices.Sorted(maps.Keys(g.index)) {
		// Whatever stands there goes first: an entry of a conflict has others beside it.
		fmt.Fprintf(&b, "0 %s\t%s\x00", g.none, p)
	}
	for _, p := range slices.Sorted(maps.Keys(g.index)) {
		for entry := range strings.SplitSeq(g.index[p], ",") {
			if entry != "" {
				fmt.Fprintf(&b, "%s\t%s\x00", entry, p)
			}
		}
	}
	beside := *g.real
	beside.env = append(slices.Clone(g.real.env), "GIT_INDEX_FILE="+after)
	if err := beside.stream(ctx, &b, io.Discard, "update-index", "-z", "--index-info"); err != nil {
		return "", err
	}
	return beside.listed(ctx)
}

// apply changes the repository as prepare has said.
func (g *gitMerge) apply(ctx context.Context, dir string, u *gitUndo) error {
	if u.Index != "" {
		was, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(indexBefore)))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return explain(err, "read git's index as it was")
		}
		after, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(indexAfter)))
		if err != nil {
			return explain(err, "read git's index as it comes")
		}
		if err := g.real.replaceIndex(after, &was); err != nil {
			return err
		}
	}
	w := g.real.writer()
	if u.Ref != "" {
		g.s.reach("set " + u.Ref)
		if err := w.setRef(ctx, u.Ref, u.RefTo, u.RefWas); err != nil {
			return err
		}
	}
	if u.HeadTo != "" {
		g.s.reach("set HEAD")
		return w.setHead(ctx, u.HeadTo)
	}
	return nil
}
