package main

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/cmd/internal/cmdline"
)

func TestPrompt_PermissionRules(t *testing.T) { inBothVersions(t, permissionRulesAreKept) }

func permissionRulesAreKept(t *testing.T, speaks string) {
	url, _ := start(t, "--default-agent", "mock")
	t.Setenv("SANDBOX_AGENT_ENDPOINT", url)
	tests := []struct {
		rules []string
		kind  string // "" is an edit
		code  int
		says  string
	}{
		{nil, "", exitRefused, "permission: reject_once"},
		{[]string{"ask"}, "execute", exitRefused, "permission: reject_once"},
		{[]string{"allow"}, "execute", cmdline.ExitOK, "permission: allow_once"},
		{[]string{"reject"}, "execute", cmdline.ExitOK, "permission: reject_once"},
		{[]string{"reject,edit=allow"}, "", cmdline.ExitOK, "permission: allow_once"},
		{[]string{"edit=allow"}, "execute", exitRefused, "permission: reject_once"},
		{[]string{"allow, execute=reject"}, "execute", cmdline.ExitOK, "permission: reject_once"},
		{[]string{"*=allow", "execute=reject"}, "execute", cmdline.ExitOK, "permission: reject_once"},
		{[]string{"execute=reject", "allow"}, "execute", cmdline.ExitOK, "permission: reject_once"},
		{[]string{"execute=reject", "execute=allow"}, "execute", cmdline.ExitOK, "permission: allow_once"},
		{[]string{"reject,other=allow"}, "of-tomorrow", cmdline.ExitOK, "permission: reject_once"},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.rules, " ")+" "+tt.kind, func(t *testing.T) {
			args := []string{"--acp", speaks}
			for _, r := range tt.rules {
				args = append(args, "--permission", r)
			}
			code, out, errOut := tool(t, "", append([]string{"prompt", strings.TrimSpace("permission " + tt.kind)}, args...)...)
			if code != tt.code || strings.TrimSpace(out) != tt.says {
				t.Errorf("exit %d, want %d; said %q, want %q\n%s", code, tt.code, out, tt.says, errOut)
			}
		})
	}
}

func TestPrompt_ExitCodeSaysHowTheTurnEnded(t *testing.T) {
	inBothVersions(t, exitCodeSaysHowTheTurnEnded)
}

func exitCodeSaysHowTheTurnEnded(t *testing.T, speaks string) {
	url, _ := start(t, "--default-agent", "mock")
	t.Setenv("SANDBOX_AGENT_ENDPOINT", url)
	for reason, want := range map[schema.StopReason]int{
		schema.StopReasonEndTurn: cmdline.ExitOK, schema.StopReasonMaxTokens: exitEndedEarly, schema.StopReasonMaxTurnRequests: exitEndedEarly,
		schema.StopReasonRefusal: exitRefused, schema.StopReasonCancelled: exitInterrupted, "of_tomorrow": exitEndedEarly,
	} {
		if code, _, errOut := tool(t, "", "prompt", "--acp", speaks, "stop "+string(reason)); code != want || (want != cmdline.ExitOK) != strings.Contains(errOut, "error: ") {
			t.Errorf("%s: exit %d, want %d\n%s", reason, code, want, errOut)
		}
		code, out, _ := tool(t, "", "prompt", "--acp", speaks, "--json", "stop "+string(reason))
		if last := out[strings.LastIndex(strings.TrimSpace(out), "\n")+1:]; code != want || !strings.Contains(last, `"stopReason":"`+string(reason)+`"`) {
			t.Errorf("%s: exit %d, want %d; last line %s", reason, code, want, last)
		}
	}
}

// What is left running after the time is over would go on to cost money.
func TestPrompt_TimeoutCancelsTheTurn(t *testing.T) { inBothVersions(t, timeoutCancelsTheTurn) }

func timeoutCancelsTheTurn(t *testing.T, speaks string) {
	if testing.Short() {
		t.Skip("short runs leave out what takes many seconds")
	}
	url, _ := start(t, "--default-agent", "mock")
	t.Setenv("SANDBOX_AGENT_ENDPOINT", url)
	for text, says := range map[string]string{"slow": "the turn was cancelled: it took", "hang": "the turn was cancelled, but the agent goes on"} {
		code, _, errOut := tool(t, "", "prompt", "--acp", speaks, text, "--timeout", "3s")
		if code != exitTimeUp || !strings.Contains(errOut, "error: timed out") || !strings.Contains(errOut, says) {
			t.Errorf("%s: exit %d, want %d\n%s", text, code, exitTimeUp, errOut)
		}
		id := strings.TrimPrefix(regexp.MustCompile(`session [\w-]+`).FindString(errOut), "session ")
		if _, events, _ := tool(t, "", "sessions", "events", "--json", id); !strings.Contains(events, "session/cancel") || (text == "slow") != strings.Contains(events, `"cancelled"`) {
			t.Errorf("%s goes on:\n%s", text, events)
		}
	}
}

