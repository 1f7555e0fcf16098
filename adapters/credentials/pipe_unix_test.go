//go:build unix

package credentials

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A pipe in the place of a file is a problem, and nobody waits for who writes to it.
func TestFind_APipeIsNotWaitedFor(t *testing.T) {
	dir := home(t, nil)
	path := filepath.Join(dir, ".codex/auth.json")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if found, problems := Find(Options{Home: dir, Getenv: nothing}); len(found) != 0 || len(problems) != 1 || problems[0].Reason != "it is no ordinary file" {
		t.Errorf("%+v, %+v", found, problems)
	}
}
