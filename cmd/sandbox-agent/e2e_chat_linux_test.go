package main_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/charmbracelet/x/vt"
	"github.com/creack/pty"
	"golang.org/x/sys/unix"

	"sandboxagent.dev/sandbox-agent/internal/patient"
)

// talk is a command on a terminal.
type talk struct {
	t    *testing.T
	cmd  *exec.Cmd
	tty  *os.File
	seen output        // all that was written
	grid *vt.Emulator  // which shows it
	rows []string      // of grid, as they were last
	told output        // each of them anew when it had changed
	more chan struct{} // holds a token when more was told
	at   int           // how much of told was awaited
	done chan error
	over chan struct{} // closed when the command has ended and all was told
}

func startTalk(t *testing.T, g *gateway, size pty.Winsize, args ...string) *talk {
	t.Helper()
	c := &commandLine{t: t, env: append(os.Environ(), "SANDBOX_AGENT_ENDPOINT="+g.url, "TERM=tmux-256color", "NO_COLOR=1")}
	return startTerminal(t, c.command(t.Context(), append([]string{"chat"}, args...)...), size)
}

func startTerminal(t *testing.T, cmd *exec.Cmd, size pty.Winsize) *talk {
	t.Helper()
	tty, err := pty.StartWithSize(cmd, &size)
	if err == nil {
		tty, err = closable(tty)
	}
	if err != nil {
		t.Fatal(err)
	}
	k := &talk{t: t, cmd: cmd, tty: tty, grid: vt.NewEmulator(int(size.Cols), int(size.Rows)), more: make(chan struct{}, 1), done: make(chan error, 1), over: make(chan struct{})}
	go func() { _, _ = io.Copy(io.Discard, k.grid) }() // its answers: this is a terminal that gives none
	go func() {
		defer k.grid.InputPipe().(io.Closer).Close()
		buf := make([]byte, 1<<16)
		for {
			n, err := tty.Read(buf)
			_, _ = k.seen.Write(buf[:n])
			k.shows(buf[:n])
			select {
			case k.more <- struct{}{}:
			default:
			}
			if err != nil {
				break
			}
		}
		k.done <- cmd.Wait()
		close(k.over)
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = tty.Close()
	})
	return k
}

// closable returns a file that ends who reads from it when it is closed, in place of the library's, which is closed when its reader has
// read something.
func closable(f *os.File) (*os.File, error) {
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), f.Name()), nil
}

var escapes = regexp.MustCompile(`\x1b\[[0-9;?<>=]*[a-zA-Z]|\x1b\][^\x07\x1b]*(\x07|\x1b\\)|\r`)

// shows takes what was written, and tells the lines of the screen that it has changed: which letters
// of them were written is a matter of the library.
func (k *talk) shows(written []byte) {
	_, _ = k.grid.Write(written)
	rows := strings.Split(k.grid.String(), "\n")
	for i, row := range rows {
		if i >= len(k.rows) || row != k.rows[i] {
			_, _ = fmt.Fprintln(&k.told, row)
		}
	}
	k.rows = rows
}

// sees waits until the lines that have changed since the last wait match each of the patterns.
// Those of one wait have no order: how much changes at one time depends on the machine.
func (k *talk) sees(patterns ...string) {
	k.t.Helper()
	limit, over, ended := time.After(patience), k.over, false
	for {
		all := k.told.String()
		since := all[k.at:]
		missing := slices.IndexFunc(patterns, func(p string) bool { return !regexp.MustCompile(p).MatchString(since) })
		if missing < 0 {
			k.at = len(all)
			return
		}
		if ended {
			k.t.Fatalf("the command ended, and %s was not shown:\n%s", patterns[missing], since)
		}
		select {
		case <-k.more:
		case <-over:
			over, ended = nil, true
		case <-limit:
			k.t.Fatalf("%s was not shown:\n%s", patterns[missing], since)
		}
	}
}

// writes waits until the program has written a text, which need not be shown.
func (k *talk) writes(text string) {
	k.t.Helper()
	limit, over, ended := time.After(patience), k.over, false
	for !strings.Contains(k.seen.String(), text) {
		if ended {
			k.t.Fatalf("the command ended, and %q was not written", text)
		}
		select {
		case <-k.more:
		case <-over:
			over, ended = nil, true
		case <-limit:
			k.t.Fatalf("%q was not written", text)
		}
	}
}

