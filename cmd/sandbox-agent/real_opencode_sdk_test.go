package main_test

import (
	"cmp"
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/adapters/install"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// openCodeVersion is what the scenarios run with: SANDBOX_AGENT_TEST_OPENCODE
// names another.
func openCodeVersion() string {
	return cmp.Or(os.Getenv("SANDBOX_AGENT_TEST_OPENCODE"), agentcache.OpenCode)
}

// openCodeProgram installs OpenCode once per machine.
var openCodeProgram = sync.OnceValues(func() (string, error) {
	dir, err := agentcache.Dir()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	r, err := install.New(install.Options{DataDir: dir}).Install(ctx, install.Request{
		Agent: "opencode", Version: openCodeVersion(), Sources: []install.Source{install.NPM},
	})
	return r.Program, err
})

// openCodeConfig makes OpenCode talk to the scripted model, and ask about files
// that are touched and about those that are guarded.
const openCodeConfig = `{
	"share": "disabled", "model": "scripted/large", "small_model": "scripted/small", "enabled_providers": ["scripted"],
	"permission": {"bash": {"*": "allow", "touch *": "ask"}, "edit": {"*guarded*": "ask"}},
	"provider": {"scripted": {
		"name": "Scripted", "npm": "@ai-sdk/openai-compatible", "options": {"baseURL": "%s/v1", "apiKey": "key-of-the-provider"},
		"models": {
			"large": {"name": "Large", "tool_call": true, "reasoning": true, "attachment": true,
				"modalities": {"input": ["text", "image"], "output": ["text"]},
				"variants": {"low": {"reasoningEffort": "low"}, "high": {"reasoningEffort": "high"}},
				"limit": {"context": 200000, "output": 8192}, "cost": {"input": 1, "output": 2}},
			"small": {"name": "Small", "tool_call": true, "limit": {"context": 32000, "output": 4096}}
		}
	}}
}`

// newOpenCodeRun makes everything but starts no gateway. The scenarios are run
// as those of Claude Code are.
func newOpenCodeRun(t *testing.T, config string) *claudeRun {
	t.Helper()
	if testing.Short() {
		t.Skip("real agents are left out of short runs: they are downloaded and take minutes")
	}
	if _, err := os.Stat(filepath.Join("testdata", "node", "node_modules", "ws")); err != nil {
		t.Skipf("the SDK is not installed, run ./task node:deps: %v", err)
	}
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		for _, p := range []string{"OPENCODE_", "OPENAI_", "ANTHROPIC_", "OPENROUTER_", "GOOGLE_", "GEMINI_", "GROQ_", "XAI_", "XDG_"} {
			if strings.HasPrefix(name, p) {
				t.Setenv(name, "") // puts it back
				_ = os.Unsetenv(name)
			}
		}
	}
	agentcache.Turn(t)
	program, err := openCodeProgram()
	if p, ok := errors.AsType[*problem.Error](err); ok && (strings.Contains(p.Detail, "cannot be reached") || strings.Contains(p.Detail, "not found in PATH")) {
		t.Skipf("opencode %s cannot be installed here: %v", openCodeVersion(), err)
	}
	if err != nil {
		t.Fatal(err)
	}
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := &claudeRun{t: t, program: program, home: home, dir: filepath.Join(home, "work"), restart: make(chan chan string)}
	m := scriptedmodel.Start(t)
	folder := filepath.Join(home, ".config", "opencode")
	if err := errors.Join(os.Mkdir(r.dir, 0o755), os.MkdirAll(folder, 0o700),
		os.WriteFile(filepath.Join(folder, "opencode.json"), []byte(strings.ReplaceAll(config, "%s", m.URL)), 0o600)); err != nil {
		t.Fatal(err)
	}
	r.model = newClaudeModel(m)
	var mu sync.Mutex
	dropped := map[string]bool{}
	m.OnRequest(scriptedmodel.Pattern(`^drops `), func(q *scriptedmodel.Request) []scriptedmodel.Step {
		mu.Lock()
		defer mu.Unlock()
		again := dropped[q.Prompt]
		dropped[q.Prompt] = true
		if again {
			return []scriptedmodel.Step{{scriptedmodel.SayChunks("first ", "words", ", then ", "the rest")}}
		}
		return []scriptedmodel.Step{{scriptedmodel.SayChunks("first ", "words"), scriptedmodel.SSEError("server_error", "it broke")}}
	})
	r.control = httptest.NewServer(r.controls())
	t.Cleanup(r.control.Close)
	r.base = []string{
		"AGENT=opencode", "HOME=" + home, "SANDBOX_AGENT_OPENCODE_BIN=" + program, "MODEL=" + m.URL,
		"OPENCODE_DISABLE_MODELS_FETCH=1", "npm_config_registry=http://127.0.0.1:9/",
		// What does not go to loopback goes to the model, which refuses it.
		"HTTPS_PROXY=" + m.URL, "HTTP_PROXY=" + m.URL, "NO_PROXY=127.0.0.1,localhost",
		"https_proxy=" + m.URL, "http_proxy=" + m.URL, "no_proxy=127.0.0.1,localhost",
	}
	r.g = newGateway(t, "--default-agent", "opencode", "--log-level", "debug")
	r.g.env = r.base
	return r
}

