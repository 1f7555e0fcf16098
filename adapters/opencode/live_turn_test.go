package opencode

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// calls are the tool calls of updates, each as it is at the end, in order.
func calls(list []schema.SessionUpdate) []*schema.ToolCall {
	var out []*schema.ToolCall
	byID := map[schema.ToolCallID]*schema.ToolCall{}
	for _, u := range list {
		if u.ToolCall != nil {
			byID[u.ToolCall.ToolCallID] = u.ToolCall
			out = append(out, u.ToolCall)
		}
		if u.ToolCallUpdate == nil {
			continue
		}
		c := byID[u.ToolCallUpdate.ToolCallID]
		if c == nil {
			continue
		}
		if u.ToolCallUpdate.Status != "" {
			c.Status = u.ToolCallUpdate.Status
		}
		if u.ToolCallUpdate.Content != nil {
			c.Content = u.ToolCallUpdate.Content
		}
	}
	return out
}

func textOf(c *schema.ToolCall) string {
	var b strings.Builder
	for _, one := range c.Content {
		if one.Content != nil && one.Content.Content.Text != nil {
			b.WriteString(one.Content.Content.Text.Text)
		}
	}
	return b.String()
}

func thoughts(list []schema.SessionUpdate) string {
	var b strings.Builder
	for _, u := range list {
		if u.AgentThoughtChunk != nil && u.AgentThoughtChunk.Content.Text != nil {
			b.WriteString(u.AgentThoughtChunk.Content.Text.Text)
		}
	}
	return b.String()
}

// saidSoFar waits until the agent has said something.
func (c *client) saidSoFar(from int, text string) {
	c.W.T.Helper()
	c.Await("text "+text, from, func(*acp.Message) bool { return strings.Contains(bridgetest.Said(c.Updates(from)), text) })
}

func liveTurn(t *testing.T, w *world) {
	c := w.open(schema.ClientCapabilities{}, nil)
	id := c.New("")
	how, got := c.Turn(id, "think deeply about it")
	if how != schema.StopReasonEndTurn || strings.TrimSpace(thoughts(got)) != "deeply about it" || bridgetest.Said(got) != "thought" {
		t.Errorf("%s: thought %q, said %q", how, thoughts(got), bridgetest.Said(got))
	}
	_, got = c.Turn(id, "run for i in 1 2 3; do echo out $i; sleep 0.4; done")
	live := 0
	for _, u := range got {
		if up := u.ToolCallUpdate; up != nil && up.Status == schema.ToolCallStatusInProgress && len(up.Content) > 0 {
			live++
		}
	}
	if all := calls(got); len(all) != 1 || live < 2 || !strings.Contains(textOf(all[0]), "out 1\nout 2\nout 3\n") {
		t.Errorf("%d live updates, then %+v", live, all)
	}
	title, used, price := "", uint64(0), 0.0
	for _, u := range c.Updates(0) {
		if u.SessionInfoUpdate != nil && u.SessionInfoUpdate.Title != nil {
			title = *u.SessionInfoUpdate.Title
		}
		if u.UsageUpdate != nil {
			used, price = u.UsageUpdate.Used, u.UsageUpdate.Cost.Amount
		}
	}
	if title != "Scripted title" || used == 0 || price == 0 {
		t.Errorf("title %q, %d tokens used, %f spent", title, used, price)
	}
	// A megabyte goes through as it is. The program takes long for many small pieces.
	large := strings.Repeat("0123456789abcdef", 1<<16)
	w.Model.On(scriptedmodel.Contains(large[:100]), scriptedmodel.Step{scriptedmodel.Chunks(64 << 10), scriptedmodel.Say(large)})
	if _, got = c.Turn(id, "say "+large); bridgetest.Said(got) != large {
		t.Errorf("%d bytes came back of %d", len(bridgetest.Said(got)), len(large))
	}
}

// liveBrokenStreamOfEvents cuts the stream in the middle of a text, of a
// command and before a permission is asked for. Nothing is lost, and nothing is
// shown twice.
func liveBrokenStreamOfEvents(t *testing.T, w *world) {
	gate := make(chan struct{})
	var words []string
	for i := range 60 {
		words = append(words, fmt.Sprintf("w%d ", i))
	}
	w.Model.On(scriptedmodel.Exactly("long"),
		scriptedmodel.Step{scriptedmodel.Slowly(20 * time.Millisecond), scriptedmodel.SayChunks(words...), scriptedmodel.Call("bash", map[string]any{
			"command": "for i in 1 2 3 4 5 6; do echo line $i; sleep 0.3; done", "description": "counts",
		})},
		scriptedmodel.Step{scriptedmodel.Gate(gate), scriptedmodel.Call("bash", map[string]any{"command": "touch " + w.Home + "/made", "description": "makes"})},
		scriptedmodel.Step{scriptedmodel.Say("the end")})
	c, cuts := w.open(schema.ClientCapabilities{}, bridgetest.Pick("once")), w.probe
	id := c.New("")
	from := c.Seen()
	turn := c.Prompt(id, "long")
	c.saidSoFar(from, "w5 ")
	cuts.cut()
	cuts.mend()
	c.Await("output", from, func(m *acp.Message) bool { return strings.Contains(string(m.Params()), "line 2") })
	cuts.cut()
	close(gate) // the permission is asked for while nobody listens
	time.AfterFunc(3*time.Second, cuts.mend)
	r, e := c.Result(turn)
	if e != nil || stop(r) != schema.StopReasonEndTurn {
		t.Fatalf("%s, %v\n%s", r, e, c.Quote())
	}
	got := c.Updates(from)
	if want := strings.TrimSpace(strings.Join(words, "")); strings.TrimSpace(strings.TrimSuffix(bridgetest.Said(got), "the end")) != want {
		t.Errorf("said %q", bridgetest.Said(got))
	}
	all := calls(got)
	if len(all) != 2 || all[0].Status != schema.ToolCallStatusCompleted || all[1].Status != schema.ToolCallStatusCompleted || !strings.Contains(textOf(all[0]), "line 6") {
		t.Errorf("calls %+v", all)
	}
	if _, got := c.Turn(id, "say alive"); bridgetest.Said(got) != "alive" {
		t.Errorf("then it said %q", bridgetest.Said(got))
	}
}

