package claude

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
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

func heard(list []schema.SessionUpdate) string {
	var out []string
	for _, u := range list {
		if u.UserMessageChunk != nil && u.UserMessageChunk.Content.Text != nil {
			out = append(out, u.UserMessageChunk.Content.Text.Text)
		}
	}
	return strings.Join(out, "|")
}

func (w *world) load(id schema.SessionID) *schema.LoadSessionRequest {
	return &schema.LoadSessionRequest{SessionID: id, Cwd: w.Cwd, MCPServers: []schema.MCPServer{}}
}

// env is the environment of the client's programs.
func (c *client) env() []string { return bridge.Environ(c.W.Options(), nil) }

// TestLive_OpenedAgain has sessions that go on in other processes, one of a
// terminal among them: nothing of them is lost, and what was chosen holds, which
// the program forgets and people do not expect.
func TestLive_OpenedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	notes := w.Write("notes.txt", "the notes\n", 0o600)
	w.Write(".claude/settings.json", `{"permissions":{"allow":["Read"]}}`, 0o600)
	c := w.open(schema.ClientCapabilities{}, nil)
	w.ofATerminal(c, notes)

	id := c.New("")
	for option, value := range map[string]string{configModel: "sonnet", configEffort: "low", configMode: modeAcceptEdits} {
		quoted, _ := schema.Encode(value)
		c.Must(acp.MethodSessionSetConfigOption, &schema.SetSessionConfigOptionRequest{SessionID: id, ConfigID: schema.SessionConfigID(option), Value: quoted})
	}
	_, got := c.Turn(id, "say one")
	first, model := cost(got), w.Turns()[len(w.Turns())-1].Model
	w.Model.On(scriptedmodel.Exactly("both"),
		scriptedmodel.Step{scriptedmodel.ReadFile(notes), scriptedmodel.ReadFile(w.Write("b.txt", "bbb\n", 0o600)), scriptedmodel.ReadFile(filepath.Join(w.Home, "none"))},
		scriptedmodel.Step{scriptedmodel.Say("read")})
	_, got = c.Turn(id, "both")
	threeCalls(t, "live", got)
	c.Close()

	asked := 0
	again := w.open(schema.ClientCapabilities{}, func(method string, params json.RawMessage) any {
		asked++
		return bridgetest.Pick(optionAlways)(method, params)
	})
	from := again.Seen()
	r := again.Must(acp.MethodSessionLoad, w.load(id))
	threeCalls(t, "replayed", again.Updates(from))
	options, _ := rawjson.Member(r, "configOptions")
	want := map[string]string{configModel: "sonnet", configEffort: "low", configMode: modeAcceptEdits}
	for _, o := range rawjson.Elements(options) {
		if name := rawjson.MemberString(o, "id"); rawjson.MemberString(o, "currentValue") != want[name] {
			t.Errorf("%s is %s, want %s", name, rawjson.MemberString(o, "currentValue"), want[name])
		}
	}
	_, got = again.Turn(id, "say two")
	if second := cost(got); first <= 0 || second < 1.5*first {
		t.Errorf("the session cost %v, then %v", first, second)
	}
	if now := w.Turns()[len(w.Turns())-1].Model; now != model {
		t.Errorf("model %s, then %s", model, now)
	}
	// What is allowed for the session is allowed in its next process, too.
	install := "run install -d " + filepath.Join(w.Cwd, "made")
	if again.Turn(id, install); asked != 1 {
		t.Errorf("asked %d times", asked)
	}
	fork := schema.SessionID(rawjson.MemberString(again.Must(acp.MethodSessionFork, &schema.ForkSessionRequest{SessionID: id, Cwd: w.Cwd}), "sessionId"))
	if fork == id || fork == "" {
		t.Fatalf("the fork has the id %q", fork)
	}
	// It goes on under another native id.
	again.Turn(id, "/clear")
	again.Turn(id, "say after")
	again.Close()

	third := w.open(schema.ClientCapabilities{}, nil)
	from = third.Seen()
	third.Must(acp.MethodSessionLoad, w.load(id))
	if got := heard(third.Updates(from)); !strings.HasSuffix(got, "say after") || strings.Contains(got, "say one") {
		t.Errorf("replayed %q", got)
	}
	if _, got := third.Turn(id, "recall"); !strings.Contains(bridgetest.Said(got), "say after") || strings.Contains(bridgetest.Said(got), "say one") {
		t.Errorf("it remembers %q", bridgetest.Said(got))
	}
	if _, got := third.Turn(id, install); !strings.HasPrefix(bridgetest.Said(got), "ran:") || strings.Contains(third.Quote(), "request_permission") {
		t.Errorf("said %q\n%s", bridgetest.Said(got), third.Quote())
	}
	// The fork is opened again before anything was said in it.
	from = third.Seen()
	third.Must(acp.MethodSessionLoad, w.load(fork))
	if got := heard(third.Updates(from)); got != "say one|both|say two|"+install {
		t.Errorf("the fork replays %q", got)
	}
	if _, got := third.Turn(fork, "recall"); !strings.Contains(bridgetest.Said(got), "say one") {
		t.Errorf("the fork remembers %q", bridgetest.Said(got))
	}
	w.deleted(third, id, fork)
}

