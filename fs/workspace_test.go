package fs

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// parts are the parts of a workspace in memory.
type parts map[string]*bytes.Buffer

type closing struct{ io.Writer }

func (closing) Close() error { return nil }

func (p parts) Create(name string) (io.WriteCloser, error) {
	p[name] = new(bytes.Buffer)
	return closing{p[name]}, nil
}

func (p parts) Put(name string, size int64, r io.Reader) (sum [sha256.Size]byte, err error) {
	p[name] = new(bytes.Buffer)
	if n, err := io.CopyN(p[name], r, size); err != nil || n < size {
		return sum, io.ErrUnexpectedEOF
	}
	return sha256.Sum256(p[name].Bytes()), nil
}

func (p parts) Open(name string) (io.ReadCloser, error) {
	if p[name] == nil {
		return nil, nil
	}
	return io.NopCloser(bytes.NewReader(p[name].Bytes())), nil
}

// File implements Source. These parts are in no files, unlike those of filed.
func (p parts) File(string) (string, [sha256.Size]byte) { return "", [sha256.Size]byte{} }

// filed are parts of which the large ones are files in a folder.
type filed struct {
	parts
	dir string
}

func (f filed) File(name string) (path string, sum [sha256.Size]byte) {
	path = filepath.Join(f.dir, strings.ReplaceAll(name, "/", "-"))
	if os.WriteFile(path, f.parts[name].Bytes(), 0o600) != nil {
		return "", sum
	}
	return path, sha256.Sum256(f.parts[name].Bytes())
}

// take takes a workspace into memory, as one of the place that is its folder's path.
func take(t *testing.T, s *Service, from string, o TakeOptions) (*Workspace, parts) {
	t.Helper()
	taking, err := s.OpenWorkspace(t.Context(), from, o)
	if err != nil {
		t.Fatal(err)
	}
	defer taking.Close()
	p := parts{}
	ws, err := taking.Write(t.Context(), from, p)
	if err != nil {
		t.Fatal(err)
	}
	written := int64(0)
	for _, b := range p {
		written += int64(b.Len())
	}
	if about := taking.Bytes(); len(o.Have) == 0 && written > 1<<20 && (written > 2*about || about > 3*written) {
		t.Errorf("%d bytes are written, and it was said that there are %d", written, about)
	}
	return ws, p
}

// moved takes the workspace of a folder to another place.
func moved(t *testing.T, s *Service, from, to string) (*Workspace, parts) {
	t.Helper()
	ws, p := take(t, s, from, TakeOptions{})
	placed, err := s.PlaceWorkspace(t.Context(), to, ws, PlaceWorkspaceOptions{}, p)
	if err != nil {
		t.Fatal(err)
	}
	if err := placed.Keep(); err != nil {
		t.Fatal(err)
	}
	return ws, p
}

// contents lists what is in a folder but git's own: names, modes, and what is in them.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		switch {
		case err != nil:
			return err
		case rel == ".git":
			return filepath.SkipDir
		case info.IsDir():
		case info.Mode()&os.ModeSymlink != 0:
			target, err := os.Readlink(path)
			out[rel] = "-> " + target
			return err
		default:
			b, err := os.ReadFile(path)
			out[rel] = info.Mode().String() + string(b)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func differ(t *testing.T, got, want map[string]string) {
	t.Helper()
	for name := range want {
		if got[name] != want[name] {
			t.Errorf("%s is %q, want %q", name, got[name], want[name])
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("%s is %q, and should not be there", name, got[name])
		}
	}
}