// TestLive_ServerDies shows what becomes of turns when the process ends, and
// that the next process knows everything. The first one starts at the third attempt.
func TestLive_ServerDies(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Env = append(w.Env, "OPENCODE_MODELS_PATH=") // the catalogue in its program
	w.probe = &probe{Adapter: New()}
	w.Use(w.probe)
	left := w.Write(filepath.Join(w.State, "scratch", "of-a-gateway-that-was-killed", "library.so"), "", 0o600)
	program := w.Program.Path
	starts := w.failing("database is locked", 2, fmt.Sprintf("exec %q \"$@\"", program))
	c := w.open(schema.ClientCapabilities{}, nil)
	w.Program.Path = program // of the next process
	// What follows shows that one that was put right does not stay wrong.
	w.Write(filepath.Join(w.Cwd, "opencode.json"), `{"permission": 5}`, 0o600)
	_, wrong := c.Call(acp.MethodSessionNew, &schema.NewSessionRequest{Cwd: w.Cwd, MCPServers: []schema.MCPServer{}})
	t.Run("WrongConfiguration", func(t *testing.T) {
		if wrong == nil || !strings.Contains(wrong.Message, "correct it") {
			t.Errorf("a wrong configuration: %v", wrong)
		}
	})
	t.Run("StartSucceedsAtLast", func(t *testing.T) {
		if got := strings.Count(w.Read(starts), "x"); got != 3 {
			t.Errorf("it was started %d times, want 3", got)
		}
	})
	w.Write(filepath.Join(w.Cwd, "opencode.json"), `{}`, 0o600)
	modes, images := restartModesModelsEffort(t, w, c), restartAttachments(t, w, c)
	id := c.New("")
	c.Turn(id, "say before the end")
	unpacked := func() []string {
		found, _ := filepath.Glob(filepath.Join(w.State, "scratch", "*", ".*"))
		return found
	}
	if _, err := os.Stat(left); err == nil || len(unpacked()) == 0 {
		t.Errorf("a server has unpacked %v, and what another left: %v", unpacked(), err)
	}
	from := c.Seen()
	turn := c.Prompt(id, "run echo begun; sleep 600")
	c.Await("output", from, func(m *acp.Message) bool { return strings.Contains(string(m.Params()), "begun") })
	kill(t, c)
	if exit, ok := errors.AsType[*adapters.ExitError](c.Ended()); !ok || exit.Signal == "" {
		t.Errorf("the connection ended with %v", c.Ended())
	}
	_ = turn
	if all := calls(c.Updates(from)); len(all) != 1 || all[0].Status != schema.ToolCallStatusFailed {
		t.Errorf("the call that ran is %+v", all)
	}
	again := w.open(schema.ClientCapabilities{}, nil)
	from = again.Seen()
	again.Must(acp.MethodSessionLoad, &schema.LoadSessionRequest{SessionID: id, Cwd: w.Cwd, MCPServers: []schema.MCPServer{}})
	got := again.Updates(from)
	if all := calls(got); len(all) != 1 || all[0].Status != schema.ToolCallStatusFailed || !strings.Contains(bridgetest.Said(got), "before the end") {
		t.Errorf("the replay says %q with %+v", bridgetest.Said(got), all)
	}
	if _, got := again.Turn(id, "recall"); !strings.Contains(bridgetest.Said(got), "before the end") {
		t.Errorf("it recalls %q", bridgetest.Said(got))
	}
	modes(again)
	images(again)
	// A server that answers nothing keeps no turn.
	w.probe.agent.abortBound = time.Second
	from = again.Seen()
	again.Prompt(id, "forever")
	again.saidSoFar(from, "tick")
	pid := again.Conn.(adapters.Process).PID()
	if err := bridgetest.Stop(pid); err != nil {
		t.Fatal(err)
	}
	again.Notify(acp.MethodSessionCancel, &schema.CancelNotification{SessionID: id})
	if err := again.Ended(); err == nil {
		t.Error("the server that hangs has not ended")
	}
	// A prompt to a server that has just died has reached nobody: it may be given to another.
	third := w.open(schema.ClientCapabilities{}, nil)
	third.Must(acp.MethodSessionLoad, &schema.LoadSessionRequest{SessionID: id, Cwd: w.Cwd, MCPServers: []schema.MCPServer{}})
	srv, _ := w.probe.agent.servers.Open(asConfigured)
	kill(t, third)
	for { // until it is dead it takes connections
		conn, err := net.Dial("tcp", strings.TrimPrefix(srv.base, "http://"))
		if err != nil {
			break
		}
		_ = conn.Close()
	}
	prompt := acp.NewRequest("900", acp.MethodSessionPrompt, []byte(`{"sessionId":"`+string(id)+`","prompt":[{"type":"text","text":"say never"}]}`))
	noticed := third.Conn.Write(t.Context(), prompt) != nil // before: the prompt is not this process's
	if err := third.Ended(); err == nil || !noticed && !third.Conn.(adapters.Untaker).Untaken(string(id)) {
		t.Errorf("a prompt to a dead server counts as taken: %v", err)
	}
	if found := unpacked(); len(found) > 0 {
		t.Errorf("after all servers there is still %v", found)
	}
}

