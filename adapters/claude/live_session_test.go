package claude

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// terminal has a conversation as people have them, without the gateway.
func (w *world) terminal(id string, prompts ...string) {
	w.t.Helper()
	for i, p := range prompts {
		args := []string{"-p", p, "--session-id", id}
		if i > 0 {
			args = []string{"-p", p, "--resume", id}
		}
		cmd := exec.Command(w.prog.Path, append(w.prog.Args, args...)...)
		cmd.Dir, cmd.Env = w.cwd, append(os.Environ(), w.env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			w.t.Fatalf("%v: %s", err, out)
		}
	}
}

func heard(list []acp.SessionUpdate) string {
	var out []string
	for _, u := range list {
		if u.UserMessageChunk != nil && u.UserMessageChunk.Content.Text != nil {
			out = append(out, u.UserMessageChunk.Content.Text.Text)
		}
	}
	return strings.Join(out, "|")
}

func (w *world) load(id acp.SessionID) *acp.LoadSessionRequest {
	return &acp.LoadSessionRequest{SessionID: id, Cwd: w.cwd, MCPServers: []acp.MCPServer{}}
}

func TestLive_SessionsOfATerminal(t *testing.T) {
	const id = "11111111-2222-4333-8444-555555555555"
	w := newWorld(t)
	notes := w.write("notes.txt", "the notes\n", 0o600)
	w.write(".claude/settings.json", `{"permissions":{"allow":["Read"]}}`, 0o600)
	w.terminal(id, "say one", "read "+notes)
	c := w.open(acp.ClientCapabilities{}, nil)

	var list acp.ListSessionsResponse
	if err := json.Unmarshal(c.must(acp.MethodSessionList, &acp.ListSessionsRequest{Cwd: &w.cwd}), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Sessions) != 1 || list.Sessions[0].SessionID != id || *list.Sessions[0].Title != "say one" || !sameDir(list.Sessions[0].Cwd, w.cwd) ||
		!acp.MemberBool(list.Sessions[0].Meta[acp.MetaKey], "native") {
		b, _ := acp.Encode(list)
		t.Errorf("listed %s", b)
	}
	from := c.seen()
	c.must(acp.MethodSessionLoad, w.load(id))
	got := c.updates(from)
	if heard(got) != "say one|read "+notes || !strings.HasPrefix(spoken(got), "oneread: ") {
		t.Errorf("replayed %q and %q", heard(got), spoken(got))
	}
	calls := 0
	for _, u := range got {
		if u.ToolCallUpdate != nil && u.ToolCallUpdate.Status == acp.ToolCallStatusCompleted {
			calls++
		}
	}
	if calls != 1 {
		t.Errorf("%d calls were replayed\n%s", calls, c.quote())
	}
	if _, got := c.turn(id, "recall"); !strings.Contains(spoken(got), "say one") {
		t.Errorf("it remembers %q", spoken(got))
	}
	if _, e := c.call(acp.MethodSessionDelete, &acp.DeleteSessionRequest{SessionID: id}); e == nil || !strings.Contains(e.Message, "not made here") {
		t.Errorf("a terminal's session was deleted: %v", e)
	}
}

func TestLive_UnknownSessionsAndOtherDirectories(t *testing.T) {
	const id, unknown = "11111111-2222-4333-8444-555555555555", "99999999-2222-4333-8444-555555555555"
	w := newWorld(t)
	w.terminal(id, "say one")
	c := w.open(acp.ClientCapabilities{}, nil)
	for _, bad := range []acp.SessionID{unknown, "abc", "../../etc/passwd", ""} {
		for _, method := range []string{acp.MethodSessionLoad, acp.MethodSessionResume, acp.MethodSessionFork} {
			if _, e := c.call(method, w.load(bad)); e == nil || e.Code != acp.CodeResourceNotFound {
				t.Errorf("%s of %q: %v", method, bad, e)
			}
		}
	}
	other := *w.load(id)
	other.Cwd = t.TempDir()
	if _, e := c.call(acp.MethodSessionLoad, &other); e == nil || !strings.Contains(e.Message, w.cwd) {
		t.Errorf("loading in another directory: %v", e)
	}
	if _, e := c.call(acp.MethodSessionNew, &acp.NewSessionRequest{Cwd: "/no/such/dir", MCPServers: []acp.MCPServer{}}); e == nil || e.Code != acp.CodeInvalidParams {
		t.Errorf("a session in no directory: %v", e)
	}
}