func TestWorkspace_Repository(t *testing.T) {
	both(t, func(t *testing.T, s *Service, dir string) {
		one, two := dir+"/one", dir+"/two"
		put(t, one+"/.gitignore", "*.log\n/build/\n")
		put(t, one+"/a", "one\n")
		put(t, one+"/sub dir/b é", "b\n")
		put(t, one+"/gone", "gone\n")
		put(t, one+"/old", strings.Repeat("renamed\n", 50))
		put(t, one+"/run", "#!/bin/sh\n")
		put(t, one+"/data", "\x00\x01\xff binary")
		put(t, one+"/big.bin", "version https://git-lfs.github.com/spec/v1\noid sha256:abc\nsize 3\n")
		link(t, "../a", one+"/sub dir/link")
		if err := os.Chmod(one+"/run", 0o755); err != nil {
			t.Fatal(err)
		}
		git(t, one, "init", "-q", "-b", "main")
		git(t, one, "config", "remote.origin.url", "https://user:secret@example.com/x")
		git(t, one, "add", "-A")
		git(t, one, "commit", "-qm", "first")
		put(t, one+"/a", "staged\n")
		git(t, one, "add", "a")
		put(t, one+"/a", "and changed\n")
		git(t, one, "mv", "old", "new")
		put(t, one+"/data", "\x00 other \xfe")
		put(t, one+"/untracked", "u\n")
		put(t, one+"/noise.log", "ignored\n")
		put(t, one+"/build/x", "ignored\n")
		put(t, one+"/.env", "SECRET=1\n")
		put(t, one+"/.env.example", "SECRET=\n")
		link(t, "/etc/passwd", one+"/outside")
		if err := os.Remove(one + "/gone"); err != nil {
			t.Fatal(err)
		}
		ws, p := moved(t, s, one+"/sub dir", two)
		if ws.Sub != "sub dir" || ws.Branch != "main" || !ws.Git {
			t.Errorf("%+v", ws)
		}
		if told := strings.Join(ws.LeftOut, "\n"); !strings.Contains(told, `".env"`) || !strings.Contains(told, `"outside"`) || !strings.Contains(told, `the content of "big.bin"`) || strings.Contains(told, "example") {
			t.Errorf("left out: %s", told)
		}
		want := contents(t, one)
		for _, name := range []string{"noise.log", "build/x", ".env", "outside"} {
			delete(want, name)
		}
		differ(t, contents(t, two), want)
		status := func(dir string) string { return git(t, dir, "status", "--porcelain=v1", "--untracked-files=all") }
		if got, want := status(two), strings.NewReplacer("?? .env\n", "", "?? outside\n", "").Replace(status(one)); got != want {
			t.Errorf("status:\n%s\nwant:\n%s", got, want)
		}
		for _, args := range [][]string{{"log", "--format=%H %s"}, {"diff", "--cached"}, {"diff"}, {"ls-files", "--stage"}, {"symbolic-ref", "HEAD"}} {
			if got, want := git(t, two, args...), git(t, one, args...); got != want {
				t.Errorf("git %q:\n%s\nwant:\n%s", args, got, want)
			}
		}
		git(t, two, "fsck", "--strict")
		for name, b := range p {
			if bytes.Contains(b.Bytes(), []byte("user:secret")) {
				t.Errorf("%s has the address of the remote", name)
			}
		}
		if _, err := s.PlaceWorkspace(t.Context(), two, ws, PlaceWorkspaceOptions{}, p); err == nil || !strings.Contains(err.Error(), "is not empty") {
			t.Errorf("into a folder that is not empty: %v", err)
		}
	})
}

