package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const tiny = "./testdata/tiny"

func TestMutate_TellsWhatSurvives(t *testing.T) {
	if testing.Short() {
		t.Skip("short runs leave out what takes many seconds")
	}
	list, err := parseAccepted("# why\n\ninternal/mutate/testdata/tiny/tiny.go | Forgets | const | func Forgets(m map[string]int) { m[\"called\"] = [[1]] } | for the test\n" +
		"internal/mutate/testdata/tiny/tiny.go | Gone | drop | x++ | it was there once\n" +
		"internal/other.go | Other | drop | x++ | of another package")
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	err = run(t.Context(), options{packages: []string{tiny}, parallel: 2, want: 99}, list, &out)
	if !errors.Is(err, errTooFew) {
		t.Errorf("error %v", err)
	}
	var got []string
	var total string
	for line := range strings.Lines(out.String()) {
		line = strings.TrimSpace(line)
		if total = line; strings.Contains(line, " Odd: ") {
			continue // that it could be built is what matters
		}
		got = append(got, line)
	}
	got = slices.DeleteFunc(got, func(s string) bool { return strings.Contains(s, "%") })
	const at = "internal/mutate/testdata/tiny/tiny.go"
	want := []string{
		"accepted, but not there: " + at + " | Gone | drop | x++",
		"survived     " + at + ":8:7 bound Clamp: v < low", // as low is returned
		"survived     " + at + ":11:7 bound Clamp: v > high",
		"survived     " + at + ":20:13 bound Count: len(w) > 3", // there is no word of three
		"not reached  " + at + ":28:40 negate Untested: a",
		"not reached  " + at + ":28:45 negate Untested: b",
		`survived     ` + at + `:31:34 drop Forgets: m["called"] = 1`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the report differs (-want +got):\n%s", diff)
	}
	if !strings.HasPrefix(total, "sandboxagent.dev/sandbox-agent/internal/mutate/testdata/tiny ") || !strings.Contains(total, " 1 accepted of ") || !strings.HasSuffix(total, "; 4 not reached") {
		t.Errorf("the last line is %s", total)
	}
}

func TestMutate_FilesAndSample(t *testing.T) {
	points := make([]point, 100)
	for i := range points {
		points[i] = point{n: i + 1, file: fmt.Sprintf("p/%c.go", 'a'+i%2)}
	}
	if got := choose(points, options{files: []string{"b.go"}}); len(got) != 50 || got[0].n != 2 {
		t.Errorf("%d points, the first is %d", len(got), got[0].n)
	}
	one, again, other := choose(points, options{sample: 10, seed: 1}), choose(points, options{sample: 10, seed: 1}), choose(points, options{sample: 10, seed: 2})
	numbers := func(p []point) (n []int) {
		for _, p := range p {
			n = append(n, p.n)
		}
		return n
	}
	if len(one) != 10 || !slices.IsSorted(numbers(one)) || !slices.Equal(numbers(one), numbers(again)) || slices.Equal(numbers(one), numbers(other)) {
		t.Errorf("samples %v, %v, %v", numbers(one), numbers(again), numbers(other))
	}
}

func TestAccepted_EachLineHasAReason(t *testing.T) {
	for _, text := range []string{"a.go | f | drop | x++", "a.go | f | drop | x++ | ", "a.go | f | drop | x++ | r\na.go | f | drop | x++ | r"} {
		if _, err := parseAccepted(text); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
	if _, err := parseAccepted(acceptedText); err != nil {
		t.Errorf("accepted.txt: %v", err)
	}
}

// The switch of an outer node goes around those of inner ones, whatever begins
// or ends at the same place.
func TestApply_Nests(t *testing.T) {
	text := "ab<c"
	edits := []edit{
		{at: 0, text: "X("},
		{at: 4, text: ")X", closing: true},
		{at: 0, text: "Y("},
		{at: 4, text: ")Y", closing: true},
		{at: 2, length: 1, text: ","},
		{at: 1, text: "Z("},
		{at: 2, text: ")Z", closing: true},
	}
	if got := string(apply([]byte(text), edits)); got != "X(Y(aZ(b)Z,c)Y)X" {
		t.Error(got)
	}
}

// A test that fails without a change says nothing about changes.
func TestMutate_ATestThatFailsAnyway(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	err := run(t.Context(), options{packages: []string{"./testdata/failing"}, parallel: 1}, nil, &strings.Builder{})
	if err == nil || !strings.Contains(err.Error(), "TestFails fails without a change") {
		t.Errorf("error %v", err)
	}
	left, _ := filepath.Glob(filepath.Join(temp, "mutate-*"))
	if len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}

// Where there is nothing to change, nothing is said of the tests.
func TestMutate_NothingToChange(t *testing.T) {
	var out strings.Builder
	err := run(t.Context(), options{packages: []string{tiny}, files: []string{"missing.go"}, parallel: 1, want: 90}, nil, &out)
	if !errors.Is(err, errNothing) || out.String() != "" {
		t.Errorf("error %v:\n%s", err, &out)
	}
}
