package main

import (
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

func TestCommands_Usage(t *testing.T) {
	tests := []struct {
		args []string
		want string // in the error
	}{
		{[]string{"nope"}, `there is no command "nope"`},
		{[]string{"prompt", "--timeout", "-1s", "x"}, "--timeout cannot be negative: -1s"},
		{[]string{"sessions", "list", "--timeout=-1s"}, "--timeout cannot be negative: -1s"},
		{[]string{"sessions"}, "a command is missing: list, show"},
		{[]string{"sessions", "nope"}, `there is no command "nope"`},
		{[]string{"prompt"}, "TEXT is missing"},
		{[]string{"promt", "x"}, `there is no command "promt": did you mean prompt?`},
		{[]string{"help", "promt"}, `there is no command "promt": did you mean prompt?`},
		{[]string{"promt", "--help"}, `there is no command "promt": did you mean prompt?`},
		{[]string{"agents", "lsit"}, `there is no command "lsit": did you mean list?`},
		{[]string{"prompt", "x", "--bogus"}, "there is no flag --bogus\n"},
		{[]string{"prompt", "x", "--node", "box"}, "--node box: name the hub that it has joined with --endpoint"},
		{[]string{"sessions", "list", "--node", "box", "--endpoint", "http://hub/nodes/other"}, "names a node already"},
		{[]string{"prompt", "x", "--agnet", "mock"}, "there is no flag --agnet: did you mean --agent?"},
		{[]string{"prompt", "x", "--agent"}, "the value of --agent is missing"},
		{[]string{"--token", "x"}, "--token before a command: it belongs behind one, as in sandbox-agent server --token"},
		{[]string{"--agent", "x"}, "as in sandbox-agent acp --agent"},
		{[]string{"fs", "--endpoint", "x"}, "--endpoint before a command: it belongs behind one, as in sandbox-agent fs get --endpoint"},
		{[]string{"--agent", "mock", "promt", "x"}, "as in sandbox-agent acp --agent"},
		{[]string{"--port", "3000", "prompt", "x"}, "there is no flag --port"},
		{[]string{"prompt", "x", "--timeout", "1x"}, "for --timeout: "},
		{[]string{"daemon", "start", "--prot", "0"}, "there is no flag --prot: did you mean --port?"},
		{[]string{"prompt", "x", "--endpoint", "ftp://x"}, "not an http or https address"},
		{[]string{"rpc", "call", "m", "--endpoint", "ftp://x"}, "not an http or https address"},
		{[]string{"rpc", "stream", "--session", "s", "--endpoint", "ftp://x"}, "not an http or https address"},
		{[]string{"acp", "--endpoint", "ftp://x"}, "not an http or https address"},
		{[]string{"fs", "ls", "--endpoint", "ftp://x"}, "not an http or https address"},
		{[]string{"agents", "install", "mock", "--endpoint", "ftp://x"}, "not an http or https address"},
		{[]string{"prompt", "x", "--permission", "maybe"}, "use allow, reject or ask"},
		{[]string{"prompt", "x", "--session", "s", "--agent", "a"}, "cannot be chosen"},
		{[]string{"prompt", "x", "--timeout", "soon"}, "soon"},
		{[]string{"prompt", "x", "--token", "a b"}, "printable ASCII"},
		{[]string{"sessions", "show"}, "SESSION is missing"},
		{[]string{"sessions", "show", ""}, "SESSION is empty"},
		{[]string{"sessions", "show", "a", "b"}, `unexpected argument "b"`},
		{[]string{"sessions", "list", "--limit", "0"}, "between 1 and 1000"},
		{[]string{"sessions", "list", "--endpoint", "ftp://x"}, "not an http or https address"},
		{[]string{"sessions", "events", "s", "--after", "-1"}, "-1"},
		{[]string{"rpc", "call"}, "METHOD is missing"},
		{[]string{"rpc", "call", "m", "{"}, "not a JSON object or array"},
		{[]string{"rpc", "call", "m", `"text"`}, "not a JSON object or array"},
		{[]string{"rpc", "call", "m", "{}", "x"}, `unexpected argument "x"`},
		{[]string{"rpc", "call", "m", "[]", "--session", "s"}, "params that are an object"},
		{[]string{"rpc", "call", "initialize", "--session", "s"}, "has no meaning"},
		{[]string{"rpc", "stream"}, "--session is missing"},
		{[]string{"completion", "tcsh"}, "use bash, zsh or fish"},
		{[]string{"health", "x"}, `unexpected argument "x"`},
		{[]string{"fs", "list"}, `there is no command "list": did you mean ls?`},
		{[]string{"sessions", "remove", "s"}, `there is no command "remove": did you mean delete?`},
		{[]string{"install", "claude"}, `there is no command "install": did you mean agents install?`},
		{[]string{"--vershun"}, "there is no flag --vershun: did you mean --version?"},
		{[]string{"prompt", "x", "--timeout", "5"}, `invalid value "5" for --timeout: it is a time with its unit, as 90s`},
		{[]string{"sessions", "list", "--limit", "x"}, `invalid value "x" for --limit: it is a whole number`},
		{[]string{"prompt", "x", "--session", ""}, "the value of --session is empty"},
		{[]string{"prompt", "--cwd=", "x"}, "the value of --cwd is empty"},
		{[]string{"--token", "", "prompt", "x"}, "the value of --token is empty"},
		{[]string{"server", "--data-dir", ""}, "the value of --data-dir is empty"},
		{[]string{"daemon", "start", "--data-dir", ""}, "the value of --data-dir is empty"},
		{[]string{"daemon", "start", "--", "--default-agent", ""}, "the value of --default-agent is empty"},
		{[]string{"prompt", "x", "--timeout", ""}, "the value of --timeout is empty"},
		{[]string{"prompt", "x", "--attach", ""}, "the value of --attach is empty"},
		{[]string{"prompt", "x", "--attach", "/tmp"}, "folder"},
		{[]string{"prompt", "x", "--attach", "ftp://x"}, "ftp"},
		{[]string{"prompt", "x", "--attach", "/nope"}, "--attach /nope: there is no such file"},
		{[]string{"prompt", "x", "--instructions", "@"}, "--instructions"},
		{[]string{"prompt", "x", "--instructions", "@/nope"}, "--instructions @/nope: there is no such file"},
		{[]string{"prompt", "x", "--env", "=x"}, "--env: there is no name before the =: use NAME=VALUE"},
		{[]string{"process", "run", "--env", "=x", "true"}, "--env: there is no name before the =: use NAME=VALUE"},
		{[]string{"prompt", "x", "--endpoint", "localhost:99"}, `--endpoint: "localhost:99" is not an http or https address: did you mean http://localhost:99?`},
		{[]string{"prompt", "x", "--endpoint", "127.0.0.1:99"}, "did you mean http://127.0.0.1:99?"},
		{[]string{"teleport", "--to", "here:99"}, "did you mean http://here:99?"},
		{[]string{"teleport", "--from", "here:99", "--to", "http://x"}, "--from: "},
		{[]string{"teleport", "--to", "http://x", "--to-token", "two words"}, "--to-token: the token has characters"},
		{[]string{"sessions", "import", "/tmp"}, "/tmp: it is a folder: name a file"},
		{[]string{"sessions", "import", "/nope"}, "/nope: there is no such file"},
		{[]string{"fs", "put", "/nope", "x"}, "/nope: there is no such file"},
		{[]string{"rpc", "call", "m", "@/nope"}, "@/nope: there is no such file"},
		{[]string{"credentials", "extract", "--home-dir", "/nope"}, "--home-dir: there is no folder /nope"},
		{[]string{"prompt", "x", "--cwd", "/tmp/\xff"}, "the value of --cwd is not UTF-8"},
		{[]string{"acp", "--ephemeral", "--agent", "nope"}, `agent "nope" is unknown: the agents are `},
		{[]string{"server", "--ephemeral", "--port", "0", "--default-agent", "nope"}, `agent "nope" is unknown: the agents are `},
		{[]string{"prompt", "x", "--token-file", "/nope"}, "--token-file: read token: open /nope: no such file"},
		{[]string{"prompt", "x", "--token", "a", "--token-file", "b"}, "--token and --token-file are both given"},
		{[]string{"server", "--new-token", "--no-token"}, "--no-token and --new-token are both given"},
		{[]string{"server", "--cors-allow-origin", "foo"}, "--cors-allow-origin foo is not an origin"},
		{[]string{"server", "--allowed-host", "http://x/"}, "--allowed-host http://x/ is not a host"},
		{[]string{"daemon", "logs", "--tail", "-1"}, "--tail cannot be negative"},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			code, out, errOut := tool(t, "", tt.args...)
			if code != cmdline.ExitUsage || out != "" {
				t.Errorf("exit %d, output %q", code, out)
			}
			if !strings.HasPrefix(errOut, "error: wrong usage: ") || !strings.Contains(errOut, tt.want) || !strings.Contains(errOut, "\nhint: see: sandbox-agent") || strings.Contains(errOut, "sandbox-agent sandbox-agent") {
				t.Errorf("error output %q, want %q in it", errOut, tt.want)
			}
		})
	}
}

