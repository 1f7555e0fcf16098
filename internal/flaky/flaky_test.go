package main

import (
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