func TestWorkspace_States(t *testing.T) {
	first := func(t *testing.T, dir string) {
		put(t, dir+"/a", "one\n")
		git(t, dir, "init", "-q", "-b", "main")
		git(t, dir, "add", "-A")
		git(t, dir, "commit", "-qm", "first")
		put(t, dir+"/a", "two\n")
		git(t, dir, "commit", "-qam", "second")
	}
	for name, build := range map[string]func(t *testing.T, dir string) (told string){
		"no commits yet": func(t *testing.T, dir string) string {
			put(t, dir+"/a", "one\n")
			git(t, dir, "init", "-q", "-b", "trunk")
			git(t, dir, "add", "-A")
			put(t, dir+"/b", "b\n")
			return ""
		},
		"an empty repository": func(t *testing.T, dir string) string {
			git(t, filepath.Dir(dir), "init", "-q", "-b", "main", dir)
			return ""
		},
		"no branch": func(t *testing.T, dir string) string {
			first(t, dir)
			git(t, dir, "checkout", "-q", "HEAD~1")
			return ""
		},
		"a shallow clone": func(t *testing.T, dir string) string {
			first(t, dir+".origin")
			git(t, filepath.Dir(dir), "clone", "-q", "--depth=1", "file://"+dir+".origin", dir)
			return ""
		},
		"a submodule": func(t *testing.T, dir string) string {
			first(t, dir)
			first(t, dir+"/sub")
			git(t, dir, "-c", "advice.addEmbeddedRepo=false", "add", "-A")
			git(t, dir, "commit", "-qm", "third")
			return `the submodule "sub"`
		},
		"a repository within it": func(t *testing.T, dir string) string {
			first(t, dir)
			first(t, dir+"/inner")
			return `"inner/", which is a repository of its own`
		},
		"a conflict": func(t *testing.T, dir string) string {
			first(t, dir)
			git(t, dir, "checkout", "-q", "-b", "other", "HEAD~1")
			put(t, dir+"/a", "three\n")
			git(t, dir, "commit", "-qam", "other")
			git(t, dir, "merge", "-q", "main")
			return ""
		},
		"a file behind a link": func(t *testing.T, dir string) string {
			put(t, dir+"/d/a", "one\n")
			first(t, dir)
			if err := os.RemoveAll(dir + "/d"); err != nil {
				t.Fatal(err)
			}
			put(t, dir+".elsewhere/a", "secret\n")
			link(t, dir+".elsewhere", dir+"/d")
			return `the link "d"`
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, Options{Root: dir})
			one, two := dir+"/one", dir+"/two"
			if err := os.MkdirAll(one, 0o755); err != nil {
				t.Fatal(err)
			}
			if name == "a shallow clone" {
				_ = os.Remove(one)
			}
			told := build(t, one)
			ws, _ := moved(t, s, one, two)
			if all := strings.Join(ws.LeftOut, "\n"); !strings.Contains(all, told) {
				t.Errorf("told: %q, want %q", all, told)
			}
			commands := [][]string{{"ls-files", "--stage"}, {"rev-parse", "--is-shallow-repository"}, {"for-each-ref"}}
			if ws.Commit != "" {
				commands = append(commands, []string{"log", "--format=%H %s"}, []string{"rev-parse", "HEAD"})
			}
			if told == "" {
				commands = append(commands, []string{"status", "--porcelain=v1", "--untracked-files=all"})
			}
			for _, args := range commands {
				got, want := git(t, two, args...), git(t, one, args...)
				if args[0] == "for-each-ref" { // what is checked out travels, other branches do not
					for line := range strings.Lines(got) {
						if !strings.Contains(want, line) {
							t.Errorf("the ref %s is new", line)
						}
					}
					continue
				}
				if got != want {
					t.Errorf("git %q: %s, want %s", args, got, want)
				}
			}
			if b, err := os.ReadFile(two + "/d/a"); err == nil && string(b) == "secret\n" {
				t.Error("a file outside was taken")
			}
		})
	}
}

func TestWorkspace_WithoutGit(t *testing.T) {
	both(t, func(t *testing.T, s *Service, dir string) {
		one, two := dir+"/one", dir+"/deep/er/two"
		put(t, one+"/.gitignore", "node_modules\n*.tmp\n!keep.tmp\n")
		put(t, one+"/a", "a\n")
		put(t, one+"/x.tmp", "")
		put(t, one+"/keep.tmp", "kept\n")
		put(t, one+"/node_modules/x/y", "")
		put(t, one+"/sub/.gitignore", "only\n")
		put(t, one+"/sub/only", "")
		put(t, one+"/only", "here it counts\n")
		put(t, one+"/.env", "")
		link(t, "a", one+"/l")
		ws, _ := moved(t, s, one, two)
		if ws.Git || ws.Files != 6 || !slices.ContainsFunc(ws.LeftOut, func(l string) bool { return strings.Contains(l, ".env") }) {
			t.Errorf("%+v", ws)
		}
		want := contents(t, one)
		for _, name := range []string{"x.tmp", "node_modules/x/y", "sub/only", ".env"} {
			delete(want, name)
		}
		differ(t, contents(t, two), want)
	})
}

