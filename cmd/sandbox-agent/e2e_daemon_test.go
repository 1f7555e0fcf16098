package main_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

func TestDaemon(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := &commandLine{t: t, env: append(os.Environ(), "SANDBOX_AGENT_DATA_DIR="+dir, markName+"=daemon-"+t.Name())}
	g := &gateway{t: t}
	defer func() {
		c.run("daemon", "stop")
		g.awaitNoProcess("daemon-" + t.Name())
	}()
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
	if code, out, errOut := c.run("daemon", "start", "--", "--port", "0", "--default-agent", "mock"); code != 0 || !strings.Contains(out, "http://127.0.0.1:") {
		t.Fatalf("start: exit %d\n%s%s", code, out, errOut)
	}
	first := status(0)
	// Other commands find it by themselves, unless they are told another address.
	if code, out, errOut := c.run("prompt", "echo from the daemon"); code != 0 || !strings.Contains(out, "from the daemon") {
		t.Errorf("a prompt: exit %d, %s%s", code, out, errOut)
	}
	if code, _, _ := c.run("sessions", "list", "--endpoint", "http://127.0.0.1:1"); code != 3 {
		t.Errorf("another endpoint: exit %d", code)
	}
	// Starting it again changes nothing; with other flags it is another one.
	if c.run("daemon", "start"); status(0) != first {
		t.Error("a second start began another")
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
	b, err := os.ReadFile(file)
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
	if err := syscall.Kill(third.PID, syscall.SIGKILL); err != nil {
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
	// One that cannot start says that the one before is gone, whose flags are there still.
	if code, _, errOut := c.run("daemon", "start", "--host", "192.0.2.1", "--port", "0", "--no-token"); code != 1 || !strings.Contains(errOut, "of the last start: --token-file --default-agent\n") || !strings.Contains(errOut, "was stopped; daemon start without flags starts it again") {
		t.Errorf("start at an address of another machine: exit %d, %s", code, errOut)
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
	other := startGateway(t, "--data-dir", dir)
	if code, _, errOut := c.run("daemon", "start"); code != 1 || !strings.Contains(errOut, "which is no daemon") {
		t.Errorf("beside a server: exit %d, %s", code, errOut)
	}
	other.kill(syscall.SIGTERM)
}

func TestDaemon_Unit(t *testing.T) {
	c := &commandLine{t: t, env: append(os.Environ(), "SANDBOX_AGENT_DATA_DIR=/var/lib/sandbox agent")}
	code, out, errOut := c.run("daemon", "unit", "--kind", "systemd", "--", "--port", "3000", "--agent-command", `x=sh -c 'echo "50%" $HOME'`)
	if code != 0 || !strings.Contains(out, ` server --port 3000 --agent-command "x=sh -c 'echo \"50%%\" $$HOME'" --data-dir "/var/lib/sandbox agent"`) {
		t.Errorf("exit %d, %s\n%s", code, errOut, out)
	}
	code, out, _ = c.run("daemon", "unit", "--kind", "launchd", "--", "--agent-command", "a=<b> & c")
	if code != 0 || !strings.Contains(out, "<string>a=&lt;b&gt; &amp; c</string>") || !strings.Contains(out, "<string>/var/lib/sandbox agent</string>") {
		t.Errorf("exit %d\n%s", code, out)
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
		if err := syscall.Kill(one, syscall.SIGKILL); err != nil {
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
	if err := syscall.Kill(one, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	a := together(1, "daemon", "start", "--json")[0]
	if pid(a) == one || !strings.Contains(a.errOut, "does not answer") {
		t.Errorf("beside a frozen one: %+v", a)
	}
}
