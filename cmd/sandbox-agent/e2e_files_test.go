package main_test

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/agentcache"
	"sandboxagent.dev/sandbox-agent/internal/patient"
	"sandboxagent.dev/sandbox-agent/internal/programs"
)

// files sends a request to the file routes and returns the answer's status and
// body.
func (g *gateway) files(method, route string, q url.Values, body io.Reader) (int, string) {
	g.t.Helper()
	resp := g.filesOpen(method, route, q, body)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func (g *gateway) filesOpen(method, route string, q url.Values, body io.Reader) *http.Response {
	g.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, g.url+"/v2/fs/"+route+"?"+q.Encode(), body)
	if err != nil {
		g.t.Fatal(err)
	}
	g.authorize(req.Header)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	return resp
}

func at(path string) url.Values { return url.Values{"path": {path}} }

// noise is a long content of zeros with blocks of noise in between, the same
// each time.
type noise struct {
	left  int64
	block []byte
	pos   int
}

func newNoise(size int64) *noise {
	block := make([]byte, 1<<20)
	src := rand.NewChaCha8([32]byte{7})
	_, _ = src.Read(block[:256<<10])
	return &noise{left: size, block: block}
}

func (n *noise) Read(p []byte) (int, error) {
	if n.left == 0 {
		return 0, io.EOF
	}
	k := copy(p[:min(int64(len(p)), n.left)], n.block[n.pos:])
	n.pos = (n.pos + k) % len(n.block)
	n.left -= int64(k)
	return k, nil
}

// status returns a number of kB in /proc/PID/status.
func status(t *testing.T, pid int, field string) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(b), field+":")
	if !ok {
		t.Fatalf("there is no %s", field)
	}
	n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// withoutRace makes the gateway one without the race detector, which takes
// memory and time of its own.
func (g *gateway) withoutRace() {
	g.t.Helper()
	if !raceEnabled() {
		return
	}
	dir := g.t.TempDir()
	if err := programs.Build(dir, false, programs.Gateway); err != nil {
		g.t.Fatal(err)
	}
	plain := filepath.Join(dir, programs.Gateway)
	g.wrap = []string{"sh", "-c", `shift; exec "` + plain + `" "$@"`, "sh"}
}

