package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

func TestApp_HelpIsComplete(t *testing.T) {
	code, out, _ := tool(t, "", "--help")
	if code != cmdline.ExitOK {
		t.Errorf("exit %d", code)
	}
	for _, want := range []int{cmdline.ExitOK, cmdline.ExitFailure, cmdline.ExitUsage, cmdline.ExitUnreachable, cmdline.ExitAuth, cmdline.ExitNotFound, exitAgent, exitRefused, exitEndedEarly, exitTimeUp, exitInterrupted} {
		if !regexp.MustCompile(fmt.Sprintf(`(?m)^ +%d  `, want)).MatchString(out) {
			t.Errorf("exit code %d is not in the help:\n%s", want, out)
		}
	}
	var walk func(path string, commands []*cli.Command)
	walk = func(path string, commands []*cli.Command) {
		for _, c := range commands {
			at := strings.TrimSpace(path + " " + c.Name)
			if c.Usage == "" {
				t.Errorf("%s has no description", at)
			}
			for _, f := range c.Flags {
				if d, ok := f.(cli.DocGenerationFlag); !ok || d.GetUsage() == "" {
					t.Errorf("%s --%s has no description", at, f.Names()[0])
				}
			}
			code, out, errOut := tool(t, "", append(strings.Fields(at), "--help")...)
			if code != cmdline.ExitOK || !strings.Contains(out, c.Usage) {
				t.Errorf("%s --help: exit %d, %q, %q", at, code, out, errOut)
			}
			for _, line := range []string{"x --help", "--help x", "x -h", "x --help --nope", "x y --help"} {
				if len(c.Subcommands) > 0 && line[0] == 'x' || behind(c).Program && line[0] == 'x' {
					continue // x is a command there, or a program, whose flags are its own
				}
				code, again, errOut := tool(t, "", append(strings.Fields(at), strings.Fields(line)...)...)
				if code != cmdline.ExitOK || again != out {
					t.Errorf("%s %s: exit %d, %q, %q", at, line, code, again, errOut)
				}
			}
			walk(at, c.Subcommands)
		}
	}
	walk("", newApp(stdio{}).Commands)
}

func TestApp_FlagsAfterArguments(t *testing.T) {
	app := newApp(stdio{})
	tests := []struct{ args, want string }{
		{"prompt hello --agent mock", "prompt --agent mock hello"},
		{"prompt hello --json world", "prompt --json hello world"},
		{"prompt hello --agent=mock -- --not-a-flag", "prompt --agent=mock -- hello --not-a-flag"},
		{"prompt - --agent mock", "prompt --agent mock -"},
		{"rpc call m {} --session s --raw", "rpc call --session s --raw m {}"},
		{"sessions events s -f --after 3", "sessions events -f --after 3 s"},
		{"--help", "--help"},
		{"nope --x y", "--x nope y"},
		{"doctor claude --help", "doctor --help"},
		{"prompt hello --agent -h", "prompt --agent -h hello"},
		{"process run ls --help", "process run -- ls --help"},
		{"daemon start --port 0 --json", "daemon start --json -- --port 0"},
		{"daemon start --new-token --data-dir d -- --host=::1", "daemon start --data-dir d -- --new-token --host=::1"},
		{"daemon start --nope 1", "daemon start --nope 1"},
		{"", ""},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, strings.Join(cmdline.FlagsFirst(app, strings.Fields(tt.args), behind), " ")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.args, diff)
		}
	}
}

// Flags may stand before the command that they are for.
func TestApp_FlagsBeforeCommands(t *testing.T) {
	app := newApp(stdio{})
	tests := []struct{ args, want string }{
		{"fs --endpoint http://x git diff", "fs git diff --endpoint http://x"},
		{"fs --endpoint=http://x git --json diff", "fs git diff --endpoint=http://x --json"},
		{"--endpoint http://x --json fs git diff folder", "fs git diff --endpoint http://x --json folder"},
		{"--agent prompt prompt hello --json", "prompt --agent prompt hello --json"},
		{"process --endpoint http://x run ls -l", "process run --endpoint http://x ls -l"},
		{"daemon --port 3000 start --json", "daemon start --port 3000 --json"},
		{"fs git diff --json", "fs git diff --json"},
		{"--nope fs git diff", "--nope fs git diff"},
		{"fs --endpoint", "fs --endpoint"},
		{"fs --endpoint http://x", "fs --endpoint http://x"},
		{"-- fs git diff", "-- fs git diff"},
		{"--help prompt", "--help prompt"},
		{"", ""},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, strings.Join(cmdline.CommandsFirst(app, strings.Fields(tt.args), behind), " ")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.args, diff)
		}
	}
}

