package codex

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

func userSaid(list []schema.SessionUpdate) string {
	var b strings.Builder
	for _, u := range list {
		if u.UserMessageChunk != nil && u.UserMessageChunk.Content.Text != nil {
			b.WriteString(u.UserMessageChunk.Content.Text.Text + "\n")
		}
	}
	return b.String()
}

// listed are the sessions of the world's folder.
func (c *client) listed() []string {
	c.W.T.Helper()
	data, _ := rawjson.Member(c.Must(acp.MethodSessionList, &schema.ListSessionsRequest{Cwd: &c.W.Cwd}), "sessions")
	var out []string
	for _, s := range rawjson.Elements(data) {
		out = append(out, rawjson.MemberString(s, "sessionId"))
	}
	return out
}

// liveSessionsOfATerminal lists, loads and goes on with what codex itself
// has made.
func liveSessionsOfATerminal(t *testing.T, w *world) {
	terminal := func(args ...string) {
		t.Helper()
		cmd := exec.Command(w.Program.Path, args...)
		cmd.Dir = w.Cwd
		cmd.Env = append(os.Environ(), w.Env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	run := []string{"exec", "--skip-git-repo-check", "-s", "danger-full-access"}
	terminal(append(run, "run echo from the terminal")...)
	c := w.open(schema.ClientCapabilities{}, nil)
	ids := c.listed()
	if len(ids) != 1 {
		t.Fatalf("%d sessions are listed", len(ids))
	}
	id := schema.SessionID(ids[0])
	from := c.Seen()
	c.Must(acp.MethodSessionLoad, &schema.LoadSessionRequest{SessionID: id, Cwd: w.Cwd, MCPServers: []schema.MCPServer{}})
	past := c.Updates(from)
	if !strings.Contains(userSaid(past), "run echo from the terminal") || !strings.Contains(bridgetest.Said(past), "ran:") || !strings.Contains(contentText(only(t, past)), "from the terminal") {
		t.Errorf("the replay is not whole\n%s", c.Quote())
	}
	if _, got := c.Turn(id, "recall"); !strings.Contains(bridgetest.Said(got), "from the terminal") {
		t.Errorf("the model recalls %q", bridgetest.Said(got))
	}
	// Once it is closed, the terminal can go on, and then a client again. A close that was broken
	// off has left it in the archive.
	c.Must(acp.MethodSessionClose, &schema.CloseSessionRequest{SessionID: id})
	terminal(append(run, "resume", string(id), "say quince")...)
	terminal("archive", string(id))
	c.Must(acp.MethodSessionResume, w.again(id))
	if _, got := c.Turn(id, "recall"); !strings.Contains(bridgetest.Said(got), "quince") {
		t.Errorf("after the terminal the model recalls %q", bridgetest.Said(got))
	}
	if _, e := c.Call(acp.MethodSessionDelete, &schema.DeleteSessionRequest{SessionID: id}); e == nil || e.Code != acp.CodeInvalidRequest {
		t.Errorf("a session of the user's was deleted: %v", e)
	}
	for _, unknown := range []schema.SessionID{"01a1fbe6-5ec2-7403-ba5c-c9e13d7fed9c", "no-uuid", "../../x"} {
		if _, e := c.Call(acp.MethodSessionResume, w.again(unknown)); e == nil || e.Code != acp.CodeResourceNotFound {
			t.Errorf("session %s: %v", unknown, e)
		}
	}
}

func liveForkDeleteTitle(t *testing.T, w *world) {
	c := w.open(schema.ClientCapabilities{}, nil)
	c.ForkKeepsChoice("say a word")
	id := c.New("")
	c.Turn(id, "say apple")
	c.Must(acp.MethodSessionSetTitle, map[string]any{"sessionId": id, "title": "A title"})
	c.Await("the title", 0, func(m *acp.Message) bool { return strings.Contains(string(m.Update()), `"title":"A title"`) })
	r := c.Must(acp.MethodSessionFork, &schema.ForkSessionRequest{SessionID: id, Cwd: w.Cwd})
	fork := schema.SessionID(rawjson.MemberString(r, "sessionId"))
	c.Turn(fork, "say pear")
	if _, got := c.Turn(fork, "recall"); !strings.Contains(bridgetest.Said(got), "apple") {
		t.Errorf("the fork recalls %q", bridgetest.Said(got))
	}
	if _, got := c.Turn(id, "recall"); strings.Contains(bridgetest.Said(got), "pear") {
		t.Errorf("the origin recalls %q", bridgetest.Said(got))
	}
	if ids := c.listed(); !slices.Contains(ids, string(id)) || !slices.Contains(ids, string(fork)) {
		t.Errorf("listed %q", ids)
	}
	if _, e := c.Call(acp.MethodSessionDelete, &schema.DeleteSessionRequest{SessionID: id}); e == nil || !strings.Contains(e.Message, "forked from it: delete those first") {
		t.Errorf("the origin of a fork was deleted: %v", e)
	}
	c.Must(acp.MethodSessionResume, w.again(id)) // it was closed for that
	c.Must(acp.MethodSessionDelete, &schema.DeleteSessionRequest{SessionID: fork})
	if ids := c.listed(); slices.Contains(ids, string(fork)) {
		t.Errorf("listed after its deletion: %q", ids)
	}
	if _, e := c.Call(acp.MethodSessionPrompt, &schema.PromptRequest{SessionID: fork, Prompt: []schema.ContentBlock{schema.TextBlock("say x")}}); e == nil || e.Code != acp.CodeResourceNotFound {
		t.Errorf("a prompt after the deletion: %v", e)
	}
	c.Must(acp.MethodSessionClose, &schema.CloseSessionRequest{SessionID: id})
	if ids := c.listed(); !slices.Contains(ids, string(id)) {
		t.Errorf("closed, it is not listed: %q", ids)
	}
	c.Must(acp.MethodSessionResume, w.again(id))
	if _, got := c.Turn(id, "recall"); !strings.Contains(bridgetest.Said(got), "apple") {
		t.Errorf("closed and resumed, it recalls %q", bridgetest.Said(got))
	}
}

// TestLive_Restart has sessions of each kind when the process is killed, some of
// them in a turn, and goes on with them in the next one.
func TestLive_Restart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.open(schema.ClientCapabilities{}, nil)
	var after []func(again *client)
	for _, before := range []func(t *testing.T, w *world, c *client) func(again *client){restartModesModelsEffort, restartLoadPages, restartWords} {
		after = append(after, before(t, w, c))
	}
	silent := c.New("")
	c.set(silent, configMode, modeFullAccess)
	pid := c.Conn.(adapters.Process).PID()
	if pid == 0 {
		t.Fatal("no process")
	}
	if err := bridgetest.Kill(pid); err != nil {
		t.Fatal(err)
	}
	end := c.Ended()
	if exit, ok := errors.AsType[*adapters.ExitError](end); !ok || exit.Code != -1 {
		t.Errorf("reading ended with %v", end)
	}

	again := w.open(schema.ClientCapabilities{}, nil)
	for _, check := range after {
		check(again)
	}
	// Codex keeps no thread that nobody has prompted.
	r := again.Must(acp.MethodSessionLoad, &schema.LoadSessionRequest{SessionID: silent, Cwd: w.Cwd, MCPServers: []schema.MCPServer{}})
	if got := chosen(r); got[configMode] != modeFullAccess {
		t.Errorf("resumed with %v", got)
	}
	if _, got := again.Turn(silent, "say at last"); bridgetest.Said(got) != "at last" {
		t.Errorf("said %q", bridgetest.Said(got))
	}
	again.Close()
	third := w.open(schema.ClientCapabilities{}, nil)
	if ids := third.listed(); !slices.Contains(ids, string(silent)) {
		t.Errorf("listed %q, and not %s", ids, silent)
	}
	third.Must(acp.MethodSessionResume, w.again(silent))
	if _, got := third.Turn(silent, "recall"); !strings.Contains(bridgetest.Said(got), "at last") {
		t.Errorf("recalls %q", bridgetest.Said(got))
	}
}

// restartWords has sessions with a past, two of them in a turn.
func restartWords(t *testing.T, w *world, c *client) (after func(again *client)) {
	words := []string{"alpha", "beta", "gamma", "delta"}
	var ids []schema.SessionID
	for _, word := range words {
		id := c.New("")
		c.Turn(id, "say "+word)
		ids = append(ids, id)
	}
	from := c.Seen()
	c.Prompt(ids[0], "forever")
	c.Prompt(ids[1], "forever")
	c.Await("text", from, func(m *acp.Message) bool { return strings.Contains(string(m.Frame()), "tick 3") })
	return func(again *client) {
		for i, word := range words {
			again.Must(acp.MethodSessionResume, w.again(ids[i]))
			if _, got := again.Turn(ids[i], "recall"); !strings.Contains(bridgetest.Said(got), word) {
				t.Errorf("session %d recalls %q, want %s", i, bridgetest.Said(got), word)
			}
		}
	}
}

func liveCommandsAndCompaction(t *testing.T, w *world) {
	c := w.open(showing, nil)
	id := c.New("")
	c.Turn(id, "say before")
	stop, got := c.Turn(id, "/compact")
	var states []schema.CompactionStatus
	for _, u := range got {
		if u.CompactionUpdate != nil {
			states = append(states, u.CompactionUpdate.Status)
		}
	}
	if stop != schema.StopReasonEndTurn || !slices.Equal(states, []schema.CompactionStatus{schema.CompactionStatusInProgress, schema.CompactionStatusCompleted}) {
		t.Errorf("the compaction ended with %s: %v\n%s", stop, states, c.Quote())
	}
	review := `{"findings":[],"overall_correctness":"patch is correct","overall_explanation":"nothing is wrong","overall_confidence_score":0.9}`
	w.Model.On(scriptedmodel.Contains("REVIEW THIS"), scriptedmodel.Step{scriptedmodel.Say(review)})
	stop, got = c.Turn(id, "/review REVIEW THIS")
	if said := bridgetest.Said(got); stop != schema.StopReasonEndTurn || !strings.Contains(said, "nothing is wrong") || strings.Count(said, "nothing is wrong") != 1 || strings.Contains(said, "findings") {
		t.Errorf("the review ended with %s and said %q\n%s", stop, said, c.Quote())
	}
	w.Model.On(scriptedmodel.Contains("AGENTS.md"), scriptedmodel.Step{scriptedmodel.Say("written")})
	if _, got := c.Turn(id, "/init"); bridgetest.Said(got) != "written" {
		t.Errorf("init said %q", bridgetest.Said(got))
	}
	if _, got := c.Turn(id, "/unknown say nothing"); bridgetest.Said(got) == "" {
		t.Error("an unknown command is no prompt")
	}
}

// liveSubagents: what a subagent does belongs to the call that made it, and
// none of its words are the session's own, also when it outlives the turn.
func liveSubagents(t *testing.T, w *world) {
	spawn := func(message string) scriptedmodel.Step {
		return scriptedmodel.Step{scriptedmodel.Call("multi_agent_v1/spawn_agent", map[string]any{"message": message})}
	}
	w.Model.On(scriptedmodel.Exactly("delegate"), spawn("run echo child ran"), scriptedmodel.Step{scriptedmodel.Say("parent done")})
	gate := make(chan struct{})
	w.Model.On(scriptedmodel.Exactly("leave behind"), spawn("be slow"), scriptedmodel.Step{scriptedmodel.Say("parent gone")})
	w.Model.On(scriptedmodel.Exactly("be slow"), scriptedmodel.Step{scriptedmodel.Say("slow "), scriptedmodel.Gate(gate), scriptedmodel.Say("child")})
	c := w.open(schema.ClientCapabilities{}, nil)
	id := c.New(full)
	for _, one := range []struct {
		prompt, parent, child string
		behind                bool
	}{{"delegate", "parent done", "child ran", false}, {"leave behind", "parent gone", "slow child", true}} {
		from := c.Seen()
		if stop, got := c.Turn(id, one.prompt); stop != schema.StopReasonEndTurn || !strings.HasPrefix(bridgetest.Said(got), one.parent) {
			t.Errorf("it ended with %s and said %q\n%s", stop, bridgetest.Said(got), c.Quote())
		}
		if one.behind {
			close(gate)
		}
		_, m := c.Await("the call that made the subagent", from, func(m *acp.Message) bool { return rawjson.MemberString(m.Update(), "name") == "spawnAgent" })
		call := rawjson.MemberString(m.Update(), "toolCallId")
		c.Await("the end of the subagent", from, func(m *acp.Message) bool {
			return rawjson.MemberString(m.Update(), "toolCallId") == call && rawjson.MemberString(m.Update(), "status") == "completed"
		})
		if made := calls(c.Updates(from))[call]; made == nil || !strings.Contains(contentText(made), one.child) {
			t.Errorf("the subagent's words are not in its call: %+v", made)
		}
		// The parent is asked again when its subagent ends in the middle of its
		// turn; what it says then, the model has said.
		said, asked := bridgetest.Said(c.Updates(from)), 0
		for _, r := range w.Turns() {
			if p := r.Prompts(); len(p) > 0 && slices.Contains(p, one.prompt) {
				asked++
			}
		}
		if n := strings.Count(said, one.parent); n < 1 || n > asked-1 || strings.Contains(said, one.child) {
			t.Errorf("the model was asked %d times, and %q was said", asked, said)
		}
	}
	nested := false
	for _, m := range c.Frames() {
		nested = nested || rawjson.MemberString(m.Update(), "_meta", acp.MetaKey, "parentToolCallId") != "" && rawjson.MemberString(m.Update(), "sessionUpdate") == "tool_call"
	}
	if !nested {
		t.Errorf("the subagent's command is not its own\n%s", c.Quote())
	}
	never := make(chan struct{})
	defer close(never)
	w.Model.On(scriptedmodel.Exactly("stay"), scriptedmodel.Step{scriptedmodel.Say("staying"), scriptedmodel.Gate(never)})
	w.Model.On(scriptedmodel.Exactly("stop it"), spawn("stay"), scriptedmodel.Step{scriptedmodel.Say("parent done")})
	c.StopSubagent(id, "stop it")
	liveSubagentToldMore(w, c)
}

// liveSubagentToldMore: a subagent that has ended and is told more works again, and what it does belongs to the call that told it. It
// ends with that, and with the turn.
func liveSubagentToldMore(w *world, c *client) {
	never := make(chan struct{})
	defer close(never)
	tell := func(r *scriptedmodel.Request) scriptedmodel.Step {
		id := ""
		for i := range r.Messages {
			for _, one := range r.Messages[i].Results {
				id = bridge.FirstOf(id, rawjson.MemberString([]byte(one.Text), "agent_id"))
			}
		}
		return scriptedmodel.Step{scriptedmodel.Call("multi_agent_v1/send_input", map[string]any{"target": id, "message": "go on"})}
	}
	w.Model.On(scriptedmodel.Exactly("begin"), scriptedmodel.Step{scriptedmodel.Call("multi_agent_v1/spawn_agent", map[string]any{"message": "say first"})}, scriptedmodel.Step{scriptedmodel.Say("parent done")})
	w.Model.On(scriptedmodel.Exactly("go on"), scriptedmodel.Step{scriptedmodel.Say("going on"), scriptedmodel.Gate(never)})
	w.Model.OnRequest(scriptedmodel.Exactly("tell it more"), func(r *scriptedmodel.Request) []scriptedmodel.Step {
		return []scriptedmodel.Step{tell(r), {scriptedmodel.Say("parent done")}}
	})
	w.Model.OnRequest(scriptedmodel.Exactly("tell it and wait"), func(r *scriptedmodel.Request) []scriptedmodel.Step {
		return []scriptedmodel.Step{tell(r), {scriptedmodel.Say("waiting"), scriptedmodel.Gate(never)}}
	})
	id := c.New(full)
	from := c.Seen()
	c.Turn(id, "begin")
	ended := func(status string) func(m *acp.Message) bool {
		return func(m *acp.Message) bool {
			return rawjson.MemberString(m.Update(), "sessionUpdate") == "tool_call_update" && rawjson.MemberString(m.Update(), "status") == status
		}
	}
	c.Await("the end of the subagent", from, ended("completed"))
	c.StopSubagent(id, "tell it more")
	from = c.Seen()
	p := c.Prompt(id, "tell it and wait")
	c.Await("the words of the subagent", from, func(m *acp.Message) bool { return strings.Contains(string(m.Update()), "going on") })
	c.Notify(acp.MethodSessionCancel, map[string]any{"sessionId": id})
	if r, e := c.Result(p); e != nil || rawjson.MemberString(r, "stopReason") != "cancelled" {
		w.T.Errorf("it ended with %s, %v", r, e)
	}
	c.Await("the end of the subagent", from, ended("failed"))
}

// liveBackgroundTerminal: what a turn leaves running on purpose goes on, and
// ends behind the turn.
func liveBackgroundTerminal(t *testing.T, w *world) {
	w.Model.On(scriptedmodel.Exactly("leave it"),
		scriptedmodel.Step{scriptedmodel.Call("exec_command", map[string]any{"cmd": "sleep 2; echo over > " + filepath.Join(w.Cwd, "over"), "yield_time_ms": 300})},
		scriptedmodel.Step{scriptedmodel.Say("left")})
	c := w.open(schema.ClientCapabilities{}, nil)
	id := c.New(full)
	_, got := c.Turn(id, "leave it")
	if call := only(t, got); call.Status != schema.ToolCallStatusInProgress {
		t.Errorf("behind its turn the command is %s", call.Status)
	}
	c.Await("its end", 0, func(m *acp.Message) bool {
		return rawjson.MemberString(m.Update(), "sessionUpdate") == "tool_call_update" && rawjson.MemberString(m.Update(), "status") == "completed"
	})
	w.Read(filepath.Join(w.Cwd, "over"))
}
