package main_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"sandboxagent.dev/sandbox-agent/internal/freeport"
)

// newDaemon returns a command line for a daemon of the test's own, with its data directory, and what ends it.
func newDaemon(t *testing.T) (c *commandLine, dir string, end func()) {
	t.Helper()
	dir = t.TempDir()
	mark := "daemon-" + t.Name()
	c = &commandLine{t: t, env: append(os.Environ(), "SANDBOX_AGENT_DATA_DIR="+dir, markName+"="+mark)}
	return c, dir, func() {
		c.run("daemon", "stop")
		(&gateway{t: t}).awaitNoProcess(mark)
	}
}

func TestDaemon(t *testing.T) {
	t.Parallel()
	c, dir, end := newDaemon(t)
	defer end()
	g := &gateway{t: t}
	type state struct {
		PID     int
		URL     string
		Version string
	}
	status := func(want int) state {
		t.Helper()
		code, out, errOut := c.run("daemon", "status", "--json")
		if code != want {
			t.Fatalf("status: exit %d, want %d\n%s%s", code, want, out, errOut)
		}
		var s state
		_ = json.Unmarshal([]byte(out), &s)
		return s
	}
	status(3)
	if code, _, errOut := c.run("daemon", "stop"); code != 0 || !strings.Contains(errOut, "not running") {
		t.Errorf("stopping nothing: exit %d, %s", code, errOut)
	}
	if _, err := os.Stat(filepath.Join(dir, "daemon")); err == nil {
		t.Error("looking for a daemon made its folder")
	}
	// A log that has grown large is cut before it starts, and not while its address is looked for there.
	log := filepath.Join(dir, "daemon", "log")
	if err := os.Mkdir(filepath.Dir(log), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(log, bytes.Repeat([]byte("an old line\n"), 20<<20/12), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, errOut := c.run("daemon", "start", "--", "--port", "0", "--default-agent", "mock"); code != 0 || !strings.Contains(out, "http://127.0.0.1:") {
		t.Fatalf("start: exit %d\n%s%s", code, out, errOut)
	}
	first := status(0)
	if b, err := os.ReadFile(log); err != nil || len(b) > 9<<20 || !bytes.HasPrefix(b, []byte("an old line\n")) || !bytes.Contains(b, []byte("an old line\nsandbox-agent ")) {
		t.Errorf("%v, %d bytes of log: %.40q", err, len(b), b)
	}
	// Other commands find it by themselves, unless they are told another address.
	if code, out, errOut := c.run("prompt", "echo from the daemon"); code != 0 || !strings.Contains(out, "from the daemon") {
		t.Errorf("a prompt: exit %d, %s%s", code, out, errOut)
	}
	if code, _, _ := c.run("sessions", "list", "--endpoint", "http://127.0.0.1:1"); code != 3 {
		t.Errorf("another endpoint: exit %d", code)
	}
	// Starting it again changes nothing; with other flags it is another one.
	if _, _, errOut := c.run("daemon", "start"); status(0) != first || errOut != "" {
		t.Errorf("a second start began another, or said %q", errOut)
	}
	// Of a program that is another build of this version it is said, and nothing else is done.
	b, err := os.ReadFile(c.command(t.Context()).Path)
	if err != nil {
		t.Fatal(err)
	}
	another := filepath.Join(t.TempDir(), "sandbox-agent")
	for appended, says := range map[string]bool{"": false, "another build": true} {
		if err := os.WriteFile(another, append(b, appended...), 0o700); err != nil {
			t.Fatal(err)
		}
		for _, verb := range []string{"start", "status"} {
			cmd := exec.CommandContext(t.Context(), another, "daemon", verb)
			cmd.Env = c.env
			if out, err := cmd.CombinedOutput(); err != nil || status(0) != first || strings.Contains(string(out), "another build than this program: daemon restart") != says {
				t.Errorf("daemon %s by a program with %q behind it: %v\n%s", verb, appended, err, out)
			}
		}
	}
	if code, _, errOut := c.run("daemon", "start", "--port", "0", "--default-agent", "mock", "--log-level", "debug"); code != 0 || !strings.Contains(errOut, "stopping process") {
		t.Errorf("start with other flags: exit %d, %s", code, errOut)
	}
	second := status(0)
	if second.PID == first.PID {
		t.Error("the flags were not taken up")
	}
	if code, out, _ := c.run("daemon", "logs", "-n", "50"); code != 0 || !strings.Contains(out, "listening on "+second.URL) {
		t.Errorf("logs: exit %d, %s", code, out)
	}
	// A state of another version is replaced: that is how a new binary comes in.
	file := filepath.Join(dir, "daemon", "state.json")
	b, err = os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(b), `"version": "`+second.Version, `"version": "0.0.1-old`, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errOut := c.run("daemon", "start"); code != 0 || !strings.Contains(errOut, "0.0.1-old") {
		t.Errorf("an upgrade: exit %d, %s", code, errOut)
	}
	third := status(0)
	if third.PID == second.PID || third.Version != second.Version {
		t.Errorf("%+v after %+v", third, second)
	}
	// One that was killed is noticed, and another takes its place with the last flags.
	if err := kill(third.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	g.until("the death of the daemon", func() bool {
		code, _, _ := c.run("daemon", "status")
		return code == 3
	})
	if code, out, errOut := c.run("daemon", "start"); code != 0 {
		t.Errorf("start after a death: exit %d\n%s%s", code, out, errOut)
	}
	if code, out, _ := c.run("prompt", "--endpoint", status(0).URL, "echo alive"); code != 0 || !strings.Contains(out, "alive") {
		t.Errorf("then a prompt: exit %d, %s", code, out)
	}
	if code, _, errOut := c.run("daemon", "stop"); code != 0 {
		t.Errorf("stop: exit %d, %s", code, errOut)
	}
	status(3)
	// A restart starts one that does not run, and replaces one that does.
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errOut := c.run("daemon", "restart", "--port", "0", "--token-file", token, "--default-agent", "mock"); code != 0 {
		t.Errorf("restart of nothing: exit %d, %s", code, errOut)
	} else if !strings.Contains(errOut, "not used any more, of the flags of the last start: --log-level\n") {
		t.Errorf("a flag is gone, and it says %s", errOut)
	}
	fourth := status(0)
	if code, _, errOut := c.run("daemon", "restart"); code != 0 || status(0).PID == fourth.PID {
		t.Errorf("restart: exit %d, %s", code, errOut)
	}
	if code, out, errOut := c.run("prompt", "echo with its token"); code != 0 || !strings.Contains(out, "with its token") {
		t.Errorf("a prompt with the daemon's token file: exit %d, %s%s", code, out, errOut)
	}
	// What cannot work is said while the one that runs goes on.
	fifth := status(0)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, inUse, _ := net.SplitHostPort(taken.Addr().String())
	missing := filepath.Join(dir, "missing", "file")
	for _, flags := range [][]string{
		{"--token-file", missing},
		{"--tls-cert", missing, "--tls-key", missing},
		{"--fs-root", missing},
		{"--log-file", missing},
		{"--host", "192.0.2.1", "--no-token"},
		{"--port", inUse},
	} {
		for _, how := range []string{"start", "restart"} {
			args := append([]string{"daemon", how, "--port", "0"}, flags...)
			if code, out, errOut := c.run(args...); code == 0 || code != 2 && !strings.Contains(errOut, "was not stopped") || status(0) != fifth {
				t.Errorf("%q: exit %d, %s%s", args, code, out, errOut)
			}
		}
	}
	if err := os.Rename(token, token+".away"); err != nil {
		t.Fatal(err)
	}
	if code, _, errOut := c.run("daemon", "restart"); code == 0 || !strings.Contains(errOut, token) || status(0) != fifth {
		t.Errorf("restart without the token file of the last start: exit %d, %s", code, errOut)
	}
	if err := os.Rename(token+".away", token); err != nil {
		t.Fatal(err)
	}
	// What is found only when it starts: the one before is gone then, whose flags are there still.
	sessions := filepath.Join(dir, "sessions")
	if err := os.Rename(sessions, sessions+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(sessions, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errOut := c.run("daemon", "start", "--port", "0", "--no-token"); code != 1 || !strings.Contains(errOut, "of the last start: --token-file --default-agent\n") || !strings.Contains(errOut, "was stopped; daemon start without flags starts it again") {
		t.Errorf("start without a folder for sessions: exit %d, %s", code, errOut)
	}
	status(3)
	if err := os.Remove(sessions); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(sessions+".away", sessions); err != nil {
		t.Fatal(err)
	}
	if code, _, errOut := c.run("daemon", "start"); code != 0 || strings.Contains(errOut, "not used") {
		t.Errorf("start with the flags of before: exit %d, %s", code, errOut)
	}
	if code, out, errOut := c.run("prompt", "echo with its token again"); code != 0 || !strings.Contains(out, "its token again") {
		t.Errorf("a prompt with the daemon's token file: exit %d, %s%s", code, out, errOut)
	}
	if code, _, errOut := c.run("daemon", "stop"); code != 0 {
		t.Errorf("stop: exit %d, %s", code, errOut)
	}
	for _, name := range []string{"state.json", "pid", "version"} {
		if _, err := os.Stat(filepath.Join(dir, "daemon", name)); err == nil {
			t.Errorf("%s is left", name)
		}
	}
	// What is wrong with the flags is said at once.
	if code, _, errOut := c.run("daemon", "start", "--", "--port", "none"); code != 2 || !strings.Contains(errOut, "is not a port") {
		t.Errorf("wrong flags: exit %d, %s", code, errOut)
	}
	if code, _, errOut := c.run("daemon", "start", "--port", "none"); code != 2 || !strings.Contains(errOut, "is not a port") {
		t.Errorf("wrong flags: exit %d, %s", code, errOut)
	}
	// One of these would be found by nobody, or end at once.
	for _, flag := range []string{"--ephemeral", "--end-with-stdin"} {
		if code, _, errOut := c.run("daemon", "start", "--port", "0", flag); code != 2 || !strings.Contains(errOut, flag) {
			t.Errorf("%s: exit %d, %s", flag, code, errOut)
		}
	}
	other := startGateway(t, "--data-dir", dir)
	if code, _, errOut := c.run("daemon", "start"); code != 1 || !strings.Contains(errOut, "which is no daemon") {
		t.Errorf("beside a server: exit %d, %s", code, errOut)
	}
	other.kill(syscall.SIGTERM)
}

// A start that is interrupted leaves nothing; one that is killed leaves a daemon like others.
func TestDaemon_StartCutShort(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("processes are found in /proc")
	}
	t.Parallel()
	g := &gateway{t: t}
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGKILL} {
		dir, mark := t.TempDir(), fmt.Sprintf("cutshort-%d-", sig)
		c := &commandLine{t: t, env: append(os.Environ(), "SANDBOX_AGENT_DATA_DIR="+dir, markName+"="+mark)}
		// cut starts one and sends the signal before it answers. On a busy machine that can
		// be too late, and is tried again.
		cut := func() (code int) {
			t.Helper()
			for range 20 {
				if code = interrupted(t, g, c, dir, sig); code != 0 {
					return code
				}
				c.run("daemon", "stop")
			}
			t.Fatalf("%v always came too late", sig)
			return 0
		}
		code := cut()
		if sig != syscall.SIGKILL {
			if code != 130 {
				t.Errorf("%v: exit %d", sig, code)
			}
			g.awaitNoProcess(mark)
			if code, _, _ = c.run("daemon", "status"); code != 3 {
				t.Errorf("%v, then status: exit %d", sig, code)
			}
			continue
		}
		var s struct {
			PID int
			URL string
		}
		code, out, errOut := c.run("daemon", "status", "--json")
		if json.Unmarshal([]byte(out), &s) != nil || code != 0 || s.URL == "" {
			t.Errorf("%v, then status: exit %d, %s%s", sig, code, out, errOut)
		}
		// The same when the command was killed before it knew the process.
		file := filepath.Join(dir, "daemon", "state.json")
		var kept map[string]any
		if b, err := os.ReadFile(file); err != nil || json.Unmarshal(b, &kept) != nil {
			t.Fatalf("%s, %v", b, err)
		}
		kept["pid"], kept["url"] = 0, ""
		if b, err := json.Marshal(kept); err != nil || os.WriteFile(file, b, 0o600) != nil {
			t.Fatal(err)
		}
		if code, out, errOut = c.run("daemon", "start"); code != 0 || !strings.Contains(out, s.URL) || !strings.Contains(out, strconv.Itoa(s.PID)) {
			t.Errorf("%v, then start: exit %d, %s%s", sig, code, out, errOut)
		}
		if code, _, errOut = c.run("daemon", "stop"); code != 0 || !strings.Contains(errOut, "stopped process") {
			t.Errorf("%v, then stop: exit %d, %s", sig, code, errOut)
		}
		g.awaitNoProcess(mark)
		cut()
		if code, _, errOut = c.run("daemon", "stop"); code != 0 || !strings.Contains(errOut, "stopped process") {
			t.Errorf("%v, then stop at once: exit %d, %s", sig, code, errOut)
		}
		g.awaitNoProcess(mark)
	}
}

// interrupted sends a signal to a start whose gateway has just begun, and returns its exit code,
// -1 when the signal was not caught.
func interrupted(t *testing.T, g *gateway, c *commandLine, dir string, sig syscall.Signal) int {
	t.Helper()
	cmd := c.command(t.Context(), "daemon", "start", "--port", "0", "--default-agent", "mock")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	g.until("there is a process", func() bool {
		var s struct{ PID int }
		b, err := os.ReadFile(filepath.Join(dir, "daemon", "state.json"))
		return err == nil && json.Unmarshal(b, &s) == nil && s.PID != 0
	})
	if err := cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // a signal is an error
	return cmd.ProcessState.ExitCode()
}

// Clients know the port of one that took any.
func TestDaemon_KeepsItsPort(t *testing.T) {
	t.Parallel()
	c, _, end := newDaemon(t)
	defer end()
	last := ""
	// run returns the address, and whether it is that of before.
	run := func(how string, flags ...string) (same bool) {
		t.Helper()
		var s struct {
			PID int
			URL string
		}
		code, out, errOut := c.run(append([]string{"daemon", how, "--json"}, flags...)...)
		if json.Unmarshal([]byte(out), &s) != nil || code != 0 || s.URL == "" {
			t.Fatalf("%s: exit %d, %s%s", how, code, out, errOut)
		}
		same, last = s.URL == last, s.URL
		return same
	}
	run("start", "--port", "0", "--default-agent", "mock")
	if !run("restart") {
		t.Error("a restart took another port")
	}
	// Also where the log is elsewhere, and says little.
	if !run("restart", "--port", "0", "--log-format", "json", "--log-level", "warn", "--log-file", filepath.Join(t.TempDir(), "log")) {
		t.Error("a restart with another log took another port")
	}
	if code, _, errOut := c.run("daemon", "stop"); code != 0 {
		t.Errorf("stop: exit %d, %s", code, errOut)
	}
	if !run("start") {
		t.Error("a start took another port")
	}
	if code, _, errOut := c.run("daemon", "stop"); code != 0 {
		t.Errorf("stop: exit %d, %s", code, errOut)
	}
	taken, err := net.Listen("tcp", strings.TrimPrefix(last, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	if run("start") {
		t.Error("it says that it has the port of another program")
	}
	if !run("restart") {
		t.Error("then a restart took another port")
	}
}

// A proxy of the shell is not the way to a gateway of this machine, whichever address it listens on.
func TestDaemon_BesideAProxy(t *testing.T) {
	t.Parallel()
	host := freeport.Host(t)
	var asked atomic.Int32
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.RequestURI, host) { // it is asked for the list of agents, too
			asked.Add(1)
		}
		w.WriteHeader(http.StatusBadGateway)
	}))
	defer proxy.Close()
	c, _, end := newDaemon(t)
	defer end()
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"} {
		c.env = append(c.env, name+"="+proxy.URL)
	}
	c.env = append(c.env, "NO_PROXY=", "no_proxy=")
	var first string
	for _, args := range [][]string{
		{"daemon", "start", "--json", "--", "--host", host, "--port", "0", "--no-token", "--default-agent", "mock"},
		{"daemon", "start", "--json"},
		{"daemon", "status", "--json"},
	} {
		var s struct{ PID int }
		code, out, errOut := c.run(args...)
		if code != 0 || json.Unmarshal([]byte(out), &s) != nil || s.PID == 0 {
			t.Fatalf("%q: exit %d, %s%s", args, code, out, errOut)
		}
		if first = cmp.Or(first, strconv.Itoa(s.PID)); first != strconv.Itoa(s.PID) {
			t.Errorf("%q: process %d is there, %s was started\n%s", args, s.PID, first, errOut)
		}
	}
	// So do those that use it.
	for _, args := range [][]string{{"prompt", "echo here"}, {"sessions", "list"}} {
		if code, out, errOut := c.run(args...); code != 0 {
			t.Errorf("%q: exit %d, %s%s", args, code, out, errOut)
		}
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the proxy was asked for the gateway %d times", n)
	}
}

