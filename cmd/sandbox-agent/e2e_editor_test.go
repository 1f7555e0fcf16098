package main_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/agentcache"
)

// editor is the acp command as an editor runs it.
type editor struct {
	cmd    *exec.Cmd
	mu     sync.Mutex
	stdin  io.WriteCloser
	stderr *output
	exited chan struct{}
	killed atomic.Bool // its output may end anywhere
}

func (e *editor) write(frame []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, err := e.stdin.Write(append(slices.Clip(frame), '\n'))
	return err
}

// leave closes the streams, as an editor does that ends, and waits for the
// process.
func (e *editor) leave(t testing.TB) {
	t.Helper()
	_ = e.stdin.Close()
	select {
	case <-e.exited:
	case <-time.After(patience):
		_ = e.cmd.Process.Kill()
		t.Errorf("the agent did not end with its input; its stderr:\n%s", e.stderr)
	}
}

// startEditor runs the acp command and initializes it. Its processes have marks
// that begin with mark.
func startEditor(t testing.TB, mark string, capabilities map[string]any, args ...string) *client {
	t.Helper()
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	e := &editor{cmd: exec.Command(bin, append([]string{"acp"}, args...)...), stderr: &output{}, exited: make(chan struct{})} // no context: it ends with its input
	e.cmd.Env = append(slices.DeleteFunc(os.Environ(), func(kv string) bool { return strings.HasPrefix(kv, "SANDBOX_AGENT_") }), markName+"="+mark)
	e.cmd.Stderr = e.stderr
	e.cmd.SysProcAttr = ownGroup()
	if e.stdin, err = e.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	stdout, err := e.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := e.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &client{
		t: t, g: &gateway{t: t}, kind: stdio, streams: map[string]bool{}, waiting: map[string]chan message{}, wake: make(chan struct{}),
		check: checker(t), editor: e,
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	go func() {
		defer close(e.exited)
		for r := bufio.NewReaderSize(stdout, 1<<20); ; {
			line, err := r.ReadBytes('\n')
			if len(line) > 0 && err == nil {
				c.deliver(line[:len(line)-1], 0)
				continue
			}
			if len(line) > 0 && !e.killed.Load() {
				t.Errorf("the output ends in the middle of a line: %.200q", line)
			}
			c.fail(fmt.Errorf("the output ended: %w", err))
			break
		}
		_ = e.cmd.Wait()
	}()
	t.Cleanup(func() {
		c.cancel()
		e.leave(t)
		if s := e.stderr.String(); strings.Contains(s, "DATA RACE") || strings.Contains(s, "panic:") {
			t.Errorf("stderr tells of a bug:\n%s", s)
		} else if t.Failed() {
			t.Logf("stderr of the acp command:\n%s", e.stderr.tail(16<<10))
		}
	})
	if capabilities == nil {
		capabilities = map[string]any{}
	}
	c.init = c.must("initialize", map[string]any{"protocolVersion": 1, "clientCapabilities": capabilities})
	return c
}

// saidFrom is the text of the session's chunks from a position on.
func (c *client) saidFrom(session string, from int) string {
	var b strings.Builder
	for _, m := range c.messages()[from:] {
		text, _ := m.chunk(session)
		b.WriteString(text)
	}
	return b.String()
}

func TestEditor_InProcess(t *testing.T) {
	t.Parallel()
	dir, mark := t.TempDir(), "editor-"+t.Name()
	g := &gateway{t: t}
	t.Cleanup(func() { g.awaitNoProcess(mark) })
	c := startEditor(t, mark, nil, "--agent", "mock", "--data-dir", dir)
	s := c.newSession()
	if stop := c.prompt(s, "echo hello editor"); stop != "end_turn" || c.saidFrom(s, 0) != "hello editor" {
		t.Fatalf("%s, said %q", stop, c.saidFrom(s, 0))
	}
	// What is no message is answered, and ends nothing.
	if err := c.editor.write([]byte(`{"jsonrpc": nonsense`)); err != nil {
		t.Fatal(err)
	}
	if err := c.editor.write([]byte("\r")); err != nil {
		t.Fatal(err)
	}
	if m := c.find(0, "an error about the line", func(m *message) bool { return m.Error != nil && m.Error.Code == -32700 }); string(m.ID) != "null" {
		t.Errorf("%s", m.raw)
	}
	if _, err := c.call("_example.com/nothing", map[string]any{"sessionId": s}); err == nil {
		t.Error("an unknown method succeeded")
	}
	// Permissions are the editor's to decide.
	turn := c.start("session/prompt", promptParams(s, "permission"))
	ask := c.findMethod("session/request_permission")
	c.answer(ask, map[string]any{"outcome": map[string]any{"outcome": "selected", "optionId": ask.params().Options[0].OptionID}})
	if _, err := c.wait(turn); err != nil {
		t.Error(err)
	}
	// Cancel.
	turn = c.start("session/prompt", promptParams(s, "slow"))
	c.find(c.mark(), "a chunk", func(m *message) bool { _, ok := m.chunk(s); return ok })
	c.notify("session/cancel", map[string]any{"sessionId": s})
	if r, err := c.wait(turn); err != nil || stopReason(t, r) != "cancelled" {
		t.Errorf("%s, %v", r, err)
	}
	// A second editor at the same time, and the same sessions the next day.
	other := startEditor(t, mark, nil, "--agent", "mock", "--data-dir", dir)
	if stop := other.prompt(other.newSession(), "hello"); stop != "end_turn" {
		t.Error(stop)
	}
	other.editor.leave(t)
	from := c.mark()
	running := c.start("session/prompt", promptParams(s, "stream 100000 10")) // an editor may leave in the middle
	c.find(from, "a chunk", func(m *message) bool { _, ok := m.chunk(s); return ok })
	c.editor.leave(t)
	<-running
	if code := c.editor.cmd.ProcessState.ExitCode(); code != 0 {
		t.Errorf("exit code %d, stderr:\n%s", code, c.editor.stderr)
	}
	g.awaitNoProcess(mark)
	next := startEditor(t, mark, nil, "--agent", "mock", "--data-dir", dir)
	next.attach("session/load", s, nil)
	if said := next.saidFrom(s, 0); !strings.HasPrefix(said, "hello editor") {
		t.Errorf("the replay says %.100q", said)
	}
	if entries, err := os.ReadDir(filepath.Join(dir, "editors")); err != nil || len(entries) != 2 {
		t.Errorf("%v, %v", entries, err)
	}
}

// An editor's gateway has a folder of its own for its sessions. The user's agents are named beside it, in the data directory.
func TestEditor_AgentOfTheUser(t *testing.T) {
	t.Parallel()
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := fmt.Sprintf("[agents.mine]\ncommand = %q\nargs = [\"mock-agent\", \"--state-dir\", %q]\n", bin, t.TempDir())
	if err := os.WriteFile(filepath.Join(dir, "agents.toml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	c := startEditor(t, "editor-"+t.Name(), nil, "--agent", "mine", "--data-dir", dir)
	s := c.newSession()
	if stop := c.prompt(s, "echo mine"); stop != "end_turn" || c.saidFrom(s, 0) != "mine" {
		t.Errorf("%s, said %q", stop, c.saidFrom(s, 0))
	}
}

func TestEditor_EndsWithSignalsAndBrokenPipes(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*client){
		"SIGTERM": func(c *client) { _ = c.editor.cmd.Process.Signal(syscall.SIGTERM) },
		"SIGINT":  func(c *client) { _ = c.editor.cmd.Process.Signal(syscall.SIGINT) },
		"SIGKILL": func(c *client) {
			c.editor.killed.Store(true)
			_ = c.editor.cmd.Process.Kill()
		},
	} {
		t.Run(name, func(t *testing.T) {
			mark := "editor-" + t.Name()
			g := &gateway{t: t}
			c := startEditor(t, mark, nil, "--agent", "mock", "--data-dir", t.TempDir())
			s := c.newSession()
			_ = c.start("session/prompt", promptParams(s, "stream 100000 10"))
			c.find(0, "a chunk", func(m *message) bool { _, ok := m.chunk(s); return ok })
			end(c)
			<-c.editor.exited
			g.awaitNoProcess(mark)
		})
	}
}

// cutter is a TCP proxy whose connections can be cut.
type cutter struct {
	ln   net.Listener
	to   string
	late sync.RWMutex // locked while clients hear nothing
	mu   sync.Mutex
	open map[net.Conn]bool
	down bool
	cuts int
}

func newCutter(t *testing.T, to string) *cutter {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &cutter{ln: ln, to: strings.TrimPrefix(to, "http://"), open: map[net.Conn]bool{}}
	t.Cleanup(func() {
		_ = ln.Close()
		p.cut()
	})
	go func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			to, down := p.to, p.down
			p.mu.Unlock()
			out, err := net.Dial("tcp", to)
			if err != nil || down {
				_ = in.Close()
				continue
			}
			p.mu.Lock()
			p.open[in], p.open[out] = true, true
			p.mu.Unlock()
			pipe := func(dst, src net.Conn) {
				_, _ = io.Copy(dst, src)
				_ = dst.Close()
				_ = src.Close()
			}
			go pipe(out, in)
			go pipe(hearing{in, &p.late}, out)
		}
	}()
	return p
}

