package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/fs"
)

// onRoot starts a gateway that is confined to a folder.
func onRoot(t *testing.T) (root, here string) {
	t.Helper()
	root, here = t.TempDir(), t.TempDir()
	endpoint, _ := start(t, "--fs-root", root)
	t.Setenv("SANDBOX_AGENT_ENDPOINT", endpoint)
	t.Chdir(here)
	return root, here
}

func mustTool(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	code, out, errOut := tool(t, stdin, args...)
	if code != cmdline.ExitOK {
		t.Fatalf("%q: exit %d: %s", args, code, errOut)
	}
	return out
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func wantContent(t *testing.T, path, want string) {
	t.Helper()
	if b, err := os.ReadFile(path); err != nil || string(b) != want {
		t.Errorf("%s: %q, %v, want %q", path, b[:min(len(b), 100)], err, want[:min(len(want), 100)])
	}
}

func TestFS_GetAndPut(t *testing.T) {
	root, here := onRoot(t)
	write(t, here+"/a", "one")
	mustTool(t, "", "fs", "put", "a", "n/m/", "-p")
	wantContent(t, root+"/n/m/a", "one")
	mustTool(t, "from stdin", "fs", "put", "-", "b", "--mode", "640")
	wantContent(t, root+"/b", "from stdin")
	if out := mustTool(t, "", "fs", "get", "b", "-"); out != "from stdin" {
		t.Errorf("output %q", out)
	}
	mustTool(t, "", "fs", "get", root+"/n/m/a")
	mustTool(t, "", "fs", "get", "b", "c")
	write(t, here+"/d/x", "")
	mustTool(t, "", "fs", "get", "b", "d")
	wantContent(t, here+"/a", "one")
	wantContent(t, here+"/c", "from stdin")
	wantContent(t, here+"/d/b", "from stdin")
	long := strings.Repeat("n", 255)
	mustTool(t, "x", "fs", "put", "-", long)
	mustTool(t, "", "fs", "get", long)
	wantContent(t, here+"/"+long, "x")
	mustTool(t, "", "fs", "put", "d/x", "empty")
	mustTool(t, "", "fs", "get", "empty")
	wantContent(t, here+"/empty", "")
	if err := os.Symlink("of-link", here+"/link"); err != nil {
		t.Fatal(err)
	}
	mustTool(t, "", "fs", "get", "b", "link")
	wantContent(t, here+"/of-link", "from stdin")
	if to, err := os.Readlink(here + "/link"); err != nil || to != "of-link" {
		t.Errorf("the link became %q, %v", to, err)
	}
	if left, _ := filepath.Glob(here + "/.*.part"); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	var e fs.Entry
	if err := json.Unmarshal([]byte(mustTool(t, "", "fs", "stat", "b", "--json")), &e); err != nil || e.Mode != "0640" {
		t.Errorf("%+v, %v", e, err)
	}
	for _, tt := range []struct {
		args []string
		exit int
		text string
	}{
		{[]string{"put", "a", "b", "--new"}, cmdline.ExitFailure, "Precondition failed"},
		{[]string{"put", "a", "b", "--if-match", `"x"`}, cmdline.ExitFailure, "Precondition failed"},
		{[]string{"put", "d", "b"}, cmdline.ExitUsage, "fs upload"},
		{[]string{"put", "-", "d/"}, cmdline.ExitUsage, "no name"},
		{[]string{"put", "no", "b"}, cmdline.ExitUsage, "no such file"},
		{[]string{"get", "n"}, cmdline.ExitFailure, "fs download"},
		{[]string{"get", "no"}, cmdline.ExitNotFound, "no such file"},
		{[]string{"get", "../x"}, cmdline.ExitFailure, "Path leads out of the root"},
		{[]string{"get"}, cmdline.ExitUsage, "REMOTE is missing"},
		{[]string{"get", "a", "b", "c"}, cmdline.ExitUsage, "REMOTE"},
		{[]string{"upload", "x"}, cmdline.ExitUsage, "REMOTE is missing"},
		{[]string{"search"}, cmdline.ExitUsage, "--name or --content"},
		{[]string{"rm", "n"}, cmdline.ExitFailure, "recursive"},
		{[]string{"ls", "b"}, cmdline.ExitFailure, "Not a directory"},
	} {
		code, _, errOut := tool(t, "", append([]string{"fs"}, tt.args...)...)
		if code != tt.exit && !(tt.args[0] == "get" && len(tt.args) == 4) || !strings.Contains(errOut, tt.text) && len(tt.args) != 4 {
			t.Errorf("%q: exit %d, %s, want %d with %q", tt.args, code, errOut, tt.exit, tt.text)
		}
	}
	wantContent(t, root+"/b", "from stdin")
}

// What happens to a file while it is on its way.
func TestFS_MeetsAnother(t *testing.T) {
	root, here := onRoot(t)
	gateway := os.Getenv("SANDBOX_AGENT_ENDPOINT")
	to, err := url.Parse(gateway)
	if err != nil {
		t.Fatal(err)
	}
	pass := httputil.NewSingleHostReverseProxy(to)
	meanwhile := func() {}
	between := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/fs/file") { // nothing of the file was read yet
			meanwhile()
		}
		pass.ServeHTTP(w, r)
	}))
	t.Cleanup(between.Close)

	write(t, here+"/log", "line\n")
	meanwhile = func() { write(t, here+"/log", "line\nanother\n") }
	mustTool(t, "", "fs", "put", "log", "log", "--endpoint", between.URL)
	wantContent(t, root+"/log", "line\n")

	meanwhile = func() { write(t, here+"/log", "line") }
	if code, _, errOut := tool(t, "", "fs", "put", "log", "log", "--endpoint", between.URL); code != cmdline.ExitFailure || !strings.Contains(errOut, "read the file: read log: it became shorter") {
		t.Errorf("exit %d: %s", code, errOut)
	}
	wantContent(t, root+"/log", "line\n")

	meanwhile = func() { mustTool(t, "", "fs", "get", "log", "gotten", "--endpoint", gateway) }
	mustTool(t, "", "fs", "get", "log", "gotten", "--endpoint", between.URL)
	wantContent(t, here+"/gotten", "line\n")
}

