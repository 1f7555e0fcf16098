// Command flaky looks for tests that fail now and then: it repeats the tests of
// packages while all processors are busy with something else, with and without
// the race detector.
//
//	./task flaky -- ./acp/...
//	COUNT=10 ./task flaky -- -run TestFollow ./runtime/journal
//
// All failures are reported; it fails if there is one, and if no test ran.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/group"
)

// options are the flags.
type options struct {
	count    int
	run      string // of go test
	short    bool
	timeout  time.Duration // of one package in one mode
	packages []string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var o options
	flag.IntVar(&o.count, "count", 50, "how often each test is run, with the race detector and without")
	flag.StringVar(&o.run, "run", "", "only tests whose names match")
	flag.BoolVar(&o.short, "short", false, "the short form of the tests")
	flag.DurationVar(&o.timeout, "timeout", time.Hour, "the most that all runs of a package take, with the race detector or without")
	flag.Parse()
	if o.packages = flag.Args(); len(o.packages) == 0 || o.count < 1 {
		fmt.Fprintln(os.Stderr, "usage: flaky [flags] PACKAGE...")
		flag.PrintDefaults()
		os.Exit(2)
	}
	failed, err := run(ctx, o, os.Stdout)
	if err != nil {
		fmt.Fprintln(os.Stderr, "flaky:", err)
	}
	if failed || err != nil {
		stop()
		os.Exit(1)
	}
}

// run runs the tests of all packages, one package after another. It reports
// whether one failed. It is an error when there was none in any of them.
func run(ctx context.Context, o options, out io.Writer) (failed bool, err error) {
	cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}\t{{.Dir}}{{end}}"}, o.packages...)...)
	cmd.Stderr = os.Stderr
	list, err := cmd.Output()
	if err != nil {
		return false, fmt.Errorf("list the packages: %w", err)
	}
	ran := false
	for line := range strings.Lines(string(list)) {
		path, dir, ok := strings.Cut(strings.TrimSpace(line), "\t")
		if !ok {
			continue
		}
		for _, race := range []bool{false, true} {
			ended, err := repeat(ctx, o, path, dir, race, out)
			if err != nil {
				return failed, err
			}
			failed = failed || ended == bad
			ran = ran || ended != none
		}
	}
	if !ran {
		return failed, errors.New("there was no test to run")
	}
	return failed, nil
}

// repeat runs the tests of a package under load.
func repeat(ctx context.Context, o options, path, dir string, race bool, out io.Writer) (outcome, error) {
	work, err := os.MkdirTemp("", "flaky-")
	if err != nil {
		return bad, fmt.Errorf("make a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	binary := filepath.Join(work, "test")
	build := []string{"test", "-c", "-o", binary}
	mode := "without the race detector"
	if race {
		build, mode = append(build, "-race"), "with the race detector"
	}
	cmd := exec.CommandContext(ctx, "go", append(build, path)...)
	if race {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	}
	if text, err := cmd.CombinedOutput(); err != nil {
		return bad, fmt.Errorf("build the tests of %s: %w\n%s", path, err, text)
	}
	defer burn()()
	began := time.Now()
	text, ended, err := attempt(ctx, o, binary, dir)
	if err != nil {
		return bad, err
	}
	word := map[outcome]string{passed: "ok    ", none: "none  ", bad: "FAILED"}[ended]
	fmt.Fprintf(out, "%s %s, %d times %s, %v\n", word, path, o.count, mode, time.Since(began).Round(time.Second))
	if ended == bad {
		for _, name := range names(text) {
			fmt.Fprintf(out, "  %s\n", name)
		}
		fmt.Fprintf(out, "%s\n", text)
	}
	return ended, nil
}

// outcome is how the runs of a package ended.
type outcome int

const (
	passed outcome = iota
	none           // there was no test to run
	bad
)

const (
	late     = time.Minute     // how long a program may go on that should have ended itself
	patience = 5 * time.Second // for output that is still open when the program has ended
)

// attempt runs a test program. It passes when it says so: one may also exit with 0 in the middle of a test.
func attempt(ctx context.Context, o options, binary, dir string) (text []byte, ended outcome, err error) {
	args := []string{"-test.count", strconv.Itoa(o.count), "-test.timeout", o.timeout.String(), "-test.run", o.run, "-test.paniconexit0"}
	if o.short {
		args = append(args, "-test.short")
	}
	bounded, cancel := context.WithTimeout(ctx, o.timeout+late)
	defer cancel()
	cmd := exec.CommandContext(bounded, binary, args...)
	var said bytes.Buffer
	cmd.Dir, cmd.WaitDelay, cmd.Stdout, cmd.Stderr = dir, patience, &said, &said
	err = group.Run(cmd)
	switch text := said.Bytes(); {
	case ctx.Err() != nil:
		return nil, bad, ctx.Err()
	case err != nil:
		return fmt.Appendf(text, "\n%v\n", err), bad, nil
	case bytes.Contains(text, []byte("testing: warning: no tests to run\n")):
		return text, none, nil
	case !saysPass.Match(text):
		return fmt.Appendf(text, "\nit exited before its tests had ended\n"), bad, nil
	default:
		return text, passed, nil
	}
}

var saysPass = regexp.MustCompile(`(?m)PASS$`)

// names returns what failed and how often.
func names(output []byte) []string {
	count := map[string]int{}
	var order []string
	for line := range bytes.Lines(output) {
		name, ok := strings.CutPrefix(strings.TrimSpace(string(line)), "--- FAIL: ")
		if !ok {
			continue
		}
		name, _, _ = strings.Cut(name, " ")
		if count[name]++; count[name] == 1 {
			order = append(order, name)
		}
	}
	slices.Sort(order)
	for i, name := range order {
		order[i] = fmt.Sprintf("%d times %s", count[name], name)
	}
	return order
}

// burn keeps all processors busy until the returned function is called.
func burn() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	for range goruntime.GOMAXPROCS(0) {
		work.Go(func() {
			for ctx.Err() == nil {
			}
		})
	}
	return func() {
		cancel()
		work.Wait()
	}
}
