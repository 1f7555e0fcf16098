package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestFlaky_TellsWhatFails(t *testing.T) {
	if testing.Short() {
		t.Skip("short runs leave out what takes many seconds")
	}
	t.Setenv("FLAKY_COUNT", filepath.Join(t.TempDir(), "count"))
	o := options{count: 6, timeout: time.Minute, packages: []string{"./testdata/sometimes"}}
	var out strings.Builder
	failed, err := run(t.Context(), o, &out)
	if err != nil || !failed {
		t.Errorf("%v, %v", failed, err)
	}
	got := out.String()
	for _, want := range []string{
		"FAILED sandboxagent.dev/sandbox-agent/internal/flaky/testdata/sometimes, 6 times without the race detector",
		"FAILED sandboxagent.dev/sandbox-agent/internal/flaky/testdata/sometimes, 6 times with the race detector",
		"  1 times TestSometimes\n", "it was the fifth time",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in:\n%s", want, got)
		}
	}
	o.run = "TestAlways"
	out.Reset()
	if failed, err := run(t.Context(), o, &out); failed || err != nil || strings.Count(out.String(), "ok ") != 2 {
		t.Errorf("%v, %v:\n%s", failed, err, &out)
	}
}

// What ends without a word has not passed, and what a test leaves holds nobody.
func TestAttempt_PassesWhatSaysSo(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "test")
	if out, err := exec.Command("go", "test", "-c", "-o", binary, "./testdata/quiet").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, tt := range []struct {
		run  string
		want outcome
		says string
	}{
		{"^TestPasses$", passed, "PASS"},
		{"^TestNothing$", none, "no tests to run"},
		{"^TestExits$", bad, "unexpected call to os.Exit(0)"},
		{"^TestExits_BehindGosBack$", bad, "it exited before its tests had ended"},
		{"^TestHolds$", bad, exec.ErrWaitDelay.Error()},
	} {
		text, got, err := attempt(t.Context(), options{count: 1, timeout: time.Minute, run: tt.run}, binary, ".")
		if err != nil || got != tt.want || !strings.Contains(string(text), tt.says) {
			t.Errorf("%s: %v, %v, want %v:\n%s", tt.run, got, err, tt.want, text)
		}
	}
}

func TestFlaky_NoTestIsAnError(t *testing.T) {
	var out strings.Builder
	_, err := run(t.Context(), options{count: 1, timeout: time.Minute, run: "TestNothing", packages: []string{"./testdata/quiet"}}, &out)
	if err == nil || strings.Contains(out.String(), "ok ") || strings.Count(out.String(), "none ") != 2 {
		t.Errorf("%v:\n%s", err, &out)
	}
}