// A server that cannot have what it needs says what to give it instead.
func TestServer_SaysWhatItNeeds(t *testing.T) {
	for _, tt := range []struct{ name, args, home, want string }{
		{"an address of another machine", "--ephemeral --no-token --host 192.0.2.1", "/", "192.0.2.1 is no address of this machine: give --host one that is"},
		{"no name", "--ephemeral --no-token --host here.invalid", "/", "the name here.invalid is not known: give --host an address of this machine"},
		{"no home", "", "", "set HOME, or give --data-dir"},
		{"no root", "--ephemeral --no-token --fs-root /nope", "/", "give --fs-root a folder that is there"},
		{"no log file", "--ephemeral --no-token --log-file /nope/x", "/", "give --log-file a file in a folder that is there"},
		{"a home that cannot be written to", "", "/dev/null", "give --data-dir a folder that this user can write to"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("HOME", tt.home)
			t.Setenv("XDG_DATA_HOME", "")
			args := append([]string{"server", "--port", "0"}, strings.Fields(tt.args)...)
			if code, _, errOut := tool(t, "", args...); code != cmdline.ExitFailure || !strings.Contains(errOut, tt.want) {
				t.Errorf("exit %d, %s", code, errOut)
			}
		})
	}
}

// A variable that is not what its flag takes is told with what it takes.
func TestCommands_Variable(t *testing.T) {
	t.Setenv("SANDBOX_AGENT_EPHEMERAL", "maybe")
	if code, _, errOut := tool(t, "", "server"); code != cmdline.ExitUsage || !strings.Contains(errOut, `invalid value "maybe" of the variable SANDBOX_AGENT_EPHEMERAL: it is true or false`) {
		t.Errorf("exit %d, %q", code, errOut)
	}
}

