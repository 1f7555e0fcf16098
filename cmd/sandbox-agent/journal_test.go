package main

import (
	"bytes"
	"errors"
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
