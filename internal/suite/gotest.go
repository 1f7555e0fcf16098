package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// plain matches the tests that run without the race detector in the normal tier:
// those that start real agents, whose time is the agents' own, and those that move
// much data through code that smaller tests run with it.
const plain = `^(TestLive_.*|TestReal_.*|TestContract|TestSettle_RealAgents` +
	`|TestContent_16MiBPrompt|TestContent_LargeChunks|TestFiles_LargeFileInLittleMemory|TestFiles_ManySmallFiles|TestInstallCLI_RealNPM)$`

// goRun is one call of go test.
type goRun struct {
	name     string
	args     []string
	packages []string
}

// ofRepository are packages whose tests look at the repository and at what is
// built from it: nothing of ours runs at the same time in them.
var ofRepository = []string{".", "./docs", "./internal/release", "./internal/mutate", "./internal/flaky", "./internal/suite"}

// goRuns are what the tier consists of. The long tier has the race detector
// everywhere. More tests with real agents begin than the machine has processors,
// since most of them wait: for their turn, for the agent, for the disk.
func (s *suite) goRuns(ctx context.Context) ([]goRun, error) {
	if s.long {
		return []goRun{{"long", []string{"-race", "-timeout", "3h"}, []string{"./..."}}}, nil
	}
	list := program(ctx, ".", "go", "list", "-f", "{{.ImportPath}}", "./...")
	out, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("list the packages: %w", err)
	}
	others := slices.DeleteFunc(strings.Fields(string(out)), func(path string) bool {
		return slices.ContainsFunc(ofRepository, func(p string) bool { return path == strings.TrimSuffix(module+strings.TrimPrefix(strings.TrimPrefix(p, "."), "/"), "/") })
	})
	return []goRun{
		{"plain", []string{"-run", plain, "-timeout", "40m", "-parallel", "6"}, []string{"./adapters/...", "./cmd/sandbox-agent"}},
		{"of the repository", []string{"-timeout", "20m"}, ofRepository},
		{"with the race detector", []string{"-race", "-skip", plain, "-timeout", "30m"}, others},
	}, nil
}

// event is a line of go test -json.
type event struct {
	Action, Package, Test, Output, ImportPath string

	Elapsed float64
}

// goTest runs go test and notes each test's result. What failed is printed with
// all that it said.
func (s *suite) goTest(ctx context.Context, run goRun) error {
	args := slices.Concat([]string{"test", "-json", "-tags", "countstarts"}, run.args, run.packages)
	cmd := program(ctx, ".", "go", args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.readGoTest(out)
	return cmd.Wait()
}

func (s *suite) readGoTest(out io.Reader) {
	type key struct{ pkg, test string }
	said := map[key]*strings.Builder{}
	parents := map[key]bool{}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Printf("%s\n", lines.Bytes())
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
			fmt.Print(e.Output)
		case "run":
			if i := strings.LastIndexByte(e.Test, '/'); i >= 0 {
				parents[key{e.Package, e.Test[:i]}] = true
			}
		case "pass", "fail", "skip":
			var text string
			if b := said[k]; b != nil {
				text = b.String()
			}
			delete(said, k)
			if e.Action == "fail" {
				fmt.Printf("%s", text)
			}
			if e.Test == "" {
				if e.Action == "pass" {
					fmt.Printf("ok\t%s\t%.1fs\n", e.Package, e.Elapsed)
				}
				continue
			}
			if parents[k] && e.Action == "pass" {
				continue // its parts count
			}
			s.note(result{kind: goKind(e.Package, e.Test), name: strings.TrimPrefix(e.Package, module) + "." + e.Test, outcome: e.Action, why: text})
		}
	}
	// A test program that died did not say how its tests ended.
	for k, b := range said {
		if k.test != "" {
			fmt.Printf("%s", b.String())
		}
	}
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
	case strings.HasPrefix(top, "TestReal_"), top == "TestSettle_RealAgents":
		return "live " + agentOf(strings.ToLower(strings.TrimPrefix(top, "TestReal_")+"/"+rest))
	case strings.HasPrefix(pkg, "cmd/"):
		return "end-to-end"
	}
	return "unit"
}

// agentOf finds the agent in the name of a test.
func agentOf(name string) string {
	for _, a := range []string{"claude", "codex", "opencode", "amp", "pi", "gemini", "qwen", "copilot"} {
		for part := range strings.SplitSeq(name, "/") {
			if strings.HasPrefix(part, a) {
				return a
			}
		}
	}
	return "several"
}
