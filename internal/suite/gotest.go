package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"sandboxagent.dev/sandbox-agent/internal/programs"
)

// plain matches the tests that run without the race detector in the normal tier:
// those that start real agents, whose time is the agents' own, and those that move
// much data, or take very many steps one after another, through code that smaller
// tests run with it.
const plain = `^(TestLive_.*|TestReal_.*|TestContract|TestMend_RealAgents|TestAgent_KeepsTheContract.*|TestAdapter_KeepsTheContract` +
	`|TestRun_BrokenAdapters|TestRun_CorrectAdapter|TestTranslate_Fixtures|TestOverhead_.*` +
	`|TestModel|TestHeld_ReadersSeeWhatIsConfirmed|TestOpen_KnowsHowFarNumbersWent|TestBudget_FullDisk` +
	`|TestParcel|TestStream|TestRecord_IsBehindTheLog|TestRecord_IsBehindTheLog_AndWhatComesBetween|TestStream_KeepsNothingOfDeletedSessions|TestPassing|TestUnpack_Hostile|TestUnpack_HolesAreBounded` +
	`|TestWrite_TurnWithoutEndIsNotHeld|TestValues_ComeInAnyPieces|TestLine_NodeTakesNothing` +
	`|TestContent_16MiBPrompt|TestContent_LargeChunks|TestFiles_LargeFileInLittleMemory|TestFiles_ManySmallFiles|TestInstallCLI_RealNPM` +
	`|TestProxy_LargeBodies|TestHostile_HurtsItselfOnly|TestFrames_Endings` +
	`|TestTravel_FilesAreEdited|TestEphemeral_SaysWhatItNoLongerHas|TestRetention_InMemory|TestOpen_TheAnswerNamesWhatWasShown` +
	`|TestMachine_EveryEventInEveryState|TestBudget_MemoryOnly|TestOpen_EveryPrefix|TestDial_LargeMessage|TestConn_LargeMessagesThatNobodyReads` +
	`|TestRandom_ThatFailed|TestConn_LargeFramesBothWays|TestSearches_AnswersTakeMemory|TestWorkspace_ManyFiles` +
	`|TestMove_RevivedSessionIsRefused|TestMove_FullDisk|TestFeed_SlowFollower|TestChanges_SlowReader|TestEphemeral_MemoryIsSpent)$`

// both matches the tests that play random sequences. They run with the race detector, which sees
// a quarter of them, and without it, where they all are: see agentcache.Sequences.
const both = `^(TestConn_RandomSessions|TestClient_RandomSequences|TestFrames_AtOnce|TestFrames_AtRandom|TestSettings_RandomSequences|TestTunings_RandomSequences|TestRandom` +
	`|TestLife_AllPairs|TestLife_SequencesThatFailed)$`

// goRun is one call of go test.
type goRun struct {
	name     string
	args     []string
	packages []string
	env      []string // added to the environment
	early    bool     // it needs nothing that the run makes: neither the page nor packages of Node
	behind   bool     // it has what the others leave of the processors
	onDisk   bool     // its temporary files are on the disk, where they can be links to those of the repository
}

// ofRepository are packages whose tests look at the repository and at what is
// built from it: nothing of ours runs at the same time in them.
var ofRepository = []string{".", "./docs", "./internal/release", "./internal/mutate", "./internal/flaky", "./internal/suite"}

// sequential are packages of functions that change nothing which another goroutine
// sees: the race detector has nothing to find in them.
var sequential = []string{
	"./acp/version", "./acp/internal/gen", "./acp/schema", "./acp/rawjson", "./acp/sse", "./adapters", "./adapters/all/internal/matrix",
	"./adapters/credentials", "./adapters/install/signature", "./runtime/paths",
}

// ofPage has the page in it, and its tests look for it.
const ofPage = "./inspector"

// endToEnd starts the gateway as a process. Its parts are tested with the race
// detector where they are.
const endToEnd = "./cmd/sandbox-agent"

// ofHub starts the hub and gateways, likewise.
const ofHub = "./cmd/sandbox-hub"

// longest are the packages whose tests take longest with the race detector. They begin first: one that is left over runs
// alone at the end.
var longest = []string{"fleet", "runtime", "runtime/journal"}

func rank(path string) int {
	if i := slices.Index(longest, strings.TrimPrefix(path, module)); i >= 0 {
		return i
	}
	return len(longest)
}