// What is replaced keeps its permissions: a secret stays one.
func TestFS_GetKeepsPermissions(t *testing.T) {
	root, here := onRoot(t)
	write(t, root+"/key", "new")
	for _, perm := range []os.FileMode{0o600, 0o755} {
		write(t, here+"/key", "old")
		if err := os.Chmod(here+"/key", perm); err != nil {
			t.Fatal(err)
		}
		before, err := os.Stat(here + "/key")
		if err != nil {
			t.Fatal(err)
		}
		mustTool(t, "", "fs", "get", "key")
		wantContent(t, here+"/key", "new")
		if info, err := os.Stat(here + "/key"); err != nil || info.Mode() != before.Mode() {
			t.Errorf("%v, %v; want %v", info.Mode(), err, before.Mode())
		}
		if err := os.Remove(here + "/key"); err != nil {
			t.Fatal(err)
		}
	}
}

// A download whose connection breaks is continued where it stopped, also by
// another run of the command, and begun anew when the file has changed.
func TestFS_GetContinues(t *testing.T) {
	root, here := onRoot(t)
	body := strings.Repeat("0123456789abcdef", 1<<16) // 1 MiB
	write(t, root+"/f", body)
	target, err := url.Parse(os.Getenv("SANDBOX_AGENT_ENDPOINT"))
	if err != nil {
		t.Fatal(err)
	}
	var cut atomic.Int64 // how many answers are cut
	var ranges []string
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v2/fs/file" {
			proxy.ServeHTTP(w, r)
			return
		}
		ranges = append(ranges, r.Header.Get("Range"))
		if cut.Add(-1) < 0 {
			proxy.ServeHTTP(w, r)
			return
		}
		rec := httptest.NewRecorder()
		proxy.ServeHTTP(rec, r)
		for k, v := range rec.Header() {
			w.Header()[k] = v
		}
		w.WriteHeader(rec.Code)
		_, _ = w.Write(rec.Body.Bytes()[:100_000])
		panic(http.ErrAbortHandler)
	}))
	defer srv.Close()
	t.Setenv("SANDBOX_AGENT_ENDPOINT", srv.URL)
	cut.Store(2)
	mustTool(t, "", "fs", "get", "f")
	wantContent(t, here+"/f", body)
	if diff := cmp.Diff([]string{"", "bytes=100000-", "bytes=200000-"}, ranges); diff != "" {
		t.Errorf("ranges differ (-want +got):\n%s", diff)
	}
	if out := func() string { cut.Store(2); return mustTool(t, "", "fs", "get", "f", "-") }(); out != body {
		t.Errorf("%d bytes on the standard output", len(out))
	}
	// Another run continues; a file that changed is begun anew.
	for _, changed := range []bool{false, true} {
		ranges = nil
		e := fs.Entry{}
		if err := json.Unmarshal([]byte(mustTool(t, "", "fs", "stat", "f", "--json")), &e); err != nil {
			t.Fatal(err)
		}
		cut.Store(1000)
		brief, cancel := context.WithCancel(t.Context())
		std := stdio{in: strings.NewReader(""), out: io.Discard, err: io.Discard}
		stopped := make(chan int, 1)
		go func() { stopped <- run(brief, []string{"fs", "get", "f", "g"}, std) }()
		for part := []string(nil); len(part) == 0 || size(part[0]) == 0; part, _ = filepath.Glob(here + "/.*.part") {
			goruntime.Gosched()
		}
		cancel()
		<-stopped
		if changed {
			write(t, root+"/f", strings.ToUpper(body))
			body = strings.ToUpper(body)
		}
		cut.Store(0)
		ranges = nil
		mustTool(t, "", "fs", "get", "f", "g")
		wantContent(t, here+"/g", body)
		if len(ranges) == 0 && !changed {
			continue // it had all arrived
		}
		if ranges[0] != "" == changed {
			t.Errorf("changed %v: asked for %q", changed, ranges)
		}
		for _, p := range func() []string { l, _ := filepath.Glob(here + "/.*.part"); return l }() {
			_ = os.Remove(p)
		}
	}
}