// TestLive_Forked has forks in which nothing is said while their origin goes on, and is deleted. They know what was said until then,
// and have the model that was chosen of it.
func TestLive_Forked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Write(".claude/settings.json", `{"permissions":{"allow":["Read"]}}`, 0o600)
	c := w.open(schema.ClientCapabilities{}, nil)
	model := ""
	fork := func(of schema.SessionID) schema.SessionID {
		t.Helper()
		r := c.Must(acp.MethodSessionFork, &schema.ForkSessionRequest{SessionID: of, Cwd: w.Cwd})
		c.HasModel("a fork", r, model)
		return schema.SessionID(rawjson.MemberString(r, "sessionId"))
	}
	notes := w.Write("notes.txt", "the notes\n", 0o600)
	w.Model.On(scriptedmodel.Exactly("delegate it"), scriptedmodel.Step{scriptedmodel.Call("Agent", map[string]any{
		"description": "Look", "prompt": "read " + notes, "subagent_type": "general-purpose", "run_in_background": false,
	})}, scriptedmodel.Step{scriptedmodel.Say("done")})
	made := c.NewResult("")
	id := schema.SessionID(rawjson.MemberString(made, "sessionId"))
	c.Turn(id, "delegate it")
	model = c.ChooseOther(made)
	one := fork(id)
	two := fork(one)
	made = c.NewResult("")
	c.ChooseOther(made)
	silent := fork(schema.SessionID(rawjson.MemberString(made, "sessionId")))
	c.Turn(id, "say behind the fork")
	c.Close()

	c = w.open(schema.ClientCapabilities{}, nil)
	c.Must(acp.MethodSessionDelete, &schema.DeleteSessionRequest{SessionID: id})
	for _, of := range []schema.SessionID{one, two} {
		from := c.Seen()
		c.HasModel("a fork that is opened again", c.Must(acp.MethodSessionLoad, w.load(of)), model)
		got := c.Updates(from)
		if heard := heard(got); heard != "delegate it" {
			t.Errorf("the fork replays %q", heard)
		}
		if !slices.ContainsFunc(got, func(u schema.SessionUpdate) bool { return u.ToolCall != nil && *u.ToolCall.Name == "Read" }) {
			t.Errorf("the fork does not know what the subagent did: %s", bridgetest.Encoded(got))
		}
		_, got = c.Turn(of, "recall")
		if said := bridgetest.Said(got); !strings.Contains(said, "delegate") || strings.Contains(said, "behind") || cost(got) <= 0 {
			t.Errorf("the fork remembers %q, and costs %v", said, cost(got))
		}
	}
	c.HasModel("a fork of nothing that is opened again", c.Must(acp.MethodSessionResume, w.load(silent)), model)
	if _, got := c.Turn(silent, "say hi"); bridgetest.Said(got) != "hi" {
		t.Errorf("the fork of nothing says %q", bridgetest.Said(got))
	}
}

// cost is what a session has cost so far.
func cost(list []schema.SessionUpdate) (last float64) {
	for _, u := range list {
		if u.UsageUpdate != nil && u.UsageUpdate.Cost != nil {
			last = u.UsageUpdate.Cost.Amount
		}
	}
	return last
}

