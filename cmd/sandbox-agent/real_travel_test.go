package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/internal/agentcache"
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
func (r *realRun) elsewhere(home, program string) *realRun {
	r.t.Helper()
	o := *r
	o.program = program
	o.home, o.dir = home, filepath.Join(home, "a", "longer", "way", "to", "work")
	if err := os.MkdirAll(o.dir, 0o755); err != nil {
		r.t.Fatal(err)
	}
	for name, content := range r.files {
		o.write(name, strings.ReplaceAll(content, "{model}", r.model.URL))
	}
	o.g = newGateway(r.t, "--default-agent", r.id, "--log-level", "debug")
	o.base = append(append([]string{}, r.base...), "HOME="+home, "SANDBOX_AGENT_"+strings.ToUpper(r.id)+"_BIN="+program)
	o.g.env = o.base
	return &o
}

// belongTo has a gateway be of another user, whose are its folders. Where tests cannot become
// that user it stays theirs. The user may read everything: programs lie in somebody's home.
func (g *gateway) belongTo(t *testing.T, name string, folders ...string) {
	t.Helper()
	as, err := user.Lookup(name)
	if err != nil || os.Geteuid() != 0 {
		t.Logf("both sides are of one user: tests that are not root's cannot become another (%v)", err)
		return
	}
	uid, _ := strconv.Atoi(as.Uid)
	gid, _ := strconv.Atoi(as.Gid)
	for _, folder := range append(folders, g.dir) {
		if err := os.Chmod(filepath.Dir(folder), 0o711); err != nil { // the test's own
			t.Fatal(err)
		}
		err := filepath.WalkDir(folder, func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, uid, gid))
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	g.wrap = []string{"setpriv", "--reuid", as.Uid, "--regid", as.Gid, "--clear-groups", "--inh-caps=-all,+dac_read_search", "--ambient-caps=-all,+dac_read_search"}
	if _, err := exec.LookPath(g.wrap[0]); err != nil {
		t.Fatalf("root needs setpriv of util-linux to become %s: %v", name, err)
	}
	g.uid = uid
}

// ownedBy checks that all below a folder is of a user.
func ownedBy(t *testing.T, uid int, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if owner, ok := ownerOf(info); ok && owner != uid {
			t.Errorf("%s is of user %d and not of %d", path, owner, uid)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
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

// A conversation that was begun with the agent's own program goes on behind a gateway in
// another home with other paths, and comes back so that the program has all of it.
func TestReal_Travel(t *testing.T) {
	t.Parallel()
	for _, b := range []*bridged{&claude, &codex, &opencode, &pi} {
		t.Run(b.id, func(t *testing.T) {
			t.Parallel()
			testTravel(t, b, b.program, "nobody")
		})
	}
}

// The two sides have different versions of the agent, the older one and the newer one first.
func TestReal_TravelVersions(t *testing.T) {
	agentcache.Long(t, "other versions of agents")
	for older, b := range map[string]bridged{"claude 2.1.300": claude, "codex 0.150.0": codex, "opencode 1.17.19": opencode, "pi " + agentcache.PiLegacy: pi} {
		name, version, _ := strings.Cut(older, " ")
		old := installed(name, version)
		if name == "pi" {
			old = func(t *testing.T) string { return agentcache.PiScript(t, version).File }
		}
		t.Run(older+" to newer", func(t *testing.T) {
			t.Parallel()
			from := b
			from.program = old
			testTravel(t, &from, b.program, "")
		})
		t.Run(older+" from newer", func(t *testing.T) {
			t.Parallel()
			testTravel(t, &b, old, "")
		})
	}
}

// testTravel moves a conversation to another program of the agent, which is run by a user,
// "" for the same, and back.
func testTravel(t *testing.T, b *bridged, there func(*testing.T) string, as string) {
	one := b.real(t)
	top := t.TempDir()
	two := one.elsewhere(filepath.Join(top, "somebody", "else", "entirely"), there(t))
	if as != "" {
		two.g.belongTo(t, as, top)
	}
	one.g.start()
	two.g.start()
	notes, moved := filepath.Join(one.dir, "notes.txt"), filepath.Join(two.dir, "notes.txt")
	if err := os.WriteFile(notes, []byte("the word is heron, it lies in "+notes+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// told looks at what the model was told last.
	told := func(last scriptedmodel.Request, no string, said ...string) {
		t.Helper()
		for _, text := range said {
			if !last.Says(scriptedmodel.Assistant, text) {
				t.Errorf("the model is not told that it said %q: %s", text, last.Body)
			}
		}
		if strings.Contains(string(last.Body), no) {
			t.Errorf("the model is told of the other home: %s", last.Body)
		}
	}
	use := terminals[b.id]
	id := use.begin(one, "read "+notes)

	// The gateway has never seen it.
	one.g.mustCommand("teleport", "--from", one.g.url, "--to", two.g.url, "--agent", b.id, "--agent-cwd", one.dir, "--cwd", two.dir, id)
	var info struct{ Continuity, State, Cwd string }
	two.g.get("/v2/sessions/"+id, &info)
	if info.Continuity != "fresh" || info.Cwd != two.dir {
		t.Errorf("before the agent was seen to have it: %+v", info)
	}
	for _, folder := range []string{".claude", ".codex", ".pi", ".local/share/opencode"} {
		if left := holds(t, filepath.Join(two.home, folder), one.home); len(left) > 0 {
			t.Errorf("the old home is in %q", left)
		}
	}
	c := connect(t, two.g, wsocket, options{agent: b.id, cwd: two.dir})
	c.must("session/load", map[string]any{"sessionId": id, "cwd": two.dir, "mcpServers": []any{}})
	asked := len(two.model.Turns())
	if stop := c.prompt(id, "say still here"); stop != "end_turn" {
		t.Fatal(stop)
	}
	turns := two.model.Turns()[asked:]
	told(turns[len(turns)-1], one.home, "heron, it lies in "+moved)
	// Tools work where the files are now.
	place := filepath.Join(two.dir, "place.txt")
	if err := os.WriteFile(place, []byte("a marsh\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if two.g.uid != 0 {
		if err := os.Chown(place, two.g.uid, -1); err != nil {
			t.Fatal(err)
		}
	}
	asked = len(two.model.Turns())
	if stop := c.prompt(id, "read "+place); stop != "end_turn" {
		t.Fatal(stop)
	}
	turns = two.model.Turns()[asked:]
	told(turns[len(turns)-1], one.home, "still here")
	if last := string(turns[len(turns)-1].Body); !strings.Contains(last, "a marsh") {
		t.Errorf("the file was not read: %s", last)
	}
	if two.g.uid != 0 {
		ownedBy(t, two.g.uid, two.home)
	}
	two.g.get("/v2/sessions/"+id, &info)
	if info.Continuity != "native" {
		t.Errorf("the agent has the conversation, and continuity is %s", info.Continuity)
	}
	after := two.g.events(id)
	if b.id == "pi" { // the one that starts fastest
		testHandoff(t, two, id)
	}

	// What the agent refuses to delete says so.
	if _, err := one.g.command("sessions", "delete", id); err == nil || !strings.Contains(err.Error(), "was not made here") {
		t.Errorf("the terminal's conversation is deleted: %v", err)
	}
	one.g.mustCommand("teleport", "--from", two.g.url, "--to", one.g.url, id)
	same(t, one.g.events(id), after)
	ownedBy(t, os.Geteuid(), one.home)
	told(use.goOn(one, id, "say home again"), two.home, "heron, it lies in "+notes, "still here")
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
