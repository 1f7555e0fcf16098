package fs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// git runs git as a user would, without that user's configuration.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	out, err := runGit(t.Context(), dir, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// runGit is git for goroutines. Exit code 1 is no failure: it says that things differ.
func runGit(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && !(ok && exit.ExitCode() == 1) {
		return "", fmt.Errorf("git %q: %w\n%s", args, err, &stderr)
	}
	return string(out), nil
}

func paths(t *testing.T, s *Service, dir string, o SearchOptions) (all []string) {
	t.Helper()
	for {
		if o.Limit == 0 {
			o.Limit = 1000
		}
		got, err := s.Search(t.Context(), dir, o)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range got.Matches {
			rel := strings.TrimPrefix(m.Path, dir+"/")
			if m.Line > 0 {
				rel += fmt.Sprintf(":%d:%d:%s", m.Line, m.Column, m.Text)
			}
			all = append(all, rel)
		}
		if o.Cursor = got.NextCursor; o.Cursor == "" {
			return all
		}
	}
}

func TestSearch(t *testing.T) {
	both(t, func(t *testing.T, s *Service, dir string) {
		put(t, dir+"/a.go", "package a\nfunc Alpha() {}\n\n// alpha (x)\r\nfunc beta() { Alpha() }")
		put(t, dir+"/b/a_test.go", "no\nalpha alpha\n")
		put(t, dir+"/b/long", strings.Repeat("x", 200_000)+"alpha"+strings.Repeat("y", 1000)+"\nalpha\n")
		put(t, dir+"/b/binary", "alpha\x00")
		put(t, dir+"/.hidden/alpha.txt", "alpha")
		put(t, dir+"/node_modules/alpha.js", "alpha")
		put(t, dir+"/.git/config", "alpha")
		put(t, dir+"/.gitignore", "node_modules/\n")
		link(t, "/etc", dir+"/link-alpha")
		long := strings.Repeat("x", 128) + "alpha" + strings.Repeat("y", 512-128-5)
		tests := []struct {
			name string
			o    SearchOptions
			want []string
		}{
			{"part of a name", SearchOptions{Name: "a"}, []string{"a.go", "b/a_test.go", "b/binary", "link-alpha"}},
			{"in any case", SearchOptions{Name: "A_T", IgnoreCase: true}, []string{"b/a_test.go"}},
			{"pattern", SearchOptions{Name: "*.go"}, []string{"a.go", "b/a_test.go"}},
			{"pattern of a path", SearchOptions{Name: "b/*"}, []string{"b/a_test.go", "b/binary", "b/long"}},
			{"any depth", SearchOptions{Name: "**/a*.go"}, []string{"a.go", "b/a_test.go"}},
			{"hidden", SearchOptions{Name: "alpha*", Hidden: true}, []string{".hidden/alpha.txt"}},
			{"ignored", SearchOptions{Name: "alpha*", Ignored: true}, []string{"node_modules/alpha.js"}},
			{"text", SearchOptions{Content: "alpha"}, []string{"a.go:4:4:// alpha (x)", "b/a_test.go:2:1:alpha alpha", "b/long:1:200001:" + long, "b/long:2:1:alpha"}},
			{"text is no expression", SearchOptions{Content: "(x)"}, []string{"a.go:4:10:// alpha (x)"}},
			{"text in any case", SearchOptions{Content: "ALPHA()", IgnoreCase: true}, []string{"a.go:2:6:func Alpha() {}", "a.go:5:15:func beta() { Alpha() }"}},
			{"expression", SearchOptions{Content: `^func \w+\(`, Regexp: true}, []string{"a.go:2:1:func Alpha() {}", "a.go:5:1:func beta() { Alpha() }"}},
			{"end of a line", SearchOptions{Content: `\)$`, Regexp: true}, []string{"a.go:4:12:// alpha (x)"}},
			{"both", SearchOptions{Name: "*_test.go", Content: "alpha"}, []string{"b/a_test.go:2:1:alpha alpha"}},
			{"nothing", SearchOptions{Content: "gamma"}, nil},
		}
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				for _, limit := range []int{1, 2, 1000} {
					tt.o.Limit = limit
					if diff := cmp.Diff(tt.want, paths(t, s, dir, tt.o)); diff != "" {
						t.Errorf("by %d: matches differ (-want +got):\n%s", limit, diff)
					}
				}
			})
		}
		for _, o := range []SearchOptions{{}, {Name: "[a"}, {Content: "(", Regexp: true}, {Name: "a", Cursor: "?"}} {
			o.Limit = 1
			_, err := s.Search(t.Context(), dir, o)
			wantCode(t, err, Invalid)
		}
	})
}

