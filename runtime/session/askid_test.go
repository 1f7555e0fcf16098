package session

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAskIDs_NeverRepeat(t *testing.T) {
	path := filepath.Join(t.TempDir(), "request-ids")
	seen := map[int64]bool{}
	for range 3 {
		ids := askIDs{path: path}
		for range askBlock + 10 {
			id, err := ids.take()
			if err != nil || id < 1 || id > askLimit || seen[id] {
				t.Fatalf("id %d, %v; seen before: %t", id, err, seen[id])
			}
			seen[id] = true
		}
	}
	// A file that cannot be used is told of, and no reason to have no ids.
	for _, content := range []string{"none", "-5", "99999999999"} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		ids := askIDs{path: path}
		if id, err := ids.take(); id < 1 || id > askLimit || (content == "99999999999") != (err == nil) {
			t.Errorf("with %q in the file: id %d, %v", content, id, err)
		}
	}
}
