package pi

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
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
func userSaid(list []schema.SessionUpdate) string {
	var all []string
	for _, u := range list {
		if u.UserMessageChunk != nil && u.UserMessageChunk.Content.Text != nil {
			all = append(all, u.UserMessageChunk.Content.Text.Text)
		}
	}
	return strings.Join(all, "|")
}

func (c *client) list() []schema.SessionInfo {
	c.W.T.Helper()
	var r schema.ListSessionsResponse
	if err := json.Unmarshal(c.Must(acp.MethodSessionList, map[string]any{"cwd": c.W.Cwd}), &r); err != nil {
		c.W.T.Fatal(err)
	}
	return r.Sessions
}

func (w *world) load(id schema.SessionID) *schema.LoadSessionRequest {
	return &schema.LoadSessionRequest{SessionID: id, Cwd: w.Cwd, MCPServers: []schema.MCPServer{}}
}

func liveSessionOfATerminal(t *testing.T, w *world) {
	w.Cwd = t.TempDir()
	w.terminal("run echo in a terminal")
	c := w.open(noticing, nil)
	all := c.list()
	if len(all) != 1 || *all[0].Title != "run echo in a terminal" || !rawjson.MemberBool(all[0].Meta[acp.MetaKey], "native") {
		t.Fatalf("the sessions are %s", bridgetest.Encoded(all))
	}
	id := all[0].SessionID
	elsewhere := w.load(id)
	elsewhere.Cwd = t.TempDir()
	if _, e := c.Call(acp.MethodSessionLoad, elsewhere); e == nil || e.Code != acp.CodeInvalidParams || !strings.Contains(e.Message, w.Cwd) {
		t.Errorf("loading in another directory: %v", e)
	}
	from := c.Seen()
	c.Must(acp.MethodSessionLoad, w.load(id))
	past := c.Updates(from)
	if userSaid(past) != "run echo in a terminal" || !strings.Contains(bridgetest.Said(past), "in a terminal") {
		t.Errorf("the replay has %q and %q", userSaid(past), bridgetest.Said(past))
	}
	done := false
	for _, u := range past {
		done = done || u.ToolCallUpdate != nil && u.ToolCallUpdate.Status == schema.ToolCallStatusCompleted && strings.Contains(text(u.ToolCallUpdate.Content), "in a terminal")
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
			if _, e := c.Call(method, w.load(schema.SessionID(unknown))); e == nil || e.Code != acp.CodeResourceNotFound {
				t.Errorf("%s of %s: %v", method, unknown, e)
			}
		}
	}
	// Lines that are none, or cut off, do not keep the rest from being replayed.
	c.Must(acp.MethodSessionClose, map[string]any{"sessionId": id})
	files, _ := filepath.Glob(filepath.Join(w.Home, ".pi/agent/sessions/*/*"+string(id)+"*.jsonl"))
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
	from = c.Seen()
	c.Must(acp.MethodSessionLoad, w.load(id))
	if got := c.Updates(from); userSaid(got) != "run echo in a terminal|recall" || !strings.Contains(bridgetest.Said(got), "in a terminal") {
		t.Errorf("the replay of what is broken has %q and %q", userSaid(got), bridgetest.Said(got))
	}
	c.Must(acp.MethodSessionClose, map[string]any{"sessionId": id})
}

