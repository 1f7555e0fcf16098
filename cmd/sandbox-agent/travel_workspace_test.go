package main

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/client"
	"sandboxagent.dev/sandbox-agent/control/parcel"
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

// What a gateway says that it has is left out of an export, and it makes all of it again.
func TestTravel_Lacking(t *testing.T) {
	one, _ := start(t)
	two, _ := start(t)
	files := t.TempDir()
	home, away := filepath.Join(files, "home"), filepath.Join(files, "away")
	noise := make([]byte, 300_000)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	for path, content := range map[string][]byte{filepath.Join(home, "large"): noise, filepath.Join(home, "a"): []byte("one\n"), filepath.Join(away, "other name"): noise} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("SANDBOX_AGENT_ENDPOINT", one)
	_, _, errOut := tool(t, "", "prompt", "--agent", "mock", "--cwd", home, "hello")
	id := sessionIn(errOut)
	apis := map[string]*client.Client{}
	for _, url := range []string{one, two} {
		api, err := client.New(url, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		apis[url] = api
	}
	export := func(sums io.Reader) (file []byte, about, passed int64) {
		t.Helper()
		body, err := apis[one].ExportSession(t.Context(), id, client.ExportOptions{Workspace: true, Checksums: sums, Begun: func(n int64) { about = n }})
		if err != nil {
			t.Fatal(err)
		}
		defer body.Close()
		if file, err = io.ReadAll(parcel.Passing(body, func(n int64) { passed = n })); err != nil {
			t.Fatal(err)
		}
		return file, about, passed
	}
	whole, about, passed := export(nil)
	if len(whole) < len(noise) || about < int64(len(noise)) || about > passed+passed/4 || passed > about+about/4 {
		t.Errorf("%d bytes, about %d, of which %d have passed", len(whole), about, passed)
	}
	sums, err := apis[two].Files("").Checksums(t.Context(), away)
	if err != nil {
		t.Fatal(err)
	}
	some, about, _ := export(sums)
	_ = sums.Close()
	if len(some) > 50_000 || about > 50_000 {
		t.Errorf("%d bytes, about %d, of a file that is there", len(some), about)
	}
	for name, body := range map[string]string{"no checksum": "hello", "a cut one": strings.Repeat("00", 32) + "  a", "a short one": "00  a\x00"} {
		_, err := apis[one].ExportSession(t.Context(), id, client.ExportOptions{Workspace: true, Checksums: strings.NewReader(body)})
		if p, ok := errors.AsType[*problem.Error](err); !ok || p.Kind != problem.InvalidRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Where the file is not, it cannot be made.
	o := client.ImportOptions{Cwd: filepath.Join(files, "nothing"), Workspace: true, Merge: true}
	if _, err := apis[two].ImportSession(t.Context(), bytes.NewReader(some), o); err == nil || !strings.Contains(err.Error(), "is not here any more") {
		t.Errorf("where the file is not: %v", err)
	}
	if _, err := os.Stat(o.Cwd); err == nil {
		t.Error("something was made where the file is not")
	}
	if err := os.WriteFile(filepath.Join(away, "a"), []byte("one\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(away, "other name"), filepath.Join(away, "large")); err != nil {
		t.Fatal(err)
	}
	sums, err = apis[two].Files("").Checksums(t.Context(), away)
	if err != nil {
		t.Fatal(err)
	}
	some, _, _ = export(sums)
	_ = sums.Close()
	o.Cwd = away
	if _, err := apis[two].ImportSession(t.Context(), bytes.NewReader(some), o); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(away, "large")); err != nil || !bytes.Equal(b, noise) {
		t.Errorf("%d bytes, %v", len(b), err)
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
