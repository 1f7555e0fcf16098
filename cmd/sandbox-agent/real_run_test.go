package main_test

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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

// scenarioFolder has the programs that play scenarios with the official SDK.
var scenarioFolder = filepath.Join("testdata", "node")

// realRun is a gateway with a real agent behind it, a model, and a home.
type realRun struct {
	*bridged
	t       *testing.T
	g       *gateway
	program string
	home    string
	dir     string // for workspaces
	model   *playModel
	control *httptest.Server
	restart chan chan string // answered with the new URL
	base    []string         // of the environment
}

// real waits for the test's turn and makes everything, but starts no gateway.
func (b *bridged) real(t *testing.T) *realRun {
	t.Helper()
	agentcache.NotShort(t)
	if _, err := os.Stat(filepath.Join(scenarioFolder, "node_modules", "ws")); err != nil {
		t.Skipf("the SDK is not installed, run ./task node:deps: %v", err)
	}
	r := &realRun{bridged: b, t: t, restart: make(chan chan string), program: b.program(t)}
	agentcache.Turn(t, b.id)
	var err error
	if r.home, err = filepath.EvalSymlinks(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	r.dir = filepath.Join(r.home, "work")
	if err := os.Mkdir(r.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	m := scriptedmodel.Start(t)
	r.model = newPlayModel(m)
	for name, content := range b.files {
		r.write(name, strings.ReplaceAll(content, "{model}", m.URL))
	}
	r.control = httptest.NewServer(r.controls())
	t.Cleanup(r.control.Close)
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); foreign(name) {
			r.base = append(r.base, name+"=")
		}
	}
	r.base = append(
		r.base, "PATH="+filepath.Dir(agentcache.Node(t))+string(filepath.ListSeparator)+os.Getenv("PATH"), "AGENT="+b.id, "HOME="+r.home, "MODEL="+m.URL,
		// What does not go to loopback goes to the model, which refuses it.
		"HTTPS_PROXY="+m.URL, "HTTP_PROXY="+m.URL, "NO_PROXY=127.0.0.1,localhost",
		"https_proxy="+m.URL, "http_proxy="+m.URL, "no_proxy=127.0.0.1,localhost",
	)
	for _, kv := range b.env {
		r.base = append(r.base, strings.NewReplacer("{model}", m.URL, "{home}", r.home).Replace(kv))
	}
	r.g = newGateway(t, "--default-agent", b.id, "--log-level", "debug")
	r.set("SANDBOX_AGENT_" + strings.ToUpper(r.id) + "_BIN=" + r.program)
	return r
}

// set adds to the environment of the gateway and of the scenarios.
func (r *realRun) set(env ...string) {
	r.base = append(r.base, env...)
	r.g.env = r.base
}

// write makes a file below HOME and returns its path.
func (r *realRun) write(name, content string) string {
	r.t.Helper()
	path := filepath.Join(r.home, filepath.FromSlash(name))
	mode := os.FileMode(0o600)
	if strings.HasPrefix(content, "#!") {
		mode = 0o700
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(content), mode)); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// foreign reports whether a variable of those who run the tests would change what
// agents do.
func foreign(name string) bool {
	return strings.HasSuffix(name, "_API_KEY") || slices.ContainsFunc([]string{
		"ANTHROPIC_", "CLAUDE", "OPENAI_", "CODEX_", "OPENCODE_", "OPENROUTER_", "GOOGLE_", "GEMINI_", "GROQ_", "XAI_", "AMP_", "PI_", "XDG_",
	}, func(p string) bool { return strings.HasPrefix(name, p) })
}

// installed returns the program of an agent, which is installed once per machine.
// A variable SANDBOX_AGENT_TEST_NAME names another version.
func installed(name, version string) func(t *testing.T) string {
	program := sync.OnceValues(func() (string, error) {
		dir, err := agentcache.Dir()
		if err != nil {
			return "", err
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		r, err := install.New(install.Options{DataDir: dir}).Install(ctx, install.Request{
			Agent: name, Version: cmp.Or(os.Getenv("SANDBOX_AGENT_TEST_"+strings.ToUpper(name)), version), Sources: []install.Source{install.NPM},
		})
		return r.Program, err
	})
	return func(t *testing.T) string {
		t.Helper()
		path, err := program()
		if p, ok := errors.AsType[*problem.Error](err); ok && (strings.Contains(p.Detail, "cannot be reached") || strings.Contains(p.Detail, "not found in PATH")) {
			t.Skipf("%s cannot be installed here: %v", name, err)
		}
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
}

// controls is what scenarios ask of the test while they run.
func (r *realRun) controls() http.Handler {
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
type verdict struct {
	Name    string `json:"name"`
	OK      bool   `json:"ok"`
	Detail  string `json:"detail"`
	Millis  int    `json:"ms"`
	Without string `json:"without"` // the reason why the agent does not have it
}

// play runs a topic's scenarios with the official SDK. Each of the names must be
// reported, and nothing else.
func (r *realRun) play(topic string, names ...string) {
	r.t.Helper()
	readScenarios(r.t)
	r.g.start()
	only := os.Getenv("SANDBOX_AGENT_TEST_SCENARIO")
	cmd := exec.CommandContext(r.t.Context(), agentcache.Node(r.t), "run.mjs", topic, r.id) // it ends a scenario in which nothing comes
	cmd.Dir = scenarioFolder
	cmd.Env = append(os.Environ(), r.base...)
	cmd.Env = append(cmd.Env, "GATEWAY="+r.g.url, "CONTROL="+r.control.URL, "WORK="+r.dir, "DATA="+r.g.dir, "PROGRAM="+r.program, "ONLY="+only)
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
	verdicts := map[string]verdict{}
	lines := bufio.NewScanner(&out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var v verdict
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
			case !ran && only != "":
				t.Skip("SANDBOX_AGENT_TEST_SCENARIO names others")
			case !ran:
				t.Error("it was not run")
			case v.Without != "":
				t.Skipf("%s does not have it: %s", r.id, v.Without)
			case !v.OK:
				t.Error(v.Detail)
			default:
				t.Logf("took %d ms", v.Millis)
			}
		})
	}
	for name, v := range verdicts {
		if v.OK {
			v.Detail = "it is in no list of scenarios"
		}
		r.t.Errorf("%s: %s", name, v.Detail)
	}
	if failed != nil {
		r.t.Errorf("%s: %v\n%s", topic, failed, stderr.String())
	}
	if other := r.model.Unknown(); len(other) > 0 && (r.t.Failed() || testing.Verbose()) {
		r.t.Logf("other requests to the model: %q", other)
	}
}

// readScenarios reads what Node does: go test does not see that, and would not run
// the test again when it has changed.
func readScenarios(t *testing.T) {
	t.Helper()
	for _, dir := range []string{".", "agents"} {
		scripts, err := fs.Glob(os.DirFS(scenarioFolder), filepath.Join(dir, "*.mjs"))
		if err != nil || len(scripts) == 0 {
			t.Fatalf("no scenarios: %v", err)
		}
		for _, s := range scripts {
			if _, err := os.ReadFile(filepath.Join(scenarioFolder, s)); err != nil {
				t.Fatal(err)
			}
		}
	}
}
