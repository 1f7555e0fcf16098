package bridge

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"sandboxagent.dev/sandbox-agent/adapters"
)

func TestPlaced(t *testing.T) {
	dir := t.TempDir()
	files := fstest.MapFS{"c.jsonl": {Data: []byte("one\ntwo\n")}, "c/sub/d": {Data: []byte("d")}}
	at := filepath.Join(dir, "x", "c.jsonl")
	for _, c := range []struct {
		name, there, want string
		here              bool
	}{
		{"nothing is there", "", "one\ntwo\n", false},
		{"the same", "one\ntwo\n", "one\ntwo\n", false},
		{"it goes on", "one\n", "one\ntwo\n", false},
		{"a newer one stays", "one\ntwo\nthree\n", "one\ntwo\nthree\n", false},
		{"another one", "other\n", "other\n", true},
	} {
		_ = os.RemoveAll(filepath.Dir(at))
		if c.there != "" {
			if err := WritePrivate(at, []byte(c.there)); err != nil {
				t.Fatal(err)
			}
		}
		var p Placed
		err := p.File(files, "c.jsonl", at)
		if c.here != errors.Is(err, adapters.ErrHere) || !c.here && err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if b, err := os.ReadFile(at); err != nil || string(b) != c.want {
			t.Errorf("%s: %q, %v", c.name, b, err)
		}
		if err := p.Folder(files, "c", filepath.Join(dir, "x", "c")); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if err := p.Folder(files, "missing", filepath.Join(dir, "x", "m")); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if err := p.Undo(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if _, err := os.Stat(at); (err == nil) != (c.there != "") {
			t.Errorf("%s: undone, %v", c.name, err)
		}
		if left, _ := filepath.Glob(filepath.Join(dir, "x", "c", "*", "*")); len(left) > 0 {
			t.Errorf("%s: undone, there is %v", c.name, left)
		}
	}
}

func TestPutFolder(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b/c"} {
		if err := WritePrivate(filepath.Join(dir, name), []byte(name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	put := func(name string, r io.Reader) error {
		b, err := io.ReadAll(r)
		got[name] = string(b)
		return err
	}
	if err := errors.Join(PutFolder(put, "x", dir), PutFolder(put, "y", filepath.Join(dir, "missing")), PutFile(put, "z", filepath.Join(dir, "missing")), PutFile(put, "f", filepath.Join(dir, "b"))); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got["x/a"] != "a" || got["x/b/c"] != "b/c" {
		t.Errorf("%v", got)
	}
}