// What only the gateway can tell to be wrong usage is that too, and what its answers do not
// say in the words of the command line, a hint does.
func TestCommands_Answers(t *testing.T) {
	url, _ := start(t, "--default-agent", "mock", "--fs-root", t.TempDir())
	t.Setenv("SANDBOX_AGENT_ENDPOINT", url)
	t.Chdir(t.TempDir())
	write(t, "b", "x")
	for _, args := range [][]string{{"fs", "mkdir", "full"}, {"fs", "put", "b", "full/b"}, {"fs", "mkdir", "repo"}} {
		mustTool(t, "", args...)
	}
	git := mustTool(t, "", "process", "run", "git", "init", "--quiet", "repo")
	if git != "" {
		t.Fatal(git)
	}
	id := strings.TrimSpace(mustTool(t, "", "process", "start", "sleep", "100"))
	mustTool(t, "", "prompt", "hello", "--cwd", t.TempDir())
	session := strings.Fields(mustTool(t, "", "completion", "sessions"))[0]
	for _, tt := range []struct {
		args string
		exit int
		text string
	}{
		{"fs put b a --mode 999", cmdline.ExitUsage, "permissions in octal"},
		{"fs mkdir x --mode abc", cmdline.ExitUsage, "permissions in octal"},
		{"fs ls --sort bogus", cmdline.ExitUsage, "name, size or modified"},
		{"fs search --content ( --regexp", cmdline.ExitUsage, "regular expression"},
		{"fs git diff --base nope repo", cmdline.ExitUsage, "names no commit"},
		{"process run --limit 100h true", cmdline.ExitUsage, "\nhint: the longest --limit is maxRunMs of: sandbox-agent process limits"},
		{"process kill " + id + " --signal FOO", cmdline.ExitUsage, `there is no signal "FOO"`},
		{"process limits foo=1", cmdline.ExitUsage, "there is no limit foo: there are running, ended, endedMs, logBytes, runMs, maxRunMs, runBytes, maxRunBytes, inputBytes, stopMs"},
		{"agents install mock --agent-version 9 --endpoint " + url, cmdline.ExitUsage, "has no versions of its own"},
		{"process attach " + id, cmdline.ExitFailure, "\nhint: only a process that was started with --tty has a terminal; its output: sandbox-agent process logs -f " + id},
		{"fs rm full", cmdline.ExitFailure, "\nhint: --recursive"},
		{"fs put b full/b --new", cmdline.ExitFailure, "\nhint: it exists already: without --new it is replaced"},
		{"sessions raw " + session, cmdline.ExitNotFound, "\nhint: traffic is recorded from the start of a session that is made with: sandbox-agent prompt --include-raw"},
		{"fs mv nope x", cmdline.ExitNotFound, "/nope: no such file"},
		{"fs cp nope x", cmdline.ExitNotFound, "/nope: no such file"},
		{"fs put b nodir/x", cmdline.ExitNotFound, "\nhint: --parents makes the folders that are missing"},
		{"fs mkdir a/b/c", cmdline.ExitNotFound, "\nhint: --parents makes the folders that are missing"},
		{"agents show mokc", cmdline.ExitNotFound, "\nhint: did you mean mock?"},
		{"prompt --agent mokc x", cmdline.ExitNotFound, "\nhint: did you mean mock?"},
		{"prompt --agent zzzzzzzz x", cmdline.ExitNotFound, "\nhint: sandbox-agent agents list shows the agents there are"},
		{"fs upload - x", cmdline.ExitUsage, "the standard input is empty: it must be a tar archive"},
		{"fs get full/b - extra", cmdline.ExitUsage, `unexpected argument "extra"`},
		{"sessions export -o /nope/x " + session, cmdline.ExitFailure, "to /nope/x: there is no folder /nope\n"},
		{"sessions report -o /nope/x " + session, cmdline.ExitFailure, "to /nope/x: there is no folder /nope\n"},
		{"sessions show --format markdown -o /nope/x " + session, cmdline.ExitFailure, "to /nope/x: there is no folder /nope\n"},
		{"fs get full/b /nope/d", cmdline.ExitFailure, "there is no folder /nope\n"},
		{"journal cat b", cmdline.ExitFailure, "it holds nothing that this version can read"},
		{"journal repair b", cmdline.ExitFailure, "it holds nothing that this version can read"},
		{"daemon status --data-dir d", cmdline.ExitUnreachable, "sandbox-agent daemon start --data-dir "},
		{"daemon start --data-dir b", cmdline.ExitFailure, "give --data-dir a folder"},
		{"process stdin nope", cmdline.ExitNotFound, "nope"},
		{"agents remove nope", cmdline.ExitNotFound, "no agent nope is known"},
		{"agents remove mock", cmdline.ExitUsage, "agent mock is part of this program"},
		{"teleport --to http://127.0.0.1:1 " + session, cmdline.ExitUnreachable, "--to"},
	} {
		if code, _, errOut := tool(t, "", strings.Fields(tt.args)...); code != tt.exit || !strings.Contains(errOut, tt.text) {
			t.Errorf("%s: exit %d, %q, want %d, %q", tt.args, code, errOut, tt.exit, tt.text)
		}
	}
}

