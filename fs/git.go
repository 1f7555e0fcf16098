package fs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// GitStatus is what git says of a folder.
type GitStatus struct {
	Root      string    `json:"root"`               // of the work tree
	Branch    string    `json:"branch,omitempty"`   // absent when no branch is checked out
	Commit    string    `json:"commit,omitempty"`   // absent before the first
	Upstream  string    `json:"upstream,omitempty"` // branch
	Ahead     int       `json:"ahead"`
	Behind    int       `json:"behind"`
	Files     []GitFile `json:"files"`
	Truncated bool      `json:"truncated"` // there are more files
}

// GitFile is a file that is not as it was committed. Index and WorkTree are
// git's letters: M modified, A added, D deleted, R renamed, C copied, T of
// another type, U not merged, ? not known, "." as it was.
type GitFile struct {
	Path     string `json:"path"` // absolute
	RawPath  []byte `json:"rawPath,omitempty"`
	Index    string `json:"index"`
	WorkTree string `json:"workTree"`
	From     string `json:"from,omitempty"` // the old path of what was renamed or copied
}

// GitStatus says what differs from what was committed, below path.
func (s *Service) GitStatus(ctx context.Context, path string) (GitStatus, error) {
	g, err := s.repository(ctx, path)
	if err != nil {
		return GitStatus{}, err
	}
	out, cut, err := g.run(ctx, "status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all", "--ignore-submodules=dirty", "--", ".")
	if err != nil {
		return GitStatus{}, err
	}
	st := parseStatus(g.root, out, cut)
	return st, nil
}

// DiffOptions say what is compared.
type DiffOptions struct {
	Staged bool   // what is in the index with the last commit
	Base   string // a commit to compare the files with; "" is the index
}

// GitDiff returns a patch of what differs below path. cut says that it was
// longer than what is returned.
func (s *Service) GitDiff(ctx context.Context, path string, o DiffOptions) (patch []byte, cut bool, err error) {
	if strings.HasPrefix(o.Base, "-") || strings.IndexByte(o.Base, 0) >= 0 {
		return nil, false, failf(Invalid, "%q names no commit", o.Base)
	}
	dir := path
	spec := "."
	if e, err := s.Stat(path, true); err != nil || e.Type != Directory {
		dir, spec = filepath.Dir(path), ":(literal)"+filepath.Base(path)
	}
	g, err := s.repository(ctx, dir)
	if err != nil {
		return nil, false, err
	}
	args := []string{"diff", "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=dirty"}
	if o.Staged {
		args = append(args, "--cached")
	}
	if o.Base != "" {
		if _, _, err := g.run(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", o.Base+"^{commit}"); err != nil {
			return nil, false, failf(Invalid, "%q names no commit of %s", o.Base, g.root)
		}
		args = append(args, o.Base)
	}
	return g.run(ctx, append(args, "--", spec)...)
}

// repository is a git repository that may be looked at.
type repository struct {
	s    *Service
	dir  string
	root string
	env  []string
	max  int64 // of bytes that are taken from git
}

// repository finds the repository of a folder. Its own configuration could name
// programs that git would run; those are taken out.
func (s *Service) repository(ctx context.Context, dir string) (*repository, error) {
	if e, err := s.Stat(dir, true); err != nil {
		return nil, err
	} else if e.Type != Directory {
		return nil, failf(NotDirectory, "%s is not a directory", dir)
	}
	g := &repository{s: s, dir: dir, env: gitEnvironment(), max: 1 << 20}
	if s.root != nil {
		// Repositories above the root are not this server's to show.
		g.env = append(g.env, "GIT_CEILING_DIRECTORIES="+strings.Join(parents(s.dirs), string(filepath.ListSeparator)))
	}
	out, _, err := g.run(ctx, "rev-parse", "--show-toplevel", "--absolute-git-dir", "--git-common-dir")
	if err != nil {
		return nil, err
	}
	places := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(places) != 3 {
		return nil, failf(NoRepository, "%s is in a git repository with an unusual path", dir)
	}
	g.root = filepath.FromSlash(places[0])
	for _, p := range places {
		if !filepath.IsAbs(p) {
			p = filepath.Join(dir, p)
		}
		if real, err := filepath.EvalSymlinks(p); err == nil {
			p = real
		}
		if _, err := s.name(p); err != nil {
			return nil, failf(Escapes, "%s belongs to a git repository at %s, outside of the root that this server is confined to", dir, p)
		}
	}
	if s.root != nil {
		common := places[2]
		if !filepath.IsAbs(common) {
			common = filepath.Join(dir, common)
		}
		if err := s.objectsInside(filepath.Join(common, "objects"), 0); err != nil {
			return nil, err
		}
	}
	err = g.disarm(ctx)
	g.max = s.o.GitOutput
	return g, err
}

