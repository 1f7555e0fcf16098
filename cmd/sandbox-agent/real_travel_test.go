package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// command runs the program as somebody at a shell does, against the gateway.
func (g *gateway) command(args ...string) (out string, err error) {
	g.t.Helper()
	bin, err := binary()
	if err != nil {
		g.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(g.t.Context(), 4*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Env = append(os.Environ(), "SANDBOX_AGENT_ENDPOINT="+g.url)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err = cmd.Run(); err != nil {
		err = &rpcError{Message: strings.TrimSpace(stderr.String())}
	}
	return stdout.String(), err
}

func (g *gateway) mustCommand(args ...string) string {
	g.t.Helper()
	out, err := g.command(args...)
	if err != nil {
		g.t.Fatalf("%s: %v", strings.Join(args, " "), err)
	}
	return out
}

// elsewhere is another home of the same agent, with a gateway of its own and the same
// model.
func (r *realRun) elsewhere(home string) *realRun {
	r.t.Helper()
	o := *r
	o.home, o.dir = home, filepath.Join(home, "a", "longer", "way", "to", "work")
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		r.t.Fatal(err)
	}
	for name, content := range r.files {
		o.write(name, strings.ReplaceAll(content, "{model}", r.model.URL))
	}
	o.g = newGateway(r.t, "--default-agent", r.id, "--log-level", "debug")
	o.base = append(append([]string{}, r.base...), "HOME="+home)
	o.g.env = o.base
	return &o
}

// holds returns the files below a folder that have a text in them.
func holds(t *testing.T, dir, text string) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil // of a program that is just ending
		}
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte(text)) {
			found = append(found, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// A session goes to another home with other paths, on from there, and back.
func TestReal_Travel(t *testing.T) {
	t.Parallel()
	for _, b := range []*bridged{&claude, &codex, &opencode, &pi} {
		t.Run(b.id, func(t *testing.T) {
			t.Parallel()
			testTravel(t, b)
		})
	}
}

func testTravel(t *testing.T, b *bridged) {
	one := b.real(t)
	one.set()
	two := one.elsewhere(filepath.Join(t.TempDir(), "somebody", "else", "entirely"))
	one.g.start()
	two.g.start()
	notes := filepath.Join(one.dir, "notes.txt")
	if err := os.WriteFile(notes, []byte("it lies in "+notes+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	allow := func(c *client, id string, text string) {
		c.t.Helper()
		turn := (&real{t: t, g: c.g, realAgent: &realAgent{id: b.id}, model: one.model.Model}).prompt(c, id, text, choose(t, "allow_once"))
		if turn.err != nil || turn.stop != "end_turn" {
			t.Fatalf("%s: %s, %v", text, turn.stop, turn.err)
		}
	}
	c := connect(t, one.g, wsocket, options{agent: b.id, cwd: one.dir})
	id := c.newSession()
	allow(c, id, "say the word is heron")
	allow(c, id, "read "+notes)
	before := one.g.events(id)

	file := filepath.Join(t.TempDir(), "session.tar.zst")
	one.g.mustCommand("sessions", "export", id, "-o", file)
	if _, err := one.g.command("sessions", "import", file); err == nil || !strings.Contains(err.Error(), "is here already") {
		t.Errorf("a session that is here is imported: %v", err)
	}
	if _, err := two.g.command("sessions", "import", file, "--cwd", filepath.Join(two.dir, "missing")); err == nil || !strings.Contains(err.Error(), "cannot be used") {
		t.Errorf("a session without a directory: %v", err)
	}
	out := two.g.mustCommand("sessions", "import", file, "--cwd", two.dir)
	if !strings.Contains(out, id) {
		t.Errorf("imported: %s", out)
	}
	var info struct{ Continuity, State, Cwd string }
	two.g.get("/v2/sessions/"+id, &info)
	if info.Continuity != "fresh" || info.State != "dormant" || info.Cwd != two.dir {
		t.Errorf("before the agent was seen to have it: %+v", info)
	}
	same(t, two.g.events(id), before)
	for _, folder := range []string{".claude", ".codex", ".pi", ".local/share/opencode"} {
		if left := holds(t, filepath.Join(two.home, folder), one.home); len(left) > 0 {
			t.Errorf("the old home is in %q", left)
		}
	}

	asked := len(two.model.Turns())
	d := connect(t, two.g, wsocket, options{agent: b.id, cwd: two.dir})
	d.must("session/load", map[string]any{"sessionId": id, "cwd": two.dir, "mcpServers": []any{}})
	allow(d, id, "say still here")
	turns := two.model.Turns()[asked:]
	last := turns[len(turns)-1]
	moved := filepath.Join(two.dir, "notes.txt")
	if !last.Says(scriptedmodel.User, "say the word is heron") || !last.Says(scriptedmodel.Assistant, "the word is heron") || !strings.Contains(string(last.Body), moved) {
		t.Errorf("the model is not told of what was said before: %s", last.Body)
	}
	if strings.Contains(string(last.Body), one.home) {
		t.Errorf("the model is told of the old home: %s", last.Body)
	}
	two.g.get("/v2/sessions/"+id, &info)
	if info.Continuity != "native" {
		t.Errorf("the agent has the conversation, and continuity is %s", info.Continuity)
	}
	after := two.g.events(id)
	if b.id == "pi" { // the one that starts fastest
		testHandoff(t, two, id)
	}

	if b.id == "opencode" {
		return // its program is started for each step of the way back, which is the same again
	}
	// And back.
	back := filepath.Join(t.TempDir(), "back.tar.zst")
	two.g.mustCommand("sessions", "export", id, "-o", back)
	one.g.mustCommand("sessions", "delete", id)
	one.g.mustCommand("sessions", "import", back, "--cwd", one.dir)
	same(t, one.g.events(id), after)
	e := connect(t, one.g, wsocket, options{agent: b.id, cwd: one.dir})
	e.must("session/load", map[string]any{"sessionId": id, "cwd": one.dir, "mcpServers": []any{}})
	asked = len(one.model.Turns())
	allow(e, id, "say home again")
	turns = one.model.Turns()[asked:]
	last = turns[len(turns)-1]
	if !last.Says(scriptedmodel.Assistant, "still here") || !last.Says(scriptedmodel.User, "say the word is heron") || strings.Contains(string(last.Body), two.home) {
		t.Errorf("the model is told: %s", last.Body)
	}
}

// same compares what sessions have in their logs.
func same(t *testing.T, got, want []event) {
	t.Helper()
	if len(got) < len(want) {
		t.Fatalf("%d events, want %d", len(got), len(want))
	}
	for i := range want {
		a, _ := json.Marshal(got[i])
		b, _ := json.Marshal(want[i])
		if !bytes.Equal(a, b) {
			t.Fatalf("event %d: %s, want %s", i, a, b)
		}
	}
}

// testHandoff has another session go on with a conversation.
func testHandoff(t *testing.T, r *realRun, from string) {
	t.Helper()
	var made struct{ SessionID string }
	if err := json.Unmarshal([]byte(r.g.mustCommand("sessions", "handoff", from, "--agent", r.id, "--json")), &made); err != nil {
		t.Fatal(err)
	}
	c := connect(t, r.g, wsocket, options{agent: r.id, cwd: r.dir})
	c.must("session/load", map[string]any{"sessionId": made.SessionID, "cwd": r.dir, "mcpServers": []any{}})
	asked := len(r.model.Turns())
	for _, text := range []string{"say taken over", "say and on"} {
		if stop := c.prompt(made.SessionID, text); stop != "end_turn" {
			t.Errorf("%s: %s", text, stop)
		}
	}
	turns := r.model.Turns()[asked:]
	if first := turns[0]; !first.Says(scriptedmodel.User, "<conversation-so-far") || !first.Says(scriptedmodel.User, "the word is heron") {
		t.Errorf("the model is told: %s", first.Body)
	}
	if last := turns[len(turns)-1]; strings.Count(string(last.Body), "</conversation-so-far") != 1 {
		t.Errorf("the conversation is given again: %s", last.Body)
	}
	// Opened again, the agent shows it as a part of the prompt: it is nothing new.
	c.must("session/close", map[string]any{"sessionId": made.SessionID})
	said := len(r.g.events(made.SessionID))
	c.must("session/load", map[string]any{"sessionId": made.SessionID, "cwd": r.dir, "mcpServers": []any{}})
	if stop := c.prompt(made.SessionID, "say once more"); stop != "end_turn" {
		t.Errorf("once more: %s", stop)
	}
	for _, e := range r.g.events(made.SessionID)[said:] {
		if strings.Contains(string(e.Message), "conversation-so-far") || strings.Contains(string(e.Message), "taken over") {
			t.Errorf("it is said again: %s", e.Message)
		}
	}
}
