package claude

import (
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// noticing are the capabilities of a client that shows notices.
var noticing = acp.ClientCapabilities{Session: &acp.ClientSessionCapabilities{
	Notices: &acp.NoticeCapabilities{}, Compaction: &acp.CompactionCapabilities{},
}}

func TestLive_MissingKeyIsSaidAtOnce(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "ANTHROPIC_API_KEY=")
	c := w.open(acp.ClientCapabilities{}, nil)
	_, e := c.call(acp.MethodSessionNew, &acp.NewSessionRequest{Cwd: w.cwd, MCPServers: []acp.MCPServer{}})
	if e == nil || e.Code != acp.CodeAuthRequired || !strings.Contains(e.Message, "ANTHROPIC_API_KEY") {
		t.Fatalf("session/new without credentials: %v", e)
	}
	if left, _ := filepath.Glob(filepath.Join(w.state, "*", "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	var s acp.AuthStatusResponse
	if err := json.Unmarshal(c.must(acp.MethodAuthStatus, struct{}{}), &s); err != nil || s.State != acp.AuthStateUnauthenticated {
		t.Errorf("auth/status says %+v, %v", s, err)
	}
	if _, e := c.call(acp.MethodAuthenticate, &acp.AuthenticateRequest{MethodID: methodKey}); e == nil || e.Code != acp.CodeAuthRequired {
		t.Errorf("authenticate without a key: %v", e)
	}
}

func TestLive_CredentialsOfTheSession(t *testing.T) {
	w := newWorld(t)
	w.creds = adapters.Credentials{OAuthToken: "sk-ant-oat-of-the-session"}
	c := w.open(acp.ClientCapabilities{}, nil)
	id := c.new("")
	c.turn(id, "say hi")
	r := w.model.Turns()[0]
	if got := r.Header.Get("Authorization"); got != "Bearer sk-ant-oat-of-the-session" || r.Header.Get("X-Api-Key") != "" {
		t.Errorf("the model got Authorization %q and key %q", got, r.Header.Get("X-Api-Key"))
	}
	c.must(acp.MethodAuthenticate, &acp.AuthenticateRequest{MethodID: methodKey})
	cmdline, err := os.ReadFile("/proc/" + strconv.Itoa(c.conn.(adapters.Process).PID()) + "/cmdline")
	if err == nil && strings.Contains(string(cmdline), "oat-of-the-session") {
		t.Error("the token is among the arguments")
	}
}

func TestLive_BadKeyEndsAtTheFirstRetry(t *testing.T) {
	for _, status := range []int{401, 403} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			w := newWorld(t)
			c := w.open(noticing, nil)
			id := c.new("")
			began := time.Now()
			_, e := c.result(c.prompt(id, "fail "+strconv.Itoa(status)))
			if e == nil || e.Code != acp.CodeAuthRequired || !strings.Contains(e.Message, "claude auth login") {
				t.Fatalf("the prompt ended with %v", e)
			}
			if d := time.Since(began); d > 10*time.Second {
				t.Errorf("it took %v", d)
			}
			if stop, _ := c.turn(id, "say good again"); stop != acp.StopReasonEndTurn {
				t.Errorf("the next prompt ended with %s", stop)
			}
		})
	}
}

func TestLive_RetriesAreShown(t *testing.T) {
	for status, word := range map[int]string{429: "rate", 529: "overloaded"} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			w := newWorld(t)
			w.model.On(scriptedmodel.Exactly("hard"), scriptedmodel.Step{
				scriptedmodel.Header("retry-after", "1"), scriptedmodel.FailTimes(1, status, "", "later"), scriptedmodel.Say("done"),
			})
			for _, caps := range []acp.ClientCapabilities{noticing, {}} {
				c := w.open(caps, nil)
				id := c.new("")
				w.model.On(scriptedmodel.Exactly("hard"), scriptedmodel.Step{scriptedmodel.FailTimes(1, status, "", "later"), scriptedmodel.Say("done")})
				stop, got := c.turn(id, "hard")
				if stop != acp.StopReasonEndTurn || spoken(got) != "done" {
					t.Errorf("ended with %s, said %q", stop, spoken(got))
				}
				shown := false
				for _, u := range got {
					shown = shown || caps.Session != nil && u.Notice != nil && strings.Contains(u.Notice.Title, word)
					shown = shown || caps.Session == nil && u.AgentThoughtChunk != nil && strings.Contains(u.AgentThoughtChunk.Content.Text.Text, word)
				}
				if !shown {
					t.Errorf("no retry was shown with %+v\n%s", caps, c.quote())
				}
				c.close()
			}
		})
	}
}