// maxAlternates is how many levels of alternates git follows.
const maxAlternates = 5

// objectsInside reports an error when a store of git objects is outside of the
// root, or names one that is: whoever may write in a repository could show the
// objects of another by it.
func (s *Service) objectsInside(dir string, level int) error {
	real, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil // git has nothing there either
	}
	if err != nil {
		return explain(err, "look at the git objects in %s", dir)
	}
	name, err := s.name(real)
	if err != nil {
		return failf(Escapes, "the git repository has objects in %s, outside of the root that this server is confined to", real)
	}
	if level > maxAlternates {
		return nil
	}
	f, _, err := s.open(name + "/info/alternates")
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return explain(err, "look at the git objects in %s", dir)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil || len(b) == 1<<20 {
		return failf(TooLarge, "the list of other git objects in %s cannot be read", real)
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		switch {
		case line == "" || line[0] == '#':
			continue
		case line[0] == '"':
			return failf(Unsupported, "the git repository names other objects at %s, which is not looked at", line)
		case !filepath.IsAbs(line):
			line = filepath.Join(real, line)
		}
		if err := s.objectsInside(line, level+1); err != nil {
			return err
		}
	}
	return nil
}

func parents(dirs []string) []string {
	out := make([]string, len(dirs))
	for i, d := range dirs {
		out[i] = filepath.Dir(d)
	}
	return out
}

// disarm turns off the filters that the repository itself configures. Those of
// the user and the machine stay: without them files would seem changed.
func (g *repository) disarm(ctx context.Context) error {
	out, _, err := g.run(ctx, "config", "--get", fixedConfig[0][0])
	if err != nil && !nothingFound(err) {
		return err
	}
	if strings.TrimSpace(string(out)) != fixedConfig[0][1] {
		return failf(Unsupported, "git on the server's machine is older than 2.31, and cannot be kept from running programs that a repository names")
	}
	var names []string
	for _, scope := range []string{"--local", "--worktree"} {
		out, cut, err := g.run(ctx, "config", scope, "--includes", "--null", "--name-only", "--get-regexp", `^filter\.`)
		if cut {
			return failf(TooLarge, "the configuration of the git repository at %s is too large", g.root)
		}
		// A filter that was not found because git failed would be run.
		if err != nil && !nothingFound(err) {
			return err
		}
		if err == nil {
			names = append(names, strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")...)
		}
	}
	n := len(fixedConfig)
	for _, name := range names {
		value := ""
		switch strings.ToLower(name[strings.LastIndexByte(name, '.')+1:]) {
		case "clean", "smudge", "process":
		case "required":
			value = "false"
		default:
			continue
		}
		g.env = append(g.env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", n, name), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", n, value))
		n++
	}
	g.env = append(g.env, fmt.Sprintf("GIT_CONFIG_COUNT=%d", n))
	return nil
}

// fixedConfig wins over every file. Ownership is not checked, because what it
// protects from, programs of somebody else's configuration, is not run.
var fixedConfig = [][2]string{
	{"sandboxagent.probe", "effective"},
	{"core.fsmonitor", "false"},
	{"core.hooksPath", os.DevNull},
	{"core.pager", "cat"},
	{"core.quotePath", "false"},
	{"core.untrackedCache", "false"},
	{"diff.external", ""},
	{"safe.directory", "*"},
	{"status.relativePaths", "false"},
	{"submodule.recurse", "false"},
}

// gitEnvironment is what git needs of this process's environment, and what
// keeps it from asking, fetching, locking and running other programs.
func gitEnvironment() []string {
	env := []string{
		"LC_ALL=C", "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0", "GIT_PAGER=cat", "GIT_ASKPASS=", "GIT_EDITOR=false",
		"GIT_NO_LAZY_FETCH=1", "GIT_ALLOW_PROTOCOL=none", "GIT_NO_REPLACE_OBJECTS=1",
	}
	for _, name := range []string{"PATH", "HOME", "XDG_CONFIG_HOME", "SYSTEMROOT", "USERPROFILE"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	for i, kv := range fixedConfig {
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, kv[0]), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, kv[1]))
	}
	return append(env, fmt.Sprintf("GIT_CONFIG_COUNT=%d", len(fixedConfig)))
}

