package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/agentcache"
	"sandboxagent.dev/sandbox-agent/internal/programs"
	"sandboxagent.dev/sandbox-agent/internal/scratch"
)

// suite is one run: its parts note what they saw.
type suite struct {
	long  bool
	bound time.Duration // of each part, 0 for none
	task  string        // the task runner, for the linters
	node  []string      // folders with tests that Node.js runs
	out   io.Writer     // what it says

	mu      sync.Mutex
	results []result
	failed  []string // names of parts
}

func main() {
	s := &suite{out: os.Stdout}
	flag.BoolVar(&s.long, "long", false, "run the long tier")
	flag.StringVar(&s.task, "task", "task", "the task runner, for the linters")
	node := flag.String("node", "", "folders with Node.js tests, separated by blanks")
	check := flag.Bool("check", false, "run the short tests of what has changed, and nothing else")
	flag.Parse()
	s.node = strings.Fields(*node)
	if !s.long { // that one is for what a disk does, too
		s.bound = mostOfAPart
		scratch.Enter()
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go whileParentLives(ctx, cancel)
	run := s.all
	if *check {
		run = s.check
	}
	err := run(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
	}
	if err != nil || len(s.failed) > 0 {
		os.Exit(1)
	}
}

// markVar tells the processes of a run from all others. No test looks at it: Go
// would run each one again that does.
const markVar = "SANDBOX_AGENT_TEST_RUN"

// whileParentLives cancels when the program that started this one is gone: go run
// and the task runner do not pass on each signal that ends them.
func whileParentLives(ctx context.Context, cancel func()) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for parent := os.Getppid(); os.Getppid() == parent; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
	cancel()
}

// all runs every part and reports. Whatever fails, the others run: one run tells
// everything that is wrong.
func (s *suite) all(ctx context.Context) error {
	serving, leave := context.WithCancel(ctx)
	defer leave()
	if _, err := agentcache.Serve(serving); err != nil {
		return err
	}
	end, err := s.endWith(ctx)
	if err != nil {
		return err
	}
	defer end()
	dir, err := agentcache.Dir()
	if err != nil {
		return err
	}
	// Its path never changes, because Go reuses a test's result only while its
	// environment is the same.
	starts := filepath.Join(dir, "starts.txt")
	if err := os.WriteFile(starts, nil, 0o600); err != nil {
		return fmt.Errorf("begin to count the starts of agents: %w", err)
	}
	if err := os.Setenv(startsVar, starts); err != nil {
		return err
	}
	// Agents that Node.js runs are compiled once, and not at each start.
	if err := os.Setenv("NODE_COMPILE_CACHE", filepath.Join(dir, "compiled")); err != nil {
		return err
	}
	if agents := changedAgents(ctx); agents != "" {
		fmt.Fprintf(s.out, "changed, so with their long tier: %s\n", agents)
		if err := os.Setenv(agentcache.LongAgentsVar, agents); err != nil {
			return err
		}
	}
	// A program with the race detector sleeps a second before it exits, otherwise.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil {
		return err
	}
	if err := linkCounting(); err != nil {
		return err
	}
	if s.long {
		if err := os.Setenv("SANDBOX_AGENT_LONG", "1"); err != nil {
			return err
		}
	}
	verb := func(name string) {
		s.part(name, func() (usage, error) { return s.command(ctx, ".", nil, s.task, name) })
	}
	lint := func() {
		c := behind([]string{s.task, "lint"})
		s.part("lint", func() (usage, error) { return s.command(ctx, ".", programs.CollectLate, c[0], c[1:]...) })
	}
	// It writes files that the others of the run read. In the normal tier each file that is
	// generated has a test that compares it.
	if s.long {
		verb("generate:check")
	}
	goRuns, err := s.goRuns(ctx)
	if err != nil {
		s.part("go test", func() (usage, error) { return 0, err })
	}
	// Four things at a time, of which those that take longest begin first. Those that wait for agents, browsers or
	// sockets leave time of the processors, and two that compute have it from the beginning: what begins last
	// and computes alone leaves all but one of the processors idle.
	next := make(chan func())
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for part := range next {
				part()
			}
		})
	}
	finish := sync.OnceFunc(func() {
		close(next)
		workers.Wait()
	})
	defer finish()
	folder, err := programsFolder(dir)
	if err != nil {
		return err
	}
	var built bool
	var parts []func()
	for _, run := range goRuns {
		part := func() { s.part("go test "+run.name, func() (usage, error) { return s.goTest(ctx, run) }) }
		if run.early {
			next <- part
			continue
		}
		parts = append(parts, func() {
			if built {
				run.env = append(run.env, programs.FolderVar+"="+folder)
			}
			part()
		})
	}
	// On an empty machine these wait for the network.
	var prepared sync.WaitGroup
	prepared.Go(func() {
		verb("node:deps")
		verb("inspector:build")
	})
	prepared.Go(func() {
		verb("python:deps") // both may use the system's packages, of which one is installed at a time
		verb("tmux:deps")
	})
	prepared.Wait()
	built = s.build(ctx, folder)
	with := func(name, dir string, test func(ctx context.Context, dir string, env []string) (usage, error)) {
		parts = append(parts, func() {
			s.part(name+" in "+dir, func() (usage, error) {
				if !built {
					return 0, errNotBuilt
				}
				return test(ctx, dir, []string{
					"SANDBOX_AGENT_BIN=" + filepath.Join(folder, programs.Gateway), "SANDBOX_HUB_BIN=" + filepath.Join(folder, programs.Hub),
				})
			})
		})
	}
	for _, dir := range s.node {
		with("npm test", dir, s.nodeTest)
	}
	with("pytest", pythonDir, s.pythonTest)
	for _, part := range append(parts, lint) {
		next <- part
	}
	finish()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if s.long { // the machine does nothing else by now
		s.part("bench", func() (usage, error) {
			return s.command(ctx, ".", nil, "go", "run", "./internal/load", "-history", filepath.Join(dir, "bench.txt"))
		})
	}
	s.part("report", func() (usage, error) { return 0, s.report(s.out, starts) })
	return nil
}

