package bridgetest

import (
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"sandboxagent.dev/sandbox-agent/adapters"
)

// TravelID is the id of the session of [Travels].
const TravelID = "0f9d6f7c-2a52-4d5b-9a51-6a4d5bd0a3a1"

// Travels imports the files of a session in a home, and exports them there again; CWD in
// them stands for its directory, and hello for what another conversation has otherwise.
// What is bad must be refused and leave nothing.
func Travels(t *testing.T, a adapters.Traveller, good map[string]string, bad map[string]map[string]string) {
	t.Helper()
	travel := func(home, cwd string) adapters.Travel {
		return adapters.Travel{Options: adapters.Options{StateDir: filepath.Join(home, "state"), Env: []string{"HOME=" + home}}, SessionID: TravelID, Cwd: cwd}
	}
	count := func(home string) (n int) {
		_ = filepath.Walk(home, func(_ string, info os.FileInfo, err error) error {
			if err == nil && !info.IsDir() {
				n++
			}
			return nil
		})
		return n
	}
	files := fstest.MapFS{}
	for name, content := range good {
		files[name] = &fstest.MapFile{Data: []byte(content)}
	}
	home, cwd := t.TempDir(), t.TempDir()
	for name, content := range good {
		good[name] = strings.ReplaceAll(content, "CWD", cwd)
		files[name] = &fstest.MapFile{Data: []byte(good[name])}
	}
	undo, err := a.Import(t.Context(), travel(home, cwd), files)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	put := func(name string, r io.Reader) error {
		b, err := io.ReadAll(r)
		got[name] = string(b)
		return err
	}
	if err := a.Export(t.Context(), travel(home, cwd), put); err != nil || !maps.Equal(got, good) {
		t.Errorf("%v, %v\nwant %v", got, err, good)
	}
	if _, err := a.Import(t.Context(), travel(home, cwd), files); err != nil {
		t.Errorf("once more: %v", err)
	}
	other := maps.Clone(files)
	for name := range other {
		if strings.HasSuffix(name, ".jsonl") {
			other[name] = &fstest.MapFile{Data: []byte(strings.Replace(string(files[name].Data), "hello", "other", 1))}
		}
	}
	if _, err := a.Import(t.Context(), travel(home, cwd), other); !errors.Is(err, adapters.ErrHere) {
		t.Errorf("another conversation of that id: %v", err)
	}
	if err := undo(); err != nil || count(home) > 0 {
		t.Errorf("undone, %d files are there: %v", count(home), err)
	}
	nothing := map[string]string{}
	if err := a.Export(t.Context(), travel(t.TempDir(), cwd), func(name string, _ io.Reader) error {
		nothing[name] = ""
		return nil
	}); err != nil || len(nothing) > 0 {
		t.Errorf("of a session without files: %v, %v", nothing, err)
	}
	for name, bad := range bad {
		home := t.TempDir()
		list := fstest.MapFS{}
		for file, content := range bad {
			list[file] = &fstest.MapFile{Data: []byte(strings.ReplaceAll(content, "CWD", cwd))}
		}
		if _, err := a.Import(t.Context(), travel(home, cwd), list); err == nil || count(home) > 0 {
			t.Errorf("%s: %d files are there, %v", name, count(home), err)
		}
	}
	strange := travel(t.TempDir(), cwd)
	strange.SessionID = "../../x"
	if _, err := a.Import(t.Context(), strange, fstest.MapFS{"x": {}}); err == nil {
		t.Error("an id that leads out was taken")
	}
}
