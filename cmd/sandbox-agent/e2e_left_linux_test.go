package main_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// spawned is a program of which a test has the other ends of its streams.
type spawned struct {
	t              *testing.T
	cmd            *exec.Cmd
	in             io.WriteCloser
	stdout, stderr *os.File
	exited         chan struct{}
}

func spawn(t *testing.T, args ...string) *spawned {
	t.Helper()
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	s := &spawned{t: t, cmd: exec.Command(bin, args...), exited: make(chan struct{})} // no context: signals end it, which is what is tested
	mark := "left-" + t.Name()
	s.cmd.Env = append(os.Environ(), markName+"="+mark)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	ends := [2]*os.File{}
	for i, own := range []**os.File{&s.stdout, &s.stderr} {
		if *own, ends[i], err = os.Pipe(); err != nil {
			t.Fatal(err)
		}
	}
	s.cmd.Stdout, s.cmd.Stderr = ends[0], ends[1]
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_, _ = ends[0].Close(), ends[1].Close()
	go func() {
		_ = s.cmd.Wait()
		close(s.exited)
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.exited
		_, _ = s.stdout.Close(), s.stderr.Close()
		(&gateway{t: t}).awaitNoProcess(mark)
	})
	return s
}

// serving reads the standard error until the gateway says where it is, and no further.
func (s *spawned) serving() string {
	s.t.Helper()
	for line := bufio.NewReaderSize(s.stderr, 16); ; {
		text, err := line.ReadString('\n')
		if err != nil {
			s.t.Fatalf("it does not say where it is: %v", err)
		}
		if url := urlPattern.FindString(text); url != "" {
			return url
		}
	}
}

// ends sends SIGTERM and returns the exit code.
func (s *spawned) ends() int {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	select {
	case <-s.exited:
	case <-time.After(promptly):
		s.t.Fatalf("it has not ended %v after SIGTERM", promptly)
	}
	return s.cmd.ProcessState.ExitCode()
}

// Who has started a gateway reads of its log where it is, and then no more: it goes on all the same, and ends as ever.
func TestServer_NobodyReadsItsLog(t *testing.T) {
	for name, leave := range map[string]func(s *spawned){
		"the pipe is full":   func(*spawned) {},
		"the pipe is closed": func(s *spawned) { _ = s.stderr.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := spawn(t, "server", "--port", "0", "--data-dir", t.TempDir(), "--log-requests", "--default-agent", "mock")
			url := s.serving()
			leave(s)
			hc := &http.Client{Timeout: promptly}
			defer hc.CloseIdleConnections()
			for n := range 2000 {
				resp, err := hc.Get(url + "/v2/health")
				if err != nil {
					t.Fatalf("request %d: %v", n, err)
				}
				_ = resp.Body.Close()
			}
			if code := s.ends(); code != 0 {
				t.Errorf("it has ended with %d", code)
			}
		})
	}
}

// An editor that does not read holds up neither the end that a signal asks for nor the one of the input.
func TestEditor_DoesNotRead(t *testing.T) {
	for _, kind := range []string{"in process", "remote"} {
		for how, end := range map[string]func(s *spawned){
			"SIGTERM": func(s *spawned) { _ = s.cmd.Process.Signal(syscall.SIGTERM) },
			"input":   func(s *spawned) { _ = s.in.Close() },
		} {
			t.Run(kind+"/"+how, func(t *testing.T) {
				t.Parallel()
				args := []string{"acp", "--agent", "mock", "--data-dir", t.TempDir()}
				if kind == "remote" {
					args = append(args, "--endpoint", startGateway(t).url)
				}
				s := spawn(t, args...)
				out := bufio.NewReader(s.stdout)
				ask := func(id int, method string, params any) (answer struct{ Result struct{ SessionID string } }) {
					t.Helper()
					b, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
					if err == nil {
						_, err = s.in.Write(append(b, '\n'))
					}
					if err != nil {
						t.Fatal(err)
					}
					for method != "session/prompt" {
						line, err := out.ReadBytes('\n')
						if err != nil {
							t.Fatal(err)
						}
						if strings.Contains(string(line), fmt.Sprintf(`"id":%d,`, id)) || strings.HasSuffix(string(line), fmt.Sprintf("\"id\":%d}\n", id)) {
							if err := json.Unmarshal(line, &answer); err != nil {
								t.Fatal(err)
							}
							return answer
						}
					}
					return answer
				}
				ask(1, "initialize", map[string]any{"protocolVersion": 1, "clientCapabilities": map[string]any{}})
				session := ask(2, "session/new", map[string]any{"cwd": t.TempDir(), "mcpServers": []any{}}).Result.SessionID
				ask(3, "session/prompt", promptParams(session, "stream 100000 100"))
				(&gateway{t: t}).until("its output is full", func() bool { return s.writes() })
				end(s)
				select {
				case <-s.exited:
				case <-time.After(promptly):
					t.Errorf("it has not ended within %v", promptly)
				}
			})
		}
	}
}

// writes reports whether some thread of the program waits for room in a pipe.
func (s *spawned) writes() bool {
	tasks, _ := filepath.Glob("/proc/" + strconv.Itoa(s.cmd.Process.Pid) + "/task/*/syscall")
	for _, task := range tasks {
		if b, err := os.ReadFile(task); err == nil && strings.HasPrefix(string(b), fmt.Sprint(syscall.SYS_WRITE)+" 0x1 ") {
			return true
		}
	}
	return false
}

