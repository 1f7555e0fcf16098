package codex

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// dot is an image.
const dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

const full = `{"permissionMode":"bypass"}`

// calls are the tool calls of updates, each as it is at the end.
func calls(list []schema.SessionUpdate) map[string]*schema.ToolCall {
	out := map[string]*schema.ToolCall{}
	for _, u := range list {
		switch {
		case u.ToolCall != nil:
			out[string(u.ToolCall.ToolCallID)] = u.ToolCall
		case u.ToolCallUpdate != nil:
			c := out[string(u.ToolCallUpdate.ToolCallID)]
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
	}
	return out
}

// only is the one tool call of updates.
func only(t *testing.T, list []schema.SessionUpdate) *schema.ToolCall {
	t.Helper()
	all := calls(list)
	if len(all) != 1 {
		t.Fatalf("%d tool calls, want 1", len(all))
	}
	for _, c := range all {
		return c
	}
	return nil
}

func contentText(c *schema.ToolCall) string {
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

func liveTurn(t *testing.T, w *world) {
	c := w.open(schema.ClientCapabilities{}, nil)
	id := c.New(full)
	_, got := c.Turn(id, "think deeply about it")
	if thoughts(got) != "deeply about it" || bridgetest.Said(got) != "thought" {
		t.Errorf("thought %q, said %q", thoughts(got), bridgetest.Said(got))
	}
	_, got = c.Turn(id, "run for i in 1 2 3 4; do echo out $i; sleep 0.4; done")
	call, live := only(t, got), 0
	for _, u := range got {
		if up := u.ToolCallUpdate; up != nil && up.Status == schema.ToolCallStatusInProgress && up.Content != nil {
			live++
		}
	}
	if live == 0 || contentText(call) != "```console\nout 1\nout 2\nout 3\nout 4\n```" || call.Status != schema.ToolCallStatusCompleted {
		t.Errorf("%d live updates, then %s: %q", live, call.Status, contentText(call))
	}
	_, got = c.Turn(id, "run exit 3")
	if call := only(t, got); call.Status != schema.ToolCallStatusFailed {
		t.Errorf("a command that failed is %s", call.Status)
	}
	// A title from the first prompt, and tokens.
	title, used := "", uint64(0)
	for _, u := range c.Updates(0) {
		if u.SessionInfoUpdate != nil && u.SessionInfoUpdate.Title != nil {
			title = *u.SessionInfoUpdate.Title
		}
		if u.UsageUpdate != nil && u.UsageUpdate.Size > 100_000 {
			used = u.UsageUpdate.Used
		}
	}
	if title != "think deeply about it" || used == 0 {
		t.Errorf("title %q, %d tokens used", title, used)
	}
	// Reports of 350 kB come whole to the bridge, and shortened to the client.
	_, got = c.Turn(id, "run head -c 350000 /dev/zero | tr '\\0' x; echo THE END")
	if s := contentText(only(t, got)); len(s) > maxOutput+200 || !strings.Contains(s, "THE END") || !strings.Contains(s, "bytes left out") {
		t.Errorf("%d bytes of output are shown: %.100s", len(s), s)
	}
}

func liveDiffs(t *testing.T, w *world) {
	w.Write(filepath.Join(w.Cwd, "old.txt"), "one\ntwo\nthree\n", 0o600)
	w.Write(filepath.Join(w.Cwd, "gone.txt"), "bye\n", 0o600)
	w.Write(filepath.Join(w.Cwd, "mv.txt"), "m1\nm2\n", 0o600)
	patch := "*** Begin Patch\n*** Add File: new.txt\n+alpha\n*** Update File: old.txt\n@@\n-two\n+TWO\n*** Delete File: gone.txt\n" +
		"*** Update File: mv.txt\n*** Move to: sub/moved.txt\n@@\n-m1\n+M1\n*** End Patch\n"
	w.Model.On(scriptedmodel.Exactly("patch"), scriptedmodel.Step{scriptedmodel.Call("apply_patch", patch)}, scriptedmodel.Step{scriptedmodel.Say("patched")})
	c := w.open(schema.ClientCapabilities{}, nil)
	id := c.New(`{"permissionMode":"write"}`)
	_, got := c.Turn(id, "patch")
	call := only(t, got)
	diffs := map[string][2]string{}
	for _, one := range call.Content {
		if d := one.Diff; d != nil {
			old := "-"
			if d.OldText != nil {
				old = *d.OldText
			}
			diffs[strings.TrimPrefix(d.Path, w.Cwd+"/")] = [2]string{old, d.NewText}
		}
	}
	want := map[string][2]string{
		"new.txt": {"-", "alpha\n"}, "old.txt": {"one\ntwo\nthree\n", "one\nTWO\nthree\n"}, "gone.txt": {"bye\n", ""},
		"sub/moved.txt": {"m1\nm2\n", "M1\nm2\n"},
	}
	if fmt.Sprint(diffs) != fmt.Sprint(want) || call.Status != schema.ToolCallStatusCompleted {
		t.Errorf("%s with %q, want %q", call.Status, diffs, want)
	}
	if s := w.Read(filepath.Join(w.Cwd, "sub/moved.txt")); s != "M1\nm2\n" {
		t.Errorf("the moved file holds %q", s)
	}
}

func livePlan(t *testing.T, w *world) {
	w.Model.On(scriptedmodel.Exactly("plan it"),
		scriptedmodel.Step{scriptedmodel.Call("update_plan", map[string]any{"plan": []any{
			map[string]string{"step": "First", "status": "completed"}, map[string]string{"step": "Second", "status": "in_progress"},
		}})}, scriptedmodel.Step{scriptedmodel.Say("planned")})
	c := w.open(schema.ClientCapabilities{}, nil)
	_, got := c.Turn(c.New(""), "plan it")
	for _, u := range got {
		if u.Plan != nil {
			b, _ := schema.Encode(u.Plan.Entries)
			want := `[{"content":"First","priority":"medium","status":"completed"},{"content":"Second","priority":"medium","status":"in_progress"}]`
			if string(b) != want {
				t.Errorf("got %s", b)
			}
			return
		}
	}
	t.Errorf("no plan was shown\n%s", c.Quote())
}

func liveAttachments(t *testing.T, w *world) {
	c := w.open(schema.ClientCapabilities{}, nil)
	id := c.New("")
	c.Must(acp.MethodSessionPrompt, &schema.PromptRequest{SessionID: id, Prompt: []schema.ContentBlock{
		{Image: &schema.ImageContent{Data: dot, MimeType: "image/png"}},
		{Resource: &schema.EmbeddedResource{Resource: schema.EmbeddedResourceResource{TextResourceContents: &schema.TextResourceContents{URI: "file:///w/a.txt", Text: "EMBEDDED"}}}},
		{ResourceLink: &schema.ResourceLink{Name: "linked", URI: "https://example.com/x"}},
		schema.TextBlock("say seen"),
	}})
	turns := w.Turns()
	body := turns[len(turns)-1].Body
	for _, s := range []string{dot, "EMBEDDED", "linked"} {
		if !bytes.Contains(body, []byte(s)) {
			t.Errorf("the model was not given %.20s", s)
		}
	}
	for _, p := range []string{`[]`, `[{"type":"text","text":"  "}]`, `[{"type":"image","data":"","mimeType":"image/png","uri":"https://example.com/x.png"}]`} {
		r := json.RawMessage(fmt.Sprintf(`{"sessionId":%q,"prompt":%s}`, id, p))
		if _, e := c.Call(acp.MethodSessionPrompt, r); e == nil || e.Code != acp.CodeInvalidParams {
			t.Errorf("prompt %s: %v", p, e)
		}
	}
}

// alive reports whether a process runs whose pid a command has written.
func alive(t *testing.T, file string) bool {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(b)) + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func liveCancelEverywhere(t *testing.T, w *world) {
	agentcache.Long(t, `the scenarios "cancel ..." show it through the gateway`)
	w.Model.On(scriptedmodel.Exactly("escalate"), scriptedmodel.Step{scriptedmodel.Call("exec_command", map[string]any{
		"cmd": "touch " + filepath.Join(w.Cwd, "escalated"), "sandbox_permissions": "require_escalated", "justification": "because",
	})}, scriptedmodel.Step{scriptedmodel.Say("escalated")})
	c := w.open(schema.ClientCapabilities{}, nil)
	id := c.New(`{"permissionMode":"write"}`)
	cancel := func() { c.Notify(acp.MethodSessionCancel, map[string]any{"sessionId": id}) }
	ends := func(what string, p acp.ID) {
		t.Helper()
		began := time.Now()
		r, e := c.Result(p)
		if e != nil || rawjson.MemberString(r, "stopReason") != "cancelled" {
			t.Errorf("%s: it ended with %s, %v\n%s", what, r, e, c.Quote())
		}
		if d := time.Since(began); d > 20*time.Second {
			t.Errorf("%s took %v", what, d)
		}
	}
	// Before anything has begun.
	for range 3 {
		p := c.Prompt(id, "forever")
		cancel()
		ends("at once", p)
	}
	from := c.Seen()
	p := c.Prompt(id, "forever")
	c.Await("text", from, func(m *acp.Message) bool { return strings.Contains(string(m.Frame()), "tick 3") })
	cancel()
	ends("streaming", p)

	pid := filepath.Join(w.Cwd, "pid")
	from = c.Seen()
	p = c.Prompt(id, "run echo $$ > "+pid+"; while true; do echo tock; sleep 0.2; done")
	c.output(from, "tock")
	cancel()
	ends("a command", p)
	for _, call := range calls(c.Updates(from)) {
		if call.Status != schema.ToolCallStatusFailed {
			t.Errorf("the command was left %s", call.Status)
		}
	}
	// What comes late of a closed call is dropped.
	_, got := c.Turn(id, "say alive")
	if bridgetest.Said(got) != "alive" || len(calls(got)) > 0 {
		t.Errorf("afterwards it said %q\n%s", bridgetest.Said(got), c.Quote())
	}

	from = c.Seen()
	p = c.Prompt(id, "escalate")
	_, ask := c.Await("a question", from, func(m *acp.Message) bool { return m.Method() == acp.MethodSessionRequestPermission })
	cancel()
	ends("a permission", p)
	// Answered after the cancellation, and twice: nothing happens.
	yes, _ := schema.Encode(bridgetest.Pick("allow_once")(acp.MethodSessionRequestPermission, nil))
	for range 2 {
		if err := c.Conn.Write(t.Context(), acp.NewResult(ask.ID(), yes)); err != nil {
			t.Fatal(err)
		}
	}
	if _, got = c.Turn(id, "say still alive"); bridgetest.Said(got) != "still alive" {
		t.Errorf("afterwards it said %q", bridgetest.Said(got))
	}
	if _, err := os.Stat(filepath.Join(w.Cwd, "escalated")); err == nil {
		t.Error("a late answer was taken for a permission")
	}
}

// output waits for output of a command that begins with text. The command itself
// may have the text, too.
func (c *client) output(from int, text string) {
	c.W.T.Helper()
	c.Await("output", from, func(m *acp.Message) bool {
		return rawjson.MemberString(m.Update(), "sessionUpdate") == "tool_call_update" && strings.Contains(string(m.Update()), "console\\n"+text)
	})
}

// liveCancelEndsTheCommand: codex itself lets it run on. One that is cancelled by itself
// ends, and its turn goes on.
func liveCancelEndsTheCommand(t *testing.T, w *world) {
	c := w.open(schema.ClientCapabilities{}, nil)
	id := c.New(full)
	pid := filepath.Join(w.Cwd, "pid")
	from := c.Seen()
	p := c.Prompt(id, "run while true; do echo tick; sleep 0.2; done")
	c.output(from, "tick")
	call := map[string]any{"sessionId": id}
	for shown := range calls(c.Updates(from)) {
		call["toolCallId"] = shown
	}
	c.Must(bridge.MethodCancelCall, call)
	if r, e := c.Result(p); e != nil || rawjson.MemberString(r, "stopReason") != "end_turn" {
		t.Errorf("a turn whose command was cancelled ended with %s, %v", r, e)
	}
	for _, shown := range calls(c.Updates(from)) {
		if shown.Status != schema.ToolCallStatusFailed {
			t.Errorf("the command that was cancelled is %s", shown.Status)
		}
	}
	if _, err := c.Call(bridge.MethodCancelCall, call); err == nil || err.Code != acp.CodeInvalidParams {
		t.Errorf("a command that is over was cancelled: %v", err)
	}

	from = c.Seen()
	p = c.Prompt(id, "run echo $$ > "+pid+"; while true; do echo tock; sleep 0.2; done")
	c.output(from, "tock")
	if !alive(t, pid) {
		t.Fatal("the command does not run")
	}
	c.Notify(acp.MethodSessionCancel, map[string]any{"sessionId": id})
	if r, e := c.Result(p); e != nil || rawjson.MemberString(r, "stopReason") != "cancelled" {
		t.Errorf("it ended with %s, %v", r, e)
	}
	for end := time.Now().Add(bridgetest.Patience); alive(t, pid); {
		if time.Now().After(end) {
			t.Fatal("the command runs on")
		}
		time.Sleep(20 * time.Millisecond) // nobody tells of its end
	}
}

// liveBusyIsNotSteered: codex would put a second prompt into the turn that
// runs.
func liveBusyIsNotSteered(t *testing.T, w *world) {
	agentcache.Long(t, `the scenario "a second prompt waits" shows it through the gateway`)
	gate := make(chan struct{})
	w.Model.On(scriptedmodel.Exactly("first"), scriptedmodel.Step{scriptedmodel.Say("one "), scriptedmodel.Gate(gate), scriptedmodel.Say("two")})
	c := w.open(schema.ClientCapabilities{}, nil)
	id := c.New("")
	p := c.Prompt(id, "first")
	c.Await("text", 0, func(m *acp.Message) bool { return strings.Contains(string(m.Update()), "one") })
	q := c.Prompt(id, "say second")
	close(gate)
	if r, e := c.Result(p); e != nil || rawjson.MemberString(r, "stopReason") != "end_turn" {
		t.Errorf("the first ended with %s, %v", r, e)
	}
	if r, e := c.Result(q); e != nil || rawjson.MemberString(r, "stopReason") != "end_turn" {
		t.Errorf("the second ended with %s, %v", r, e)
	}
	if s := bridgetest.Said(c.Updates(0)); s != "one twosecond" {
		t.Errorf("said %q", s)
	}
	if n := len(w.Turns()); n != 2 {
		t.Errorf("%d calls of the model, want 2", n)
	}
}

func liveFailures(t *testing.T, w *world) {
	w.Model.On(scriptedmodel.Exactly("cut off"), scriptedmodel.Step{scriptedmodel.Say("so far"), scriptedmodel.Stop("max_tokens")})
	var once sync.Once
	w.Model.OnRequest(scriptedmodel.Exactly("drop"), func(*scriptedmodel.Request) []scriptedmodel.Step {
		steps := []scriptedmodel.Step{{scriptedmodel.Say("a text that is whole")}}
		once.Do(func() {
			steps = []scriptedmodel.Step{{scriptedmodel.SayChunks("a text ", "that"), scriptedmodel.Drop()}}
		})
		return steps
	})
	c := w.open(showing, nil)
	id := c.New("")
	_, got := c.Turn(id, "drop")
	if bridgetest.Said(got) != "a text that is whole" {
		t.Errorf("after a stream that broke it said %q\n%s", bridgetest.Said(got), c.Quote())
	}
	noticed := false
	for _, u := range got {
		noticed = noticed || u.Notice != nil
	}
	if !noticed {
		t.Errorf("nobody was told of the retry\n%s", c.Quote())
	}
	if stop, _ := c.Turn(id, "cut off"); stop != schema.StopReasonMaxTokens {
		t.Errorf("it ended with %s, want max_tokens", stop)
	}
	if _, e := c.Result(c.Prompt(id, "fail 400")); e == nil || e.Code != acp.CodeInternal {
		t.Errorf("400: %v", e)
	}
	began := time.Now()
	_, e := c.Result(c.Prompt(id, "fail 401"))
	if e == nil || e.Code != acp.CodeAuthRequired || time.Since(began) > 20*time.Second {
		t.Errorf("401 after %v: %v", time.Since(began), e)
	}
	if _, got = c.Turn(id, "say alive"); bridgetest.Said(got) != "alive" {
		t.Errorf("afterwards it said %q", bridgetest.Said(got))
	}
}

// liveManyThreads runs turns of many sessions in one process at once.
func liveManyThreads(t *testing.T, w *world) {
	agentcache.Long(t, `the scenario "sessions at once" shows it through the gateway`)
	const many = 20
	c := w.open(schema.ClientCapabilities{}, nil)
	var ids []schema.SessionID
	for range many {
		ids = append(ids, c.New(""))
	}
	var prompts []acp.ID
	for i, id := range ids {
		prompts = append(prompts, c.Prompt(id, fmt.Sprintf("say I am number %d of them", i)))
	}
	for i, p := range prompts {
		if r, e := c.Result(p); e != nil || rawjson.MemberString(r, "stopReason") != "end_turn" {
			t.Errorf("session %d ended with %s, %v", i, r, e)
		}
	}
	said := map[string]string{}
	for _, m := range c.Frames() {
		var u schema.SessionUpdate
		if m.Method() == acp.MethodSessionUpdate && json.Unmarshal(m.Update(), &u) == nil {
			said[m.Session()] += bridgetest.Said([]schema.SessionUpdate{u})
		}
	}
	for i, id := range ids {
		if want := fmt.Sprintf("I am number %d of them", i); said[string(id)] != want {
			t.Errorf("session %d said %q", i, said[string(id)])
		}
	}
}

func liveLargePrompt(t *testing.T, w *world) {
	c := w.open(schema.ClientCapabilities{}, nil)
	id := c.New("")
	const most = 1 << 20
	text := "say " + strings.Repeat("0123456789abcdef", most/16)[:most-len("say ")]
	w.Model.On(scriptedmodel.Contains("0123456789abcdef0123"), scriptedmodel.Step{scriptedmodel.SayChunks(text[:most/2], text[most/2:])})
	if _, got := c.Turn(id, text); bridgetest.Said(got) != text {
		t.Errorf("of %d bytes %d came back", len(text), len(bridgetest.Said(got)))
	}
	if _, e := c.Result(c.Prompt(id, text+"!")); e == nil || e.Code != acp.CodeInvalidParams || !strings.Contains(e.Message, "1048576") {
		t.Errorf("a larger one: %v", e)
	}
}