// threeCalls checks three parallel calls, of which one failed.
func threeCalls(t *testing.T, what string, list []schema.SessionUpdate) {
	t.Helper()
	calls, ends := 0, map[schema.ToolCallStatus]int{}
	for _, u := range list {
		if u.ToolCall != nil {
			calls++
		}
		if u.ToolCallUpdate != nil {
			ends[u.ToolCallUpdate.Status]++
		}
	}
	if calls != 3 || ends[schema.ToolCallStatusCompleted] != 2 || ends[schema.ToolCallStatusFailed] != 1 {
		t.Errorf("%s: %d calls, %v", what, calls, ends)
	}
}

// ofATerminal lists a session that people had without the gateway, and asks for others
// that cannot be opened. The scenario "session of a terminal is listed and loaded" loads one
// and goes on with it.
func (w *world) ofATerminal(c *client, notes string) {
	const id, unknown = "11111111-2222-4333-8444-555555555555", "99999999-2222-4333-8444-555555555555"
	t := w.T
	t.Helper()
	w.terminal(id, "read "+notes)
	var list schema.ListSessionsResponse
	if err := json.Unmarshal(c.Must(acp.MethodSessionList, &schema.ListSessionsRequest{Cwd: &w.Cwd}), &list); err != nil {
		t.Fatal(err)
	}
	if len(list.Sessions) != 1 || list.Sessions[0].SessionID != id || *list.Sessions[0].Title != "read "+notes || !bridge.SameDir(list.Sessions[0].Cwd, w.Cwd) ||
		!rawjson.MemberBool(list.Sessions[0].Meta[acp.MetaKey], "native") {
		t.Errorf("listed %s", bridgetest.Encoded(list))
	}
	for _, bad := range []schema.SessionID{unknown, "abc", "../../etc/passwd", ""} {
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
	if _, e := c.Call(acp.MethodSessionNew, &schema.NewSessionRequest{Cwd: "/no/such/dir", MCPServers: []schema.MCPServer{}}); e == nil || e.Code != acp.CodeInvalidParams {
		t.Errorf("a session in no directory: %v", e)
	}

	if _, e := c.Call(acp.MethodSessionDelete, &schema.DeleteSessionRequest{SessionID: id}); e == nil || !strings.Contains(e.Message, "not made here") {
		t.Errorf("a terminal's session was deleted: %v", e)
	}
}

// deleted deletes sessions: first a fork, which leaves its origin there.
func (w *world) deleted(c *client, id, fork schema.SessionID) {
	t := w.T
	t.Helper()
	listed := func() []schema.SessionID {
		var list schema.ListSessionsResponse
		if err := json.Unmarshal(c.Must(acp.MethodSessionList, &schema.ListSessionsRequest{}), &list); err != nil {
			t.Fatal(err)
		}
		var out []schema.SessionID
		for _, s := range list.Sessions {
			if !rawjson.MemberBool(s.Meta[acp.MetaKey], "native") {
				out = append(out, s.SessionID)
			}
		}
		slices.Sort(out)
		return out
	}
	sorted := func(ids ...schema.SessionID) []schema.SessionID { slices.Sort(ids); return ids }
	files := transcriptsOf(c.env())
	if _, err := files.find(string(fork), w.Cwd); err != nil {
		t.Fatal(err)
	}
	if got, want := listed(), sorted(id, fork); !slices.Equal(got, want) {
		t.Errorf("listed %q, want %q", got, want)
	}
	c.Must(acp.MethodSessionDelete, &schema.DeleteSessionRequest{SessionID: fork})
	if _, err := files.find(string(fork), ""); err == nil {
		t.Error("the deleted transcript is there")
	}
	if got, want := listed(), sorted(id); !slices.Equal(got, want) {
		t.Errorf("after a deletion listed %q, want %q", got, want)
	}
	if _, e := c.Call(acp.MethodSessionLoad, w.load(fork)); e == nil || e.Code != acp.CodeResourceNotFound {
		t.Errorf("loading the deleted session: %v", e)
	}
	c.Must(acp.MethodSessionDelete, &schema.DeleteSessionRequest{SessionID: id})
	if left, _ := filepath.Glob(filepath.Join(w.Home, ".claude", "projects", "*", "*.jsonl")); len(left) != 1 {
		t.Errorf("left after deletion: %v, want that of the terminal", left)
	}
}
