package bridge

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// A killed gateway may have left so much that to remove it takes long: sessions begin meanwhile.
func TestFolders_NamesAreGivenWhileOthersAreRemoved(t *testing.T) {
	defer func() { removeAll = os.RemoveAll }()
	var f Folders
	dir := t.TempDir()
	for _, name := range []string{"one", "two"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	removed := 0
	removeAll = func(string) error {
		removed++
		if !f.mu.TryLock() {
			t.Error("who wants a name waits")
			return nil
		}
		defer f.mu.Unlock()
		if !f.live["one"] && !f.live["two"] {
			t.Error("somebody may be given the name of what is being removed")
		}
		return nil
	}
	f.Sweep(dir, slog.New(slog.DiscardHandler))
	if removed != 2 || len(f.live) != 0 {
		t.Errorf("%d folders were removed, and %v are known", removed, f.live)
	}
}