// What people type by habit works.
func TestApp_VersionAndHelp(t *testing.T) {
	_, want, _ := tool(t, "", "version")
	for _, arg := range []string{"--version", "-v"} {
		if code, out, errOut := tool(t, "", arg); code != cmdline.ExitOK || out != want {
			t.Errorf("%s: exit %d, %q, %q", arg, code, out, errOut)
		}
	}
	for _, tt := range []struct{ help, same []string }{
		{[]string{"help"}, []string{"--help"}},
		{[]string{"help", "prompt"}, []string{"prompt", "--help"}},
		{[]string{"help", "sessions", "list"}, []string{"sessions", "list", "--help"}},
	} {
		_, want, _ := tool(t, "", tt.same...)
		if code, out, errOut := tool(t, "", tt.help...); code != cmdline.ExitOK || out != want || out == "" {
			t.Errorf("%q: exit %d, %q, %q", tt.help, code, out, errOut)
		}
	}
	// Flags are shown as they are written everywhere.
	if _, out, _ := tool(t, "", "prompt", "--help"); strings.Contains(out, " -agent") || !strings.Contains(out, "--agent") {
		t.Errorf("help shows flags with one dash:\n%s", out)
	}
}

func TestDescribe_ExitCodes(t *testing.T) {
	data := func(k problem.Kind) *acp.Error {
		return acp.Errorf(acp.CodeInternal, "outer").WithData(problem.New(k, "inner"))
	}
	tests := []struct {
		err  error
		exit int
		text string // of the printed error's first line
	}{
		{errors.New("x"), cmdline.ExitFailure, "error: x"},
		{problem.New(problem.TokenInvalid, "no"), cmdline.ExitAuth, "error: Token missing or invalid: no"},
		{problem.New(problem.PermissionDenied, "no"), cmdline.ExitAuth, "error: Permission denied: no"},
		{fmt.Errorf("a: %w", problem.New(problem.SessionNotFound, "s")), cmdline.ExitNotFound, "error: Session not found: s"},
		{problem.New(problem.NotFound, "s"), cmdline.ExitNotFound, "error: Not found: s"},
		{problem.New(problem.UnsupportedAgent, "s"), cmdline.ExitNotFound, "error: Unsupported agent: s"},
		{problem.New(problem.AgentProcessExited, "s"), exitAgent, "error: Agent process exited: s"},
		{problem.New(problem.Unavailable, "s"), cmdline.ExitUnreachable, "error: Service unavailable: s"},
		{problem.New(problem.InvalidRequest, "s"), cmdline.ExitUsage, "error: Invalid request: s"},
		{acp.Errorf(acp.CodeInternal, "broken"), exitAgent, "error: the agent answered with an error: broken"},
		{acp.Errorf(acp.CodeResourceNotFound, "gone"), cmdline.ExitNotFound, "error: not found: gone"},
		{acp.Errorf(acp.CodeAuthRequired, "log in"), cmdline.ExitAuth, "error: the agent needs a login: log in"},
		{data(problem.AgentNotInstalled), cmdline.ExitNotFound, "error: Agent not installed: inner"},
		{fmt.Errorf("wait: %w", errConnectionLost), cmdline.ExitUnreachable, "error: cannot reach the gateway: wait: the gateway ended the connection"},
		{fmt.Errorf("wait: %w", context.DeadlineExceeded), exitTimeUp, "error: timed out: wait"},
		{fmt.Errorf("wait: %w", errInterrupted), exitInterrupted, "error: interrupted"},
		{fmt.Errorf("it %w", errRefused), exitRefused, "error: refused: it refused"},
		{acp.Errorf(1, "a\x1b[2Jb\u202ec"), exitAgent, "error: the agent answered with an error: a[2Jbc"},
	}
	for _, tt := range tests {
		out := newScreen()
		r := describe(tt.err)
		r.Print(out, false)
		first, _, _ := strings.Cut(out.String(), "\n")
		if got := exitCode(tt.err); got != tt.exit || first != tt.text {
			t.Errorf("%v: exit %d, %q, want %d, %q", tt.err, got, first, tt.exit, tt.text)
		}
	}
}

// Who is told that a login is missing is told how to log in.
func TestDescribe_Login(t *testing.T) {
	if r := describe(acp.Errorf(acp.CodeAuthRequired, "log in")); !strings.Contains(r.Hint, "sandbox-agent agents login AGENT") {
		t.Errorf("the hint is %q", r.Hint)
	}
}

