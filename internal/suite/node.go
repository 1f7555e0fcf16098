package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// vitest is what its reporter "json" writes.
type vitest struct {
	Success     bool
	TestResults []struct {
		Name, Status     string
		Message          string // why it could not be loaded
		AssertionResults []struct {
			FullName, Status string
			FailureMessages  []string
		}
	}
}

// nodeTest runs the tests of a folder with env added to the environment, and notes
// each test's result.
func (s *suite) nodeTest(ctx context.Context, dir string, env []string) (usage, error) {
	var pkg struct{ Scripts map[string]string }
	b, err := os.ReadFile(filepath.Join(dir, "package.json"))
	if err == nil {
		err = json.Unmarshal(b, &pkg)
	}
	if err != nil {
		return 0, fmt.Errorf("look for its tests: %w", err)
	}
	if pkg.Scripts["test"] == "" {
		return 0, nil // Go's tests run what is in it
	}
	tmp, err := os.MkdirTemp("", "suite-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(tmp)
	file := filepath.Join(tmp, "results.json")
	used, ran := s.command(ctx, dir, env, "npm", "test", "--", "--reporter=default", "--reporter=json", "--outputFile.json="+file)
	b, err = os.ReadFile(file)
	if err != nil {
		return used, errors.Join(ran, fmt.Errorf("no results: %w", err))
	}
	var v vitest
	if err := json.Unmarshal(b, &v); err != nil {
		return used, errors.Join(ran, fmt.Errorf("read the results: %w", err))
	}
	if ran == nil && !v.Success { // the script of package.json has the last word on how npm exits
		ran = errors.New("the results tell of a failure")
	}
	for _, f := range v.TestResults {
		if f.Status == "failed" && len(f.AssertionResults) == 0 {
			ran = errors.Join(ran, fmt.Errorf("%s could not be loaded: %s", f.Name, begin(f.Message)))
		}
		rest := filepath.ToSlash(f.Name)
		if i := strings.LastIndex(rest, "/"+dir+"/"); i >= 0 { // folders above may have its name
			rest = rest[i+len(dir)+2:]
		}
		for _, a := range f.AssertionResults {
			r := result{kind: nodeKind(dir, rest), name: dir + "/" + rest + " " + a.FullName}
			switch a.Status {
			case "passed":
				r.outcome = "pass"
			case "failed":
				r.outcome, r.why = "fail", begin(strings.Join(a.FailureMessages, "\n"))
			default:
				r.outcome, r.why = "skip", begin(a.Status)
			}
			s.note(r)
		}
	}
	return used, ran
}

func nodeKind(dir, file string) string {
	if dir == "inspector" && strings.HasPrefix(file, "test/") || strings.Contains(file, "browser") {
		return "browser"
	}
	return "node"
}
