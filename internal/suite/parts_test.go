package main

import (
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// files writes files into a folder and makes it the working one.
func files(t *testing.T, content map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range slices.Sorted(maps.Keys(content)) {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content[name]), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
}

const top = "package p\n\nimport (\n\t\"os\"\n\t\"syscall\"\n\t\"testing\"\n\t\"time\"\n)\n\nvar _, _, _ = os.Exit, syscall.Exit, time.Sleep\n\n"

func TestGoTest_EveryFailureFailsIt(t *testing.T) {
	t.Setenv("GOFLAGS", "")
	const good = "func TestGood(t *testing.T) {}\n"
	for _, tt := range []struct{ name, code, want string }{
		{"passes", good, ""},
		{"none matches", "func TestGood_Left(t *testing.T) {}\n", ""},
		{"fails", good + "func TestBad(t *testing.T) { t.Error(1) }\n", "1 tests failed"},
		{"exits behind Go's back", good + "func TestBad(t *testing.T) { syscall.Exit(0) }\n", "in the middle of its tests"},
		{"exits before its tests", good + "func TestMain(m *testing.M) { os.Exit(0) }\n", "without its tests"},
		{"does not compile", good + "func TestBad(t *testing.T) { nothing() }\n", "exit status 1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			files(t, map[string]string{"go.mod": "module p\n", "p_test.go": top + tt.code})
			s := suite{out: io.Discard}
			_, err := s.goTest(t.Context(), goRun{name: "it", args: []string{"-skip", "_Left"}, packages: []string{"./..."}})
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%v, want %q", err, tt.want)
			}
		})
	}
}

