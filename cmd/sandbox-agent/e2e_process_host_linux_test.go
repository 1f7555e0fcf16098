package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// trees are programs that are hard to end: they ignore signals, and leave
// children in sessions, groups and terminals of their own.
var trees = []string{
	"echo ready; sleep 1000",
	"trap '' TERM HUP INT QUIT; echo ready; while :; do sleep 1; done",
	"trap '' TERM HUP; (setsid sleep 1000 &); setsid sh -c 'trap \"\" TERM; sleep 1000 & sleep 1000' & echo ready; wait; sleep 1000",
	"(sleep 1000 &); (setsid sleep 1000 &); echo ready; kill -STOP $$; sleep 1000",
	"echo ready; while :; do echo line; sleep 0.01; done",
	"i=0; while [ $i -lt 20 ]; do (sh -c 'trap \"\" TERM HUP; sleep 1000; :' &); i=$((i+1)); done; echo ready; sleep 1000",
}

// Whatever programs do, none is left when the gateway ends, and none becomes a
// zombie.
func TestPrograms_NoneIsLeft(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGKILL} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			g := startGateway(t)
			for _, line := range trees {
				g.program(false, line)
				g.program(true, line)
			}
			// One that is being run, and one that is being viewed.
			ran := make(chan string, 1)
			go func() {
				_, text := g.post("POST", "/v2/processes/run", `{"command":"sh","args":["-c","trap '' TERM; setsid sleep 1000 & sleep 1000"],"cwd":"/"}`)
				ran <- text
			}()
			ws := g.terminal(g.program(true, "echo ready; cat"), 0)
			before := g.processes(g.generation())
			if len(before) < 40 && runtime.GOOS == "linux" {
				t.Errorf("only %d processes run: %+v", len(before), before)
			}
			old := g.generation()
			if took := g.kill(sig); took > ladder {
				t.Errorf("the gateway took %v to end", took)
			}
			// The guard ends the rest after SIGKILL; no other start is needed.
			g.awaitNoProcess(old)
			<-ran
			for {
				if _, _, err := ws.Read(t.Context()); err != nil {
					if code := websocket.CloseStatus(err); sig != syscall.SIGKILL && code != websocket.StatusNormalClosure && code != websocket.StatusGoingAway {
						t.Errorf("the viewer's connection ended with %v", err)
					}
					break
				}
			}
		})
	}
}

func (g *gateway) terminal(id string, after uint64) *websocket.Conn {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	h := http.Header{}
	g.authorize(h)
	ws, _, err := websocket.Dial(ctx, fmt.Sprintf("ws%s/v2/processes/%s/terminal?after=%d", strings.TrimPrefix(g.url, "http"), id, after), &websocket.DialOptions{HTTPHeader: h})
	if err != nil {
		g.t.Fatal(err)
	}
	ws.SetReadLimit(1 << 20)
	g.t.Cleanup(func() { _ = ws.CloseNow() })
	return ws
}

// Deleting ends a whole tree; while many come and go, no zombie stays.
func TestPrograms_DeleteEndsTheTree(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("processes are looked for in /proc")
	}
	t.Parallel()
	g := startGateway(t)
	guard := len(g.processes(g.generation()))
	var users sync.WaitGroup
	for i := range 4 {
		users.Go(func() {
			for n := range 6 {
				id := g.program(n%2 == 0, trees[(i+n)%len(trees)])
				if code, body := g.post("DELETE", "/v2/processes/"+id, ""); code != 204 {
					t.Errorf("%d: %s", code, body)
				}
				if code, body := g.post("POST", "/v2/processes/run", `{"command":"sh","args":["-c","setsid sleep 1000 & (sleep 0.01 &)"],"cwd":"/"}`); code != 200 {
					t.Errorf("%d: %s", code, body)
				}
			}
		})
	}
	users.Wait()
	if left := g.await(func() []process {
		left := g.processes(g.generation())
		if len(left) <= guard+1 { // the gateway itself; the guard carries no mark
			return nil
		}
		return left
	}); len(left) > 0 {
		t.Errorf("processes are left: %+v", left)
	}
	if z := g.await(func() []process { return zombies(t, g.cmd.Process.Pid) }); len(z) > 0 {
		t.Errorf("nobody waits for %+v", z)
	}
}

