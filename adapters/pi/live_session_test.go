package pi

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// terminal has Pi hold a conversation as people do in a terminal.
func (w *world) terminal(prompt string) {
	w.T.Helper()
	cmd := exec.Command(w.Program.Path, slices.Concat(w.Program.Args, []string{"--print", prompt})...)
	cmd.Dir = w.Cwd
	cmd.Env = append(cmd.Environ(), w.Env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		w.T.Fatalf("%v: %s", err, out)
	}
}

// userSaid joins the prompts of a replay.
func userSaid(list []acp.SessionUpdate) string {
	var all []string
	for _, u := range list {
		if u.UserMessageChunk != nil && u.UserMessageChunk.Content.Text != nil {
			all = append(all, u.UserMessageChunk.Content.Text.Text)
		}
	}
	return strings.Join(all, "|")
}

func (c *client) list() []acp.SessionInfo {
	c.W.T.Helper()
	var r acp.ListSessionsResponse
	if err := json.Unmarshal(c.Must(acp.MethodSessionList, map[string]any{"cwd": c.W.Cwd}), &r); err != nil {
		c.W.T.Fatal(err)
	}
	return r.Sessions
}

func (w *world) load(id acp.SessionID) *acp.LoadSessionRequest {
	return &acp.LoadSessionRequest{SessionID: id, Cwd: w.Cwd, MCPServers: []acp.MCPServer{}}
}

func TestLive_SessionOfATerminal(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		w.terminal("run echo in a terminal")
		c := w.open(noticing, nil)
		all := c.list()
		if len(all) != 1 || *all[0].Title != "run echo in a terminal" || !acp.MemberBool(all[0].Meta[acp.MetaKey], "native") {
			t.Fatalf("the sessions are %s", bridgetest.Encoded(all))
		}
		id := all[0].SessionID
		from := c.Seen()
		c.Must(acp.MethodSessionLoad, w.load(id))
		past := c.Updates(from)
		if userSaid(past) != "run echo in a terminal" || !strings.Contains(bridgetest.Said(past), "in a terminal") {
			t.Errorf("the replay has %q and %q", userSaid(past), bridgetest.Said(past))
		}
		done := false
		for _, u := range past {
			done = done || u.ToolCallUpdate != nil && u.ToolCallUpdate.Status == acp.ToolCallStatusCompleted && strings.Contains(text(u.ToolCallUpdate.Content), "in a terminal")
		}
		if !done {
			t.Errorf("the replay lacks the call\n%s", c.Quote())
		}
		if _, got := c.Turn(id, "recall"); !strings.Contains(bridgetest.Said(got), "in a terminal") {
			t.Errorf("it knows %q", bridgetest.Said(got))
		}
		if _, e := c.Call(acp.MethodSessionDelete, map[string]any{"sessionId": id}); e == nil || !strings.Contains(e.Message, "not made here") {
			t.Errorf("deleting what is not ours: %v", e)
		}
		for _, unknown := range []string{"no-such-session", "../../etc/passwd", "5a7e8a0c-0000-4000-8000-00000000abcd"} {
			for _, method := range []string{acp.MethodSessionLoad, acp.MethodSessionResume} {
				if _, e := c.Call(method, w.load(acp.SessionID(unknown))); e == nil || e.Code != acp.CodeResourceNotFound {
					t.Errorf("%s of %s: %v", method, unknown, e)
				}
			}
		}
		c.Close()
		elsewhere := w.open(acp.ClientCapabilities{}, nil)
		r := w.load(id)
		r.Cwd = t.TempDir()
		if _, e := elsewhere.Call(acp.MethodSessionLoad, r); e == nil || e.Code != acp.CodeInvalidParams || !strings.Contains(e.Message, w.Cwd) {
			t.Errorf("loading in another directory: %v", e)
		}
	})
}

func TestLive_ResumeKnowsEverything(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		c := w.open(acp.ClientCapabilities{}, nil)
		id := c.New("")
		c.Turn(id, "say a word to remember")
		silent := c.New("")
		c.Must(acp.MethodSessionClose, map[string]any{"sessionId": id})
		if left, _ := filepath.Glob(filepath.Join(w.State, "run", "*")); len(left) != 1 {
			t.Errorf("%d folders of runs are there, want that of the other session", len(left))
		}
		c.Close()
		again := w.open(acp.ClientCapabilities{}, nil)
		from := again.Seen()
		again.Must(acp.MethodSessionResume, &acp.ResumeSessionRequest{SessionID: id, Cwd: w.Cwd})
		if got := again.Updates(from); bridgetest.Said(got)+userSaid(got) != "" {
			t.Errorf("resume replays %q", bridgetest.Said(got))
		}
		if _, got := again.Turn(id, "recall"); !strings.Contains(bridgetest.Said(got), "a word to remember") {
			t.Errorf("it knows %q", bridgetest.Said(got))
		}
		again.Must(acp.MethodSessionResume, &acp.ResumeSessionRequest{SessionID: silent, Cwd: w.Cwd})
		if stop, _ := again.Turn(silent, "say at last"); stop != acp.StopReasonEndTurn {
			t.Errorf("the session that was never prompted ended with %s", stop)
		}
		again.Close()
		third := w.open(acp.ClientCapabilities{}, nil)
		from = third.Seen()
		third.Must(acp.MethodSessionLoad, w.load(silent))
		if got := third.Updates(from); userSaid(got) != "say at last" || bridgetest.Said(got) != "at last" {
			t.Errorf("the replay has %q and %q", userSaid(got), bridgetest.Said(got))
		}
		third.Close()
		if left, _ := filepath.Glob(filepath.Join(w.State, "run", "*")); len(left) != 0 {
			t.Errorf("left behind: %v", left)
		}
	})
}