// What works on this machine needs no token of the gateway that runs on it, nor does the question whether that answers.
func TestDaemon_ItsTokenIsGone(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.sell("1.0.0")
	c, dir, end := newDaemon(t)
	defer end()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte("sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, errOut := c.run("daemon", "start", "--port", "0", "--token-file", token, "--default-agent", "mock"); code != 0 {
		t.Fatalf("start: exit %d, %s", code, errOut)
	}
	if err := os.Remove(token); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		append([]string{"agents", "install", "gadget", "--json"}, s.flags()...),
		append([]string{"doctor", "gadget", "--json"}, s.flags()...),
		{"agents", "remove", "gadget", "--json"},
		{"health", "--json"},
	} {
		if code, out, errOut := c.run(args...); code != 0 || !json.Valid([]byte(out)) || out == "" {
			t.Errorf("%q: exit %d, %s%s", args, code, out, errOut)
		}
	}
	if code, _, errOut := c.run("sessions", "list"); code == 0 || !strings.Contains(errOut, token) {
		t.Errorf("what asks the gateway: exit %d, %s", code, errOut)
	}
	if code, _, errOut := c.run("doctor", "--node", "one"); code != 2 || !strings.Contains(errOut, "--endpoint") {
		t.Errorf("a node without a hub: exit %d, %s", code, errOut)
	}
}

