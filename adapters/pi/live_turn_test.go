package pi

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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

func replaceURL(s, url string) string { return strings.ReplaceAll(s, "URL", url) }

// text joins the texts of a call's content.
func text(content []schema.ToolCallContent) string {
	var b strings.Builder
	for _, c := range content {
		if c.Content != nil && c.Content.Content.Text != nil {
			b.WriteString(c.Content.Content.Text.Text)
		}
	}
	return b.String()
}

// thought joins what the agent thought.
func thought(list []schema.SessionUpdate) string {
	var b strings.Builder
	for _, u := range list {
		if u.AgentThoughtChunk != nil {
			b.WriteString(u.AgentThoughtChunk.Content.Text.Text)
		}
	}
	return b.String()
}

func liveTurn(t *testing.T, w *world) {
	c := w.open(schema.ClientCapabilities{}, bridgetest.Pick(optionAllow))
	id := c.New("")
	_, got := c.Turn(id, "think deeply about it")
	if thought(got) != "deeply about it" || bridgetest.Said(got) != "thought" {
		t.Errorf("thought %q, said %q", thought(got), bridgetest.Said(got))
	}
	if _, got = c.Turn(id, "stream 30"); !strings.HasSuffix(bridgetest.Said(got), "chunk 29 chunk 30 ") || strings.Count(bridgetest.Said(got), "chunk 7 ") != 1 {
		t.Errorf("said %q", bridgetest.Said(got))
	}
	_, got = c.Turn(id, "read "+w.Write("result.txt", "what it says\n", 0o600))
	if !slices.ContainsFunc(got, func(u schema.SessionUpdate) bool {
		return u.ToolCallUpdate != nil && u.ToolCallUpdate.Status == schema.ToolCallStatusCompleted && strings.Contains(text(u.ToolCallUpdate.Content), "what it says")
	}) {
		t.Errorf("the result is not shown\n%s", c.Quote())
	}
	_, got = c.Turn(id, "run for i in 1 2 3; do echo out $i; sleep 0.3; done")
	live, last := 0, ""
	for _, u := range got {
		if up := u.ToolCallUpdate; up != nil && len(up.Content) > 0 {
			if last = text(up.Content); up.Status == schema.ToolCallStatusInProgress {
				live++
			}
		}
	}
	if live < 2 || last != "```console\nout 1\nout 2\nout 3\n```" {
		t.Errorf("the output was shown %d times while it came, at last %q", live, last)
	}
	w.script("count\nwell", scriptedmodel.Step{scriptedmodel.Usage(1000, 50, 3000, 0), scriptedmodel.Say("ok")})
	_, got = c.Turn(id, "count\nwell")
	var use *schema.UsageUpdate
	for _, u := range got {
		if u.UsageUpdate != nil {
			use = u.UsageUpdate
		}
	}
	if use == nil || use.Used != 4050 || use.Size != 128000 || use.Cost == nil || use.Cost.Amount <= 0 {
		t.Errorf("usage %+v", use)
	}
	for prompt, want := range map[string]schema.StopReason{"max_tokens": schema.StopReasonMaxTokens, "refusal": schema.StopReasonRefusal} {
		w.script("stop "+prompt, scriptedmodel.Step{scriptedmodel.Say("so far"), scriptedmodel.Stop(prompt)})
		if stop, _ := c.Turn(id, "stop "+prompt); stop != want {
			t.Errorf("%s ends with %s", prompt, stop)
		}
	}
}

