package fs

import (
	"bytes"
	"context"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// GitStatus is what git says of a folder.
type GitStatus struct {
	Root      string    `json:"root"`               // of the work tree
	Branch    string    `json:"branch,omitempty"`   // absent when no branch is checked out
	Commit    string    `json:"commit,omitempty"`   // absent before the first
	Upstream  string    `json:"upstream,omitempty"` // branch
	Ahead     int       `json:"ahead"`
	Behind    int       `json:"behind"`
	Files     []GitFile `json:"files"`
	Truncated bool      `json:"truncated"` // there are more files
	// Recent are commits by which another repository finds what this one has: those of
	// branches, and some of those before the one that is checked out. Only if asked for.
	Recent []string `json:"recent,omitempty"`
}

// GitFile is a file that is not as it was committed. Index and WorkTree are
// git's letters: M modified, A added, D deleted, R renamed, C copied, T of
// another type, U not merged, ? not known, "." as it was.
type GitFile struct {
	Path     string `json:"path"` // absolute
	RawPath  []byte `json:"rawPath,omitempty"`
	Index    string `json:"index"`
	WorkTree string `json:"workTree"`
	From     string `json:"from,omitempty"` // the old path of what was renamed or copied
}

// GitStatus says what differs from what was committed, below path.
func (s *Service) GitStatus(ctx context.Context, path string) (GitStatus, error) {
	g, err := s.repository(ctx, path)
	if err != nil {
		return GitStatus{}, err
	}
	defer g.end()
	out, cut, err := g.run(ctx, "status", "--porcelain=v2", "--branch", "-z", "--untracked-files=all", "--ignore-submodules=dirty", "--", ".")
	if err != nil {
		return GitStatus{}, err
	}
	st := parseStatus(g.root, out, cut)
	return st, nil
}

const (
	maxTips   = 64   // branches whose commits are told, those that changed last
	maxBefore = 4096 // how far back commits are told, at 1, 2, 4, 8, ... before the last
)

// GitRecent returns commits by which another repository finds what that of a folder has:
// those of branches, and some of those before the commit head.
func (s *Service) GitRecent(ctx context.Context, path, head string) ([]string, error) {
	if head == "" {
		return nil, nil
	}
	g, err := s.repository(ctx, path)
	if err != nil {
		return nil, err
	}
	defer g.end()
	before, _, err := g.run(ctx, "rev-list", "--first-parent", "-n", strconv.Itoa(maxBefore), "--end-of-options", head)
	if err != nil {
		return nil, err
	}
	real := *g
	real.env = gitEnvironment()
	tips, _, err := real.run(ctx, "for-each-ref", "--count="+strconv.Itoa(maxTips), "--sort=-committerdate", "--format=%(objectname)", "refs/heads")
	if err != nil {
		return nil, err
	}
	all := strings.Fields(string(before))
	var out []string
	for i := 0; i < len(all); i = max(1, 2*i) {
		out = append(out, all[i])
	}
	if len(all) > 0 && len(all) < maxBefore {
		out = append(out, all[len(all)-1])
	}
	for _, tip := range strings.Fields(string(tips)) {
		if !slices.Contains(out, tip) {
			out = append(out, tip)
		}
	}
	return slices.Compact(out), nil
}

// DiffOptions say what is compared.
type DiffOptions struct {
	Staged bool   // what is in the index with the last commit
	Base   string // a commit to compare the files with; "" is the index
	Binary bool   // the content of files that are no text, too; otherwise they are only named
}

// GitDiff returns a patch of what differs below path, also of files that git does not know and
// does not ignore: they are new. cut says that it was longer than what is returned.
func (s *Service) GitDiff(ctx context.Context, path string, o DiffOptions) (patch []byte, cut bool, err error) {
	if strings.HasPrefix(o.Base, "-") || strings.IndexByte(o.Base, 0) >= 0 {
		return nil, false, failf(Invalid, "%q names no commit", o.Base)
	}
	dir := path
	spec := "."
	if e, err := s.Stat(path, true); err != nil || e.Type != Directory {
		dir, spec = filepath.Dir(path), ":(literal)"+filepath.Base(path)
	}
	g, err := s.repository(ctx, dir)
	if err != nil {
		return nil, false, err
	}
	defer g.end()
	args := []string{"diff", "--no-ext-diff", "--no-textconv", "--no-color", "--submodule=short", "--ignore-submodules=dirty"}
	if o.Binary {
		args = append(args, "--binary")
	}
	if o.Staged {
		args = append(args, "--cached")
	} else if err := g.knowAll(ctx, spec); err != nil {
		return nil, false, err
	}
	if o.Base != "" {
		commit, err := g.commit(ctx, o.Base)
		if err != nil {
			return nil, false, failf(Invalid, "%q names no commit of %s", o.Base, g.root)
		}
		args = append(args, commit)
	}
	return g.run(ctx, append(args, "--", spec)...)
}

// parseStatus reads git's porcelain format, version 2, with zero bytes.
func parseStatus(root string, out []byte, cut bool) GitStatus {
	st := GitStatus{Root: root, Files: []GitFile{}, Truncated: cut}
	if cut {
		out = out[:bytes.LastIndexByte(out, 0)+1]
	}
	records := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	add := func(xy, path, from string) {
		if len(xy) != 2 {
			return
		}
		f := GitFile{Path: filepath.Join(root, filepath.FromSlash(path)), Index: xy[:1], WorkTree: xy[1:]}
		if from != "" {
			f.From = filepath.Join(root, filepath.FromSlash(from))
		}
		if !utf8.ValidString(f.Path) {
			f.RawPath = []byte(f.Path)
		}
		st.Files = append(st.Files, f)
	}
	for i := 0; i < len(records); i++ {
		kind, rest, _ := strings.Cut(records[i], " ")
		switch kind {
		case "#":
			st.header(rest)
		case "1": // XY sub mH mI mW hH hI path
			if p := strings.SplitN(rest, " ", 8); len(p) == 8 {
				add(p[0], p[7], "")
			}
		case "2": // XY sub mH mI mW hH hI score path, and the old path
			if p := strings.SplitN(rest, " ", 9); len(p) == 9 && i+1 < len(records) {
				i++
				add(p[0], p[8], records[i])
			}
		case "u": // XY sub m1 m2 m3 mW h1 h2 h3 path
			if p := strings.SplitN(rest, " ", 10); len(p) == 10 {
				add(p[0], p[9], "")
			}
		case "?":
			add("??", rest, "")
		}
	}
	return st
}

func (st *GitStatus) header(line string) {
	name, v, _ := strings.Cut(line, " ")
	switch name {
	case "branch.oid":
		if v != "(initial)" {
			st.Commit = v
		}
	case "branch.head":
		if v != "(detached)" {
			st.Branch = v
		}
	case "branch.upstream":
		st.Upstream = v
	case "branch.ab":
		ahead, behind, _ := strings.Cut(v, " ")
		a, _ := strconv.Atoi(ahead)
		b, _ := strconv.Atoi(behind)
		st.Ahead, st.Behind = a, -b
	}
}
