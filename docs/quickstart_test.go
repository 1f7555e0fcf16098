package docs_test

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// clone copies the repository as it would be after a commit, and returns the
// environment in which its programs find what was downloaded before.
func clone(t *testing.T) (dir string, env []string) {
	t.Helper()
	list, err := exec.CommandContext(t.Context(), "git", "ls-files", "-coz", "--exclude-standard", "--", "..").Output()
	if err != nil {
		t.Skipf("not a git checkout: %v", err)
	}
	dir = t.TempDir()
	for name := range strings.SplitSeq(strings.TrimRight(string(list), "\x00"), "\x00") {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // a folder, or deleted and not yet committed
		}
		mode := os.FileMode(0o644)
		if info, err := os.Stat(name); err == nil {
			mode = info.Mode()
		}
		to := filepath.Join(dir, "docs", name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, b, mode); err != nil {
			t.Fatal(err)
		}
	}
	// A repository of its own, as a clone has: Go asks the nearest one for its
	// version, and a folder above may have something else by that name.
	for _, args := range [][]string{{"init", "-q"}, {"add", "-A"}, {"-c", "user.name=Test", "-c", "user.email=test@localhost", "commit", "-qm", "as it is"}} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	for _, name := range []string{"GOFLAGS", "GOCACHE", "GOMODCACHE", "GOPROXY", "GOTOOLCHAIN", "GONOSUMDB", "GONOSUMCHECK", "GOSUMDB"} {
		out, err := exec.CommandContext(t.Context(), "go", "env", name).Output()
		if err != nil {
			t.Fatal(err)
		}
		value := strings.TrimSpace(string(out))
		if name == "GOFLAGS" {
			// Without the folder's path the build finds in the cache what others compiled.
			value = strings.TrimSpace(value + " -trimpath")
		}
		env = append(env, name+"="+value)
	}
	return dir, append(env, "PATH="+os.Getenv("PATH"))
}

// TestQuickstart_Clone runs the quickstart word by word in a fresh copy of the
// repository, with an empty home directory.
func TestQuickstart_Clone(t *testing.T) {
	if testing.Short() {
		t.Skip("short runs leave out what takes many seconds")
	}
	dir, env := clone(t)
	for _, p := range pages(t) {
		if p.name == "quickstart.mdx" {
			runPage(t, p, stage{dir: dir, home: t.TempDir(), env: append(environment(), env...)})
		}
	}
}

// TestREADME_Serve runs the README's first command in a fresh copy of the
// repository, with an empty home directory, and then what it says to try. The
// second command is what runs this test.
func TestREADME_Serve(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds everything")
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	command := regexp.MustCompile("(?m)```sh\n(\\./task \\S+)").FindSubmatch(readme)
	if command == nil || string(command[1]) != "./task serve" {
		t.Fatalf("the README begins with %q", command)
	}
	dir, env := clone(t)
	cache, err := os.UserCacheDir() // the task runner is there, which runs this test
	if err != nil {
		t.Fatal(err)
	}
	env = append(env, "HOME="+t.TempDir(), "XDG_CACHE_HOME="+cache)
	for name, key := range map[string]string{"npm_config_cache": "cache", "npm_config_userconfig": "userconfig"} {
		out, err := exec.CommandContext(t.Context(), "npm", "config", "get", key).Output()
		if err != nil {
			t.Skipf("npm is missing: %v", err)
		}
		env = append(env, name+"="+strings.TrimSpace(string(out)))
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "exec "+string(command[1])+" -- --port 0")
	cmd.Dir, cmd.Env = dir, append(environment(), env...)
	cmd.SysProcAttr = ownGroup()
	cmd.Cancel = func() error { return endGroup(cmd.Process.Pid) }
	cmd.WaitDelay = 10 * time.Second
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	cmd.Stdout, cmd.Stderr = write, write
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	ended := false
	defer func() {
		if !ended {
			_ = cmd.Cancel()
			_ = cmd.Wait()
		}
	}()
	if err := read.SetReadDeadline(time.Now().Add(10 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	var url, try string
	for lines := bufio.NewScanner(read); try == ""; {
		if !lines.Scan() {
			if strings.Contains(said.String(), "npm error network") || strings.Contains(said.String(), "ENOTFOUND") {
				t.Skipf("the packages of the page cannot be had:\n%s", said.String())
			}
			t.Fatalf("it ended (%v):\n%s", lines.Err(), said.String())
		}
		line := lines.Text()
		said.WriteString(line + "\n")
		if m := regexp.MustCompile(`listening on (http\S+)`).FindStringSubmatch(line); m != nil {
			url = m[1]
		}
		if _, rest, ok := strings.Cut(line, "Try: "); ok {
			try = rest
		}
	}
	first := exec.CommandContext(t.Context(), "sh", "-c", try)
	first.Dir, first.Env = dir, cmd.Env
	if out, err := first.Output(); err != nil || !strings.Contains(string(out), "I am the mock agent") {
		t.Errorf("%s: %v\n%s\n%s", try, err, out, said.String())
	}
	resp, err := http.Get(url + "/ui/")
	if err != nil {
		t.Fatal(err)
	}
	page, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(page), `id="root"`) {
		t.Errorf("the page: %s, %v\n%s", resp.Status, err, page)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	ended = true
	if err := cmd.Wait(); err != nil && !errors.Is(err, exec.ErrWaitDelay) {
		t.Errorf("it ended with %v", err)
	}
	if err := groupEnded(cmd.Process.Pid); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("processes are left over: %v", err)
	}
}
