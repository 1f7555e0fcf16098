package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReadGoTest(t *testing.T) {
	const out = `{"Action":"run","Package":"sandboxagent.dev/sandbox-agent/fs","Test":"TestA"}
{"Action":"run","Package":"sandboxagent.dev/sandbox-agent/fs","Test":"TestA/one"}
{"Action":"output","Package":"sandboxagent.dev/sandbox-agent/fs","Test":"TestA/one","Output":"because of this\n"}
{"Action":"skip","Package":"sandboxagent.dev/sandbox-agent/fs","Test":"TestA/one"}
{"Action":"pass","Package":"sandboxagent.dev/sandbox-agent/fs","Test":"TestA"}
{"Action":"fail","Package":"sandboxagent.dev/sandbox-agent/adapters/pi","Test":"TestLive_X"}
{"Action":"pass","Package":"sandboxagent.dev/sandbox-agent/adapters/pi","Test":"TestContract/load"}
{"Action":"pass","Package":"sandboxagent.dev/sandbox-agent/cmd/sandbox-agent","Test":"TestReal_Turns/codex/thinking"}
{"Action":"run","Package":"sandboxagent.dev/sandbox-agent/cmd/sandbox-agent","Test":"TestStatus"}
{"Action":"pass","Package":"sandboxagent.dev/sandbox-agent/cmd/sandbox-agent","Test":"TestStatus"}
{"Action":"pass","Package":"sandboxagent.dev/sandbox-agent/cmd/sandbox-agent"}
`
	s := suite{out: io.Discard}
	if err := s.readGoTest(strings.NewReader(out)); err == nil || err.Error() != "1 tests failed" {
		t.Errorf("it says %v", err)
	}
	want := []result{
		{"unit", "fs.TestA/one", "skip", "because of this\n"},
		{"live pi", "adapters/pi.TestLive_X", "fail", ""},
		{"contract", "adapters/pi.TestContract/load", "pass", ""},
		{"live codex", "cmd/sandbox-agent.TestReal_Turns/codex/thinking", "pass", ""},
		{"end-to-end", "cmd/sandbox-agent.TestStatus", "pass", ""},
	}
	if diff := cmp.Diff(want, s.results, cmp.AllowUnexported(result{})); diff != "" {
		t.Error(diff)
	}
}