func TestLive_ForkAndDelete(t *testing.T) {
	w := newWorld(t)
	c := w.open(acp.ClientCapabilities{}, nil)
	id := c.new("")
	c.turn(id, "say one")
	c2 := w.open(acp.ClientCapabilities{}, nil)
	fork := acp.SessionID(acp.MemberString(c2.must(acp.MethodSessionFork, &acp.ForkSessionRequest{SessionID: id, Cwd: w.cwd}), "sessionId"))
	if fork == id || fork == "" {
		t.Fatalf("the fork has the id %q", fork)
	}
	c2.close()
	// Opened again before anything was said in it.
	c3 := w.open(acp.ClientCapabilities{}, nil)
	from := c3.seen()
	c3.must(acp.MethodSessionLoad, w.load(fork))
	if got := c3.updates(from); heard(got) != "say one" {
		t.Errorf("the fork replays %q", heard(got))
	}
	if _, got := c3.turn(fork, "recall"); !strings.Contains(spoken(got), "say one") {
		t.Errorf("the fork remembers %q", spoken(got))
	}
	c.turn(id, "say two")
	files := transcriptsOf(c.env())
	for _, one := range []acp.SessionID{id, fork} {
		if _, err := files.find(string(one), w.cwd); err != nil {
			t.Fatal(err)
		}
	}
	c3.must(acp.MethodSessionDelete, &acp.DeleteSessionRequest{SessionID: fork})
	if _, err := files.find(string(fork), ""); err == nil {
		t.Error("the deleted transcript is there")
	}
	if _, err := files.find(string(id), w.cwd); err != nil {
		t.Errorf("another transcript is gone: %v", err)
	}
	if _, e := c3.call(acp.MethodSessionLoad, w.load(fork)); e == nil || e.Code != acp.CodeResourceNotFound {
		t.Errorf("loading the deleted session: %v", e)
	}
}

// env is the environment of the client's programs.
func (c *client) env() []string { return bridge.Environ(optionsOf(c.w), nil) }

func TestLive_ClearGoesOnUnderAnotherNativeID(t *testing.T) {
	w := newWorld(t)
	c := w.open(acp.ClientCapabilities{}, nil)
	id := c.new("")
	c.turn(id, "say before")
	c.turn(id, "/clear")
	c.turn(id, "say after")
	c.close()
	again := w.open(acp.ClientCapabilities{}, nil)
	from := again.seen()
	again.must(acp.MethodSessionLoad, w.load(id))
	if got := heard(again.updates(from)); !strings.HasSuffix(got, "say after") || strings.Contains(got, "say before") {
		t.Errorf("replayed %q", got)
	}
	if _, got := again.turn(id, "recall"); !strings.Contains(spoken(got), "say after") || strings.Contains(spoken(got), "say before") {
		t.Errorf("it remembers %q", spoken(got))
	}
	var list acp.ListSessionsResponse
	if err := json.Unmarshal(again.must(acp.MethodSessionList, &acp.ListSessionsRequest{}), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Sessions) != 1 || list.Sessions[0].SessionID != id {
		b, _ := acp.Encode(list)
		t.Errorf("listed %s", b)
	}
	again.must(acp.MethodSessionDelete, &acp.DeleteSessionRequest{SessionID: id})
	if left, _ := filepath.Glob(filepath.Join(w.home, ".claude", "projects", "*", "*.jsonl")); len(left) > 0 {
		t.Errorf("left after deletion: %v", left)
	}
}

func TestLive_ReopenedBeforeAnythingWasSaid(t *testing.T) {
	w := newWorld(t)
	c := w.open(acp.ClientCapabilities{}, nil)
	id := c.new("")
	c.close()
	again := w.open(acp.ClientCapabilities{}, nil)
	again.must(acp.MethodSessionResume, w.load(id))
	if stop, got := again.turn(id, "say hi"); stop != acp.StopReasonEndTurn || spoken(got) != "hi" {
		t.Errorf("%s, %q", stop, spoken(got))
	}
}

func TestLive_ParallelCallsAreReplayedWhole(t *testing.T) {
	w := newWorld(t)
	w.write(".claude/settings.json", `{"permissions":{"allow":["Read"]}}`, 0o600)
	a, b := w.write("a.txt", "aaa\n", 0o600), w.write("b.txt", "bbb\n", 0o600)
	w.model.On(scriptedmodel.Exactly("both"),
		scriptedmodel.Step{scriptedmodel.ReadFile(a), scriptedmodel.ReadFile(b), scriptedmodel.ReadFile(filepath.Join(w.home, "none"))},
		scriptedmodel.Step{scriptedmodel.Say("read")})
	count := func(list []acp.SessionUpdate) (calls, completed, failed int) {
		for _, u := range list {
			if u.ToolCall != nil {
				calls++
			}
			if u.ToolCallUpdate != nil && u.ToolCallUpdate.Status == acp.ToolCallStatusCompleted {
				completed++
			}
			if u.ToolCallUpdate != nil && u.ToolCallUpdate.Status == acp.ToolCallStatusFailed {
				failed++
			}
		}
		return
	}
	c := w.open(acp.ClientCapabilities{}, nil)
	id := c.new("")
	_, live := c.turn(id, "both")
	c.close()
	again := w.open(acp.ClientCapabilities{}, nil)
	from := again.seen()
	again.must(acp.MethodSessionLoad, w.load(id))
	for what, list := range map[string][]acp.SessionUpdate{"live": live, "replayed": again.updates(from)} {
		if calls, completed, failed := count(list); calls != 3 || completed != 2 || failed != 1 {
			t.Errorf("%s: %d calls, %d completed, %d failed\n%s", what, calls, completed, failed, again.quote())
		}
	}
}
