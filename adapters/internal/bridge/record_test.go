package bridge_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

func TestRecord(t *testing.T) {
	type entry struct{ N int }
	dir := t.TempDir()
	write := func(content string) string {
		path := filepath.Join(dir, "record.jsonl")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	path := write("{\"n\":1}\nno JSON\n{\"n\":\"another type\"}\n{\"n\":4}\n{\"n\":5")
	var got []int
	err := bridge.EachEntry(path, func(n int, e *entry) error {
		got = append(got, n, e.N)
		return nil
	})
	if want := []int{0, 1, 2, 0, 3, 4}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	enough := errors.New("enough")
	if err := bridge.EachEntry(path, func(int, *entry) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("it ended with %v", err)
	}
	if err := bridge.EachEntry(filepath.Join(dir, "none"), func(int, *entry) error { return nil }); err == nil {
		t.Error("a record that is not there can be read")
	}
	for content, want := range map[string]bool{"short\n": false, "first\n" + strings.Repeat("x\n", 1<<20) + "last\n": true} {
		var all strings.Builder
		long := bridge.Ends(write(content), func(lines []byte) { all.Write(lines) })
		if s := all.String(); long != want || !strings.HasPrefix(s, content[:5]) || !strings.HasSuffix(s, content[len(content)-5:]) || len(s) > 1<<18 {
			t.Errorf("%d bytes of %d, long %t", len(s), len(content), long)
		}
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if !bridge.SameDir(dir, link) || !bridge.SameDir("/no/such", "/no/such") || bridge.SameDir(dir, "/no/such") {
		t.Error("directories are not told apart")
	}
}