// Memory does not depend on the size of a file.
func TestFiles_LargeFileInLittleMemory(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("memory is read from /proc")
	}
	size := int64(1 << 30) // a hundred times what it may grow by
	if agentcache.IsLong() {
		size = 8 << 30
	}
	root := t.TempDir()
	g := newGateway(t, "--fs-root", root)
	g.withoutRace()
	g.start()
	pid := g.cmd.Process.Pid
	// Pages of the program's own file come and go, whatever it does: they are not counted.
	most := int64(0)
	look := func() { most = max(most, status(t, pid, "RssAnon")) }
	transfer := func(name string, size int64) {
		t.Helper()
		sent, received := &looking{Hash: sha256.New(), look: look}, &looking{Hash: sha256.New(), look: look}
		if code, body := g.files("PUT", "file", at(name), io.TeeReader(newNoise(size), sent)); code != 201 {
			t.Fatalf("%d: %s", code, body)
		}
		resp := g.filesOpen("GET", "file", at(name), nil)
		defer resp.Body.Close()
		n, err := io.CopyBuffer(struct{ io.Writer }{received}, resp.Body, make([]byte, 1<<20))
		if err != nil || n != size || !bytes.Equal(sent.Sum(nil), received.Sum(nil)) {
			t.Fatalf("received %d of %d bytes, %v", n, size, err)
		}
		if err := os.Remove(filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	transfer("warm", 64<<20)
	before := most
	transfer("large", size)
	t.Logf("%d MiB up and down, memory grew by %d KiB from %d KiB", size>>20, most-before, before)
	if most-before > 8<<10 {
		t.Errorf("memory grew by %d KiB", most-before)
	}
}

// looking is a hash that looks at something after each 16 MiB.
type looking struct {
	hash.Hash
	look func()
	n    int
}

func (l *looking) Write(p []byte) (int, error) {
	if l.n += len(p); l.n >= 16<<20 {
		l.n = 0
		l.look()
	}
	return l.Hash.Write(p)
}

// Whoever breaks off, client or gateway, leaves the old file.
func TestFiles_InterruptedUpload(t *testing.T) {
	root := t.TempDir()
	g := startGateway(t, "--fs-root", root)
	path := filepath.Join(root, "f")
	if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	begin := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", strings.TrimPrefix(g.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(c, "PUT /v2/fs/file?path=f HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 100000000\r\n\r\n")
		if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.HasPrefix(line, "HTTP/1.1 100 ") {
			t.Fatalf("it does not read the upload: %q, %v", line, err)
		}
		fmt.Fprint(c, strings.Repeat("x", 1<<20))
		return c
	}
	_ = begin().Close()
	g.until("the unfinished file is gone", func() bool { return len(entries(t, root)) == 1 })
	c := begin()
	g.kill(syscall.SIGKILL)
	_ = c.Close()
	if b, err := os.ReadFile(path); err != nil || string(b) != "old" {
		t.Errorf("%q, %v", b, err)
	}
	if runtime.GOOS == "linux" { // elsewhere files have a name from the beginning
		if left := entries(t, root); len(left) != 1 {
			t.Errorf("what is left: %q", left)
		}
	}
	requests := filepath.Join(g.dir, "requests")
	if err := os.MkdirAll(filepath.Join(requests, "sandbox-agent-git-1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if g.restart(); len(entries(t, g.dir)) == 0 || slices.Contains(entries(t, g.dir), "requests") {
		t.Errorf("what requests have left is still there: %q", entries(t, g.dir))
	}
}

func entries(t *testing.T, dir string) []string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

// until waits for a state of the file system, which nobody announces.
func (g *gateway) until(what string, ok func() bool) {
	g.t.Helper()
	if !patient.Until(patience, ok) {
		g.t.Fatalf("waited in vain until %s", what)
	}
}

func TestFiles_ManySmallFiles(t *testing.T) {
	counts := []int{10_000, 100_000}
	if testing.Short() {
		counts = counts[:1]
	}
	root := t.TempDir()
	g := newGateway(t, "--fs-root", root)
	g.withoutRace()
	g.start()
	name := func(i int) string { return fmt.Sprintf("d%02d/e%d/f%05d.txt", i%100, i%7, i) }
	for _, n := range counts {
		into := fmt.Sprintf("n%d", n)
		r, w := io.Pipe()
		go func() {
			tw := tar.NewWriter(w)
			for i := range n {
				body := strings.Repeat(strconv.Itoa(i)+" ", 50)
				_ = tw.WriteHeader(&tar.Header{Name: name(i), Mode: 0o644, Size: int64(len(body)), Typeflag: tar.TypeReg})
				_, _ = io.WriteString(tw, body)
			}
			_ = w.CloseWithError(tw.Close())
		}()
		began := time.Now()
		code, body := g.files("POST", "upload-batch", at(into), r)
		var u struct {
			Paths     []string
			Truncated bool
			Files     int
		}
		if err := json.Unmarshal([]byte(body), &u); code != 200 || err != nil || u.Files != n || len(u.Paths) != 1024 || !u.Truncated {
			t.Fatalf("%d: %.300s", code, body)
		}
		up := time.Since(began)
		began = time.Now()
		resp := g.filesOpen("GET", "download-batch", at(into), nil)
		seen := 0
		for tr := tar.NewReader(resp.Body); ; {
			h, err := tr.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if h.Typeflag != tar.TypeReg {
				continue
			}
			i, err := strconv.Atoi(strings.TrimSuffix(filepath.Base(h.Name), ".txt")[1:])
			b, rerr := io.ReadAll(tr)
			if err != nil || rerr != nil || h.Name != into+"/"+name(i) || string(b) != strings.Repeat(strconv.Itoa(i)+" ", 50) {
				t.Fatalf("%s: %q, %v, %v", h.Name, b, err, rerr)
			}
			seen++
		}
		_ = resp.Body.Close()
		if seen != n {
			t.Errorf("%d of %d came back", seen, n)
		}
		t.Logf("%d files up in %v, down in %v", n, up, time.Since(began))
	}
}

func TestFiles_ConcurrentWriters(t *testing.T) {
	root := t.TempDir()
	g := startGateway(t, "--fs-root", root)
	const size = 1 << 20
	var writers sync.WaitGroup
	for i := range 8 {
		writers.Go(func() {
			for range 5 {
				if code, body := g.files("PUT", "file", at("f"), strings.NewReader(strings.Repeat(string(rune('a'+i)), size))); code > 201 {
					t.Errorf("%d: %s", code, body)
				}
				if code, body := g.files("GET", "file", at("f"), nil); code != 200 || len(body) != size || strings.Trim(body, body[:1]) != "" {
					t.Errorf("%d: a mix of %d bytes", code, len(body))
				}
			}
		})
	}
	writers.Wait()
	if got := entries(t, root); len(got) != 1 {
		t.Errorf("left behind: %q", got)
	}
}

func TestFiles_Attacks(t *testing.T) {
	outside := t.TempDir()
	if err := os.WriteFile(filepath.Join(outside, "victim"), []byte("untouched"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, confined := range map[string]bool{"root": true, "machine": false} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			args := []string{"--token", token}
			if confined {
				args = append(args, "--fs-root", root)
			}
			g := startGateway(t, args...)
			wants := func(status int, kind string) func(int, string) {
				return func(code int, body string) {
					t.Helper()
					var p struct{ Type, Detail string }
					if err := json.Unmarshal([]byte(body), &p); err != nil || code != status || p.Type != "urn:sandbox-agent:error:"+kind || p.Detail == "" {
						t.Errorf("%d: %.300s, want %d %s", code, body, status, kind)
					}
				}
			}
			if confined {
				escapes := wants(403, "path_escapes")
				for link, target := range map[string]string{"abs": outside, "rel": strings.Repeat("../", 20) + outside[1:], "env": "/proc/self/environ", "file": outside + "/victim"} {
					if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
						t.Fatal(err)
					}
				}
				for _, p := range []string{"../x", "a/../../x", "/proc/self/environ", "env", "file", "abs/victim", "rel/victim", outside + "/victim", root + "/../x"} {
					escapes(g.files("GET", "file", at(p), nil))
					escapes(g.files("PUT", "file", at(p), strings.NewReader("x")))
					q := at(p)
					q.Set("follow", "true")
					escapes(g.files("GET", "stat", q, nil))
				}
				escapes(g.files("GET", "entries", at("abs"), nil))
				escapes(g.files("DELETE", "entry", at("abs/victim"), nil))
				escapes(g.files("POST", "mkdir", at("abs/new"), nil))
				escapes(g.files("POST", "move", url.Values{"from": {"abs/victim"}, "to": {"x"}}, nil))
				escapes(g.files("POST", "upload-batch", at("abs"), tarball(t, tar.Header{Name: "victim"})))
				escapes(g.files("GET", "download-batch", at("abs/victim"), nil))
			}
			refused := wants(422, "archive_refused")
			into := at(filepath.Join(root, "into"))
			for _, headers := range [][]tar.Header{
				{{Name: "../victim"}},
				{{Name: outside + "/victim"}},
				{{Name: "a/../../victim"}},
				{{Name: "l", Typeflag: tar.TypeSymlink, Linkname: outside}, {Name: "l/victim"}},
				{{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "../../"}, {Name: "l/victim"}},
				{{Name: "h", Typeflag: tar.TypeLink, Linkname: outside + "/victim"}},
				{{Name: "h", Typeflag: tar.TypeLink, Linkname: "../victim"}},
				{{Name: "d", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}},
				{{Name: "d", Typeflag: tar.TypeBlock}},
				{{Name: "d", Typeflag: tar.TypeFifo}},
			} {
				refused(g.files("POST", "upload-batch", into, tarball(t, headers...)))
			}
			// A link that somebody else planted before the upload.
			if err := os.Symlink(outside, filepath.Join(root, "into", "planted")); err != nil {
				t.Fatal(err)
			}
			wants(403, "path_escapes")(g.files("POST", "upload-batch", into, tarball(t, tar.Header{Name: "planted/victim"})))
			if b, err := os.ReadFile(filepath.Join(outside, "victim")); err != nil || string(b) != "untouched" || len(entries(t, outside)) != 1 {
				t.Errorf("outside: %q, %q, %v", entries(t, outside), b, err)
			}
		})
	}
}