// Another server is told from a gateway that does not have what is asked for.
func TestCommands_AnotherServer(t *testing.T) {
	missing, page := httptest.NewServer(http.NotFoundHandler()), httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }))
	secure := httptest.NewTLSServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	for _, s := range []*httptest.Server{missing, page, secure} {
		defer s.Close()
	}
	const foreign = "error: cannot reach the gateway: "
	for _, tt := range []struct {
		endpoint   string
		exit       int
		start, say string
	}{
		{missing.URL, cmdline.ExitUnreachable, foreign, "this is no Sandbox Agent gateway"},
		{page.URL, cmdline.ExitUnreachable, foreign, "this is no Sandbox Agent gateway"},
		{strings.Replace(page.URL, "http:", "https:", 1), cmdline.ExitUnreachable, foreign, "hint: the server speaks no TLS: use http:// in its address"},
		{strings.Replace(secure.URL, "https:", "http:", 1), cmdline.ExitUsage, "error: ", "the server speaks TLS: use https:// in its address"},
	} {
		for _, args := range []string{"health", "prompt x --agent mock", "sessions list", "rpc call m"} {
			code, _, errOut := tool(t, "", append(strings.Fields(args), "--endpoint", tt.endpoint)...)
			if code != tt.exit || !strings.HasPrefix(errOut, tt.start) || !strings.Contains(errOut, tt.say) {
				t.Errorf("%s at %s: exit %d, %q", args, tt.endpoint, code, errOut)
			}
		}
	}
}