// one runs one command, and ends all that it has started.
func (s *suite) one(ctx context.Context, command []string) error {
	end, err := s.endWith(ctx)
	if err != nil {
		return err
	}
	defer end()
	_, err = s.command(ctx, ".", programs.CollectLate, command[0], command[1:]...)
	return err
}

// endWith marks all processes that are started from now on, and ends them with ctx. What is left at the end of the run
// is told and ended by end.
func (s *suite) endWith(ctx context.Context) (end func(), err error) {
	mark := strconv.Itoa(os.Getpid()) + "-" + strconv.FormatInt(time.Now().UnixNano(), 36)
	if err := os.Setenv(markVar, mark); err != nil {
		return nil, err
	}
	return s.endMarked(ctx, markVar+"="+mark, grace), nil
}

// endMarked is endWith for processes with a mark in their environment.
func (s *suite) endMarked(ctx context.Context, mark string, grace time.Duration) (end func()) {
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		endAll(mark, grace)
	})
	return func() {
		if !stop() {
			<-ended
			return
		}
		// Only a word: what a tool leaves behind, as one that looks for a newer version of itself, is no failure of a test.
		for _, process := range left(mark) {
			fmt.Fprintf(s.out, "left by the run, and ended: %s\n", process)
		}
		endAll(mark, settles)
	}
}

// linkCounting has all that the run builds, also below its tests, linked as what counts starts. It is compiled as
// everything else is, and what is compiled is used again, also by others. How it is built is said in ./task; Go takes
// the last of two flags with one name.
func linkCounting() error {
	flags := "-ldflags=-s -X=" + module + "internal/process.startsVar=" + startsVar
	return os.Setenv("GOFLAGS", strings.TrimSpace(os.Getenv("GOFLAGS")+" '"+flags+"'"))
}

// errNotBuilt fails what tests the gateway and the hub that the part "build" makes.
var errNotBuilt = errors.New("there is nothing to test: the build has failed")

