package main_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"

	"sandboxagent.dev/sandbox-agent/internal/freeport"
)

// The official SDK, as it is published, over both of its transports: through the hub to a
// node, and to the hub itself.
func TestOfficialSDK(t *testing.T) {
	dir := filepath.Join("..", "sandbox-agent", "testdata", "node")
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "ws")); err != nil {
		t.Skipf("the SDK is not installed, run ./task node:deps: %v", err)
	}
	f := startHub(t)
	f.startNode("box", "")
	token := f.command("token", "create", "--kind", "client", "--scope", "drive", "--node", "box")
	for _, tt := range []struct{ at, url, script string }{{"node", f.node("box"), "official.mjs"}, {"hub", f.url, "official.mjs"}, {"hub, version 2", f.url, "official2.mjs"}} {
		for _, transport := range []string{"http", "ws"} {
			t.Run(tt.at+", "+transport, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				cmd := exec.CommandContext(ctx, "node", tt.script, transport, tt.url+"/v2/rpc", token, "mock")
				cmd.Dir = dir
				out, err := cmd.CombinedOutput()
				if err != nil || !bytes.HasSuffix(bytes.TrimSpace(out), []byte("ok")) {
					t.Errorf("%v\n%s", err, out)
				}
			})
		}
	}
}

// agent runs a command of the gateway's program at a node.
func (f *fleet) agent(name, token string, args ...string) (string, error) {
	cmd := exec.CommandContext(f.t.Context(), filepath.Join(buildDir, "sandbox-agent"), args...)
	cmd.Env = append(os.Environ(), "SANDBOX_AGENT_ENDPOINT="+f.node(name), "SANDBOX_AGENT_TOKEN="+token)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// The gateway's commands work at a node as at a gateway, files and terminals included.
func TestCommands_AtANode(t *testing.T) {
	f := startHub(t)
	f.startNode("box", "")
	dir := t.TempDir()
	large := bytes.Repeat([]byte("all of it\n"), 4<<20/10)
	if err := os.WriteFile(filepath.Join(dir, "large"), large, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"prompt", "echo through the hub"}, "through the hub"},
		{[]string{"sessions", "list"}, "idle"},
		{[]string{"fs", "put", filepath.Join(dir, "large"), filepath.Join(dir, "copy")}, ""},
		{[]string{"process", "run", "--", "echo", "ran"}, "ran"},
		{[]string{"metrics"}, "sandbox_agent_build_info"},
		{[]string{"health", "--ready"}, "ready"},
	} {
		out, err := f.agent("box", f.admin, tt.args...)
		if err != nil || !strings.Contains(out, tt.want) {
			t.Errorf("%s: %v\n%s", strings.Join(tt.args, " "), err, out)
		}
	}
	if got, err := os.ReadFile(filepath.Join(dir, "copy")); err != nil || sha256.Sum256(got) != sha256.Sum256(large) {
		t.Errorf("%d bytes arrived of %d: %v", len(got), len(large), err)
	}
	out, err := f.agent("box", "the-nodes-own-token", "sessions", "list")
	if err == nil || !strings.Contains(out, "token") {
		t.Errorf("the node's own token is good at the hub: %s", out)
	}
}

// At the hub's own address the commands about sessions work as at a gateway, and all of them with --node.
func TestCommands_AtTheHub(t *testing.T) {
	f := startHub(t)
	f.startNode("box", "")
	f.startNode("other", "")
	at := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), filepath.Join(buildDir, "sandbox-agent"), args...)
		cmd.Env = append(os.Environ(), "SANDBOX_AGENT_ENDPOINT="+f.url, "SANDBOX_AGENT_TOKEN="+f.admin)
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	out, err := at("prompt", "echo somewhere") // by an agent that nobody names
	said := regexp.MustCompile(`session (\S+)`).FindStringSubmatch(out)
	if err != nil || said == nil || !strings.Contains(out, "somewhere") {
		t.Fatalf("%v\n%s", err, out)
	}
	s := said[1]
	file := filepath.Join(t.TempDir(), "session")
	for _, tt := range []struct {
		args  []string
		want  string
		fails bool
	}{
		{[]string{"prompt", "--session", s, "echo again"}, "again", false},
		{[]string{"prompt", "--node", "other", "echo there"}, "there", false},
		{[]string{"rpc", "call", "session/list"}, `"node"`, false},
		{[]string{"sessions", "list"}, s, false},
		{[]string{"sessions", "show", s}, s, false},
		{[]string{"sessions", "events", s}, "somewhere", false},
		{[]string{"sessions", "export", s, "-o", file}, "", false},
		{[]string{"sessions", "close", s}, "", false},
		{[]string{"sessions", "delete", s}, "", false},
		{[]string{"sessions", "import", file, "--node", "other"}, s, false},
		{[]string{"agents", "list"}, "--node NAME", true},
		{[]string{"sessions", "watch", "--limit", "1"}, "mock at other", false},
		{[]string{"agents", "list", "--node", "box"}, "mock", false},
		{[]string{"process", "run", "--node", "box", "--", "echo", "ran"}, "ran", false},
		{[]string{"process", "ls", "--node", "nobody"}, "there is no node nobody", true},
		{[]string{"health", "--ready", "--node", "box"}, "ready", false},
	} {
		out, err := at(tt.args...)
		if (err != nil) != tt.fails || !strings.Contains(out, tt.want) {
			t.Errorf("%s: %v\n%s", strings.Join(tt.args, " "), err, out)
		}
	}
}

