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
	"slices"
	"strings"
	"time"
)

// repository is a git repository that may be looked at. Its configuration, hooks
// and attributes can name programs in ever more ways, so git is not let near
// them: it is given a folder of its own as the repository, with a configuration
// made here, and finds there only the objects and the index of the real one.
type repository struct {
	s    *Service
	dir  string
	root string // of the work tree

	hooks []string // names of those in its configuration
	found places
	fake  string // the folder that git takes for the repository; "" before it is made
	env   []string
	max   int64 // of bytes that are taken from git
}

// places are where the parts of a repository are.
type places struct {
	own    string // what belongs to this work tree: HEAD and the index
	common string // what all its work trees share: objects and refs
}

// repository finds the repository of a folder. The caller ends it.
func (s *Service) repository(ctx context.Context, dir string) (*repository, error) {
	if e, err := s.Stat(dir, true); err != nil {
		return nil, err
	} else if e.Type != Directory {
		return nil, failf(NotDirectory, "%s is not a directory", dir)
	}
	g := &repository{s: s, dir: dir, env: gitEnvironment(), max: 1 << 20}
	if s.confined() {
		// Repositories above the root are not this server's to show.
		g.env = append(g.env, "GIT_CEILING_DIRECTORIES="+strings.Join(parents(s.dirs), string(filepath.ListSeparator)))
	}
	// Up to here git reads the real configuration, in commands that run nothing.
	out, _, err := g.run(ctx, "rev-parse", "--show-toplevel", "--absolute-git-dir", "--git-common-dir")
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
	if len(lines) != 3 {
		return nil, failf(NoRepository, "%s is in a git repository with an unusual path", dir)
	}
	for i, p := range lines {
		if p = filepath.FromSlash(p); !filepath.IsAbs(p) {
			p = filepath.Join(dir, p)
		}
		lines[i] = p
		if real, err := filepath.EvalSymlinks(p); err == nil {
			p = real
		}
		if _, err := s.name(p); err != nil {
			return nil, failf(Escapes, "%s belongs to a git repository at %s, outside of the root that this server is confined to", dir, p)
		}
	}
	g.root, g.found = lines[0], places{own: lines[1], common: lines[2]}
	if s.confined() {
		if err := s.objectsInside(filepath.Join(g.found.common, "objects"), 0); err != nil {
			return nil, err
		}
	}
	if err := g.imitate(ctx); err != nil {
		g.end()
		return nil, err
	}
	g.max = s.o.GitOutput
	return g, nil
}

// end removes what was made to look at the repository.
func (g *repository) end() {
	if g.fake != "" {
		_ = os.RemoveAll(g.fake)
	}
}

// taken are the variables of a repository and of its user that say how files are
// compared. None of them names a program; all others are left behind.
var taken = []string{
	"core.abbrev", "core.autocrlf", "core.bigfilethreshold", "core.checkstat", "core.eol", "core.filemode",
	"core.ignorecase", "core.precomposeunicode", "core.sparsecheckout", "core.sparsecheckoutcone", "core.symlinks", "core.trustctime",
	"diff.algorithm", "diff.renamelimit", "diff.renames", "index.sparse",
}

// takes reports whether a variable of the repository is taken over.
func takes(name string) bool {
	switch {
	case strings.HasPrefix(name, "branch."):
		return strings.HasSuffix(name, ".remote") || strings.HasSuffix(name, ".merge")
	case strings.HasPrefix(name, "remote."):
		return strings.HasSuffix(name, ".fetch")
	}
	return slices.Contains(taken, name)
}