// ttyScreen is a terminal at which the command line tool is used.
type ttyScreen struct {
	t    *testing.T
	pty  *os.File
	mu   sync.Mutex
	text bytes.Buffer
	more chan struct{} // room for one
}

func newTTY(t *testing.T, cmd *exec.Cmd) *ttyScreen {
	t.Helper()
	own, tty, err := pty.Open()
	if err != nil {
		t.Skipf("there are no terminals here: %v", err)
	}
	if err := pty.Setsize(own, &pty.Winsize{Cols: 91, Rows: 33}); err != nil {
		t.Fatal(err)
	}
	s := &ttyScreen{t: t, pty: own, more: make(chan struct{}, 1)}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 4096)
		for {
			n, err := own.Read(b)
			s.mu.Lock()
			s.text.Write(b[:n])
			s.mu.Unlock()
			select {
			case s.more <- struct{}{}:
			default:
			}
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { _ = tty.Close(); <-done; _ = own.Close() })
	return s
}

func (s *ttyScreen) await(text string) {
	s.t.Helper()
	deadline := time.After(patience)
	for {
		s.mu.Lock()
		got := s.text.String()
		s.mu.Unlock()
		if strings.Contains(got, text) {
			return
		}
		select {
		case <-s.more:
		case <-deadline:
			s.t.Fatalf("no %q on the screen: %q", text, got)
		}
	}
}

func (s *ttyScreen) keys(text string) {
	s.t.Helper()
	if _, err := s.pty.WriteString(text); err != nil {
		s.t.Fatal(err)
	}
}

// canonical reports whether lines are edited by the terminal, as they are
// unless a program has made it raw.
func (s *ttyScreen) canonical() bool {
	s.t.Helper()
	attr, err := unix.IoctlGetTermios(int(s.pty.Fd()), unix.TCGETS)
	if err != nil {
		s.t.Fatal(err)
	}
	return attr.Lflag&unix.ICANON != 0 && attr.Lflag&unix.ECHO != 0
}

// Attach is a real terminal: raw, with its size, and as it was afterwards,
// however it ends.
func TestAttach_AtATerminal(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the terminal is looked at as on Linux")
	}
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	g := startGateway(t)
	_, text := g.post("POST", "/v2/processes", `{"command":"sh","tty":true,"cwd":"/","env":{"PS1":"prompt> ","ENV":""}}`)
	var info struct{ ID string }
	if err := json.Unmarshal([]byte(text), &info); err != nil {
		t.Fatal(text)
	}
	attach := func() (*exec.Cmd, *ttyScreen) {
		cmd := exec.Command(bin, "process", "attach", info.ID, "--endpoint", g.url)
		s := newTTY(t, cmd)
		s.await("prompt> ")
		return cmd, s
	}
	code := func(cmd *exec.Cmd) int {
		t.Helper()
		end := make(chan struct{})
		go func() { _ = cmd.Wait(); close(end) }()
		select {
		case <-end:
		case <-time.After(patience):
			_ = cmd.Process.Kill()
			t.Fatal("the command does not end")
		}
		return cmd.ProcessState.ExitCode()
	}

	cmd, s := attach()
	if s.canonical() {
		t.Error("the terminal is not raw")
	}
	s.keys("stty size\r")
	s.await("33 91")
	if err := pty.Setsize(s.pty, &pty.Winsize{Cols: 70, Rows: 20}); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); { // the signal and the size travel on ways of their own
		s.keys("stty size\r")
		s.await("prompt> ")
		s.mu.Lock()
		ok := strings.Contains(s.text.String(), "20 70")
		s.mu.Unlock()
		if ok {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.await("20 70")
	s.keys("sh -c 'echo asleep $((1+1)); exec sleep 1000'\r")
	s.await("asleep 2")
	s.keys("\x03")
	s.await("^C")
	s.keys("echo after $((2+1))\r")
	s.await("after 3")
	s.keys("\x1d") // Ctrl-]
	if c := code(cmd); c != 0 || !s.canonical() {
		t.Errorf("after leaving: exit %d, terminal as it was: %v", c, s.canonical())
	}

	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT} {
		cmd, s = attach()
		s.await("after 3") // of before
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if c := code(cmd); c != 130 || !s.canonical() {
			t.Errorf("after %v: exit %d, terminal as it was: %v", sig, c, s.canonical())
		}
	}

	cmd, s = attach()
	s.keys("exit 7\r")
	if c := code(cmd); c != 7 || !s.canonical() {
		t.Errorf("after the program's end: exit %d, terminal as it was: %v", c, s.canonical())
	}

	_, text = g.post("POST", "/v2/processes", `{"command":"sh","tty":true,"cwd":"/","env":{"PS1":"prompt> ","ENV":""}}`)
	if err := json.Unmarshal([]byte(text), &info); err != nil {
		t.Fatal(text)
	}
	cmd, s = attach()
	g.kill(syscall.SIGKILL)
	if c := code(cmd); c != 3 || !s.canonical() {
		t.Errorf("without the gateway: exit %d, terminal as it was: %v", c, s.canonical())
	}
}

