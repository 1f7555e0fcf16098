package fs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestGit(t *testing.T) {
	both(t, func(t *testing.T, s *Service, dir string) {
		ctx := t.Context()
		_, err := s.GitStatus(ctx, dir)
		wantCode(t, err, NoRepository)
		git(t, dir, "init", "-q", "-b", "trunk")
		if st, err := s.GitStatus(ctx, dir); err != nil || st.Branch != "trunk" || st.Commit != "" || len(st.Files) != 0 {
			t.Errorf("%+v, %v", st, err)
		}
		put(t, dir+"/a", "one\n")
		put(t, dir+"/m/b c", "two\n")
		put(t, dir+"/old name", strings.Repeat("same\n", 20))
		git(t, dir, "add", "-A")
		git(t, dir, "commit", "-qm", "first")
		head := strings.TrimSpace(git(t, dir, "rev-parse", "HEAD"))
		put(t, dir+"/a", "changed\n")
		put(t, dir+"/new\n\xff", "x")
		git(t, dir, "mv", "old name", "ü")
		git(t, dir, "rm", "-q", "m/b c")
		put(t, dir+"/fresh", "nobody has added it\n")
		put(t, dir+"/waste", "x")
		put(t, dir+"/.git/info/exclude", "waste\n")
		st, err := s.GitStatus(ctx, dir)
		if err != nil {
			t.Fatal(err)
		}
		want := GitStatus{Root: dir, Branch: "trunk", Commit: head, Files: []GitFile{
			{Path: dir + "/a", Index: ".", WorkTree: "M"},
			{Path: dir + "/m/b c", Index: "D", WorkTree: "."},
			{Path: dir + "/ü", Index: "R", WorkTree: ".", From: dir + "/old name"},
			{Path: dir + "/fresh", Index: "?", WorkTree: "?"},
			{Path: dir + "/new\n\xff", RawPath: []byte(dir + "/new\n\xff"), Index: "?", WorkTree: "?"},
		}}
		if diff := cmp.Diff(want, st); diff != "" {
			t.Errorf("status differs (-want +got):\n%s", diff)
		}
		before := contents(t, dir+"/.git")
		for name, tt := range map[string]struct {
			path string
			o    DiffOptions
			want string
		}{
			"work tree":  {dir, DiffOptions{}, "-one\n+changed\n"},
			"of a file":  {dir + "/a", DiffOptions{}, "-one\n+changed\n"},
			"of another": {dir + "/ü", DiffOptions{}, ""},
			"unknown":    {dir, DiffOptions{}, "new file mode 100644"},
			"one such":   {dir + "/fresh", DiffOptions{}, "+nobody has added it\n"},
			"ignored":    {dir + "/waste", DiffOptions{}, ""},
			"staged":     {dir, DiffOptions{Staged: true}, "-two\n"},
			"of a base":  {dir, DiffOptions{Base: "HEAD"}, "-two\n"},
			"removed":    {dir + "/m", DiffOptions{Staged: true}, "not a directory|no such"},
		} {
			patch, cut, err := s.GitDiff(ctx, tt.path, tt.o)
			if name == "removed" { // its folder is gone
				if err == nil && !strings.Contains(string(patch), "-two") {
					t.Errorf("%s: %q", name, patch)
				}
				continue
			}
			if err != nil || cut || !strings.Contains(string(patch), tt.want) || tt.want == "" && len(patch) > 0 {
				t.Errorf("%s: %q, %v, %v", name, patch, cut, err)
			}
		}
		if diff := cmp.Diff(before, contents(t, dir+"/.git")); diff != "" {
			t.Errorf("to look at the repository has changed it (-before +after):\n%s", diff)
		}
		for _, base := range []string{"--output=x", "nope", "HEAD:a", "\x00"} {
			_, _, err := s.GitDiff(ctx, dir, DiffOptions{Base: base})
			wantCode(t, err, Invalid)
		}
		s.o.GitOutput = 10
		if patch, cut, err := s.GitDiff(ctx, dir, DiffOptions{}); err != nil || !cut || len(patch) != 10 {
			t.Errorf("%q, %v, %v", patch, cut, err)
		}
		s.o.GitOutput = 16 << 20
		s.o.GitTimeout = time.Nanosecond
		_, err = s.GitStatus(ctx, dir)
		wantCode(t, err, TimedOut)
	})
}

// A patch with binary files brings them elsewhere: those that have changed, and those that are new.
func TestGitDiff_Binary(t *testing.T) {
	both(t, func(t *testing.T, s *Service, dir string) {
		was, is := "\x00\x01was\xff", "\x00\x02is\xfe"+strings.Repeat("\x00\xff", 300)
		there := t.TempDir()
		for _, d := range []string{dir, there} {
			git(t, d, "init", "-q", "-b", "trunk")
			put(t, d+"/picture", was)
			put(t, d+"/words", "one\n")
			git(t, d, "add", "-A")
			git(t, d, "commit", "-qm", "first")
		}
		put(t, dir+"/picture", is)
		put(t, dir+"/new picture", is)
		put(t, dir+"/words", "two\n")
		named, _, err := s.GitDiff(t.Context(), dir, DiffOptions{})
		if err != nil || !strings.Contains(string(named), "Binary files a/picture and b/picture differ") {
			t.Errorf("%q, %v", named, err)
		}
		patch, cut, err := s.GitDiff(t.Context(), dir, DiffOptions{Binary: true})
		if err != nil || cut {
			t.Fatal(cut, err)
		}
		file := filepath.Join(t.TempDir(), "patch")
		put(t, file, string(patch))
		git(t, there, "apply", file)
		for name, want := range map[string]string{"picture": is, "new picture": is, "words": "two\n"} {
			if got, err := os.ReadFile(filepath.Join(there, name)); string(got) != want || err != nil {
				t.Errorf("%s is %q, %v", name, got, err)
			}
		}
	})
}

