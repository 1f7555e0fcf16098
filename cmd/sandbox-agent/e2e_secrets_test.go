package main_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// Secrets and payloads that must not show. Each is looked for as it is and in
// base64.
const (
	keyCanary    = "canary-api-key-5b1d0f6e"
	oauthCanary  = "canary-oauth-token-91c2a7"
	promptCanary = "canary-prompt-text-77e0d3"
	queryCanary  = "canary-in-a-query-c0ffee1"
)

// hunt looks for canaries in what a gateway shows and keeps.
type hunt struct {
	t   *testing.T
	g   *gateway
	col *collector // may be nil
}

// in fails the test for each canary that b has.
func (h *hunt) in(place string, b []byte, canaries ...string) {
	h.t.Helper()
	for _, c := range canaries {
		if i := bytes.Index(b, []byte(c)); i >= 0 {
			h.t.Errorf("%s has %s: ...%s...", place, c, b[max(0, i-200):min(len(b), i+100)])
		}
		// Whatever stands before it, two of three alignments of its middle.
		for skip := range 3 {
			if enc := base64.RawStdEncoding.EncodeToString([]byte(c)[skip:]); bytes.Contains(b, []byte(enc[1:len(enc)-3])) {
				h.t.Errorf("%s has %s in base64", place, c)
			}
		}
	}
}

// commandLines looks at the arguments of every process of the gateway.
func (h *hunt) commandLines(canaries ...string) {
	h.t.Helper()
	found := h.g.processes(h.g.mark)
	if runtime.GOOS == "linux" && len(found) < 2 {
		h.t.Errorf("only %d processes were looked at", len(found))
	}
	for _, p := range found {
		h.in(fmt.Sprintf("the command line of process %d", p.pid), []byte(p.args), canaries...)
	}
}

// environments returns the processes that have the canary in their environment.
func (h *hunt) environments(canary string) (found []string) {
	for _, p := range h.g.processes(h.g.mark) {
		if env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid)); err == nil && bytes.Contains(env, []byte(canary)) {
			found = append(found, filepath.Base(strings.Fields(p.args)[0]))
		}
	}
	return found
}

// shown looks at what the gateway shows about itself and its sessions.
func (h *hunt) shown(session string, canaries ...string) {
	h.t.Helper()
	for _, path := range []string{"/metrics", "/v2/sessions", "/v2/sessions/" + session, "/v2/agents"} {
		h.in("GET "+path, h.g.get(path, nil), canaries...)
	}
	h.in("the log", []byte(h.g.stderr.String()), canaries...)
	if h.col != nil {
		h.in("the traces", h.col.received().raw, canaries...)
	}
}

// kept looks at every file of the data directory but those that skip names.
func (h *hunt) kept(skip func(path string) bool, canaries ...string) {
	h.t.Helper()
	files := 0
	err := filepath.WalkDir(h.g.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || skip != nil && skip(path) {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files++
		h.in(path, b, canaries...)
		return nil
	})
	if err != nil || files == 0 {
		h.t.Errorf("%d files were looked at, %v", files, err)
	}
}