func TestSearch_LimitsCanBeContinued(t *testing.T) {
	dir := t.TempDir()
	var want []string
	for i := range 300 {
		rel := fmt.Sprintf("d%d/f%03d", i/50, i)
		put(t, dir+"/"+rel, "x")
		want = append(want, rel)
	}
	for name, l := range map[string]SearchLimits{"files": {Files: 7}, "time": {Time: time.Millisecond}} {
		s := open(t, Options{Root: dir, Search: l})
		o := SearchOptions{Name: "f", Limit: 1000}
		var got []string
		stopped := 0
		for {
			f, err := s.Search(t.Context(), dir, o)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range f.Matches {
				got = append(got, strings.TrimPrefix(m.Path, dir+"/"))
			}
			if f.Stopped == name {
				stopped++
			}
			if f.NextCursor == "" {
				break
			}
			if stopped > 100_000 {
				t.Fatalf("%s: no progress", name)
			}
			o.Cursor = f.NextCursor
			if name == "time" { // a slow machine makes no progress in a millisecond
				s.o.Search.Time *= 2
			}
		}
		if diff := cmp.Diff(want, got); diff != "" || name == "files" && stopped == 0 {
			t.Errorf("%s: stopped %d times, matches differ:\n%s", name, stopped, diff)
		}
	}
	s := open(t, Options{Root: dir, Search: SearchLimits{Size: 4}})
	put(t, dir+"/large", "12345")
	if f, err := s.Search(t.Context(), dir, SearchOptions{Content: "1", Limit: 1}); err != nil || f.Skipped != 1 || len(f.Matches) != 0 {
		t.Errorf("%+v, %v", f, err)
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if _, err := s.Search(stopped, dir, SearchOptions{Name: "x", Limit: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}

// A search whose time is over before it looked at anything is continued from
// the beginning.
func TestSearch_TimeIsOverAtOnce(t *testing.T) {
	dir := t.TempDir()
	put(t, dir+"/f1", "x")
	put(t, dir+"/f2", "x")
	s := open(t, Options{Root: dir})
	o := SearchOptions{Name: "f", Limit: 10}
	enough := s.o.Search.Time
	s.o.Search.Time = -1
	for range 2 {
		f, err := s.Search(t.Context(), dir, o)
		if err != nil || f.Stopped != "time" || f.NextCursor == "" || f.Files != 0 || len(f.Matches) != 0 {
			t.Fatalf("%+v, %v", f, err)
		}
		o.Cursor = f.NextCursor
	}
	s.o.Search.Time = enough
	if diff := cmp.Diff([]string{"f1", "f2"}, paths(t, s, dir, o)); diff != "" {
		t.Errorf("matches differ (-want +got):\n%s", diff)
	}
}

// A search whose time is over in the middle of a file goes on there, whether
// there were matches or not.
func TestSearch_TimeIsOverInAFile(t *testing.T) {
	dir := t.TempDir()
	const n = 5000
	lines := make([]string, n)
	lines[0], lines[1023], lines[4000] = "match", "match", "match"
	put(t, dir+"/f", strings.Join(lines, "\n"))
	s := open(t, Options{Root: dir})
	o := SearchOptions{Content: "match", Limit: 10}
	var got []int
	calls := 0
	for {
		q := search{s: s, path: dir, o: o, found: Found{Matches: []Match{}}}
		if err := q.prepare(); err != nil {
			t.Fatal(err)
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		top, err := os.OpenRoot(dir)
		if err != nil {
			t.Fatal(err)
		}
		info, err := top.Lstat("f")
		if err != nil {
			t.Fatal(err)
		}
		_, err = q.visit(over, found{top, "f", "f", info})
		_ = top.Close()
		for _, m := range q.found.Matches {
			got = append(got, m.Line)
		}
		if calls++; err == nil || calls > 10 {
			break
		}
		q.stop("time", q.done)
		o.Cursor = q.found.NextCursor
	}
	if diff := cmp.Diff([]int{1, 1024, 4001}, got); diff != "" || calls != 5 {
		t.Errorf("%d calls, matches differ (-want +got):\n%s", calls, diff)
	}
}

// What is ignored is what git ignores.
func TestIgnore_AsGit(t *testing.T) {
	both(t, func(t *testing.T, s *Service, dir string) {
		git(t, dir, "init", "-q")
		put(t, dir+"/.gitignore", strings.Join([]string{
			"# comment", "", "*.log", "!keep.log", "/top", "build/", "a/**/z", "**/deep/x", "doc/*.txt", "trail  ", `sp\ `, `\#hash`, `\!bang`,
			"[ab]c", "[!x]y", "q?", "all/**", "!all/but", "nested/*", "!nested/in", "**", "!**", "foo**bar", "[[:digit:]]n", "[unclosed", `back\\slash`, "dir/", "!*.keep",
		}, "\n"))
		put(t, dir+"/.git/info/exclude", "excluded\n")
		put(t, dir+"/sub/.gitignore", "*.tmp\n!important.tmp\n/only\n!x.log\r\nsub2/f\n")
		put(t, dir+"/sub/sub2/.gitignore", "!a.tmp\n")
		for _, f := range []string{
			"x.log", "keep.log", "top", "m/top", "build", "m/build/f", "a/z", "a/b/z", "a/b/c/z", "deep/x", "m/deep/x", "m/deep/y", "doc/a.txt", "doc/m/a.txt",
			"trail", "sp ", "#hash", "!bang", "ac", "bc", "cc", "xy", "zy", "q1", "q12", "all/f", "all/but", "all/m/f", "nested/in", "nested/out", "excluded", "m/excluded",
			"fooXbar", "foo/m/bar", "1n", "nn", "[unclosed", `back\slash`, "dir", "m/dir/f", "m/dir/f.keep",
			"sub/a.tmp", "sub/important.tmp", "sub/only", "sub/m/only", "sub/x.log", "sub/sub2/f", "sub/m/sub2/f", "sub/sub2/a.tmp", "sub/sub2/b.tmp",
		} {
			put(t, dir+"/"+f, "x")
		}
		for _, from := range []string{"", "sub", "sub/sub2", "m", "nested"} {
			at := filepath.Join(dir, from)
			var want []string
			for _, rel := range strings.Split(git(t, at, "ls-files", "-coz", "--exclude-standard"), "\x00") {
				if rel != "" && !strings.HasPrefix(filepath.Base(rel), ".") {
					want = append(want, rel)
				}
			}
			var got []string
			for _, p := range paths(t, s, at, SearchOptions{Content: "x"}) {
				got = append(got, strings.TrimSuffix(p, ":1:1:x"))
			}
			sortPaths(want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("from %q: what is not ignored differs (-git +service):\n%s", from, diff)
			}
		}
	})
}

func sortPaths(p []string) {
	for i := range p {
		for j := i; j > 0 && order(p[j], p[j-1]) < 0; j-- {
			p[j], p[j-1] = p[j-1], p[j]
		}
	}
}

func FuzzGlob(f *testing.F) {
	for _, s := range []string{"*.go", "**/a", "[a-z]?", `\*`, "[!x]", "a/**/b", "[[:alpha:]]", "[\\]]"} {
		f.Add(s, "a/b")
	}
	f.Fuzz(func(t *testing.T, pattern, path string) {
		re, ok := glob(pattern, "")
		if ok {
			re.MatchString(path)
		}
		parseRules(pattern, maxRules)
	})
}
