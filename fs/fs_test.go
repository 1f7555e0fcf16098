package fs

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// services returns a service that is confined to a folder and one that is not;
// both are asked for paths below the folder.
func services(t *testing.T) map[string]*Service {
	t.Helper()
	all := map[string]*Service{}
	for name, o := range map[string]Options{"root": {Root: t.TempDir()}, "machine": {Home: t.TempDir()}} {
		all[name] = open(t, o)
	}
	return all
}

func open(t *testing.T, o Options) *Service {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func both(t *testing.T, f func(t *testing.T, s *Service, dir string)) {
	t.Helper()
	for name, s := range services(t) {
		t.Run(name, func(t *testing.T) { f(t, s, s.o.Home) })
	}
}

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, target, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// tree returns all paths below dir with what they are.
func everything(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		switch {
		case rel == ".":
			return nil
		case d.IsDir():
			rel += "/"
		case d.Type()&os.ModeSymlink != 0:
			target, _ := os.Readlink(path)
			rel += " -> " + target
		case d.Type().IsRegular():
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			rel += "=" + string(b)
		}
		all = append(all, rel)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func want(t *testing.T, dir string, paths ...string) {
	t.Helper()
	if diff := cmp.Diff(paths, everything(t, dir)); diff != "" {
		t.Errorf("files differ (-want +got):\n%s", diff)
	}
}

func wantCode(t *testing.T, err error, c Code, text ...string) {
	t.Helper()
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Code != c {
		t.Errorf("error %v, want one of code %s", err, c)
		return
	}
	for _, s := range text {
		if !strings.Contains(e.Error(), s) {
			t.Errorf("error %q, want %q in it", e, s)
		}
	}
}

func read(s *Service, path string) (string, error) {
	f, _, err := s.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	return string(b), err
}

func TestResolve(t *testing.T) {
	dir := t.TempDir()
	alias := filepath.Join(t.TempDir(), "alias")
	link(t, dir, alias)
	s := open(t, Options{Root: alias})
	tests := []struct {
		path, base, want string
		code             Code
	}{
		{"a", "", alias + "/a", ""},
		{".", "", alias, ""},
		{"a/../b", "", alias + "/b", ""},
		{"x", dir + "/w", dir + "/w/x", ""},
		{"../x", dir + "/w", dir + "/x", ""},
		{dir, "", dir, ""},
		{alias + "/a", "/elsewhere", alias + "/a", ""},
		{"", "", "", Invalid},
		{"a\x00b", "", "", Invalid},
		{"..", "", "", Escapes},
		{"a/../../x", "", "", Escapes},
		{"/etc/passwd", "", "", Escapes},
		{dir + "-beside", "", "", Escapes},
		{"x", "/elsewhere", "", Escapes},
		{alias + "/../x", "", "", Escapes},
	}
	for _, tt := range tests {
		got, err := s.Resolve(tt.path, tt.base)
		if tt.code != "" {
			wantCode(t, err, tt.code)
		} else if err != nil || got != tt.want {
			t.Errorf("Resolve(%q, %q) = %q, %v, want %q", tt.path, tt.base, got, err, tt.want)
		}
	}
	free := open(t, Options{Home: "/home/x"})
	if got, err := free.Resolve("../../etc", ""); err != nil || got != "/etc" {
		t.Errorf("without a root: %q, %v", got, err)
	}
}

func TestNew_RootIsMissing(t *testing.T) {
	if _, err := New(Options{Root: filepath.Join(t.TempDir(), "no")}); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("error %v", err)
	}
}

func TestWrite(t *testing.T) {
	both(t, func(t *testing.T, s *Service, dir string) {
		path := dir + "/a/b.txt"
		_, _, err := s.Write(path, strings.NewReader("x"), WriteOptions{})
		wantCode(t, err, NotFound, "no such file")
		e, created, err := s.Write(path, strings.NewReader("one"), WriteOptions{Parents: true})
		if err != nil || !created || e.Size != 3 || e.Type != File || e.Path != path {
			t.Fatalf("%+v, %v, %v", e, created, err)
		}
		if err := os.Chmod(path, 0o750); err != nil {
			t.Fatal(err)
		}
		again, created, err := s.Write(path, strings.NewReader("two!"), WriteOptions{})
		if err != nil || created || again.Mode != "0750" || again.ETag == e.ETag {
			t.Fatalf("%+v, %v, %v", again, created, err)
		}
		if got, err := s.Stat(path, false); err != nil || got.ETag != again.ETag || got.Mode != "0750" {
			t.Errorf("stat %+v, %v, want the ETag %s", got, err, again.ETag)
		}
		mode := os.FileMode(0o600)
		if e, _, err = s.Write(path, strings.NewReader(""), WriteOptions{Mode: &mode}); err != nil || e.Mode != "0600" || e.Size != 0 {
			t.Errorf("%+v, %v", e, err)
		}
		_, _, err = s.Write(path, strings.NewReader("x"), WriteOptions{New: true})
		wantCode(t, err, Exists)
		if _, created, err := s.Write(dir+"/new", strings.NewReader("x"), WriteOptions{New: true}); err != nil || !created {
			t.Error(err)
		}
		for _, p := range []string{dir + "/a", dir} {
			_, _, err = s.Write(p, strings.NewReader("x"), WriteOptions{})
			wantCode(t, err, NotFile, "directory")
		}
		_, _, err = s.Write(path+"/below", strings.NewReader("x"), WriteOptions{Parents: true})
		wantCode(t, err, NotDirectory)
		_, _, err = s.Write(path+"/below", strings.NewReader("x"), WriteOptions{})
		wantCode(t, err, NotDirectory)
		want(t, dir, "a/", "a/b.txt=", "new=x")
	})
}

func TestWrite_FailedSourceChangesNothing(t *testing.T) {
	both(t, func(t *testing.T, s *Service, dir string) {
		put(t, dir+"/f", "old")
		gone := errors.New("the sender is gone")
		r := io.MultiReader(strings.NewReader(strings.Repeat("x", 1<<20)), failing{gone})
		if _, _, err := s.Write(dir+"/f", r, WriteOptions{}); !errors.Is(err, gone) {
			t.Errorf("error %v", err)
		}
		want(t, dir, "f=old")
	})
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

func TestWrite_Check(t *testing.T) {
	both(t, func(t *testing.T, s *Service, dir string) {
		put(t, dir+"/f", "old")
		e, err := s.Stat(dir+"/f", false)
		if err != nil {
			t.Fatal(err)
		}
		var seen []string
		no := errors.New("no")
		check := func(tag string) error {
			seen = append(seen, tag)
			if tag != e.ETag {
				return no
			}
			return nil
		}
		// Somebody else writes while the content is on its way.
		r := io.MultiReader(strings.NewReader("mine"), once(func() { put(t, dir+"/f", "theirs") }))
		if _, _, err := s.Write(dir+"/f", r, WriteOptions{Check: check}); !errors.Is(err, no) {
			t.Errorf("error %v", err)
		}
		if len(seen) != 2 || seen[0] != e.ETag {
			t.Errorf("asked about %q", seen)
		}
		want(t, dir, "f=theirs")
	})
}

type once func()

func (f once) Read([]byte) (int, error) { f(); return 0, io.EOF }

func TestWrite_ConcurrentWritersNeverMix(t *testing.T) {
	both(t, func(t *testing.T, s *Service, dir string) {
		const size = 512 << 10
		var writers, readers sync.WaitGroup
		done := make(chan struct{})
		put(t, dir+"/f", strings.Repeat("a", size))
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				got, err := read(s, dir+"/f")
				if err != nil || len(got) != size || strings.Trim(got, got[:1]) != "" {
					t.Errorf("a mix of %d bytes, %v", len(got), err)
					return
				}
			}
		})
		for i := range 8 {
			writers.Go(func() {
				for range 10 {
					body := bytes.Repeat([]byte{byte('a' + i)}, size)
					if _, _, err := s.Write(dir+"/f", bytes.NewReader(body), WriteOptions{}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		writers.Wait()
		close(done)
		readers.Wait()
		if left, _ := os.ReadDir(dir); len(left) != 1 {
			t.Errorf("%d entries are left", len(left))
		}
	})
}

func TestWrite_ThroughLinks(t *testing.T) {
	both(t, func(t *testing.T, s *Service, dir string) {
		put(t, dir+"/real/f", "old")
		link(t, "real/f", dir+"/l")
		link(t, "../l", dir+"/sub/ll")
		link(t, "real", dir+"/d")
		link(t, "d/../fresh", dir+"/dangling")
		for path, text := range map[string]string{"/l": "1", "/sub/ll": "2", "/d/f": "3"} {
			if _, _, err := s.Write(dir+path, strings.NewReader(text), WriteOptions{}); err != nil {
				t.Fatal(err)
			}
			if got := content(t, dir+"/real/f"); got != text {
				t.Errorf("%s: content %q", path, got)
			}
		}
		if _, _, err := s.Write(dir+"/dangling", strings.NewReader("4"), WriteOptions{}); err != nil || content(t, dir+"/fresh") != "4" {
			t.Error(err)
		}
		link(t, "loop", dir+"/loop")
		_, _, err := s.Write(dir+"/loop", strings.NewReader("x"), WriteOptions{})
		wantCode(t, err, Invalid, "symbolic links")
	})
}

// names are names of files that are legal and awkward.
func names() []string {
	all := []string{
		" ", "a b", "-rf", "*", "~", "a\nb", "a\tb", `a\b`, `"`, "'", "%2f", "a%00b", "ü", "u\u0308", "日本語", "😀", "\u202egpj.exe", "...", ".hidden",
		strings.Repeat("n", 255), strings.Repeat("ü", 127), "\xff\xfe", "a\x80b", "con", "aux.txt", "?x=1&y=2#z", "+",
	}
	for b := 1; b < 256; b++ {
		if b != '/' && b != '.' {
			all = append(all, string([]byte{byte(b)}), string([]byte{'x', byte(b), 'y'}))
		}
	}
	return all
}

func TestNames_EveryLegalByte(t *testing.T) {
	t.Parallel()
	both(t, func(t *testing.T, s *Service, dir string) {
		seen := map[string]bool{}
		for _, n := range names() {
			if _, _, err := s.Write(dir+"/"+n, strings.NewReader(n), WriteOptions{}); err != nil {
				t.Fatalf("%q: %v", n, err)
			}
			if got, err := read(s, dir+"/"+n); err != nil || got != n {
				t.Fatalf("%q: %q, %v", n, got, err)
			}
			seen[n] = true
		}
		found := 0
		for cursor := ""; ; {
			p, err := s.List(t.Context(), dir, ListOptions{Limit: 37, Hidden: true, Cursor: cursor})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range p.Entries {
				path := e.Path
				if e.RawPath != nil {
					path = string(e.RawPath)
				}
				if !seen[filepath.Base(path)] {
					t.Errorf("there is %q", path)
				}
				found++
			}
			if cursor = p.NextCursor; cursor == "" {
				break
			}
		}
		if found != len(seen) {
			t.Errorf("listed %d of %d", found, len(seen))
		}
		var tarball bytes.Buffer
		if err := s.Pack(t.Context(), &tarball, []string{dir}); err != nil {
			t.Fatal(err)
		}
		into := t.TempDir()
		other := open(t, Options{Root: into})
		if u, err := other.Unpack(t.Context(), into, &tarball, nil); err != nil || u.Files != int64(len(seen)) {
			t.Fatalf("unpacked %d of %d: %v", u.Files, len(seen), err)
		}
		from := into
		if !s.confined() {
			from = into + "/" + filepath.Base(dir)
		}
		if diff := cmp.Diff(everything(t, dir), everything(t, from)); diff != "" {
			t.Errorf("files differ (-packed +unpacked):\n%s", diff)
		}
		_, _, err := s.Write(dir+"/"+strings.Repeat("n", 256), strings.NewReader(""), WriteOptions{})
		wantCode(t, err, Invalid, "too long")
	})
}

func TestList(t *testing.T) {
	both(t, func(t *testing.T, s *Service, dir string) {
		put(t, dir+"/b/x", "12345")
		put(t, dir+"/b/y/z", "1")
		put(t, dir+"/a", "123")
		put(t, dir+"/.h/i", "1")
		put(t, dir+"/b-c", "12")
		link(t, "a", dir+"/l")
		old := time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)
		if err := os.Chtimes(dir+"/b-c", old, old); err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			name string
			o    ListOptions
			want string
		}{
			{"plain", ListOptions{}, "a b b-c l"},
			{"hidden", ListOptions{Hidden: true}, ".h a b b-c l"},
			{"recursive", ListOptions{Recursive: true}, "a b b/x b/y b/y/z b-c l"},
			{"recursive and hidden", ListOptions{Recursive: true, Hidden: true}, ".h .h/i a b b/x b/y b/y/z b-c l"},
			{"backwards", ListOptions{Descending: true}, "l b-c b a"},
			{"size", ListOptions{Sort: BySize}, "b l b-c a"},
			{"largest", ListOptions{Sort: BySize, Descending: true}, "a b-c l b"},
		} {
			for limit := 1; limit < 10; limit++ {
				var got []string
				o := tt.o
				for o.Limit = limit; ; {
					p, err := s.List(t.Context(), dir, o)
					if err != nil {
						t.Fatal(err)
					}
					if len(p.Entries) > limit || len(p.Entries) == 0 {
						t.Fatalf("a page of %d entries", len(p.Entries))
					}
					for _, e := range p.Entries {
						got = append(got, strings.TrimPrefix(e.Path, dir+"/"))
					}
					if o.Cursor = p.NextCursor; o.Cursor == "" {
						break
					}
				}
				if strings.Join(got, " ") != tt.want {
					t.Errorf("%s by %d: %q, want %q", tt.name, limit, got, tt.want)
				}
			}
		}
		p, err := s.List(t.Context(), dir, ListOptions{Sort: ByModified, Limit: 1})
		if err != nil || p.Entries[0].Name != "b-c" || !p.Entries[0].ModifiedAt.Equal(old) {
			t.Errorf("%+v, %v", p, err)
		}
		if p, err = s.List(t.Context(), dir, ListOptions{Limit: 9}); err != nil || p.Entries[3].Target != "a" || p.Entries[3].Type != Symlink {
			t.Errorf("%+v, %v", p, err)
		}
		for path, c := range map[string]Code{"/a": NotDirectory, "/no": NotFound} {
			_, err := s.List(t.Context(), dir+path, ListOptions{Limit: 1})
			wantCode(t, err, c)
		}
		for _, o := range []ListOptions{{Sort: "colour"}, {Recursive: true, Sort: BySize}, {Cursor: "?"}} {
			o.Limit = 1
			_, err := s.List(t.Context(), dir, o)
			wantCode(t, err, Invalid)
		}
	})
}

func TestMkdirAndDelete(t *testing.T) {
	both(t, func(t *testing.T, s *Service, dir string) {
		_, err := s.Mkdir(dir+"/a/b", 0o755, false)
		wantCode(t, err, NotFound)
		if e, err := s.Mkdir(dir+"/a/b", 0o755, true); err != nil || e.Type != Directory {
			t.Fatalf("%+v, %v", e, err)
		}
		_, err = s.Mkdir(dir+"/a", 0o755, false)
		wantCode(t, err, Exists)
		if _, err := s.Mkdir(dir+"/a", 0o755, true); err != nil {
			t.Error(err)
		}
		put(t, dir+"/f", "x")
		_, err = s.Mkdir(dir+"/f", 0o755, true)
		wantCode(t, err, NotDirectory)
		wantCode(t, s.Delete(dir+"/a", false), NotEmpty, "recursive")
		wantCode(t, s.Delete(dir+"/no", true), NotFound)
		link(t, "a", dir+"/l")
		for _, p := range []string{"/l", "/f"} {
			if err := s.Delete(dir+p, true); err != nil {
				t.Error(err)
			}
		}
		want(t, dir, "a/", "a/b/")
		if err := s.Delete(dir+"/a", true); err != nil {
			t.Error(err)
		}
		want(t, dir)
		if s.confined() {
			wantCode(t, s.Delete(dir, true), Denied)
		} else {
			wantCode(t, s.Delete("/", true), Denied)
		}
	})
}

// A gateway's own folders stay, and what they are in: whatever way, and over links.
func TestKeep(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	put(t, dir+"/home/data/sessions/x", "1")
	put(t, dir+"/home/other/y", "2")
	put(t, dir+"/away/z", "3")
	link(t, "home", dir+"/l")
	for _, o := range []Options{{Home: dir}, {Root: dir}} {
		o.Keep = []string{dir + "/l/data"}
		s, err := New(o)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for _, p := range []string{"/home", "/home/data", "/l/data"} {
			wantCode(t, s.Delete(dir+p, true), Denied, "the gateway needs", "cannot be deleted")
			_, err := s.Move(t.Context(), dir+p, dir+"/gone", PlaceOptions{})
			wantCode(t, err, Denied, "cannot be moved")
			_, err = s.Move(t.Context(), dir+"/home/other/y", dir+p, PlaceOptions{Overwrite: true})
			if p != "/home" { // which it is in
				wantCode(t, err, Denied, "cannot be replaced")
			}
			_, err = s.Copy(t.Context(), dir+"/away", dir+p, PlaceOptions{Overwrite: true})
			wantCode(t, err, Denied, "cannot be replaced")
		}
	}
	want(t, dir, "away/", "away/z=3", "home/", "home/data/", "home/data/sessions/", "home/data/sessions/x=1", "home/other/", "home/other/y=2", "l -> home")
	s, err := New(Options{Home: dir, Keep: []string{dir + "/home/data"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"/home/data/sessions", "/home/other", "/l", "/away"} { // the link, not what it leads to
		if err := s.Delete(dir+p, true); err != nil {
			t.Error(err)
		}
	}
	want(t, dir, "home/", "home/data/")
}

func TestMove(t *testing.T) {
	both(t, func(t *testing.T, s *Service, dir string) {
		ctx := t.Context()
		put(t, dir+"/a", "1")
		put(t, dir+"/b", "2")
		put(t, dir+"/d/x", "3")
		put(t, dir+"/e/y", "4")
		move := func(from, to string, o PlaceOptions) error {
			_, err := s.Move(ctx, dir+from, dir+to, o)
			return err
		}
		wantCode(t, move("/a", "/b", PlaceOptions{}), Exists, "overwrite")
		wantCode(t, move("/no", "/b", PlaceOptions{Overwrite: true}), NotFound)
		wantCode(t, move("/a", "/n/a", PlaceOptions{}), NotFound)
		wantCode(t, move("/d", "/d/x/y", PlaceOptions{}), Invalid, "itself")
		wantCode(t, move("/d/x", "/d", PlaceOptions{Overwrite: true}), Invalid, "which it is in")
		wantCode(t, move("/a", "/a", PlaceOptions{Overwrite: true}), Invalid)
		want(t, dir, "a=1", "b=2", "d/", "d/x=3", "e/", "e/y=4")
		for _, err := range []error{
			move("/a", "/b", PlaceOptions{Overwrite: true}),
			move("/d", "/e", PlaceOptions{Overwrite: true}),
			move("/b", "/n/m/b", PlaceOptions{Parents: true}),
		} {
			if err != nil {
				t.Error(err)
			}
		}
		want(t, dir, "e/", "e/x=3", "n/", "n/m/", "n/m/b=1")
		if err := move("/n/m/b", "/e", PlaceOptions{Overwrite: true}); err != nil {
			t.Error(err)
		}
		want(t, dir, "e=1", "n/", "n/m/")
	})
}

func TestCopy(t *testing.T) {
	both(t, func(t *testing.T, s *Service, dir string) {
		ctx := t.Context()
		put(t, dir+"/d/x", "3")
		put(t, dir+"/d/s/y", "4")
		link(t, "s/y", dir+"/d/l")
		if err := os.Chmod(dir+"/d/x", 0o751); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Copy(ctx, dir+"/d", dir+"/e", PlaceOptions{}); err != nil {
			t.Fatal(err)
		}
		if e, err := s.Stat(dir+"/e/x", false); err != nil || e.Mode != "0751" {
			t.Errorf("%+v, %v", e, err)
		}
		want(t, dir+"/e", "l -> s/y", "s/", "s/y=4", "x=3")
		_, err := s.Copy(ctx, dir+"/d/x", dir+"/e", PlaceOptions{})
		wantCode(t, err, Exists)
		_, err = s.Copy(ctx, dir+"/d", dir+"/d/s/z", PlaceOptions{})
		wantCode(t, err, Invalid)
		if _, err := s.Copy(ctx, dir+"/d/x", dir+"/e", PlaceOptions{Overwrite: true}); err != nil {
			t.Error(err)
		}
		if got := content(t, dir+"/e"); got != "3" {
			t.Errorf("content %q", got)
		}
		stopped, stop := context.WithCancel(ctx)
		stop()
		if _, err := s.Copy(stopped, dir+"/d", dir+"/f", PlaceOptions{}); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		want(t, dir, "d/", "d/l -> s/y", "d/s/", "d/s/y=4", "d/x=3", "e=3")
	})
}

func TestCopy_LargeFileIsWhole(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Root: dir})
	body := make([]byte, 3<<20+17)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(body)
	put(t, dir+"/a", string(body))
	if _, err := s.Copy(t.Context(), dir+"/a", dir+"/b", PlaceOptions{}); err != nil {
		t.Fatal(err)
	}
	if content(t, dir+"/b") != string(body) {
		t.Error("the copy differs")
	}
}
