package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

func gitIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_SYSTEM="+os.DevNull,
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// A session takes the repository that it works in along, as it is.
func TestTravel_Workspace(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	one, _ := start(t)
	data, files := t.TempDir(), t.TempDir()
	two, _ := start(t, "--data-dir", data, "--ephemeral=false")
	repo := filepath.Join(files, "repo")
	write := func(name, content string) {
		t.Helper()
		path := filepath.Join(repo, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("app/main.txt", "one\n")
	write(".gitignore", ".env\n")
	gitIn(t, repo, "init", "-q", "-b", "trunk")
	gitIn(t, repo, "add", "-A")
	gitIn(t, repo, "commit", "-qm", "first")
	write("app/main.txt", "two\n")
	write("app/new.txt", "new\n")
	write(".env", "SECRET=1\n")

	t.Setenv("SANDBOX_AGENT_ENDPOINT", one)
	_, _, errOut := tool(t, "", "prompt", "--agent", "mock", "--cwd", filepath.Join(repo, "app"), "hello")
	id := sessionIn(errOut)
	file := filepath.Join(t.TempDir(), "s.tar.zst")
	if code, _, errOut := tool(t, "", "sessions", "export", id, "-o", file, "--workspace"); code != cmdline.ExitOK {
		t.Fatalf("exit %d, %s", code, errOut)
	}
	t.Setenv("SANDBOX_AGENT_ENDPOINT", two)
	to := filepath.Join(files, "somewhere", "else")
	// Without being asked, nothing is written into a workspace; and what fails leaves none.
	if err := os.Mkdir(filepath.Join(files, "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	if code, _, errOut := tool(t, "", "sessions", "import", file, "--workspace", "--cwd", repo); code == cmdline.ExitOK || !strings.Contains(errOut, "is not empty") {
		t.Errorf("into a folder with files: exit %d, %s", code, errOut)
	}
	if code, out, errOut := tool(t, "", "sessions", "import", file, "--workspace", "--cwd", to); code != cmdline.ExitOK || !strings.Contains(out, filepath.Join(to, "app")) {
		t.Fatalf("exit %d, %s%s", code, out, errOut)
	}
	if got, want := gitIn(t, to, "status", "--porcelain=v1", "--branch", "--untracked-files=all"), gitIn(t, repo, "status", "--porcelain=v1", "--branch", "--untracked-files=all"); got != want {
		t.Errorf("status: %s, want %s", got, want)
	}
	if _, err := os.Stat(filepath.Join(to, ".env")); err == nil {
		t.Error("what git ignores has travelled")
	}
	if code, out, errOut := tool(t, "", "prompt", "--session", id, "echo and on"); code != cmdline.ExitOK || !strings.Contains(out, "and on") {
		t.Errorf("exit %d, %s%s", code, out, errOut)
	}
	again := filepath.Join(files, "again")
	if code, _, errOut := tool(t, "", "sessions", "import", file, "--workspace", "--cwd", again); code == cmdline.ExitOK || !strings.Contains(errOut, "is here already") {
		t.Errorf("once more: exit %d, %s", code, errOut)
	}
	tool(t, "", "sessions", "delete", id)
	code, _, errOut := tool(t, "", "sessions", "import", file, "--cwd", filepath.Join(files, "empty"))
	if left, err := os.ReadDir(filepath.Join(files, "empty")); code != cmdline.ExitOK || err != nil || len(left) > 0 || !strings.Contains(errOut, "workspace") {
		t.Errorf("without the workspace: exit %d, %s, %v, %v", code, errOut, left, err)
	}
	tool(t, "", "sessions", "delete", id)
	write("app/main.txt", "three\n")
	code, out, errOut := tool(t, "", "sessions", "import", file, "--merge", "--cwd", repo)
	if code == cmdline.ExitOK || !strings.Contains(errOut, "\n  app/main.txt") {
		t.Errorf("what both have changed: exit %d, %s%s", code, out, errOut)
	}
	write("app/main.txt", "one\n") // as it was committed
	if code, out, errOut := tool(t, "", "sessions", "import", file, "--merge", "--cwd", repo); code != cmdline.ExitOK {
		t.Errorf("what one has changed: exit %d, %s%s", code, out, errOut)
	}
	if b, err := os.ReadFile(filepath.Join(repo, "app", "main.txt")); err != nil || string(b) != "two\n" {
		t.Errorf("put together: %q, %v", b, err)
	}
	plain := filepath.Join(t.TempDir(), "plain")
	if code, _, errOut := tool(t, "", "sessions", "export", id, "-o", plain); code != cmdline.ExitOK {
		t.Fatalf("exit %d, %s", code, errOut)
	}
	tool(t, "", "sessions", "delete", id)
	if code, _, errOut := tool(t, "", "sessions", "import", plain, "--workspace", "--cwd", again); code == cmdline.ExitOK || !strings.Contains(errOut, "has no workspace") {
		t.Errorf("a file without one: exit %d, %s", code, errOut)
	}
	if _, err := os.Stat(again); err == nil {
		t.Error("a session that was refused has left its workspace")
	}
}

// A gateway that keeps everything in memory takes a session, with its events and their
// numbers, and gives it back with what was changed there.
func TestTravel_Ephemeral(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	one, _ := start(t, "--data-dir", t.TempDir(), "--ephemeral=false")
	two, _ := start(t)
	files := t.TempDir()
	home, away := filepath.Join(files, "home"), filepath.Join(files, "away")
	write := func(path, content string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(filepath.Join(home, "a"), "one\n")
	write(filepath.Join(home, "b"), "one\n")
	gitIn(t, home, "init", "-q", "-b", "main")
	gitIn(t, home, "add", "-A")
	gitIn(t, home, "commit", "-qm", "first")
	t.Setenv("SANDBOX_AGENT_ENDPOINT", one)
	_, _, errOut := tool(t, "", "prompt", "--agent", "mock", "--cwd", home, "echo the word is heron")
	id := sessionIn(errOut)
	_, before, _ := tool(t, "", "sessions", "events", id, "--json")
	if code, out, errOut := tool(t, "", "teleport", "--to", two, "--cwd", away, id); code != cmdline.ExitOK {
		t.Fatalf("exit %d, %s%s", code, out, errOut)
	}
	if code, after, errOut := tool(t, "", "sessions", "events", "--endpoint", two, id, "--json"); code != cmdline.ExitOK || before == "" || after != before {
		t.Errorf("exit %d, %s: the events are\n%s\nand were\n%s", code, errOut, after, before)
	}
	if code, out, errOut := tool(t, "", "prompt", "--endpoint", two, "--session", id, "echo and on"); code != cmdline.ExitOK || !strings.Contains(out, "and on") {
		t.Errorf("exit %d, %s%s", code, out, errOut)
	}
	write(filepath.Join(away, "a"), "two\n")
	gitIn(t, away, "commit", "-qam", "second")
	write(filepath.Join(home, "b"), "here\n")
	if code, out, errOut := tool(t, "", "teleport", "--from", two, "--to", one, id); code != cmdline.ExitOK {
		t.Fatalf("exit %d, %s%s", code, out, errOut)
	}
	if got := gitIn(t, home, "log", "--format=%s"); got != "second\nfirst\n" {
		t.Errorf("the history: %s", got)
	}
	if got := gitIn(t, home, "status", "--porcelain=v1"); got != " M b\n" {
		t.Errorf("status: %q", got)
	}
	if code, _, errOut := tool(t, "", "prompt", "--session", id, "echo home again"); code != cmdline.ExitOK {
		t.Errorf("exit %d, %s", code, errOut)
	}
}
