package claude

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
)

func TestLaunch_NothingIsDroppedAndNothingSecretIsAnArgument(t *testing.T) {
	own := `{
		"permissionMode": "write", "instructions": "I", "appendSystemPrompt": "A", "title": "T",
		"mcp": {"mcpServers": {"both": {"command": "meta"}, "meta": {"type": "sse", "url": "https://meta", "headers": {"k": "SECRET"}}}},
		"agentSpecific": {"claude": {
			"allowedTools": ["Bash(git *)", "Read"], "maxTurns": 3, "strictMcpConfig": true, "includeHookEvents": false,
			"settings": {"env": {"TOKEN": "SECRET"}}, "agents": {"reviewer": {"description": "d", "prompt": "SECRET"}},
			"unheardOf": 1, "tools": [1]
		}, "codex": {"x": 1}}
	}`
	l, err := newLaunch(bridge.Request{
		Cwd: t.TempDir(), Directories: []string{"/extra"}, Meta: map[string]json.RawMessage{acp.MetaKey: json.RawMessage(own)},
		Servers: []schema.MCPServer{
			{Stdio: &schema.MCPServerStdio{Name: "both", Command: "acp", Env: []schema.EnvVariable{{Name: "K", Value: "SECRET"}}}},
			{SSE: &schema.MCPServerSSE{Name: "sse", URL: "https://sse", Headers: []schema.HTTPHeader{{Name: "K", Value: "SECRET"}}}},
			{ACP: &schema.MCPServerACP{Name: "acp"}},
		},
		System: &schema.SystemPrompt{Mode: schema.SystemPromptModeAppend, Content: []schema.ContentBlock{schema.TextBlock("S")}},
	}, false)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := l.files(dir); err != nil {
		t.Fatal(err)
	}
	line := strings.Join(l.args, " ")
	for _, want := range []string{
		"--permission-mode acceptEdits", "--add-dir /extra", "--allowedTools=Bash(git *),Read", "--max-turns=3", "--strict-mcp-config", "--settings " + dir,
	} {
		if !strings.Contains(line, want) {
			t.Errorf("the arguments lack %q: %s", want, line)
		}
	}
	for _, bad := range []string{"SECRET", "include-hook-events", "allow-dangerously"} {
		if strings.Contains(line, bad) {
			t.Errorf("the arguments have %q: %s", bad, line)
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, "settings.json"))
	if info, _ := os.Stat(filepath.Join(dir, "settings.json")); err != nil || !strings.Contains(string(b), "SECRET") || info.Mode().Perm() != 0o600 {
		t.Errorf("settings.json: %s, %v", b, err)
	}
	servers, _ := schema.Encode(l.servers)
	if want := `{"both":{"args":[],"command":"acp","env":{"K":"SECRET"},"type":"stdio"},` +
		`"meta":{"type":"sse","url":"https://meta","headers":{"k":"SECRET"}},"sse":{"headers":{"K":"SECRET"},"type":"sse","url":"https://sse"}}`; string(servers) != want {
		t.Errorf("servers %s", servers)
	}
	if s := l.initialize["appendSystemPrompt"]; s != "# Project instructions\n\nI\n\nA\n\nS" {
		t.Errorf("the appended prompt is %q", s)
	}
	if l.initialize["title"] != "T" || l.initialize["agents"] == nil {
		t.Errorf("initialize is %v", l.initialize)
	}
	var fields []string
	for _, u := range l.Unsupported {
		fields = append(fields, u.Field)
	}
	if want := []string{"mcpServers", "agentSpecific.claude.tools", "agentSpecific.claude.unheardOf"}; !slices.Equal(fields, want) {
		t.Errorf("unsupported are %v, want %v", fields, want)
	}
}

func TestLaunch_BadWishesAreErrors(t *testing.T) {
	for name, s := range map[string]bridge.Request{
		"relative cwd":       {Cwd: "here"},
		"no such cwd":        {Cwd: "/no/such/dir"},
		"relative directory": {Cwd: t.TempDir(), Directories: []string{"there"}},
		"mcp is a list":      {Cwd: t.TempDir(), Meta: map[string]json.RawMessage{acp.MetaKey: json.RawMessage(`{"mcp":[]}`)}},
		"title is a number":  {Cwd: t.TempDir(), Meta: map[string]json.RawMessage{acp.MetaKey: json.RawMessage(`{"title":1}`)}},
	} {
		if _, err := newLaunch(s, true); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// A session that is opened with another permissionMode is in no mode of before.
func TestReopen_InTheModeThatIsAskedFor(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bridgetest.Modes(t, func(t *testing.T) *bridgetest.Client {
		return bridgetest.With(t, New(), adapters.Program{Path: exe, Env: []string{playerVar + "=1"}}).Open(schema.ClientCapabilities{}, nil)
	}, []bridgetest.Mode{
		{Under: "write", Chosen: modePlan, Again: "write", Want: modePlan},
		{Chosen: modeAcceptEdits, Want: modeAcceptEdits},
		{Under: "write", Again: "readonly", Want: modeDontAsk},
		{Chosen: modeAcceptEdits, Again: "readonly", Want: modeDontAsk},
		{Under: "readonly", Chosen: modeAcceptEdits, Again: "readonly", Want: modeDontAsk},
		{Under: "write", Chosen: modeAcceptEdits, Want: modeDefault},
		{Under: "write", Chosen: modeAcceptEdits, Again: "default", Want: modeDefault},
	})
}

// In a session that only reads nothing counts that was allowed before, and no mode of the program's own.
func TestLaunch_ReadonlyCounts(t *testing.T) {
	for wish, want := range map[string]string{"readonly": "", "write": `{"permissions":{"allow":["Bash(touch x)"]}}`} {
		own := json.RawMessage(`{"permissionMode":"` + wish + `","agentSpecific":{"claude":{"permissionMode":"acceptEdits"}}}`)
		l, err := newLaunch(bridge.Request{Cwd: t.TempDir(), Meta: map[string]json.RawMessage{acp.MetaKey: own}}, false)
		if err != nil {
			t.Fatal(err)
		}
		known := record{Rules: []string{"Bash(touch x)"}} // as an earlier version has written it
		known.Upgrade()
		if args := l.chosen(known); string(l.settings) != want || len(args) > 0 {
			t.Errorf("%s: settings %s, arguments %v", wish, l.settings, args)
		}
		if mode := flagOf(l.args, "--permission-mode"); wish == "readonly" && (mode != modeDontAsk || len(l.Unsupported) != 1) {
			t.Errorf("the mode is %s, unsupported are %v", mode, l.Unsupported)
		}
	}
}