// imitate makes the folder that git takes for the repository.
func (g *repository) imitate(ctx context.Context) error {
	variables, cut, err := g.run(ctx, "config", "--list", "--null")
	if cut {
		return failf(TooLarge, "the configuration of the git repository at %s is too large", g.root)
	}
	if err != nil {
		return err
	}
	head, refs, err := g.refs(ctx)
	if err != nil {
		return err
	}
	if temp := g.s.o.Temp; temp != "" {
		err = os.MkdirAll(temp, 0o700)
	}
	if err == nil {
		g.fake, err = os.MkdirTemp(g.s.o.Temp, "sandbox-agent-git-")
	}
	if err != nil {
		return explain(err, "look at the git repository at %s", g.root)
	}
	for v := range strings.SplitSeq(string(variables), "\x00") {
		name, _, _ := strings.Cut(v, "\n")
		if last := strings.LastIndexByte(name, '.'); strings.HasPrefix(name, "hook.") && last > len("hook.") && !slices.Contains(g.hooks, name[len("hook."):last]) {
			g.hooks = append(g.hooks, name[len("hook."):last])
		}
	}
	format := g.objectFormat(variables)
	files := map[string][]byte{"HEAD": head, "packed-refs": refs, "config": configuration(variables, format, g.ignored(variables))}
	for name, from := range map[string]string{
		"info/sparse-checkout": g.found.own,
		"info/exclude":         g.found.common, "info/attributes": g.found.common, "shallow": g.found.common,
	} {
		if files[name], err = g.s.gitFile(filepath.Join(from, name)); err != nil {
			return err
		}
	}
	for _, dir := range []string{"refs", "info", "objects"} {
		if err := os.Mkdir(filepath.Join(g.fake, dir), 0o700); err != nil {
			return explain(err, "look at the git repository at %s", g.root)
		}
	}
	for name, b := range files {
		if b == nil && name != "config" {
			continue
		}
		if err := os.WriteFile(filepath.Join(g.fake, name), b, 0o600); err != nil {
			return explain(err, "look at the git repository at %s", g.root)
		}
	}
	shared, err := filepath.Glob(filepath.Join(g.found.own, "sharedindex.*"))
	if err != nil {
		shared = nil // a path that is a pattern: an index that is split cannot be read
	}
	for _, path := range shared {
		if err := os.Symlink(path, filepath.Join(g.fake, filepath.Base(path))); err != nil {
			return explain(err, "look at the index of the git repository at %s", g.root)
		}
	}
	g.env = append(noGitEnvironment(),
		"GIT_DIR="+g.fake, "GIT_WORK_TREE="+g.root, "GIT_INDEX_FILE="+filepath.Join(g.found.own, "index"),
		"GIT_OBJECT_DIRECTORY="+filepath.Join(g.found.common, "objects"))
	return nil
}

// refs returns what git needs to know of branches: what is checked out, as the file HEAD, and, as a file of packed refs,
// the branch of that and its upstream. Both are of one reading of HEAD: another branch may be checked out meanwhile.
func (g *repository) refs(ctx context.Context) (head, packed []byte, err error) {
	out, _, err := g.run(ctx, "symbolic-ref", "-q", "HEAD")
	if nothingFound(err) { // no branch is checked out
		out, _, err = g.run(ctx, "rev-parse", "--verify", "HEAD")
		return out, []byte(packedRefs), err
	}
	if err != nil {
		return nil, nil, err
	}
	branch := strings.TrimSpace(string(out))
	head = []byte("ref: " + branch + "\n")
	var lines []string
	for name := branch; name != "" && len(lines) < 2; {
		out, _, err := g.run(ctx, "for-each-ref", "--format=%(objectname) %(refname) %(upstream)", "--", name)
		if err != nil {
			return nil, nil, err
		}
		name = ""
		for line := range strings.SplitSeq(string(out), "\n") {
			if f := strings.Fields(line); len(f) >= 2 && (f[1] == branch || len(lines) > 0) {
				lines = append(lines, f[0]+" "+f[1])
				if len(f) == 3 && len(lines) == 1 {
					name = f[2]
				}
				break
			}
		}
	}
	slices.SortFunc(lines, func(a, b string) int {
		_, a, _ = strings.Cut(a, " ")
		_, b, _ = strings.Cut(b, " ")
		return strings.Compare(a, b)
	})
	return head, []byte(packedRefs + strings.Join(append(lines, ""), "\n")), nil
}