// liveAnotherConversation: an extension has Pi go on with another conversation. The session goes
// on with that one in the next process, too.
func liveAnotherConversation(t *testing.T, w *world) {
	w.extension("another.js", `export default function (pi) {
  pi.registerCommand("afresh", { description: "Begins anew", handler: async (_args, ctx) => { await ctx.newSession(); } });
  pi.registerCommand("open", { description: "Goes on with another one", handler: async (file, ctx) => { await ctx.switchSession(file); } });
}`)
	w.Cwd = t.TempDir()
	w.terminal("say of a terminal")
	held := func() []string {
		names, _ := filepath.Glob(filepath.Join(w.Home, ".pi/agent/sessions", folderOf(w.Cwd), "*.jsonl"))
		return names
	}
	terminal := held()
	if len(terminal) != 1 {
		t.Fatalf("the terminal has made %q", terminal)
	}
	c := w.open(noticing, nil)
	id := c.Fresh()
	c.Turn(id, "say the first word")
	knows := func(word string, others ...string) {
		t.Helper()
		_, got := c.Turn(id, "recall")
		said := bridgetest.Said(got)
		for _, other := range others {
			if strings.Contains(said, other) {
				t.Errorf("it knows %q", said)
			}
		}
		if !strings.Contains(said, word) {
			t.Errorf("it knows %q, and not %q", said, word)
		}
	}
	again := func() {
		t.Helper()
		c.Must(acp.MethodSessionClose, map[string]any{"sessionId": id})
		c.Must(acp.MethodSessionResume, &schema.ResumeSessionRequest{SessionID: id, Cwd: w.Cwd})
	}
	from := c.Seen()
	c.Turn(id, "/afresh")
	c.Await("the commands of now", from, has("available_commands_update"))
	c.Turn(id, "say the second word")
	knows("the second", "the first", "of a terminal")
	again()
	knows("the second", "the first", "of a terminal")
	var listed []schema.SessionID
	for _, one := range c.list() {
		if listed = append(listed, one.SessionID); (one.SessionID == id) == rawjson.MemberBool(one.Meta[acp.MetaKey], "native") {
			t.Errorf("it lists %s", bridgetest.Encoded(one))
		}
	}
	if len(listed) != 2 || !slices.Contains(listed, id) {
		t.Errorf("the sessions are %v", listed)
	}
	// With nothing said in it there is nothing to go on with, and it does not go back.
	c.Turn(id, "/afresh")
	again()
	c.Turn(id, "say the third word")
	knows("the third", "the first", "the second", "of a terminal")
	c.Turn(id, "/open "+terminal[0])
	again()
	knows("of a terminal", "the first", "the second", "the third")
	if n := len(held()); n != 4 {
		t.Errorf("%d conversations are kept", n)
	}
	c.Must(acp.MethodSessionDelete, map[string]any{"sessionId": id})
	if diff := cmp.Diff(terminal, held()); diff != "" {
		t.Errorf("behind the deletion (-want +got):\n%s", diff)
	}
}