// cuttable is a proxy whose connections can be cut.
type cuttable struct {
	l     net.Listener
	mu    sync.Mutex
	conns []net.Conn
	own   sync.WaitGroup
}

func newCuttable(t *testing.T, target string) *cuttable {
	t.Helper()
	var lc net.ListenConfig
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &cuttable{l: l}
	p.own.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			var d net.Dialer
			out, err := d.DialContext(context.Background(), "tcp", target)
			if err != nil {
				_ = in.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, in, out)
			p.mu.Unlock()
			for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
				p.own.Go(func() {
					_, _ = io.Copy(pair[0], pair[1])
					_, _ = in.Close(), out.Close()
				})
			}
		}
	})
	t.Cleanup(func() { _ = l.Close(); p.cut(); p.own.Wait() })
	return p
}

func (p *cuttable) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

// What a program asks its terminal is passed to the first one that shows it, and to no other: a
// terminal would answer what another one has answered, which types into the program.
func TestAttach_AsksOneTerminal(t *testing.T) {
	t.Parallel()
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	g := startGateway(t)
	id := g.program(true, `stty -echo; printf '\033[c\033[31mred\033]11;?\007 ready\n'; while read x; do printf '\033[6n[%s]\n' "$x"; done`)
	for i, want := range []string{"\x1b[c\x1b[31mred\x1b]11;?\x07 ready", "\x1b[31mred ready\r\n[line-0]\r\n\x1b[6n[line-1]"} {
		cmd := exec.Command(bin, "process", "attach", id, "--endpoint", g.url)
		s := newTTY(t, cmd)
		s.await("ready")
		s.keys(fmt.Sprintf("line-%d\r", i))
		s.await(fmt.Sprintf("\x1b[6n[line-%d]", i)) // it is new, and ready
		s.keys("\x1d")
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
		s.mu.Lock()
		if got := s.text.String(); !strings.Contains(got, want) {
			t.Errorf("terminal %d was shown %q, want %q in it", i, got, want)
		}
		s.mu.Unlock()
	}
}

// A connection that breaks is made again, and nothing is lost or shown twice.
func TestAttach_ConnectionBreaks(t *testing.T) {
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	g := startGateway(t)
	id := g.program(true, "stty -echo; echo ready; while read x; do echo \"[$x]\"; done")
	p := newCuttable(t, strings.TrimPrefix(g.url, "http://"))
	cmd := exec.Command(bin, "process", "attach", id, "--endpoint", "http://"+p.l.Addr().String())
	s := newTTY(t, cmd)
	s.await("ready")
	for i := range 5 {
		s.keys(fmt.Sprintf("line-%d\r", i))
		s.await(fmt.Sprintf("[line-%d]", i))
		p.cut()
		// What is printed meanwhile is shown afterwards.
		if code, body := g.post("POST", "/v2/processes/"+id+"/stdin", fmt.Sprintf("meanwhile-%d\n", i)); code != 200 {
			t.Fatalf("%d: %s", code, body)
		}
		s.await(fmt.Sprintf("[meanwhile-%d]", i))
	}
	s.keys("\x1d")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range []string{"line", "meanwhile"} {
		for i := range 5 {
			if n := strings.Count(s.text.String(), fmt.Sprintf("[%s-%d]", name, i)); n != 1 {
				t.Errorf("%s-%d is shown %d times: %q", name, i, n, s.text.String())
			}
		}
	}
}

