package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func sampleRow(run string) row {
	return row{"samples are taken", "./testdata/sample", run, "SAMPLES", 1000, "all were good"}
}

func TestReliability_Table(t *testing.T) {
	if testing.Short() {
		t.Skip("short runs leave out what takes many seconds")
	}
	var out strings.Builder
	if run(t.Context(), []row{sampleRow("^TestBad$"), sampleRow("^TestSilent$"), sampleRow("^TestWell$")}, 1.5, &out) {
		t.Error("a test that fails counts as one that passes")
	}
	got := out.String()
	for _, want := range []string{
		"| samples are taken | 1,500 samples | ", "| **failed** |", "it broke at seed 4711",
		"no test said what it did", "| samples are taken | 3,000 samples, 1 cup | ", "| all were good |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in:\n%s", want, got)
		}
	}
	if !run(t.Context(), []row{sampleRow("^TestWell$")}, 0.0001, &out) || !strings.Contains(out.String(), "| 2 samples, 1 cup |") {
		t.Errorf("the least is one:\n%s", &out)
	}
}

func TestReliability_Choose(t *testing.T) {
	if got, err := choose(rows, "chaos"); err != nil || len(got) != 2 {
		t.Errorf("%d rows, %v", len(got), err)
	}
	for only, want := range map[string]string{"(": "-only", "no such row": "matches no row"} {
		if _, err := choose(rows, only); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", only, err)
		}
	}
}

// Every row names a test that is there and asks for the row's number.
func TestReliability_RowsHaveTests(t *testing.T) {
	for _, r := range rows {
		files, err := filepath.Glob(filepath.Join("../..", r.pkg, "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		var all strings.Builder
		for _, name := range files {
			b, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all.Write(b)
		}
		for _, want := range []string{"func " + strings.Trim(r.run, "^$") + "(", `figure.Asked(t, "` + r.name + `", `} {
			if !strings.Contains(all.String(), want) {
				t.Errorf("%s: nothing in %s holds %q", r.what, r.pkg, want)
			}
		}
	}
}
