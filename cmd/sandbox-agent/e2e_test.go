package main_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/freeport"
	"sandboxagent.dev/sandbox-agent/internal/patient"
	"sandboxagent.dev/sandbox-agent/internal/programs"
)

// The end-to-end tests run the real binary and talk to it over real sockets.
// Their clients are written against the wire contract and share no code with
// the gateway.

// patience bounds what would otherwise wait for ever. Nothing is measured by it: on a slow machine that
// does other work, too, a start of an agent can take half a minute.
const patience = 2 * time.Minute

// promptly is how long what the gateway itself bounds by seconds may take on such a machine: its
// own end, and the end of a turn that was cancelled.
const promptly = 30 * time.Second

// markName is the environment variable that every process of a gateway inherits. Another run of
// these tests has another one: what it has left is not looked for here.
var markName = "SANDBOX_E2E_MARK_" + rand.Text()

var buildDir string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "sandbox-agent-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	buildDir = dir
	programs.AsUsers()
	// A program with the race detector sleeps a second before it exits, and the
	// gateway has a guard that does so after it.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0")
	if signal.Ignored(syscall.SIGHUP) { // by nohup; the programs that are tested end by it
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	code := m.Run()
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// binary builds the gateway once, as the tests were built.
var binary = sync.OnceValues(func() (string, error) {
	return filepath.Join(buildDir, programs.Gateway), programs.Build(buildDir, raceEnabled(), programs.Gateway)
})

// raceEnabled reports whether this test program was built with the race detector.
func raceEnabled() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// gateway is a running sandbox-agent.
type gateway struct {
	t    testing.TB
	dir  string   // data directory
	mark string   // begins the mark of every process, of every start
	args []string // after "server"
	env  []string
	wrap []string // a command that starts the binary, for other namespaces
	uid  int      // of the user whose it is by wrap; 0 for that of the tests

	transport *http.Transport // for the API's answers; nil is the default

	starts int
	url    string // http://127.0.0.1:port
	cmd    *exec.Cmd
	stderr *output
	exited chan struct{} // closed when cmd has been waited for
}

// token is the bearer token of those gateways that have one.
const token = "e2e-Secret_token-4711"

// startGateway starts a gateway with its own data directory on a free port and
// waits until it is healthy. When the test ends the gateway is stopped, and no
// process of it may be left.
func startGateway(t testing.TB, args ...string) *gateway {
	t.Helper()
	g := newGateway(t, args...)
	g.start()
	return g
}

func newGateway(t testing.TB, args ...string) *gateway {
	t.Helper()
	if testing.Short() {
		t.Skip("gateways in processes of their own are left out of short runs: they take minutes")
	}
	if _, err := binary(); err != nil {
		t.Fatal(err)
	}
	g := &gateway{t: t, dir: t.TempDir(), mark: rand.Text()}
	g.args = slices.Concat([]string{"--host", "127.0.0.1", "--port", strconv.Itoa(freeport.Of(t)), "--data-dir", g.dir, "--default-agent", "mock"}, args)
	t.Cleanup(func() {
		if g.cmd == nil {
			return
		}
		if g.alive() {
			g.kill(syscall.SIGTERM)
		}
		g.awaitNoProcess(g.mark)
		if t.Failed() {
			t.Logf("stderr of the gateway:\n%s", g.stderr.tail(16<<10))
		}
		if s := g.stderr.String(); strings.Contains(s, "DATA RACE") || strings.Contains(s, "panic:") {
			t.Errorf("the gateway's stderr tells of a bug:\n%s", g.stderr.tail(16<<10))
		}
	})
	return g
}

var urlPattern = regexp.MustCompile(`https?://[\w.\[\]:-]+:\d+`)

func (g *gateway) start() {
	g.t.Helper()
	bin, err := binary()
	if err != nil {
		g.t.Fatal(err)
	}
	g.starts++
	line := slices.Concat(g.wrap, []string{bin, "server"}, g.args)
	g.cmd = exec.Command(line[0], line[1:]...) // no context: signals end it, which is what is tested
	g.cmd.Env = append(os.Environ(), markName+"="+g.generation())
	g.cmd.Env = append(g.cmd.Env, g.env...)
	g.cmd.SysProcAttr = ownGroup() // a terminal's signals are not for it
	stderr := &output{}
	g.stderr = stderr
	g.exited = make(chan struct{})
	announced := make(chan string, 1)
	pr, pw, err := os.Pipe()
	if err != nil {
		g.t.Fatal(err)
	}
	g.cmd.Stdout = pw
	er, ew, err := os.Pipe()
	if err != nil {
		g.t.Fatal(err)
	}
	g.cmd.Stderr = ew
	if err := g.cmd.Start(); err != nil {
		g.t.Fatal(err)
	}
	_ = pw.Close()
	_ = ew.Close()
	// Plain files instead of cmd.StdoutPipe: Wait must not depend on whether
	// some child still holds them.
	for _, f := range []*os.File{pr, er} {
		go func() {
			defer f.Close()
			for sc := bufio.NewReader(f); ; {
				s, err := sc.ReadString('\n')
				_, _ = stderr.Write([]byte(s))
				if u := urlPattern.FindString(s); u != "" {
					select {
					case announced <- u:
					default:
					}
				}
				if err != nil {
					return
				}
			}
		}()
	}
	cmd, exited := g.cmd, g.exited
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	select {
	case g.url = <-announced:
	case <-g.exited:
		g.t.Fatalf("the gateway ended at its start: %v\n%s", g.cmd.ProcessState, g.stderr)
	case <-time.After(patience):
		g.t.Fatalf("the gateway printed no URL:\n%s", g.stderr)
	}
	g.get("/v2/health", nil)
}

// generation is the mark of the processes of the present start.
func (g *gateway) generation() string { return fmt.Sprintf("%s-%d-", g.mark, g.starts) }

func (g *gateway) alive() bool {
	select {
	case <-g.exited:
		return false
	default:
		return true
	}
}

// kill sends a signal, waits for the end and returns how long it took.
func (g *gateway) kill(sig syscall.Signal) time.Duration {
	g.t.Helper()
	begin := time.Now()
	if err := g.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		g.t.Fatal(err)
	}
	select {
	case <-g.exited:
	case <-time.After(promptly):
		_ = g.cmd.Process.Signal(syscall.SIGQUIT)
		select {
		case <-g.exited:
		case <-time.After(5 * time.Second):
			_ = g.cmd.Process.Kill()
			<-g.exited
		}
		g.t.Errorf("the gateway did not end within %v of %v:\n%s", promptly, sig, g.stderr.tail(64<<10))
	}
	return time.Since(begin)
}

