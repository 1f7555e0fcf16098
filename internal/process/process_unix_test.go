//go:build unix

package process

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	goruntime "runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// The test binary is also the child: TEST_CHILD names what it does.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == GuardArg {
		RunGuard(os.Args[2], os.Stdin)
	}
	switch os.Getenv("TEST_CHILD") {
	case "":
		// The thread that starts processes lives as long as the program.
		goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("sandboxagent.dev/sandbox-agent/internal/process.startAll"))
	case "cat":
		_, _ = io.Copy(os.Stdout, os.Stdin)
	case "exit":
		fmt.Fprintln(os.Stderr, "first line")
		fmt.Fprintln(os.Stderr, "the reason")
		os.Exit(3)
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		fmt.Println("ready")
		time.Sleep(time.Hour)
	case "family": // a child in a session of its own, whose parent goes away
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), "TEST_CHILD=stubborn")
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		out, _ := c.StdoutPipe()
		if err := c.Start(); err != nil {
			panic(err)
		}
		_, _ = bufio.NewReader(out).ReadString('\n')
		fmt.Println(c.Process.Pid)
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "heirs": // a child in the same group, whose end takes a while
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), "TEST_CHILD=heavy")
		c.Stdout = os.Stdout
		if err := c.Start(); err != nil {
			panic(err)
		}
		_ = c.Wait()
	case "heavy": // holds a lock, and much memory that the kernel takes back first
		lock, err := os.Open(os.Getenv("TEST_LOCK"))
		if err != nil {
			panic(err)
		}
		if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
			panic(err)
		}
		_ = bytes.Repeat([]byte("memory"), 8<<20)
		fmt.Println("ready")
		time.Sleep(time.Hour)
	case "gateway": // starts a family and waits to be killed
		if dir := os.Getenv("TEST_DATA_DIR"); dir != "" {
			if err := TakeOver(dir); err != nil { // and no guard
				panic(err)
			}
		} else {
			UseGuard(os.Args[0])
		}
		p, err := Start(context.Background(), Spec{Path: os.Args[0], Env: append(os.Environ(), "TEST_CHILD=family")})
		if err != nil {
			panic(err)
		}
		line, _ := bufio.NewReader(p.Stdout).ReadString('\n')
		if os.Getenv("TEST_GUARD") == "killed" {
			killGuard()
		}
		fmt.Printf("%d %s", p.PID(), line)
		time.Sleep(time.Hour)
	}
	os.Exit(0)
}

// killGuard kills the guard, and waits until there is another one.
func killGuard() {
	guarded := func() *os.Process {
		guard.Lock()
		defer guard.Unlock()
		return guard.process
	}
	first := guarded()
	if err := first.Kill(); err != nil {
		panic(err)
	}
	for deadline := time.Now().Add(10 * time.Second); guarded() == first && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond) // there is no event for it
	}
}

func start(t *testing.T, child string) (*Process, *bufio.Reader) {
	t.Helper()
	p, err := Start(t.Context(), Spec{Path: os.Args[0], Env: append(os.Environ(), "TEST_CHILD="+child)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Stop(Ladder{}); _ = p.Stdout.Close() })
	return p, bufio.NewReader(p.Stdout)
}

func alive(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	return f[0] != "Z" && f[0] != "X"
}

