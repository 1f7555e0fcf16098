package session

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A record that a full disk does not take leaves nothing there: each session would take a block more of it.
func TestStore_FullDisk(t *testing.T) {
	st := store{dir: t.TempDir()}
	if err := st.save(record{ID: "s", Title: "before"}, false); err != nil {
		t.Fatal(err)
	}
	tmp := filepath.Join(st.path("s"), unfinishedFile)
	if err := os.Symlink("/dev/full", tmp); err != nil {
		t.Fatal(err)
	}
	if err := st.save(record{ID: "s", Title: "behind"}, true); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("%v", err)
	}
	if _, err := os.Lstat(tmp); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was written is left: %v", err)
	}
	if rec, err := st.read("s", nil, nil); err != nil || rec.Title != "before" {
		t.Errorf("%+v, %v", rec, err)
	}
}
