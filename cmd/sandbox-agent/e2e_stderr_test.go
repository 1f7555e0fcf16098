package main_test

import (
	"os/exec"
	"strings"
	"testing"
)

// What a running agent complains about on stderr can be read without ending it.
func TestAgents_ShowTheirStderr(t *testing.T) {
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	g := startGateway(t, "--agent-command", `grumbler=sh -c 'echo "no config found" >&2; exec "$0" mock-agent' `+bin)
	c := connect(t, g, dialects[0], options{agent: "grumbler"})
	c.newSession()
	var row struct {
		Processes []struct {
			Stderr *struct {
				Tail       string
				TotalLines int
			}
		}
	}
	g.until("the agent's stderr is read", func() bool { // which is no part of its answers
		g.get("/v2/agents/grumbler", &row)
		return len(row.Processes) != 1 || row.Processes[0].Stderr != nil
	})
	if len(row.Processes) != 1 || row.Processes[0].Stderr.Tail != "no config found" || row.Processes[0].Stderr.TotalLines != 1 {
		t.Errorf("the agent is %+v", row)
	}
	out, err := exec.CommandContext(t.Context(), bin, "agents", "show", "grumbler", "--endpoint", g.url).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "stderr of ") || !strings.Contains(string(out), "no config found") {
		t.Errorf("agents show printed, %v:\n%s", err, out)
	}
}

// Of an agent that dies at its start no process is there that could be asked: what it said last stands with the agent.
func TestAgents_ShowTheirLastFailure(t *testing.T) {
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	g := startGateway(t, "--agent-command", `dies=sh -c 'echo cannot open config >&2; exit 3'`)
	out, err := exec.CommandContext(t.Context(), bin, "prompt", "--agent", "dies", "--endpoint", g.url, "hello").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "cannot open config") {
		t.Fatalf("prompt printed, %v:\n%s", err, out)
	}
	var row struct {
		LastError string
		Processes []any
	}
	if g.get("/v2/agents/dies", &row); len(row.Processes) != 0 || !strings.Contains(row.LastError, "exited with code 3; its stderr ends with: cannot open config") {
		t.Errorf("the agent is %+v", row)
	}
	out, err = exec.CommandContext(t.Context(), bin, "agents", "show", "dies", "--endpoint", g.url).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "last failure") || !strings.Contains(string(out), "cannot open config") {
		t.Errorf("agents show printed, %v:\n%s", err, out)
	}
}
