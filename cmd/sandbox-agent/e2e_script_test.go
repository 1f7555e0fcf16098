package main_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// A pipeline's turn goes on over a network that breaks: nothing is missing,
// nothing comes twice, and the time that it may take still ends it.
func TestPrompt_SurvivesBreaks(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "--default-agent", "mock")
	p := newCutter(t, g.url)
	c := &commandLine{t: t, env: append(os.Environ(), "SANDBOX_AGENT_ENDPOINT="+p.url())}
	cmd := c.command(t.Context(), "prompt", "--json", "--timeout", "15s", "slow")
	type result struct {
		out []byte
		err error
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// A command that has never reached the gateway ends; what it must survive begins
	// with the first frame.
	lines := bufio.NewReader(stdout)
	first, err := lines.ReadBytes('\n')
	if err != nil {
		t.Fatalf("it said nothing: %v, %v", err, cmd.Wait())
	}
	done := make(chan result, 1)
	go func() {
		rest, _ := io.ReadAll(lines)
		done <- result{append(first, rest...), cmd.Wait()}
	}()
	var got result
	cut := time.NewTicker(450 * time.Millisecond)
	defer cut.Stop()
	for got.out == nil {
		select {
		case got = <-done:
		case <-cut.C:
			p.cut()
		}
	}
	exit, ok := got.err.(*exec.ExitError)
	if !ok || exit.ExitCode() != 124 {
		t.Fatalf("%v\n%s", got.err, got.out)
	}
	if p.cuts < 3 {
		t.Errorf("it was broken %d times", p.cuts)
	}
	ticks, last := 0, ""
	for line := range strings.Lines(string(got.out)) {
		last = line
		if text := rawjson.MemberString(json.RawMessage(line), "params", "update", "content", "text"); regexp.MustCompile(`^tick \d+ $`).MatchString(text) {
			if want := fmt.Sprintf("tick %d ", ticks); text != want {
				t.Fatalf("%q came in place of %q", text, want)
			}
			ticks++
		}
	}
	if ticks < 50 || !strings.Contains(last, `"stopReason":"cancelled"`) {
		t.Errorf("%d ticks, last %s", ticks, last)
	}
}

// A gateway that comes back after kill -9 is found again.
func TestRPCStream_GoesOnWithTheNextGateway(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "--default-agent", "mock")
	p := newCutter(t, g.url)
	c := &commandLine{t: t, env: append(os.Environ(), "SANDBOX_AGENT_ENDPOINT="+p.url())}
	_, _, errOut := c.run("prompt", "echo one")
	id := strings.TrimPrefix(regexp.MustCompile(`session [\w-]+`).FindString(errOut), "session ")
	out, err := os.CreateTemp(t.TempDir(), "stream")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd := c.command(t.Context(), "rpc", "stream", "--session", id, "--after", "0")
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	shows := func(want string) {
		t.Helper()
		deadline := time.Now().Add(60 * time.Second)
		for {
			b, err := os.ReadFile(out.Name())
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(b), want+"\n"); n == 1 {
				return
			} else if n > 1 || time.Now().After(deadline) {
				t.Fatalf("%q is there %d times:\n%s", want, n, b)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	shows("agent_message_chunk one")
	g.kill(syscall.SIGKILL)
	g.start()
	p.mu.Lock()
	p.to = strings.TrimPrefix(g.url, "http://")
	p.mu.Unlock()
	if code, _, errOut := c.run("prompt", "--session", id, "echo two"); code != 0 {
		t.Fatalf("exit %d: %s", code, errOut)
	}
	shows("agent_message_chunk two")
	shows("agent_message_chunk one")
}

// A turn ends when its session has cost too much, whether that is told in the turn or at
// its end.
func TestPrompt_MaxCost(t *testing.T) {
	t.Parallel()
	g := startGateway(t, "--default-agent", "mock")
	for _, tt := range []struct {
		text, most string
		code       int
		says       string
	}{
		{"spend", "0.05", 8, "the session has cost 0.06 USD, more than --max-cost 0.05"},
		{"usage", "0.05", 8, "the session has cost 0.42 USD, more than --max-cost 0.05"},
		{"usage", "0.42", 0, ""},
		{"hello", "0.05", 0, "the agent has told no cost"},
	} {
		var stderr strings.Builder
		cmd := (&commandLine{t: t, env: append(os.Environ(), "SANDBOX_AGENT_ENDPOINT="+g.url)}).command(t.Context(), "prompt", "--max-cost", tt.most, tt.text)
		cmd.Stderr = &stderr
		_ = cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != tt.code || !strings.Contains(stderr.String(), tt.says) {
			t.Errorf("%s: exit code %d, want %d\n%s", tt.text, code, tt.code, stderr.String())
		}
	}
}