// programsFolder is where in the cache a run of this copy of the repository has its gateway and hub. Its path never changes,
// as that of the file of starts; what has not changed is not linked again.
func programsFolder(cache string) (string, error) {
	here, err := os.Getwd()
	if err != nil {
		return "", err
	}
	hash := fnv.New64a()
	hash.Write([]byte(here))
	return filepath.Join(cache, programs.Folder, strconv.FormatUint(hash.Sum64(), 36)), nil
}

// forgetPrograms removes what was built of copies of the repository that nobody has tested for a week, and notes that the one with
// this folder is tested now. What cannot be removed is left for another run.
func forgetPrograms(folder string, now time.Time) {
	_ = os.Chtimes(folder, now, now)
	others, _ := filepath.Glob(filepath.Join(filepath.Dir(folder), "*"))
	for _, other := range others {
		if info, err := os.Stat(other); err == nil && now.Sub(info.ModTime()) > 7*24*time.Hour {
			_ = os.RemoveAll(other)
		}
	}
}

// build makes the gateway and the hub in a folder, with the page in them, for the tests that begin then. It reports whether
// that succeeded.
func (s *suite) build(ctx context.Context, folder string) (built bool) {
	s.part("build", func() (usage, error) {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return 0, err
		}
		forgetPrograms(folder, time.Now())
		used, err := s.command(ctx, ".", programs.CollectLate, "go", "build", "-o", folder+"/", "./cmd/"+programs.Gateway, "./cmd/"+programs.Hub)
		built = err == nil
		return used, err
	})
	return built
}

// changedAgents names the agents below whose folders something was changed since
// the branch that this one follows. Without such a branch nothing was.
func changedAgents(ctx context.Context) string {
	git := func(args ...string) string {
		out, err := program(ctx, ".", "git", args...).Output()
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(out))
	}
	base := git("merge-base", "HEAD", "@{upstream}")
	if base == "" {
		return ""
	}
	changed := git("diff", "--name-only", base, "--", "adapters") + "\n" +
		git("ls-files", "--others", "--exclude-standard", "--", "adapters")
	found := map[string]bool{}
	for path := range strings.Lines(changed) {
		parts := strings.Split(path, "/")
		if len(parts) > 2 && slices.Contains(agents, parts[1]) {
			found[parts[1]] = true
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(found)), " ")
}

// usage is the processor time of a command and of all that it waited for.
type usage time.Duration

func usageOf(cmd *exec.Cmd) usage {
	if cmd.ProcessState == nil {
		return 0
	}
	return usage(cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime())
}

// part runs a part and says how it ended.
func (s *suite) part(name string, run func() (usage, error)) {
	began := time.Now()
	used, err := run()
	took := fmt.Sprintf("%.0fs, processor %.0fs", time.Since(began).Seconds(), time.Duration(used).Seconds())
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.failed = append(s.failed, name)
		fmt.Fprintf(s.out, "FAIL: %s, %s: %v\n", name, took, err)
		return
	}
	fmt.Fprintf(s.out, "passed: %s, %s\n", name, took)
}

// mostOfAPart is how long a part of the normal tier may take. What hangs fails the run then, and
// what the other parts have found is still told.
const mostOfAPart = time.Hour

// grace is how long a program may take to end after it was interrupted.
const grace = 20 * time.Second

// settles is how long that may take which nobody waits for: to end by itself, and then after it was interrupted.
const settles = 2 * time.Second

// program returns a command that ends with ctx: interrupted first, for it has
// processes of its own to end.
func program(ctx context.Context, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Stderr = dir, os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = grace
	return cmd
}

// command runs a program with env added to the environment.
func (s *suite) command(ctx context.Context, dir string, env []string, name string, args ...string) (usage, error) {
	bounded, cancel := ctx, func() {}
	if s.bound > 0 {
		bounded, cancel = context.WithTimeout(ctx, s.bound)
	}
	defer cancel()
	cmd := program(bounded, dir, name, args...)
	cmd.Stdout, cmd.Env = s.out, append(os.Environ(), env...)
	err := cmd.Run()
	if bounded.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("it had not ended after %v, so it was ended: %w", s.bound, err)
	}
	return usageOf(cmd), err
}