func TestLive_ErrorsThatArriveAsSuccess(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "CLAUDE_CODE_MAX_RETRIES=0")
	c := w.open(acp.ClientCapabilities{}, nil)
	id := c.new("")
	for _, status := range []int{400, 404, 500, 529} {
		_, e := c.result(c.prompt(id, "fail "+strconv.Itoa(status)))
		if e == nil || e.Code != acp.CodeInternal {
			t.Errorf("status %d: the prompt ended with %v", status, e)
		}
	}
	if got := spoken(c.updates(0)); got != "" {
		t.Errorf("errors were shown as an answer: %q", got)
	}
	c.turn(id, "say and on")
}

func TestLive_StopReasons(t *testing.T) {
	w := newWorld(t)
	// The program goes on by itself after both, with prompts of its own.
	always := func(prompt string) scriptedmodel.Match {
		return scriptedmodel.When("always "+prompt, func(r *scriptedmodel.Request, _ string) bool { return slices.Contains(r.Prompts(), prompt) })
	}
	w.model.On(always("too long"), scriptedmodel.Step{scriptedmodel.Say("and on"), scriptedmodel.Stop("max_tokens")})
	w.model.On(always("bad"), scriptedmodel.Step{scriptedmodel.Say("I "), scriptedmodel.Stop("refusal")})
	loop := make([]scriptedmodel.Step, 5)
	for i := range loop {
		loop[i] = scriptedmodel.Step{scriptedmodel.Shell("echo " + strconv.Itoa(i))}
	}
	w.model.On(scriptedmodel.Exactly("loop"), loop...)
	for _, tt := range []struct {
		prompt, meta string
		want         acp.StopReason
	}{
		{"too long", "", acp.StopReasonMaxTokens},
		{"bad", "", acp.StopReasonRefusal},
		{"loop", `{"agentSpecific":{"claude":{"maxTurns":1}}}`, acp.StopReasonMaxTurnRequests},
		{"loop", `{"agentSpecific":{"claude":{"maxBudgetUsd":0.000001}}}`, acp.StopReasonMaxTurnRequests},
	} {
		t.Run(tt.prompt+tt.meta, func(t *testing.T) {
			c := w.open(acp.ClientCapabilities{}, nil)
			defer c.close()
			if stop, _ := c.turn(c.new(tt.meta), tt.prompt); stop != tt.want {
				t.Errorf("ended with %s, want %s\n%s", stop, tt.want, c.quote())
			}
		})
	}
}

// cancelled cancels a running prompt and checks how it ends.
func (c *client) cancelled(id acp.SessionID, prompt acp.ID) {
	c.w.t.Helper()
	c.notify(acp.MethodSessionCancel, &acp.CancelNotification{SessionID: id})
	r, e := c.result(prompt)
	if e != nil || acp.MemberString(r, "stopReason") != string(acp.StopReasonCancelled) {
		c.w.t.Fatalf("the cancelled prompt ended with %s, %v\n%s", r, e, c.quote())
	}
}

// alive reports whether a process runs. One that nobody has waited for yet does
// not.
func alive(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(b), ") Z ")
}

func TestLive_CancelEverywhere(t *testing.T) {
	w := newWorld(t)
	w.write(".claude/settings.json", `{"permissions":{"allow":["Bash(sh:*)"]}}`, 0o600)
	pidfile := filepath.Join(w.home, "pid")
	// In a session of its own, as a server that a tool starts would be.
	script := w.write("long.sh", "setsid sh -c 'echo $$ >"+pidfile+"; exec sleep 1000'", 0o700)
	c := w.open(acp.ClientCapabilities{}, nil)
	id := c.new("")

	c.notify(acp.MethodSessionCancel, &acp.CancelNotification{SessionID: id}) // idle: harmless

	from := c.seen()
	p := c.prompt(id, "forever")
	c.await("text", from, func(m *acp.Message) bool { return strings.Contains(string(m.Frame()), "tick 3") })
	c.cancelled(id, p)

	from = c.seen()
	p = c.prompt(id, "run sh "+script)
	var pid int
	deadline := time.Now().Add(patience)
	for pid == 0 && time.Now().Before(deadline) {
		c.await("the call", from, func(m *acp.Message) bool { return strings.Contains(string(m.Frame()), "long.sh") })
		b, _ := os.ReadFile(pidfile)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		if pid == 0 {
			time.Sleep(20 * time.Millisecond) // there is no event for what a script did
		}
	}
	c.cancelled(id, p)
	calls := map[acp.ToolCallID]acp.ToolCallStatus{}
	for _, u := range c.updates(from) {
		if u.ToolCall != nil {
			calls[u.ToolCall.ToolCallID] = u.ToolCall.Status
		}
		if u.ToolCallUpdate != nil && u.ToolCallUpdate.Status != "" {
			calls[u.ToolCallUpdate.ToolCallID] = u.ToolCallUpdate.Status
		}
	}
	for call, status := range calls {
		if status != acp.ToolCallStatusFailed {
			t.Errorf("call %s of the cancelled turn is %s", call, status)
		}
	}

	from = c.seen()
	p = c.prompt(id, "run touch "+filepath.Join(w.home, "never"))
	c.await("a request for a permission", from, func(m *acp.Message) bool { return m.Method() == acp.MethodSessionRequestPermission })
	c.cancelled(id, p)
	c.await("its withdrawal", from, func(m *acp.Message) bool { return m.Method() == acp.MethodCancelRequest })

	// A cancel right behind its prompt, before anything has begun.
	for range 5 {
		p = c.prompt(id, "forever")
		c.cancelled(id, p)
	}
	if stop, got := c.turn(id, "say still here"); stop != acp.StopReasonEndTurn || spoken(got) != "still here" {
		t.Errorf("after all that: %s, %q", stop, spoken(got))
	}
	c.close()
	if pid == 0 || alive(pid) {
		t.Errorf("the tool's process %d is left", pid)
	}
}

