package fs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// packTimeout bounds git when it reads or writes a whole history.
const packTimeout = 30 * time.Minute

// staged is one entry of an index.
var staged = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^([0-7]{6}) ([0-9a-f]{40}|[0-9a-f]{64}) ([0-3])\t`)
})

// isObjectName reports whether a name has the form of those of git's objects.
func isObjectName[T string | []byte](name T) bool {
	for i := range len(name) {
		if c := name[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return len(name) == 40 || len(name) == 64
}

const submodule = "160000" // the mode of a submodule in an index

// addRepository looks what another machine needs to have the repository as it is here.
// Nothing of its configuration goes along: it may name programs, and hold secrets.
func (t *Taking) addRepository(ctx context.Context, dir string) error {
	g, ws := t.g, t.ws
	ws.Format = "sha1"
	real, err := filepath.EvalSymlinks(dir)
	if err == nil {
		var sub string
		if sub, err = filepath.Rel(g.root, real); err == nil && sub != "." {
			ws.Sub = filepath.ToSlash(sub)
		}
	}
	if err != nil {
		return explain(err, "find %s in its repository", dir)
	}
	g.dir = g.root // of all of it, wherever the folder is
	list := func(args ...string) ([]string, error) {
		out, cut, err := g.run(ctx, args...)
		if cut {
			err = failf(TooLarge, "the repository at %s has more files than can be listed", g.root)
		}
		if err != nil || len(out) == 0 {
			return nil, err
		}
		return strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"), nil
	}
	status, _, err := g.run(ctx, "status", "--porcelain=v2", "--branch", "-z", "--untracked-files=no", "--ignore-submodules=all", "--", ":(exclude,top)*")
	if err != nil {
		return err
	}
	head := parseStatus(g.root, status, false)
	ws.Branch, ws.Commit = head.Branch, head.Commit
	if t.index, err = list("ls-files", "--stage", "-z"); err != nil {
		return err
	}
	others, err := list("ls-files", "--others", "--exclude-standard", "-z")
	if err != nil {
		return err
	}
	objects, known := map[string]bool{}, map[string]bool{}
	for _, line := range t.index {
		m := staged().FindStringSubmatch(line)
		if m == nil {
			return failf(Unsupported, "the index of the repository at %s has the entry %q, which is not understood", g.root, line)
		}
		known[line[len(m[0]):]] = true
		if len(m[2]) == 64 {
			ws.Format = "sha256"
		}
		if m[1] == submodule {
			ws.leave("the submodule %q: its commit is noted, its files are not here", line[len(m[0]):])
		} else {
			objects[m[2]] = true
		}
		t.more += int64(len(line)) + 1
	}
	names := slices.DeleteFunc(slices.Collect(maps.Keys(known)), func(name string) bool { return isSubmodule(t.index, name) })
	names = append(names, others...)
	slices.Sort(names)
	if len(ws.Commit) == 64 {
		ws.Format = "sha256"
	}
	if ws.Commit != "" {
		objects[ws.Commit] = true
	}
	t.objects = slices.Sorted(maps.Keys(objects))
	if len(t.objects) > 0 && len(t.o.Have) == 0 {
		n, err := g.sizeOfObjects(ctx)
		if err != nil {
			return err
		}
		t.more += n
	}
	return t.addNamed(ctx, names, known)
}

// sizeOfObjects is about how many bytes all objects of the repository have.
func (g *repository) sizeOfObjects(ctx context.Context) (int64, error) {
	out, _, err := g.run(ctx, "count-objects", "-v")
	counted := map[string]int64{}
	for line := range strings.Lines(string(out)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		counted[name], _ = strconv.ParseInt(value, 10, 64)
	}
	// Each one by itself takes whole blocks of the disk, and most of them are small.
	loose := counted["size"] - 3*counted["count"]
	return (counted["size-pack"] + max(loose, 0)) << 10, err
}

// writeRepository writes all of the repository but its files.
func (t *Taking) writeRepository(ctx context.Context, write func(string, func(io.Writer) error) error) error {
	if len(t.objects) > 0 {
		wanted := strings.Join(t.objects, "\n") + "\n"
		known, err := t.g.commits(ctx, t.o.Have)
		if err != nil {
			return err
		}
		for _, commit := range known {
			wanted += "^" + commit + "\n"
		}
		err = write(partPack, func(w io.Writer) error {
			return t.g.stream(ctx, strings.NewReader(wanted), w, "pack-objects", "--revs", "--stdout", "--delta-base-offset", "-q")
		})
		if err != nil {
			return err
		}
	}
	if len(t.index) > 0 {
		err := write(partIndex, func(w io.Writer) error {
			_, err := io.WriteString(w, strings.Join(t.index, "\x00")+"\x00")
			return err
		})
		if err != nil {
			return err
		}
	}
	shallow, err := t.s.gitFile(filepath.Join(t.g.found.common, "shallow"))
	if err != nil || len(shallow) == 0 {
		return err
	}
	return write(partShallow, func(w io.Writer) error { _, err := w.Write(shallow); return err })
}

// commits returns those of some names that are commits here.
func (g *repository) commits(ctx context.Context, names []string) (known []string, err error) {
	var in, out bytes.Buffer
	for _, name := range names {
		if isObjectName(name) {
			in.WriteString(name + "\n")
		}
	}
	if in.Len() == 0 {
		return nil, nil
	}
	if err := g.stream(ctx, &in, &out, "cat-file", "--batch-check"); err != nil {
		return nil, err
	}
	for line := range strings.Lines(out.String()) {
		if f := strings.Fields(line); len(f) == 3 && f[1] == "commit" {
			known = append(known, f[0])
		}
	}
	return known, nil
}

// isSubmodule reports whether an index, which is sorted by name, has a submodule there.
func isSubmodule(index []string, name string) bool {
	nameOf := func(line string) string { _, n, _ := strings.Cut(line, "\t"); return n }
	i, ok := slices.BinarySearchFunc(index, name, func(line, name string) int { return strings.Compare(nameOf(line), name) })
	return ok && strings.HasPrefix(index[i], submodule)
}

// stream runs git in the folder with an input, and its output as it comes.
func (g *repository) stream(ctx context.Context, in io.Reader, out io.Writer, args ...string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, packTimeout, failf(TimedOut, "git %s took longer than %s", args[0], packTimeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", append([]string{"--no-pager"}, args...)...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = g.dir, g.env, 2*time.Second
	ownGroup(cmd)
	stderr := &bounded{max: 16 << 10}
	to := &output{w: out}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, to, stderr
	err := cmd.Run()
	switch {
	case to.err != nil:
		return to.err
	case err == nil:
		return nil
	case errors.Is(err, exec.ErrNotFound):
		return failf(Unsupported, "git is not installed on the server's machine, or not in its PATH")
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	e := failf(Failed, "git %s in %s: %s", args[0], g.dir, strings.ToValidUTF8(strings.TrimSpace(stderr.b.String()), "\ufffd"))
	e.err = err
	return e
}

// output remembers why nothing more could be written: git's own words are about pipes.
type output struct {
	w   io.Writer
	err error
}

func (f *output) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if err != nil {
		f.err = err
	}
	return n, err
}

// makeRepository makes a repository of the parts of one, in a folder that has its files. It
// borrows the objects of real, if that is not nil.
func (s *Service) makeRepository(ctx context.Context, dir string, ws *Workspace, index []byte, open func(part string) (io.ReadCloser, error), real *repository) (*repository, error) {
	if ws.Format != "sha1" && ws.Format != "sha256" {
		return nil, failf(Refused, "the workspace has git objects of the form %q, which is unknown", ws.Format)
	}
	if ws.Commit != "" && !isObjectName(ws.Commit) {
		return nil, failf(Refused, "the workspace has the commit %q, which is none", ws.Commit)
	}
	g := &repository{s: s, dir: dir, root: dir, max: 1 << 20, env: append(noGitEnvironment(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))}
	quiet := func(in io.Reader, args ...string) error { return g.stream(ctx, in, io.Discard, args...) }
	if err := quiet(nil, "init", "-q", "--template=", "--object-format="+ws.Format); err != nil {
		return nil, err
	}
	g.env = append(g.env, "GIT_DIR="+filepath.Join(dir, ".git"), "GIT_WORK_TREE="+dir)
	var ends []byte // of the history that is there
	if real != nil {
		var err error
		if ends, err = s.borrow(ctx, g, real, ws.Format); err != nil {
			return nil, err
		}
	}
	part := func(name string, f func(r io.Reader) error) error {
		r, err := open(name)
		if err != nil || r == nil {
			return err
		}
		defer func() { _ = r.Close() }()
		return f(r)
	}
	err := part(partPack, func(r io.Reader) error { return quiet(r, "index-pack", "--stdin") })
	if err == nil {
		err = part(partShallow, func(r io.Reader) error { return s.writeShallow(ctx, g, real, ends, r) })
	}
	if err == nil && len(index) > 0 {
		err = quiet(bytes.NewReader(index), "update-index", "-z", "--index-info")
	}
	if err != nil {
		return nil, err
	}
	to := "HEAD"
	if ws.Branch != "" {
		to = "refs/heads/" + ws.Branch
		if err := quiet(nil, "check-ref-format", "--branch", ws.Branch); err != nil {
			return nil, failf(Refused, "the workspace has the branch %q, which is no name of one", ws.Branch)
		}
		if err := quiet(nil, "symbolic-ref", "HEAD", to); err != nil {
			return nil, err
		}
	}
	if ws.Commit != "" {
		// All of its history must be there, or the repository would be broken.
		if err := quiet(nil, "rev-list", "--objects", "--quiet", "--end-of-options", ws.Commit); err != nil {
			return nil, failf(Refused, "the workspace's history is not whole: %v", err)
		}
		if err := quiet(nil, "update-ref", "--no-deref", to, ws.Commit); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// borrow lets a repository that was just made use the objects of another one. It returns
// where the history of that one ends, if it is not whole.
func (s *Service) borrow(ctx context.Context, g, real *repository, format string) (ends []byte, err error) {
	theirs, _, err := real.run(ctx, "rev-parse", "--show-object-format")
	if err != nil {
		return nil, err
	}
	if has := strings.TrimSpace(string(theirs)); has != format {
		return nil, failf(Unsupported, "the repository at %s has objects of the form %s, and those that come are of the form %s: name another directory", real.root, has, format)
	}
	objects := filepath.Join(real.found.common, "objects")
	if strings.ContainsAny(objects, "\"\n") {
		return nil, failf(Unsupported, "the path %s has letters that git takes for others: name another directory", objects)
	}
	if ends, err = s.gitFile(filepath.Join(real.found.common, "shallow")); err != nil {
		return nil, err
	}
	for name, b := range map[string][]byte{filepath.Join("objects", "info", "alternates"): []byte(objects + "\n"), "shallow": ends} {
		if len(b) == 0 {
			continue
		}
		if _, _, err := s.Write(filepath.Join(g.root, ".git", name), bytes.NewReader(b), WriteOptions{Parents: true}); err != nil {
			return nil, err
		}
	}
	return ends, nil
}

// readIndex reads the entries of an index. git leaves out silently what it does not take.
func readIndex(r io.Reader) ([]byte, error) {
	const most = 256 << 20
	b, err := io.ReadAll(io.LimitReader(r, most+1))
	if err != nil {
		return nil, explain(err, "read the index of the workspace")
	}
	if len(b) > most {
		return nil, failf(TooLarge, "the index of the workspace is larger than %d bytes", most)
	}
	for rest := b; len(rest) > 0; {
		line, more, ended := bytes.Cut(rest, []byte{0})
		m := staged().Find(line)
		if name := string(line[len(m):]); m == nil || !ended || !plainPath(name) {
			return nil, failf(Refused, "the index of the workspace has the entry %.200q, which git would not take", line)
		}
		rest = more
	}
	return b, nil
}

// plainPath reports whether a path can be one in a repository.
func plainPath(name string) bool {
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part == "." || part == ".." || isGit(part) {
			return false
		}
	}
	return true
}

// writeShallow writes where a history ends that is not whole, and where that ends which is
// borrowed. A commit that is there already has its history there, too.
func (s *Service) writeShallow(ctx context.Context, g, real *repository, ends []byte, r io.Reader) error {
	b, err := io.ReadAll(io.LimitReader(r, 1<<20))
	if err != nil {
		return explain(err, "read where the history ends")
	}
	var names []string
	for line := range bytes.Lines(b) {
		name := bytes.TrimSuffix(line, []byte("\n"))
		if !isObjectName(name) {
			return failf(Refused, "the workspace says that its history ends at %q, which is no commit", fmt.Sprintf("%.80s", line))
		}
		names = append(names, string(name))
	}
	if real != nil {
		there, err := real.commits(ctx, names)
		if err != nil {
			return err
		}
		names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(there, name) })
	}
	if len(names) == 0 {
		return nil
	}
	all := append(slices.Clone(ends), strings.Join(names, "\n")+"\n"...)
	_, _, err = s.Write(filepath.Join(g.root, ".git", "shallow"), bytes.NewReader(all), WriteOptions{})
	return err
}