// liveAbortLeavesNothing shows that what an aborted turn asks is not listed
// for ever.
func liveAbortLeavesNothing(t *testing.T, w *world) {
	c := w.open(schema.ClientCapabilities{}, nil)
	a := w.probe.agent
	id := c.New("")
	for _, prompt := range []string{"run touch " + w.Home + "/never", "ask"} {
		w.Model.On(scriptedmodel.Exactly("ask"), scriptedmodel.Step{scriptedmodel.Call("question", map[string]any{"questions": []any{map[string]any{
			"question": "Which?", "header": "Which", "options": []any{map[string]string{"label": "A", "description": "a"}, map[string]string{"label": "B", "description": "b"}},
		}}})})
		from := c.Seen()
		turn := c.Prompt(id, prompt)
		c.Await("a request", from, func(m *acp.Message) bool { return m.IsRequest() })
		c.Notify(acp.MethodSessionCancel, &schema.CancelNotification{SessionID: id})
		if r, e := c.Result(turn); e != nil || stop(r) != schema.StopReasonCancelled {
			t.Fatalf("%s, %v", r, e)
		}
		srv, _ := a.servers.Open(asConfigured)
		for _, kind := range []string{"/permission", "/question"} {
			var list []ask
			if err := srv.call(t.Context(), "GET", at(kind, w.Cwd), nil, &list); err != nil || len(list) > 0 {
				t.Errorf("%s lists %+v, %v", kind, list, err)
			}
		}
	}
}

// liveManyTurns runs turns of many sessions at once in one process.
func liveManyTurns(t *testing.T, w *world) {
	agentcache.Long(t, `the scenario "sessions at once" shows it through the gateway`)
	for i := range 12 {
		w.Model.On(scriptedmodel.Exactly(fmt.Sprintf("count %d", i)),
			scriptedmodel.Step{scriptedmodel.Say(fmt.Sprintf("number %d begins. ", i)), scriptedmodel.Call("bash", map[string]any{"command": fmt.Sprintf("echo %d; sleep 0.3", i), "description": "counts"})},
			scriptedmodel.Step{scriptedmodel.Say(fmt.Sprintf("I am number %d.", i))})
	}
	c := w.open(schema.ClientCapabilities{}, nil)
	began := time.Now()
	var all []schema.SessionID
	for range 12 {
		all = append(all, c.New(""))
	}
	t.Logf("12 sessions in %v", time.Since(began))
	for range 2 {
		began, from := time.Now(), c.Seen()
		var turns []acp.ID
		for i, id := range all {
			turns = append(turns, c.Prompt(id, fmt.Sprintf("count %d", i)))
		}
		for i, turn := range turns {
			if r, e := c.Result(turn); e != nil || stop(r) != schema.StopReasonEndTurn {
				t.Errorf("turn %d: %s, %v", i, r, e)
			}
		}
		t.Logf("12 turns in %v", time.Since(began))
		said := map[schema.SessionID]*strings.Builder{}
		ended := map[acp.ID]bool{}
		byTurn := map[schema.SessionID]acp.ID{}
		for i, id := range all {
			said[id], byTurn[id] = &strings.Builder{}, turns[i]
		}
		for _, m := range c.Frames()[from:] {
			if m.IsResponse() {
				ended[m.ID()] = true
			}
			id := schema.SessionID(rawjson.MemberString(m.Params(), "sessionId"))
			if text := rawjson.MemberString(m.Update(), "content", "text"); rawjson.MemberString(m.Update(), "sessionUpdate") == "agent_message_chunk" {
				if ended[byTurn[id]] {
					t.Errorf("%q comes after the end of its turn", text)
				}
				said[id].WriteString(text)
			}
		}
		for i, id := range all {
			if want := fmt.Sprintf("number %d begins. I am number %d.", i, i); said[id].String() != want {
				t.Errorf("session %d said %q", i, said[id])
			}
		}
	}
}