func readPID(t *testing.T, r *bufio.Reader) int {
	t.Helper()
	line, err := r.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

func TestStop_EOFEndsAWellBehavedChildAtOnce(t *testing.T) {
	p, _ := start(t, "cat")
	p.Stop(Ladder{EOF: time.Minute, Term: time.Minute})
	if e := p.Exit(); e.Code != 0 || e.Signal != "" {
		t.Errorf("exit %+v", e)
	}
}

func TestStop_KillsWhatIgnoresEOFAndTerm(t *testing.T) {
	p, out := start(t, "stubborn")
	if _, err := out.ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	p.Stop(Ladder{EOF: 20 * time.Millisecond, Term: 20 * time.Millisecond})
	if e := p.Exit(); e.Signal != "SIGKILL" {
		t.Errorf("exit %+v", e)
	}
}

func TestExit_KeepsCodeAndStderr(t *testing.T) {
	p, _ := start(t, "exit")
	<-p.Done()
	head, end, truncated, lines := p.Stderr()
	if p.Exit().Code != 3 || !strings.Contains(end, "the reason") || !strings.HasPrefix(end, "first line") || head != "" || truncated || lines != 2 {
		t.Errorf("exit %+v, head %q, end %q, truncated %v, lines %d", p.Exit(), head, end, truncated, lines)
	}
}

func TestStop_EndsDescendantsInOtherSessions(t *testing.T) {
	p, out := start(t, "family")
	pid := readPID(t, out)
	if !alive(pid) {
		t.Fatal("the grandchild does not run")
	}
	p.Stop(DefaultLadder)
	if alive(pid) {
		t.Errorf("process %d is left", pid)
	}
}

func TestCrash_EndsDescendantsToo(t *testing.T) {
	p, out := start(t, "family")
	pid := readPID(t, out)
	if err := syscall.Kill(p.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	if alive(pid) {
		t.Errorf("process %d is left", pid)
	}
}

// TestKilledGateway_LeavesNothing kills the program that started processes,
// with both kinds of guard, with one that was killed when all of them ran, and where the only grep is at a place that
// the guard's own PATH does not have.
func TestKilledGateway_LeavesNothing(t *testing.T) {
	elsewhere := t.TempDir()
	real, err := exec.LookPath("grep")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(elsewhere+"/grep", []byte("#!/bin/sh\n: > "+elsewhere+"/asked\nexec "+real+" \"$@\"\n"), 0o700); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	for _, guarded := range []string{"TEST_GUARD=", "PATH=/nonexistent", "TEST_GUARD=killed", "PATH=" + elsewhere} { // without PATH there is no grep
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "TEST_CHILD=gateway", guarded)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var child, grandchild int
		if _, err := fmt.Fscan(out, &child, &grandchild); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		deadline := time.Now().Add(10 * time.Second)
		for alive(child) || alive(grandchild) {
			if time.Now().After(deadline) {
				t.Fatalf("%s: child alive %v, grandchild alive %v", guarded, alive(child), alive(grandchild))
			}
			time.Sleep(5 * time.Millisecond) // other processes' ends cannot be waited for
		}
	}
	if _, err := os.Stat(elsewhere + "/asked"); goruntime.GOOS == "linux" && err != nil {
		t.Errorf("the guard did not use the grep that there is: %v", err)
	}
}

// TestTakeOver_EndsWhatAKilledGatewayLeft kills a gateway that has no guard.
func TestTakeOver_EndsWhatAKilledGatewayLeft(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "TEST_CHILD=gateway", "TEST_DATA_DIR="+dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var child, grandchild int
	if _, err := fmt.Fscan(out, &child, &grandchild); err != nil {
		t.Fatal(err)
	}
	// A gateway on a copy of the directory is not the next one.
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := TakeOver(copied); err != nil || !alive(child) || !alive(grandchild) {
		t.Errorf("err %v, the gateway's child alive %v, grandchild alive %v", err, alive(child), alive(grandchild))
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if !alive(grandchild) {
		t.Fatal("the grandchild is gone already: the test shows nothing")
	}
	if err := TakeOver(dir); err != nil {
		t.Fatal(err)
	}
	if alive(child) || alive(grandchild) {
		t.Errorf("child alive %v, grandchild alive %v", alive(child), alive(grandchild))
	}
	// Our own are not taken for leftovers.
	p, _ := start(t, "cat")
	if err := TakeOver(dir); err != nil || !alive(p.PID()) {
		t.Errorf("err %v, our own process alive %v", err, alive(p.PID()))
	}
}

func TestRSS_CountsDescendants(t *testing.T) {
	p, out := start(t, "family")
	pid := readPID(t, out)
	if whole, part := RSS(p.PID()), RSS(pid); part <= 0 || whole < part {
		t.Errorf("%d bytes with, %d for the descendant", whole, part)
	}
}

func TestEnvironment_MarksAndNothingElse(t *testing.T) {
	t.Setenv(OwnerVar, "somebody else's")
	p, err := Start(t.Context(), Spec{Path: "/usr/bin/env", Env: []string{"A=1", OwnerVar + "=x"}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Stdout.Close() }()
	b, err := io.ReadAll(p.Stdout)
	if err != nil {
		t.Fatal(err)
	}
	<-p.Done()
	want := fmt.Sprintf("A=1\n%s=%s\n%s=%s\n", OwnerVar, owner, ProcessVar, p.mark)
	if string(b) != want {
		t.Errorf("got %q, want %q", b, want)
	}
}

func TestStart_ReportsAMissingProgram(t *testing.T) {
	if _, err := Start(t.Context(), Spec{Path: "/nonexistent/program"}); err == nil || !strings.Contains(err.Error(), "/nonexistent/program") {
		t.Errorf("err %v", err)
	}
}

func TestTail_KeepsBothEnds(t *testing.T) {
	w := newTail()
	for i := range 20000 {
		fmt.Fprintf(w, "line %d\n", i)
	}
	head, end, truncated, lines := w.read()
	if !strings.HasPrefix(head, "line 0\nline 1\n") || !strings.HasSuffix(end, "line 19999") || !truncated || lines != 20000 || len(end) > headKept {
		t.Errorf("head %.30q, end %q, truncated %v, lines %d", head, end[max(0, len(end)-30):], truncated, lines)
	}
}

// The first lines and the last ones are kept, each once, without what colours them.
func TestStderr_FirstAndLastLines(t *testing.T) {
	write := func(n int) *tail {
		out := newTail()
		for i := range n {
			fmt.Fprintf(out, "\x1b[31mline %d\x1b[0m\r\n", i+1)
		}
		return out
	}
	for _, c := range []struct {
		lines            int
		head, first, end string // of the end: its first line and its last one
		truncated        bool
	}{
		{1, "", "line 1", "line 1", false},
		{50, "", "line 1", "line 50", false},
		{60, "line 10", "line 11", "line 60", false},
		{70, "line 20", "line 21", "line 70", false},
		{100, "line 20", "line 51", "line 100", true},
		{100_000, "line 20", "line 99951", "line 100000", true},
	} {
		head, end, truncated, lines := write(c.lines).read()
		heads, ends := strings.Split(head, "\n"), strings.Split(end, "\n")
		if heads[len(heads)-1] != c.head || ends[0] != c.first || ends[len(ends)-1] != c.end || truncated != c.truncated || lines != c.lines {
			t.Errorf("%d lines: head ends with %q, end is %q to %q, truncated %v, lines %d", c.lines, heads[len(heads)-1], ends[0], ends[len(ends)-1], truncated, lines)
		}
	}
	out := newTail()
	_, _ = out.Write([]byte("a\x1b]0;title\x07b\x1b[2K\x1b(c\n"))
	if _, end, _, _ := out.read(); end != "ab(c" {
		t.Errorf("escapes leave %q", end)
	}
}

// A program that has just been reaped has no group any more, and who signals it then is told the
// same as a moment later.
func TestSignal_ProcessThatIsJustReaped(t *testing.T) {
	p, _ := start(t, "stubborn")
	p.Kill()
	<-p.Done()
	p.mu.Lock()
	p.reaped = false // as it is until wait notes it
	p.mu.Unlock()
	if err := p.Signal(syscall.SIGINT); !errors.Is(err, os.ErrProcessDone) {
		t.Fatalf("a process that is gone was signalled: %v", err)
	}
}