func liveErrors(t *testing.T, w *world) {
	c := w.open(noticing, nil)
	id := c.New("")
	for status, code := range map[int]int64{400: acp.CodeInternal, 401: acp.CodeAuthRequired} {
		_, e := c.Result(c.Prompt(id, "fail "+strconv.Itoa(status)))
		if e == nil || e.Code != code || !strings.Contains(e.Message, "scripted failure") {
			t.Errorf("status %d: the prompt ended with %v", status, e)
		}
	}
	w.script("hard", scriptedmodel.Step{scriptedmodel.FailTimes(1, 529, "", "overloaded for now"), scriptedmodel.Say("done")})
	stop, got := c.Turn(id, "hard")
	noticed := false
	for _, u := range got {
		noticed = noticed || u.Notice != nil && strings.Contains(u.Notice.Title, "attempt 1 of 2")
	}
	noticed = noticed || w.version == agentcache.PiLegacy // whose client library tries again by itself
	if stop != schema.StopReasonEndTurn || bridgetest.Said(got) != "done" || !noticed {
		t.Errorf("ended with %s, said %q, noticed %t", stop, bridgetest.Said(got), noticed)
	}
	if _, e := c.Result(c.Prompt(id, "fail 503")); e == nil || !strings.Contains(e.Message, "scripted failure 503") {
		t.Errorf("after all retries the prompt ended with %v", e)
	}
	if stop, _ := c.Turn(id, "say and on"); stop != schema.StopReasonEndTurn {
		t.Errorf("the next turn ended with %s", stop)
	}
}

// liveRetriesSayNothingTwice: the stream is cut twice, and each attempt begins
// anew.
func liveRetriesSayNothingTwice(t *testing.T, w *world) {
	w.script("cut", scriptedmodel.Step{scriptedmodel.Think("let me see"), scriptedmodel.Say("one two three "), scriptedmodel.Drop()})
	c := w.open(noticing, nil)
	id := c.New("")
	from := c.Seen()
	if _, e := c.Result(c.Prompt(id, "cut")); e == nil {
		t.Error("a stream that is always cut is no error")
	}
	if got := c.Updates(from); bridgetest.Said(got) != "one two three " || thought(got) != "let me see" {
		t.Errorf("said %q, thought %q\n%s", bridgetest.Said(got), thought(got), c.Quote())
	}
	if n := len(w.Turns()); n != 3 {
		t.Errorf("the model was asked %d times, want 3", n)
	}
	if _, got := c.Turn(id, "say one two three four"); bridgetest.Said(got) != "one two three four" {
		t.Errorf("the next turn said %q", bridgetest.Said(got))
	}
}

// cancelled cancels a running prompt and checks how it ends.
func (c *client) cancelled(id schema.SessionID, prompt acp.ID) {
	c.W.T.Helper()
	began := time.Now()
	c.Notify(acp.MethodSessionCancel, &schema.CancelNotification{SessionID: id})
	r, e := c.Result(prompt)
	if e != nil || rawjson.MemberString(r, "stopReason") != string(schema.StopReasonCancelled) {
		c.W.T.Fatalf("the cancelled prompt ended with %s, %v\n%s", r, e, c.Quote())
	}
	if d := time.Since(began); d > 20*time.Second {
		c.W.T.Errorf("it took %v", d)
	}
}

// alive reports whether a process runs. One that nobody has waited for yet does
// not.
func alive(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(b), ") Z ")
}

func is(method string) func(m *acp.Message) bool {
	return func(m *acp.Message) bool { return m.Method() == method }
}

func has(text string) func(m *acp.Message) bool {
	return func(m *acp.Message) bool { return strings.Contains(string(m.Frame()), text) }
}

