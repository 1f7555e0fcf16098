package main_test

import (
	"cmp"
	"errors"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters/amp"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// ampSettings are the user's own: what most scenarios run is allowed, listing is
// not.
const ampSettings = `{
	"amp.permissions": [
		{"tool": "Bash", "matches": {"cmd": "ls *"}, "action": "ask"},
		{"tool": "Bash", "matches": {"cmd": ["echo *", "sleep *", "nohup *"]}, "action": "allow"}
	]
}`

// newAmpRun makes everything but starts no gateway. The scenarios are run as those
// of Claude Code are.
func newAmpRun(t *testing.T, env ...string) *claudeRun {
	t.Helper()
	if testing.Short() {
		t.Skip("real agents are left out of short runs: they are downloaded and take minutes")
	}
	if _, err := os.Stat(filepath.Join("testdata", "node", "node_modules", "ws")); err != nil {
		t.Skipf("the SDK is not installed, run ./task node:deps: %v", err)
	}
	if _, err := exec.LookPath("node"); err != nil {
		t.Skipf("node is not installed, and this release of Amp is a script for it: %v", err)
	}
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "AMP_") || strings.HasPrefix(name, "XDG_") {
			t.Setenv(name, "") // puts it back
			_ = os.Unsetenv(name)
		}
	}
	program := agentcache.NPM(t, "@sourcegraph/amp/dist/main.js", "@sourcegraph/amp@"+cmp.Or(os.Getenv("SANDBOX_AGENT_TEST_AMP"), amp.Verified))
	agentcache.Turn(t)
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := &claudeRun{t: t, program: program, home: home, dir: filepath.Join(home, "work"), restart: make(chan chan string)}
	m := scriptedmodel.Start(t)
	folder := filepath.Join(home, ".config", "amp")
	if err := errors.Join(os.Mkdir(r.dir, 0o755), os.MkdirAll(folder, 0o700),
		os.WriteFile(filepath.Join(folder, "settings.json"), []byte(ampSettings), 0o600)); err != nil {
		t.Fatal(err)
	}
	r.model = newClaudeModel(m)
	r.control = httptest.NewServer(r.controls())
	t.Cleanup(r.control.Close)
	r.base = append([]string{
		"AGENT=amp", "HOME=" + home, "HOME_OF_AMP=" + home, "SANDBOX_AGENT_AMP_BIN=" + program, "MODEL=" + m.URL,
		"AMP_URL=" + m.URL, "AMP_API_KEY=sgamp_somebody", "AMP_SKIP_UPDATE_CHECK=1",
		// What does not go to loopback goes to the model, which refuses it.
		"HTTPS_PROXY=" + m.URL, "HTTP_PROXY=" + m.URL, "NO_PROXY=127.0.0.1,localhost",
		"https_proxy=" + m.URL, "http_proxy=" + m.URL, "no_proxy=127.0.0.1,localhost",
	}, env...)
	r.g = newGateway(t, "--default-agent", "amp", "--log-level", "debug")
	r.g.env = r.base
	return r
}

// What a turn shows and how it ends, over HTTP.
func TestReal_AmpTurns(t *testing.T) {
	newAmpRun(t).play("http", "amp-turns.mjs",
		"whole messages and thoughts, each once", "several prompts in one process, and the title", "command output and exit code",
		"read, write and edit with diffs", "parallel calls and an unknown tool", "resource and link in a prompt, images refused",
		"provider's refusal is quoted, and the session goes on", "max_tokens and refusal", "cancel while the model thinks",
		"cancel at once", "cancel while a command runs", "cancel when idle", "a second prompt waits",
		"a server that a turn leaves running outlives it, not the session",
	)
}

// What the agent asks and what clients set, over WebSocket.
func TestReal_AmpAsks(t *testing.T) {
	newAmpRun(t).play("ws", "amp-asks.mjs",
		"permission allowed once is asked again", "permission allowed always is not asked again",
		"permission rejected, and the model hears why", "permission answered as cancelled ends the turn",
		"permission answered late", "cancel while a permission is open", "another client answers", "parallel permissions",
		"permission of a subagent", "readonly and bypass", "the user's settings are honoured and unchanged",
		"settings of a workspace that decide are refused", "mode at the start, and one that is not allowed",
		"instructions, appended system prompt and skills", "what has no effect is listed",
	)
}

// Where sessions come from, how they go on and how they end.
func TestReal_AmpSessions(t *testing.T) {
	newAmpRun(t).play("http", "amp-sessions.mjs",
		"thread of a terminal is listed and loaded", "resume replays nothing and knows everything",
		"load replays from the gateway's log", "never prompted, closed and loaded", "unknown session", "two sessions at once",
		"process killed in the middle of a turn",
	)
}

// The gateway is killed in the middle of conversations.
func TestReal_AmpRestart(t *testing.T) {
	newAmpRun(t).play("ws", "amp-restart.mjs", "gateway killed and restarted")
}

// Nobody has given the agent an access token.
func TestReal_AmpNoKey(t *testing.T) {
	newAmpRun(t, "AMP_API_KEY=").play("ws", "amp-nokey.mjs", "no key is said at once", "a session may bring its own key")
}