func TestLive_ForkListDeleteTitle(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		c := w.open(noticing, nil)
		id := c.New("")
		c.Turn(id, "say common past")
		r := c.Must(acp.MethodSessionFork, &acp.ForkSessionRequest{SessionID: id, Cwd: w.Cwd, MCPServers: []acp.MCPServer{}})
		fork := acp.SessionID(acp.MemberString(r, "sessionId"))
		c.Turn(fork, "say only the fork")
		if _, got := c.Turn(fork, "recall"); fork == id || !strings.Contains(bridgetest.Said(got), "common past") || !strings.Contains(bridgetest.Said(got), "only the fork") {
			t.Errorf("the fork knows %q", bridgetest.Said(got))
		}
		if _, got := c.Turn(id, "recall"); strings.Contains(bridgetest.Said(got), "only the fork") {
			t.Errorf("the source knows %q", bridgetest.Said(got))
		}
		from := c.Seen()
		c.Must(acp.MethodSessionSetTitle, map[string]any{"sessionId": fork, "title": "The fork"})
		c.Await("the title", from, has(`"title":"The fork"`))
		titles := map[acp.SessionID]string{}
		for _, one := range c.list() {
			titles[one.SessionID] = *one.Title
			if acp.MemberBool(one.Meta[acp.MetaKey], "native") {
				t.Errorf("%s counts as made in a terminal", one.SessionID)
			}
		}
		if len(titles) != 2 || titles[fork] != "The fork" || titles[id] != "say common past" {
			t.Errorf("the sessions are %v", titles)
		}
		c.Must(acp.MethodSessionDelete, map[string]any{"sessionId": fork})
		if all := c.list(); len(all) != 1 || all[0].SessionID != id {
			t.Errorf("after a deletion the sessions are %s", bridgetest.Encoded(all))
		}
		if _, e := c.Call(acp.MethodSessionLoad, w.load(fork)); e == nil || e.Code != acp.CodeResourceNotFound {
			t.Errorf("loading a deleted session: %v", e)
		}
	})
}

// TestLive_BrokenConversation: lines that are none, or cut off, do not keep the
// rest from being replayed.
func TestLive_BrokenConversation(t *testing.T) {
	w := newWorld(t)
	w.script("two", scriptedmodel.Step{scriptedmodel.Say("second answer")})
	w.terminal("say first answer")
	files, _ := filepath.Glob(filepath.Join(w.Home, ".pi/agent/sessions/*/*.jsonl"))
	if len(files) != 1 {
		t.Fatalf("conversations: %v", files)
	}
	f, err := os.OpenFile(files[0], os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("no JSON\n{\"type\":\"message\",\"id\":\"x"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	c := w.open(acp.ClientCapabilities{}, nil)
	id := c.list()[0].SessionID
	from := c.Seen()
	c.Must(acp.MethodSessionLoad, w.load(id))
	if got := c.Updates(from); bridgetest.Said(got) != "first answer" {
		t.Errorf("the replay has %q", bridgetest.Said(got))
	}
}

// TestLive_ChosenModelIsGone: the conversation goes on with another one.
func TestLive_ChosenModelIsGone(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		c := w.open(acp.ClientCapabilities{}, nil)
		id := c.New("")
		c.set(id, configModel, "scripted/two")
		c.Turn(id, "say a word to remember")
		c.Close()
		for _, name := range []string{"models.json", "settings.json"} {
			path := filepath.Join(w.Home, ".pi/agent", name)
			w.Write(path, strings.Replace(w.Read(path), `"scripted"`, `"other"`, 1), 0o600)
		}
		again := w.open(acp.ClientCapabilities{}, nil)
		r := again.Must(acp.MethodSessionLoad, w.load(id))
		if !strings.Contains(string(r), `"field":"model"`) {
			t.Errorf("it is not said that the model is gone: %s", r)
		}
		if got := again.Updates(0); strings.Count(userSaid(got), "say a word") != 1 {
			t.Errorf("the replay has %q", userSaid(got))
		}
		if _, got := again.Turn(id, "recall"); !strings.Contains(bridgetest.Said(got), "a word to remember") {
			t.Errorf("it knows %q", bridgetest.Said(got))
		}
	})
}