func TestCommands_Unreachable(t *testing.T) {
	for _, args := range [][]string{{"health"}, {"prompt", "x"}, {"rpc", "call", "m"}, {"rpc", "stream", "--session", "s"}, {"sessions", "events", "s", "-f"}} {
		code, _, errOut := tool(t, "", append(args, "--endpoint", "http://127.0.0.1:1")...)
		if code != cmdline.ExitUnreachable || !strings.Contains(errOut, "error: cannot reach the gateway: ") || !strings.Contains(errOut, "sandbox-agent server") {
			t.Errorf("%v: exit %d, %q", args, code, errOut)
		}
	}
}

func TestCommands_Token(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	url, log := start(t, "--token-file", file)
	t.Setenv("SANDBOX_AGENT_ENDPOINT", url)
	tests := []struct {
		name string
		args []string
		code int
	}{
		{"health needs none", []string{"health"}, cmdline.ExitOK},
		{"none", []string{"agents", "list"}, cmdline.ExitAuth},
		{"wrong", []string{"agents", "list", "--token", "x"}, cmdline.ExitAuth},
		{"none, over a WebSocket", []string{"rpc", "call", "session/list"}, cmdline.ExitAuth},
		{"right", []string{"agents", "list", "--token", "sesame"}, cmdline.ExitOK},
		{"file", []string{"agents", "list", "--token-file", file}, cmdline.ExitOK},
		{"prompt", []string{"prompt", "hello", "--agent", "mock", "--token-file", file}, cmdline.ExitOK},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, _, errOut := tool(t, "", tt.args...)
			if code != tt.code {
				t.Errorf("exit %d, want %d: %s", code, tt.code, errOut)
			}
			if tt.code == cmdline.ExitAuth && !strings.Contains(errOut, "SANDBOX_AGENT_TOKEN") {
				t.Errorf("no hint in %q", errOut)
			}
		})
	}
	t.Run("variable", func(t *testing.T) {
		t.Setenv("SANDBOX_AGENT_TOKEN", "sesame")
		if code, _, errOut := tool(t, "", "agents", "list"); code != cmdline.ExitOK {
			t.Errorf("exit %d: %s", code, errOut)
		}
	})
	if strings.Contains(log.String(), "sesame") {
		t.Errorf("the server's output has the token:\n%s", log)
	}
}

// A folder that a session cannot have is no failure of its agent.
func TestCommands_Folder(t *testing.T) {
	url, _ := start(t, "--default-agent", "mock")
	t.Setenv("SANDBOX_AGENT_ENDPOINT", url)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Chdir(filepath.Dir(file))
	for _, tt := range []struct {
		args []string
		exit int
		text string
	}{
		{[]string{"prompt", "--cwd", "/nope", "hello"}, cmdline.ExitNotFound, "error: Not found: cwd /nope cannot be used: no such file or directory: make the directory, or name another"},
		{[]string{"prompt", "--cwd", "nope", "hello"}, cmdline.ExitNotFound, "error: Not found: cwd " + file[:len(file)-4] + "nope cannot be used"},
		{[]string{"prompt", "--cwd", "file", "hello"}, cmdline.ExitFailure, "error: Not a directory: cwd " + file + " is not a directory"},
		{[]string{"prompt", "--acp", "2", "--cwd", "/nope", "hello"}, cmdline.ExitNotFound, "error: Not found: cwd /nope cannot be used"},
		{[]string{"prompt", "--session", "s", "--cwd", "/", "hello"}, cmdline.ExitUsage, "error: wrong usage: --session continues a session: its cwd cannot be chosen"},
		{[]string{"rpc", "call", "session/new", `{"cwd":"here","mcpServers":[]}`}, cmdline.ExitUsage, "error: Invalid request: cwd must be an absolute path"},
		{[]string{"process", "run", "--cwd", "/nope", "true"}, cmdline.ExitNotFound, "error: Not found"},
		{[]string{"process", "run", "--cwd", file, "true"}, cmdline.ExitFailure, "error: Not a directory"},
	} {
		if code, _, errOut := tool(t, "", tt.args...); code != tt.exit || !strings.Contains(errOut, tt.text) {
			t.Errorf("%q: exit %d, %q, want %d, %q", tt.args, code, errOut, tt.exit, tt.text)
		}
	}
}