func liveCancelEverywhere(t *testing.T, w *world) {
	agentcache.Long(t, `the scenarios "cancel ..." show it through the gateway`)
	pidfile := filepath.Join(w.Home, "pid")
	c := w.open(noticing, nil)
	id := c.New("")
	c.Notify(acp.MethodSessionCancel, &schema.CancelNotification{SessionID: id}) // idle: harmless

	from := c.Seen()
	p := c.Prompt(id, "forever")
	c.Await("text", from, has("tick 3"))
	c.cancelled(id, p)

	// While a permission is open: Pi alone would never end.
	from = c.Seen()
	never := filepath.Join(w.Home, "never")
	p = c.Prompt(id, "run touch "+never)
	_, ask := c.Await("a request for a permission", from, is(acp.MethodSessionRequestPermission))
	c.cancelled(id, p)
	c.Await("its withdrawal", from, is(acp.MethodCancelRequest))
	late, _ := schema.Encode(bridgetest.Pick(optionAllow)(acp.MethodSessionRequestPermission, nil))
	if err := c.Conn.Write(t.Context(), acp.NewResult(ask.ID(), late)); err != nil {
		t.Fatal(err)
	}

	// With a second call behind the one that is asked about.
	from = c.Seen()
	w.script("both", scriptedmodel.Step{scriptedmodel.Shell("touch " + never), scriptedmodel.Shell("touch " + never)})
	p = c.Prompt(id, "both")
	c.Await("a request for a permission", from, is(acp.MethodSessionRequestPermission))
	c.cancelled(id, p)

	// While Pi waits to try again.
	from = c.Seen()
	w.script("later", scriptedmodel.Step{scriptedmodel.Fail(503, "", "busy")})
	p = c.Prompt(id, "later")
	c.Await("a retry", from, has("attempt 1 of 2"))
	c.cancelled(id, p)

	// While a command runs, which leaves its group.
	c.Must(acp.MethodSessionSetMode, &schema.SetSessionModeRequest{SessionID: id, ModeID: modeBypass})
	from = c.Seen()
	p = c.Prompt(id, "run sh -c 'echo $$ > "+pidfile+"; echo going; exec sleep 1000'")
	c.Await("its output", from, has(`console\ngoing`))
	pid, _ := strconv.Atoi(strings.TrimSpace(w.Read(pidfile)))
	c.cancelled(id, p)
	for end := time.Now().Add(bridgetest.Patience); alive(pid) && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond) // nothing tells that a process has ended
	}
	if pid == 0 || alive(pid) {
		t.Errorf("the command %d runs on", pid)
	}
	calls := map[schema.ToolCallID]schema.ToolCallStatus{}
	for _, u := range c.Updates(0) {
		if u.ToolCall != nil {
			calls[u.ToolCall.ToolCallID] = u.ToolCall.Status
		}
		if u.ToolCallUpdate != nil && u.ToolCallUpdate.Status != "" {
			calls[u.ToolCallUpdate.ToolCallID] = u.ToolCallUpdate.Status
		}
	}
	for call, status := range calls {
		if status != schema.ToolCallStatusFailed {
			t.Errorf("call %s of a cancelled turn is %s", call, status)
		}
	}
	// A cancel right behind its prompt, before anything has begun.
	for range 5 {
		c.cancelled(id, c.Prompt(id, "forever"))
	}
	if stop, got := c.Turn(id, "say still here"); stop != schema.StopReasonEndTurn || bridgetest.Said(got) != "still here" {
		t.Errorf("after all that: %s, %q", stop, bridgetest.Said(got))
	}
	if _, err := os.Stat(never); err == nil {
		t.Error("what was not allowed was done")
	}
	c.Must(acp.MethodSessionSetMode, &schema.SetSessionModeRequest{SessionID: id, ModeID: modeDefault})
}

func liveSecondPromptWaits(t *testing.T, w *world) {
	agentcache.Long(t, `the scenario "a second prompt waits" shows it through the gateway`)
	gate := make(chan struct{})
	w.script("first", scriptedmodel.Step{scriptedmodel.Say("one "), scriptedmodel.Gate(gate), scriptedmodel.Say("two")})
	c := w.open(schema.ClientCapabilities{}, nil)
	id := c.New("")
	from := c.Seen()
	first := c.Prompt(id, "first")
	c.Await("the first answer", from, has(`"one `))
	second := c.Prompt(id, "say three")
	close(gate)
	for _, p := range []acp.ID{first, second} {
		if r, e := c.Result(p); e != nil || rawjson.MemberString(r, "stopReason") != "end_turn" {
			t.Fatalf("prompt %s: %s, %v", p, r, e)
		}
	}
	if got := bridgetest.Said(c.Updates(from)); got != "one twothree" || len(w.Turns()) != 2 {
		t.Errorf("said %q in %d calls", got, len(w.Turns()))
	}
}