// archiveOf makes the files of a workspace.
func archiveOf(t *testing.T, headers ...tar.Header) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		if h.Typeflag == 0 {
			h.Typeflag = tar.TypeReg
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// placesOf makes what comes of one place, with entries.
func placesOf(entries string) parts {
	text := snapshotBegins + "{}\x00" + entries
	return parts{partPlaces: bytes.NewBufferString(fmt.Sprintf("%s[{\"places\":[\"a\"],\"bytes\":%d}]\x00%s", placesBegin, len(text), text))}
}

func TestPlaceWorkspace_Hostile(t *testing.T) {
	const oid = "1111111111111111111111111111111111111111"
	good := Workspace{Git: true, Format: "sha1"}
	with := func(change func(w *Workspace)) *Workspace {
		w := good
		change(&w)
		return &w
	}
	repo := t.TempDir()
	put(t, repo+"/a", "one\n")
	git(t, repo, "init", "-q")
	git(t, repo, "add", "-A")
	git(t, repo, "commit", "-qm", "first")
	src := open(t, Options{Root: repo})
	ws, real := take(t, src, repo, TakeOptions{})
	for name, c := range map[string]struct {
		ws *Workspace
		p  parts
	}{
		"git's configuration":   {&good, parts{partFiles: archiveOf(t, tar.Header{Name: ".git/config"})}},
		"git's own, otherwise":  {&good, parts{partFiles: archiveOf(t, tar.Header{Name: "a/.GIT./hooks/post-checkout"})}},
		"git's own, on Windows": {&good, parts{partFiles: archiveOf(t, tar.Header{Name: "git~1/config"})}},
		"a path that leads out": {&good, parts{partFiles: archiveOf(t, tar.Header{Name: "../x"})}},
		"a link that leads out": {&good, parts{partFiles: archiveOf(t, tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "/etc"})}},
		"no archive":            {&good, parts{partFiles: bytes.NewBufferString(strings.Repeat("x", 1024))}},
		"a folder outside":      {with(func(w *Workspace) { w.Sub = "../x" }), parts{}},
		"no places":             {&good, parts{partPlaces: bytes.NewBufferString("hello")}},
		"a place that leaves":   {&good, placesOf("f-00\t../x\x00")},
		"a place with .git":     {&good, placesOf("f-00\t.git/config\x00")},
		"a place without name":  {with(func(w *Workspace) { w.Place = "a\nb" }), parts{}},
		"a part that is not":    {&good, parts{partFiles: archiveOf(t, tar.Header{Name: "a", Typeflag: tar.TypeLink, Linkname: partLarge + "1", PAXRecords: map[string]string{partSum: strings.Repeat("00", 32), partName: partLarge + "1"}, Format: tar.FormatPAX})}},
		"a part of another":     {&good, parts{partFiles: archiveOf(t, tar.Header{Name: "a", Typeflag: tar.TypeLink, Linkname: partIndex, PAXRecords: map[string]string{partSum: strings.Repeat("00", 32), partName: partIndex}, Format: tar.FormatPAX}), partIndex: new(bytes.Buffer)}},
		"a part that lies":      {&good, parts{partFiles: archiveOf(t, tar.Header{Name: "a", Typeflag: tar.TypeLink, Linkname: partLarge + "1", PAXRecords: map[string]string{partSum: strings.Repeat("00", 32), partName: partLarge + "1"}, Format: tar.FormatPAX}), partLarge + "1": bytes.NewBufferString("x")}},
		"a place cut":           {&good, parts{partPlaces: bytes.NewBufferString(placesBegin + `[{"places":["a"],"bytes":9}]` + "\x00")}},
		"a hard link":           {&good, parts{partFiles: archiveOf(t, tar.Header{Name: "a"}, tar.Header{Name: "b", Typeflag: tar.TypeLink, Linkname: "a"})}},
		"no objects":            {with(func(w *Workspace) { w.Commit = oid }), parts{}},
		"no commit":             {with(func(w *Workspace) { w.Commit = "--help" }), parts{}},
		"another format":        {with(func(w *Workspace) { w.Format = "--x" }), parts{}},
		"a strange branch":      {with(func(w *Workspace) { w.Branch = "../../config" }), parts{}},
		"a branch that is none": {with(func(w *Workspace) { w.Branch = "-x" }), parts{}},
		"a pack that is none":   {&good, parts{partPack: bytes.NewBufferString("PACKxx")}},
		"an index that is none": {&good, parts{partIndex: bytes.NewBufferString("hello\x00")}},
		"an index with .git":    {&good, parts{partIndex: bytes.NewBufferString("100644 " + oid + " 0\t.git/config\x00")}},
		"an index that leaves":  {&good, parts{partIndex: bytes.NewBufferString("100644 " + oid + " 0\t../x\x00")}},
		"a shallow that is not": {&good, parts{partShallow: bytes.NewBufferString("../x\n")}},
		"a history cut":         {with(func(w *Workspace) { w.Commit = ws.Commit }), parts{partPack: real[partPack], partShallow: bytes.NewBufferString(oid + "\n"), partIndex: bytes.NewBufferString("garbage\x00")}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, Options{Root: dir})
			if _, err := s.PlaceWorkspace(t.Context(), dir+"/new", c.ws, PlaceWorkspaceOptions{}, c.p); err == nil {
				t.Error("it was taken")
			}
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("it has left %v", left)
			}
		})
	}
	// Undone, nothing is left; a folder that was there stays.
	dir := t.TempDir()
	s := open(t, Options{Root: dir})
	for _, to := range []string{dir + "/new", dir + "/there"} {
		if to == dir+"/there" {
			if err := os.Mkdir(to, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		placed, err := s.PlaceWorkspace(t.Context(), to, ws, PlaceWorkspaceOptions{}, real)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(to + "/a"); err != nil || string(b) != "one\n" {
			t.Errorf("%q, %v", b, err)
		}
		if err := placed.Undo(); err != nil {
			t.Error(err)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 || left[0].Name() != "there" {
		t.Errorf("left: %v, %v", left, err)
	}
}

// Whatever a repository names, nothing of it runs when it is taken along.
func TestTakeWorkspace_HostileRepositories(t *testing.T) {
	for name, build := range hostile {
		t.Run(name, func(t *testing.T) {
			dir, marks := t.TempDir(), t.TempDir()
			s := open(t, Options{Root: dir})
			run := marks + "/run"
			put(t, run, "#!/bin/sh\nenv > "+marks+"/ran\ncat\n")
			if err := os.Chmod(run, 0o755); err != nil {
				t.Fatal(err)
			}
			git(t, dir, "init", "-q", "-b", "main")
			put(t, dir+"/a", "one\n")
			git(t, dir, "add", "-A")
			git(t, dir, "commit", "-qm", "first")
			build(t, dir, run)
			_ = os.Remove(marks + "/ran") // building one may run it
			put(t, dir+"/a", "changed\n")
			taking, err := s.OpenWorkspace(t.Context(), dir, TakeOptions{})
			if err == nil {
				_, err = taking.Write(t.Context(), dir, parts{})
				taking.Close()
			}
			if err != nil && name != "objects of a partial clone" {
				t.Error(err)
			}
			if b, err := os.ReadFile(marks + "/ran"); err == nil {
				t.Errorf("a program of the repository was run, in this environment:\n%s", b)
			}
		})
	}
}

// FuzzReadIndex: what is taken is what git takes as entries of an index.
func FuzzReadIndex(f *testing.F) {
	const oid = "1111111111111111111111111111111111111111"
	f.Add([]byte("100644 " + oid + " 0\ta b\x00120000 " + oid + " 2\tc/d\x00"))
	f.Add([]byte("100644 " + oid + " 0\t../x\x00"))
	f.Add([]byte("100644 " + oid + " 0\ta/.gIt/x\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		out, err := readIndex(bytes.NewReader(b))
		if err != nil {
			return
		}
		if !bytes.Equal(out, b) {
			t.Fatalf("%q became %q", b, out)
		}
		for line := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
			_, name, ok := strings.Cut(line, "\t")
			if len(out) > 0 && (!ok || !filepath.IsLocal(name) || strings.Contains("/"+strings.ToLower(name)+"/", "/.git/")) {
				t.Fatalf("%q was taken", line)
			}
		}
	})
}

// What came first is not taken for what a killed gateway has left.
func TestPlaceWorkspace_BesideAnother(t *testing.T) {
	s := open(t, Options{})
	dir := t.TempDir()
	put(t, dir+"/one/a", "one\n")
	put(t, dir+"/two/a", "two\n")
	link(t, "to", dir+"/link")
	one, first := take(t, s, dir+"/one", TakeOptions{})
	two, second := take(t, s, dir+"/two", TakeOptions{})
	for _, end := range []func(*PlacedWorkspace) error{(*PlacedWorkspace).Undo, (*PlacedWorkspace).Keep} {
		placed, err := s.PlaceWorkspace(t.Context(), dir+"/to", one, PlaceWorkspaceOptions{}, first)
		if err != nil {
			t.Fatal(err)
		}
		for _, same := range []string{"/to", "/link"} {
			_, err = s.PlaceWorkspace(t.Context(), dir+same, two, PlaceWorkspaceOptions{}, second)
			wantCode(t, err, Changed, "another workspace")
		}
		if b, err := os.ReadFile(dir + "/to/a"); err != nil || string(b) != "one\n" {
			t.Errorf("%q, %v", b, err)
		}
		if err := end(placed); err != nil {
			t.Error(err)
		}
	}
	_, err := s.PlaceWorkspace(t.Context(), dir+"/to", two, PlaceWorkspaceOptions{}, second)
	wantCode(t, err, NotEmpty)
}
