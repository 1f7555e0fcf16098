package main_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/internal/patient"
)

// ladder bounds the end of an agent that has to be killed, and of a gateway
// with such an agent.
const ladder = 20 * time.Second

// states returns things an agent does while its gateway or session ends.
func states() []string {
	if testing.Short() {
		return []string{"slow", "ignore-eof"}
	}
	return []string{"hello", "slow", "hang", "permission", "ignore-eof", "fork-child"}
}

// occupy brings the session into the state and returns once it is there.
func occupy(c *client, session, state string) {
	c.t.Helper()
	from := c.mark()
	switch state {
	case "hello", "ignore-eof":
		c.prompt(session, state)
	case "permission":
		c.start("session/prompt", promptParams(session, state))
		c.findMethod("session/request_permission")
	case "fork-child":
		c.start("session/prompt", promptParams(session, state))
		c.find(from, "the child's pid", func(m *message) bool {
			text, ok := m.chunk(session)
			return ok && strings.HasPrefix(text, "child: ")
		})
	default:
		c.start("session/prompt", promptParams(session, state))
		c.awaitState(session, "running")
	}
}

// awaitState waits until the gateway says that the session is in a state.
func (c *client) awaitState(session, want string) {
	c.t.Helper()
	var info struct {
		State string `json:"state"`
	}
	if !patient.Until(patience, func() bool {
		c.g.get("/v2/sessions/"+session, &info)
		return info.State == want
	}) {
		c.t.Fatalf("the session is %s, want %s", info.State, want)
	}
}

func TestShutdown_LeavesNoProcess(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGKILL} {
		for _, state := range states() {
			t.Run(sig.String()+" "+state, func(t *testing.T) {
				t.Parallel()
				g := startGateway(t)
				c := connect(t, g, wsocket, options{})
				occupy(c, c.newSession(), state)
				old := g.generation()
				took := g.kill(sig)
				if took > ladder {
					t.Errorf("the gateway took %v to end", took)
				}
				if sig == syscall.SIGKILL {
					// Nobody is left to clean up but the next start.
					g.restart()
				} else if code := g.cmd.ProcessState.ExitCode(); code != 0 {
					t.Errorf("the gateway ended with code %d", code)
				}
				g.awaitNoProcess(old)
			})
		}
	}
}

func TestShutdown_SecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	if took := g.quickest(func() {
		c := connect(t, g, wsocket, options{})
		occupy(c, c.newSession(), "ignore-eof")
		if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
	}, syscall.SIGINT); took > 2*time.Second { // another signal than the first: two of a kind may arrive as one
		t.Errorf("the gateway took %v to end after the second signal", took)
	}
	old := g.generation()
	g.restart()
	g.awaitNoProcess(old)
}

// Clients open connections in advance; the gateway does not wait for a request
// on them.
func TestShutdown_DoesNotWaitForSilentConnections(t *testing.T) {
	g := startGateway(t)
	if took := g.quickest(func() {
		for range 3 {
			c, err := net.Dial("tcp", strings.TrimPrefix(g.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
		}
		g.get("/v2/health", nil) // what was connected before it is accepted
	}, syscall.SIGTERM); took > 3*time.Second {
		t.Errorf("the gateway took %v to end", took)
	}
}

func TestShutdown_EndsWebSocketsWithGoingAway(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	c := connect(t, g, wsocket, options{})
	s := c.newSession()
	c.prompt(s, "hello")
	g.kill(syscall.SIGTERM)
	c.untilClosed(func() bool { return false })
	if !strings.Contains(c.closed.Error(), "1001") && !strings.Contains(c.closed.Error(), "StatusGoingAway") {
		t.Errorf("the socket ended with %v, want close code 1001", c.closed)
	}
}

func TestCrash_IsExplained(t *testing.T) {
	g := startGateway(t)
	for _, kind := range dialects {
		t.Run(string(kind), func(t *testing.T) {
			c := connect(t, g, kind, options{})
			s := c.newSession()
			c.prompt(s, "hello")
			begin := time.Now()
			_, err := c.call("session/prompt", promptParams(s, "crash"))
			if err == nil {
				t.Fatal("the turn of a crashed agent has a result")
			}
			if d := time.Since(begin); d > ladder {
				t.Errorf("the crash was reported after %v", d)
			}
			var rpc *rpcError
			if !errors.As(err, &rpc) {
				t.Fatal(err)
			}
			var data struct {
				ExitCode *int `json:"exitCode"`
				Stderr   struct {
					Tail string `json:"tail"`
				} `json:"stderr"`
			}
			if json.Unmarshal(rpc.Data, &data) != nil || data.ExitCode == nil || *data.ExitCode != 3 || data.Stderr.Tail == "" {
				t.Errorf("the error's data is %s, want exit code 3 and what was on stderr", rpc.Data)
			}
			ended := c.findMethod("_sandboxagent/session/ended")
			if !strings.Contains(string(ended.Params), "agent_process_exited") {
				t.Errorf("the notification says %s", ended.Params)
			}
			// The session is not lost.
			if r := c.prompt(s, "echo again"); r != "end_turn" {
				t.Errorf("the next turn ended with %s", r)
			}
		})
	}
}

func TestSessionEnd_IsBounded(t *testing.T) {
	for _, method := range []string{"session/close", "session/delete", "_sandboxagent/session/terminate"} {
		for _, state := range states() {
			t.Run(method+" "+state, func(t *testing.T) {
				t.Parallel()
				g := startGateway(t)
				c := connect(t, g, inline, options{})
				s := c.newSession()
				occupy(c, s, state)
				begin := time.Now()
				c.must(method, map[string]any{"sessionId": s})
				if d := time.Since(begin); d > ladder {
					t.Errorf("%s took %v", method, d)
				}
				begin = time.Now()
				c.close()
				if d := time.Since(begin); d > ladder {
					t.Errorf("DELETE took %v", d)
				}
				// The gateway is as good as before.
				next := connect(t, g, inline, options{})
				if r := next.prompt(next.newSession(), "hello"); r != "end_turn" {
					t.Errorf("a turn on a new session ended with %s", r)
				}
			})
		}
	}
}

func TestTerminate_EndsEscapedChildren(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	t.Parallel()
	g := startGateway(t)
	c := connect(t, g, inline, options{})
	s := c.newSession()
	from := c.mark()
	c.start("session/prompt", promptParams(s, "fork-child"))
	m := c.find(from, "the child's pid", func(m *message) bool {
		text, ok := m.chunk(s)
		return ok && strings.HasPrefix(text, "child: ")
	})
	text, _ := m.chunk(s)
	pid, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(text, "child: ")))
	if err != nil || len(g.processes(g.generation())) < 3 {
		t.Fatalf("%v; processes %+v", err, g.processes(g.generation()))
	}
	// The crash of the agent is the end of its process, and of what it left.
	if _, err := c.call("session/prompt", promptParams(s, "crash")); err == nil {
		t.Error("the turn of a crashed agent has a result")
	}
	left := g.await(func() []process {
		for _, p := range g.processes(g.generation()) {
			if p.pid == pid {
				return []process{p}
			}
		}
		return nil
	})
	if len(left) > 0 {
		t.Errorf("the child outlived its agent: %+v", left)
	}
}