func TestCommands_Sessions(t *testing.T) {
	url, _ := start(t, "--default-agent", "mock")
	t.Setenv("SANDBOX_AGENT_ENDPOINT", url)
	code, out, errOut := tool(t, "", "prompt", "echo one two", "--cwd", t.TempDir())
	if code != cmdline.ExitOK || out != "one two\n" {
		t.Fatalf("exit %d, %q, %q", code, out, errOut)
	}
	id := strings.TrimPrefix(regexp.MustCompile(`session \S+`).FindString(errOut), "session ")

	t.Run("list", func(t *testing.T) {
		_, out, _ := tool(t, "", "sessions", "list")
		lines := strings.Split(strings.TrimSpace(out), "\n")
		if len(lines) != 2 || !strings.HasPrefix(lines[0], "SESSION ") || !strings.HasPrefix(lines[1], id+" ") {
			t.Errorf("output:\n%s", out)
		}
		_, out, _ = tool(t, "", "sessions", "list", "--all", "--json")
		var page struct {
			Sessions []struct {
				ID string `json:"sessionId"`
			} `json:"sessions"`
		}
		if err := json.Unmarshal([]byte(out), &page); err != nil || len(page.Sessions) != 1 || page.Sessions[0].ID != id {
			t.Errorf("%v in %s", err, out)
		}
	})
	t.Run("search", func(t *testing.T) {
		_, out, _ := tool(t, "", "sessions", "list", "--search", "ONE Two", "--state", "idle", "--state", "dormant")
		if !strings.Contains(out, id) || !strings.Contains(out, "echo one two") {
			t.Errorf("output:\n%s", out)
		}
		for _, args := range [][]string{{"--search", "three"}, {"--state", "ended"}} {
			if _, out, _ := tool(t, "", append([]string{"sessions", "list"}, args...)...); strings.Contains(out, id) {
				t.Errorf("%v:\n%s", args, out)
			}
		}
		for _, args := range [][]string{{"--state", "asleep"}, {"--sort", "asleep"}, {"--cursor", "asleep"}} {
			if code, _, errOut := tool(t, "", append([]string{"sessions", "list"}, args...)...); code != cmdline.ExitUsage || !strings.Contains(errOut, strings.TrimPrefix(args[0], "--")) {
				t.Errorf("%v: exit %d, %s", args, code, errOut)
			}
		}
	})
	t.Run("watch", func(t *testing.T) {
		code, out, errOut := tool(t, "", "sessions", "watch", "--limit", "1")
		if code != cmdline.ExitOK || !strings.HasPrefix(out, id+"  ") || !strings.Contains(out, "echo one two") {
			t.Errorf("exit %d, %s, %s", code, out, errOut)
		}
		_, out, _ = tool(t, "", "sessions", "watch", "--limit", "2", "--json")
		if !strings.Contains(out, `"type":"reset"`) || !strings.Contains(out, `"gist":"echo one two"`) {
			t.Errorf("output:\n%s", out)
		}
	})
	t.Run("show", func(t *testing.T) {
		_, out, _ := tool(t, "", "sessions", "show", id)
		if !regexp.MustCompile(`(?m)^agent +mock$`).MatchString(out) {
			t.Errorf("output:\n%s", out)
		}
	})
	t.Run("events", func(t *testing.T) {
		_, out, _ := tool(t, "", "sessions", "events", id)
		if !strings.Contains(out, "client   session/prompt") || !strings.Contains(out, "agent_message_chunk one two") {
			t.Errorf("output:\n%s", out)
		}
		_, out, _ = tool(t, "", "sessions", "events", id, "--limit", "2", "--json")
		for line := range strings.Lines(out) {
			if !json.Valid([]byte(line)) {
				t.Errorf("not JSON: %s", line)
			}
		}
		if n := strings.Count(out, "\n"); n != 2 {
			t.Errorf("%d lines, want 2", n)
		}
		code, out, _ := tool(t, "", "sessions", "events", id, "--follow", "--limit", "1")
		if code != cmdline.ExitOK || strings.Count(out, "\n") != 1 {
			t.Errorf("exit %d, output:\n%s", code, out)
		}
	})
	t.Run("continue", func(t *testing.T) {
		code, out, errOut := tool(t, "", "prompt", "echo again", "--session", id)
		if code != cmdline.ExitOK || out != "again\n" {
			t.Errorf("exit %d, %q, %q", code, out, errOut)
		}
	})
	t.Run("call in a session", func(t *testing.T) {
		code, out, errOut := tool(t, "", "rpc", "call", "session/prompt", `{"prompt":[{"type":"text","text":"echo <raw>"}]}`, "--session", id)
		if code != cmdline.ExitOK || !strings.Contains(out, `"stopReason": "end_turn"`) || !strings.Contains(errOut, "session/update agent_message_chunk <raw>") {
			t.Errorf("exit %d, %q, %q", code, out, errOut)
		}
	})
	t.Run("close and delete", func(t *testing.T) {
		if code, out, errOut := tool(t, "", "sessions", "close", id); code != cmdline.ExitOK || out != "closed "+id+"\n" {
			t.Errorf("exit %d, %q, %q", code, out, errOut)
		}
		if code, out, errOut := tool(t, "", "sessions", "delete", "none-1", id, "none-2"); code != cmdline.ExitNotFound || out != "deleted "+id+"\n" || !strings.Contains(errOut, "none-1") || !strings.Contains(errOut, "none-2") {
			t.Errorf("exit %d, %q, %q", code, out, errOut)
		}
		if code, _, errOut := tool(t, "", "sessions", "delete", id, ""); code != cmdline.ExitUsage || !strings.Contains(errOut, "SESSION is empty") {
			t.Errorf("exit %d, %q", code, errOut)
		}
		for _, args := range [][]string{{"sessions", "show", id}, {"sessions", "delete", id}, {"sessions", "events", id, "-f"}} {
			if code, _, errOut := tool(t, "", args...); code != cmdline.ExitNotFound {
				t.Errorf("%v: exit %d, %q", args, code, errOut)
			}
		}
	})
}

