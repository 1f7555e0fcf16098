package main

import (
	_ "embed"
	"fmt"
	"strings"
)

//go:embed accepted.txt
var acceptedText string

// accepted is the list of survivors that are no fault of the tests: reasons by
// point.id.
type accepted map[string]string

// parseAccepted reads the list. Empty lines and lines that begin with # are
// comments.
func parseAccepted(text string) (accepted, error) {
	a := accepted{}
	for i, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		parts := strings.Split(line, " | ")
		if len(parts) != 5 || strings.TrimSpace(parts[4]) == "" {
			return nil, fmt.Errorf("line %d is not FILE | FUNCTION | KIND | CODE | REASON: %s", i+1, line)
		}
		id := strings.Join(parts[:4], " | ")
		if a[id] != "" {
			return nil, fmt.Errorf("line %d is there twice: %s", i+1, line)
		}
		a[id] = parts[4]
	}
	return a, nil
}

// stale returns the entries about the files of points that are none of them.
func (a accepted) stale(points []point) []string {
	files, ids := map[string]bool{}, map[string]bool{}
	for _, p := range points {
		files[p.file], ids[p.id()] = true, true
	}
	var out []string
	for id := range a {
		if file, _, _ := strings.Cut(id, " | "); files[file] && !ids[id] {
			out = append(out, id)
		}
	}
	return out
}
