package bridge_test

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

func TestFolders(t *testing.T) {
	var f bridge.Folders
	dir, log := t.TempDir(), slog.New(slog.DiscardHandler)
	lives, ends := filepath.Join(dir, f.Name()), filepath.Join(dir, f.Name())
	left := filepath.Join(dir, "left")
	for _, one := range []string{lives, ends, left} {
		if err := os.MkdirAll(filepath.Join(one, "more"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	f.Remove(ends, log)
	f.Sweep(dir, log)
	f.Sweep(filepath.Join(dir, "none"), log)
	if there, err := os.ReadDir(dir); err != nil || len(there) != 1 || there[0].Name() != filepath.Base(lives) {
		t.Errorf("there is %v, %v, want %s", there, err, filepath.Base(lives))
	}
}