func (k *talk) types(keys string) {
	k.t.Helper()
	if _, err := k.tty.WriteString(keys); err != nil {
		k.t.Fatal(err)
	}
}

// asks waits until something is asked, and numbers are answers.
func (k *talk) asks(patterns ...string) {
	k.t.Helper()
	k.sees(append(patterns, `│ (a number answers|numbers choose)`)...)
}

// leaves ends the chat with Ctrl-C, and says how to go on with the session.
func (k *talk) leaves() {
	k.t.Helper()
	k.interrupts(`the session lives on`)
	if out := k.seen.String(); !regexp.MustCompile(`the session lives on: \S+ chat --session mock`).MatchString(out) {
		k.t.Errorf("it does not say how to go on: %q", out[max(len(out)-300, 0):])
	}
}

// interrupts presses Ctrl-C until the chat ends, which shows the last words.
// One more press is needed while a turn has not ended yet, and what a test saw of it may not be its end.
func (k *talk) interrupts(last string) {
	k.t.Helper()
	at := k.at
	k.types("\x03")
	k.sees(last + `|Ctrl-C again leaves`)
	if !regexp.MustCompile(last).MatchString(k.told.String()[at:]) {
		k.types("\x03")
		k.sees(last)
	}
	k.ends()
}

// ends waits for the end of the program.
func (k *talk) ends() {
	k.t.Helper()
	select {
	case err := <-k.done:
		if err != nil {
			k.t.Errorf("the chat ended: %v", err)
		}
	case <-time.After(patience):
		k.t.Fatal("the chat does not end")
	}
}

func TestChat(t *testing.T) {
	t.Parallel()
	g := withAgentOfTwo(t, "--default-agent", "mock")
	for _, c := range []struct {
		size pty.Winsize
		args []string
	}{
		{pty.Winsize{Rows: 24, Cols: 80}, nil},
		{pty.Winsize{Rows: 50, Cols: 200}, nil},
		{pty.Winsize{Rows: 24, Cols: 80}, []string{"--acp", "2"}},
		{pty.Winsize{Rows: 50, Cols: 200}, []string{"--acp", "2", "--agent", "mock2"}},
	} {
		k := startTalk(t, g, c.size, append(c.args, "--cwd", t.TempDir())...)
		k.sees(`ready · mock`)
		k.types("hello\r")
		k.sees(`mock agent`)
		k.types("diff\r")
		k.sees(`\+ second line`)
		k.types("plan\r")
		k.sees(`☑ Look around`)
		k.types("permission\r")
		k.asks(`1 Allow`)
		k.types("1")
		k.sees(`allow_once`)
		k.types("permission\r")
		k.asks(`3 Reject`)
		k.types("\x1b")
		k.sees(`reject_once`)
		k.types("question 2\r")
		k.asks(`1 Red`)
		k.types("2")
		k.asks()
		k.types("a word of mine\r")
		k.sees(`a word of mine`)
		// What is sent meanwhile waits, and comes back when the turn is cancelled.
		k.types("slow\r")
		k.sees(`tick 3`)
		k.types("echo later\r")
		k.sees(`waits: echo later`)
		k.types("\x1b")
		k.sees(`the turn ended: cancelled`)
		k.types("\r")
		k.sees(`(?m)^\s*later`) // which is not what was typed
		k.types("\x0f")         // Ctrl-O
		k.sees(`Mock Large`)
		k.types("\x1b[B\r")
		k.sees(`Mock Large · `)
		k.types("\x1b[Z") // Shift-Tab
		k.sees(`· Code ·`)
		k.leaves()
	}
}

// In version 2 a chat shows what version 1 does not say.
func TestChat_VersionTwoShowsMore(t *testing.T) {
	t.Parallel()
	g := withAgentOfTwo(t, "--default-agent", "mock")
	k := startTalk(t, g, pty.Winsize{Rows: 40, Cols: 120}, "--acp", "2", "--agent", "mock2", "--cwd", t.TempDir())
	k.sees(`ready · mock2`)
	k.types("shell\r")
	k.sees(`✓ Run count`, `one`, `two`)
	k.types("child-permission\r")
	k.sees(`subagent Look around`, `1 Allow`)
	k.types("\x1b1") // at once
	k.sees(`✓ subagent Look around`, `permission: allow_once`, `The child is done`)
	k.types("upsert\r")
	k.sees(`(?s)The final text\.`)
	k.types("notice\r")
	k.sees(`warning: The disk is nearly full \(1 % is left\)`)
	k.types("compaction\r")
	k.sees(`the conversation was compacted`)
	k.types("background 1000\r")
	k.sees(`in the background: tick`)
	k.types("echo meanwhile\r")
	k.sees(`(?m)^\s*meanwhile`) // which is not what was typed
	k.leaves()
}

