package main_test

import (
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/internal/agentcache"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// piModels makes Pi talk to the scripted model.
const piModels = `{"providers":{"scripted":{"baseUrl":"URL/v1","api":"openai-completions","apiKey":"not-a-key","models":[
	{"id":"one","name":"Model One","reasoning":true,"input":["text","image"],"contextWindow":128000,"maxTokens":4096,"cost":{"input":1,"output":2,"cacheRead":0,"cacheWrite":0}},
	{"id":"two","name":"Model Two","reasoning":true,"input":["text"],"contextWindow":64000,"maxTokens":4096,"cost":{"input":1,"output":2,"cacheRead":0,"cacheWrite":0}}]}}}`

// newPiRun makes everything but starts no gateway. The scenarios are run as those
// of Claude Code are.
func newPiRun(t *testing.T, version, models string) *claudeRun {
	t.Helper()
	if testing.Short() {
		t.Skip("real agents are left out of short runs: they are downloaded and take minutes")
	}
	if _, err := os.Stat(filepath.Join("testdata", "node", "node_modules", "ws")); err != nil {
		t.Skipf("the SDK is not installed, run ./task node:deps: %v", err)
	}
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "PI_") || strings.HasSuffix(name, "_API_KEY") {
			t.Setenv(name, "") // puts it back
			_ = os.Unsetenv(name)
		}
	}
	script := agentcache.PiScript(t, version)
	agentcache.Turn(t)
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	// What people have is one program, which finds its Node.js by itself.
	program := filepath.Join(home, "bin", "pi")
	r := &claudeRun{t: t, program: program, home: home, dir: filepath.Join(home, "work"), restart: make(chan chan string)}
	m := scriptedmodel.Start(t)
	put := func(path, content string, mode os.FileMode) error {
		return errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), mode))
	}
	if err := errors.Join(
		os.Mkdir(r.dir, 0o755),
		put(program, "#!/bin/sh\nexec '"+script.Node+"' '"+script.File+"' \"$@\"\n", 0o700),
		put(filepath.Join(home, ".pi", "agent", "models.json"), strings.ReplaceAll(models, "URL", m.URL), 0o600),
		put(filepath.Join(home, ".pi", "agent", "settings.json"), `{"defaultProvider":"scripted","defaultModel":"one","retry":{"maxRetries":2,"baseDelayMs":50}}`, 0o600),
		put(filepath.Join(home, ".pi", "agent", "prompts", "greet.md"), "---\ndescription: Greets\n---\nsay greetings to $1\n", 0o600),
	); err != nil {
		t.Fatal(err)
	}
	r.model = newClaudeModel(m)
	r.control = httptest.NewServer(r.controls())
	t.Cleanup(r.control.Close)
	r.base = []string{
		"AGENT=pi", "HOME=" + home, "SANDBOX_AGENT_PI_BIN=" + program, "PI_OFFLINE=1", "MODEL=" + m.URL, "NODE=" + script.Node, "VERSION=" + version,
		// What does not go to loopback goes to the model, which refuses it.
		"HTTPS_PROXY=" + m.URL, "HTTP_PROXY=" + m.URL, "NO_PROXY=127.0.0.1,localhost",
		"https_proxy=" + m.URL, "http_proxy=" + m.URL, "no_proxy=127.0.0.1,localhost",
	}
	r.g = newGateway(t, "--default-agent", "pi", "--log-level", "debug")
	r.g.env = r.base
	return r
}

// What a turn shows and how it ends, over HTTP.
func TestReal_PiTurns(t *testing.T) {
	newPiRun(t, agentcache.Pi, piModels).play("http", "pi-turns.mjs",
		"text without duplicates", "thinking", "command output comes live", "failed command", "read is a read, and not asked for", "large output is shortened",
		"edit and write show diffs", "parallel calls", "usage, cost and title", "image, resource and link in a prompt",
		"bad key ends the prompt at once", "provider's refusal is quoted", "max_tokens", "retry is noticed and says nothing twice",
		"cancel while streaming", "cancel at once", "cancel while a command runs", "cancel when idle", "a second prompt waits",
		"compaction", "a command of the user's", "prompt template", "8 sessions at once",
	)
}

// What is asked and what clients set, over WebSocket.
func TestReal_PiAsks(t *testing.T) {
	newPiRun(t, agentcache.Pi, piModels).play("ws", "pi-asks.mjs",
		"permission allowed once is asked again", "permission allowed for the session is not asked again", "permission rejected, and the turn goes on",
		"permission answered as cancelled ends the turn", "cancel while a permission is open", "nobody answers until somebody comes",
		"mode by set_mode", "mode by config option", "permissionMode of a new session", "model and level in a running session",
		"instructions, system prompt and skills", "MCP server", "what has no effect is listed", "extension asks the client",
	)
}

// Where sessions come from, how they go on and how they end.
func TestReal_PiSessions(t *testing.T) {
	newPiRun(t, agentcache.Pi, piModels).play("http", "pi-sessions.mjs",
		"session of a terminal is listed and loaded", "resume replays nothing and knows everything", "load replays from the gateway's log",
		"fork knows the past and is on its own", "unknown session", "close and load again", "delete", "two clients on one session",
		"never prompted", "process killed in the middle of a turn",
	)
}

// The gateway is killed in the middle of conversations.
func TestReal_PiRestart(t *testing.T) {
	newPiRun(t, agentcache.Pi, piModels).play("http", "pi-restart.mjs", "gateway killed and restarted")
}

// There are no credentials.
func TestReal_PiNoKey(t *testing.T) {
	newPiRun(t, agentcache.Pi, `{"providers":{}}`).play("http", "pi-nokey.mjs", "no key is said at once", "a session may bring its own key")
}

// A version that does not say when it has settled.
func TestReal_PiEarly(t *testing.T) {
	newPiRun(t, agentcache.PiLegacy, piModels).play("http", "pi-early.mjs",
		"a turn with a permission", "cancel while a permission is open", "model by a new process", "what it lacks is said", "killed and resumed",
	)
}
