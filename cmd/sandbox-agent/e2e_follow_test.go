package main_test

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// follower is a command that goes on until Ctrl-C.
type follower struct {
	t      *testing.T
	cmd    *exec.Cmd
	exited chan error

	errOut bytes.Buffer // may be read when it has exited
}

// follow starts a command and waits until it has written something, which all of them do
// when they have begun to follow.
func (c *commandLine) follow(args ...string) *follower {
	c.t.Helper()
	f := &follower{t: c.t, cmd: c.command(c.t.Context(), args...), exited: make(chan error, 1)}
	r, w := io.Pipe()
	f.cmd.Stdout, f.cmd.Stderr = w, io.MultiWriter(&f.errOut, w)
	if err := f.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	go func() {
		f.exited <- f.cmd.Wait()
		_ = w.Close()
	}()
	lines := bufio.NewReader(r)
	if line, err := lines.ReadString('\n'); err != nil {
		c.t.Fatalf("%q wrote %q: %v", args, line, err)
	}
	go func() { _, _ = io.Copy(io.Discard, lines) }()
	return f
}

// ends waits for the end of the command.
func (f *follower) ends(code int, says string) {
	f.t.Helper()
	<-f.exited
	if got := f.cmd.ProcessState.ExitCode(); got != code || !strings.Contains(f.errOut.String(), says) {
		f.t.Errorf("%q: exit %d, want %d; it says %q, want %q", f.cmd.Args[1:], got, code, f.errOut.String(), says)
	}
}

// What goes on until Ctrl-C says so when it does not: the gateway was stopped, or what
// it follows is gone.
func TestFollow_Ends(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	c := &commandLine{t: t, env: append(os.Environ(), "SANDBOX_AGENT_ENDPOINT="+g.url)}
	folder := filepath.Join(t.TempDir(), "folder")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	session := func() string {
		t.Helper()
		code, _, errOut := c.run("prompt", "hello")
		fields := strings.Fields(errOut)
		if code != 0 || len(fields) < 2 || fields[0] != "session" {
			t.Fatalf("exit %d, %s", code, errOut)
		}
		return fields[1]
	}
	// start follows the session and the folder.
	start := func(id string) []*follower {
		t.Helper()
		all := []*follower{c.follow("sessions", "events", id, "--follow")}
		if runtime.GOOS == "linux" { // where folders are watched
			all = append(all, c.follow("fs", "watch", folder))
		}
		return all
	}
	id := session()
	gone := start(id)
	if code, _, errOut := c.run("sessions", "delete", id); code != 0 {
		t.Errorf("delete: exit %d, %s", code, errOut)
	}
	if err := os.Remove(folder); err != nil {
		t.Fatal(err)
	}
	for _, f := range gone {
		f.ends(0, "is gone")
	}
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	left := append(start(session()), c.follow("sessions", "watch"))
	g.kill(syscall.SIGTERM)
	for _, f := range left {
		f.ends(3, "the gateway ended the connection")
	}
}