func TestSecrets(t *testing.T) {
	received := filepath.Join(t.TempDir(), "received")
	col := newCollector(t)
	g := newGateway(t, slices.Concat(meteredFlags(t), []string{"--token", token, "--log-level", "debug", "--log-requests"})...)
	g.env = slices.Concat(col.env(), []string{"METERED_LOG=" + received, "OTEL_EXPORTER_OTLP_HEADERS=authorization=canary-of-the-collector"})
	h := &hunt{t: t, g: g, col: col}
	g.start()

	credentials := map[string]any{"apiKey": keyCanary, "oauthToken": oauthCanary}
	for _, agent := range []string{"metered", "mock"} {
		for _, kind := range []dialect{inline, standard, wsocket} {
			c := connect(t, g, kind, options{agent: agent})
			own := map[string]any{"sandboxagent.dev": map[string]any{"credentials": credentials, "isolation": "agent"}}
			wishes := map[string]any{"credentials": credentials, "isolation": "agent"}
			if agent == "metered" {
				// A command of the user's takes none: what is refused is no less secret.
				if _, err := c.call("session/new", map[string]any{"cwd": "/", "mcpServers": []any{}, "_meta": own}); err == nil {
					t.Error("credentials that nobody uses were taken")
				}
				wishes = map[string]any{"isolation": "session"}
			}
			s := c.newSessionWith(wishes)
			c.prompt(s, promptCanary)
			if agent == "metered" {
				_, _ = c.call("session/prompt", promptParams(s, "die"))
				c.prompt(s, promptCanary) // on a process that was started again
			} else {
				dir, err := os.Getwd()
				if err != nil {
					t.Fatal(err)
				}
				// Where credentials have no place they are no less secret.
				for _, method := range []string{"session/fork", "session/load", "session/resume"} {
					if _, err := c.call(method, map[string]any{"sessionId": s, "cwd": dir, "mcpServers": []any{}, "_meta": own}); err != nil {
						t.Errorf("%s: %v", method, err)
					}
				}
			}
			_, _ = c.call("session/prompt", map[string]any{"sessionId": "nobody", "prompt": promptCanary})
			g.post("GET", "/v2/sessions?cwd="+queryCanary+"&q="+queryCanary, "")
			g.post("GET", "/v2/fs/stat?path=/"+queryCanary, "")
			h.commandLines(keyCanary, oauthCanary, promptCanary, queryCanary)
			h.shown(s, keyCanary, oauthCanary, queryCanary, token)
			// The list of sessions tells how each began, and nothing else does.
			h.in("GET /metrics", g.get("/metrics", nil), promptCanary)
			h.in("GET /v2/agents", g.get("/v2/agents", nil), promptCanary)
		}
	}
	g.kill(syscall.SIGTERM)
	raw := col.received().raw
	if len(raw) == 0 {
		t.Fatal("no traces were sent")
	}
	everything := []string{keyCanary, oauthCanary, queryCanary, token, "canary-of-the-collector"}
	h.in("the traces", raw, append(everything, promptCanary)...)
	h.in("the log", []byte(g.stderr.String()), append(everything, promptCanary)...)
	h.kept(nil, everything...)
	// What was said is in the sessions' logs, how it began in their records, and nowhere else.
	h.kept(func(path string) bool {
		return slices.Contains([]string{"log.journal", "session.json"}, filepath.Base(path)) || strings.Contains(path, filepath.Join(g.dir, "state"))
	}, promptCanary)
	if b, err := g.journals(); err != nil || !bytes.Contains(b, []byte(promptCanary)) {
		t.Errorf("the logs have not what was said: %v", err)
	}
	// Agents log their input: they are given credentials in other ways.
	b, err := os.ReadFile(received)
	if err != nil {
		t.Fatal(err)
	}
	h.in("what the agent was sent", b, keyCanary, oauthCanary)
	if !bytes.Contains(b, []byte(promptCanary)) {
		t.Error("the agent was sent no prompt")
	}
}

// The same for agents whose adapters do something with credentials.
func TestReal_Secrets(t *testing.T) {
	t.Parallel()
	for _, b := range []*bridged{&claude, &codex, &opencode, &pi} {
		agent := b.id
		t.Run(agent, func(t *testing.T) {
			t.Parallel()
			r := b.real(t)
			if b == &codex { // which sends the key that it was given
				r.write(".codex/config.toml", strings.NewReplacer(`env_key = "SCRIPTED_KEY"`, "requires_openai_auth = true", "{model}", r.model.URL).Replace(codexConfig))
			}
			col := newCollector(t)
			r.g.env = append(r.g.env, col.env()...)
			r.g.args = append(r.g.args, "--log-requests")
			r.g.start()
			h := &hunt{t: t, g: r.g, col: col}
			c := connect(t, r.g, inline, options{agent: agent})
			s := c.newSessionWith(map[string]any{"credentials": map[string]any{"apiKey": keyCanary}})
			m := c.response(c.start("session/prompt", promptParams(s, "say "+promptCanary)))
			t.Logf("the turn: %s %v", m.Result, m.Error)
			// Who has the key: the agent's environment or files, or the model.
			reached := h.environments(keyCanary)
			if b == &opencode { // which is hidden from others: only its place shows
				reached = h.environments("OPENCODE_AUTH_CONTENT=" + strings.Repeat("*", len(keyCanary)))
			}
			for _, req := range r.model.Requests() {
				if slices.ContainsFunc(slices.Concat(req.Header["X-Api-Key"], req.Header["Authorization"]), func(v string) bool { return strings.Contains(v, keyCanary) }) {
					reached = append(reached, "the model")
				}
			}
			t.Logf("the key reached %q", reached)
			if len(reached) == 0 && runtime.GOOS == "linux" {
				t.Error("the key reached nobody: that it shows nowhere says nothing")
			}
			h.commandLines(keyCanary, promptCanary)
			h.shown(s, keyCanary)
			// Agents name sessions after what was said: it may be there.
			h.in("GET /metrics", r.g.get("/metrics", nil), promptCanary)
			r.g.get("/v2/sessions/"+s+"/events", nil)
			journals, err := r.g.journals()
			if err != nil || len(journals) == 0 {
				t.Errorf("no log: %v", err)
			}
			h.in("the session's log", journals, keyCanary)
			// Claude Code alone is given nothing in files.
			h.kept(func(path string) bool { return b != &claude && strings.Contains(path, filepath.Join(r.g.dir, "state")) }, keyCanary)
			for _, m := range c.messages() {
				h.in("what the client is told", m.raw, keyCanary)
			}
			r.g.kill(syscall.SIGTERM)
			raw := col.received().raw
			if len(raw) == 0 {
				t.Error("no traces were sent")
			}
			h.in("the traces", raw, keyCanary, promptCanary)
			h.in("the log", []byte(r.g.stderr.String()), keyCanary, promptCanary)
		})
	}
}