func TestDelete_RepeatsAsTheDialectSays(t *testing.T) {
	g := startGateway(t)
	for kind, want := range map[dialect][2]int{
		inline:   {http.StatusNoContent, http.StatusNoContent},
		standard: {http.StatusAccepted, http.StatusNotFound},
	} {
		c := connect(t, g, kind, options{})
		for i, status := range want {
			if resp, body := c.request(http.MethodDelete, nil, nil); resp.StatusCode != status {
				t.Errorf("%s: DELETE number %d: %s %s, want %d", kind, i+1, resp.Status, body, status)
			}
		}
	}
}

func TestPID1_ReapsAndStops(t *testing.T) {
	wrap := []string{"unshare", "--pid", "--fork", "--mount-proc"}
	if os.Geteuid() != 0 {
		wrap = append(wrap, "--user", "--map-root-user")
	}
	if out, err := exec.CommandContext(t.Context(), wrap[0], append(wrap[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("no process namespace here: %v: %s", err, out)
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			g := newGateway(t)
			g.wrap = wrap
			g.start()
			c := connect(t, g, inline, options{})
			s := c.newSession()
			occupy(c, s, "fork-child")
			if _, err := c.call("session/prompt", promptParams(s, "crash")); err == nil {
				t.Error("the turn of a crashed agent has a result")
			}
			c.prompt(s, "hello")

			var init process // the gateway inside
			for _, p := range g.processes(g.generation()) {
				if strings.Contains(p.args, "sandbox-agent server ") && !strings.HasPrefix(p.args, "unshare") {
					init = p
				}
			}
			if init.pid == 0 {
				t.Fatalf("the gateway is not among %+v", g.processes(g.generation()))
			}
			if left := g.await(func() []process { return zombies(t, init.pid) }); len(left) > 0 {
				t.Errorf("nobody waits for %+v", left)
			}
			begin := time.Now()
			if err := kill(init.pid, sig); err != nil {
				t.Fatal(err)
			}
			select {
			case <-g.exited:
				t.Logf("ended after %v", time.Since(begin))
			case <-time.After(ladder):
				t.Errorf("the gateway did not end within %v of %v", ladder, sig)
			}
			g.awaitNoProcess(g.mark)
		})
	}
}

// zombies returns the children of a process that ended and were not waited for.
func zombies(t *testing.T, parent int) []process {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	var found []process
	for _, name := range stats {
		b, err := os.ReadFile(name)
		if err != nil {
			continue
		}
		s := string(b)
		fields := strings.Fields(s[strings.LastIndexByte(s, ')')+1:]) // state, parent, ...
		if len(fields) > 1 && fields[0] == "Z" && fields[1] == strconv.Itoa(parent) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			found = append(found, process{pid, s})
		}
	}
	return found
}

// program starts a program, waits until it has printed ready, and returns its id.
func (g *gateway) program(tty bool, line string) string {
	g.t.Helper()
	body, err := json.Marshal(map[string]any{"command": "sh", "args": []string{"-c", line}, "tty": tty, "cwd": "/"})
	if err != nil {
		g.t.Fatal(err)
	}
	code, text := g.post("POST", "/v2/processes", string(body))
	var info struct{ ID string }
	if err := json.Unmarshal([]byte(text), &info); err != nil || code != 201 {
		g.t.Fatalf("%d: %s", code, text)
	}
	g.awaitLog(info.ID, "ready")
	return info.ID
}

// awaitLog returns what a program has printed when a text is in it.
func (g *gateway) awaitLog(id, text string) string {
	g.t.Helper()
	var got bytes.Buffer
	g.until(id+" has printed "+text, func() bool {
		var page struct{ Chunks []struct{ Data []byte } }
		g.get("/v2/processes/"+id+"/logs", &page)
		got.Reset()
		for _, c := range page.Chunks {
			got.Write(c.Data)
		}
		return strings.Contains(got.String(), text)
	})
	return got.String()
}