func (p *cutter) url() string { return "http://" + p.ln.Addr().String() }

// hearing is a connection to a client that may hear something later.
type hearing struct {
	net.Conn
	late *sync.RWMutex
}

func (h hearing) Write(b []byte) (int, error) {
	h.late.RLock()
	defer h.late.RUnlock()
	return h.Conn.Write(b)
}

// delays keeps what is for clients until it is let go; what they send arrives.
func (p *cutter) delays(t *testing.T) (letGo func()) {
	p.late.Lock()
	letGo = sync.OnceFunc(p.late.Unlock)
	t.Cleanup(letGo)
	return letGo
}

// cut breaks all connections, also in the middle of what they carry.
func (p *cutter) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
		delete(p.open, c)
	}
	p.cuts++
}

func (p *cutter) set(down bool) {
	p.mu.Lock()
	p.down = down
	p.mu.Unlock()
	if down {
		p.cut()
	}
}

func TestEditor_Remote(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "--token", token)
	p := newCutter(t, g.url)
	c := startEditor(t, "", nil, "--endpoint", p.url(), "--token", token, "--agent", "mock", "--log-level", "debug")
	s := c.newSession()
	from := c.mark()
	if stop := c.prompt(s, "stream 5 1"); stop != "end_turn" {
		t.Fatal(stop)
	}
	reference := c.saidFrom(s, from) // what five chunks look like
	if reference == "" {
		t.Fatal("nothing was said")
	}

	t.Run("cuts at any moment", func(t *testing.T) {
		from, want := c.mark(), ""
		{ // the text without a cut
			whole := connect(t, g, wsocket, options{agent: "mock"})
			w := whole.newSession()
			whole.prompt(w, "stream 400 3")
			for _, m := range whole.messages() {
				text, _ := m.chunk(w)
				want += text
			}
		}
		stop := make(chan struct{})
		var cutting sync.WaitGroup
		cutting.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(rand.IntN(250)) * time.Millisecond):
					p.cut()
				}
			}
		})
		r, err := c.call("session/prompt", promptParams(s, "stream 400 3"))
		close(stop)
		cutting.Wait()
		if err != nil || stopReason(t, r) != "end_turn" {
			t.Fatalf("%s, %v", r, err)
		}
		if got := c.saidFrom(s, from); got != want {
			t.Errorf("after %d cuts %d bytes were said, want %d; they begin to differ behind %.60q", p.cuts, len(got), len(want), common(got, want))
		}
		t.Logf("%d cuts", p.cuts)
	})

	t.Run("what is written while it is away", func(t *testing.T) {
		from := c.mark()
		p.set(true)
		first := c.start("session/prompt", promptParams(s, "echo one"))
		second := c.start("session/prompt", promptParams(s, "echo two"))
		list := c.start("session/list", map[string]any{})
		p.set(false)
		for _, ch := range []<-chan message{first, second, list} {
			if _, err := c.wait(ch); err != nil {
				t.Fatal(err)
			}
		}
		if got := c.saidFrom(s, from); got != "onetwo" {
			t.Errorf("said %q", got)
		}
	})

	t.Run("a fork that fails leaves its session attached", func(t *testing.T) {
		if _, err := c.call("session/fork", map[string]any{"sessionId": s, "cwd": "/", "mcpServers": "none"}); err == nil {
			t.Fatal("it did not fail")
		}
		from := c.mark()
		p.cut()
		other := connect(t, g, wsocket, options{agent: "mock"})
		other.attach("session/resume", s, nil)
		other.prompt(s, "echo from another client")
		c.find(from, "what another client's turn says", func(m *message) bool {
			text, _ := m.chunk(s)
			return text == "from another client"
		})
	})

	t.Run("a prompt and its cancel", func(t *testing.T) {
		p.set(true)
		turn := c.start("session/prompt", promptParams(s, "slow"))
		c.notify("session/cancel", map[string]any{"sessionId": s})
		p.set(false)
		if r, err := c.wait(turn); err != nil || stopReason(t, r) != "cancelled" {
			t.Errorf("%s, %v", r, err)
		}
	})

	t.Run("a permission across a break", func(t *testing.T) {
		from := c.mark()
		turn := c.start("session/prompt", promptParams(s, "permission"))
		ask := c.find(from, "a permission", func(m *message) bool { return m.Method == "session/request_permission" })
		p.set(true)
		c.answer(ask, map[string]any{"outcome": map[string]any{"outcome": "selected", "optionId": ask.params().Options[0].OptionID}})
		p.set(false)
		if r, err := c.wait(turn); err != nil || stopReason(t, r) != "end_turn" {
			t.Fatalf("%s, %v", r, err)
		}
		asks := 0
		for _, m := range c.messages()[from:] {
			if m.Method == "session/request_permission" {
				asks++
			}
		}
		if asks != 1 {
			t.Errorf("it was asked %d times", asks)
		}
	})

	t.Run("a permission that somebody else answers meanwhile", func(t *testing.T) {
		from := c.mark()
		other := connect(t, g, wsocket, options{agent: "mock"})
		other.attach("session/resume", s, nil)
		turn := c.start("session/prompt", promptParams(s, "permission"))
		ask := c.find(from, "a permission", func(m *message) bool { return m.Method == "session/request_permission" })
		p.set(true)
		theirs := other.findMethod("session/request_permission")
		other.answer(theirs, map[string]any{"outcome": map[string]any{"outcome": "selected", "optionId": theirs.params().Options[0].OptionID}})
		other.find(0, "the end of the turn", func(m *message) bool { return strings.Contains(string(m.raw), `"status":"completed"`) })
		p.set(false)
		if r, err := c.wait(turn); err != nil || stopReason(t, r) != "end_turn" {
			t.Fatalf("%s, %v", r, err)
		}
		withdrawn := c.find(from, "the withdrawal", func(m *message) bool { return m.Method == "$/cancel_request" })
		if got := withdrawn.params().RequestID; string(got) != string(ask.ID) {
			t.Errorf("%s was withdrawn, asked was %s", got, ask.ID)
		}
	})

	t.Run("the gateway killed in the middle of a turn", func(t *testing.T) {
		from := c.mark()
		turn := c.start("session/prompt", promptParams(s, "slow"))
		c.find(from, "a chunk", func(m *message) bool { _, ok := m.chunk(s); return ok })
		g.kill(syscall.SIGKILL)
		g.start()
		p.mu.Lock()
		p.to = strings.TrimPrefix(g.url, "http://")
		p.mu.Unlock()
		if r, err := c.wait(turn); err == nil || !strings.Contains(err.Error(), "interrupted") {
			t.Errorf("%s, %v", r, err)
		}
		if stop := c.prompt(s, "echo alive"); stop != "end_turn" {
			t.Error(stop)
		}
	})
}

