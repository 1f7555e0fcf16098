package main_test

import (
	"bytes"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestPrompt_BehindAnothersTurn: a prompt that waits for another client's turn shows nothing of
// it, answers none of its requests, and takes only itself back.
func TestPrompt_BehindAnothersTurn(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"1", "2"} {
		t.Run("version "+version, func(t *testing.T) {
			t.Parallel()
			g := startGateway(t)
			c := &commandLine{t: t, env: append(os.Environ(), "SANDBOX_AGENT_ENDPOINT="+g.url)}
			other := connect(t, g, wsocket, options{})
			s := other.newSession()
			// behind starts the command, which waits when it is returned.
			behind := func(flags ...string) (cmd *exec.Cmd, out, said *bytes.Buffer) {
				cmd = c.command(t.Context(), slices.Concat([]string{"prompt", "--session", s, "--acp", version}, flags, []string{"echo mine"})...)
				out, said = new(bytes.Buffer), new(bytes.Buffer)
				cmd.Stdout, cmd.Stderr = out, said
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if t.Failed() {
						t.Logf("it showed %q and said %q", out, said)
					}
				})
				g.until("the prompt waits", func() bool { return g.scrape()["sandbox_agent_prompts_queued"] == 1 })
				return cmd, out, said
			}

			turn := other.start("session/prompt", promptParams(s, "permission"))
			ask := other.findMethod("session/request_permission")
			cmd, out, said := behind("--permission", "allow")
			other.answer(ask, map[string]any{"outcome": map[string]any{"outcome": "selected", "optionId": "reject_once"}})
			if _, err := other.wait(turn); err != nil {
				t.Error(err)
			}
			if err := cmd.Wait(); err != nil || strings.TrimSpace(out.String()) != "mine" {
				t.Errorf("%v: it shows %q and says %q", err, out, said)
			}
			for _, m := range other.messages() {
				if m.Method == "$/cancel_request" {
					t.Errorf("somebody else answered: %s", m.raw)
				}
			}

			running := func() bool {
				var info struct{ State string }
				g.get("/v2/sessions/"+s, &info)
				return info.State == "running"
			}
			turn = other.start("session/prompt", promptParams(s, "slow"))
			g.until("the turn runs", running)
			for _, row := range []struct {
				what  string
				exit  int
				flags []string
				leave func(*exec.Cmd) error
			}{
				{"interrupted", 130, nil, func(cmd *exec.Cmd) error { return cmd.Process.Signal(syscall.SIGINT) }},
				{"timed out", 124, []string{"--timeout", "10s"}, func(*exec.Cmd) error { return nil }},
			} {
				cmd, out, said := behind(row.flags...)
				if err := row.leave(cmd); err != nil {
					t.Fatal(err)
				}
				_ = cmd.Wait()
				if cmd.ProcessState.ExitCode() != row.exit || out.Len() > 0 || !strings.Contains(said.String(), row.what+": the prompt was taken back before its turn began") {
					t.Errorf("exit %d: it shows %q and says %q", cmd.ProcessState.ExitCode(), out, said)
				}
				if !running() {
					t.Error("the other turn was ended")
				}
			}
			other.notify("session/cancel", map[string]any{"sessionId": s})
			if r, err := other.wait(turn); err != nil || stopReason(t, r) != "cancelled" {
				t.Errorf("%s, %v", r, err)
			}
		})
	}
}
