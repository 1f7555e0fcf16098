package main_test

import (
	"context"
	"errors"
	"fmt"
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

// codexProgram installs Codex once per machine.
var codexProgram = sync.OnceValues(func() (string, error) {
	dir, err := agentcache.Dir()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	r, err := install.New(install.Options{DataDir: dir}).Install(ctx, install.Request{
		Agent: "codex", Version: agentcache.Codex, Sources: []install.Source{install.NPM},
	})
	return r.Program, err
})

// codexConfig makes Codex talk to the scripted model, with the classic tools.
const codexConfig = `model = "gpt-5.5"
model_provider = "scripted"
[model_providers.scripted]
name = "Scripted"
base_url = "%s/v1"
wire_api = "responses"
env_key = "SCRIPTED_KEY"
request_max_retries = 1
stream_max_retries = 2
[analytics]
enabled = false
`

// newCodexRun makes everything but starts no gateway. The scenarios are run as
// those of Claude Code are.
func newCodexRun(t *testing.T, config string) *claudeRun {
	t.Helper()
	if testing.Short() {
		t.Skip("real agents are left out of short runs: they are downloaded and take minutes")
	}
	if _, err := os.Stat(filepath.Join("testdata", "node", "node_modules", "ws")); err != nil {
		t.Skipf("the SDK is not installed, run ./task node:deps: %v", err)
	}
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "OPENAI_") || strings.HasPrefix(name, "CODEX_") {
			t.Setenv(name, "") // puts it back
			_ = os.Unsetenv(name)
		}
	}
	agentcache.Turn(t)
	program, err := codexProgram()
	if p, ok := errors.AsType[*problem.Error](err); ok && (strings.Contains(p.Detail, "cannot be reached") || strings.Contains(p.Detail, "not found in PATH")) {
		t.Skipf("codex %s cannot be installed here: %v", agentcache.Codex, err)
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
	if err := errors.Join(os.Mkdir(r.dir, 0o755), os.Mkdir(filepath.Join(home, ".codex"), 0o700),
		os.WriteFile(filepath.Join(home, ".codex", "config.toml"), []byte(strings.ReplaceAll(config, "%s", m.URL)), 0o600)); err != nil {
		t.Fatal(err)
	}
	r.model = newClaudeModel(m)
	r.control = httptest.NewServer(r.controls())
	t.Cleanup(r.control.Close)
	r.base = []string{
		"AGENT=codex", "HOME=" + home, "SANDBOX_AGENT_CODEX_BIN=" + program, "SCRIPTED_KEY=not-a-key", "MODEL=" + m.URL,
		// What does not go to loopback goes to the model, which refuses it.
		"HTTPS_PROXY=" + m.URL, "HTTP_PROXY=" + m.URL, "NO_PROXY=127.0.0.1,localhost",
		"https_proxy=" + m.URL, "http_proxy=" + m.URL, "no_proxy=127.0.0.1,localhost",
	}
	r.g = newGateway(t, "--default-agent", "codex", "--log-level", "debug")
	r.g.env = r.base
	return r
}

// What a turn shows and how it ends, over HTTP.
func TestReal_CodexTurns(t *testing.T) {
	newCodexRun(t, codexConfig).play("http", "codex-turns.mjs",
		"text without duplicates", "thinking", "command output", "live output of a command", "failed command", "read is a read", "large output is shortened",
		"patch shows diffs", "plan", "parallel commands", "usage and title", "image, resource and link in a prompt",
		"bad key ends the prompt at once", "provider's refusal is quoted", "max_tokens", "retry after a failure is noticed",
		"cancel while streaming", "cancel at once", "cancel while a command runs", "cancel when idle", "a second prompt waits",
		"compaction", "review", "subagent belongs to its call", "command left running ends behind its turn", "20 sessions at once",
	)
}

// What the agent asks and what clients set, over WebSocket.
func TestReal_CodexAsks(t *testing.T) {
	newCodexRun(t, codexConfig).play("ws", "codex-asks.mjs",
		"permission allowed once is asked again", "permission allowed for the session is not asked again", "permission rejected, and the turn goes on",
		"permission answered as cancelled ends the turn", "cancel while a permission is open", "patch outside the workspace asks with its diff",
		"question as elicitation", "question by the gateway's extension", "question as permission requests",
		"mode by set_mode", "mode by config option", "permissionMode write and bypass", "model and effort in a running session",
		"instructions and appended system prompt", "skills", "additional directories", "what has no effect is listed",
	)
}

// Where sessions come from, how they go on and how they end.
func TestReal_CodexSessions(t *testing.T) {
	newCodexRun(t, codexConfig).play("http", "codex-sessions.mjs",
		"session of a terminal is listed and loaded", "resume replays nothing and knows everything", "load replays from the gateway's log",
		"fork knows the past and is on its own", "unknown session", "close and load again", "delete", "two clients on one session",
		"never prompted", "process killed in the middle of turns",
	)
}

// The gateway is killed in the middle of conversations.
func TestReal_CodexRestart(t *testing.T) {
	newCodexRun(t, codexConfig).play("http", "codex-restart.mjs", "gateway killed and restarted")
}

// The gateway is killed while somebody is asked for a permission.
func TestReal_CodexRestartWhileAsking(t *testing.T) {
	newCodexRun(t, codexConfig).play("http", "codex-restart-asking.mjs", "gateway killed while a permission is open")
}

// A version without an app-server, which the tested one plays.
func TestReal_CodexEarly(t *testing.T) {
	r := newCodexRun(t, codexConfig)
	early := filepath.Join(r.home, "early")
	script := "#!/bin/sh\nif [ \"$1\" = app-server ]; then echo \"error: unrecognized subcommand 'app-server'\" >&2; exit 2; fi\nexec '" + r.program + "' \"$@\"\n"
	if err := os.WriteFile(early, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	r.g.env = append(r.base, "SANDBOX_AGENT_CODEX_BIN="+early)
	r.play("http", "codex-early.mjs", "what an early version gives, and a restart")
}

// There are no credentials.
func TestReal_CodexNoKey(t *testing.T) {
	newCodexRun(t, fmt.Sprintf("model = %q\n", "gpt-5.5")).play("http", "codex-nokey.mjs", "no key is said at once", "a session may bring its own key")
}