func TestGitStatus_WhileBranchesAreCheckedOut(t *testing.T) {
	both(t, func(t *testing.T, s *Service, dir string) {
		git(t, dir, "init", "-q", "-b", "trunk")
		put(t, dir+"/a", "one\n")
		git(t, dir, "add", "-A")
		git(t, dir, "commit", "-qm", "first")
		git(t, dir, "branch", "other")
		want := strings.TrimSpace(git(t, dir, "rev-parse", "HEAD"))
		ended := make(chan error, 1)
		go func() {
			for range 20 {
				for _, to := range []string{"other", "--detach", "trunk"} {
					if _, err := runGit(t.Context(), dir, "checkout", "-q", to); err != nil {
						ended <- err
						return
					}
				}
			}
			ended <- nil
		}()
		for {
			if st, err := s.GitStatus(t.Context(), dir); err != nil || st.Commit != want || len(st.Files) > 0 {
				t.Errorf("%+v, %v", st, err)
			}
			select {
			case err := <-ended:
				if err != nil {
					t.Error(err)
				}
				return
			default:
			}
		}
	})
}

// What looks at a repository needs a folder. One that was left is removed by the next service.
func TestGit_LeavesNothing(t *testing.T) {
	dir, temp := t.TempDir(), filepath.Join(t.TempDir(), "requests")
	git(t, dir, "init", "-q")
	put(t, temp+"/sandbox-agent-git-1/HEAD", "of one that was killed")
	s, err := New(Options{Temp: temp})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(temp); !os.IsNotExist(err) {
		t.Error("what was left is still there")
	}
	if _, err := s.GitStatus(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) != 0 {
		t.Errorf("%v, %v", left, err)
	}
}

// A repository's configuration, attributes and hooks name programs; none runs.
func TestGit_RunsNothingOfTheRepository(t *testing.T) {
	both(t, func(t *testing.T, s *Service, dir string) {
		ran := filepath.Join(t.TempDir(), "ran")
		git(t, dir, "init", "-q")
		put(t, dir+"/.gitattributes", "* filter=evil diff=evil\n*.inc filter=odd=name\n")
		put(t, dir+"/a", "one\n")
		put(t, dir+"/a.inc", "one\n")
		git(t, dir, "add", "-A")
		git(t, dir, "commit", "-qm", "first")
		touch := "touch " + ran + "; cat"
		put(t, dir+"/evil.sh", "#!/bin/sh\n"+touch+"\n")
		if err := os.Chmod(dir+"/evil.sh", 0o755); err != nil {
			t.Fatal(err)
		}
		put(t, dir+"/.git/included", "[filter \"odd=name\"]\n\tclean = "+touch+"\n\trequired\n")
		put(t, dir+"/.git/config", content(t, dir+"/.git/config")+`
[include]
	path = included
[filter "evil"]
	clean = "`+touch+`"
	smudge = "`+touch+`"
	process = "`+dir+`/evil.sh"
	required = true
[diff]
	external = `+dir+`/evil.sh
[diff "evil"]
	textconv = `+dir+`/evil.sh
	command = `+dir+`/evil.sh
[core]
	fsmonitor = `+dir+`/evil.sh
	pager = `+dir+`/evil.sh
	hooksPath = `+dir+`
	sshCommand = `+dir+`/evil.sh
`)
		for _, hook := range []string{"post-index-change", "fsmonitor-watchman"} {
			put(t, dir+"/.git/hooks/"+hook, "#!/bin/sh\n"+touch+"\n")
			_ = os.Chmod(dir+"/.git/hooks/"+hook, 0o755)
		}
		put(t, dir+"/a", "changed\n")
		put(t, dir+"/a.inc", "changed\n")
		if st, err := s.GitStatus(t.Context(), dir); err != nil || len(st.Files) < 2 {
			t.Errorf("%+v, %v", st, err)
		}
		if patch, _, err := s.GitDiff(t.Context(), dir, DiffOptions{}); err != nil || !strings.Contains(string(patch), "+changed") {
			t.Errorf("%q, %v", patch, err)
		}
		if _, err := os.Stat(ran); err == nil {
			t.Error("a program of the repository was run")
		}
		// The same without the protection: the test would notice.
		unprotected := exec.CommandContext(t.Context(), "git", "status", "--porcelain")
		unprotected.Dir = dir
		_ = unprotected.Run() // the programs are no good filters
		if _, err := os.Stat(ran); err != nil {
			t.Error("git itself runs none of them: the test tests nothing")
		}
	})
}

func TestGit_StaysInTheRoot(t *testing.T) {
	outside := t.TempDir()
	git(t, outside, "init", "-q")
	put(t, outside+"/secret", "secret")
	if err := os.Mkdir(outside+"/root", 0o755); err != nil {
		t.Fatal(err)
	}
	s := open(t, Options{Root: outside + "/root"})
	_, err := s.GitStatus(t.Context(), outside+"/root")
	wantCode(t, err, NoRepository)
	put(t, outside+"/root/pointer/.git", "gitdir: "+outside+"/.git\n")
	_, err = s.GitStatus(t.Context(), outside+"/root/pointer")
	wantCode(t, err, Escapes)
	git(t, outside+"/root", "init", "-q", "tree")
	git(t, outside+"/root/tree", "config", "core.worktree", outside)
	_, _, err = s.GitDiff(t.Context(), outside+"/root/tree", DiffOptions{})
	wantCode(t, err, Escapes)
}

func TestGit_Missing(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Root: dir})
	t.Setenv("PATH", dir)
	_, err := s.GitStatus(t.Context(), dir)
	wantCode(t, err, Unsupported, "not installed")
}