// A chat shows what another client does in its session, answers for it, and goes
// from one session to another.
func TestChat_Attaches(t *testing.T) {
	t.Parallel()
	for _, speaks := range []string{"1", "2"} {
		t.Run("version "+speaks, func(t *testing.T) { attaches(t, speaks) })
	}
}

func attaches(t *testing.T, speaks string) {
	g := startGateway(t, "--default-agent", "mock")
	other := connect(t, g, wsocket, options{agent: "mock"})
	session := other.newSession()
	if r := other.prompt(session, "echo before the chat"); r != "end_turn" {
		t.Fatal(r)
	}
	k := startTalk(t, g, pty.Winsize{Rows: 30, Cols: 100}, "--acp", speaks, "--session", session)
	k.sees(`before the chat`)
	slow := make(chan string, 1)
	go func() { slow <- other.prompt(session, "slow") }()
	k.sees(`tick 3`)
	late := startTalk(t, g, pty.Winsize{Rows: 30, Cols: 100}, "--acp", speaks, "--session", session)
	late.sees(`working, Escape cancels`)
	late.types("\x1b")
	late.sees(`ready · mock`)
	if r := <-slow; r != "cancelled" {
		t.Errorf("the turn that a chat cancelled ended with %s", r)
	}
	turn := make(chan string, 1)
	go func() { turn <- other.prompt(session, "permission") }()
	k.asks(`1 Allow`)
	k.types("1")
	if r := <-turn; r != "end_turn" {
		t.Errorf("the turn of the other client ended with %s", r)
	}
	k.sees(`allow_once`)
	// What is always allowed is not asked about, until it is taken back.
	k.types("permission\r")
	k.asks(`2 Always allow`)
	k.types("2")
	k.sees(`allow_always`)
	k.types("permission\r")
	k.sees(`allowed before`)
	k.types("\x07") // Ctrl-G
	k.sees(`Always allowed: Enter takes back`, `❯ Edit notes.txt`)
	k.types("\r")
	k.sees(`no longer always allowed: Edit notes.txt`)
	k.types("\x07")
	k.sees(`nothing is always allowed`)
	second := other.newSession()
	if r := other.prompt(second, "echo in another session"); r != "end_turn" {
		t.Fatal(r)
	}
	k.types("\x13") // Ctrl-S
	k.sees(`❯ echo in another session  mock`)
	k.types("\r") // the newest is the first
	k.sees(`(?m)^in another session`)
	k.leaves()
}

// Each session of the gateway can be gone to, however many newer ones there are: letters narrow the list.
func TestChat_GoesToAnOldSession(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "--default-agent", "mock")
	other := connect(t, g, wsocket, options{agent: "mock"})
	if r := other.prompt(other.newSession(), "echo from long ago"); r != "end_turn" {
		t.Fatal(r)
	}
	then := time.Now()
	patient.Until(patience, func() bool { return time.Since(then) > time.Millisecond }) // sessions are as old as the clock of the log says, in milliseconds
	var newest string
	for range 60 {
		newest = other.newSession()
	}
	k := startTalk(t, g, pty.Winsize{Rows: 30, Cols: 100}, "--session", newest)
	k.sees(`ready · mock`)
	k.types("\x13") // Ctrl-S
	k.sees(`Sessions, 1 of 61`)
	k.types("\x1b[F") // End
	k.sees(`Sessions, 61 of 61`, `❯ echo from long ago  mock`)
	k.types("\x1b[H")
	k.sees(`Sessions, 1 of 61`)
	k.types("zebra")
	k.sees(`with zebra`, `nothing here has that`)
	k.types("\r\x7f\x7f\x7f\x7f\x7f") // nothing is taken, and the letters go again
	k.sees(`Sessions, 1 of 61`)
	k.types("LONG echo")
	k.sees(`with LONG echo, 1 of 1`, `❯ echo from long ago  mock`)
	k.types("\r")
	k.sees(`(?m)^from long ago`)
	k.leaves()
}