// run runs git in the folder. cut says that it wrote more than is returned.
func (g *repository) run(ctx context.Context, args ...string) (out []byte, cut bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, g.s.o.GitTimeout, failf(TimedOut, "git took longer than %s", g.s.o.GitTimeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", append([]string{"--no-pager"}, args...)...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = g.dir, g.env, 2*time.Second
	ownGroup(cmd)
	stdout, stderr := &bounded{max: g.max, full: cancel}, &bounded{max: 16 << 10}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	err = cmd.Run()
	if stdout.cut {
		return stdout.b.Bytes(), true, nil
	}
	switch {
	case err == nil:
		return stdout.b.Bytes(), false, nil
	case errors.Is(err, exec.ErrNotFound):
		return nil, false, failf(Unsupported, "git is not installed on the server's machine, or not in its PATH")
	case ctx.Err() != nil:
		return nil, false, context.Cause(ctx)
	}
	text := strings.TrimSpace(stderr.b.String())
	if strings.Contains(text, "not a git repository") || strings.Contains(text, "must be run in a work tree") {
		return nil, false, failf(NoRepository, "%s is in no git repository with a work tree", g.dir)
	}
	e := failf(Failed, "git %s in %s", args[0], g.dir)
	if text != "" {
		e.Text += ": " + strings.ToValidUTF8(text, "\ufffd")
	}
	e.err = err
	return nil, false, e
}

// nothingFound reports whether an error of "git config" says that there is no
// such variable, and nothing else.
func nothingFound(err error) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	return ok && exit.ExitCode() == 1
}

// bounded keeps the beginning of what is written.
type bounded struct {
	b    bytes.Buffer
	max  int64
	cut  bool
	full context.CancelFunc // called when there is more; nil to take and forget it
}

func (b *bounded) Write(p []byte) (int, error) {
	room := b.max - int64(b.b.Len())
	if int64(len(p)) <= room {
		return b.b.Write(p)
	}
	b.b.Write(p[:max(room, 0)])
	if b.full != nil {
		b.cut = true
		b.full()
		return 0, io.ErrShortBuffer
	}
	return len(p), nil
}

// parseStatus reads git's porcelain format, version 2, with zero bytes.
func parseStatus(root string, out []byte, cut bool) GitStatus {
	st := GitStatus{Root: root, Files: []GitFile{}, Truncated: cut}
	if cut {
		out = out[:bytes.LastIndexByte(out, 0)+1]
	}
	records := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	add := func(xy, path, from string) {
		if len(xy) != 2 {
			return
		}
		f := GitFile{Path: filepath.Join(root, filepath.FromSlash(path)), Index: xy[:1], WorkTree: xy[1:]}
		if from != "" {
			f.From = filepath.Join(root, filepath.FromSlash(from))
		}
		if !utf8.ValidString(f.Path) {
			f.RawPath = []byte(f.Path)
		}
		st.Files = append(st.Files, f)
	}
	for i := 0; i < len(records); i++ {
		kind, rest, _ := strings.Cut(records[i], " ")
		switch kind {
		case "#":
			st.header(rest)
		case "1": // XY sub mH mI mW hH hI path
			if p := strings.SplitN(rest, " ", 8); len(p) == 8 {
				add(p[0], p[7], "")
			}
		case "2": // XY sub mH mI mW hH hI score path, and the old path
			if p := strings.SplitN(rest, " ", 9); len(p) == 9 && i+1 < len(records) {
				i++
				add(p[0], p[8], records[i])
			}
		case "u": // XY sub m1 m2 m3 mW h1 h2 h3 path
			if p := strings.SplitN(rest, " ", 10); len(p) == 10 {
				add(p[0], p[9], "")
			}
		case "?":
			add("??", rest, "")
		}
	}
	return st
}

func (st *GitStatus) header(line string) {
	name, v, _ := strings.Cut(line, " ")
	switch name {
	case "branch.oid":
		if v != "(initial)" {
			st.Commit = v
		}
	case "branch.head":
		if v != "(detached)" {
			st.Branch = v
		}
	case "branch.upstream":
		st.Upstream = v
	case "branch.ab":
		ahead, behind, _ := strings.Cut(v, " ")
		a, _ := strconv.Atoi(ahead)
		b, _ := strconv.Atoi(behind)
		st.Ahead, st.Behind = a, -b
	}
}