func size(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return 0
	}
	return info.Size()
}

func TestFS_Folders(t *testing.T) {
	root, here := onRoot(t)
	for i := range 20 {
		write(t, fmt.Sprintf("%s/src/d%d/f%d", here, i%3, i), fmt.Sprint(i))
	}
	write(t, here+"/one", "1")
	if err := os.Symlink("d0/f0", here+"/src/l"); err != nil {
		t.Fatal(err)
	}
	if out := mustTool(t, "", "fs", "upload", "src", "one", "into"); out != "uploaded 21 files, 31 bytes\n" {
		t.Errorf("output %q", out)
	}
	wantContent(t, root+"/into/src/d1/f4", "4")
	if out := mustTool(t, "", "fs", "download", "into/src", "into/one", "back"); out != "downloaded 21 files, 31 bytes\n" {
		t.Errorf("output %q", out)
	}
	wantContent(t, here+"/back/src/l", "0")
	wantContent(t, here+"/back/one", "1")
	archive := mustTool(t, "", "fs", "download", "into/src", "-")
	mustTool(t, archive, "fs", "upload", "-", "again")
	wantContent(t, root+"/again/src/d1/f4", "4")
	// A gateway must not write outside of the folder that is downloaded into.
	if err := os.Symlink("/etc", root+"/into/evil"); err != nil {
		t.Fatal(err)
	}
	if code, _, errOut := tool(t, "", "fs", "download", "into", "back"); code != cmdline.ExitFailure || !strings.Contains(errOut, "absolute") {
		t.Errorf("exit %d: %s", code, errOut)
	}
	for _, args := range [][]string{{"upload", "no", "x"}, {"download", "no", "x"}} {
		if code, _, errOut := tool(t, "", append([]string{"fs"}, args...)...); code == cmdline.ExitOK || !strings.Contains(errOut, "no such file") {
			t.Errorf("%q: exit %d: %s", args, code, errOut)
		}
	}
}

