package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/internal/claim"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

func TestJournal_VerifyCatRepair(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sessions", "s1", "log.journal")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := journal.Open(path, journal.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"one", "two", "three"} {
		if _, err := l.AppendFlush(journal.Update, journal.Everyone, []byte(`{"x":"`+text+`"}`)); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "copy")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(copied, b, 0o600); err != nil {
		t.Fatal(err)
	}
	step := func(wantCode int, wantOut string, args ...string) {
		t.Helper()
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), args, stdio{strings.NewReader(""), &stdout, &stderr})
		out, errs := stdout.String(), stderr.String()
		if code != wantCode || !strings.Contains(out+errs, wantOut) {
			t.Errorf("%v: exit %d, %s%s; want %d, %s", args, code, out, errs, wantCode, wantOut)
		}
	}
	step(cmdline.ExitOK, "3 entries from 1 to 3", "journal", "verify", path)
	b[strings.Index(string(b), `"two"`)] = 'x'
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	step(cmdline.ExitFailure, "its checksum is wrong; entries 2 to 2", "journal", "verify", path)
	step(cmdline.ExitOK, `"first":2,"last":2`, "journal", "cat", path)
	step(cmdline.ExitOK, path+".damaged", "journal", "repair", path)
	step(cmdline.ExitOK, "entries 2 to 2 were lost before", "journal", "verify", path)
	step(cmdline.ExitOK, "repaired", "journal", "repair", "--from", copied, path)
	step(cmdline.ExitOK, `{"x":"two"}`, "journal", "cat", path)
	step(cmdline.ExitOK, "nothing to repair", "journal", "repair", path)
	step(cmdline.ExitUsage, "give one", "journal", "cat")
	step(cmdline.ExitFailure, "no such file", "journal", "repair", "--from", copied+"2", path)
}

// A log that ends before what the record beside it knows of is damaged, also when the rest ends well or nothing is left of it, and
// a copy has the rest. Without a record the copy alone says so.
func TestJournal_EndsTooEarly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "sessions", "s1")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path, copied := filepath.Join(dir, "log.journal"), filepath.Join(t.TempDir(), "copy")
	l, err := journal.Open(path, journal.Options{About: func() []byte { return []byte(`{"id":"s1"}`) }})
	if err != nil {
		t.Fatal(err)
	}
	var ends []int64 // of the file behind each entry
	for i := range 9 {
		if _, err := l.AppendFlush(journal.Update, journal.Everyone, fmt.Appendf(nil, `{"n":%d}`, i+1)); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, l.Size())
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	tool := func(args ...string) (code int, text string) {
		t.Helper()
		var out bytes.Buffer
		code = run(t.Context(), append([]string{"journal"}, args...), stdio{strings.NewReader(""), &out, &out})
		return code, out.String()
	}
	step := func(wantCode int, want string, args ...string) {
		t.Helper()
		if code, text := tool(args...); code != wantCode || !strings.Contains(text, want) || strings.Contains(text, "never seen") {
			t.Errorf("%v: exit %d, %s; want %d, %s", args, code, text, wantCode, want)
		}
	}
	write := func(name string, b []byte) {
		t.Helper()
		if err := os.WriteFile(name, b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all := func() {
		t.Helper()
		step(cmdline.ExitOK, "9 entries from 1 to 9", "verify", path)
		for i := range 9 {
			step(cmdline.ExitOK, fmt.Sprintf(`{"n":%d}`, i+1), "cat", path)
		}
		if about, err := journal.About(path); err != nil || string(about) != `{"id":"s1"}` {
			t.Errorf("it says of its session %s, %v", about, err)
		}
		step(cmdline.ExitOK, "there is nothing to repair", "repair", "--from", copied, path)
	}
	write(copied, whole)
	record := filepath.Join(dir, "session.json")
	for _, tt := range []struct {
		name string
		file []byte
		lost int // the first entry that is
	}{
		{"within a block", whole[:ends[3]+70], 5},
		{"behind a block", whole[:ends[3]], 5},
		{"nothing is left", nil, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			write(record, []byte(`{"version":1,"id":"s1","lastSeq":9}`))
			write(path, tt.file)
			lost := fmt.Sprintf("entries %d to 9", tt.lost)
			step(cmdline.ExitFailure, lost, "verify", path)
			step(cmdline.ExitOK, fmt.Sprintf(`"first":%d,"last":9`, tt.lost), "cat", path)
			step(cmdline.ExitOK, "repaired", "repair", path)
			step(cmdline.ExitOK, lost+" were lost before", "verify", path)
			taken := fmt.Sprintf("repaired; %d entries were taken from %s", 10-tt.lost, copied)
			step(cmdline.ExitOK, taken, "repair", "--from", copied, path)
			all()
			write(path, tt.file)
			step(cmdline.ExitOK, taken, "repair", "--from", copied, path)
			all()

			if err := os.Remove(record); err != nil {
				t.Fatal(err)
			}
			write(path, tt.file)
			step(cmdline.ExitOK, "", "verify", path)
			step(cmdline.ExitOK, taken, "repair", "--from", copied, path)
			all()
		})
	}
	// A log that has nothing at all was reserved numbers by its record.
	write(record, []byte(`{"version":1,"id":"s1","boundSeq":1024}`))
	write(path, nil)
	step(cmdline.ExitFailure, "entries 1 to 1024", "verify", path)
	// A copy of something else is none.
	write(path, whole[:ends[3]])
	other := filepath.Join(t.TempDir(), "other")
	if l, err = journal.Open(other, journal.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.AppendFlush(journal.Update, journal.Everyone, []byte(`{"n":"other"}`)); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	step(cmdline.ExitFailure, "entry 1 differs", "repair", "--from", other, path)
	if b, err := os.ReadFile(path); err != nil || !bytes.Equal(b, whole[:ends[3]]) {
		t.Errorf("the file was changed, %v", err)
	}
}

// A data directory has one gateway, also when its lock file was removed.
func TestLock_ItsFileWasRemoved(t *testing.T) {
	dir := t.TempDir()
	unlock, err := claim.Dir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "lock")); err != nil {
		t.Fatal(err)
	}
	if again, err := claim.Dir(dir); !errors.Is(err, claim.ErrHeld) {
		t.Errorf("a second gateway may use the directory: %v", err)
		again()
	}
	unlock()
	unlock, err = claim.Dir(dir)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
}
