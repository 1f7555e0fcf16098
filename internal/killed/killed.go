// Package killed has for tests what a process leaves that is killed. The process itself may go on: its folder is
// copied, so that the next one has a folder of its own, as one of the same folder would find what both write.
package killed

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Folder returns a copy of a folder as it is now. Files that go away meanwhile are not in it.
func Folder(t testing.TB, dir string) string {
	t.Helper()
	to := t.TempDir()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || path == dir {
			return err
		}
		name := filepath.Join(to, strings.TrimPrefix(path, dir))
		if e.IsDir() {
			return os.Mkdir(name, 0o700)
		}
		b, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(name, b, 0o600)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}