func tarball(t *testing.T, headers ...tar.Header) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		h.Mode = 0o644
		if h.Typeflag == 0 {
			h.Typeflag, h.Size = tar.TypeReg, 1
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := w.Write([]byte("x")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// The methods of the agent protocol use the same service; relative paths belong
// to the session's directory.
func TestFiles_Methods(t *testing.T) {
	root := t.TempDir()
	g := startGateway(t, "--fs-root", root)
	for _, kind := range dialects {
		t.Run(string(kind), func(t *testing.T) {
			c := connect(t, g, kind, options{})
			cwd := filepath.Join(root, string(kind))
			if err := os.MkdirAll(cwd, 0o755); err != nil {
				t.Fatal(err)
			}
			var opened struct {
				SessionID string `json:"sessionId"`
			}
			if err := json.Unmarshal(c.must("session/new", map[string]any{"cwd": cwd, "mcpServers": []any{}}), &opened); err != nil {
				t.Fatal(err)
			}
			s := opened.SessionID
			if kind == standard {
				c.stream(s)
			}
			call := func(method string, p map[string]any) (v struct {
				Path, Type, Content, Mode string
				Size, Files               int64
				EOF                       bool
				Entries                   []struct{ Name string }
			},
			) {
				t.Helper()
				if err := json.Unmarshal(c.must("_sandboxagent/fs/"+method, p), &v); err != nil {
					t.Fatal(err)
				}
				return v
			}
			content := []byte("a\x00\xffb")
			if e := call("write_file", map[string]any{"sessionId": s, "path": "d/f", "parents": true, "mode": "600", "content": content}); e.Path != filepath.Join(cwd, "d/f") || e.Mode != "0600" {
				t.Errorf("%+v", e)
			}
			for _, p := range []map[string]any{{"sessionId": s, "path": "d/f"}, {"path": string(kind) + "/d/f"}, {"path": cwd + "/d/f"}} {
				if got := call("read_file", p); got.Content != base64.StdEncoding.EncodeToString(content) || !got.EOF || got.Size != 4 {
					t.Errorf("%v: %+v", p, got)
				}
			}
			if got := call("read_file", map[string]any{"sessionId": s, "path": "d/f", "offset": 1, "length": 2}); got.Content != base64.StdEncoding.EncodeToString(content[1:3]) || got.EOF {
				t.Errorf("%+v", got)
			}
			call("mkdir", map[string]any{"sessionId": s, "path": "e"})
			call("move", map[string]any{"sessionId": s, "from": "d/f", "to": "e/g"})
			archive, err := io.ReadAll(tarball(t, tar.Header{Name: "x/y"}))
			if err != nil {
				t.Fatal(err)
			}
			if u := call("upload_batch", map[string]any{"sessionId": s, "path": "e", "content": archive}); u.Files != 1 {
				t.Errorf("%+v", u)
			}
			if l := call("list_entries", map[string]any{"sessionId": s, "path": "e"}); len(l.Entries) != 2 || l.Entries[0].Name != "g" {
				t.Errorf("%+v", l)
			}
			if e := call("stat", map[string]any{"sessionId": s, "path": "e"}); e.Type != "directory" {
				t.Errorf("%+v", e)
			}
			call("delete_entry", map[string]any{"sessionId": s, "path": "e", "recursive": true})
			for _, tt := range []struct {
				method, kind string
				params       map[string]any
			}{
				{"read_file", "not_found", map[string]any{"sessionId": s, "path": "e/g"}},
				{"read_file", "path_escapes", map[string]any{"path": "/etc/passwd"}},
				{"write_file", "path_escapes", map[string]any{"sessionId": s, "path": "../../x", "content": content}},
				{"write_file", "invalid_request", map[string]any{"path": "x", "content": "no base64!"}},
				{"read_file", "invalid_request", map[string]any{"path": "x", "length": 1 << 30}},
				{"delete_entry", "invalid_request", map[string]any{"sessionId": s}},
				{"list_entries", "invalid_request", map[string]any{"sessionId": s, "path": ".", "order": "up"}},
			} {
				if _, err := c.call("_sandboxagent/fs/"+tt.method, tt.params); err == nil || !strings.Contains(err.Error(), tt.kind) {
					t.Errorf("%s %v: %v, want %s", tt.method, tt.params, err, tt.kind)
				}
			}
			if !strings.Contains(string(c.init), `"_sandboxagent/fs/read_file"`) {
				t.Errorf("initialize does not list the methods: %s", c.init)
			}
		})
	}
}
