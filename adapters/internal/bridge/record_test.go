package bridge_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/adapters"
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

// Of a record it is told when the last prompt in its end was made, whoever's form it has.
func TestRecorded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "record.jsonl")
	at := func(second int) string {
		return time.Date(2026, 1, 2, 3, 4, second, 0, time.UTC).Format(time.RFC3339Nano)
	}
	for name, row := range map[string]struct {
		lines []string
		want  int // the second, 0 for none
	}{
		"of no prompt":     {[]string{`{"type":"title","timestamp":"` + at(1) + `"}`}, 0},
		"in a message":     {[]string{`{"timestamp":"` + at(2) + `","message":{"role":"user","content":"x"}}`, `{"timestamp":"` + at(3) + `","message":{"role":"assistant"}}`}, 2},
		"in a payload":     {[]string{`{"timestamp":"` + at(4) + `","payload":{"type":"message","role":"user"}}`, `{"timestamp":"` + at(5) + `","payload":{}}`}, 4},
		"half a line":      {[]string{`{"timestamp":"` + at(6) + `","message":{"role":"user"}}`, `{"timestamp":"` + at(7) + `","message":{"role":"user"`}, 6},
		"quoted":           {[]string{`{"timestamp":"` + at(8) + `","message":{"role":"assistant","content":"{\"role\":\"user\"}"}}`}, 0},
		"far from the end": {[]string{`{"timestamp":"` + at(9) + `","message":{"role":"user"}}`, strings.Repeat("x", 70<<10)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(path, []byte(strings.Join(row.lines, "\n")), 0o600); err != nil {
				t.Fatal(err)
			}
			r := bridge.Recorded(path)
			if r.Prompted.IsZero() != (row.want == 0) || row.want > 0 && r.Prompted.Second() != row.want || r.Written.IsZero() || r.Shared {
				t.Errorf("%+v, want second %d", r, row.want)
			}
		})
	}
	if r := bridge.Recorded(path + ".none"); r != (adapters.Recorded{}) {
		t.Errorf("of no file: %+v", r)
	}
}