// What one chat has begun goes on in another when the first is killed: it is asked there, and the turn ends.
func TestChat_AnotherIsKilled(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "--default-agent", "mock")
	other := connect(t, g, wsocket, options{agent: "mock"})
	session := other.newSession()
	first := startTalk(t, g, pty.Winsize{Rows: 24, Cols: 100}, "--session", session)
	first.sees(`ready · mock`)
	k := startTalk(t, g, pty.Winsize{Rows: 24, Cols: 100}, "--session", session)
	k.sees(`ready · mock`)
	first.types("permission\r")
	k.asks(`1 Allow`)
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-first.done
	k.types("1")
	k.sees(`allow_once`, `ready · mock`)
}

// What is sent while another chat's turn runs waits for its end, also when that one cancels it.
func TestChat_TwoInOneSession(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "--default-agent", "mock")
	session := connect(t, g, wsocket, options{agent: "mock"}).newSession()
	for _, speaks := range []string{"1", "2"} {
		one := startTalk(t, g, pty.Winsize{Rows: 30, Cols: 100}, "--acp", speaks, "--session", session)
		one.sees(`ready · mock`)
		two := startTalk(t, g, pty.Winsize{Rows: 30, Cols: 100}, "--acp", speaks, "--session", session)
		two.sees(`ready · mock`)
		one.types("slow\r")
		two.sees(`working, Escape cancels`, `tick 3`)
		two.types("echo of the second in version " + speaks + "\r")
		two.sees(`waits: echo of the second`)
		one.types("\x1b")
		two.sees(`(?m)^of the second in version ` + speaks)
		one.leaves()
		two.leaves()
	}
}

// A chat that a signal ends leaves the terminal as it was, and says where its session is.
func TestChat_EndsWithSignals(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "--default-agent", "mock")
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		k := startTalk(t, g, pty.Winsize{Rows: 24, Cols: 100}, "--cwd", t.TempDir())
		k.sees(`ready · mock`)
		if err := k.cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		exit, ok := errors.AsType[*exec.ExitError](<-k.done)
		if !ok || exit.ExitCode() != 130 {
			t.Errorf("%v: it ended with %v", sig, exit)
		}
		all := k.seen.String()
		if screen, lives := strings.LastIndex(all, "\x1b[?1049l"), strings.LastIndex(all, "the session lives on"); screen < 0 || lives < screen || strings.Contains(all, "goroutine ") {
			t.Errorf("%v: at its end it wrote %q", sig, all[max(len(all)-300, 0):])
		}
	}
}

// A chat whose gateway is gone says so in place of what the agent does, goes on when there is
// one again, and can be left at once when there is not.
func TestChat_TheGatewayIsGone(t *testing.T) {
	t.Parallel()
	for _, speaks := range []string{"1", "2"} {
		t.Run("version "+speaks, func(t *testing.T) {
			t.Parallel()
			g := startGateway(t)
			k := startTalk(t, g, pty.Winsize{Rows: 40, Cols: 120}, "--acp", speaks, "--cwd", t.TempDir())
			k.sees(`ready · mock`)
			k.types("slow\r")
			k.sees(`working, Escape cancels(?s).*tick 3`)
			g.kill(syscall.SIGKILL)
			k.sees(`the connection to the gateway is lost`, `no connection for \d+s, connecting again`)
			k.sees(`no connection for [1-9]\d*s`)
			k.types("written meanwhile")
			k.sees(`written meanwhile`)
			g.restart()
			k.sees(`the gateway was (started anew|ended while the turn ran)`, `ready · mock`)
			k.types("\x15echo it goes on\r")
			k.sees(`(?s)it goes on.*it goes on`)
			k.types("slow\r")
			k.sees(`tick 3`)
			g.kill(syscall.SIGKILL)
			k.sees(`no connection for`)
			k.leaves()
		})
	}
}

// When a gateway is killed in a turn, a chat that only watches it is told the same as who has sent the prompt.
func TestChat_AnothersTurnIsInterrupted(t *testing.T) {
	t.Parallel()
	for _, speaks := range []string{"1", "2"} {
		t.Run("version "+speaks, func(t *testing.T) {
			t.Parallel()
			g := startGateway(t)
			session := connect(t, g, wsocket, options{agent: "mock"}).newSession()
			size := pty.Winsize{Rows: 40, Cols: 120}
			one := startTalk(t, g, size, "--acp", speaks, "--session", session)
			one.sees(`ready · mock`)
			two := startTalk(t, g, size, "--acp", speaks, "--session", session)
			two.sees(`ready · mock`)
			one.types("slow\r")
			two.sees(`working, Escape cancels`, `tick 3`)
			g.kill(syscall.SIGKILL)
			one.sees(`no connection for`)
			two.sees(`no connection for`)
			g.restart()
			for _, k := range []*talk{one, two} {
				k.sees(`✗ .*(the gateway was started anew|the gateway was ended while the turn ran)`, `ready · mock`)
				k.leaves()
			}
		})
	}
}