// quickest prepares the gateway, ends it with the signal, and tells how long the end took:
// the shortest of three, and no more are tried than are needed to show that it does not wait.
// A machine with much else to do makes one end slow; a gateway that waits makes all slow.
func (g *gateway) quickest(prepare func(), sig syscall.Signal) time.Duration {
	g.t.Helper()
	least := time.Duration(math.MaxInt64)
	for i := range 3 {
		if i > 0 {
			g.start()
		}
		prepare()
		if least = min(least, g.kill(sig)); least < time.Second {
			break
		}
	}
	return least
}

// restart starts the gateway again on the same data directory.
func (g *gateway) restart() {
	g.t.Helper()
	if g.alive() {
		g.kill(syscall.SIGTERM)
	}
	g.start()
}

// get returns the answer to a GET of the HTTP API, decoded into v when not nil.
func (g *gateway) get(path string, v any) []byte {
	g.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, g.url+path, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	g.authorize(req.Header)
	hc := &http.Client{}
	if g.transport != nil {
		hc.Transport = g.transport
	}
	resp, err := hc.Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		g.t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		g.t.Fatalf("GET %s: %s\n%s", path, resp.Status, b)
	}
	if v != nil {
		if err := json.Unmarshal(b, v); err != nil {
			g.t.Fatalf("GET %s: %v\n%s", path, err, b)
		}
	}
	return b
}

func (g *gateway) hasToken() bool { return slices.Contains(g.args, token) }

func (g *gateway) authorize(h http.Header) {
	if g.hasToken() {
		h.Set("Authorization", "Bearer "+token)
	}
}

// event is one entry of a session's log as the HTTP API shows it.
type event struct {
	Seq       uint64          `json:"seq"`
	Direction string          `json:"direction"`
	Message   json.RawMessage `json:"message"`
}

// events returns a session's whole log.
func (g *gateway) events(session string) []event {
	g.t.Helper()
	var all []event
	for after := uint64(0); ; {
		var page struct {
			Events  []event `json:"events"`
			HasMore bool    `json:"hasMore"`
		}
		g.get(fmt.Sprintf("/v2/sessions/%s/events?after=%d&limit=1000", session, after), &page)
		for _, e := range page.Events {
			if e.Seq <= after {
				g.t.Fatalf("event %d follows event %d", e.Seq, after)
			}
			after = e.Seq
		}
		all = append(all, page.Events...)
		if !page.HasMore {
			return all
		}
		if len(page.Events) == 0 {
			g.t.Fatal("an empty page says that there is more")
		}
	}
}

// output collects what a process prints.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func (o *output) tail(n int) string {
	s := o.String()
	return s[max(0, len(s)-n):]
}

// process is a live process that carries a gateway's mark.
type process struct {
	pid  int
	args string
}

// processes returns what runs with a mark that begins with prefix.
func (g *gateway) processes(prefix string) []process {
	g.t.Helper()
	if runtime.GOOS != "linux" {
		return nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		g.t.Fatal(err)
	}
	var found []process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		env, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err != nil || !bytes.Contains(env, []byte(markName+"="+prefix)) {
			continue
		}
		args, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil {
			continue
		}
		found = append(found, process{pid, strings.TrimSpace(strings.ReplaceAll(string(args), "\x00", " "))})
	}
	return found
}

// agents returns the mock agents of the present start.
func (g *gateway) agents() []process {
	return slices.DeleteFunc(g.processes(g.generation()), func(p process) bool {
		return !strings.Contains(p.args, " mock-agent")
	})
}

// awaitNoProcess fails the test when processes with the mark are left; it ends
// them, so that one failure does not disturb other tests.
func (g *gateway) awaitNoProcess(prefix string) {
	g.t.Helper()
	if left := g.await(func() []process { return g.processes(prefix) }); len(left) > 0 {
		g.t.Errorf("processes are left: %+v", left)
		for _, p := range left {
			_ = kill(p.pid, syscall.SIGKILL)
		}
	}
}

// await calls list until it returns nothing. The processes are
// not children of the test, so nobody tells when they end.
func (g *gateway) await(list func() []process) []process {
	var left []process
	patient.Until(promptly, func() bool {
		left = list()
		return len(left) == 0
	})
	return left
}
