package install

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// The test binary is also the second installer: TEST_INSTALL holds the server's
// address, TEST_DATA the data directory.
func TestMain(m *testing.M) {
	if address := os.Getenv("TEST_INSTALL"); address != "" {
		os.Exit(child(address, os.Getenv("TEST_DATA")))
	}
	// The thread that starts processes lives as long as the program.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("sandboxagent.dev/sandbox-agent/internal/process.startAll"))
}

// child installs claude, reporting its steps and then its result, one per line.
func child(address, data string) int {
	in := New(Options{DataDir: data, Mirrors: mirrorsAt(address), Platform: linuxX64, Sources: []Source{Vendor}})
	r, err := in.Install(context.Background(), Request{Agent: "claude", Progress: func(p Progress) {
		if p.Step != StepDownload || p.Done == 0 {
			fmt.Println("step", p.Step)
		}
	}})
	if err != nil {
		fmt.Println("failed", err)
		return 1
	}
	fmt.Println("result", r.Version, r.Already)
	return 0
}

var linuxX64 = Platform{OS: "linux", Arch: "x64"}

func mirrorsAt(address string) map[string]string {
	return map[string]string{
		claudeBase:           address + "/claude",
		ampBase:              address + "/amp",
		gitHub:               address + "/github",
		gitHubAPI:            address + "/api",
		DefaultRegistryURL:   address + "/registry.json",
		"https://files.test": address + "/files",
	}
}

// file is what the server has at one path.
type file struct {
	body    []byte
	handler http.HandlerFunc // instead of body
}

// maker is the server of all makers, of GitHub and of the ACP registry.
type maker struct {
	*httptest.Server
	mu    sync.Mutex
	files map[string]file
	hits  map[string]int
}

func newMaker(t *testing.T) *maker {
	t.Helper()
	m := &maker{files: map[string]file{}, hits: map[string]int{}}
	m.Server = httptest.NewServer(m)
	t.Cleanup(m.Close)
	return m
}

func (m *maker) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	f, ok := m.files[r.URL.Path]
	m.hits[r.URL.Path]++
	m.mu.Unlock()
	switch {
	case !ok:
		http.NotFound(w, r)
	case f.handler != nil:
		f.handler(w, r)
	default:
		w.Header().Set("ETag", `"`+sum(f.body)[:8]+`"`)
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.body))
	}
}

func (m *maker) put(path string, body []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[path] = file{body: body}
}

func (m *maker) handle(path string, h http.HandlerFunc) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[path] = file{handler: h}
}

func (m *maker) hitsOf(path string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.hits[path]
}

// putClaude publishes a version of claude whose program is body.
func (m *maker) putClaude(version string, body []byte) {
	m.put("/claude/latest", []byte(version+"\n"))
	platforms := map[string]any{}
	for _, p := range []string{"linux-x64", "linux-x64-musl"} {
		m.put("/claude/"+version+"/"+p+"/claude", body)
		platforms[p] = map[string]any{"binary": "claude", "checksum": sum(body), "size": len(body)}
	}
	m.put("/claude/"+version+"/manifest.json", asJSON(map[string]any{"version": version, "platforms": platforms}))
}

// putRelease publishes a GitHub release; digests says whether the API tells them.
func (m *maker) putRelease(repo, tag string, digests bool, assets map[string][]byte) {
	type asset struct {
		Name   string `json:"name"`
		Digest string `json:"digest,omitempty"`
	}
	doc := struct {
		Tag    string  `json:"tag_name"`
		Assets []asset `json:"assets"`
	}{Tag: tag}
	for name, body := range assets {
		a := asset{Name: name}
		if digests {
			a.Digest = "sha256:" + sum(body)
		}
		doc.Assets = append(doc.Assets, a)
		m.put("/github/"+repo+"/releases/download/"+tag+"/"+name, body)
	}
	m.put("/api/repos/"+repo+"/releases/latest", asJSON(doc))
	m.put("/api/repos/"+repo+"/releases/tags/"+tag, asJSON(doc))
}

// installer returns one that asks only the server.
func (m *maker) installer(t *testing.T, o Options) *Installer {
	t.Helper()
	if o.DataDir == "" {
		o.DataDir = t.TempDir()
	}
	if o.Platform == (Platform{}) {
		o.Platform = linuxX64
	}
	if o.Mirrors == nil {
		o.Mirrors = mirrorsAt(m.URL)
	}
	if o.Stall == 0 {
		o.Stall = 10 * time.Second
	}
	in := New(o)
	in.retry = time.Millisecond
	t.Cleanup(in.idle)
	return in
}

func mustInstall(t *testing.T, in *Installer, req Request) Result {
	t.Helper()
	r, err := in.Install(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// wantProblem checks an error's kind and that its text holds all words.
func wantProblem(t *testing.T, err error, kind problem.Kind, words ...string) {
	t.Helper()
	p, ok := errors.AsType[*problem.Error](err)
	if !ok {
		t.Fatalf("error %v (%T), want a problem", err, err)
	}
	if p.Kind != kind {
		t.Errorf("kind %s, want %s: %v", p.Kind, kind, err)
	}
	for _, w := range words {
		if !strings.Contains(p.Detail, w) {
			t.Errorf("detail %q does not say %q", p.Detail, w)
		}
	}
}

// program is a script that answers --version, and initialize when it is started
// as an ACP agent.
func program(says string) []byte {
	return []byte("#!/bin/sh\ncase \"$1\" in\n--version) echo '" + says + "' ;;\nacp | --acp) " + answersInitialize + " ;;\n*) exit 2 ;;\nesac\n")
}

// answersInitialize is a command of a shell.
const answersInitialize = `read -r line; echo '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":1,"agentInfo":{"name":"fake","version":"1"}}}'`

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

func asJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// entry is one entry of a test archive.
type entry struct {
	name, body, link string
	kind             byte // tar's; 0 for a file
	mode             int64
}

func tarGz(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Mode: e.mode, Size: int64(len(e.body)), Linkname: e.link}
		if e.kind == 0 {
			h.Typeflag = tar.TypeReg
		}
		if h.Mode == 0 {
			h.Mode = 0o755
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.body); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zipped(t testing.TB, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		h.SetMode(os.FileMode(0o755))
		if e.kind == tar.TypeSymlink {
			h.SetMode(os.ModeSymlink | 0o777)
			e.body = e.link
		}
		f, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(f, e.body); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// script puts an executable into a new directory that becomes all of PATH but
// the system's own.
func onPath(t *testing.T, scripts map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, body := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	// Only what scripts need, so that no npm of this machine is found.
	for _, tool := range []string{"sh", "sleep", "mkdir", "cat", "chmod", "env"} {
		for _, d := range []string{"/bin", "/usr/bin"} {
			if _, err := os.Stat(filepath.Join(d, tool)); err == nil {
				_ = os.Symlink(filepath.Join(d, tool), filepath.Join(dir, tool))
				break
			}
		}
	}
	t.Setenv("PATH", dir)
	return dir
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// newTLSMaker returns the address of a server with a certificate nobody knows.
func newTLSMaker(t *testing.T, h http.Handler) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return s.URL
}
