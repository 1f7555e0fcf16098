package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// changes is one release of the list of changes.
type changes struct{ version, text string }

var releaseHeading = regexp.MustCompile(`(?m)^## (.*)$`)

// changesOf reads CHANGELOG.md and returns what it says of a version, or of the newest
// one if version is empty.
func changesOf(root, version string) (changes, error) {
	b, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		return changes{}, fmt.Errorf("read what has changed: %w", err)
	}
	found := releaseHeading.FindAllSubmatchIndex(b, -1)
	var known []string
	for i, at := range found {
		name := string(b[at[2]:at[3]])
		if !versionPattern.MatchString(name) {
			return changes{}, fmt.Errorf("CHANGELOG.md: the heading %q is not a version: use three numbers, such as 1.2.3", name)
		}
		known = append(known, name)
		if version != "" && name != version {
			continue
		}
		end := len(b)
		if i+1 < len(found) {
			end = found[i+1][0]
		}
		text := strings.TrimSpace(string(b[at[1]:end]))
		if text == "" {
			return changes{}, fmt.Errorf("CHANGELOG.md says nothing under %s: write what users notice", name)
		}
		return changes{name, text + "\n"}, nil
	}
	return changes{}, fmt.Errorf("CHANGELOG.md has no heading ## %s; it has %s", version, strings.Join(known, ", "))
}