// What the acp command starts has the signal of a broken pipe as any program has.
func TestEditor_ChildrenHaveTheirSignals(t *testing.T) {
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "status")
	c := startEditor(t, "editor-"+t.Name(), nil, "--data-dir", t.TempDir(), "--agent", "own", "--agent-command", `own=sh -c 'cat /proc/$$/status >`+file+`; exec "$0" mock-agent' `+bin)
	c.newSession()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if mask, ok := strings.CutPrefix(line, "SigIgn:"); ok {
			n, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
			if err != nil || n&(1<<(syscall.SIGPIPE-1)) != 0 {
				t.Errorf("an agent ignores the signals %x, %v", n, err)
			}
			return
		}
	}
	t.Errorf("no signals are in %s", b)
}

// A program that is tried has its home with the gateway: of one that is killed meanwhile nothing stays.
func TestInstall_KilledWhileAProgramIsTried(t *testing.T) {
	t.Parallel()
	told := filepath.Join(t.TempDir(), "home")
	script := filepath.Join(t.TempDir(), "claude")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho \"$HOME\" >"+told+".part\nmv "+told+".part "+told+"\nexec sleep 1000\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	g := newGateway(t)
	g.env = append(g.env, "SANDBOX_AGENT_CLAUDE_BIN="+script)
	g.start()
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		if resp, err := http.Get(g.url + "/v2/doctor?agent=claude"); err == nil {
			_ = resp.Body.Close()
		}
	}()
	var home string
	g.until("the program is tried", func() bool {
		b, err := os.ReadFile(told)
		home = strings.TrimSpace(string(b))
		return err == nil
	})
	g.kill(syscall.SIGKILL)
	<-asked
	if !strings.HasPrefix(home, g.dir+"/") {
		t.Errorf("it has its home in %s", home)
	}
	g.restart()
	if _, err := os.Stat(home); !os.IsNotExist(err) {
		t.Errorf("what a killed gateway has left is still there: %v", err)
	}
}

// A file that is written for a user is there as a whole or not at all, also when the user leaves meanwhile.
func TestSave_Interrupted(t *testing.T) {
	left := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("the beginning"))
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
		case <-left:
		}
	}))
	defer srv.Close()
	defer close(left)
	for _, what := range []string{"export s1", "show s1 --format markdown", "raw s1"} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			s := spawn(t, append(strings.Fields("sessions "+what), "--endpoint", srv.URL, "-o", filepath.Join(dir, "file"))...)
			(&gateway{t: t}).until("it writes", func() bool { return len(entries(t, dir)) > 0 })
			if code := s.ends(); code != 130 {
				b, _ := io.ReadAll(s.stderr)
				t.Errorf("it has ended with %d: %s", code, b)
			}
			if there := entries(t, dir); len(there) > 0 {
				t.Errorf("it has left %q", there)
			}
		})
	}
}

// A daemon of another container that has the same folder has a number that is another program's here.
func TestDaemon_OfAnotherMachine(t *testing.T) {
	dir := t.TempDir()
	c := &commandLine{t: t, env: append(os.Environ(), "SANDBOX_AGENT_DATA_DIR="+dir, markName+"=daemon-"+t.Name())}
	if code, out, errOut := c.run("daemon", "start", "--", "--port", "0", "--default-agent", "mock"); code != 0 {
		t.Fatalf("start: exit %d\n%s%s", code, out, errOut)
	}
	file := filepath.Join(dir, "daemon", "state.json")
	own, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := os.WriteFile(file, own, 0o600); err != nil {
			t.Error(err)
		}
		if code, _, errOut := c.run("daemon", "stop"); code != 0 {
			t.Errorf("stop: exit %d, %s", code, errOut)
		}
		(&gateway{t: t}).awaitNoProcess("daemon-" + t.Name())
	}()
	var state map[string]any
	if err := json.Unmarshal(own, &state); err != nil {
		t.Fatal(err)
	}
	state["machine"] = "another"
	theirs, err := json.Marshal(state)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, theirs, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"stop", "restart", "start --port 0"} {
		if code, out, errOut := c.run(append([]string{"daemon"}, strings.Fields(line)...)...); code == 0 || !strings.Contains(errOut, "another container or machine") {
			t.Errorf("%s: exit %d, %s%s", line, code, out, errOut)
		}
	}
	// That it can be used from here is another thing.
	for _, line := range []string{"daemon status", "daemon start", "sessions list"} {
		if code, out, errOut := c.run(strings.Fields(line)...); code != 0 {
			t.Errorf("%s: exit %d, %s%s", line, code, out, errOut)
		}
	}
	resp, err := http.Get(fmt.Sprint(state["url"]) + "/v2/health")
	if err != nil {
		t.Fatalf("it was ended: %v", err)
	}
	_ = resp.Body.Close()
}

// A second Ctrl-C ends a command at once which the first one lets end a session at a gateway that stands still.
func TestCall_SecondCtrlCLeaves(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	c := &commandLine{t: t, env: append(os.Environ(), "SANDBOX_AGENT_ENDPOINT="+g.url)}
	_, _, said := c.run("prompt", "--agent", "mock", "hello")
	id := strings.Fields(said)[1]
	f := c.follow("rpc", "call", "--close", "--session", id, "session/prompt", `{"prompt":[{"type":"text","text":"slow"}]}`)
	if err := g.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = g.cmd.Process.Signal(syscall.SIGCONT) }() // fails when it has ended
	awaitStopped(t, g.cmd.Process.Pid)
	late, again := time.After(15*time.Second), time.NewTicker(time.Second)
	defer again.Stop()
	for {
		_ = f.cmd.Process.Signal(os.Interrupt) // fails when it has ended
		select {
		case <-f.exited:
			return
		case <-late:
			t.Fatal("it goes on")
		case <-again.C:
		}
	}
}