func liveForkListDeleteTitle(t *testing.T, w *world) {
	w.Cwd = t.TempDir()
	c := w.open(noticing, nil)
	id := c.Fresh()
	c.Turn(id, "say common past")
	r := c.Must(acp.MethodSessionFork, &schema.ForkSessionRequest{SessionID: id, Cwd: w.Cwd, MCPServers: []schema.MCPServer{}})
	fork := schema.SessionID(rawjson.MemberString(r, "sessionId"))
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
	titles := map[schema.SessionID]string{}
	for _, one := range c.list() {
		titles[one.SessionID] = *one.Title
		if rawjson.MemberBool(one.Meta[acp.MetaKey], "native") {
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
}

// TestLive_OpenedAgain has sessions that go on in other processes: they know
// everything, what was chosen included, the user's own settings stay as they were
// (an early Pi writes what is chosen into them), and a chosen model that is gone
// is replaced.
func TestLive_OpenedAgain(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		was := w.sums()
		w.terminal("say first") // makes the files that Pi makes for itself
		c := w.open(noticing, bridgetest.Pick(optionAlways))
		now := w.sums()
		maps.Copy(now, was) // those that are the user's own
		was = now
		id := w.choices(c)
		c.Turn(id, "say a word to remember")
		touch := "run touch " + filepath.Join(w.Cwd, "touched")
		c.Turn(id, touch)
		fork := func(c *client, of schema.SessionID) (id schema.SessionID, result json.RawMessage) {
			t.Helper()
			result = c.Must(acp.MethodSessionFork, &schema.ForkSessionRequest{SessionID: of, Cwd: w.Cwd, MCPServers: []schema.MCPServer{}})
			return schema.SessionID(rawjson.MemberString(result, "sessionId")), result
		}
		quiet := c.Fresh()
		c.set(quiet, configModel, "scripted/two")
		c.set(quiet, configThinking, "high")
		forked, _ := fork(c, quiet)
		for _, one := range []schema.SessionID{id, forked} {
			c.Must(acp.MethodSessionClose, map[string]any{"sessionId": one})
		}
		if left, _ := filepath.Glob(filepath.Join(w.State, "run", "*")); len(left) != 1 {
			t.Errorf("%d folders of runs are there, want that of the other session", len(left))
		}
		c.Close()

		var asked atomic.Int32
		again := w.open(noticing, counting(&asked, bridgetest.Pick(optionReject)))
		from := again.Seen()
		r := again.Must(acp.MethodSessionResume, &schema.ResumeSessionRequest{SessionID: id, Cwd: w.Cwd})
		if got := again.Updates(from); bridgetest.Said(got)+userSaid(got) != "" {
			t.Errorf("resume replays %q", bridgetest.Said(got))
		}
		want := map[string]string{configModel: "scripted/two", configThinking: "high", configMode: modeWrite}
		chosen := func(of string, result json.RawMessage) {
			t.Helper()
			options, _ := rawjson.Member(result, "configOptions")
			for _, o := range rawjson.Elements(options) {
				if name := rawjson.MemberString(o, "id"); rawjson.MemberString(o, "currentValue") != want[name] {
					t.Errorf("%s: %s is %s, want %s", of, name, rawjson.MemberString(o, "currentValue"), want[name])
				}
			}
		}
		chosen("the session", r)
		want[configMode] = modeDefault
		chosen("a fork in which nothing was said", again.Must(acp.MethodSessionResume, &schema.ResumeSessionRequest{SessionID: forked, Cwd: w.Cwd}))
		if _, got := again.Turn(id, "recall"); !strings.Contains(bridgetest.Said(got), "a word to remember") {
			t.Errorf("it knows %q", bridgetest.Said(got))
		}
		if again.Turn(id, touch); asked.Load() != 0 {
			t.Error("what was allowed for the session is asked about again")
		}
		if again.Turn(id, touch+"-2"); asked.Load() != 1 {
			t.Errorf("another command was asked about %d times", asked.Load())
		}
		if r := w.last(); r.Model != "two" || r.Effort != "high" {
			t.Errorf("resumed, model %s thinks %s", r.Model, r.Effort)
		}
		again.Close()
		if diff := cmp.Diff(was, w.sums()); diff != "" {
			t.Errorf("the user's configuration changed: -was +is\n%s", diff)
		}

		for _, name := range []string{"models.json", "settings.json"} {
			path := filepath.Join(w.Home, ".pi/agent", name)
			w.Write(path, strings.Replace(w.Read(path), `"scripted"`, `"other"`, 1), 0o600)
		}
		third := w.open(schema.ClientCapabilities{}, nil)
		from = third.Seen()
		r = third.Must(acp.MethodSessionLoad, w.load(id))
		if !strings.Contains(string(r), `"field":"model"`) {
			t.Errorf("it is not said that the model is gone: %s", r)
		}
		if got := third.Updates(from); strings.Count(userSaid(got), "say a word") != 1 {
			t.Errorf("the replay has %q", userSaid(got))
		}
		forked, r = fork(third, id)
		if !strings.Contains(string(r), `"field":"model"`) {
			t.Errorf("of a fork it is not said that the model is gone: %s", r)
		}
		for _, one := range []schema.SessionID{id, forked} {
			if _, got := third.Turn(one, "recall"); !strings.Contains(bridgetest.Said(got), "a word to remember") {
				t.Errorf("it knows %q", bridgetest.Said(got))
			}
		}
		third.Close()
		if left, _ := filepath.Glob(filepath.Join(w.State, "run", "*")); len(left) != 0 {
			t.Errorf("left behind: %v", left)
		}
	})
}

// choices chooses a model, a level and a mode in a session, which it returns: a model
// before it was ever prompted, too.
func (w *world) choices(c *client) schema.SessionID {
	t := w.T
	t.Helper()
	id := c.New("")
	c.set(id, configModel, "scripted/two")
	c.Turn(id, "say at first")
	if r := w.last(); r.Model != "two" {
		t.Errorf("a session that was never prompted asked model %s", r.Model)
	}
	c.set(id, configModel, "scripted/one")
	c.Turn(id, "say before the choice")
	if r := w.last(); r.Model != "one" {
		t.Errorf("it asked model %s", r.Model)
	}
	from := c.Seen()
	c.set(id, configModel, "scripted/two")
	c.set(id, configThinking, "high")
	c.set(id, configMode, modeWrite)
	c.Await("the options", from, has("config_option_update"))
	c.Turn(id, "say chosen")
	if r := w.last(); r.Model != "two" || r.Effort != "high" || !r.Says(scriptedmodel.User, "before the choice") {
		t.Errorf("model %s thinks %s, of %+v", r.Model, r.Effort, r.Messages)
	}
	for option, want := range map[string]string{configModel: "scripted/one", configThinking: "medium"} {
		if _, e := c.Call(acp.MethodSessionSetConfigOption, &schema.SetSessionConfigOptionRequest{SessionID: id, ConfigID: schema.SessionConfigID(option), Value: []byte(`"nope"`)}); e == nil || !strings.Contains(e.Message, want) {
			t.Errorf("an unknown %s: %v", option, e)
		}
	}
	return id
}