// Who names no agent, or one that there is not, is told how, or which could be meant.
func TestDescribe_Agents(t *testing.T) {
	agents := []string{"claude", "mock"}
	for _, tt := range []struct {
		err  *problem.Error
		hint string
	}{
		{problem.New(problem.InvalidRequest, "none").With("agents", agents), "name one with --agent"},
		{problem.New(problem.UnsupportedAgent, "x").With("agent", "cladue").With("agents", agents), "did you mean claude?"},
		{problem.New(problem.UnsupportedAgent, "x").With("agent", "else").With("agents", agents), "sandbox-agent agents list shows the agents there are"},
	} {
		for _, err := range []error{tt.err, acp.Errorf(acp.CodeInvalidParams, "outer").WithData(tt.err)} { // of this process, and of a gateway
			if r := describe(err); r.Hint != tt.hint {
				t.Errorf("%v: the hint is %q, want %q", err, r.Hint, tt.hint)
			}
		}
	}
}

// Who waits for a turn that waits for the disk is told so.
func TestPrompt_TellsOfTheDisk(t *testing.T) {
	said := newScreen()
	std := stdio{in: strings.NewReader(""), out: io.Discard, err: said}
	turn := &turn{std: std, view: newView(std, false, false), ends: newTurnEnds(), news: &installing{std: std}}
	for _, row := range []struct{ params, says string }{
		{`{"sessionId":"s","writable":false,"reason":"no space left"}`, "cannot be written, and the turn waits until it can: no space left\n"},
		{`{"sessionId":"s","writable":true}`, "can be written again\n"},
	} {
		turn.receive(nil, acp.NewNotification("_sandboxagent/session/storage", []byte(row.params)))
		if !strings.HasSuffix(said.String(), row.says) {
			t.Errorf("it says %q, want %q", said, row.says)
		}
	}
}

func TestPrintError_AgentStderr(t *testing.T) {
	out := newScreen()
	err := acp.Errorf(acp.CodeInternal, "the process exited").WithData(object{"stderr": object{"tail": "no such file"}})
	r := describe(err)
	r.Print(out, false)
	if !strings.Contains(out.String(), "\nstderr: no such file\n") {
		t.Errorf("output:\n%s", out)
	}
}

func TestSummary(t *testing.T) {
	long := strings.Repeat("é", 500)
	tests := []struct{ frame, want string }{
		{`{"jsonrpc":"2.0","id":"7","result":{"a":1}}`, `response "7" {"a":1}`},
		{`{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"no"}}`, `response 7 error: no`},
		{`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a\nb"}},"_meta":{"sandboxagent.dev":{"seq":9}}}}`, `9 session/update agent_message_chunk a b`},
		{`{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"tool_call","toolCallId":"t","status":"pending","title":"Edit"}}}`, `session/update tool_call t pending Edit`},
		{`{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"future","x":1}}}`, `session/update future {"x":1}`},
		{`{"jsonrpc":"2.0","id":3,"method":"session/request_permission","params":{"toolCall":{"title":"Edit"}}}`, `session/request_permission (request 3) Edit`},
		{`{"jsonrpc":"2.0","method":"x","params":{"a":"` + long + `"}}`, cmdline.Shorten(`x {"a":"`+long, summaryLen)},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, summary(acp.MustParse([]byte(tt.frame)))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", cmdline.Shorten(tt.frame, 80), diff)
		}
	}
}

func TestCompletion_Bash(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("needs bash")
	}
	_, script, _ := tool(t, "", "completion", "bash")
	tests := []struct{ words, want string }{
		{"sandbox-agent ses", "sessions"},
		{"sandbox-agent sessions sh", "show"},
		{"sandbox-agent sessions list --cw", "--cwd"},
		{"sandbox-agent prompt hello --att", "--attach"},
		{"sandbox-agent completion z", "zsh"},
		{"sandbox-agent prompt --permission-mode re", "readonly"},
		{"sandbox-agent prompt --permission-mode ''", "default readonly write bypass"},
		{"sandbox-agent hel", "help"},
		{"sandbox-agent help ses", "sessions"},
		{"sandbox-agent help sessions te", "terminate"},
		{"sandbox-agent daemon start --default-a", "--default-agent"},
		{"sandbox-agent daemon start --log-level wa", "warn"},
		{"sandbox-agent --token-file show sessions sh", "show"},
		{"sandbox-agent sessions --endpoint http : //127.0.0.1 : 24 sh", "show"},
		{"sandbox-agent sessions --endpoint = http : //127.0.0.1 : 24 sh", "show"},
		{"sandbox-agent sessions --endpoint http : //127", ""},
		{"sandbox-agent daemon start --log-level = wa", "warn"},
		{"sandbox-agent daemon start --acp =", "1 2"},
	}
	for _, tt := range tests {
		line := script + "\nCOMP_WORDS=(" + tt.words + "); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); _sandbox_agent; echo ${COMPREPLY[@]}"
		out, err := exec.CommandContext(t.Context(), bash, "-euc", line).CombinedOutput()
		if got := strings.TrimSpace(string(out)); got != tt.want || err != nil {
			t.Errorf("%s: %q, %v, want %q", tt.words, got, err, tt.want)
		}
	}
}