// What a turn shows and how it ends, over HTTP.
func TestReal_OpenCodeTurns(t *testing.T) {
	newOpenCodeRun(t, openCodeConfig).play("http", "opencode-turns.mjs",
		"text without duplicates", "thinking", "command output", "live output of a command", "failed command", "read is a read", "large output is shortened",
		"write and edit show diffs", "plan", "parallel calls", "usage, cost and title", "image, resource and link in a prompt",
		"bad key ends the prompt at once", "provider's refusal is quoted", "content filter is a refusal", "max_tokens", "unknown tool is a failed call",
		"retry after a failure is noticed", "text is not repeated after a broken stream",
		"cancel while streaming", "cancel at once", "cancel while a command runs", "cancel during a retry", "cancel when idle", "a second prompt waits",
		"compaction", "command of the workspace", "undo and redo", "subagent belongs to its call", "cancel reaches a subagent",
	)
}

// What the agent asks and what clients set, over WebSocket.
func TestReal_OpenCodeAsks(t *testing.T) {
	newOpenCodeRun(t, openCodeConfig).play("ws", "opencode-asks.mjs",
		"permission allowed once is asked again", "permission allowed for the session is not asked again", "permission rejected, and the turn goes on",
		"permission rejected, and the turn ends", "permission answered as cancelled ends the turn", "cancel while a permission is open",
		"one of two permissions is rejected", "edit asks with its diff", "outside of the workspace asks", "subagent's permission", "subagent's permission is rejected",
		"question as elicitation", "question by the gateway's extension", "question as permission requests", "several answers", "question is rejected", "cancel while a question is open",
		"mode by set_mode", "mode by config option", "permissionMode readonly", "permissionMode write reaches subagents", "permissionMode bypass",
		"model and effort in a running session", "keys do not leak", "instructions and appended system prompt", "skills", "additional directories", "mcp servers belong to their session",
		"what has no effect is listed", "a directory that does not exist",
	)
}

// Where sessions come from, how they go on and how they end.
func TestReal_OpenCodeSessions(t *testing.T) {
	newOpenCodeRun(t, openCodeConfig).play("http", "opencode-sessions.mjs",
		"session of a terminal is listed and loaded", "resume replays nothing and knows everything", "load replays from the gateway's log",
		"fork knows the past and is on its own", "unknown session", "close and load again", "delete", "two clients on one session",
		"never prompted", "24 turns at once in one server", "the user's .opencode is left as it was", "process killed in the middle of turns",
	)
}

// The gateway is killed in the middle of conversations.
func TestReal_OpenCodeRestart(t *testing.T) {
	newOpenCodeRun(t, openCodeConfig).play("http", "opencode-restart.mjs", "gateway killed and restarted")
}

// There are no credentials.
func TestReal_OpenCodeNoKey(t *testing.T) {
	newOpenCodeRun(t, `{"share": "disabled", "enabled_providers": ["anthropic"]}`).play("http", "opencode-nokey.mjs",
		"no key is said at once", "a session may bring its own key")
}