// packedRefs begins a file of packed refs.
const packedRefs = "# pack-refs with: sorted\n"

// knowAll has the git that looks at the repository take files that are not in the index for ones
// that will be added. The index and the objects that this writes are its own.
func (g *repository) knowAll(ctx context.Context, spec string) error {
	index, objects := filepath.Join(g.fake, "index"), filepath.Join(g.fake, "objects")
	if err := g.copyIndex(index); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(objects, "info"), 0o700); err != nil {
		return explain(err, "look at the git repository at %s", g.root)
	}
	if err := os.WriteFile(filepath.Join(objects, "info", "alternates"), []byte(filepath.ToSlash(filepath.Join(g.found.common, "objects"))+"\n"), 0o600); err != nil {
		return explain(err, "look at the git repository at %s", g.root)
	}
	g.env = append(g.env, "GIT_INDEX_FILE="+index, "GIT_OBJECT_DIRECTORY="+objects)
	_, _, err := g.run(ctx, "add", "--intent-to-add", "--ignore-errors", "--", spec)
	if e, ok := errors.AsType[*Error](err); ok && e.Code == Failed {
		return nil // of what cannot be added, such as a file that was removed, nothing is new
	}
	return err
}

// copyIndex copies the index. Its time stays: by that git knows which files may have changed in the
// moment in which it was written.
func (g *repository) copyIndex(to string) error {
	from := filepath.Join(g.found.own, "index")
	name, err := g.s.name(from)
	if err != nil {
		return failf(Escapes, "%s is outside of the root that this server is confined to", from)
	}
	in, info, err := g.s.open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil // nothing was ever added
	}
	if err != nil {
		return explain(err, "read %s", from)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return explain(err, "look at the index of the git repository at %s", g.root)
	}
	_, err = io.Copy(out, in)
	if err := errors.Join(err, out.Close()); err != nil {
		return explain(err, "look at the index of the git repository at %s", g.root)
	}
	return os.Chtimes(to, info.ModTime(), info.ModTime())
}

// commit returns the id of a commit that the caller names. Names are looked up
// in the real repository: the other has no tags and no history of refs.
func (g *repository) commit(ctx context.Context, name string) (string, error) {
	real := *g
	real.env = gitEnvironment()
	out, _, err := real.run(ctx, "rev-parse", "--verify", "--quiet", "--end-of-options", name+"^{commit}")
	if err != nil {
		return "", err
	}
	return strings.TrimSpace(string(out)), nil
}

// objectFormat returns the hash that the repository's objects are named by.
func (g *repository) objectFormat(variables []byte) string {
	format := "sha1"
	for v := range strings.SplitSeq(string(variables), "\x00") {
		if name, value, _ := strings.Cut(v, "\n"); name == "extensions.objectformat" && value == "sha256" {
			format = value
		}
	}
	return format
}

// ignored returns the file with the user's own list of files that git ignores,
// "" for none. A server that is confined to a root does not look at it.
func (g *repository) ignored(variables []byte) string {
	if g.s.confined() {
		return ""
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	folder := os.Getenv("XDG_CONFIG_HOME")
	if folder == "" {
		folder = filepath.Join(home, ".config")
	}
	path := filepath.Join(folder, "git", "ignore")
	for v := range strings.SplitSeq(string(variables), "\x00") {
		if name, value, _ := strings.Cut(v, "\n"); name == "core.excludesfile" {
			path = value
		}
	}
	if rest, ok := strings.CutPrefix(path, "~/"); ok {
		path = filepath.Join(home, rest)
	}
	return path
}

// configuration returns the file that stands for all configuration.
func configuration(variables []byte, format, ignored string) []byte {
	var b bytes.Buffer
	write := func(name, value string) {
		first, last := strings.IndexByte(name, '.'), strings.LastIndexByte(name, '.')
		section := "[" + name[:first]
		if last > first {
			section += ` "` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name[first+1:last]) + `"`
		}
		value = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(value)
		fmt.Fprintf(&b, "%s]\n\t%s = \"%s\"\n", section, name[last+1:], value)
	}
	for v := range strings.SplitSeq(string(variables), "\x00") {
		name, value, given := strings.Cut(v, "\n")
		if !given {
			value = "true" // a variable without a value
		}
		if first := strings.IndexByte(name, '.'); first > 0 && takes(name) && !strings.Contains(name, "\n") {
			write(name, value)
		}
	}
	for _, kv := range fixedConfig {
		write(kv[0], kv[1])
	}
	write("core.excludesfile", ignored)
	if format != "sha1" {
		write("core.repositoryformatversion", "1")
		write("extensions.objectformat", format)
	}
	return b.Bytes()
}

