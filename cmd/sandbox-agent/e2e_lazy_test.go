package main_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/internal/claim"
)

// sellMock publishes a gadget that is the mock agent under another name.
func (s *shop) sellMock(t *testing.T, version string) {
	t.Helper()
	bin, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	body := fmt.Appendf(nil, "#!/bin/sh\ncase \"$1\" in\n--version) echo 'gadget %s' ;;\n--acp) exec '%s' mock-agent --state-dir '%s' ;;\nesac\n%s",
		version, bin, t.TempDir(), strings.Repeat("# nothing\n", 300_000))
	s.list(version, sha256Of(body))
	s.put(gadgetFile, body)
}

// TestLazyInstall names an agent that nobody has installed, in session/new, in
// all dialects: it is installed meanwhile, and the client hears of it.
func TestLazyInstall(t *testing.T) {
	for _, kind := range dialects {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			s.sellMock(t, "1.2.3")
			g := startGateway(t, s.flags()...)
			c := connect(t, g, kind, options{})
			session := c.newSessionWith(map[string]any{"agent": "gadget"})
			if r := c.prompt(session, "hello"); r != "end_turn" {
				t.Errorf("the turn ended with %s", r)
			}
			m := c.findMethod("_sandboxagent/agent/install_progress")
			var p struct {
				Agent, Step, Source string
			}
			if err := json.Unmarshal(m.Params, &p); err != nil || p.Agent != "gadget" || p.Step == "" {
				t.Errorf("progress %s, %v", m.Params, err)
			}
			var agent struct {
				Kind, Version, Source, Path string
				Installed                   bool
			}
			g.get("/v2/agents/gadget", &agent)
			if !agent.Installed || agent.Kind != "native" || agent.Version != "1.2.3" || agent.Source != "registry" || !strings.HasPrefix(agent.Path, g.dir) {
				t.Errorf("the agent is listed as %+v", agent)
			}
		})
	}
}

// TestLazyInstall_ByInitialize names it in initialize.
func TestLazyInstall_ByInitialize(t *testing.T) {
	s := newShop(t)
	s.sellMock(t, "1.2.3")
	g := startGateway(t, s.flags()...)
	c := connect(t, g, wsocket, options{agent: "gadget"})
	if r := c.prompt(c.newSession(), "hello"); r != "end_turn" {
		t.Errorf("the turn ended with %s", r)
	}
	// What came before the answer to initialize is progress and nothing else.
	first := c.messages()[0]
	if first.Method != "_sandboxagent/agent/install_progress" {
		t.Errorf("the first message is %s", first.raw)
	}
}

// A person who waits for an installation sees how it goes on, and an editor's log
// tells of it.
func TestLazyInstall_IsShown(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.sellMock(t, "1.2.3")
	t.Run("prompt", func(t *testing.T) {
		g := startGateway(t, s.flags()...)
		c := &commandLine{t: t, env: append(os.Environ(), "SANDBOX_AGENT_ENDPOINT="+g.url)}
		code, out, errOut := c.run("prompt", "--agent", "gadget", "echo it works")
		if code != 0 || out != "it works\n" {
			t.Fatalf("exit %d\n%s%s", code, out, errOut)
		}
		for _, want := range []string{"installing gadget\n", "registry: download " + s.URL + "/files/gadget\n", "registry: prove gadget\n"} {
			if !strings.Contains(errOut, want) {
				t.Errorf("the output lacks %q:\n%s", want, errOut)
			}
		}
		if strings.ContainsAny(errOut, "\r\x1b") {
			t.Errorf("it has what only terminals understand: %q", errOut)
		}
	})
	t.Run("acp --endpoint", func(t *testing.T) {
		g := startGateway(t, s.flags()...)
		log := filepath.Join(t.TempDir(), "log")
		c := startEditor(t, "lazy", nil, "--agent", "gadget", "--endpoint", g.url, "--log-file", log)
		if r := c.prompt(c.newSession(), "hello"); r != "end_turn" {
			t.Errorf("the turn ended with %s", r)
		}
		b, err := os.ReadFile(log)
		if err != nil || !strings.Contains(string(b), "endpoint="+g.url) || !strings.Contains(string(b), "msg=installing agent=gadget source=registry step=download") {
			t.Errorf("%v, the log:\n%s", err, b)
		}
	})
}