func TestPrompt_Attachments(t *testing.T) { inBothVersions(t, attachmentsGoAlong) }

func attachmentsGoAlong(t *testing.T, speaks string) {
	url, _ := start(t, "--default-agent", "mock")
	t.Setenv("SANDBOX_AGENT_ENDPOINT", url)
	dir := t.TempDir()
	png, err := base64.StdEncoding.DecodeString("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==")
	if err != nil {
		t.Fatal(err)
	}
	file := func(name string, data []byte) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	notes, shot, blob := file("my notes.md", []byte("# Notes\n")), file("shot.png", png), file("data.bin", []byte{0, 1, 255})

	code, _, errOut := tool(t, "the diff\n", "prompt", "--acp", speaks, "look", "--attach", notes, "--attach", shot, "--attach", blob, "--attach", "-", "--attach", "https://example.com/a/spec.html?x=1")
	if code != cmdline.ExitOK {
		t.Fatalf("exit %d\n%s", code, errOut)
	}
	id := strings.TrimPrefix(regexp.MustCompile(`session [\w-]+`).FindString(errOut), "session ")
	_, events, _ := tool(t, "", "sessions", "events", "--json", id)
	var got []any
	for line := range strings.Lines(events) {
		prompt, ok := rawjson.Member(json.RawMessage(line), "message", "params", "prompt")
		if !ok {
			prompt, ok = rawjson.Member(json.RawMessage(line), "params", "prompt")
		}
		if ok {
			if err := json.Unmarshal(prompt, &got); err != nil {
				t.Fatal(err)
			}
		}
	}
	at := func(name string) string { return "file://" + strings.ReplaceAll(filepath.Join(dir, name), " ", "%20") }
	want := []any{
		object{"type": "text", "text": "look"},
		object{"type": "resource", "resource": object{"uri": at("my notes.md"), "mimeType": "text/markdown", "text": "# Notes\n"}},
		object{"type": "image", "mimeType": "image/png", "data": base64.StdEncoding.EncodeToString(png)},
		object{"type": "resource", "resource": object{"uri": at("data.bin"), "mimeType": "application/octet-stream", "blob": "AAH/"}},
		object{"type": "resource", "resource": object{"uri": "file:///dev/stdin", "mimeType": "text/plain", "text": "the diff\n"}},
		object{"type": "resource_link", "uri": "https://example.com/a/spec.html?x=1", "name": "spec.html"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("prompt (-want +got):\n%s\n%s", diff, events)
	}

	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"look", "--attach", filepath.Join(dir, "nowhere")}, cmdline.ExitUsage, "nowhere: there is no such file"},
		{[]string{"look", "--attach", dir}, cmdline.ExitUsage, "is a folder"},
		{[]string{"--attach", "-"}, cmdline.ExitUsage, "both the prompt and an attachment"},
		{[]string{"--attach", notes}, cmdline.ExitOK, ""}, // the prompt is empty
	} {
		if code, out, errOut := tool(t, "", append([]string{"prompt"}, tt.args...)...); code != tt.code || !strings.Contains(errOut, tt.want) {
			t.Errorf("%q: exit %d, want %d with %q\n%s%s", tt.args, code, tt.code, tt.want, out, errOut)
		}
	}
}

