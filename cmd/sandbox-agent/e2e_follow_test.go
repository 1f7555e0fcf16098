package main_test

import (
	"bufio"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// follower is a command that goes on until Ctrl-C.
type follower struct {
	t      *testing.T
	cmd    *exec.Cmd
	exited chan error
	out    chan string // lines that it writes; closed when it has exited
	errOut chan string // the same on stderr
	seen   []string    // of both, those that were read
}

// follow starts a command and waits until it has written something, which all of them do
// when they have begun to follow.
func (c *commandLine) follow(args ...string) *follower {
	c.t.Helper()
	f := &follower{t: c.t, cmd: c.command(c.t.Context(), args...), exited: make(chan error, 1), out: make(chan string, 1024), errOut: make(chan string, 1024)}
	out, w := io.Pipe()
	errOut, errW := io.Pipe()
	f.cmd.Stdout, f.cmd.Stderr = w, errW
	if err := f.cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	go func() {
		f.exited <- f.cmd.Wait()
		_ = w.Close()
		_ = errW.Close()
	}()
	for from, to := range map[*io.PipeReader]chan string{out: f.out, errOut: f.errOut} {
		go func() {
			defer close(to)
			for lines := bufio.NewScanner(from); lines.Scan(); {
				to <- lines.Text()
			}
		}()
	}
	select {
	case line := <-f.out:
		f.seen = append(f.seen, line)
	case line := <-f.errOut:
		f.seen = append(f.seen, line)
	}
	return f
}

// await reads what the command writes until a line says something.
func (f *follower) await(from chan string, says string) {
	f.t.Helper()
	late := time.After(patience)
	for {
		select {
		case line, ok := <-from:
			if !ok {
				f.t.Fatalf("%q: it has ended and has not said %q: %q", f.cmd.Args[1:], says, f.seen)
			}
			if f.seen = append(f.seen, line); strings.Contains(line, says) {
				return
			}
		case <-late:
			f.t.Fatalf("%q: it does not say %q: %q", f.cmd.Args[1:], says, f.seen)
		}
	}
}

// ends waits for the end of the command.
func (f *follower) ends(code int, says string) {
	f.t.Helper()
	<-f.exited
	for _, from := range []chan string{f.out, f.errOut} {
		for line := range from {
			f.seen = append(f.seen, line)
		}
	}
	if got := f.cmd.ProcessState.ExitCode(); got != code || !strings.Contains(strings.Join(f.seen, "\n"), says) {
		f.t.Errorf("%q: exit %d, want %d; it says %q, want %q", f.cmd.Args[1:], got, code, f.seen, says)
	}
}

// interrupt presses Ctrl-C.
func (f *follower) interrupt() {
	f.t.Helper()
	if err := f.cmd.Process.Signal(os.Interrupt); err != nil {
		f.t.Fatal(err)
	}
	f.ends(130, "")
}

const (
	isLost  = "the connection to the gateway is lost, and is made again"
	isThere = "the connection to the gateway is there again"
)

// What goes on until Ctrl-C ends when what it follows is gone, and says so. A gateway that was
// stopped is looked for, until it refuses.
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
		f.await(f.errOut, isLost)
	}
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("a-token-of-the-tests"), 0o600); err != nil {
		t.Fatal(err)
	}
	g.args = append(g.args, "--port", g.url[strings.LastIndexByte(g.url, ':')+1:], "--token-file", token)
	g.start()
	for _, f := range left { // what is refused stays so
		f.ends(4, "token")
	}
	g.kill(syscall.SIGTERM)
	// Nobody is looked for who was not there.
	if code, _, errOut := c.run("sessions", "watch"); code != 3 {
		t.Errorf("no gateway: exit %d, %s", code, errOut)
	}
}

// Who follows something while the gateway is started again goes on behind that: each event comes once, as
// each line of the list does, and a folder in which something may have changed meanwhile says so.
func TestFollow_DaemonRestart(t *testing.T) {
	t.Parallel()
	c, dir, end := newDaemon(t)
	defer end()
	do := func(args ...string) (out, errOut string) {
		t.Helper()
		code, out, errOut := c.run(args...)
		if code != 0 {
			t.Fatalf("%q: exit %d, %s", args, code, errOut)
		}
		return out, errOut
	}
	do("daemon", "start", "--port", "0", "--default-agent", "mock", "--fs-root", dir)
	session := func(text string) string {
		t.Helper()
		_, said := do("prompt", text)
		return strings.Fields(said)[1]
	}
	quiet, left, id := session("quiet"), session("left"), session("first")
	folder := filepath.Join(dir, "folder")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	events, list := c.follow("sessions", "events", id, "--follow", "--json"), c.follow("sessions", "watch")
	all := []*follower{events, list}
	events.await(events.out, "end_turn")
	list.await(list.out, "first") // the newest comes last
	var files *follower
	if runtime.GOOS == "linux" { // where folders are watched
		files = c.follow("fs", "watch", folder)
		all = append(all, files)
	}
	defer func() {
		for _, f := range all {
			_ = f.cmd.Process.Kill() // fails when it has ended
		}
	}()
	do("daemon", "stop")
	if err := os.RemoveAll(filepath.Join(dir, "sessions", left)); err != nil { // as somebody else does who has deleted it
		t.Fatal(err)
	}
	for _, f := range all {
		f.await(f.errOut, isLost)
	}
	do("daemon", "start")
	for _, f := range all {
		f.await(f.errOut, isThere)
	}
	list.await(list.out, left+"  deleted") // when the list has been told anew
	do("prompt", "--session", id, "second")
	events.await(events.out, "second")
	events.await(events.out, "end_turn")
	list.await(list.out, "first")
	if files != nil {
		files.await(files.out, "overflow")
		if err := os.WriteFile(filepath.Join(folder, "new"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		files.await(files.out, "new")
	}
	do("sessions", "delete", id)
	events.ends(0, "is gone")
	list.await(list.out, id+"  deleted")
	for _, f := range all[1:] {
		f.interrupt()
	}
	last := uint64(0)
	for _, line := range events.seen {
		var ev struct{ Seq uint64 }
		if json.Unmarshal([]byte(line), &ev) != nil {
			continue // said on stderr
		}
		if ev.Seq <= last || ev.Seq != last+1 && last == 0 {
			t.Errorf("event %d comes behind %d", ev.Seq, last)
		}
		last = ev.Seq
	}
	shown := map[string]bool{}
	for _, line := range list.seen {
		if strings.HasPrefix(line, quiet) && shown[line] {
			t.Errorf("it is told twice that %s", line)
		}
		shown[line] = true
	}
}
