package main_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/adapters/install"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// claudeVersion is what the scenarios run with: SANDBOX_AGENT_TEST_CLAUDE names
// another. It is no variable, because go test does not see what is read from the
// environment before the tests begin.
func claudeVersion() string {
	return cmp.Or(os.Getenv("SANDBOX_AGENT_TEST_CLAUDE"), agentcache.Claude)
}

// claudeProgram installs Claude Code once per machine.
var claudeProgram = sync.OnceValues(func() (string, error) {
	dir, err := agentcache.Dir()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	r, err := install.New(install.Options{DataDir: dir}).Install(ctx, install.Request{
		Agent: "claude", Version: claudeVersion(), Sources: []install.Source{install.NPM},
	})
	return r.Program, err
})

// claudeRun is a gateway with the real Claude Code behind it, and a model.
type claudeRun struct {
	t       *testing.T
	g       *gateway
	program string
	home    string
	dir     string // for workspaces
	model   *claudeModel
	control *httptest.Server
	restart chan chan string // answered with the new URL
	base    []string         // of the environment
}

// newClaudeRun makes everything but starts no gateway; env is the gateway's.
func newClaudeRun(t *testing.T, env ...string) *claudeRun {
	t.Helper()
	program, err := claudeProgram()
	if p, ok := errors.AsType[*problem.Error](err); ok && (strings.Contains(p.Detail, "cannot be reached") || strings.Contains(p.Detail, "not found in PATH")) {
		t.Skipf("claude %s cannot be installed here: %v", claudeVersion(), err)
	}
	if err != nil {
		t.Fatal(err)
	}
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	r := &claudeRun{t: t, program: program, home: home, dir: filepath.Join(home, "work"), restart: make(chan chan string)}
	if err := os.Mkdir(r.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	m := scriptedmodel.Start(t)
	r.model = newClaudeModel(m)
	r.control = httptest.NewServer(r.controls())
	t.Cleanup(r.control.Close)
	r.base = append([]string{
		"HOME=" + home, "SANDBOX_AGENT_CLAUDE_BIN=" + program, "IS_SANDBOX=",
		"ANTHROPIC_BASE_URL=" + m.URL, "ANTHROPIC_API_KEY=sk-ant-not-a-key",
		"DISABLE_AUTOUPDATER=1", "DISABLE_TELEMETRY=1", "DISABLE_ERROR_REPORTING=1", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
		// What does not go to loopback goes to the model, which refuses it.
		"HTTPS_PROXY=" + m.URL, "HTTP_PROXY=" + m.URL, "NO_PROXY=127.0.0.1,localhost",
		"https_proxy=" + m.URL, "http_proxy=" + m.URL, "no_proxy=127.0.0.1,localhost",
	}, env...)
	r.g = newGateway(t, "--default-agent", "claude", "--log-level", "debug")
	r.g.env = r.base
	return r
}

// controls is what scenarios ask of the test while they run.
func (r *claudeRun) controls() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /heard", func(w http.ResponseWriter, req *http.Request) {
		_ = json.NewEncoder(w).Encode(r.model.heard(req.FormValue("text")))
	})
	mux.HandleFunc("POST /open", func(_ http.ResponseWriter, req *http.Request) { r.model.open(req.FormValue("gate")) })
	mux.HandleFunc("GET /log", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(r.g.stderr.String())) })
	mux.HandleFunc("POST /restart", func(w http.ResponseWriter, req *http.Request) {
		url := make(chan string, 1)
		select {
		case r.restart <- url:
			_ = json.NewEncoder(w).Encode(map[string]string{"url": <-url})
		case <-req.Context().Done():
		}
	})
	return mux
}

// verdict is a line that a scenario prints.
type claudeVerdict struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"`
	Millis int    `json:"ms"`
}

