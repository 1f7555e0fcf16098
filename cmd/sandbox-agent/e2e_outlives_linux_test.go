package main_test

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/creack/pty"
)

// A gateway that nohup has started outlives its terminal, which others do not. Its programs can be hung up on
// nevertheless.
func TestServer_OutlivesItsTerminal(t *testing.T) {
	t.Parallel()
	g := newGateway(t)
	g.wrap = []string{"nohup"}
	g.start()
	id := g.program(false, "trap 'echo hung up' HUP; echo ready; while :; do sleep 0.05; done")
	if err := g.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if status, text := g.post("POST", "/v2/processes/"+id+"/signal", `{"signal":"SIGHUP"}`); status >= 300 {
		t.Errorf("%d: %s", status, text)
	}
	g.awaitLog(id, "hung up")
	g.kill(syscall.SIGTERM)
	if all := g.stderr.String(); strings.Contains(all, "signal=hangup") || !strings.Contains(all, "signal=terminated") {
		t.Errorf("it ended otherwise:\n%s", all)
	}
}

// So does a prompt: what is asked when its terminal hangs up is rejected, and the turn goes on.
func TestPrompt_OutlivesItsTerminal(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	c := &commandLine{t: t, env: append(os.Environ(), "SANDBOX_AGENT_ENDPOINT="+g.url)}
	prompt := c.command(t.Context(), "prompt", "--agent", "mock", "permission")
	out := new(output)
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{"-c", `trap '' HUP; exec "$@"`, "sh"}, prompt.Args...)...)
	cmd.Env, cmd.Stdout = prompt.Env, out
	k := startTerminal(t, cmd, pty.Winsize{Rows: 24, Cols: 100})
	k.writes("\n> ")
	if err := k.tty.Close(); err != nil {
		t.Fatal(err)
	}
	<-k.over
	if code := cmd.ProcessState.ExitCode(); code != 0 || !strings.Contains(out.String(), "reject") {
		t.Errorf("exit %d: %s", code, out)
	}
}