func TestLive_SecondPromptWaits(t *testing.T) {
	w := newWorld(t)
	gate := make(chan struct{})
	w.model.On(scriptedmodel.Exactly("first"), scriptedmodel.Step{scriptedmodel.Say("one "), scriptedmodel.Gate(gate), scriptedmodel.Say("two")})
	c := w.open(acp.ClientCapabilities{}, nil)
	id := c.new("")
	from := c.seen()
	first := c.prompt(id, "first")
	c.await("the first answer", from, func(m *acp.Message) bool { return strings.Contains(string(m.Frame()), `"one `) })
	second := c.prompt(id, "say three")
	third := c.prompt(id, "say four")
	close(gate)
	for _, p := range []acp.ID{first, second, third} {
		if r, e := c.result(p); e != nil || acp.MemberString(r, "stopReason") != "end_turn" {
			t.Fatalf("prompt %s: %s, %v", p, r, e)
		}
	}
	if got := spoken(c.updates(from)); got != "one twothreefour" && got != "one twofourthree" {
		t.Errorf("said %q", got)
	}
	if n := len(w.model.Turns()); n != 3 {
		t.Errorf("%d model calls, want 3: one prompt was folded into another", n)
	}
}

func TestLive_TurnsThatNobodyPrompted(t *testing.T) {
	w := newWorld(t)
	w.write(".claude/settings.json", `{"permissions":{"allow":["Bash(sleep:*)","Bash(echo:*)"]}}`, 0o600)
	gate := make(chan struct{})
	w.model.OnRequest(scriptedmodel.Exactly("in the background"), func(r *scriptedmodel.Request) []scriptedmodel.Step {
		call := scriptedmodel.Step{scriptedmodel.Call("Bash", map[string]any{"command": "sleep 1; echo over", "description": "Wait", "run_in_background": true})}
		if notified(r) {
			return []scriptedmodel.Step{call, {scriptedmodel.Say("it is over "), scriptedmodel.Gate(gate), scriptedmodel.Say("now")}}
		}
		return []scriptedmodel.Step{call, {scriptedmodel.Say("started")}}
	})
	c := w.open(acp.ClientCapabilities{}, nil)
	id := c.new("")
	from := c.seen()
	if stop, got := c.turn(id, "in the background"); stop != acp.StopReasonEndTurn || spoken(got) != "started" {
		t.Fatalf("ended with %s, said %q\n%s", stop, spoken(got), c.quote())
	}
	c.await("the turn that nobody prompted", from, func(m *acp.Message) bool { return strings.Contains(string(m.Frame()), "it is over") })
	p := c.prompt(id, "say next")
	close(gate)
	if r, e := c.result(p); e != nil || acp.MemberString(r, "stopReason") != "end_turn" {
		t.Fatalf("the next prompt: %s, %v", r, e)
	}
	if got := spoken(c.updates(from)); got != "startedit is over nownext" {
		t.Errorf("said %q\n%s", got, c.quote())
	}
	done := false
	for _, u := range c.updates(from) {
		done = done || u.ToolCallUpdate != nil && u.ToolCallUpdate.Status == acp.ToolCallStatusCompleted
	}
	if !done {
		t.Errorf("the background command never ended\n%s", c.quote())
	}
}

