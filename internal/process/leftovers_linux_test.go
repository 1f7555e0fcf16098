package process

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A gateway that was killed on a full disk starts again: its mark goes over the one that is
// there. A directory that never had one has no room for it.
func TestTakeOver_FullDisk(t *testing.T) {
	for name, c := range map[string]struct {
		there string
		want  error
	}{
		"of a gateway before": {strings.Repeat("x", len(owner)) + "\n", nil},
		"of another length":   {"x\n", nil},
		"longer":              {strings.Repeat("x", 4*len(owner)), nil},
		"none":                {"", syscall.ENOSPC},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, ownerFile)
			if c.there != "" {
				if err := os.WriteFile(path, []byte(c.there), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			// What is written there finds the disk full.
			if err := os.Symlink("/dev/full", path+".tmp"); err != nil {
				t.Fatal(err)
			}
			if err := TakeOver(dir); !errors.Is(err, c.want) || err != nil && !strings.Contains(err.Error(), "make room on that disk") {
				t.Fatalf("%v, want %v", err, c.want)
			}
			b, err := os.ReadFile(path)
			if c.want == nil && (err != nil || string(b) != owner+"\n"+folderID(dir)+"\n") {
				t.Errorf("the mark is %q, %v", b, err)
			}
			if c.want != nil && string(b) != c.there {
				t.Errorf("the mark was %q and is %q", c.there, b)
			}
		})
	}
}