func TestCommands_Prompt(t *testing.T) {
	url, _ := start(t, "--default-agent", "mock")
	t.Setenv("SANDBOX_AGENT_ENDPOINT", url)
	tests := []struct {
		name, stdin string
		args        []string
		code        int
		out, errOut string // contained
	}{
		{"text", "", []string{"hello"}, cmdline.ExitOK, "mock agent", "session "},
		{"from the input", "echo piped\n", []string{"-"}, cmdline.ExitOK, "piped", ""},
		{"tool", "", []string{"tool"}, cmdline.ExitOK, "", "(completed)"},
		{"plan", "", []string{"plan"}, cmdline.ExitOK, "", "  [x] "},
		{"crash", "", []string{"crash"}, exitAgent, "", "error: "},
		{"permission without a terminal", "", []string{"permission"}, exitRefused, "", "permission rejected"},
		{"permission allowed", "", []string{"permission", "--permission", "allow"}, cmdline.ExitOK, "", "permission allowed"},
		{"permission rejected", "", []string{"permission", "--permission", "reject"}, cmdline.ExitOK, "permission: reject_once", "permission rejected"},
		{"question without a terminal", "", []string{"question"}, exitRefused, "", "question not answered"},
		{"no such agent", "", []string{"x", "--agent", "nope"}, cmdline.ExitNotFound, "", "agents list"},
		{"no such session", "", []string{"x", "--session", "nope"}, cmdline.ExitNotFound, "", "error: "},
		{"mode and model", "", []string{"hello", "--mode", "plan", "--model", "mock-large"}, cmdline.ExitOK, "mock agent", ""},
		{"no such model", "", []string{"hello", "--model", "bogus"}, cmdline.ExitUsage, "", "--model bogus: the agent does not have it. There are mock-small, mock-large"},
		{"no such mode", "", []string{"hello", "--mode", "bogus"}, cmdline.ExitUsage, "", "--mode bogus: the agent does not have it. There are ask, code, plan"},
		{"nearly a mode", "", []string{"hello", "--mode", "pln"}, cmdline.ExitUsage, "", "did you mean plan? There are ask"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, out, errOut := tool(t, tt.stdin, append([]string{"prompt"}, tt.args...)...)
			if code != tt.code || !strings.Contains(out, tt.out) || !strings.Contains(errOut, tt.errOut) {
				t.Errorf("exit %d, want %d\n%s\n%s", code, tt.code, out, errOut)
			}
		})
	}
	t.Run("a value that is not there leaves no session", func(t *testing.T) {
		list := func() int {
			_, out, _ := tool(t, "", "sessions", "list", "--json")
			return strings.Count(out, `"mock-`)
		}
		before := list()
		tool(t, "", "prompt", "hello", "--mode", "bogus")
		if after := list(); after != before || before == 0 {
			t.Errorf("%d sessions became %d", before, after)
		}
	})
	t.Run("json", func(t *testing.T) {
		_, out, errOut := tool(t, "", "prompt", "--json", "--permission", "allow", "echo <x>")
		if errOut != "" || !regexp.MustCompile(`^\{"jsonrpc":"2.0","id":\d+,"result":\{"sessionId":"mock-`).MatchString(out) {
			t.Errorf("it begins so:\n%s\n%s", errOut, out)
		}
		lines := strings.Split(strings.TrimSpace(out), "\n")
		for _, line := range lines {
			if !json.Valid([]byte(line)) {
				t.Errorf("not JSON: %s", line)
			}
		}
		if last := lines[len(lines)-1]; !strings.Contains(out, `"text":"<x>"`) || !strings.Contains(last, `"stopReason":"end_turn"`) {
			t.Errorf("output:\n%s", out)
		}
	})
	t.Run("json error", func(t *testing.T) {
		code, out, errOut := tool(t, "", "prompt", "--json", "--agent", "nope", "x")
		var doc struct {
			Type     string
			ExitCode int
		}
		if err := json.Unmarshal([]byte(errOut), &doc); err != nil || out != "" || doc.ExitCode != code || doc.Type != "urn:sandbox-agent:error:unsupported_agent" {
			t.Errorf("%v: exit %d, %q, %q", err, code, out, errOut)
		}
	})
}