// Without its flags it would have no token, and be another gateway than before.
func TestDaemon_LostItsFlags(t *testing.T) {
	t.Parallel()
	c, dir, end := newDaemon(t)
	defer end()
	flags := filepath.Join(dir, "daemon", "args.json")
	if err := os.Mkdir(filepath.Dir(flags), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(flags, nil, 0o600); err != nil { // as a power cut leaves it
		t.Fatal(err)
	}
	if code, out, errOut := c.run("daemon", "start"); code != 1 || !strings.Contains(errOut, "name the flags") {
		t.Errorf("exit %d, %s%s", code, out, errOut)
	}
	if code, _, errOut := c.run("daemon", "start", "--port", "0"); code != 0 {
		t.Errorf("with flags: exit %d, %s", code, errOut)
	}
	if code, _, errOut := c.run("daemon", "restart"); code != 0 {
		t.Errorf("and without, then: exit %d, %s", code, errOut)
	}
	// The state of one that was killed has them, too.
	var s struct{ PID int }
	_, out, _ := c.run("daemon", "status", "--json")
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		t.Fatalf("%s: %v", out, err)
	}
	killed, err := os.FindProcess(s.PID)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(killed.Kill(), os.WriteFile(flags, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	(&gateway{t: t}).awaitNoProcess("daemon-" + t.Name())
	if code, _, errOut := c.run("daemon", "start"); code != 0 {
		t.Errorf("when it was killed: exit %d, %s", code, errOut)
	}
	if kept, err := os.ReadFile(flags); err != nil || !strings.Contains(string(kept), "--port") {
		t.Errorf("the flags are %q, %v", kept, err)
	}
}

func TestDaemon_Unit(t *testing.T) {
	data := filepath.Join(t.TempDir(), "new", "sandbox agent")
	c := &commandLine{t: t, env: append(os.Environ(), "SANDBOX_AGENT_DATA_DIR="+data)}
	code, out, errOut := c.run("daemon", "unit", "--kind", "systemd", "--", "--port", "3000", "--agent-command", `x=sh -c 'echo "50%" $HOME'`)
	if code != 0 || !strings.Contains(out, ` server --port 3000 --agent-command "x=sh -c 'echo \"50%%\" $$HOME'" --data-dir "`+data+`"`) {
		t.Errorf("exit %d, %s\n%s", code, errOut, out)
	}
	code, out, _ = c.run("daemon", "unit", "--kind", "launchd", "--", "--agent-command", "a=<b> & c")
	if code != 0 || !strings.Contains(out, "<string>a=&lt;b&gt; &amp; c</string>") || !strings.Contains(out, "<string>"+data+"</string>") {
		t.Errorf("exit %d\n%s", code, out)
	}
	log := regexp.MustCompile(`<key>StandardErrorPath</key>\s*<string>(.*)</string>`).FindStringSubmatch(out)
	if log == nil {
		t.Fatalf("the service has no log:\n%s", out)
	}
	if _, err := os.Stat(filepath.Dir(log[1])); err != nil {
		t.Errorf("launchd makes no folder for the log: %v", err)
	}
	// The lines of the help, on a machine that has none of the folders. A service that is there stays when they fail.
	_, out, _ = c.run("daemon", "unit", "--help")
	lines := regexp.MustCompile(`(?m)^ *(file=.*\n *mkdir -p .*)\n *sandbox-agent (daemon unit.*> .*)$`).FindAllStringSubmatch(out, -1)
	if len(lines) != 2 {
		t.Fatalf("the help has not two services, each with its folder:\n%s", out)
	}
	program := c.command(t.Context()).Path
	for _, line := range lines {
		sh := exec.CommandContext(t.Context(), "sh", "-ec", line[1]+"\n"+program+" "+line[2]+"\nfalse "+line[2]+" || true\ntest -s \"$file\"")
		sh.Env = append(c.env, "HOME="+filepath.Join(filepath.Dir(data), "home"))
		if out, err := sh.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", line[2], err, out)
		}
	}
	if code, _, errOut = c.run("daemon", "unit", "--kind", "sysv"); code != 2 || !strings.Contains(errOut, "systemd or launchd") {
		t.Errorf("exit %d, %s", code, errOut)
	}
}

// What meets a start: another start, a look, and a daemon that was killed a
// moment ago and has not let go of its directory.
func TestDaemon_MeetsItself(t *testing.T) {
	if testing.Short() {
		t.Skip("short runs leave out what takes many seconds")
	}
	t.Parallel()
	dir := t.TempDir()
	c := &commandLine{t: t, env: append(os.Environ(), "SANDBOX_AGENT_DATA_DIR="+dir, markName+"=meeting-"+t.Name())}
	g := &gateway{t: t}
	defer func() {
		c.run("daemon", "stop")
		g.awaitNoProcess("meeting-" + t.Name())
	}()
	type answer struct {
		code        int
		out, errOut string
	}
	together := func(n int, args ...string) []answer {
		answers := make([]answer, n)
		var all sync.WaitGroup
		for i := range answers {
			all.Go(func() { answers[i].code, answers[i].out, answers[i].errOut = c.run(args...) })
		}
		all.Wait()
		return answers
	}
	pid := func(a answer) int {
		t.Helper()
		var s struct{ PID int }
		if a.code != 0 || json.Unmarshal([]byte(a.out), &s) != nil || s.PID == 0 {
			t.Fatalf("exit %d\n%s%s", a.code, a.out, a.errOut)
		}
		return s.PID
	}
	var one int
	for _, a := range together(4, "daemon", "start", "--json", "--", "--port", "0", "--default-agent", "mock") {
		if p := pid(a); one != 0 && p != one {
			t.Errorf("two starts at once made the processes %d and %d", one, p)
		} else {
			one = p
		}
	}
	for range 3 {
		if err := kill(one, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		next := pid(together(1, "daemon", "start", "--json")[0])
		if next == one {
			t.Fatalf("process %d was killed, and is said to run", one)
		}
		for _, a := range together(3, "daemon", "status", "--json") {
			if p := pid(a); p != next {
				t.Errorf("status says process %d, %d was started", p, next)
			}
		}
		one = next
	}
	// One that is stopped where it stands is replaced.
	if err := kill(one, sigStop); err != nil {
		t.Fatal(err)
	}
	awaitStopped(t, one)
	a := together(1, "daemon", "start", "--json")[0]
	if pid(a) == one || !strings.Contains(a.errOut, "does not answer") {
		t.Errorf("beside a frozen one: %+v", a)
	}
}
