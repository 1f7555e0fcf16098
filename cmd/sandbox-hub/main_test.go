package main_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/freeport"
	"sandboxagent.dev/sandbox-agent/internal/programs"
)

// These tests run the real hub and real gateways in processes of their own. Their
// clients are the official SDK, the gateway's own commands and plain HTTP.

// patience bounds what would otherwise wait for ever. Nothing is measured by it: on a slow machine that
// does other work, too, a start of an agent can take half a minute.
const patience = 2 * time.Minute

var buildDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "sandbox-hub-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	buildDir = dir
	programs.AsUsers()
	if signal.Ignored(syscall.SIGHUP) { // by nohup; the programs that are tested end by it
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// raced reports whether the tests, and so the programs, look for data races, which costs them memory
// and time.
func raced() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// binaries builds the hub and the gateway once, as the tests were built.
var binaries = sync.OnceValue(func() error { return programs.Build(buildDir, raced(), programs.Hub, programs.Gateway) })

// program is a running program that says where it listens.
type program struct {
	t    testing.TB
	line []string
	env  []string

	url    string
	cmd    *exec.Cmd
	out    *os.File // its standard output
	log    *said
	exited chan struct{} // closed when it has been waited for
}

// said collects what a program writes to its standard error.
type said struct {
	mu   sync.Mutex
	text strings.Builder
	more chan struct{} // closed and replaced with each line
}

func (s *said) add(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.WriteString(line)
	close(s.more)
	s.more = make(chan struct{})
}

func (s *said) state() (string, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String(), s.more
}

func startProgram(t testing.TB, name string, args ...string) *program {
	t.Helper()
	if testing.Short() {
		t.Skip("programs in processes of their own are left out of short runs: they take minutes")
	}
	if err := binaries(); err != nil {
		t.Fatal(err)
	}
	if i := slices.Index(args, "--port"); i >= 0 && args[i+1] == "0" { // started again it has the same address
		args[i+1] = strconv.Itoa(freeport.Of(t))
	}
	p := &program{t: t, line: append([]string{filepath.Join(buildDir, name)}, args...)}
	p.start()
	t.Cleanup(func() {
		p.kill(syscall.SIGTERM)
		text, _ := p.log.state()
		if t.Failed() || strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic") {
			t.Errorf("%s said:\n%s", name, text)
		}
	})
	return p
}

var address = regexp.MustCompile(`listening on (https?://\S+)`)

func (p *program) start() {
	p.t.Helper()
	p.cmd = exec.Command(p.line[0], p.line[1:]...) // no context: signals end it, which is what is tested
	p.cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "SANDBOX_") }), p.env...)
	p.log, p.exited = &said{more: make(chan struct{})}, make(chan struct{})
	out, err := os.Create(filepath.Join(p.t.TempDir(), "stdout")) // a file: what is written can be read at once
	if err != nil {
		p.t.Fatal(err)
	}
	p.cmd.Stdout, p.out = out, out
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	cmd, log, exited := p.cmd, p.log, p.exited
	go func() {
		defer close(exited)
		for r := bufio.NewReader(stderr); ; {
			line, err := r.ReadString('\n')
			log.add(line)
			if err != nil {
				break
			}
		}
		_ = cmd.Wait() // how it ended is for the test to say
		_ = out.Close()
	}()
	p.url = address.FindStringSubmatch(p.until(address.MatchString))[1]
}

// until returns what the program has said when ok does.
func (p *program) until(ok func(string) bool) string {
	p.t.Helper()
	deadline := time.After(patience)
	for {
		text, more := p.log.state()
		if ok(text) {
			return text
		}
		select {
		case <-more:
		case <-p.exited:
			if text, _ = p.log.state(); ok(text) {
				return text
			}
			p.t.Fatalf("%s ended: %v\n%s", p.line[0], p.cmd.ProcessState, text)
		case <-deadline:
			p.t.Fatalf("%s did not say what it should:\n%s", p.line[0], text)
		}
	}
}

// says returns when the program has said a text n times.
func (p *program) says(text string, n int) {
	p.t.Helper()
	p.until(func(all string) bool { return strings.Count(all, text) >= n })
}

func (p *program) kill(sig syscall.Signal) {
	p.t.Helper()
	_ = p.cmd.Process.Signal(sig) // it may have ended
	select {
	case <-p.exited:
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		<-p.exited
		p.t.Errorf("%s did not end of %v", p.line[0], sig)
	}
}

// fleet is a hub with its admin token.
type fleet struct {
	*program
	admin string
}

func startHub(t testing.TB, args ...string) *fleet {
	t.Helper()
	dir := t.TempDir()
	p := startProgram(t, "sandbox-hub", append([]string{"serve", "--port", "0", "--data-dir", dir}, args...)...)
	f := &fleet{program: p}
	b, err := os.ReadFile(p.out.Name())
	if err != nil {
		t.Fatal(err)
	}
	f.admin = strings.TrimSpace(string(b))
	return f
}

// command runs a command of the hub's program and returns what it printed.
func (f *fleet) command(args ...string) string {
	f.t.Helper()
	out, code := f.try(args...)
	if code != 0 {
		f.t.Fatalf("sandbox-hub %s: exit code %d\n%s", strings.Join(args, " "), code, out)
	}
	return strings.TrimSpace(out)
}

func (f *fleet) try(args ...string) (string, int) {
	f.t.Helper()
	cmd := f.runs(args...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		f.t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// runs is the hub's program with a command that is not begun yet.
func (f *fleet) runs(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(f.t.Context(), filepath.Join(buildDir, "sandbox-hub"), args...)
	cmd.Env = append(os.Environ(), "SANDBOX_HUB_ENDPOINT="+f.url, "SANDBOX_HUB_TOKEN="+f.admin)
	return cmd
}

// startNode starts a gateway that joins the hub, by another address if one is given.
func (f *fleet) startNode(name, at string, args ...string) *program {
	f.t.Helper()
	dir := f.t.TempDir()
	file := filepath.Join(dir, "join-token")
	if err := os.WriteFile(file, []byte(f.command("token", "create", "--kind", "join")), 0o600); err != nil {
		f.t.Fatal(err)
	}
	if at == "" {
		at = f.url
	}
	p := startProgram(f.t, "sandbox-agent", append([]string{
		"server", "--port", "0", "--token", "the-nodes-own-token", "--default-agent", "mock", "--data-dir", filepath.Join(dir, "data"),
		"--join", at, "--join-token-file", file, "--node-name", name,
	}, args...)...)
	p.says("joined the hub", 1)
	f.hasJoined(name)
	return p
}

// hasJoined returns when the hub has the tunnel of a node, which it has a moment after the
// node says so.
func (f *fleet) hasJoined(name string) { f.says(`msg="a node has joined" node=`+name, 1) }

// node returns the address of a node at the hub.
func (f *fleet) node(name string) string { return f.url + "/nodes/" + name }