// goRuns are what the tier consists of. The long tier has the race detector
// everywhere. More tests with real agents begin than the machine has processors,
// since most of them wait: for their turn, for the agent, for the disk.
func (s *suite) goRuns(ctx context.Context) ([]goRun, error) {
	if s.long {
		return []goRun{{name: "long", args: []string{"-race", "-timeout", "3h"}, packages: []string{"./..."}}}, nil
	}
	packages, err := listPackages(ctx)
	if err != nil {
		return nil, err
	}
	var concurrent, withAgents []string
	for _, p := range packages {
		others := slices.Concat(ofRepository, sequential, []string{endToEnd, ofHub, ofPage})
		if !slices.ContainsFunc(others, func(o string) bool { return p.path == pathOf(o) }) {
			concurrent = append(concurrent, p.path)
		}
		left, err := p.declares(regexp.MustCompile(plain + "|" + both))
		if err != nil {
			return nil, err
		}
		switch {
		case left && p.path == pathOf(endToEnd): // it takes longest
			withAgents = slices.Insert(withAgents, 0, p.path)
		case left:
			withAgents = append(withAgents, p.path)
		}
	}
	slices.SortStableFunc(concurrent, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	most := mostOfAPart.String() // of each package: go test says then what hangs
	return []goRun{
		{name: "with agents", args: []string{"-run", plain + "|" + both, "-timeout", most, "-parallel", "8", "-p", "3"}, packages: withAgents},
		// Run each time: to use a result again Go would look once more at each of the hundred thousand files
		// that these tests open, and would not see what the programs depend on that they start.
		{name: "end to end", args: []string{"-count=1", "-skip", plain, "-timeout", most}, packages: append([]string{endToEnd, ofHub, ofPage}, sequential...)},
		{name: "with the race detector", args: []string{"-race", "-skip", plain, "-timeout", most, "-p", "2", "-parallel", "4"}, packages: concurrent, early: true, behind: true},
		{name: "of the repository", args: []string{"-timeout", most, "-p", "1"}, packages: ofRepository, behind: true, onDisk: true},
	}, nil
}

// pathOf is the path by which a package is imported that is named by its folder.
func pathOf(folder string) string {
	return strings.TrimSuffix(module+strings.TrimPrefix(strings.TrimPrefix(folder, "."), "/"), "/")
}

// goPackage is a package of the repository.
type goPackage struct {
	path  string
	tests []string // its files with tests
}

func listPackages(ctx context.Context) ([]goPackage, error) {
	const format = `{{$p := .}}{{.ImportPath}}{{range .TestGoFiles}}{{"\t"}}{{$p.Dir}}/{{.}}{{end}}{{range .XTestGoFiles}}{{"\t"}}{{$p.Dir}}/{{.}}{{end}}`
	out, err := program(ctx, ".", "go", "list", "-f", format, "./...").Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages: %w", err)
	}
	var packages []goPackage
	for line := range strings.Lines(string(out)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		packages = append(packages, goPackage{fields[0], fields[1:]})
	}
	return packages, nil
}

var topTest = regexp.MustCompile(`(?m)^func (Test\w*)\(`)

// declares reports whether one of the tests of p has a name that matches. One that has none would be compiled and linked
// for nothing.
func (p goPackage) declares(names *regexp.Regexp) (bool, error) {
	for _, file := range p.tests {
		b, err := os.ReadFile(file)
		if err != nil {
			return false, fmt.Errorf("look for tests: %w", err)
		}
		if slices.ContainsFunc(topTest.FindAllSubmatch(b, -1), func(m [][]byte) bool { return names.Match(m[1]) }) {
			return true, nil
		}
	}
	return false, nil
}

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output, ImportPath string

	Elapsed float64
}

// niceness is that of what computes: a third of what a program beside it has. Real agents and
// browsers are the longest way through a run, and what waits for them has limits of time.
const niceness = "5"

// behind returns a command that lets others go before it, where the system can do so.
func behind(command []string) []string {
	if nice, err := exec.LookPath("nice"); err == nil {
		return slices.Concat([]string{nice, "-n", niceness}, command)
	}
	return command
}