// The scripts offer what the gateway has.
func TestCompletion_Values(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("needs bash")
	}
	url, _ := start(t, "--default-agent", "mock")
	t.Setenv("SANDBOX_AGENT_ENDPOINT", url)
	_, _, errOut := tool(t, "", "prompt", "hello")
	id := sessionIn(errOut)
	// The script calls the program by its name; here that is a function.
	_, script, _ := tool(t, "", "completion", "bash")
	answers := map[string]string{}
	other := "--endpoint " + url + " --token-file " + filepath.Join(t.TempDir(), "token")
	write(t, strings.Fields(other)[3], "sesame\n")
	hub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v2/nodes" {
			t.Errorf("the hub is asked for %s", r.URL.Path)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"nodes":[{"name":"box-1","state":"online"},{"name":"box-2","state":"offline"}]}`)
	}))
	defer hub.Close()
	nodes := "nodes --endpoint " + hub.URL
	for _, ask := range []string{nodes, "agents", "sessions", "models mock", "modes mock", "models claude", "agents " + other, "sessions " + other, "models mock " + other} {
		code, out, errOut := tool(t, "", append([]string{"completion"}, strings.Fields(ask)...)...)
		if code != cmdline.ExitOK || errOut != "" {
			t.Errorf("%s: exit %d, %q", ask, code, errOut)
		}
		answers[ask] = out
	}
	for ask, want := range map[string]string{"agents": "mock\n", "sessions": id + "\n", "models mock": "mock-small\n", "models claude": ""} {
		if got := answers[ask]; !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("completion %s prints %q, want %q", ask, got, want)
		}
	}
	var program strings.Builder
	program.WriteString("sandbox-agent() { case \"$*\" in\n")
	for ask, out := range answers {
		fmt.Fprintf(&program, "'completion %s') printf %%s %s ;;\n", ask, quoteAlways(out))
	}
	program.WriteString("esac; }\n")
	for _, tt := range []struct{ words, want string }{
		{"sandbox-agent prompt --agent moc", "mock"},
		{"sandbox-agent prompt --session " + id[:8], id},
		{"sandbox-agent sessions show " + id[:8], id},
		{"sandbox-agent sessions delete " + id[:8], id},
		{"sandbox-agent chat --endpoint " + strings.ReplaceAll(hub.URL, ":", " : ") + " --node bo", "box-1 box-2"},
		{"sandbox-agent prompt --agent mock --model mock-s", "mock-small"},
		// The gateway that the line names is asked.
		{"sandbox-agent " + other + " prompt --agent moc", "mock"},
		{"sandbox-agent " + strings.ReplaceAll(other, ":", " : ") + " chat --session " + id[:8], id},
		{"sandbox-agent chat " + strings.ReplaceAll(other, " http:", "=http:") + " --session " + id[:8], id},
		{"sandbox-agent sessions show " + other + " " + id[:8], id},
		{"sandbox-agent prompt --agent mock " + other + " --model mock-s", "mock-small"},
		// One that has no such answer is no reason to offer files.
		{"sandbox-agent prompt --endpoint http : //127.0.0.1 : 1 --session ''", ""},
	} {
		line := program.String() + script + "\nCOMP_WORDS=(" + tt.words + "); COMP_CWORD=$((${#COMP_WORDS[@]}-1)); _sandbox_agent; echo ${COMPREPLY[@]}"
		out, err := exec.CommandContext(t.Context(), bash, "-euc", line).CombinedOutput()
		if got := strings.TrimSpace(string(out)); got != tt.want || err != nil {
			t.Errorf("%s: %q, %v, want %q", tt.words, got, err, tt.want)
		}
	}
	t.Setenv("SANDBOX_AGENT_NODE", "box-2")
	if code, out, errOut := tool(t, "", strings.Fields("completion "+nodes)...); code != cmdline.ExitOK || out != "box-1\nbox-2\n" {
		t.Errorf("exit %d, %q, %q", code, out, errOut)
	}
	t.Setenv("SANDBOX_AGENT_NODE", "")
	// Who presses the tab key wants no error; who asks by hand does.
	if !strings.Contains(script, "2>/dev/null") {
		t.Error("the script shows errors")
	}
	if code, out, errOut := tool(t, "", "completion", "sessions", "--endpoint", "http://127.0.0.1:1"); code != cmdline.ExitUnreachable || out != "" || errOut == "" {
		t.Errorf("exit %d, %q, %q", code, out, errOut)
	}
	// The built-in agents are known without a gateway.
	if code, out, errOut := tool(t, "", "completion", "agents", "--endpoint", "http://127.0.0.1:1"); code != cmdline.ExitOK || !strings.Contains(out, "mock\n") || errOut != "" {
		t.Errorf("exit %d, %q, %q", code, out, errOut)
	}
	if code, out, errOut := tool(t, "", "completion", "models", "nope"); code != cmdline.ExitNotFound || out != "" || !strings.Contains(errOut, "no agent nope is known") {
		t.Errorf("exit %d, %q, %q", code, out, errOut)
	}
}

// completed are the commands that print what a shell offers for a line.
var completed = map[string]func(line string) string{
	"fish": func(line string) string { return "complete -C " + quoteAlways(line) },
	"zsh": func(line string) string {
		return "compdef() { :; }; _files() { :; }; _describe() { print -l -- \"${(P@)2}\" }; words=(" + line + "); " +
			"[[ " + quoteAlways(line) + " = *' ' ]] && words+=(''); CURRENT=$#words; _sandbox_agent"
	},
}

func TestCompletion_OtherShells(t *testing.T) {
	for _, shell := range []string{"zsh", "fish"} {
		_, script, _ := tool(t, "", "completion", shell)
		if !strings.Contains(script, "--permission") && !strings.Contains(script, "-l permission") {
			t.Errorf("the script for %s does not know the flags", shell)
		}
		path, err := exec.LookPath(shell)
		if err != nil {
			continue
		}
		dir := t.TempDir()
		file := filepath.Join(dir, "script") // it is too long for an argument
		if err := os.WriteFile(file, []byte(script), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), path, "-n", file).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", shell, err, out)
		}
		// The program is a script that says what it was asked for.
		program := "#!/bin/sh\n[ \"$1\" != completion ] || echo \"asked for $*\"\n"
		if err := os.WriteFile(filepath.Join(dir, "sandbox-agent"), []byte(program), 0o755); err != nil {
			t.Fatal(err)
		}
		for line, want := range map[string]string{
			"sandbox-agent sessions sho":                   "show",
			"sandbox-agent sessions show ":                 "asked for completion sessions",
			"sandbox-agent sessions delete ":               "asked for completion sessions",
			"sandbox-agent help ses":                       "sessions",
			"sandbox-agent help sessions termin":           "terminate",
			"sandbox-agent prompt --permission-mode ":      "readonly",
			"sandbox-agent daemon start --default-ag":      "--default-agent",
			"sandbox-agent prompt --agent ":                "asked for completion agents",
			"sandbox-agent prompt --agent mock --model ":   "asked for completion models mock",
			"sandbox-agent prompt --agent mock --session ": "asked for completion sessions",
			// The gateway that the line names is asked.
			"sandbox-agent --endpoint http://127.0.0.1:1 chat --session ":                "asked for completion sessions --endpoint http://127.0.0.1:1",
			"sandbox-agent chat --endpoint=http://127.0.0.1:1 --token-file f --session ": "asked for completion sessions --endpoint",
			"sandbox-agent sessions show --endpoint http://127.0.0.1:1 ":                 "asked for completion sessions --endpoint http://127.0.0.1:1",
			"sandbox-agent prompt --agent mock --endpoint http://127.0.0.1:1 --model ":   "asked for completion models mock --endpoint http://127.0.0.1:1",
			"sandbox-agent chat --endpoint http://127.0.0.1:1 --node ":                   "asked for completion nodes --endpoint http://127.0.0.1:1",
			"sandbox-agent chat --endpoint http://127.0.0.1:1 --node box --session ":     "asked for completion sessions --endpoint http://127.0.0.1:1 --node box",
			"sandbox-agent --token-file show sessions sho":                               "show",
		} {
			cmd := exec.CommandContext(t.Context(), path, "-c", "source "+file+"\n"+completed[shell](line))
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "HOME="+dir)
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), want) {
				t.Errorf("%s: %q: %v, want %q in\n%s", shell, line, err, want, out)
			}
		}
	}
}
