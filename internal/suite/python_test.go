package main

import (
	"io"
	"maps"
	"os"
	"strings"
	"testing"
	"time"
)

// What pytest says counts, and a run without results fails.
func TestPythonTest(t *testing.T) {
	const results = `<?xml version="1.0"?><testsuites><testsuite><testcase classname="tests.a" name="one"/>` +
		`<testcase classname="tests.a" name="two"><skipped message="no reason"/></testcase>` +
		`<testcase classname="tests.b" name="three"><failure message="short">the lines of it</failure><error message="and more"/></testcase></testsuite></testsuites>`
	for _, tt := range []struct{ name, program, want string }{
		{"results", "#!/bin/sh\nfor a; do :; done\nprintf '%s' '" + results + "' > ${a#--junitxml=}\nexit 1\n", "exit status 1"},
		{"results, and an exit code that lies", "#!/bin/sh\nfor a; do :; done\nprintf '%s' '" + results + "' > ${a#--junitxml=}\n", "three failed"},
		{"no results", "#!/bin/sh\n", "no results"},
		{"half of them", "#!/bin/sh\nfor a; do :; done\necho '<testsuites><test' > ${a#--junitxml=}\n", "read the results"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			files(t, map[string]string{"p/.venv/bin/python": tt.program})
			if err := os.Chmod("p/.venv/bin/python", 0o755); err != nil {
				t.Fatal(err)
			}
			s := suite{out: io.Discard}
			_, err := s.pythonTest(t.Context(), "p", nil)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if !strings.HasPrefix(tt.name, "results") {
				return
			}
			got := map[string]string{}
			for _, r := range s.results {
				if r.kind != "python" {
					t.Errorf("a test of kind %s", r.kind)
				}
				got[r.name] = r.outcome + r.why
			}
			want := map[string]string{"p/tests.a one": "pass", "p/tests.a two": "skipno reason\n", "p/tests.b three": "failthe lines of it\nand more\n"}
			if !maps.Equal(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
		})
	}
}

// A part that hangs is ended, and the run says so.
func TestCommand_HasABound(t *testing.T) {
	files(t, map[string]string{"p/.venv/bin/python": "#!/bin/sh\nexec sleep 600\n"})
	s := suite{out: io.Discard, bound: time.Second}
	_, err := s.pythonTest(t.Context(), "p", nil)
	if err == nil || !strings.Contains(err.Error(), "had not ended after 1s") {
		t.Errorf("it says %v", err)
	}
}
