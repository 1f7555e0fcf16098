package main_test

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
)

// Whoever leaves a prompt behind has its turn cancelled: at a terminal that hangs up, and in a pipe
// that nobody reads. A turn that another client cancels is no limit that was reached.
func TestPrompt_IsLeft(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	c := &commandLine{t: t, env: append(os.Environ(), "SANDBOX_AGENT_ENDPOINT="+g.url)}
	for name, row := range map[string]struct {
		leave func(cmd *exec.Cmd, id string, closeOutput func() error) error
		want  int
	}{
		"a terminal hangs up":   {func(cmd *exec.Cmd, _ string, _ func() error) error { return cmd.Process.Signal(syscall.SIGHUP) }, 130},
		"Ctrl-\\":               {func(cmd *exec.Cmd, _ string, _ func() error) error { return cmd.Process.Signal(syscall.SIGQUIT) }, 130},
		"nobody reads the pipe": {func(_ *exec.Cmd, _ string, closeOutput func() error) error { return closeOutput() }, 130},
		"another client cancels": {func(_ *exec.Cmd, id string, _ func() error) error {
			return c.command(t.Context(), "rpc", "notify", "--session", id, "session/cancel", "{}").Run()
		}, 130},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := c.command(t.Context(), "prompt", "--agent", "mock", "slow")
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			said, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			first, err := bufio.NewReader(said).ReadString('\n')
			_, id, ok := strings.Cut(strings.TrimSpace(first), "session ")
			if err != nil || !ok {
				t.Fatalf("it says %q, %v", first, err)
			}
			if _, err := out.Read(make([]byte, 1)); err != nil { // the turn runs
				t.Fatal(err)
			}
			if err := row.leave(cmd, id, out.Close); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Wait()
			if code := cmd.ProcessState.ExitCode(); code != row.want {
				t.Errorf("exit %d, want %d", code, row.want)
			}
			g.until("the session is idle", func() bool {
				var info struct{ State string }
				g.get("/v2/sessions/"+id, &info)
				return info.State == "idle"
			})
		})
	}
}

// Ctrl-C is how a stream ends.
func TestStream_EndsWithCtrlC(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	c := &commandLine{t: t, env: append(os.Environ(), "SANDBOX_AGENT_ENDPOINT="+g.url)}
	_, _, said := c.run("prompt", "--agent", "mock", "hello")
	_, id, ok := strings.Cut(strings.TrimSpace(strings.SplitN(said, "\n", 2)[0]), "session ")
	if !ok {
		t.Fatalf("it says %q", said)
	}
	cmd := c.command(t.Context(), "rpc", "stream", "--session", id, "--after", "0")
	var errOut strings.Builder
	cmd.Stderr = &errOut
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 1)); err != nil { // it streams
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil || errOut.Len() > 0 {
		t.Errorf("%v, %q", err, &errOut)
	}
}

// Who leaves an agent that takes no notice is told that it goes on.
func TestPrompt_AgentGoesOn(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	c := &commandLine{t: t, env: append(os.Environ(), "SANDBOX_AGENT_ENDPOINT="+g.url)}
	cmd := c.command(t.Context(), "prompt", "--agent", "mock", "hang")
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	g.until("the turn runs", func() bool { return g.scrape()[`sandbox_agent_turns_open{agent="mock"}`] == 1 })
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 130 || !strings.Contains(said.String(), "error: interrupted: the turn was cancelled, but the agent goes on\n") {
		t.Errorf("exit %d, %q", code, &said)
	}
}

// An editor's first question has its answer, also when nothing follows it.
func TestEditor_InputEndsBehindInitialize(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	c := &commandLine{t: t, env: os.Environ()}
	for _, where := range [][]string{{"--endpoint", g.url}, {"--endpoint", "http://127.0.0.1:1"}, {"--ephemeral"}} {
		cmd := c.command(t.Context(), append([]string{"acp", "--agent", "mock"}, where...)...)
		cmd.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":"first","method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{}}}` + "\n")
		out, _ := cmd.Output()
		if !strings.Contains(string(out), `"id":"first"`) {
			t.Errorf("%q: the answer is %q", where, out)
		}
	}
}