// A hub says for a moment that it does not have the gateway when the network breaks.
func TestAttach_NodeIsAwayForAMoment(t *testing.T) {
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	g := startGateway(t)
	id := g.program(true, "stty -echo; echo ready; while read x; do echo \"[$x]\"; done")
	to, err := url.Parse(g.url)
	if err != nil {
		t.Fatal(err)
	}
	pass := httputil.NewSingleHostReverseProxy(to)
	pass.ErrorLog = log.New(io.Discard, "", 0) // of connections that are cut
	var refusals atomic.Int32
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refusals.Add(-1) < 0 {
			pass.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, `{"type":"urn:sandbox-agent:error:node_offline","title":"Node is offline","status":503}`)
	}))
	t.Cleanup(hub.Close)
	p := newCuttable(t, hub.Listener.Addr().String())
	cmd := exec.Command(bin, "process", "attach", id, "--endpoint", "http://"+p.l.Addr().String())
	s := newTTY(t, cmd)
	s.await("ready")
	refusals.Store(6) // for some seconds
	p.cut()
	if code, body := g.post("POST", "/v2/processes/"+id+"/stdin", "meanwhile\n"); code != 200 {
		t.Fatalf("%d: %s", code, body)
	}
	s.await("[meanwhile]")
	s.keys("\x1d")
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// While there is no connection the user can leave: nobody else would take Ctrl-C.
func TestAttach_LeavesWithoutAConnection(t *testing.T) {
	t.Parallel()
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	g := startGateway(t)
	id := g.program(true, "stty -echo; echo ready; while read x; do echo \"[$x]\"; done")
	for key, exit := range map[string]int{"\x1d": 0, "\x03": 130} {
		p := newCuttable(t, strings.TrimPrefix(g.url, "http://"))
		cmd := exec.Command(bin, "process", "attach", id, "--endpoint", "http://"+p.l.Addr().String())
		s := newTTY(t, cmd)
		s.await("ready")
		_ = p.l.Close()
		p.cut()
		s.await("[the connection to the gateway is lost, and is made again: Ctrl-C leaves]")
		s.keys("typed" + key)
		_ = cmd.Wait()
		if got := cmd.ProcessState.ExitCode(); got != exit || !s.canonical() {
			t.Errorf("%q: exit %d, terminal as it was: %v", key, got, s.canonical())
		}
	}
}

// Who reads the output leaves: the terminal is as it was.
func TestAttach_NobodyReadsItsOutput(t *testing.T) {
	t.Parallel()
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	g := startGateway(t)
	id := g.program(true, "echo ready; while echo again; do sleep 0.1; done")
	s := newTTY(t, exec.Command("sh", "-c", `"$0" process attach "$1" --endpoint "$2" | head -n 2; echo over; read x`, bin, id, g.url))
	s.await("over") // it is told more
	if !s.canonical() {
		t.Error("the terminal is not as it was")
	}
	s.keys("\n")
}

// Who follows what a process writes goes on when the connection breaks, as who follows a session does.
func TestLogs_ConnectionBreaks(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	id := g.program(false, "echo ready; while read x; do echo \"[$x]\"; done; exit 3")
	p := newCuttable(t, strings.TrimPrefix(g.url, "http://"))
	c := &commandLine{t: t, env: append(os.Environ(), "SANDBOX_AGENT_ENDPOINT=http://"+p.l.Addr().String())}
	f := c.follow("process", "logs", "-f", id, "--tail", "1")
	p.cut()
	f.await(f.errOut, isLost)
	for _, line := range []string{"one", "two"} { // the second when it is known to be there again
		if code, body := g.post("POST", "/v2/processes/"+id+"/stdin", line+"\n"); code != 200 {
			t.Fatalf("%d: %s", code, body)
		}
		f.await(f.out, "["+line+"]")
	}
	if code, body := g.post("POST", "/v2/processes/"+id+"/stop", ""); code != 200 {
		t.Fatalf("%d: %s", code, body)
	}
	f.ends(0, isThere)
	if shown := strings.Join(f.seen, "\n"); strings.Count(shown, "ready") != 1 || strings.Count(shown, "[one]") != 1 {
		t.Errorf("what was shown comes again:\n%s", shown)
	}
}