// gitFile reads a small file of a repository, nil when there is none.
func (s *Service) gitFile(path string) ([]byte, error) {
	name, err := s.name(path)
	if err != nil {
		return nil, failf(Escapes, "%s is outside of the root that this server is confined to", path)
	}
	f, info, err := s.open(name)
	if errors.Is(err, os.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
		if err == nil {
			_ = f.Close()
		}
		return nil, nil
	}
	if err != nil {
		return nil, explain(err, "read %s", path)
	}
	defer f.Close()
	const most = 1 << 20
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && len(b) > most {
		return nil, failf(TooLarge, "%s is larger than %d bytes", path, most)
	}
	if err != nil {
		return nil, explain(err, "read %s", path)
	}
	return b, nil
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

// fixedConfig is how git shows things here, and that it runs nothing beside.
var fixedConfig = [][2]string{
	{"core.bare", "false"},
	{"core.fsmonitor", "false"},
	{"core.hookspath", os.DevNull},
	{"core.quotepath", "false"},
	{"core.untrackedcache", "false"},
	{"status.relativepaths", "false"},
}

// noGitEnvironment is the environment of a git that is to know nothing of this
// process, of its user, and of the machine: no configuration but the
// repository's, no questions, no network, no locks.
func noGitEnvironment() []string {
	env := []string{
		"LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_SYSTEM=" + os.DevNull, "GIT_CONFIG_GLOBAL=" + os.DevNull, "HOME=" + os.DevNull,
		"GIT_ATTR_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0", "GIT_OPTIONAL_LOCKS=0", "GIT_PAGER=cat", "GIT_ASKPASS=", "GIT_EDITOR=false",
		"GIT_NO_LAZY_FETCH=1", "GIT_ALLOW_PROTOCOL=none", "GIT_NO_REPLACE_OBJECTS=1",
	}
	for _, name := range []string{"SYSTEMROOT"} { // Windows starts nothing without it
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// gitEnvironment is that of commands that read configuration and run nothing.
// They see the user's. Whom the repository belongs to is not asked: what that
// protects from, programs of somebody else's configuration, does not happen.
func gitEnvironment() []string {
	env := slices.DeleteFunc(noGitEnvironment(), func(v string) bool {
		return strings.HasPrefix(v, "GIT_CONFIG_") || strings.HasPrefix(v, "HOME=")
	})
	for _, name := range []string{"HOME", "XDG_CONFIG_HOME", "USERPROFILE"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return append(env, "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*")
}

// run runs git in the folder. cut says that it wrote more than is returned.
func (g *repository) run(ctx context.Context, args ...string) (out []byte, cut bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, g.s.o.GitTimeout, failf(TimedOut, "git took longer than %s", g.s.o.GitTimeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, "git", append([]string{"--no-pager"}, args...)...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = g.dir, g.env, 2*time.Second
	ownGroup(cmd)
	before, _ := os.Stat(g.dir)
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
	// It may also be back already.
	gone := before == nil || errors.Is(err, os.ErrNotExist) || strings.Contains(text, "failed to stat '") || strings.Contains(text, "current working directory")
	if now, err := os.Stat(g.dir); gone || err != nil || !os.SameFile(before, now) {
		return nil, false, failf(NotFound, "%s was removed or replaced meanwhile", g.dir)
	}
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