// An address may hold a password, which is in no error that names the address.
func TestAddresses_PasswordsAreNotSaid(t *testing.T) {
	t.Parallel()
	c := newCommandLine(t)
	gone := "http://user:hunter2@127.0.0.1:1"
	hangsUp := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer hangsUp.Close()
	ends := strings.Replace(hangsUp.URL, "http://", "http://user:hunter2@", 1)
	for _, args := range [][]string{
		{"health", "--endpoint", gone},
		{"prompt", "--endpoint", gone, "hello"},
		{"acp", "--endpoint", gone},
		{"sessions", "list", "--endpoint", gone},
		{"sessions", "watch", "--endpoint", gone},
		{"process", "attach", "--endpoint", gone, "x"},
		{"rpc", "call", "--endpoint", gone, "initialize"},
		{"fs", "get", "--endpoint", gone, "/x"},
		{"health", "--endpoint", ends},
		{"prompt", "--endpoint", ends, "hello"},
		{"acp", "--endpoint", ends},
		{"process", "attach", "--endpoint", ends, "x"},
		{"rpc", "call", "--endpoint", ends, "initialize"},
		{"health", "--endpoint", "http://user:hunter2/x@127.0.0.1:1"},
		{"health", "--endpoint", "http://user:hunter2 x@127.0.0.1:1"},
		{"health", "--endpoint", "ftp" + gone},
		{"health", "--endpoint", "http://user:hunter2@127.0.0.1:none"},
		{"health", "--endpoint", "user:hunter2@127.0.0.1"},
		{"health", "--endpoint", gone + "/nodes/one", "--node", "one"},
		{"server", "--join", gone, "--join-token-file", "/dev/null"},
		{"server", "--join", "ftp" + gone, "--join-token-file", "/dev/null"},
		{"server", "--join", "http://user:hunter2@127.0.0.1:none", "--join-token-file", "/dev/null"},
		{"server", "--join", "http://user:hunter2/x@127.0.0.1", "--join-token-file", "/dev/null"},
		{"server", "--join", "user:hunter2@127.0.0.1", "--join-token-file", "/dev/null"},
		{"agents", "install", "claude", "--mirror", gone},
		{"agents", "install", "claude", "--mirror", "https://x.test=ftp" + gone},
		{"agents", "install", "claude", "--mirror", "https://x.test=http://user:hunter2@127.0.0.1:none"},
		{"agents", "install", "claude", "--source", "vendor", "--mirror", vendorHost + "=" + gone},
		{"agents", "install", "gadget", "--registry-url", gone},
		{"agents", "install", "gadget", "--registry-url", "ftp" + gone},
	} {
		asUser := make([]string, len(args)) // as a token is written
		for i, a := range args {
			if asUser[i] = a; !strings.Contains(a, "hunter2/") { // that would be a host
				asUser[i] = strings.Replace(a, "user:", "", 1)
			}
		}
		for _, args := range [][]string{args, asUser} {
			code, out, errOut := c.run(args...)
			if code == 0 && args[0] != "acp" || strings.Contains(out+errOut, "hunter2") { // which ends well with its input
				t.Errorf("%q: exit %d, %s%s", args, code, out, errOut)
			}
		}
	}
}