// play runs a file of scenarios with the official SDK. Each of the names must be
// reported, and nothing else.
func (r *claudeRun) play(transport, file string, names ...string) {
	r.t.Helper()
	// What Node reads go test does not see, and would not run the test again.
	scripts, err := filepath.Glob(filepath.Join("testdata", "node", "*.mjs"))
	if err != nil || len(scripts) == 0 {
		r.t.Fatalf("no scenarios: %v", err)
	}
	for _, s := range scripts {
		if _, err := os.ReadFile(s); err != nil {
			r.t.Fatal(err)
		}
	}
	r.g.start()
	ctx, cancel := context.WithTimeout(r.t.Context(), 6*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", "claude.mjs", file)
	cmd.Dir = filepath.Join("testdata", "node")
	cmd.Env = append(os.Environ(), r.base...)
	cmd.Env = append(cmd.Env, "TRANSPORT="+transport, "GATEWAY="+r.g.url, "CONTROL="+r.control.URL, "WORK="+r.dir,
		"DATA="+r.g.dir, "PROGRAM="+r.program, "ONLY="+os.Getenv("SANDBOX_AGENT_TEST_SCENARIO"))
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	var failed error
	for ended := false; !ended; {
		select {
		case failed = <-done:
			ended = true
		case url := <-r.restart:
			r.g.kill(syscall.SIGKILL)
			r.g.start()
			url <- r.g.url
		}
	}
	verdicts := map[string]claudeVerdict{}
	lines := bufio.NewScanner(&out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var v claudeVerdict
		if json.Unmarshal(lines.Bytes(), &v) != nil || v.Name == "" || verdicts[v.Name].Name != "" {
			r.t.Errorf("the scenarios printed %s", lines.Bytes())
			continue
		}
		verdicts[v.Name] = v
	}
	for _, name := range names {
		r.t.Run(name, func(t *testing.T) {
			v, ran := verdicts[name]
			delete(verdicts, name)
			switch {
			case !ran && os.Getenv("SANDBOX_AGENT_TEST_SCENARIO") != "":
				t.Skip("SANDBOX_AGENT_TEST_SCENARIO names others")
			case !ran:
				t.Error("it was not run")
			case !v.OK:
				t.Error(v.Detail)
			default:
				t.Logf("took %d ms", v.Millis)
			}
		})
	}
	for name := range verdicts {
		r.t.Errorf("scenario %q is in no list", name)
	}
	if failed != nil {
		r.t.Errorf("%s: %v\n%s", file, failed, stderr.String())
	}
	if other := r.model.Unknown(); len(other) > 0 && (r.t.Failed() || testing.Verbose()) {
		r.t.Logf("other requests to the model: %q", other)
	}
}

// claudeReady waits for this test's turn.
func claudeReady(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("real agents are left out of short runs: they are downloaded and take minutes")
	}
	if _, err := os.Stat(filepath.Join("testdata", "node", "node_modules", "ws")); err != nil {
		t.Skipf("the SDK is not installed, run ./task node:deps: %v", err)
	}
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		if strings.HasPrefix(name, "ANTHROPIC_") || strings.HasPrefix(name, "CLAUDE") {
			t.Setenv(name, "") // puts it back
			_ = os.Unsetenv(name)
		}
	}
	agentcache.Turn(t)
}

// What a turn shows and how it ends, over HTTP.
func TestReal_ClaudeTurns(t *testing.T) {
	claudeReady(t)
	newClaudeRun(t).play("http", "claude-turns.mjs",
		"text without duplicates", "thinking", "read tool", "write tool shows a diff of a new file", "edit tool shows the right old text",
		"command output", "failed command", "parallel calls with results out of order", "image result", "todo list as plan", "tasks as plan",
		"commands are listed and run", "usage with size, tokens and cost", "session title", "compaction", "retry after 429 is noticed",
		"retry after 529 is a thought without notices", "bad key ends the prompt at once", "provider's refusal of a request is quoted",
		"max_tokens", "refusal", "max turns", "cancel while streaming", "cancel while a tool runs", "cancel while a permission is open",
		"cancel when idle", "a second prompt waits", "a turn that nobody prompted", "image, resource and link in a prompt",
		"subagent belongs to its call", "permission inside a subagent",
	)
}

// What the agent asks and what clients set, over WebSocket.
func TestReal_ClaudeAsks(t *testing.T) {
	claudeReady(t)
	newClaudeRun(t).play("ws", "claude-asks.mjs",
		"permission allowed once is asked again", "permission allowed always is not asked again", "permission rejected",
		"rejected, and the turn goes on", "permission answered as cancelled ends the turn", "question as elicitation",
		"question by the gateway's extension", "question as permission requests", "plan accepted, each edit is asked for",
		"plan accepted with all edits", "plan accepted, the model decides", "plan rejected", "mode by set_mode", "mode by config option",
		"bypass as root needs a sandbox", "model and effort in a running session", "model, effort and mode at the start",
		"MCP server on stdio", "MCP server asks the user", "skills", "instructions and appended system prompt", "additional directories",
		"environment", "what has no effect is listed",
	)
}

// Where sessions come from, how they go on and how they end.
func TestReal_ClaudeSessions(t *testing.T) {
	claudeReady(t)
	newClaudeRun(t).play("http", "claude-sessions.mjs",
		"sessions of a terminal are listed", "session of a terminal is loaded with its replay", "resume replays nothing and knows everything",
		"load replays from the gateway's log", "fork knows the past and is on its own", "unknown session",
		"close ends the process, load opens it again", "delete removes session and transcript", "two clients on one session",
		"process killed in the middle of a turn", "credentials of a session stay secret",
	)
}

// The gateway is killed in the middle of conversations.
func TestReal_ClaudeRestart(t *testing.T) {
	claudeReady(t)
	newClaudeRun(t).play("ws", "claude-restart.mjs", "gateway killed and restarted")
}

// Nobody has given the agent credentials.
func TestReal_ClaudeNoKey(t *testing.T) {
	claudeReady(t)
	newClaudeRun(t, "ANTHROPIC_API_KEY=").play("ws", "claude-nokey.mjs", "no key is said at once", "a session may bring its own key")
}