func TestReport_NothingStopsRunningInSilence(t *testing.T) {
	defer func(floors, skips string) { floorsFile, skipsFile = floors, skips }(floorsFile, skipsFile)
	floorsFile, skipsFile = "# a comment\n2\tunit\n1\tlive pi\n", "^fs\\.TestRoot$\troot may do it\n"
	starts := filepath.Join(t.TempDir(), "starts.txt")
	codex := filepath.Dir(starts) + "/npm/codex/bin/codex\tapp-server"
	if err := os.WriteFile(starts, []byte("start\t"+codex+"\tTestA\nend\t1600\t"+codex+"\tTestA\nstart\t/bin/sh\t-c\t\nend\t5\t/bin/sh\t-c\t\nstart\t"+strings.Replace(codex, "app-server", "--version", 1)+"\t\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := []result{{kind: "unit", outcome: "pass"}, {kind: "unit", outcome: "fail"}, {kind: "live pi", outcome: "pass"}}
	for _, tt := range []struct {
		name    string
		ci      string
		results []result
		want    string // a part of the error, "" for none
	}{
		{"all ran", "true", good, ""},
		{"too few", "true", good[:2], `0 tests of kind "live pi" ran`},
		{"a kind without a floor", "true", append(slices.Clone(good), result{kind: "new", outcome: "pass"}), `no line for tests of kind "new"`},
		{"a skip that is allowed", "true", append(slices.Clone(good), result{kind: "unit", name: "fs.TestRoot", outcome: "skip"}), ""},
		{"one that is not", "true", append(slices.Clone(good), result{kind: "unit", name: "fs.TestRoots", outcome: "skip"}), "fs.TestRoots was skipped"},
		{"one at a newcomer's", "", append(slices.Clone(good), result{kind: "unit", name: "fs.TestRoots", outcome: "skip"}), ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("CI", tt.ci)
			s := suite{out: io.Discard, results: tt.results}
			var out strings.Builder
			err := s.report(&out, starts)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			if allowed := strings.Contains(out.String(), "skipped as allowed: 1; 1: root may do it\n"); allowed != (tt.name == "a skip that is allowed") {
				t.Errorf("it says\n%s", out.String())
			}
			if !strings.Contains(out.String(), "starts of real agents: 1 (codex 1 2s), asked for a word 1 times, processor 2s\n") {
				t.Errorf("it says\n%s", out.String())
			}
		})
	}
}

// What failed is said once more at the end, by the smallest part that failed and
// by how it begins: the logs of what it ran are long.
func TestReport_SaysWhatFailed(t *testing.T) {
	defer func(floors string) { floorsFile = floors }(floorsFile)
	floorsFile = "1\tunit\n"
	starts := filepath.Join(t.TempDir(), "starts.txt")
	if err := os.WriteFile(starts, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s := suite{out: io.Discard, results: []result{
		{"unit", "fs.TestA", "fail", "a log\n"},
		{"unit", "fs.TestA/one", "fail", "because of this\n" + strings.Repeat("a log\n", 1000)},
		{"unit", "fs.TestAB", "fail", "and this\n"},
	}}
	var out strings.Builder
	if err := s.report(&out, starts); err != nil {
		t.Fatal(err)
	}
	want := "failed: fs.TestA/one\nbecause of this\n" + strings.Repeat("a log\n", 39) + "    ... the rest stands above\nfailed: fs.TestAB\nand this\nstarts of"
	if !strings.HasPrefix(out.String(), want) {
		t.Errorf("it says\n%s", out.String())
	}
}

// What is kept of a long text is text, and ends with its line.
func TestBegin(t *testing.T) {
	for text, want := range map[string]string{
		"":                                   "",
		" \n":                                "",
		"a\nb":                               "a\nb\n",
		"a\n\n":                              "a\n",
		"a" + strings.Repeat("ä", mostOfWhy): "a" + strings.Repeat("ä", mostOfWhy/2-1) + "\n... the rest stands above\n",
	} {
		if got := begin(text); got != want {
			t.Errorf("of %.20q it keeps %.20q, %d bytes, want %d", text, got, len(got), len(want))
		}
	}
}

func TestFiles_CanBeRead(t *testing.T) {
	if _, err := readFloors(floorsFile); err != nil {
		t.Error(err)
	}
	if _, err := readSkips(skipsFile); err != nil {
		t.Error(err)
	}
}

func TestReadFloors_EachKindOnce(t *testing.T) {
	for _, file := range []string{"1 unit\n", "1\t\n", "0\tunit\n", "-1\tunit\n", "500\tunit\n5\tunit\n"} {
		if got, err := readFloors(file); err == nil {
			t.Errorf("%q: %v", file, got)
		}
	}
}

func TestReadStarts_WhereverTheCacheIs(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "link")
	cache := filepath.Join(dir, "claude", "cache")
	if err := errors.Join(os.MkdirAll(cache, 0o755), os.Symlink(cache, link)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(link, "starts.txt")
	codex, amp := cache+"/npm/codex/bin/codex\t", "node\t"+cache+"/npm/sourcegraph/main.js\tTestLive_Shared\n"
	lines := "start\t" + codex + "app-server\tTestReal_Turnscodex\nstart\t" + link + "/npm/gemini/x\t--acp\t\nstart\t" + amp +
		"start\t" + codex + "--version\t\nend\t1200\t" + codex + "app-server\tTestReal_Turnscodex\n" +
		"start\t" + cache + "/programs/x/sandbox-agent\tmock\t\nstart\t/home/claude/bin/claude\t-p\tTestContract\nend\t3100\t" + amp
	if err := os.WriteFile(file, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := readStarts(file)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != "3 (amp 1 3s, codex 1 1s, gemini 1 0s), asked for a word 1 times, processor 4s" {
		t.Errorf("started are %s", got)
	}
	want := []string{"TestLive_Shared 1 3s", "TestReal_Turnscodex 1 1s", "none 1 0s"}
	if tests := got.dearest(10); !slices.Equal(tests, want) || !slices.Equal(got.dearest(2), want[:2]) {
		t.Errorf("the dearest tests are %q, want %q", tests, want)
	}
}