// goTest runs go test and notes each test's result. What failed is printed with
// all that it said.
func (s *suite) goTest(ctx context.Context, run goRun) (usage, error) {
	// The linters vet the tests, too.
	args := slices.Concat([]string{"go", "test", "-json", "-vet=off"}, run.args)
	if os.Getenv("CI") == "true" {
		args = append(args, "-count=1") // no result is used again there, and to note what one depends on takes time
	}
	args = append(args, run.packages...)
	if run.behind {
		args = behind(args)
	}
	cmd := program(ctx, ".", args[0], args[1:]...)
	cmd.Env = slices.Concat(os.Environ(), programs.CollectLate, run.env)
	if slices.Contains(run.args, "-race") {
		// On one processor, which the gateway would choose, fewer orders of events are seen.
		cmd.Env = append(cmd.Env, "CGO_ENABLED=1", "GOMAXPROCS="+strconv.Itoa(runtime.GOMAXPROCS(0)))
	}
	if run.onDisk {
		cmd.Env = append(cmd.Env, "TMPDIR=")
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	read := s.readGoTest(out)
	err = errors.Join(cmd.Wait(), read)
	return usageOf(cmd), err
}

// readGoTest notes what go test -json says. Its error tells what is wrong: also
// what go test takes for success, as a test program that exits with 0 before its
// tests end.
func (s *suite) readGoTest(out io.Reader) error {
	type key struct{ pkg, test string }
	said := map[key]*strings.Builder{}
	parents := map[key]bool{}
	open := map[key]bool{}
	began := map[string]bool{}   // packages of which a test ran
	started := map[string]bool{} // packages whose end is not known
	failed, packages := 0, 0
	var wrong []error
	note := func(k key, outcome, why string) {
		if outcome == "fail" {
			failed++
		}
		s.note(result{kind: goKind(k.pkg, k.test), name: strings.TrimPrefix(k.pkg, module) + "." + k.test, outcome: outcome, why: why})
	}
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil && len(line) == 0 {
			if !errors.Is(err, io.EOF) {
				wrong = append(wrong, fmt.Errorf("read what go test says: %w", err))
			}
			break
		}
		var e event
		if json.Unmarshal(line, &e) != nil {
			fmt.Fprintf(s.out, "%s\n", bytes.TrimSuffix(line, []byte("\n")))
			continue
		}
		k := key{e.Package, e.Test}
		switch e.Action {
		case "output":
			if said[k] == nil {
				said[k] = new(strings.Builder)
			}
			said[k].WriteString(e.Output)
		case "build-output":
			fmt.Fprint(s.out, e.Output)
		case "start":
			started[e.Package] = true
		case "run":
			open[k], began[e.Package] = true, true
			if i := strings.LastIndexByte(e.Test, '/'); i >= 0 {
				parents[key{e.Package, e.Test[:i]}] = true
			}
		case "pass", "fail", "skip":
			var text string
			if b := said[k]; b != nil {
				text = b.String()
			}
			delete(said, k)
			delete(open, k)
			if e.Action == "fail" {
				fmt.Fprintf(s.out, "%s", text)
			}
			if e.Test == "" {
				packages++
				delete(started, e.Package)
				if e.Action != "pass" {
					continue
				}
				// A test program that runs none says so, except one that exits before it looks.
				if !began[e.Package] && !strings.Contains(text, "no tests to run") {
					wrong = append(wrong, fmt.Errorf("the test program of %s ended without its tests", e.Package))
				}
				cached := ""
				if strings.Contains(text, "(cached)") {
					cached = " (cached)"
				}
				fmt.Fprintf(s.out, "ok\t%s\t%.1fs%s\n", e.Package, e.Elapsed, cached)
				continue
			}
			if parents[k] && e.Action == "pass" {
				continue // its parts count
			}
			note(k, e.Action, text)
		}
	}
	// A test program that died did not say how its tests ended.
	unfinished := slices.SortedFunc(maps.Keys(open), func(a, b key) int {
		return cmp.Or(strings.Compare(a.pkg, b.pkg), strings.Compare(a.test, b.test))
	})
	for _, k := range unfinished {
		var text string
		if b := said[k]; b != nil {
			text = b.String()
		}
		fmt.Fprintf(s.out, "did not end: %s.%s\n%s", k.pkg, k.test, text)
		note(k, "fail", text)
	}
	// Go says that the last test passed, of a program that exits with 0 in its middle,
	// and says nothing of the package.
	for _, pkg := range slices.Sorted(maps.Keys(started)) {
		wrong = append(wrong, fmt.Errorf("the test program of %s ended in the middle of its tests", pkg))
	}
	if len(unfinished) > 0 {
		wrong = append(wrong, fmt.Errorf("%d tests did not end", len(unfinished)))
	}
	if failed > len(unfinished) {
		wrong = append(wrong, fmt.Errorf("%d tests failed", failed-len(unfinished)))
	}
	if packages == 0 {
		wrong = append(wrong, errors.New("no package was tested"))
	}
	return errors.Join(wrong...)
}

const module = "sandboxagent.dev/sandbox-agent/"

// goKind tells what a test proves something about.
func goKind(pkg, test string) string {
	pkg = strings.TrimPrefix(pkg, module)
	top, rest, _ := strings.Cut(test, "/")
	agent, isBridge := strings.CutPrefix(pkg, "adapters/")
	switch {
	case strings.HasPrefix(test, "TestChaos"):
		return "chaos"
	case strings.HasPrefix(test, "Fuzz"):
		return "fuzz seeds"
	case isBridge && top == "TestContract":
		return "contract"
	case isBridge && strings.HasPrefix(top, "TestLive_"):
		return "live " + agent
	case strings.HasPrefix(top, "TestReal_"), top == "TestMend_RealAgents":
		return "live " + agentOf(strings.ToLower(strings.TrimPrefix(top, "TestReal_")+"/"+rest))
	case strings.HasPrefix(pkg, "cmd/sandbox-"):
		return "end-to-end"
	}
	return "unit"
}

// agents have tests of their own; the first ones also a folder.
var agents = []string{"claude", "codex", "opencode", "amp", "pi", "gemini", "qwen", "copilot"}

// agentOf finds the agent in the name of a test.
func agentOf(name string) string {
	for _, a := range agents {
		for part := range strings.SplitSeq(name, "/") {
			if strings.HasPrefix(part, a) {
				return a
			}
		}
	}
	return "several"
}
