package main_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// rawLine is one line of a recording.
type rawLine struct{ Time, From, Line string }

// raw returns what was recorded of a session.
func (g *gateway) raw(session string) []rawLine {
	g.t.Helper()
	var out []rawLine
	for text := range strings.Lines(string(g.get("/v2/sessions/"+session+"/raw", nil))) {
		var l rawLine
		if err := json.Unmarshal([]byte(text), &l); err != nil || l.Time == "" || l.From != "gateway" && l.From != "agent" {
			g.t.Fatalf("%s: %v", text, err)
		}
		out = append(out, l)
	}
	return out
}

// recorded reports whether one side has said something with all of the words.
func recorded(lines []rawLine, from string, words ...string) bool {
	return slices.ContainsFunc(lines, func(l rawLine) bool {
		for _, word := range words {
			if !strings.Contains(l.Line, word) {
				return false
			}
		}
		return l.From == from
	})
}

// status returns the status of a GET.
func (g *gateway) status(path string) int {
	g.t.Helper()
	req, err := http.NewRequestWithContext(g.t.Context(), http.MethodGet, g.url+path, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	g.authorize(req.Header)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// A session that asks for it records its agent's own traffic, and nobody else's, over a kill
// of the gateway, until it is deleted or asks for it no more.
func TestRaw(t *testing.T) {
	g := newGateway(t)
	g.env = []string{"MY_OWN_TOKEN=a-word-of-the-gateway"}
	g.start()
	c := connect(t, g, wsocket, options{})
	other := c.newSession()
	own := c.newSessionWith(map[string]any{
		"includeRaw": true, "env": map[string]string{"SOME_KEY": "a-word-of-the-session"}, "credentials": map[string]string{"apiKey": "a-key-of-the-session"},
	})
	c.prompt(other, "echo the other one")
	servers := []any{
		map[string]any{"name": "db", "command": "true", "args": []any{}, "env": []any{map[string]any{"name": "PASSWORD", "value": "a-word-of-the-server"}}},
		map[string]any{"name": "web", "type": "http", "url": "http://127.0.0.1:1/?key=a-query-of-the-server", "headers": []any{map[string]any{"name": "Authorization", "value": "Bearer a-header-of-the-server"}}},
	}
	named := map[string]any{
		"db":  map[string]any{"command": "true", "env": map[string]string{"STORE": "sql://me:a-word-of-the-server@localhost/x"}},
		"web": map[string]any{"type": "http", "url": "http://127.0.0.1:1/?key=a-query-of-the-server", "headers": map[string]string{"Authorization": "Bearer a-header-of-the-server"}},
	}
	for _, form := range []map[string]any{
		{"mcpServers": servers, "_meta": map[string]any{"sandboxagent.dev": map[string]any{"includeRaw": true}}},
		{"mcpServers": []any{}, "_meta": map[string]any{"sandboxagent.dev": map[string]any{"includeRaw": true, "mcp": named}}},
	} {
		form["cwd"] = t.TempDir()
		var made struct{ SessionID string }
		if err := json.Unmarshal(c.must("session/new", form), &made); err != nil {
			t.Fatal(err)
		}
		with := made.SessionID
		c.prompt(with, "echo I know a-word-of-the-server, a-query-of-the-server, a-header-of-the-server")
		if lines := g.raw(with); !recorded(lines, "gateway", `"session/new"`) || !recorded(lines, "gateway", "I know [removed], [removed], [removed]") || recorded(lines, "gateway", "-of-the-server") {
			t.Errorf("secrets of MCP servers are in it: %v", lines)
		}
	}
	c.prompt(own, "echo I know a-word-of-the-gateway, a-word-of-the-session, a-key-of-the-session, sk-ant-0123456789abcdef0123")
	lines := g.raw(own)
	const cleaned = "I know [removed], [removed], [removed], [removed]"
	for _, l := range []struct {
		from string
		part []string
	}{
		{"gateway", []string{`"initialize"`}},
		{"gateway", []string{`"session/new"`}},
		{"gateway", []string{`"session/prompt"`, cleaned}},
		{"agent", []string{`"agent_message_chunk"`}},
		{"agent", []string{`"stopReason":"end_turn"`}},
	} {
		if !recorded(lines, l.from, l.part...) {
			t.Errorf("the %s did not say %q: %v", l.from, l.part, lines)
		}
	}
	if recorded(lines, "gateway", "the other one") || recorded(lines, "gateway", other) {
		t.Errorf("another session is in it: %v", lines)
	}
	if status := g.status("/v2/sessions/" + other + "/raw"); status != http.StatusNotFound {
		t.Errorf("a session that does not record: %d", status)
	}
	file := filepath.Join(g.dir, "sessions", own, "raw.ndjson")
	if b, err := os.ReadFile(file); err != nil || strings.Contains(string(b), "-of-the-") || strings.Contains(string(b), "sk-ant") {
		t.Errorf("%s: %v", b, err)
	}

	g.kill(syscall.SIGKILL)
	g.start()
	c = connect(t, g, wsocket, options{})
	load := map[string]any{
		"sessionId": own, "cwd": t.TempDir(), "mcpServers": []any{},
		"_meta": map[string]any{"sandboxagent.dev": map[string]any{"credentials": map[string]string{}}},
	}
	c.must("session/load", load)
	c.prompt(own, "echo again")
	if lines = g.raw(own); !recorded(lines, "gateway", cleaned) || !recorded(lines, "gateway", "echo again") {
		t.Errorf("behind a kill: %v", lines)
	}

	load["_meta"] = map[string]any{"sandboxagent.dev": map[string]any{"includeRaw": false}}
	c.must("session/load", load)
	c.prompt(own, "echo for nobody")
	if now := g.raw(own); recorded(now, "gateway", "for nobody") || !recorded(now, "gateway", "echo again") {
		t.Errorf("it is to record no more: %v", now)
	}
	if _, err := c.call("session/new", map[string]any{"cwd": t.TempDir(), "mcpServers": []any{}, "_meta": map[string]any{"sandboxagent.dev": map[string]any{"includeRaw": "yes"}}}); err == nil || !strings.Contains(err.Error(), `includeRaw must be true`) {
		t.Errorf("includeRaw yes: %v", err)
	}
	c.must("session/delete", map[string]any{"sessionId": own})
	if _, err := os.Stat(filepath.Dir(file)); !os.IsNotExist(err) {
		t.Errorf("the session was deleted: %v", err)
	}
}

// A disk that is full, or has no room for the recording, ends that and not the turn. Sessions
// in memory have none. Both are said.
func TestRaw_Cannot(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only where there is /dev/full")
	}
	full := startGateway(t)
	c := connect(t, full, wsocket, options{})
	session := c.newSessionWith(map[string]any{"requestedSessionId": "full"})
	if err := os.Symlink("/dev/full", filepath.Join(full.dir, "sessions", session, "raw.ndjson")); err != nil {
		t.Fatal(err)
	}
	c.must("session/load", map[string]any{
		"sessionId": session, "cwd": t.TempDir(), "mcpServers": []any{}, "_meta": map[string]any{"sandboxagent.dev": map[string]any{"includeRaw": true}},
	})
	if reason := c.prompt(session, "echo hi"); reason != "end_turn" {
		t.Errorf("the turn: %s", reason)
	}
	c.until(func() bool {
		return slices.ContainsFunc(c.inbox, func(m message) bool {
			return m.Method == "session/update" && strings.Contains(string(m.raw), `"field":"includeRaw"`) && strings.Contains(string(m.raw), "no space left")
		})
	}, "the end of the recording")

	memory := startGateway(t, "--ephemeral")
	c = connect(t, memory, wsocket, options{})
	result := c.must("session/new", map[string]any{"cwd": t.TempDir(), "mcpServers": []any{}, "_meta": map[string]any{"sandboxagent.dev": map[string]any{"includeRaw": true}}})
	if !strings.Contains(string(result), `{"field":"includeRaw","reason":"this gateway keeps sessions in memory`) {
		t.Errorf("%s", result)
	}
	var made struct{ SessionID string }
	if err := json.Unmarshal(result, &made); err != nil {
		t.Fatal(err)
	}
	if status := memory.status("/v2/sessions/" + made.SessionID + "/raw"); status != http.StatusNotFound {
		t.Errorf("a session in memory: %d", status)
	}
}