func common(a, b string) string {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return a[max(0, n-60):n]
}

func TestEditor_RemoteThatCannotBeHad(t *testing.T) {
	t.Parallel()
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	g := startGateway(t, "--token", token)
	const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{}}}` + "\n"
	for name, tt := range map[string]struct{ args, want string }{
		"nobody there":  {"--endpoint http://127.0.0.1:1", "connection refused"},
		"a wrong token": {"--endpoint " + g.url + " --token wrong", "token"},
		"no token":      {"--endpoint " + g.url, "token"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), bin, append([]string{"acp"}, strings.Fields(tt.args)...)...)
			in, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			var stderr strings.Builder
			cmd.Stderr = &stderr
			_, _ = io.WriteString(in, hello) // and the input stays open
			out, err := cmd.Output()
			exit, ok := errors.AsType[*exec.ExitError](err)
			if !ok || exit.ExitCode() == 0 {
				t.Errorf("it ended with %v", err)
			}
			var m message
			if err := json.Unmarshal(out, &m); err != nil || m.Error == nil || !strings.Contains(m.Error.Message, tt.want) {
				t.Errorf("the editor is told %s", out)
			}
			if !strings.Contains(stderr.String(), tt.want) {
				t.Errorf("stderr says %s", stderr.String())
			}
		})
	}
}

// The official SDK as an editor, with files and terminals of its own.
func TestEditor_OfficialSDK(t *testing.T) {
	t.Parallel()
	nodeDir := filepath.Join("testdata", "node")
	if _, err := os.Stat(filepath.Join(nodeDir, "node_modules", "ws")); err != nil {
		t.Skipf("the SDK is not installed, run ./task node:deps: %v", err)
	}
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	for _, remote := range []bool{false, true} {
		t.Run(fmt.Sprintf("remote %v", remote), func(t *testing.T) {
			folder := t.TempDir()
			if err := os.WriteFile(filepath.Join(folder, "notes.txt"), []byte("what the editor has\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			args := []string{"editor.mjs", folder, bin, "acp", "--agent", "mock", "--log-level", "warn"}
			cut := func() {}
			if remote {
				g := startGateway(t, "--token", token)
				p := newCutter(t, g.url)
				args, cut = append(args, "--endpoint", p.url(), "--token", token), p.cut
			} else {
				args = append(args, "--data-dir", t.TempDir())
			}
			ctx, cancel := context.WithTimeout(t.Context(), 4*patience)
			defer cancel()
			cmd := exec.CommandContext(ctx, "node", args...)
			cmd.Dir = nodeDir
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			var stderr strings.Builder
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var steps []string
			for sc := bufio.NewScanner(stdout); sc.Scan(); {
				if steps = append(steps, sc.Text()); sc.Text() == "break" {
					for range 5 {
						time.Sleep(30 * time.Millisecond) // somewhere in the turn
						cut()
					}
					_, _ = io.WriteString(stdin, "\n")
				}
			}
			if err := cmd.Wait(); err != nil || len(steps) == 0 || steps[len(steps)-1] != "ok" {
				t.Errorf("%v, steps %v\n%s", err, steps, stderr.String())
			}
		})
	}
}

// What acpx says when its second process is not there yet; nothing was sent to it.
var slowOwner = regexp.MustCompile(`"Session queue owner failed to start for session [\w-]+"`)

// acpx, a client from npm that starts agents as editors do.
func TestEditor_Acpx(t *testing.T) {
	t.Parallel()
	cli, node := agentcache.NPM(t, "acpx/dist/cli.js", "acpx@0.19.1"), agentcache.Node(t)
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	g := startGateway(t)
	for name, flags := range map[string]string{
		"in process": "--data-dir " + t.TempDir(),
		"remote":     "--endpoint " + g.url,
	} {
		t.Run(name, func(t *testing.T) {
			home, cwd, mark := t.TempDir(), t.TempDir(), "acpx-"+t.Name()
			acpx := func(args ...string) string {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
				defer cancel()
				agent := bin + " acp --agent mock --log-level warn " + flags
				for {
					cmd := exec.CommandContext(ctx, node, append([]string{cli, "--agent", agent, "--cwd", cwd, "--format", "json", "--approve-all"}, args...)...)
					cmd.Env = append(os.Environ(), "HOME="+home, markName+"="+mark)
					out, err := cmd.CombinedOutput()
					if err != nil && strings.Contains(string(out), `"QUEUE_OWNER_CLOSED"`) && strings.Contains(string(out), `"retryable":true`) {
						continue // what it keeps running has ended in the same moment
					}
					// acpx waits six seconds for its own second process, which comes up all the
					// same and takes the next call. One that ended says its exit behind the id.
					if err != nil && slowOwner.Match(out) {
						continue
					}
					if err != nil {
						t.Fatalf("acpx %v: %v\n%s", args, err, out)
					}
					return string(out)
				}
			}
			if out := acpx("exec", "echo hello acpx"); !strings.Contains(out, "hello acpx") || !strings.Contains(out, "end_turn") {
				t.Errorf("exec: %s", out)
			}
			if out := acpx("exec", "permission"); !strings.Contains(out, "session/request_permission") || !strings.Contains(out, "end_turn") {
				t.Errorf("a permission: %s", out)
			}
			acpx("sessions", "new")
			if out := acpx("prompt", "echo one"); !strings.Contains(out, "one") {
				t.Errorf("a prompt: %s", out)
			}
			if out := acpx("prompt", "echo two"); !strings.Contains(out, "two") {
				t.Errorf("another prompt of the session: %s", out)
			}
			// What acpx keeps running between prompts is killed, and the agent ends with it.
			g := &gateway{t: t}
			for _, p := range g.processes(mark) {
				if !strings.HasPrefix(p.args, bin) {
					_ = kill(p.pid, syscall.SIGKILL)
				}
			}
			g.awaitNoProcess(mark)
		})
	}
}
