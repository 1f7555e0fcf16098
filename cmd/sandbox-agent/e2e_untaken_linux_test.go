package main_test

import (
	"strings"
	"syscall"
	"testing"
)

// A prompt that an agent's process had not read when it was killed is given to the next
// one, by itself. What it had read is not: its turn fails.
func TestPrompt_ProcessKilledBeforeItReads(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	for _, kind := range dialects {
		c, other := connect(t, g, kind, options{}), connect(t, g, wsocket, options{})
		s := c.newSessionWith(map[string]any{"isolation": "session"})
		c.prompt(s, "echo before")
		signal := func(sig syscall.Signal) {
			t.Helper()
			for _, p := range g.agents() {
				if err := syscall.Kill(p.pid, sig); err != nil {
					t.Fatal(err)
				}
				if sig == syscall.SIGSTOP {
					awaitStopped(t, p.pid)
				}
			}
		}
		signal(syscall.SIGSTOP)
		other.attach("session/resume", s, nil)
		from := other.mark()
		turn := c.start("session/prompt", promptParams(s, "echo not read"))
		other.find(from, "the prompt", func(m *message) bool { return strings.Contains(string(m.Params), "user_message_chunk") })
		signal(syscall.SIGKILL)
		if res, err := c.wait(turn); err != nil || stopReason(t, res) != "end_turn" {
			t.Errorf("%s: the prompt that nobody has read ended with %s, %v", kind, res, err)
		}
		if n := strings.Count(string(g.get("/v2/sessions/"+s+"/events", nil)), "echo not read"); n == 0 {
			t.Errorf("%s: the prompt is not in the log", kind)
		}
		turn = c.start("session/prompt", promptParams(s, "slow"))
		other.find(other.mark(), "the turn", func(m *message) bool { return strings.Contains(string(m.Params), "agent_message_chunk") })
		signal(syscall.SIGKILL)
		if _, err := c.wait(turn); err == nil {
			t.Errorf("%s: the turn that was killed ended well", kind)
		}
		if r := c.prompt(s, "echo behind"); r != "end_turn" {
			t.Errorf("%s: the next turn ended with %s", kind, r)
		}
		c.must("session/close", map[string]any{"sessionId": s})
		c.close()
		other.close()
	}
}