func TestFS_Commands(t *testing.T) {
	root, _ := onRoot(t)
	mustTool(t, "", "fs", "mkdir", "a/b", "-p")
	write(t, root+"/a/f", "hello\nworld\n")
	mustTool(t, "", "fs", "cp", "a", "c")
	mustTool(t, "", "fs", "mv", "c/f", "g")
	mustTool(t, "", "fs", "rm", "-r", "c")
	if code, _, errOut := tool(t, "", "fs", "cp", "a/f", "g"); code != cmdline.ExitFailure || !strings.Contains(errOut, "overwrite") {
		t.Errorf("exit %d: %s", code, errOut)
	}
	mustTool(t, "", "fs", "cp", "-f", "a/f", "g")
	out := mustTool(t, "", "fs", "ls")
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 2 || !strings.HasSuffix(lines[0], " a/") || !strings.HasSuffix(lines[1], " g") || !strings.Contains(lines[1], " 12 ") {
		t.Errorf("output:\n%s", out)
	}
	if out = mustTool(t, "", "fs", "ls", "-r"); !strings.Contains(out, " a/b/\n") || !strings.Contains(out, " a/f\n") {
		t.Errorf("output:\n%s", out)
	}
	var e fs.Listed
	if err := json.NewDecoder(strings.NewReader(mustTool(t, "", "fs", "ls", "--json", "a"))).Decode(&e); err != nil || e.Path != root+"/a/b" {
		t.Errorf("%+v, %v", e, err)
	}
	if out := mustTool(t, "", "fs", "stat", "g"); !strings.Contains(out, "12 bytes") {
		t.Errorf("output:\n%s", out)
	}
	if out := mustTool(t, "", "fs", "search", "--content", "wor", "--limit", "1"); out != root+"/a/f:2:1: world\n" {
		t.Errorf("output:\n%s", out)
	}
	if out := mustTool(t, "", "fs", "search", "--name", "[fg]", "--limit", "0"); out != root+"/a/f\n"+root+"/g\n" {
		t.Errorf("output:\n%s", out)
	}
}

func TestFS_Watch(t *testing.T) {
	if goruntime.GOOS != "linux" {
		t.Skip("folders are watched on Linux only")
	}
	root, _ := onRoot(t)
	ctx, cancel := context.WithCancel(t.Context())
	out, errOut := newScreen(), newScreen()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"fs", "watch", "-r"}, stdio{in: bytes.NewReader(nil), out: out, err: errOut})
	}()
	errOut.await(t, `watching \.`)
	write(t, root+"/f", "x")
	out.await(t, "created "+root+"/f\nmodified "+root+"/f\n")
	cancel()
	<-ended
}

func TestFS_Git(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("git is not installed")
	}
	root, _ := onRoot(t)
	if code, _, errOut := tool(t, "", "fs", "git", "status"); code == cmdline.ExitOK || !strings.Contains(errOut, "error: ") {
		t.Errorf("outside of a repository: exit %d, %s", code, errOut)
	}
	git := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "git", append([]string{"-C", root, "-c", "user.name=n", "-c", "user.email=e@example.com"}, args...)...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	git("init", "-q", "-b", "trunk")
	write(t, filepath.Join(root, "a"), "one\n")
	git("add", "-A")
	git("commit", "-qm", "first")
	write(t, filepath.Join(root, "a"), "two\n")
	write(t, filepath.Join(root, "b"), "new\n")
	if out := mustTool(t, "", "fs", "git", "status"); !strings.Contains(out, "trunk") || !strings.Contains(out, "\n.M "+filepath.Join(root, "a")+"\n") || !strings.Contains(out, "\n?? "+filepath.Join(root, "b")+"\n") {
		t.Errorf("status:\n%s", out)
	}
	if out := mustTool(t, "", "fs", "git", "diff"); !strings.Contains(out, "\n-one\n+two\n") || !strings.Contains(out, "\n+++ b/b\n@@ -0,0 +1 @@\n+new\n") {
		t.Errorf("diff:\n%s", out)
	}
	if out := mustTool(t, "", "fs", "git", "diff", "--staged"); out != "" {
		t.Errorf("nothing is staged:\n%s", out)
	}
	git("add", "-A")
	if out := mustTool(t, "", "fs", "git", "diff", "--staged", "--json"); !strings.Contains(out, `+two`) || !strings.Contains(out, `"truncated":false`) {
		t.Errorf("staged as JSON:\n%s", out)
	}
	// A patch that was cut is not for applying, and whoever runs the line sees it in the exit code.
	write(t, filepath.Join(root, "long"), strings.Repeat("a line of a long file\n", 1<<20))
	if code, out, errOut := tool(t, "", "fs", "git", "diff"); code != cmdline.ExitFailure || out == "" || !strings.Contains(errOut, "name a folder or file") {
		t.Errorf("a long patch: exit %d, %d bytes, %s", code, len(out), errOut)
	}
}
