package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/group"
)

const (
	shortest = 5 * time.Second  // the least that a run is given
	longest  = 10 * time.Second // what a run is given besides twice its time, when ten times that is more
	quick    = time.Second      // tests that are faster run first
	baseline = 10 * time.Minute // the most that one test is given without a change
	patience = 2 * time.Second  // for what a killed run leaves behind to close its output
)

// test is a test of the package.
type test struct {
	name string
	took time.Duration // without a change
}

// tests runs each test by itself, and notes which points it reaches: by point.
func (b *built) tests(ctx context.Context) (map[int][]test, error) {
	names, err := b.run(ctx, baseline, nil, "-test.list", ".")
	if err != nil {
		return nil, fmt.Errorf("list the tests: %w", err)
	}
	reached := map[int][]test{}
	for _, name := range regexp.MustCompile(`(?m)^(?:Test|Fuzz|Example)\S*$`).FindAllString(string(names), -1) {
		notes := filepath.Join(b.work, "reached")
		began := time.Now()
		out, err := b.run(ctx, baseline, []string{"MUTANT_REACHED=" + notes}, "-test.short", "-test.paniconexit0", "-test.run", "^"+regexp.QuoteMeta(name)+"$")
		if err != nil {
			return nil, fmt.Errorf("%s fails without a change: %w\n%s", name, err, out)
		}
		t := test{name, time.Since(began)}
		raw, err := os.ReadFile(notes)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("read what %s reaches: %w", name, err)
		}
		_ = os.Remove(notes)
		seen := map[int]bool{} // a test may start processes, which reach the same
		for line := range strings.FieldsSeq(string(raw)) {
			n, err := strconv.Atoi(line)
			if err == nil && !seen[n] {
				seen[n] = true
				reached[n] = append(reached[n], t)
			}
		}
	}
	return reached, nil
}

// survives reports whether the tests that reach a point pass with its change.
func (b *built) survives(ctx context.Context, n int, by []test) (bool, error) {
	by = slices.Clone(by)
	slices.SortStableFunc(by, func(a, b test) int { return int(a.took - b.took) })
	half, fast := len(by)/2, len(by)
	for fast > 0 && by[fast-1].took >= quick {
		fast--
	}
	half = min(half, fast)
	for _, some := range [][]test{by[:half], by[half:fast], by[fast:]} { // most changes are found by some fast test
		if len(some) == 0 {
			continue
		}
		if ok, err := b.pass(ctx, n, some); err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

// pass reports whether tests pass with a change, in time.
func (b *built) pass(ctx context.Context, n int, tests []test) (bool, error) {
	var names []string
	took := time.Duration(0)
	for _, t := range tests {
		names = append(names, regexp.QuoteMeta(t.name))
		took += t.took
	}
	limit := max(shortest, min(10*took, longest+2*took))
	_, err := b.run(ctx, limit, []string{"MUTANT=" + strconv.Itoa(n)}, "-test.short", "-test.failfast", "-test.paniconexit0", "-test.run", "^("+strings.Join(names, "|")+")$")
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, exec.ErrWaitDelay) {
		return false, fmt.Errorf("run the tests: %w", err)
	}
	return err == nil, nil
}

// run runs the test binary in the folder of the package. What it started ends with it.
func (b *built) run(ctx context.Context, limit time.Duration, environ []string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	temp, err := os.MkdirTemp(b.work, "tmp-")
	if err != nil {
		return nil, fmt.Errorf("make a folder: %w", err)
	}
	defer func() { _ = os.RemoveAll(temp) }()
	cmd := exec.CommandContext(ctx, b.binary, args...)
	cmd.Dir, cmd.WaitDelay = b.from.Dir, patience
	cmd.Env = append(append(os.Environ(), "TMPDIR="+temp), environ...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err = group.Run(cmd)
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return out.Bytes(), err
}

// result is what became of one change.
type result struct {
	point
	killed  bool
	reached bool
}

// try runs the tests for each of the points, parallel at a time.
func (b *built) try(ctx context.Context, points []point, reached map[int][]test, parallel int, done func(result)) ([]result, error) {
	results := make([]result, len(points))
	errs := make([]error, len(points))
	var work sync.WaitGroup
	var mu sync.Mutex
	next := make(chan int)
	for range parallel {
		work.Go(func() {
			for i := range next {
				r := result{point: points[i]}
				by := reached[r.n]
				if r.reached = len(by) > 0; r.reached {
					alive, err := b.survives(ctx, r.n, by)
					r.killed, errs[i] = !alive, err
				}
				results[i] = r
				mu.Lock()
				done(r)
				mu.Unlock()
			}
		})
	}
	for i := range points {
		next <- i
	}
	close(next)
	work.Wait()
	return results, errors.Join(errs...)
}