func TestReadGoTest_NothingIsLost(t *testing.T) {
	for _, tt := range []struct{ name, out, want string }{
		{"nothing", "", "no package was tested"},
		{"ends in the middle", `{"Action":"run","Package":"p","Test":"TestA"}`, "1 tests did not end"},
		{"a long line", `{"Action":"build-output","Output":"` + strings.Repeat(" ", 65<<20) + "\"}\n" +
			`{"Action":"fail","Package":"p","Test":"TestA"}` + "\n", "1 tests failed"},
	} {
		s := suite{out: io.Discard}
		if err := s.readGoTest(strings.NewReader(tt.out)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// What one run leaves out another must have, and what is named must be a test: one with another name now would be where
// it does not belong.
func TestGoRuns_LeaveNoTestOut(t *testing.T) {
	unknown := map[string]bool{}
	for _, list := range []string{plain, both, slow} {
		for _, name := range regexp.MustCompile(`Test\w*`).FindAllString(list, -1) {
			unknown[name] = true
		}
	}
	for _, start := range []string{"TestLive_", "TestReal_", "TestAgent_KeepsTheContract", "TestOverhead_"} { // of more than one
		delete(unknown, start)
	}
	t.Chdir(filepath.Join("..", ".."))
	runs, err := new(suite).goRuns(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	packages, err := listPackages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	with := map[string]int{} // how many packages have tests for a run
	has := func(run goRun, pkg, test string) bool {
		if !slices.ContainsFunc(run.packages, func(p string) bool { return p == pkg || pathOf(p) == pkg }) {
			return false
		}
		only, skip := slices.Index(run.args, "-run"), slices.Index(run.args, "-skip")
		return (only < 0 || regexp.MustCompile(run.args[only+1]).MatchString(test)) &&
			(skip < 0 || !regexp.MustCompile(run.args[skip+1]).MatchString(test))
	}
	top := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)
	for _, p := range packages {
		needed := map[string]bool{}
		for _, file := range p.tests {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range top.FindAllSubmatch(b, -1) {
				name := string(m[1])
				delete(unknown, name)
				if name == "TestMain" {
					continue
				}
				n := 0
				for _, run := range runs {
					if has(run, p.path, name) {
						needed[run.name] = true
						n++
					}
				}
				if want := 1 + len(regexp.MustCompile(both).FindAllString(name, -1)); n != want {
					t.Errorf("%s: %s is in %d runs, want %d", file, name, n, want)
				}
			}
		}
		for run := range needed {
			with[run]++
		}
	}
	for _, run := range runs {
		if run.name == "with agents" && with[run.name] != len(run.packages) {
			t.Errorf("%d packages are compiled for the tests %s, and %d have such tests", len(run.packages), run.name, with[run.name])
		}
	}
	for name := range unknown {
		t.Errorf("%s is named, and there is no such test", name)
	}
}

// With the race detector a test plays a part of its sequences only: the other run must have it, too. What calls something
// that takes a part of them does so itself.
func TestBoth_HasAllThatPlaySequences(t *testing.T) {
	function := regexp.MustCompile(`(?m)^func (\w+)\([^\n]*(?:}$|(?s:.*?)^}$)`)
	taken := regexp.MustCompile(`\bagentcache\.Sequences\(|\.Play\(t, \d`)
	bodies := map[string]map[string]string{} // by folder and function
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || d.Name() == "node_modules") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(file, "_test.go") {
			return nil
		}
		b, err := os.ReadFile(file)
		of := bodies[filepath.Dir(file)]
		if of == nil {
			of = map[string]string{}
			bodies[filepath.Dir(file)] = of
		}
		for _, m := range function.FindAllSubmatch(b, -1) {
			of[string(m[1])] = string(m[0])
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	inBoth := regexp.MustCompile(both)
	found := 0
	for dir, of := range bodies {
		calls := []*regexp.Regexp{taken}
		seen := map[string]bool{}
		for len(calls) > 0 {
			call := calls[0]
			calls = calls[1:]
			for name, body := range of {
				_, body, _ = strings.Cut(body, "{")
				switch {
				case seen[name] || !call.MatchString(body):
					continue
				case !strings.HasPrefix(name, "Test"):
					calls = append(calls, regexp.MustCompile(`\b`+name+`\b`))
				case !inBoth.MatchString(name):
					t.Errorf("%s: %s plays a part of its sequences with the race detector, and is not in both", dir, name)
				default:
					found++
				}
				seen[name] = true
			}
		}
	}
	if found < 11 {
		t.Errorf("only %d tests that play sequences are found", found)
	}
}

func TestNodeTest_EveryFailureFailsIt(t *testing.T) {
	const good = `{"success":true,"testResults":[{"name":"a.test.ts","status":"passed","assertionResults":[{"fullName":"a","status":"passed"}]}]}`
	for _, tt := range []struct{ name, results, exit, want string }{
		{"passes", good, "0", ""},
		{"fails and npm says so", good, "1", "exit status 1"},
		{"fails in silence", `{"success":false,"testResults":[{"name":"a.test.ts","status":"failed","assertionResults":[{"fullName":"a","status":"failed","failureMessages":["it is","lost"]}]}]}`, "0", "tell of a failure"},
		{"a file that cannot be loaded", `{"success":true,"testResults":[{"name":"a.test.ts","status":"failed","message":"no such module","assertionResults":[]}]}`, "0", "a.test.ts could not be loaded: no such module"},
		{"no results", "", "0", "read the results"},
		{"half of them", good[:len(good)/2], "0", "read the results"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			files(t, map[string]string{
				"a/package.json": `{"scripts":{"test":"vitest run"}}`, "results": tt.results,
				"bin/npm": "#!/bin/sh\nfor a; do case $a in --outputFile.json=*) cp ../results \"${a#*=}\";; esac; done\nexit " + tt.exit + "\n",
			})
			t.Setenv("PATH", filepath.Join(must(os.Getwd()), "bin")+":"+os.Getenv("PATH"))
			s := suite{out: io.Discard}
			_, err := s.nodeTest(t.Context(), "a", nil)
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%v, want %q", err, tt.want)
			}
			for _, r := range s.results {
				if r.outcome == "fail" && r.why != "it is\nlost\n" {
					t.Errorf("why it failed: %q", r.why)
				}
			}
		})
	}
	t.Run("npm is missing", func(t *testing.T) {
		files(t, map[string]string{"a/package.json": `{"scripts":{"test":"vitest run"}}`})
		t.Setenv("PATH", t.TempDir())
		if _, err := new(suite).nodeTest(t.Context(), "a", nil); err == nil {
			t.Error("no error")
		}
	})
}

// The checkout may lie in a folder that is named as one of its own.
func TestNodeTest_KindOfAFile(t *testing.T) {
	files(t, map[string]string{
		"inspector/package.json": `{"scripts":{"test":"vitest run"}}`,
		"results":                `{"success":true,"testResults":[{"name":"/home/inspector/it/inspector/test/a.test.ts","status":"passed","assertionResults":[{"fullName":"a","status":"passed"}]}]}`,
		"bin/npm":                "#!/bin/sh\nfor a; do case $a in --outputFile.json=*) cp ../results \"${a#*=}\";; esac; done\n",
	})
	t.Setenv("PATH", filepath.Join(must(os.Getwd()), "bin")+":"+os.Getenv("PATH"))
	s := suite{out: io.Discard}
	if _, err := s.nodeTest(t.Context(), "inspector", nil); err != nil {
		t.Fatal(err)
	}
	if len(s.results) != 1 || s.results[0].kind != "browser" || s.results[0].name != "inspector/test/a.test.ts a" {
		t.Errorf("%+v", s.results)
	}
}

// What is committed, changed and new counts, from where the branch left the one
// that it follows.
func TestChangedAgents(t *testing.T) {
	files(t, map[string]string{"theirs/adapters/pi/pi.go": "1", "theirs/adapters/amp/amp.go": "1", "theirs/adapters/codex/a.go": "1", "theirs/adapters/native/x.go": "1", "theirs/README.md": "1"})
	git := func(dir string, args ...string) {
		cmd := exec.Command("git", append([]string{"-c", "user.name=Test", "-c", "user.email=test@localhost"}, args...)...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	git("theirs", "init", "-q")
	if got := changedAgents(t.Context()); got != "" {
		t.Errorf("outside of a repository: %q", got)
	}
	git("theirs", "add", "-A")
	git("theirs", "commit", "-qm", "one")
	git(".", "clone", "-q", "theirs", "ours")
	t.Chdir("ours")
	if got := changedAgents(t.Context()); got != "" {
		t.Errorf("nothing was changed, it says %q", got)
	}
	write := func(path string) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte("2"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("README.md")
	write("adapters/native/x.go")
	write("adapters/pi/pi.go")
	git(".", "commit", "-qam", "two")
	write("adapters/codex/a.go")
	write("adapters/opencode/new/b.go")
	if got := changedAgents(t.Context()); got != "codex opencode pi" {
		t.Errorf("it says %q", got)
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// How much memory a program takes is not known where it looks for garbage late.
func TestCollectLate_MemoryIsMeasuredAsUsersHaveIt(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	packages, err := listPackages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, p := range packages {
		var text []byte
		for _, file := range p.tests {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			text = append(text, b...)
		}
		if p.path == pathOf("./internal/suite") || !regexp.MustCompile(`"VmHWM|"VmRSS|Maxrss`).Match(text) {
			continue
		}
		found++
		if !regexp.MustCompile(`(?s)func TestMain\(.*programs\.AsUsers\(\).*m\.Run\(\)`).Match(text) {
			t.Errorf("the tests of %s measure a program's memory, and TestMain does not call programs.AsUsers", p.path)
		}
	}
	if found == 0 {
		t.Error("no tests measure a program's memory")
	}
}

// A package that gets a goroutine or a lock needs the race detector.
func TestSequential_HasNoGoroutine(t *testing.T) {
	concurrent := regexp.MustCompile(`(?m)^\s*go (func|\w+[.(])|\.Go\(|"sync"|"sync/atomic"|\bchan\b`)
	for _, pkg := range sequential {
		files, err := filepath.Glob(filepath.Join("../..", pkg, "*.go"))
		if err != nil || len(files) == 0 {
			t.Errorf("%s has no files: %v", pkg, err)
		}
		for _, f := range files {
			if strings.HasSuffix(f, "_test.go") {
				continue
			}
			b, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			if m := concurrent.Find(b); m != nil {
				t.Errorf("%s has %q: run its tests with the race detector", f, m)
			}
		}
	}
}

// A run tells everything that is wrong, also when nothing can be built: here there is no package at all.
func TestSuite_ReportsWithoutABuild(t *testing.T) {
	program := filepath.Join(t.TempDir(), "suite")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	files(t, map[string]string{"go.mod": "module sandboxagent.dev/sandbox-agent\n", "task": "#!/bin/sh\n"})
	cmd := exec.Command(program, "-task", "./task")
	cmd.Env = append(os.Environ(), "SANDBOX_AGENT_TEST_CACHE="+t.TempDir(), "TMPDIR="+t.TempDir())
	out, err := cmd.Output()
	if err == nil {
		t.Error("the run succeeded")
	}
	for _, want := range []string{"FAIL: build, ", "FAIL: pytest in sdk-py, 0s, processor 0s: " + errNotBuilt.Error(), "passed: lint, ", "FAIL: report, ", "\ntests: 0 passed, "} {
		if !strings.Contains(string(out), want) {
			t.Errorf("%q is missing in:\n%s", want, out)
		}
	}
}

func TestForgetPrograms(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	for name, age := range map[string]time.Duration{"own": 30 * 24 * time.Hour, "old": 8 * 24 * time.Hour, "recent": 6 * 24 * time.Hour} {
		folder := filepath.Join(dir, name)
		if err := errors.Join(os.Mkdir(folder, 0o755), os.Chtimes(folder, now.Add(-age), now.Add(-age))); err != nil {
			t.Fatal(err)
		}
	}
	forgetPrograms(filepath.Join(dir, "own"), now)
	left, _ := filepath.Glob(filepath.Join(dir, "*"))
	if want := []string{filepath.Join(dir, "own"), filepath.Join(dir, "recent")}; !slices.Equal(left, want) {
		t.Errorf("left are %q, want %q", left, want)
	}
}
