package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
	"sandboxagent.dev/sandbox-agent/control/process"
)

func TestProcess_Run(t *testing.T) {
	root, _ := onRoot(t)
	write(t, root+"/d/f", "x")
	tests := []struct {
		name     string
		stdin    string
		args     []string
		code     int
		out, err string // contained
	}{
		{"output", "", []string{"echo", "hello"}, 0, "hello\n", ""},
		{"the program's own flags", "", []string{"ls", "-a", "--", "d"}, 0, "f\n", ""},
		{"a flag of ours and two dashes", "", []string{"--cwd", "d", "--", "ls", "-a"}, 0, "f\n", ""},
		{"the program's code", "", []string{"sh", "-c", "echo no >&2; exit 42"}, 42, "", "no\n"},
		{"a signal", "", []string{"sh", "-c", "kill -TERM $$"}, 143, "", ""},
		{"variables", "", []string{"--env", "A=1,2", "--env", "B==", "sh", "-c", "echo $A$B"}, 0, "1,2=\n", ""},
		{"input", "typed", []string{"-i", "cat"}, 0, "typed", ""},
		{"no input", "typed", []string{"cat"}, 0, "", ""},
		{"too much", "", []string{"--max-output", "4", "echo", "123456"}, 0, "1234", "the first 4 of 7 bytes"},
		{"too long", "", []string{"--limit", "100ms", "sleep", "100"}, 137, "", "--limit"},
		{"nothing", "", nil, cmdline.ExitUsage, "", "COMMAND is missing"},
		{"a bad variable", "", []string{"--env", "A", "true"}, cmdline.ExitUsage, "", "NAME=VALUE"},
		{"unknown", "", []string{"no-such-program"}, cmdline.ExitNotFound, "", "no-such-program"},
		{"outside", "", []string{"--cwd", "/etc", "true"}, cmdline.ExitFailure, "", "out of the root"},
		{"JSON", "", []string{"--json", "sh", "-c", "exit 3"}, 3, `"exitCode":3`, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, out, errOut := tool(t, tt.stdin, append([]string{"process", "run"}, tt.args...)...)
			if code != tt.code || !strings.Contains(out, tt.out) || !strings.Contains(errOut, tt.err) || tt.out == "" && out != "" {
				t.Errorf("exit %d, want %d; output %q, errors %q", code, tt.code, out, errOut)
			}
		})
	}
}

func TestProcess_Background(t *testing.T) {
	root, _ := onRoot(t)
	id := strings.TrimSpace(mustTool(t, "", "process", "start", "sh", "-c", "pwd; cat; echo err >&2; echo done; exit 6"))
	if out := mustTool(t, "", "process", "ls"); !strings.Contains(out, id) || !strings.Contains(out, "running") {
		t.Errorf("list %q", out)
	}
	mustTool(t, "a\n", "process", "stdin", id)
	mustTool(t, "b\n", "process", "stdin", id, "--close")
	if code, out, errOut := tool(t, "", "process", "logs", "-f", id); code != 0 || out != root+"\na\nb\ndone\n" || errOut != "err\n" {
		t.Errorf("exit %d: %q, %q", code, out, errOut)
	}
	if out := mustTool(t, "", "process", "logs", id, "--tail", "1", "--stream", "stdout"); out != "done\n" {
		t.Errorf("the last line is %q", out)
	}
	if out := mustTool(t, "", "process", "logs", id, "--since", "1h"); !strings.Contains(out, "a\nb\n") {
		t.Errorf("since an hour: %q", out)
	}
	if out := mustTool(t, "", "process", "show", id); !strings.Contains(out, "exited 6") {
		t.Errorf("%q", out)
	}
	var i process.Info
	if err := json.Unmarshal([]byte(mustTool(t, "", "process", "ls", "--json")), &i); err != nil || i.ID != id {
		t.Errorf("%+v, %v", i, err)
	}
	mustTool(t, "", "process", "rm", id)
	if code, _, _ := tool(t, "", "process", "show", id); code != cmdline.ExitNotFound {
		t.Errorf("exit %d", code)
	}
	id = strings.TrimSpace(mustTool(t, "", "process", "start", "sleep", "1000"))
	mustTool(t, "", "process", "kill", "-s", "CONT", id)
	if out := mustTool(t, "", "process", "stop", "--patience", "5s", id); !strings.Contains(out, "ended by SIGTERM") {
		t.Errorf("%q", out)
	}
	id = strings.TrimSpace(mustTool(t, "", "process", "start", "--", "sh", "-c", "trap '' TERM; sleep 1000"))
	if out := mustTool(t, "", "process", "kill", id); !strings.Contains(out, "ended by SIGKILL") {
		t.Errorf("%q", out)
	}
	if out := mustTool(t, "", "process", "limits", "running=5"); !strings.Contains(out, "running      5\n") {
		t.Errorf("%q", out)
	}
	for _, bad := range [][]string{
		{"limits", "running"},
		{"logs", id, "--tail", "0"},
		{"logs", id, "--since", "x"},
		{"logs", id, "--stream", "x"},
		{"logs", id, "--since", "1s", "--tail", "3"},
		{"attach", id, "--detach-key", "x"},
		{"stop", id, "--patience", "-1s"},
		{"show"},
	} {
		if code, _, errOut := tool(t, "", append([]string{"process"}, bad...)...); code != cmdline.ExitUsage {
			t.Errorf("%q: exit %d: %s", bad, code, errOut)
		}
	}
}

// Without a terminal of its own, attach passes on its input and prints the
// output.
func TestProcess_AttachWithoutTerminal(t *testing.T) {
	onRoot(t)
	code, out, errOut := tool(t, "echo sum $((40+2)); exit 9\n", "process", "start", "--attach", "sh")
	if code != 9 || !strings.Contains(out, "sum 42") {
		t.Errorf("exit %d: %q, %q", code, out, errOut)
	}
	id := strings.TrimSpace(mustTool(t, "", "process", "start", "--tty", "cat"))
	code, _, errOut = tool(t, "typed\x1dnot typed", "process", "attach", id)
	if code != 0 || !strings.Contains(errOut, "goes on") {
		t.Errorf("exit %d: %q", code, errOut)
	}
	out = ""
	for range 500 { // the terminal shows it when it has got round to it
		if out = mustTool(t, "", "process", "logs", id); strings.Contains(out, "typed") {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if !strings.Contains(out, "typed") || strings.Contains(out, "not") {
		t.Errorf("%q", out)
	}
	id = strings.TrimSpace(mustTool(t, "", "process", "start", "cat"))
	if code, _, errOut := tool(t, "", "process", "attach", id); code != cmdline.ExitFailure || !strings.Contains(errOut, "has no terminal") {
		t.Errorf("exit %d: %q", code, errOut)
	}
}

func TestProcess_Off(t *testing.T) {
	endpoint, _ := start(t, "--no-processes")
	code, _, errOut := tool(t, "", "process", "ls", "--endpoint", endpoint)
	if code != cmdline.ExitFailure || !strings.Contains(errOut, "runs no processes") {
		t.Errorf("exit %d: %q", code, errOut)
	}
}