// A chat says at once that another client has ended its session for good, also when it is idle.
func TestChat_TheSessionIsEndedElsewhere(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	for _, speaks := range []string{"1", "2"} {
		t.Run("close in version "+speaks, func(t *testing.T) {
			t.Parallel()
			other := connect(t, g, wsocket, options{agent: "mock"})
			session := other.newSession()
			k := startTalk(t, g, pty.Winsize{Rows: 24, Cols: 100}, "--acp", speaks, "--session", session)
			k.sees(`ready · mock`)
			other.must("session/close", map[string]any{"sessionId": session})
			k.sees(`the session was closed: the next prompt opens it again`)
			k.types("echo it goes on\r")
			k.sees(`(?m)^it goes on`)
			k.leaves()
		})
		for command, told := range map[string]string{"delete": "deleted", "terminate": "terminated"} {
			t.Run(command+" in version "+speaks, func(t *testing.T) {
				t.Parallel()
				other := connect(t, g, wsocket, options{agent: "mock"})
				session := other.newSession()
				k := startTalk(t, g, pty.Winsize{Rows: 24, Cols: 100}, "--acp", speaks, "--session", session)
				k.sees(`ready · mock`)
				c := &commandLine{t: t, env: append(os.Environ(), "SANDBOX_AGENT_ENDPOINT="+g.url)}
				if code, _, errOut := c.run("sessions", command, session); code != 0 {
					t.Fatalf("exit %d, %s", code, errOut)
				}
				k.sees(`the session was `+told, `the session has ended`)
				at := k.at
				k.types("\x03")
				k.ends()
				if after := k.told.String()[at:]; strings.Contains(after, "lives on") {
					t.Errorf("it says that the session lives on:\n%s", after)
				}
			})
		}
	}
}

// When the agent was chosen all that is typed is the chat's.
func TestChat_TheAgentIsChosen(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	g.args = slices.DeleteFunc(g.args, func(arg string) bool { return arg == "--default-agent" || arg == "mock" })
	g.start()
	k := startTalk(t, g, pty.Winsize{Rows: 40, Cols: 100}, "--cwd", t.TempDir())
	k.sees(`nothing to leave`)
	number := regexp.MustCompile(`(\d+)\) mock`).FindStringSubmatch(k.seen.String())[1]
	<-time.After(time.Second) // sooner nobody has read it
	k.types(number + "\r")
	k.sees(`ready · mock`)
	for _, key := range "echo abcdefghij" {
		k.types(string(key))
	}
	k.sees(`❯ echo abcdefghij`)
	k.types("\r")
	k.leaves()
}

func TestChat_NeedsATerminal(t *testing.T) {
	g := startGateway(t)
	c := &commandLine{t: t, env: append(os.Environ(), "SANDBOX_AGENT_ENDPOINT="+g.url)}
	for _, args := range [][]string{{"chat"}, {"chat", "--json"}, {"chat", "hello"}} {
		if code, _, errOut := c.run(args...); code != 2 || !strings.Contains(errOut, "wrong usage") {
			t.Errorf("%q: exit %d, %s", args, code, errOut)
		}
	}
	wrong := startTalk(t, g, pty.Winsize{Rows: 24, Cols: 80}, "--agent", "mock", "--mode", "nope")
	wrong.sees(`--mode nope: the agent does not have it. There are `, `sandbox-agent chat --help`)
	if exit, ok := errors.AsType[*exec.ExitError](<-wrong.done); !ok || exit.ExitCode() != 2 {
		t.Errorf("a mode that is none: %v", exit)
	}
	if _, list, _ := c.run("sessions", "list", "--json"); strings.Contains(list, `"sessionId"`) {
		t.Errorf("a session is left behind: %s", list)
	}
	k := startTalk(t, g, pty.Winsize{Rows: 24, Cols: 80}, "--session", "no-such-session")
	k.sees(`error: not found|Session not found`)
	exit, ok := errors.AsType[*exec.ExitError](<-k.done)
	if !ok || exit.ExitCode() != 5 {
		t.Errorf("an unknown session: %v", exit)
	}
}
