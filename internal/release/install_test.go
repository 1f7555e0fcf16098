//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// gatewayProgram is the real program of this machine, built once.
var gatewayProgram = sync.OnceValues(func() ([]byte, error) {
	name := filepath.Join(scratch, "sandbox-agent")
	cmd := exec.Command("go", "build", "-tags", "urfave_cli_no_docs", "-trimpath", "-ldflags", "-s -w -X main.version=9.8.7", "-o", name, "./cmd/sandbox-agent")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, errors.New(string(out))
	}
	return os.ReadFile(name)
})

// site is a place with releases, as install.sh is told of it.
type site struct {
	*httptest.Server
	mu    sync.Mutex
	files map[string][]byte                            // by path
	odd   map[string]func(http.ResponseWriter, []byte) // what is not simply sent, by path
	asked []string
}

func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{files: map[string][]byte{}, odd: map[string]func(http.ResponseWriter, []byte){}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.asked = append(s.asked, r.URL.Path)
		body, ok := s.files[r.URL.Path]
		odd := s.odd[r.URL.Path]
		s.mu.Unlock()
		switch {
		case !ok:
			http.NotFound(w, r)
		case odd != nil:
			odd(w, body)
		default:
			_, _ = w.Write(body)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

// publish puts a release on the site; its program is that of this machine.
func (s *site) publish(t *testing.T, folder string) (program, sums string) {
	t.Helper()
	body, err := gatewayProgram()
	if err != nil {
		t.Fatal(err)
	}
	here := platform{goruntime.GOOS, goruntime.GOARCH}
	file := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(file, body, 0o755); err != nil {
		t.Fatal(err)
	}
	sum, err := checksum(file)
	if err != nil {
		t.Fatal(err)
	}
	program, sums = folder+"/"+here.file("sandbox-agent"), folder+"/SHA256SUMS"
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[program] = body
	s.files[sums] = fmt.Appendf(nil, "%s  %s\n%s  %s.cdx.json\n%s  install.sh\n", sum, here.file("sandbox-agent"), strings.Repeat("1", 64), here.file("sandbox-agent"), strings.Repeat("2", 64))
	return program, sums
}

// shells are those that install.sh is for, as far as they are here.
func shells(t *testing.T) [][]string {
	t.Helper()
	var found [][]string
	for _, line := range [][]string{{"dash"}, {"bash"}, {"bash", "--posix"}, {"busybox", "sh"}, {"sh"}} {
		if _, err := exec.LookPath(line[0]); err != nil {
			t.Logf("%v is not here and was not tried", line)
			continue
		}
		found = append(found, line)
	}
	return found
}

// installer returns a command that runs install.sh with a home of its own.
func installer(t *testing.T, shell []string, home string, s *site, args ...string) *exec.Cmd {
	t.Helper()
	script, err := filepath.Abs(root + "/install.sh")
	if err != nil {
		t.Fatal(err)
	}
	line := slices.Concat(shell, []string{script}, args)
	cmd := exec.CommandContext(t.Context(), line[0], line[1:]...)
	cmd.Dir = home
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "SANDBOX_AGENT_BASE_URL=" + s.URL}
	return cmd
}

func TestInstall(t *testing.T) {
	if testing.Short() {
		t.Skip("short runs leave out what takes many seconds")
	}
	for _, shell := range shells(t) {
		t.Run(strings.Join(shell, " "), func(t *testing.T) {
			s := newSite(t)
			s.publish(t, "/latest/download")
			s.publish(t, "/download/v1.2.3")
			home := t.TempDir()
			place := filepath.Join(home, ".local/bin/sandbox-agent")
			for _, args := range [][]string{nil, {"--version", "v1.2.3"}, {"--version=1.2.3", "--dir=.local/bin", "--base-url=" + s.URL + "/"}} {
				out, err := installer(t, shell, home, s, args...).CombinedOutput()
				if err != nil || !strings.Contains(string(out), "sandbox-agent 9.8.7") || !strings.Contains(string(out), "not in PATH") {
					t.Fatalf("%v: %v\n%s", args, err, out)
				}
				if says, err := exec.CommandContext(t.Context(), place, "version").Output(); err != nil || !strings.Contains(string(says), "9.8.7") {
					t.Errorf("it says %s, %v", says, err)
				}
				if left := names(t, filepath.Dir(place)); len(left) != 1 {
					t.Errorf("the folder has %v", left)
				}
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if !slices.Contains(s.asked, "/download/v1.2.3/SHA256SUMS") {
				t.Errorf("asked for %v", s.asked)
			}
		})
	}
}

// Whatever is wrong, what was installed before stays, nothing is left beside it,
// and the error says what it was.
func TestInstall_Refuses(t *testing.T) {
	if testing.Short() {
		t.Skip("short runs leave out what takes many seconds")
	}
	other := func(b []byte) []byte { // one bit of difference
		b = bytes.Clone(b)
		b[len(b)/2] ^= 1
		return b
	}
	half := func(w http.ResponseWriter, b []byte) { // and then the connection breaks
		w.Header().Set("Content-Length", fmt.Sprint(len(b)))
		_, _ = w.Write(b[:len(b)/2])
		panic(http.ErrAbortHandler)
	}
	tests := []struct {
		name string
		with func(s *site, program, sums string)
		args []string
		env  []string
		want string
	}{
		{"changed program", func(s *site, program, _ string) { s.files[program] = other(s.files[program]) }, nil, nil, "checksum of"},
		{"shortened program", func(s *site, program, _ string) { s.files[program] = s.files[program][:1000] }, nil, nil, "checksum of"},
		{"empty program", func(s *site, program, _ string) { s.files[program] = []byte{} }, nil, nil, "checksum of"},
		{"interrupted download", func(s *site, program, _ string) { s.odd[program] = half }, nil, nil, "cannot download"},
		{"no program", func(s *site, program, _ string) { delete(s.files, program) }, nil, nil, "cannot download"},
		{"no checksums", func(s *site, _, sums string) { delete(s.files, sums) }, nil, nil, "SHA256SUMS: check the network"},
		{"interrupted checksums", func(s *site, _, sums string) { s.odd[sums] = half }, nil, nil, "SHA256SUMS: check the network"},
		{"checksum is another file's", func(s *site, program, sums string) {
			s.files[sums] = fmt.Appendf(nil, "%s  %s.old\n", strings.Repeat("a", 64), filepath.Base(program))
		}, nil, nil, "SHA256SUMS does not name"},
		{"two checksums", func(s *site, _, sums string) { s.files[sums] = append(s.files[sums], s.files[sums]...) }, nil, nil, "no single checksum"},
		{"a page instead of checksums", func(s *site, program, sums string) {
			s.files[sums] = fmt.Appendf(nil, "<p> %s\n", filepath.Base(program))
		}, nil, nil, "no single checksum"},
		{"a short checksum", func(s *site, program, sums string) {
			s.files[sums] = fmt.Appendf(nil, "abc  %s\n", filepath.Base(program))
		}, nil, nil, "no SHA-256"},
		{"unknown version", nil, []string{"--version", "7.7.7"}, nil, "the version (7.7.7)"},
		{"odd version", nil, []string{"--version", "1/../../x"}, nil, "is not a version"},
		{"unknown option", nil, []string{"--force"}, nil, "is not an option"},
		{"option without value", nil, []string{"--dir"}, nil, "needs a value"},
		{"another system", nil, nil, []string{"uname=echo Plan9"}, "only for Linux and macOS"},
		{"Windows", nil, nil, []string{"uname=echo MINGW64_NT-10.0"}, "windows-amd64.zip"},
		{"another machine", nil, nil, []string{`uname=[ "$1" = -s ] && echo Linux || echo riscv64`}, "only for x86_64 and arm64"},
		{"an architecture that the release lacks", nil, nil, []string{`uname=[ "$1" = -s ] && echo Darwin || echo arm64`}, "has no program for darwin-arm64"},
		{"a program that does not run", func(s *site, program, sums string) {
			s.files[program] = []byte("#!/bin/sh\nexit 3\n")
			s.files[sums] = fmt.Appendf(nil, "%s  %s\n", sumOf(s.files[program]), filepath.Base(program))
		}, nil, nil, "does not run on this machine"},
		{"nothing that makes checksums", nil, nil, []string{"only=curl"}, "neither sha256sum nor shasum nor openssl"},
		{"nothing that downloads", nil, nil, []string{"only=sha256sum"}, "neither curl nor wget"},
	}
	for _, shell := range shells(t) {
		for _, tt := range tests {
			t.Run(strings.Join(shell, " ")+" "+tt.name, func(t *testing.T) {
				s := newSite(t)
				program, sums := s.publish(t, "/latest/download")
				if tt.with != nil {
					s.mu.Lock()
					tt.with(s, program, sums)
					s.mu.Unlock()
				}
				home := t.TempDir()
				place := filepath.Join(home, ".local/bin/sandbox-agent")
				writeFile(t, place, "the old one")
				cmd := installer(t, shell, home, s, tt.args...)
				for _, tool := range tt.env {
					cmd.Env = append(cmd.Env, "PATH="+tools(t, tool, os.Getenv("PATH")))
				}
				out, err := cmd.CombinedOutput()
				if err == nil || !strings.Contains(string(out), tt.want) {
					t.Errorf("%v, want %q in:\n%s", err, tt.want, out)
				}
				if b, err := os.ReadFile(place); err != nil || string(b) != "the old one" {
					t.Errorf("what was there is gone: %d bytes, %v", len(b), err)
				}
				if left := names(t, filepath.Dir(place)); len(left) != 1 {
					t.Errorf("the folder has %v", left)
				}
			})
		}
	}
}

func sumOf(b []byte) string {
	f, err := os.CreateTemp(scratch, "sum")
	if err != nil {
		panic(err)
	}
	defer f.Close()
	_, _ = f.Write(b)
	sum, err := checksum(f.Name())
	if err != nil {
		panic(err)
	}
	return sum
}

// tools returns a PATH. NAME=SCRIPT puts a program before the others; only=NAME
// has just what every system has, and NAME.
func tools(t *testing.T, tool, path string) string {
	t.Helper()
	dir := t.TempDir()
	name, script, _ := strings.Cut(tool, "=")
	if name != "only" {
		writeFile(t, filepath.Join(dir, name), "#!/bin/sh\n"+script+"\n")
		if err := os.Chmod(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
		return dir + ":" + path
	}
	for _, name := range []string{script, "uname", "mkdir", "mktemp", "rm", "mv", "chmod", "cut", "awk", "cat", "pwd"} {
		if program, err := exec.LookPath(name); err == nil {
			if err := os.Symlink(program, filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// A script that arrives incomplete does nothing.
func TestInstall_IncompleteScript(t *testing.T) {
	script, err := os.ReadFile(root + "/install.sh")
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t)
	s.publish(t, "/latest/download")
	home := t.TempDir()
	text := strings.TrimSpace(string(script))
	var cuts []int
	for at := range text {
		if left := len(text) - at; left < 20 || text[at] == '\n' && at%4 == 0 {
			cuts = append(cuts, at)
		}
	}
	for _, at := range cuts {
		cmd := exec.CommandContext(t.Context(), "sh")
		cmd.Stdin, cmd.Dir = strings.NewReader(text[:at]), home
		cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "SANDBOX_AGENT_BASE_URL=" + s.URL}
		_ = cmd.Run() // some beginnings are no valid script
		if left := names(t, home); len(left) > 0 {
			t.Fatalf("the first %d bytes made %v", at, left)
		}
	}
	cmd := exec.CommandContext(t.Context(), "sh")
	cmd.Stdin, cmd.Dir = strings.NewReader(text), home
	cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH"), "SANDBOX_AGENT_BASE_URL=" + s.URL}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("the whole script: %v\n%s", err, out)
	}
}

// Ctrl-C in the middle of the download leaves what was there, and nothing else.
func TestInstall_Interrupted(t *testing.T) {
	for _, shell := range shells(t) {
		t.Run(strings.Join(shell, " "), func(t *testing.T) {
			s := newSite(t)
			program, _ := s.publish(t, "/latest/download")
			begun, over := make(chan bool, 1), make(chan bool)
			s.mu.Lock()
			s.odd[program] = func(w http.ResponseWriter, b []byte) {
				w.Header().Set("Content-Length", fmt.Sprint(len(b)))
				_, _ = w.Write(b[:len(b)/2])
				_ = http.NewResponseController(w).Flush()
				begun <- true
				<-over
			}
			s.mu.Unlock()
			defer close(over)
			home := t.TempDir()
			cmd := installer(t, shell, home, s)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			select {
			case <-begun:
			case <-ctx.Done():
				t.Error("nothing was downloaded")
			}
			if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil { // as a terminal does
				t.Error(err)
			}
			if err := cmd.Wait(); err == nil {
				t.Error("it says that it succeeded")
			}
			if left := names(t, filepath.Join(home, ".local/bin")); len(left) > 0 {
				t.Errorf("the folder has %v", left)
			}
		})
	}
}

func TestScripts_Shellcheck(t *testing.T) {
	if _, err := exec.LookPath("shellcheck"); err != nil {
		t.Skip("shellcheck is not installed, the scripts were not checked by it")
	}
	for _, name := range []string{"install.sh", "examples/docker/rootfs.sh", "examples/docker/install-agents.sh"} {
		if out, err := exec.CommandContext(t.Context(), "shellcheck", "--shell=sh", filepath.Join(root, name)).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