// liveQueueOfAnExtension: what it queues belongs to the turn, and is given up
// with it.
func liveQueueOfAnExtension(t *testing.T, w *world) {
	w.extension("queue.js", `export default function (pi) {
  let left = 2;
  pi.on("message_start", (event) => {
    if (event.message.role === "user" && JSON.stringify(event.message).includes("forever")) left = 2;
    if (event.message.role === "assistant" && left-- > 0) pi.sendUserMessage("say from the queue", { deliverAs: "followUp" });
  });
}`)
	c := w.open(schema.ClientCapabilities{}, nil)
	id := c.Fresh()
	if stop, got := c.Turn(id, "say first"); stop != schema.StopReasonEndTurn || bridgetest.Said(got) != "firstfrom the queuefrom the queue" {
		t.Errorf("ended with %s, said %q", stop, bridgetest.Said(got))
	}
	from := c.Seen()
	p := c.Prompt(id, "forever")
	c.Await("text", from, has("tick 3"))
	c.cancelled(id, p)
	if _, got := c.Turn(id, "say next"); !strings.HasPrefix(bridgetest.Said(got), "next") || strings.Count(bridgetest.Said(got), "from the queue") > 1 {
		t.Errorf("said %q", bridgetest.Said(got))
	}
}

// TestLive_DeathInEachState kills the process in each state of a session, which goes on in
// the next process. The scenario "process killed in the middle of turns" shows that of one
// that says something.
func TestLive_DeathInEachState(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := w.open(schema.ClientCapabilities{}, nil)
	id := c.New("")
	c.Turn(id, "say a word to remember")
	for _, state := range []string{"idle", "asking", "cancelling"} {
		from := c.Seen()
		var p acp.ID
		switch state {
		case "cancelling":
			p = c.Prompt(id, "forever")
			c.Await("text", from, has("tick 2"))
		case "asking":
			p = c.Prompt(id, "run touch "+filepath.Join(w.Home, "never"))
			c.Await("a request", from, is(acp.MethodSessionRequestPermission))
		}
		pid := c.Conn.(adapters.Process).PID()
		if state == "cancelling" {
			_ = bridgetest.Stop(pid)
			c.Notify(acp.MethodSessionCancel, &schema.CancelNotification{SessionID: id})
		}
		if err := bridgetest.Kill(pid); err != nil {
			t.Fatal(err)
		}
		if exit, ok := errors.AsType[*adapters.ExitError](c.Ended()); !ok || exit.Signal != "SIGKILL" {
			t.Errorf("%s: reading ended with %v", state, c.Ended())
		}
		for _, m := range c.Frames()[from:] {
			if m.IsResponse() && m.ID() == p && p != "" && m.Err() == nil {
				t.Errorf("%s: the prompt was answered: %s", state, m.Frame())
			}
		}
		c.Close()
		c = w.open(schema.ClientCapabilities{}, nil)
		c.Must(acp.MethodSessionResume, &schema.ResumeSessionRequest{SessionID: id, Cwd: w.Cwd})
		if _, got := c.Turn(id, "recall"); !strings.Contains(bridgetest.Said(got), "a word to remember") {
			t.Errorf("%s: it goes on with %q", state, bridgetest.Said(got))
		}
		if left, _ := filepath.Glob(filepath.Join(w.State, "run", "*")); len(left) > 1 {
			t.Errorf("%s: left behind: %v", state, left)
		}
	}
}