// The list of sessions is watched while the hub is killed that has the node, and the clients. The other one, where
// the clients are then, begins anew, says that the node is away when the lease of the one that was killed has run
// out, and that it is back.
func TestWatch_HubIsKilled(t *testing.T) {
	nats := natsServer(t)
	file := filepath.Join(t.TempDir(), "admin")
	if err := os.WriteFile(file, []byte("admin-token-of-both-hubs"), 0o600); err != nil {
		t.Fatal(err)
	}
	hub := func() *fleet {
		p := startProgram(t, "sandbox-hub", "serve", "--port", "0", "--nats", nats, "--admin-token-file", file)
		return &fleet{program: p, admin: "admin-token-of-both-hubs"}
	}
	one, two := hub(), hub()
	at := func(f *fleet) string { return strings.TrimPrefix(f.url, "http://") }
	clients, nodes := newWire(t, at(one)), newWire(t, at(one))
	one.startNode("box", "http://"+nodes.addr())
	cmd := exec.CommandContext(t.Context(), filepath.Join(buildDir, "sandbox-agent"), "sessions", "watch", "--json")
	cmd.Env = append(os.Environ(), "SANDBOX_AGENT_ENDPOINT=http://"+clients.addr(), "SANDBOX_AGENT_TOKEN="+one.admin)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	late := time.AfterFunc(3*patience, func() { _ = cmd.Process.Kill() })
	defer func() {
		late.Stop()
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}()
	dec, resets := json.NewDecoder(out), 0
	until := func(id, state string) {
		t.Helper()
		for {
			var c struct {
				Type    string
				Session struct{ SessionID, Node, State string }
			}
			if err := dec.Decode(&c); err != nil {
				t.Fatalf("it is not told that %s is %s: %v", id, state, err)
			}
			if c.Type == "reset" {
				resets++
			}
			if s := c.Session; s.SessionID == id && s.Node == "box" && s.State == state {
				return
			}
		}
	}
	prompt := func(f *fleet, text string) string {
		t.Helper()
		said, err := f.agent("box", f.admin, "prompt", text)
		id := regexp.MustCompile(`session (\S+)`).FindStringSubmatch(said)
		if err != nil || id == nil {
			t.Fatalf("%v\n%s", err, said)
		}
		return id[1]
	}
	first := prompt(one, "echo the first")
	until(first, "idle")
	clients.lead(at(two))
	one.kill(syscall.SIGKILL)
	until(first, "offline")
	nodes.lead(at(two))
	until(first, "idle")
	two.hasJoined("box")
	until(prompt(two, "echo the second"), "idle")
	if resets != 2 {
		t.Errorf("the list was told anew %d times", resets)
	}
}

