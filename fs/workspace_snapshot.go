package fs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Snapshot is a workspace as one machine has given it to another. What each of the two
// has changed since is what differs from it there.
type Snapshot struct {
	Git    bool
	Branch string // "" when none was checked out
	Commit string // "" before the first
	// Files says what was at each path: the SHA-256 of a file's content behind "-", or "x"
	// when it can be run, and of where a link leads behind "l".
	Files map[string]string
	// Index has git's entries of each path, as git ls-files --stage has them.
	Index map[string]string
}

// snapshotBegins is how the text of a snapshot begins, with its version.
const snapshotBegins = "sandbox-agent workspace 1\x00"

// MaxSnapshot bounds the text of a snapshot. A larger workspace has none.
const MaxSnapshot = 64 << 20

// snapshotHead is what a snapshot says beside its files.
type snapshotHead struct {
	Git    bool   `json:"git"`
	Branch string `json:"branch,omitempty"`
	Commit string `json:"commit,omitempty"`
}

// Text returns the snapshot as [ParseSnapshot] reads it, nil when that is too large.
func (s *Snapshot) Text() ([]byte, error) {
	head, err := json.Marshal(snapshotHead{s.Git, s.Branch, s.Commit})
	if err != nil {
		return nil, fmt.Errorf("encode a workspace's snapshot: %w", err)
	}
	size := len(snapshotBegins) + len(head) + 1
	for _, of := range []map[string]string{s.Files, s.Index} {
		for path, state := range of {
			size += len("f") + len(state) + len("\t") + len(path) + 1
		}
	}
	if size > MaxSnapshot {
		return nil, nil
	}
	b := bytes.NewBuffer(make([]byte, 0, size))
	b.WriteString(snapshotBegins)
	b.Write(append(head, 0))
	for i, of := range []map[string]string{s.Files, s.Index} {
		for _, path := range slices.Sorted(maps.Keys(of)) {
			b.WriteString("fi"[i : i+1])
			b.WriteString(of[path])
			b.WriteByte('\t')
			b.WriteString(path)
			b.WriteByte(0)
		}
	}
	return b.Bytes(), nil
}

// ParseSnapshot reads the text of a snapshot.
func ParseSnapshot(b []byte) (*Snapshot, error) {
	rest, ok := strings.CutPrefix(string(b), snapshotBegins)
	head, rest, whole := strings.Cut(rest, "\x00")
	var h snapshotHead
	if !ok || !whole || json.Unmarshal([]byte(head), &h) != nil || h.Commit != "" && !isObjectName(h.Commit) {
		return nil, failf(Refused, "what the workspace was before cannot be read")
	}
	s := &Snapshot{Git: h.Git, Branch: h.Branch, Commit: h.Commit, Files: map[string]string{}, Index: map[string]string{}}
	for rest != "" {
		line, more, whole := strings.Cut(rest, "\x00")
		state, path, ok := strings.Cut(line, "\t")
		if !whole || !ok || len(state) < 2 || !plainPath(path) {
			return nil, failf(Refused, "what the workspace was before has the entry %.200q, which is none", line)
		}
		switch state[0] {
		case 'f':
			s.Files[path] = state[1:]
		case 'i':
			s.Index[path] = state[1:]
		default:
			return nil, failf(Refused, "what the workspace was before has the entry %.200q, which is none", line)
		}
		rest = more
	}
	return s, nil
}

// indexByPath orders what git ls-files --stage -z says by paths.
func indexByPath(listed []byte) (map[string]string, error) {
	by := map[string]string{}
	for line := range strings.SplitSeq(strings.TrimSuffix(string(listed), "\x00"), "\x00") {
		if line == "" {
			continue
		}
		m := staged().FindString(line)
		if m == "" {
			return nil, failf(Refused, "the index has the entry %.200q, which is not understood", line)
		}
		path, entry := line[len(m):], strings.TrimSuffix(m, "\t")
		if by[path] != "" { // a path in conflict has up to three
			entry = by[path] + "," + entry
		}
		by[path] = entry
	}
	return by, nil
}

// without leaves out files that are here still and were not taken along: they were not
// removed.
func (s *Snapshot) without(top *os.Root, taken map[string]bool) {
	for path := range s.Files {
		if taken[path] {
			continue
		}
		if info, err := top.Lstat(filepath.FromSlash(path)); !nothingThere(err) && (err != nil || !info.IsDir()) {
			delete(s.Files, path)
		}
	}
}