func TestCommands_RPC(t *testing.T) {
	url, _ := start(t, "--default-agent", "mock")
	t.Setenv("SANDBOX_AGENT_ENDPOINT", url)
	file := filepath.Join(t.TempDir(), "params.json")
	if err := os.WriteFile(file, []byte(`{"cwd":"/nowhere"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, stdin string
		args        []string
		code        int
		out         string // contained
	}{
		{"indented", "", []string{"session/list"}, cmdline.ExitOK, "{\n  \"sessions\""},
		{"one line", "", []string{"session/list", "--json"}, cmdline.ExitOK, `{"sessions":`},
		{"file", "", []string{"session/list", "@" + file}, cmdline.ExitOK, `"sessions"`},
		{"input", `{"cwd":"/nowhere"}`, []string{"session/list", "-"}, cmdline.ExitOK, `"sessions"`},
		{"raw", "", []string{"session/list", "--raw"}, cmdline.ExitOK, `{"jsonrpc":"2.0","id":2,"result":`},
		{"initialize", "", []string{"initialize"}, cmdline.ExitOK, `"protocolVersion": 1`},
		{"unknown method", "", []string{"_x/y"}, exitAgent, ""},
		{"no such session", "", []string{"session/prompt", `{"sessionId":"nope","prompt":[]}`}, cmdline.ExitNotFound, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, out, errOut := tool(t, tt.stdin, append([]string{"rpc", "call"}, tt.args...)...)
			if code != tt.code || !strings.Contains(out, tt.out) {
				t.Errorf("exit %d, want %d\n%s\n%s", code, tt.code, out, errOut)
			}
		})
	}
	t.Run("notify", func(t *testing.T) {
		if code, out, errOut := tool(t, "", "rpc", "notify", "_x/y", `{"a":1}`); code != cmdline.ExitOK || out+errOut != "" {
			t.Errorf("exit %d, %q, %q", code, out, errOut)
		}
	})
}
