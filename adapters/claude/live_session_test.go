package claude

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// terminal has a conversation as people have them, without the gateway.
func (w *world) terminal(id string, prompts ...string) {
	w.T.Helper()
	for i, p := range prompts {
		args := []string{"-p", p, "--session-id", id}
		if i > 0 {
			args = []string{"-p", p, "--resume", id}
		}
		cmd := exec.Command(w.Program.Path, append(w.Program.Args, args...)...)
		cmd.Dir, cmd.Env = w.Cwd, append(os.Environ(), w.Env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			w.T.Fatalf("%v: %s", err, out)
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
	return &acp.LoadSessionRequest{SessionID: id, Cwd: w.Cwd, MCPServers: []acp.MCPServer{}}
}

func TestLive_SessionsOfATerminal(t *testing.T) {
	const id = "11111111-2222-4333-8444-555555555555"
	w := newWorld(t)
	notes := w.Write("notes.txt", "the notes\n", 0o600)
	w.Write(".claude/settings.json", `{"permissions":{"allow":["Read"]}}`, 0o600)
	w.terminal(id, "say one", "read "+notes)
	c := w.open(acp.ClientCapabilities{}, nil)

	var list acp.ListSessionsResponse
	if err := json.Unmarshal(c.Must(acp.MethodSessionList, &acp.ListSessionsRequest{Cwd: &w.Cwd}), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Sessions) != 1 || list.Sessions[0].SessionID != id || *list.Sessions[0].Title != "say one" || !bridge.SameDir(list.Sessions[0].Cwd, w.Cwd) ||
		!acp.MemberBool(list.Sessions[0].Meta[acp.MetaKey], "native") {
		b, _ := acp.Encode(list)
		t.Errorf("listed %s", b)
	}
	from := c.Seen()
	c.Must(acp.MethodSessionLoad, w.load(id))
	got := c.Updates(from)
	if heard(got) != "say one|read "+notes || !strings.HasPrefix(bridgetest.Said(got), "oneread: ") {
		t.Errorf("replayed %q and %q", heard(got), bridgetest.Said(got))
	}
	calls := 0
	for _, u := range got {
		if u.ToolCallUpdate != nil && u.ToolCallUpdate.Status == acp.ToolCallStatusCompleted {
			calls++
		}
	}
	if calls != 1 {
		t.Errorf("%d calls were replayed\n%s", calls, c.Quote())
	}
	if _, got := c.Turn(id, "recall"); !strings.Contains(bridgetest.Said(got), "say one") {
		t.Errorf("it remembers %q", bridgetest.Said(got))
	}
	if _, e := c.Call(acp.MethodSessionDelete, &acp.DeleteSessionRequest{SessionID: id}); e == nil || !strings.Contains(e.Message, "not made here") {
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
			if _, e := c.Call(method, w.load(bad)); e == nil || e.Code != acp.CodeResourceNotFound {
				t.Errorf("%s of %q: %v", method, bad, e)
			}
		}
	}
	other := *w.load(id)
	other.Cwd = t.TempDir()
	if _, e := c.Call(acp.MethodSessionLoad, &other); e == nil || !strings.Contains(e.Message, w.Cwd) {
		t.Errorf("loading in another directory: %v", e)
	}
	if _, e := c.Call(acp.MethodSessionNew, &acp.NewSessionRequest{Cwd: "/no/such/dir", MCPServers: []acp.MCPServer{}}); e == nil || e.Code != acp.CodeInvalidParams {
		t.Errorf("a session in no directory: %v", e)
	}
}

func TestLive_ForkAndDelete(t *testing.T) {
	w := newWorld(t)
	c := w.open(acp.ClientCapabilities{}, nil)
	id := c.New("")
	c.Turn(id, "say one")
	c2 := w.open(acp.ClientCapabilities{}, nil)
	fork := acp.SessionID(acp.MemberString(c2.Must(acp.MethodSessionFork, &acp.ForkSessionRequest{SessionID: id, Cwd: w.Cwd}), "sessionId"))
	if fork == id || fork == "" {
		t.Fatalf("the fork has the id %q", fork)
	}
	c2.Close()
	// Opened again before anything was said in it.
	c3 := w.open(acp.ClientCapabilities{}, nil)
	from := c3.Seen()
	c3.Must(acp.MethodSessionLoad, w.load(fork))
	if got := c3.Updates(from); heard(got) != "say one" {
		t.Errorf("the fork replays %q", heard(got))
	}
	if _, got := c3.Turn(fork, "recall"); !strings.Contains(bridgetest.Said(got), "say one") {
		t.Errorf("the fork remembers %q", bridgetest.Said(got))
	}
	c.Turn(id, "say two")
	files := transcriptsOf(c.env())
	for _, one := range []acp.SessionID{id, fork} {
		if _, err := files.find(string(one), w.Cwd); err != nil {
			t.Fatal(err)
		}
	}
	c3.Must(acp.MethodSessionDelete, &acp.DeleteSessionRequest{SessionID: fork})
	if _, err := files.find(string(fork), ""); err == nil {
		t.Error("the deleted transcript is there")
	}
	if _, err := files.find(string(id), w.Cwd); err != nil {
		t.Errorf("another transcript is gone: %v", err)
	}
	if _, e := c3.Call(acp.MethodSessionLoad, w.load(fork)); e == nil || e.Code != acp.CodeResourceNotFound {
		t.Errorf("loading the deleted session: %v", e)
	}
}

// env is the environment of the client's programs.
func (c *client) env() []string { return bridge.Environ(c.W.Options(), nil) }

func TestLive_ClearGoesOnUnderAnotherNativeID(t *testing.T) {
	w := newWorld(t)
	c := w.open(acp.ClientCapabilities{}, nil)
	id := c.New("")
	c.Turn(id, "say before")
	c.Turn(id, "/clear")
	c.Turn(id, "say after")
	c.Close()
	again := w.open(acp.ClientCapabilities{}, nil)
	from := again.Seen()
	again.Must(acp.MethodSessionLoad, w.load(id))
	if got := heard(again.Updates(from)); !strings.HasSuffix(got, "say after") || strings.Contains(got, "say before") {
		t.Errorf("replayed %q", got)
	}
	if _, got := again.Turn(id, "recall"); !strings.Contains(bridgetest.Said(got), "say after") || strings.Contains(bridgetest.Said(got), "say before") {
		t.Errorf("it remembers %q", bridgetest.Said(got))
	}
	var list acp.ListSessionsResponse
	if err := json.Unmarshal(again.Must(acp.MethodSessionList, &acp.ListSessionsRequest{}), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Sessions) != 1 || list.Sessions[0].SessionID != id {
		b, _ := acp.Encode(list)
		t.Errorf("listed %s", b)
	}
	again.Must(acp.MethodSessionDelete, &acp.DeleteSessionRequest{SessionID: id})
	if left, _ := filepath.Glob(filepath.Join(w.Home, ".claude", "projects", "*", "*.jsonl")); len(left) > 0 {
		t.Errorf("left after deletion: %v", left)
	}
}

func TestLive_ReopenedBeforeAnythingWasSaid(t *testing.T) {
	w := newWorld(t)
	c := w.open(acp.ClientCapabilities{}, nil)
	id := c.New("")
	c.Close()
	again := w.open(acp.ClientCapabilities{}, nil)
	again.Must(acp.MethodSessionResume, w.load(id))
	if stop, got := again.Turn(id, "say hi"); stop != acp.StopReasonEndTurn || bridgetest.Said(got) != "hi" {
		t.Errorf("%s, %q", stop, bridgetest.Said(got))
	}
}

func TestLive_ParallelCallsAreReplayedWhole(t *testing.T) {
	w := newWorld(t)
	w.Write(".claude/settings.json", `{"permissions":{"allow":["Read"]}}`, 0o600)
	a, b := w.Write("a.txt", "aaa\n", 0o600), w.Write("b.txt", "bbb\n", 0o600)
	w.Model.On(scriptedmodel.Exactly("both"),
		scriptedmodel.Step{scriptedmodel.ReadFile(a), scriptedmodel.ReadFile(b), scriptedmodel.ReadFile(filepath.Join(w.Home, "none"))},
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
	id := c.New("")
	_, live := c.Turn(id, "both")
	c.Close()
	again := w.open(acp.ClientCapabilities{}, nil)
	from := again.Seen()
	again.Must(acp.MethodSessionLoad, w.load(id))
	for what, list := range map[string][]acp.SessionUpdate{"live": live, "replayed": again.Updates(from)} {
		if calls, completed, failed := count(list); calls != 3 || completed != 2 || failed != 1 {
			t.Errorf("%s: %d calls, %d completed, %d failed\n%s", what, calls, completed, failed, again.Quote())
		}
	}
}