func TestEnclosure_SourcesAreText(t *testing.T) {
	for _, name := range []string{"go.mod", "main.ts", "notes", "shot.png"} {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte("a text\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		a, err := readEnclosure(path, nil)
		if kind, _, _ := strings.Cut(a.mime, "/"); err != nil || kind == "audio" || kind == "video" {
			t.Errorf("%s is %s, %v", name, a.mime, err)
		}
		if block, err := a.block(map[string]bool{"embeddedContext": true}); err != nil || !strings.Contains(fmt.Sprint(block), "a text") {
			t.Errorf("%s goes along as %v, %v", name, block, err)
		}
	}
}

// What an agent does not take is said before anything is done; text always goes.
func TestEnclosure_ForAgentsThatTakeLess(t *testing.T) {
	none := map[string]bool{}
	for name, tt := range map[string]struct {
		enclosure
		want, err string
	}{
		"text":  {enclosure{name: "a.txt", mime: "text/plain", data: []byte("hi")}, `{"text":"a.txt:\n\nhi","type":"text"}`, ""},
		"image": {enclosure{name: "a.png", mime: "image/png", data: []byte{0xff}}, "", "attach a.png: this agent takes no image/png"},
		"other": {enclosure{name: "a.zip", mime: "application/zip", data: []byte{0}}, "", "takes no application/zip"},
		"link":  {enclosure{name: "a", uri: "https://b/a", link: true}, `{"name":"a","type":"resource_link","uri":"https://b/a"}`, ""},
	} {
		block, err := tt.block(none)
		got, _ := schema.Encode(block)
		if err == nil && string(got) != tt.want || (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
}

func TestRPCCall_AnswersByRule(t *testing.T) {
	url, _ := start(t, "--default-agent", "mock")
	t.Setenv("SANDBOX_AGENT_ENDPOINT", url)
	_, _, errOut := tool(t, "", "prompt", "hello")
	id := strings.TrimPrefix(regexp.MustCompile(`session [\w-]+`).FindString(errOut), "session ")
	call := func(text string, args ...string) (int, string, string) {
		t.Helper()
		return tool(t, "", append([]string{"rpc", "call", "session/prompt", `{"prompt":[{"type":"text","text":"` + text + `"}]}`, "--session", id}, args...)...)
	}
	if code, out, errOut := call("permission execute", "--permission", "reject,execute=allow"); code != cmdline.ExitOK || !strings.Contains(errOut, "permission: allow_once") || !strings.Contains(out, `"stopReason": "end_turn"`) {
		t.Errorf("exit %d\n%s\n%s", code, out, errOut)
	}
	if code, _, errOut := call("permission", "--permission", "execute=allow", "--timeout", "1s", "--json"); code != exitTimeUp || strings.Contains(errOut, "reject_once") ||
		!strings.Contains(errOut, "the agent waits until this permission is answered: by another client of the session, or here with --permission") {
		t.Errorf("a request without a rule does not stay open: exit %d\n%s", code, errOut)
	}
	if code, _, errOut := call("permission", "--permission", "ask"); code != cmdline.ExitUsage || !strings.Contains(errOut, "use allow or reject") {
		t.Errorf("exit %d\n%s", code, errOut)
	}
	// The open request of the turn before is answered when the session is resumed, and the prompt behind it begins.
	code, _, errOut := call("stop max_tokens", "--raw", "--permission", "reject")
	if code != exitEndedEarly {
		t.Errorf("exit %d, want %d\n%s", code, exitEndedEarly, errOut)
	}
	if code, _, errOut := tool(t, "", "rpc", "call", "_sandboxagent/session/detach", "{}", "--session", id); code != cmdline.ExitOK {
		t.Errorf("exit %d\n%s", code, errOut)
	}
}

// In version 2 a prompt is answered at once, and the command waits for the turn all the same.
func TestRPCCall_VersionTwo(t *testing.T) {
	url, _ := start(t, "--default-agent", "mock")
	t.Setenv("SANDBOX_AGENT_ENDPOINT", url)
	_, _, errOut := tool(t, "", "prompt", "hello")
	id := strings.TrimPrefix(regexp.MustCompile(`session [\w-]+`).FindString(errOut), "session ")
	call := func(text string, args ...string) (int, string, string) {
		t.Helper()
		return tool(t, "", append([]string{"rpc", "call", "session/prompt", `{"prompt":[{"type":"text","text":"` + text + `"}]}`, "--session", id, "--acp", "2"}, args...)...)
	}
	if code, out, errOut := call("permission execute", "--permission", "reject,execute=allow"); code != cmdline.ExitOK || !strings.Contains(errOut, "permission: allow_once") || !strings.Contains(out, `"messageId": "sa.`) {
		t.Errorf("exit %d\n%s\n%s", code, out, errOut)
	}
	if code, out, _ := call("stop max_tokens", "--raw"); code != exitEndedEarly || !strings.Contains(out, `"state":"idle","stopReason":"max_tokens"`) {
		t.Errorf("exit %d, want %d\n%s", code, exitEndedEarly, out)
	}
	if code, out, errOut := tool(t, "", "rpc", "call", "initialize", "--acp", "2"); code != cmdline.ExitOK || !strings.Contains(out, `"protocolVersion": 2`) {
		t.Errorf("exit %d\n%s\n%s", code, out, errOut)
	}
	if code, _, errOut := call("x", "--acp", "3"); code != cmdline.ExitUsage || !strings.Contains(errOut, "--acp 3: use 1 or 2") {
		t.Errorf("exit %d\n%s", code, errOut)
	}
}

func TestPermissionRules_WrongOnes(t *testing.T) {
	for _, tt := range []struct{ rule, want string }{
		{"maybe", "use allow, reject or ask, or KIND=allow"},
		{"edit=maybe", "use allow, reject or ask"},
		{"write=allow", `there is no kind of tool "write"; use *, read, edit,`},
		{"", "is empty"},
		{"edit=allow,", "use allow"},
	} {
		if code, _, errOut := tool(t, "", "prompt", "x", "--permission", tt.rule); code != cmdline.ExitUsage || !strings.Contains(errOut, tt.want) {
			t.Errorf("%q: exit %d\n%s", tt.rule, code, errOut)
		}
	}
}

// Without an agent the command is wrong, unless the gateway has a default one;
// on a terminal one can be chosen.
func TestPrompt_WithoutAnAgent(t *testing.T) {
	url, _ := start(t)
	t.Setenv("SANDBOX_AGENT_ENDPOINT", url)
	code, out, errOut := tool(t, "", "prompt", "hello")
	if code != cmdline.ExitUsage || out != "" || !strings.Contains(errOut, "no agent is named") || !strings.Contains(errOut, "--agent") || !strings.Contains(errOut, "mock") {
		t.Errorf("exit %d, %q, %q", code, out, errOut)
	}
	keys, typing := io.Pipe()
	defer typing.Close()
	_, asked, _, end := startTurn(t, url, "hello", keys)
	number := strings.TrimSuffix(asked.await(t, `\d+\) mock`), ") mock")
	answer(t, asked, typing, "mick", number)
	asked.await(t, `mick is none of 1 to \d+: a number, or nothing to leave\n> `)
	if err := endOf(t, end); err != nil || strings.Count(asked.String(), "Which agent?") != 1 {
		t.Errorf("%v\n%s", err, asked)
	}
}

// Agents that are not ready can be chosen, too: they say what they lack, behind those that are.
func TestPrompt_TheChoiceOfAnAgent(t *testing.T) {
	const locked = `sh -c 'while read -r line; do id=$(printf %s "$line" | sed "s/.*\"id\":\([^,}]*\).*/\1/"); case $line in
*initialize*) echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"protocolVersion\":1,\"agentCapabilities\":{},\"authMethods\":[]}}" ;;
*) echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"error\":{\"code\":-32000,\"message\":\"nobody is logged in\"}}" ;; esac; done'`
	url, _ := start(t, "--require-preinstall", "--agent-command", "locked="+locked)
	if code, _, errOut := tool(t, "", "prompt", "x", "--agent", "locked", "--endpoint", url); code != cmdline.ExitAuth {
		t.Fatalf("exit %d, %s", code, errOut)
	}
	for _, tt := range []struct {
		shown string
		exit  int
		says  string
	}{
		{`1\) mock\n`, cmdline.ExitOK, ""},
		{`\d+\) locked: needs a login, with sandbox-agent agents login locked\n`, cmdline.ExitAuth, "nobody is logged in"},
		{`\d+\) claude: not installed, which is done first\n`, cmdline.ExitNotFound, "not installed"},
	} {
		keys, typing := io.Pipe()
		_, asked, _, end := startTurn(t, url, "hello", keys)
		number, _, _ := strings.Cut(asked.await(t, tt.shown), ")")
		answer(t, asked, typing, number)
		code, says := cmdline.ExitOK, ""
		if err := endOf(t, end); err != nil {
			code, says = exitCode(err), err.Error()
		}
		if code != tt.exit || !strings.Contains(says, tt.says) {
			t.Errorf("%s: exit %d, %s\n%s", tt.shown, code, says, asked)
		}
		_ = typing.Close()
	}
}

func TestPrompt_OptionsOfTheSession(t *testing.T) {
	dir := t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// The agent writes down what it is given.
	url, _ := start(t, "--default-agent", "spy",
		"--agent-command", fmt.Sprintf(`spy=sh -c 'env > %s; tee %s | "%s" mock-agent --state-dir %s'`, file("env"), file("in"), self, file("state")))
	t.Setenv("SANDBOX_AGENT_ENDPOINT", url)
	if err := os.WriteFile(file("rules"), []byte("be brief\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	code, _, errOut := tool(t, "", "prompt", "hello", "--title", "A title", "--permission-mode", "default", "--instructions", "@"+file("rules"),
		"--env", "COLOUR=blue=ish", "--mcp", "files=npx -y 'the server'", "--mcp", "web=https://example.com/mcp", "--mcp", `{"type":"sse","name":"raw","url":"https://example.com/sse","headers":[]}`)
	if code != cmdline.ExitOK {
		t.Fatalf("exit %d\n%s", code, errOut)
	}
	if env, err := os.ReadFile(file("env")); err != nil || !strings.Contains(string(env), "\nCOLOUR=blue=ish\n") {
		t.Errorf("the agent's environment, %v:\n%s", err, env)
	}
	in, err := os.ReadFile(file("in"))
	if err != nil {
		t.Fatal(err)
	}
	var got, want object
	for line := range strings.Lines(string(in)) {
		if params, ok := rawjson.Member(json.RawMessage(line), "params"); ok && strings.Contains(line, `"session/new"`) {
			if err := json.Unmarshal(params, &got); err != nil {
				t.Fatal(err)
			}
			delete(got, "cwd")
		}
	}
	if err := json.Unmarshal([]byte(`{
		"mcpServers": [
			{"name": "files", "command": "npx", "args": ["-y", "the server"], "env": []},
			{"name": "web", "type": "http", "url": "https://example.com/mcp", "headers": []},
			{"name": "raw", "type": "sse", "url": "https://example.com/sse", "headers": []}
		],
		"_meta": {"sandboxagent.dev": {"title": "A title", "permissionMode": "default", "instructions": "be brief\n", "env": {"COLOUR": "blue=ish"}}}
	}`), &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("session/new (-want +got):\n%s", diff)
	}
	if _, out, _ := tool(t, "", "sessions", "show", sessionIn(errOut), "--json"); rawjson.MemberString(json.RawMessage(out), "title") != "A title" {
		t.Errorf("the session: %s", out)
	}
	for _, tt := range []struct{ flag, value, want string }{
		{"--permission-mode", "all", "use default, readonly, write or bypass"},
		{"--env", "NAME", "not of the form NAME=VALUE"},
		{"--mcp", "name", "not of the form NAME=COMMAND LINE"},
		{"--mcp", "{", "not a JSON object"},
		{"--mcp", "a='b", "inside a quote"},
	} {
		if code, _, errOut := tool(t, "", "prompt", "x", tt.flag, tt.value); code != cmdline.ExitUsage || !strings.Contains(errOut, tt.want) {
			t.Errorf("%s %s: exit %d, %q", tt.flag, tt.value, code, errOut)
		}
	}
	if code, _, errOut := tool(t, "", "prompt", "x", "--session", "s", "--title", "t"); code != cmdline.ExitUsage || !strings.Contains(errOut, "leave out --title") {
		t.Errorf("a title for a session that exists: exit %d, %q", code, errOut)
	}
}

// A script leaves nothing behind that it does not need, also when it fails.
func TestPrompt_ClosesAndDeletes(t *testing.T) {
	url, _ := start(t, "--default-agent", "mock")
	t.Setenv("SANDBOX_AGENT_ENDPOINT", url)
	state := func(id string) (code int, out string) {
		code, out, _ = tool(t, "", "sessions", "show", id, "--json")
		return code, rawjson.MemberString(json.RawMessage(out), "state")
	}
	for _, text := range []string{"hello", "stop max_tokens", "crash"} {
		t.Run(text, func(t *testing.T) {
			want, _, errOut := tool(t, "", "prompt", text)
			if code, s := state(sessionIn(errOut)); code != cmdline.ExitOK || s == "closed" {
				t.Errorf("without a flag: exit %d, %s", code, s)
			}
			code, _, errOut := tool(t, "", "prompt", text, "--close")
			if code != want {
				t.Errorf("--close: exit %d, want %d: %s", code, want, errOut)
			}
			if code, s := state(sessionIn(errOut)); code != cmdline.ExitOK || s != "closed" {
				t.Errorf("--close: exit %d, %s", code, s)
			}
			code, _, errOut = tool(t, "", "prompt", text, "--delete")
			if code != want {
				t.Errorf("--delete: exit %d, want %d: %s", code, want, errOut)
			}
			if code, s := state(sessionIn(errOut)); code != cmdline.ExitNotFound {
				t.Errorf("--delete: exit %d, %s", code, s)
			}
		})
	}
	call := func(args ...string) (id string) {
		t.Helper()
		code, out, errOut := tool(t, "", append([]string{"rpc", "call"}, args...)...)
		if code != cmdline.ExitOK {
			t.Fatalf("%q: exit %d, %s", args, code, errOut)
		}
		return rawjson.MemberString(json.RawMessage(out), "sessionId")
	}
	anew := `{"cwd":"/","mcpServers":[]}`
	if code, s := state(call("session/new", anew, "--close")); code != cmdline.ExitOK || s != "closed" {
		t.Errorf("a call with --close: exit %d, %s", code, s)
	}
	if code, _ := state(call("session/new", anew, "--delete")); code != cmdline.ExitNotFound {
		t.Errorf("a call with --delete: exit %d", code)
	}
	id := call("session/new", anew)
	call("session/prompt", `{"prompt":[{"type":"text","text":"hello"}]}`, "--session", id, "--delete")
	if code, _ := state(id); code != cmdline.ExitNotFound {
		t.Errorf("a call in a session with --delete: exit %d", code)
	}
	if code, _, errOut := tool(t, "", "prompt", "x", "--close", "--delete"); code != cmdline.ExitUsage {
		t.Errorf("both: exit %d, %s", code, errOut)
	}
}

func TestSessions_Terminate(t *testing.T) {
	url, _ := start(t)
	t.Setenv("SANDBOX_AGENT_ENDPOINT", url)
	_, _, errOut := tool(t, "", "prompt", "--agent", "mock", "hello")
	id := sessionIn(errOut)
	for _, want := range []string{"terminated " + id, id + " had ended already"} {
		if code, out, errOut := tool(t, "", "sessions", "terminate", id); code != cmdline.ExitOK || strings.TrimSpace(out) != want {
			t.Errorf("exit %d, %q, %q", code, out, errOut)
		}
	}
	if code, _, errOut := tool(t, "", "prompt", "hello", "--session", id); code == cmdline.ExitOK {
		t.Errorf("it goes on: %s", errOut)
	}
	if code, _, errOut := tool(t, "", "sessions", "terminate", "nope"); code != cmdline.ExitNotFound {
		t.Errorf("an unknown one: exit %d, %s", code, errOut)
	}
}

// A gateway without a default agent takes the agent of a connection from the session, also
// where only the params name it; a session that does not exist is no missing agent.
func TestSession_WithoutDefaultAgent(t *testing.T) {
	url, _ := start(t)
	t.Setenv("SANDBOX_AGENT_ENDPOINT", url)
	_, _, errOut := tool(t, "", "prompt", "--agent", "mock", "hello")
	id := sessionIn(errOut)
	for _, args := range [][]string{
		{"prompt", "hi", "--session"},
		{"prompt", "hi", "--acp", "2", "--session"},
		{"rpc", "call", "session/prompt", `{"prompt":[]}`, "--session"},
		{"rpc", "call", "session/prompt", `{"prompt":[]}`, "--acp", "2", "--session"},
		{"rpc", "call", "session/resume"},
		{"rpc", "notify", "session/cancel"},
		{"rpc", "notify", "session/cancel", "--session"},
		{"rpc", "stream", "--session"},
	} {
		with := func(id string) []string {
			if strings.HasPrefix(args[len(args)-1], "session/") {
				return append(slices.Clone(args), `{"cwd":"/","mcpServers":[],"sessionId":"`+id+`"}`)
			}
			return append(slices.Clone(args), id)
		}
		if code, _, errOut := tool(t, "", with("nope")...); code != cmdline.ExitNotFound || !strings.Contains(errOut, "Session not found") {
			t.Errorf("%q: exit %d, %s", args, code, errOut)
		}
		if args[1] == "stream" { // it would not end
			continue
		}
		if code, _, errOut := tool(t, "", with(id)...); code != cmdline.ExitOK {
			t.Errorf("%q of a session: exit %d, %s", args, code, errOut)
		}
	}
}

func TestOpenAPI(t *testing.T) {
	url, _ := start(t)
	code, out, errOut := tool(t, "", "openapi", "--endpoint", url)
	if code != cmdline.ExitOK || !json.Valid([]byte(out)) || rawjson.MemberString(json.RawMessage(out), "openapi") == "" {
		t.Errorf("exit %d, %.200s, %s", code, out, errOut)
	}
}

func sessionIn(errOut string) string {
	return strings.TrimPrefix(regexp.MustCompile(`session [\w-]+`).FindString(errOut), "session ")
}