func TestLive_DeathInEachState(t *testing.T) {
	for _, state := range []string{"idle", "streaming", "asking", "cancelling"} {
		t.Run(state, func(t *testing.T) {
			w := newWorld(t)
			c := w.open(acp.ClientCapabilities{}, nil)
			id := c.new("")
			from := c.seen()
			var p acp.ID
			switch state {
			case "streaming", "cancelling":
				p = c.prompt(id, "forever")
				c.await("text", from, func(m *acp.Message) bool { return strings.Contains(string(m.Frame()), "tick 2") })
			case "asking":
				p = c.prompt(id, "run touch "+filepath.Join(w.home, "never"))
				c.await("a request", from, func(m *acp.Message) bool { return m.Method() == acp.MethodSessionRequestPermission })
			}
			pid := c.conn.(adapters.Process).PID()
			if state == "cancelling" {
				_ = syscall.Kill(pid, syscall.SIGSTOP)
				c.notify(acp.MethodSessionCancel, &acp.CancelNotification{SessionID: id})
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			<-c.done
			exit, ok := errors.AsType[*adapters.ExitError](c.end)
			if !ok || exit.Signal != "SIGKILL" {
				t.Errorf("reading ended with %v", c.end)
			}
			for _, m := range c.frames {
				if m.IsResponse() && m.ID() == p && m.Err() == nil {
					t.Errorf("the prompt was answered: %s", m.Frame())
				}
			}
		})
	}
}

func TestLive_LargeMessages(t *testing.T) {
	w := newWorld(t)
	const size = 10 << 20
	text := strings.Repeat("0123456789abcde\n", size/16)
	w.model.On(scriptedmodel.Contains("say much"), scriptedmodel.Step{scriptedmodel.Chunks(64 << 10), scriptedmodel.Say(text)})
	c := w.open(acp.ClientCapabilities{}, nil)
	id := c.new("")
	if _, got := c.turn(id, "say much "+strings.Repeat("word ", 100<<10)); spoken(got) != text {
		t.Errorf("%d bytes came of %d", len(spoken(got)), len(text))
	}
	r := w.model.Turns()[0]
	if !r.Says(scriptedmodel.User, strings.Repeat("word ", 1000)) || len(r.Body) < 500<<10 {
		t.Errorf("the model got %d bytes", len(r.Body))
	}
}

func TestLive_SlashCommandsAndCompaction(t *testing.T) {
	w := newWorld(t)
	c := w.open(noticing, nil)
	id := c.new("")
	var names []string
	for _, u := range c.updates(0) {
		if u.AvailableCommandsUpdate != nil {
			for _, a := range u.AvailableCommandsUpdate.AvailableCommands {
				names = append(names, a.Name)
			}
		}
	}
	if !strings.Contains(strings.Join(names, " "), "compact") {
		t.Errorf("the commands are %v", names)
	}
	c.turn(id, "say remember the sea")
	if _, got := c.turn(id, "/context"); !strings.Contains(spoken(got), "Context Usage") {
		t.Errorf("/context said %q", spoken(got))
	}
	_, got := c.turn(id, "/compact")
	var statuses []string
	for _, u := range got {
		if u.CompactionUpdate != nil {
			statuses = append(statuses, string(u.CompactionUpdate.Status))
		}
	}
	if strings.Join(statuses, " ") != "in_progress completed" {
		t.Errorf("compaction: %v\n%s", statuses, c.quote())
	}
	c.turn(id, "say and on")
}

func TestLive_UsageCostTitle(t *testing.T) {
	w := newWorld(t)
	w.model.On(scriptedmodel.Exactly("count\nwell"), scriptedmodel.Step{scriptedmodel.Usage(1000, 50, 3000, 200), scriptedmodel.Say("ok")})
	c := w.open(acp.ClientCapabilities{}, nil)
	id := c.new("")
	_, got := c.turn(id, "count\nwell")
	var title string
	var use *acp.UsageUpdate
	for _, u := range got {
		if u.SessionInfoUpdate != nil {
			title = *u.SessionInfoUpdate.Title
		}
		if u.UsageUpdate != nil {
			use = u.UsageUpdate
		}
	}
	if title != "count" {
		t.Errorf("the title is %q", title)
	}
	if use == nil || use.Used != 4250 || use.Size < 100_000 || use.Cost == nil || use.Cost.Amount <= 0 {
		t.Errorf("usage %+v", use)
	}
	if m := w.model.Turns()[0].Header; m.Get("X-Api-Key") == "" || http.Header(m).Get("Anthropic-Version") == "" {
		t.Error("the model's request lacks headers")
	}
}