// A terminal is a WebSocket with both directions at once.
func TestTerminal_AtANode(t *testing.T) {
	f := startHub(t)
	f.startNode("box", "")
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.node("box")+"/v2/processes", strings.NewReader(`{"command":"cat","tty":true}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+f.admin)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	at := resp.Header.Get("Location")
	if resp.StatusCode != http.StatusCreated || !strings.HasPrefix(at, "/nodes/box/v2/processes/") {
		b, _ := io.ReadAll(resp.Body) // for the message
		t.Fatalf("%s %q: %s", resp.Status, at, b)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	ws, _, err := websocket.Dial(ctx, f.url+at+"/terminal", &websocket.DialOptions{HTTPHeader: http.Header{"Authorization": {"Bearer " + f.admin}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ws.CloseNow() }()
	if err := ws.Write(ctx, websocket.MessageBinary, []byte("typed\n")); err != nil {
		t.Fatal(err)
	}
	for seen := ""; strings.Count(seen, "typed") < 2; { // the terminal's echo, and what cat says
		_, b, err := ws.Read(ctx)
		if err != nil {
			t.Fatalf("%v after %q", err, seen)
		}
		seen += string(b)
	}
}

// Hub and node are killed, each at its time. Both come back by themselves, the session
// is the same one, and the gateway works on while there is no hub.
func TestKilled_ComesBack(t *testing.T) {
	f := startHub(t)
	node := f.startNode("box", "")
	token := f.command("token", "create", "--kind", "client", "--scope", "drive")
	if out, err := f.agent("box", token, "prompt", "echo one"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	f.kill(syscall.SIGKILL)
	local := exec.CommandContext(t.Context(), filepath.Join(buildDir, "sandbox-agent"), "prompt", "echo alone")
	local.Env = append(os.Environ(), "SANDBOX_AGENT_ENDPOINT="+node.url, "SANDBOX_AGENT_TOKEN=the-nodes-own-token")
	if out, err := local.CombinedOutput(); err != nil || !strings.Contains(string(out), "alone") {
		t.Errorf("without the hub: %v\n%s", err, out)
	}
	f.start()
	node.says("joined the hub", 2)
	f.hasJoined("box")
	if out, err := f.agent("box", token, "sessions", "list", "--json"); err != nil || strings.Count(out, `"sessionId"`) < 2 {
		t.Errorf("after the hub was killed: %v\n%s", err, out)
	}

	node.kill(syscall.SIGKILL)
	f.says(`msg="a node is gone"`, 1)
	out, err := f.agent("box", token, "sessions", "list")
	if err == nil || !strings.Contains(out, "Node is offline") {
		t.Errorf("at a node that was killed: %v\n%s", err, out)
	}
	if out := f.command("node", "list"); !strings.Contains(out, "offline") {
		t.Errorf("the list: %s", out)
	}
	node.start()
	f.says(`msg="a node has joined" node=box`, 2)
	if out, err := f.agent("box", token, "sessions", "list", "--json"); err != nil || strings.Count(out, `"sessionId"`) < 2 {
		t.Errorf("after the node was killed: %v\n%s", err, out)
	}
}

// answers reports whether a request is answered as it should be.
func (f *fleet) answers(path string) bool {
	f.t.Helper()
	resp := f.asked(path)
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// The network between node and hub is cut while an agent streams. The client goes on
// where it was: at the node by the gateway's own means, at the hub by the hub's.
func TestCut_ClientGoesOn(t *testing.T) {
	f := startHub(t)
	wire := newWire(t, strings.TrimPrefix(f.url, "http://"))
	node := f.startNode("box", "http://"+wire.addr())
	token := f.command("token", "create", "--kind", "client", "--scope", "drive")
	for _, endpoint := range []string{f.node("box"), f.url} {
		// The node is there: what was cut answers nothing, also when the hub has not noticed yet.
		f.await("the node answers", func() bool { return f.answers("/nodes/box/v2/sessions") })
		e := startEditor(t, endpoint, token)
		session := e.session()
		const n = 3000
		e.prompt(session, fmt.Sprintf("stream %d 10", n))
		chunks := 0
		end := e.response(func() {
			if chunks++; chunks == 1000 || chunks == 50 && endpoint != f.url {
				wire.cut()
			}
		})
		if end.Result.StopReason != "end_turn" || chunks != n {
			t.Errorf("%s: %s %s after %d chunks, want %d", endpoint, end.Result.StopReason, end.Error, chunks, n)
		}
		e.contiguous()
	}
	node.says("joined the hub", 2)
}

// No proxy is the way to a hub of this machine, whichever address it listens on: neither for nodes nor for other hubs.
func TestJoin_BesideAProxy(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }))
	defer proxy.Close()
	for _, name := range []string{"HTTP_PROXY", "http_proxy"} {
		t.Setenv(name, proxy.URL)
	}
	t.Setenv("NO_PROXY", "")
	t.Setenv("no_proxy", "")
	host, nats, admin := freeport.Host(t), natsServer(t), filepath.Join(t.TempDir(), "admin")
	if err := os.WriteFile(admin, []byte("admin-token-of-both-hubs"), 0o600); err != nil {
		t.Fatal(err)
	}
	hub := func() *fleet {
		p := startProgram(t, "sandbox-hub", "serve", "--host", host, "--port", "0", "--nats", nats, "--admin-token-file", admin)
		return &fleet{program: p, admin: "admin-token-of-both-hubs"}
	}
	one, two := hub(), hub()
	two.startNode("box", "", "--join-insecure")
	out, err := one.agent("box", one.admin, "sessions", "list")
	if err != nil {
		t.Errorf("through the other hub: %v, %s", err, out)
	}
}

// A node behind a proxy joins through it.
func TestJoin_ThroughProxy(t *testing.T) {
	cert, key := selfSigned(t, "hub.example")
	f := startHub(t, "--tls-cert", cert, "--tls-key", key)
	to, err := url.Parse(f.url)
	if err != nil {
		t.Fatal(err)
	}
	proxy := connectProxy(t, to.Host)
	dir := t.TempDir()
	file := filepath.Join(dir, "token")
	f.url = "https://" + to.Host
	t.Setenv("SSL_CERT_FILE", cert)
	if err := os.WriteFile(file, []byte(f.command("token", "create", "--kind", "join", "--label", "team=a")), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := binaries(); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HTTPS_PROXY", "http://"+proxy.addr)
	node := startProgram(t, "sandbox-agent", "server", "--port", "0", "--no-token", "--ephemeral", "--default-agent", "mock", "--data-dir", dir,
		"--join", "https://hub.example", "--join-token-file", file, "--node-name", "behind", "--label", "env=dev")
	node.says("joined the hub", 1)
	f.hasJoined("behind")
	if got := proxy.last(); got != "hub.example:443" {
		t.Errorf("the proxy was asked for %q", got)
	}
	t.Setenv("HTTPS_PROXY", "")
	if out := f.command("node", "list", "--label", "team=a", "--label", "env=dev"); !strings.Contains(out, "behind") {
		t.Errorf("the list: %s", out)
	}
}