// TestLive_TurnThatDoesNotEnd: a process that does nothing any more is ended, and
// the cancelled prompt with it.
func TestLive_TurnThatDoesNotEnd(t *testing.T) {
	w := newWorld(t)
	defer func(bound time.Duration) { cancelBound = bound }(cancelBound)
	cancelBound = 300 * time.Millisecond
	c := w.open(schema.ClientCapabilities{}, nil)
	id := c.New("")
	from := c.Seen()
	p := c.Prompt(id, "forever")
	c.Await("text", from, has("tick 2"))
	_ = bridgetest.Stop(c.Conn.(adapters.Process).PID())
	c.Notify(acp.MethodSessionCancel, &schema.CancelNotification{SessionID: id})
	if _, ok := errors.AsType[*adapters.ExitError](c.Ended()); !ok {
		t.Errorf("reading ended with %v", c.Ended())
	}
	for _, m := range c.Frames() {
		if m.IsResponse() && m.ID() == p && rawjson.MemberString(m.Result(), "stopReason") != "cancelled" {
			t.Errorf("the prompt ended with %s", m.Frame())
		}
	}
}

func liveLargeMessages(t *testing.T, w *world) {
	const size = 2 << 20
	long := strings.Repeat("0123456789abcde\n", size/16)
	w.Model.On(scriptedmodel.Contains("say much"), scriptedmodel.Step{scriptedmodel.Chunks(256 << 10), scriptedmodel.Say(long)})
	c := w.open(schema.ClientCapabilities{}, nil)
	id := c.New("")
	if _, got := c.Turn(id, "say much "+strings.Repeat("word ", size/5+1)); bridgetest.Said(got) != long {
		t.Errorf("%d bytes came of %d", len(bridgetest.Said(got)), len(long))
	}
	if r := w.Turns()[0]; len(r.Body) < size {
		t.Errorf("the model got %d bytes", len(r.Body))
	}
}

// TestLive_Credentials has a session that brings its own, which go before those of the
// machine. The scenario "no key is said at once" has none.
func TestLive_Credentials(t *testing.T) {
	onBoth(t, func(t *testing.T, w *world) {
		w.Write(".pi/agent/models.json", `{"providers":{}}`, 0o600)
		w.Write(".pi/agent/settings.json", `{}`, 0o600)
		login := w.Write(".pi/agent/auth.json", `{"anthropic":{"type":"api_key","key":"sk-ant-of-a-login"}}`, 0o600)
		w.Env = append(w.Env, "ANTHROPIC_API_KEY=sk-ant-of-the-machine")
		w.Credentials = adapters.Credentials{APIKey: "sk-ant-of-the-session", BaseURL: w.Model.URL}
		c := w.open(schema.ClientCapabilities{}, nil)
		result := c.NewResult("")
		id := schema.SessionID(rawjson.MemberString(result, "sessionId"))
		c.Must(acp.MethodAuthenticate, &schema.AuthenticateRequest{MethodID: methodKey})
		c.Turn(id, "say hi")
		if got := w.last().Header.Get("X-Api-Key"); got != "sk-ant-of-the-session" {
			t.Errorf("the model got the key %q\n%s", got, result)
		}
		cmdline, err := os.ReadFile("/proc/" + strconv.Itoa(c.Conn.(adapters.Process).PID()) + "/cmdline")
		if err == nil && strings.Contains(string(cmdline), "of-the-session") {
			t.Error("the key is among the arguments")
		}
		if left := w.Read(login); strings.Contains(left, "of-the-session") || !strings.Contains(left, "of-a-login") {
			t.Errorf("the user's logins are now %s", left)
		}
		files, _ := filepath.Glob(filepath.Join(w.State, "run", "*", "*"))
		for _, f := range files {
			info, err := os.Stat(f)
			if err != nil || info.Mode().Perm() != 0o600 || strings.Contains(w.Read(f), "of-the-session") {
				t.Errorf("%s has mode %v, %v", f, info.Mode(), err)
			}
		}
		if len(files) == 0 {
			t.Error("the session has no files")
		}
	})
}