func TestLazyInstall_NotWithRequirePreinstall(t *testing.T) {
	s := newShop(t)
	s.sellMock(t, "1.2.3")
	g := startGateway(t, append(s.flags(), "--require-preinstall")...)
	c := connect(t, g, inline, options{})
	_, err := c.call("session/new", map[string]any{
		"cwd": t.TempDir(), "mcpServers": []any{}, "_meta": map[string]any{"sandboxagent.dev": map[string]any{"agent": "gadget"}},
	})
	if err == nil || !strings.Contains(err.Error(), "sandbox-agent agents install gadget") {
		t.Errorf("error %v, want the command that installs it", err)
	}
	a := g.ask("POST", "/v2/rpc", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1,"_meta":{"sandboxagent.dev":{"agent":"gadget"}}}}`)
	if a.status != 404 || !strings.Contains(string(a.body), "agent_not_installed") || !strings.Contains(string(a.body), "agents install gadget") {
		t.Errorf("initialize: %d %s", a.status, a.body)
	}
	if n := len(s.asked(gadgetFile)); n != 0 {
		t.Errorf("the program was downloaded %d times", n)
	}
	if _, err := os.Stat(filepath.Join(g.dir, "agents", "gadget")); err == nil {
		t.Error("something was installed")
	}
}

// TestInstall_UnderASession installs another version of an agent that is being used: new
// sessions have it, and the old one goes on.
func TestInstall_UnderASession(t *testing.T) {
	s := newShop(t)
	s.sellMock(t, "1.0.0")
	g := startGateway(t, s.flags()...)
	c := connect(t, g, wsocket, options{agent: "gadget"})
	old := c.newSession()
	s.sellMock(t, "2.0.0")
	if r := g.ask("POST", "/v2/agents/gadget/install", `{"agentVersion":"latest"}`); r.status != 200 || !strings.Contains(string(r.body), `"version":"2.0.0"`) {
		t.Fatalf("%d: %s", r.status, r.body)
	}
	var agent struct {
		Processes []struct{ Sessions int }
	}
	_, _ = c.call("authenticate", map[string]any{"methodId": "none"}) // whatever is said of it: a login is for those who wait for it
	if g.get("/v2/agents/gadget", &agent); len(agent.Processes) != 1 || agent.Processes[0].Sessions != 1 {
		t.Errorf("behind a login the agent has the processes %+v", agent.Processes)
	}
	sessions := []string{old, c.newSession(), c.newSession()} // of the client that was there before
	g.get("/v2/agents/gadget", &agent)
	var counts []int
	for _, p := range agent.Processes {
		counts = append(counts, p.Sessions)
	}
	slices.Sort(counts)
	if !slices.Equal(counts, []int{1, 2}) {
		t.Errorf("the processes have %d sessions, want that of 1.0.0 one and that of 2.0.0 two", counts)
	}
	for _, id := range sessions {
		if r := c.prompt(id, "hello"); r != "end_turn" {
			t.Errorf("the turn of %s ended with %s", id, r)
		}
	}
}

// TestInstall_KeepsWhatRuns installs many versions of an agent under a session. The program of its process is not seen
// to be of the first one: that has been replaced by another program. Its files stay as long as it runs.
func TestInstall_KeepsWhatRuns(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.sellMock(t, "1.0.0")
	g := startGateway(t, s.flags()...)
	c := connect(t, g, wsocket, options{agent: "gadget"})
	session := c.newSession()
	install := func(version, body string, want ...string) {
		t.Helper()
		s.sellMock(t, version)
		_ = os.Remove(filepath.Join(g.dir, "agents", ".registry.json")) // it is kept for a day
		if r := g.ask("POST", "/v2/agents/gadget/install", body); r.status != 200 || !strings.Contains(string(r.body), `"version":"`+version+`"`) {
			t.Fatalf("%d: %s", r.status, r.body)
		}
		var there []string
		found, err := filepath.Glob(filepath.Join(g.dir, "agents", "gadget", "[0-9]*"))
		for _, dir := range found {
			there = append(there, filepath.Base(dir))
		}
		if err != nil || !slices.Equal(there, want) {
			t.Errorf("behind %s there are %q, want %q", version, there, want)
		}
	}
	install("1.0.0", `{"reinstall":true}`, "1.0.0") // its files are others then
	install("2.0.0", `{"agentVersion":"latest"}`, "1.0.0", "2.0.0")
	install("3.0.0", `{"agentVersion":"latest"}`, "1.0.0", "2.0.0", "3.0.0")
	if r := c.prompt(session, "hello"); r != "end_turn" {
		t.Errorf("the turn ended with %s", r)
	}
	c.must("session/close", map[string]any{"sessionId": session})
	c.close()
	g.until("nothing of its process is left", func() bool {
		f, err := os.OpenFile(filepath.Join(g.dir, "agents", "gadget", "1.0.0", "running"), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		return claim.File(f) == nil
	})
	install("4.0.0", `{"agentVersion":"latest"}`, "3.0.0", "4.0.0")
}
