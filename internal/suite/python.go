package main

import (
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/internal/agentcache"
)

// pythonDir is the folder whose tests pytest runs, in the environment that the
// task python:deps has made there.
const pythonDir = "sdk-py"

// junit is what pytest writes with --junitxml.
type junit struct {
	Cases []struct {
		Class    string  `xml:"classname,attr"`
		Name     string  `xml:"name,attr"`
		Failures []ended `xml:"failure"`
		Errors   []ended `xml:"error"` // before the test, or behind it
		Skipped  *ended  `xml:"skipped"`
	} `xml:"testsuite>testcase"`
}

// ended is why a test did not pass.
type ended struct {
	Message string `xml:"message,attr"`
	Text    string `xml:",chardata"` // with the lines of code
}

// pythonTest runs the tests of a folder with env added to the environment, and
// notes each test's result.
func (s *suite) pythonTest(ctx context.Context, dir string, env []string) (usage, error) {
	tmp, err := os.MkdirTemp("", "suite-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(tmp)
	file := filepath.Join(tmp, "results.xml")
	python, err := filepath.Abs(filepath.Join(dir, ".venv", "bin", "python"))
	if err != nil {
		return 0, err
	}
	// The type checker keeps there what it knows of each module: it reads what has changed only, in any clone.
	cache, err := agentcache.Dir()
	if err != nil {
		return 0, err
	}
	env = slices.Concat(env, []string{"MYPY_CACHE_DIR=" + filepath.Join(cache, "mypy")})
	used, ran := s.command(ctx, dir, env, python, "-m", "pytest", "-q", "--tb=short", "--junitxml="+file)
	b, err := os.ReadFile(file)
	if err != nil {
		return used, errors.Join(ran, fmt.Errorf("no results: %w", err))
	}
	var results junit
	if err := xml.Unmarshal(b, &results); err != nil {
		return used, errors.Join(ran, fmt.Errorf("read the results: %w", err))
	}
	for _, c := range results.Cases {
		r := result{kind: "python", name: dir + "/" + c.Class + " " + c.Name, outcome: "pass"}
		switch {
		case len(c.Failures)+len(c.Errors) > 0:
			r.outcome = "fail"
			for _, f := range slices.Concat(c.Failures, c.Errors) {
				r.why += begin(cmp.Or(strings.TrimSpace(f.Text), f.Message))
			}
			if ran == nil {
				ran = fmt.Errorf("%s failed, and pytest does not tell", c.Name)
			}
		case c.Skipped != nil:
			r.outcome, r.why = "skip", begin(c.Skipped.Message)
		}
		s.note(r)
	}
	return used, ran
}
