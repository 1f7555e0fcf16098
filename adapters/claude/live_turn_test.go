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

	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"

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
	w.Env = append(w.Env, "ANTHROPIC_API_KEY=")
	c := w.open(acp.ClientCapabilities{}, nil)
	_, e := c.Call(acp.MethodSessionNew, &acp.NewSessionRequest{Cwd: w.Cwd, MCPServers: []acp.MCPServer{}})
	if e == nil || e.Code != acp.CodeAuthRequired || !strings.Contains(e.Message, "ANTHROPIC_API_KEY") {
		t.Fatalf("session/new without credentials: %v", e)
	}
	if left, _ := filepath.Glob(filepath.Join(w.State, "*", "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	var s acp.AuthStatusResponse
	if err := json.Unmarshal(c.Must(acp.MethodAuthStatus, struct{}{}), &s); err != nil || s.State != acp.AuthStateUnauthenticated {
		t.Errorf("auth/status says %+v, %v", s, err)
	}
	if _, e := c.Call(acp.MethodAuthenticate, &acp.AuthenticateRequest{MethodID: methodKey}); e == nil || e.Code != acp.CodeAuthRequired {
		t.Errorf("authenticate without a key: %v", e)
	}
}

func TestLive_CredentialsOfTheSession(t *testing.T) {
	w := newWorld(t)
	w.Credentials = adapters.Credentials{OAuthToken: "sk-ant-oat-of-the-session"}
	c := w.open(acp.ClientCapabilities{}, nil)
	id := c.New("")
	c.Turn(id, "say hi")
	r := w.Model.Turns()[0]
	if got := r.Header.Get("Authorization"); got != "Bearer sk-ant-oat-of-the-session" || r.Header.Get("X-Api-Key") != "" {
		t.Errorf("the model got Authorization %q and key %q", got, r.Header.Get("X-Api-Key"))
	}
	c.Must(acp.MethodAuthenticate, &acp.AuthenticateRequest{MethodID: methodKey})
	cmdline, err := os.ReadFile("/proc/" + strconv.Itoa(c.Conn.(adapters.Process).PID()) + "/cmdline")
	if err == nil && strings.Contains(string(cmdline), "oat-of-the-session") {
		t.Error("the token is among the arguments")
	}
}

func TestLive_BadKeyEndsAtTheFirstRetry(t *testing.T) {
	for _, status := range []int{401, 403} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			w := newWorld(t)
			c := w.open(noticing, nil)
			id := c.New("")
			began := time.Now()
			_, e := c.Result(c.Prompt(id, "fail "+strconv.Itoa(status)))
			if e == nil || e.Code != acp.CodeAuthRequired || !strings.Contains(e.Message, "claude auth login") {
				t.Fatalf("the prompt ended with %v", e)
			}
			if d := time.Since(began); d > 10*time.Second {
				t.Errorf("it took %v", d)
			}
			if stop, _ := c.Turn(id, "say good again"); stop != acp.StopReasonEndTurn {
				t.Errorf("the next prompt ended with %s", stop)
			}
		})
	}
}

func TestLive_RetriesAreShown(t *testing.T) {
	for status, word := range map[int]string{429: "rate", 529: "overloaded"} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			w := newWorld(t)
			w.Model.On(scriptedmodel.Exactly("hard"), scriptedmodel.Step{
				scriptedmodel.Header("retry-after", "1"), scriptedmodel.FailTimes(1, status, "", "later"), scriptedmodel.Say("done"),
			})
			for _, caps := range []acp.ClientCapabilities{noticing, {}} {
				c := w.open(caps, nil)
				id := c.New("")
				w.Model.On(scriptedmodel.Exactly("hard"), scriptedmodel.Step{scriptedmodel.FailTimes(1, status, "", "later"), scriptedmodel.Say("done")})
				stop, got := c.Turn(id, "hard")
				if stop != acp.StopReasonEndTurn || bridgetest.Said(got) != "done" {
					t.Errorf("ended with %s, said %q", stop, bridgetest.Said(got))
				}
				shown := false
				for _, u := range got {
					shown = shown || caps.Session != nil && u.Notice != nil && strings.Contains(u.Notice.Title, word)
					shown = shown || caps.Session == nil && u.AgentThoughtChunk != nil && strings.Contains(u.AgentThoughtChunk.Content.Text.Text, word)
				}
				if !shown {
					t.Errorf("no retry was shown with %+v\n%s", caps, c.Quote())
				}
				c.Close()
			}
		})
	}
}

func TestLive_ErrorsThatArriveAsSuccess(t *testing.T) {
	w := newWorld(t)
	w.Env = append(w.Env, "CLAUDE_CODE_MAX_RETRIES=0")
	c := w.open(acp.ClientCapabilities{}, nil)
	id := c.New("")
	for _, status := range []int{400, 404, 500, 529} {
		_, e := c.Result(c.Prompt(id, "fail "+strconv.Itoa(status)))
		if e == nil || e.Code != acp.CodeInternal {
			t.Errorf("status %d: the prompt ended with %v", status, e)
		}
	}
	if got := bridgetest.Said(c.Updates(0)); got != "" {
		t.Errorf("errors were shown as an answer: %q", got)
	}
	c.Turn(id, "say and on")
}

func TestLive_StopReasons(t *testing.T) {
	w := newWorld(t)
	// The program goes on by itself after both, with prompts of its own.
	always := func(prompt string) scriptedmodel.Match {
		return scriptedmodel.When("always "+prompt, func(r *scriptedmodel.Request, _ string) bool { return slices.Contains(r.Prompts(), prompt) })
	}
	w.Model.On(always("too long"), scriptedmodel.Step{scriptedmodel.Say("and on"), scriptedmodel.Stop("max_tokens")})
	w.Model.On(always("bad"), scriptedmodel.Step{scriptedmodel.Say("I "), scriptedmodel.Stop("refusal")})
	loop := make([]scriptedmodel.Step, 5)
	for i := range loop {
		loop[i] = scriptedmodel.Step{scriptedmodel.Shell("echo " + strconv.Itoa(i))}
	}
	w.Model.On(scriptedmodel.Exactly("loop"), loop...)
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
			defer c.Close()
			if stop, _ := c.Turn(c.New(tt.meta), tt.prompt); stop != tt.want {
				t.Errorf("ended with %s, want %s\n%s", stop, tt.want, c.Quote())
			}
		})
	}
}

// cancelled cancels a running prompt and checks how it ends.
func (c *client) cancelled(id acp.SessionID, prompt acp.ID) {
	c.W.T.Helper()
	c.Notify(acp.MethodSessionCancel, &acp.CancelNotification{SessionID: id})
	r, e := c.Result(prompt)
	if e != nil || acp.MemberString(r, "stopReason") != string(acp.StopReasonCancelled) {
		c.W.T.Fatalf("the cancelled prompt ended with %s, %v\n%s", r, e, c.Quote())
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
	w.Write(".claude/settings.json", `{"permissions":{"allow":["Bash(sh:*)"]}}`, 0o600)
	pidfile := filepath.Join(w.Home, "pid")
	// In a session of its own, as a server that a tool starts would be.
	script := w.Write("long.sh", "setsid sh -c 'echo $$ >"+pidfile+"; exec sleep 1000'", 0o700)
	c := w.open(acp.ClientCapabilities{}, nil)
	id := c.New("")

	c.Notify(acp.MethodSessionCancel, &acp.CancelNotification{SessionID: id}) // idle: harmless

	from := c.Seen()
	p := c.Prompt(id, "forever")
	c.Await("text", from, func(m *acp.Message) bool { return strings.Contains(string(m.Frame()), "tick 3") })
	c.cancelled(id, p)

	from = c.Seen()
	p = c.Prompt(id, "run sh "+script)
	var pid int
	deadline := time.Now().Add(bridgetest.Patience)
	for pid == 0 && time.Now().Before(deadline) {
		c.Await("the call", from, func(m *acp.Message) bool { return strings.Contains(string(m.Frame()), "long.sh") })
		b, _ := os.ReadFile(pidfile)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(b)))
		if pid == 0 {
			time.Sleep(20 * time.Millisecond) // there is no event for what a script did
		}
	}
	c.cancelled(id, p)
	calls := map[acp.ToolCallID]acp.ToolCallStatus{}
	for _, u := range c.Updates(from) {
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

	from = c.Seen()
	p = c.Prompt(id, "run touch "+filepath.Join(w.Home, "never"))
	c.Await("a request for a permission", from, func(m *acp.Message) bool { return m.Method() == acp.MethodSessionRequestPermission })
	c.cancelled(id, p)
	c.Await("its withdrawal", from, func(m *acp.Message) bool { return m.Method() == acp.MethodCancelRequest })

	// A cancel right behind its prompt, before anything has begun.
	for range 5 {
		p = c.Prompt(id, "forever")
		c.cancelled(id, p)
	}
	if stop, got := c.Turn(id, "say still here"); stop != acp.StopReasonEndTurn || bridgetest.Said(got) != "still here" {
		t.Errorf("after all that: %s, %q", stop, bridgetest.Said(got))
	}
	c.Close()
	if pid == 0 || alive(pid) {
		t.Errorf("the tool's process %d is left", pid)
	}
}

func TestLive_SecondPromptWaits(t *testing.T) {
	w := newWorld(t)
	gate := make(chan struct{})
	w.Model.On(scriptedmodel.Exactly("first"), scriptedmodel.Step{scriptedmodel.Say("one "), scriptedmodel.Gate(gate), scriptedmodel.Say("two")})
	c := w.open(acp.ClientCapabilities{}, nil)
	id := c.New("")
	from := c.Seen()
	first := c.Prompt(id, "first")
	c.Await("the first answer", from, func(m *acp.Message) bool { return strings.Contains(string(m.Frame()), `"one `) })
	second := c.Prompt(id, "say three")
	third := c.Prompt(id, "say four")
	close(gate)
	for _, p := range []acp.ID{first, second, third} {
		if r, e := c.Result(p); e != nil || acp.MemberString(r, "stopReason") != "end_turn" {
			t.Fatalf("prompt %s: %s, %v", p, r, e)
		}
	}
	if got := bridgetest.Said(c.Updates(from)); got != "one twothreefour" && got != "one twofourthree" {
		t.Errorf("said %q", got)
	}
	if n := len(w.Model.Turns()); n != 3 {
		t.Errorf("%d model calls, want 3: one prompt was folded into another", n)
	}
}

func TestLive_TurnsThatNobodyPrompted(t *testing.T) {
	w := newWorld(t)
	w.Write(".claude/settings.json", `{"permissions":{"allow":["Bash(sleep:*)","Bash(echo:*)"]}}`, 0o600)
	gate := make(chan struct{})
	w.Model.OnRequest(scriptedmodel.Exactly("in the background"), func(r *scriptedmodel.Request) []scriptedmodel.Step {
		call := scriptedmodel.Step{scriptedmodel.Call("Bash", map[string]any{"command": "sleep 1; echo over", "description": "Wait", "run_in_background": true})}
		if notified(r) {
			return []scriptedmodel.Step{call, {scriptedmodel.Say("it is over "), scriptedmodel.Gate(gate), scriptedmodel.Say("now")}}
		}
		return []scriptedmodel.Step{call, {scriptedmodel.Say("started")}}
	})
	c := w.open(acp.ClientCapabilities{}, nil)
	id := c.New("")
	from := c.Seen()
	if stop, got := c.Turn(id, "in the background"); stop != acp.StopReasonEndTurn || bridgetest.Said(got) != "started" {
		t.Fatalf("ended with %s, said %q\n%s", stop, bridgetest.Said(got), c.Quote())
	}
	c.Await("the turn that nobody prompted", from, func(m *acp.Message) bool { return strings.Contains(string(m.Frame()), "it is over") })
	p := c.Prompt(id, "say next")
	close(gate)
	if r, e := c.Result(p); e != nil || acp.MemberString(r, "stopReason") != "end_turn" {
		t.Fatalf("the next prompt: %s, %v", r, e)
	}
	if got := bridgetest.Said(c.Updates(from)); got != "startedit is over nownext" {
		t.Errorf("said %q\n%s", got, c.Quote())
	}
	done := false
	for _, u := range c.Updates(from) {
		done = done || u.ToolCallUpdate != nil && u.ToolCallUpdate.Status == acp.ToolCallStatusCompleted
	}
	if !done {
		t.Errorf("the background command never ended\n%s", c.Quote())
	}
}

func TestLive_DeathInEachState(t *testing.T) {
	for _, state := range []string{"idle", "streaming", "asking", "cancelling"} {
		t.Run(state, func(t *testing.T) {
			w := newWorld(t)
			c := w.open(acp.ClientCapabilities{}, nil)
			id := c.New("")
			from := c.Seen()
			var p acp.ID
			switch state {
			case "streaming", "cancelling":
				p = c.Prompt(id, "forever")
				c.Await("text", from, func(m *acp.Message) bool { return strings.Contains(string(m.Frame()), "tick 2") })
			case "asking":
				p = c.Prompt(id, "run touch "+filepath.Join(w.Home, "never"))
				c.Await("a request", from, func(m *acp.Message) bool { return m.Method() == acp.MethodSessionRequestPermission })
			}
			pid := c.Conn.(adapters.Process).PID()
			if state == "cancelling" {
				_ = syscall.Kill(pid, syscall.SIGSTOP)
				c.Notify(acp.MethodSessionCancel, &acp.CancelNotification{SessionID: id})
			}
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
			end := c.Ended()
			exit, ok := errors.AsType[*adapters.ExitError](end)
			if !ok || exit.Signal != "SIGKILL" {
				t.Errorf("reading ended with %v", end)
			}
			for _, m := range c.Frames() {
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
	w.Model.On(scriptedmodel.Contains("say much"), scriptedmodel.Step{scriptedmodel.Chunks(64 << 10), scriptedmodel.Say(text)})
	c := w.open(acp.ClientCapabilities{}, nil)
	id := c.New("")
	if _, got := c.Turn(id, "say much "+strings.Repeat("word ", 100<<10)); bridgetest.Said(got) != text {
		t.Errorf("%d bytes came of %d", len(bridgetest.Said(got)), len(text))
	}
	r := w.Model.Turns()[0]
	if !r.Says(scriptedmodel.User, strings.Repeat("word ", 1000)) || len(r.Body) < 500<<10 {
		t.Errorf("the model got %d bytes", len(r.Body))
	}
}

func TestLive_SlashCommandsAndCompaction(t *testing.T) {
	w := newWorld(t)
	c := w.open(noticing, nil)
	id := c.New("")
	var names []string
	for _, u := range c.Updates(0) {
		if u.AvailableCommandsUpdate != nil {
			for _, a := range u.AvailableCommandsUpdate.AvailableCommands {
				names = append(names, a.Name)
			}
		}
	}
	if !strings.Contains(strings.Join(names, " "), "compact") {
		t.Errorf("the commands are %v", names)
	}
	c.Turn(id, "say remember the sea")
	if _, got := c.Turn(id, "/context"); !strings.Contains(bridgetest.Said(got), "Context Usage") {
		t.Errorf("/context said %q", bridgetest.Said(got))
	}
	_, got := c.Turn(id, "/compact")
	var statuses []string
	for _, u := range got {
		if u.CompactionUpdate != nil {
			statuses = append(statuses, string(u.CompactionUpdate.Status))
		}
	}
	if strings.Join(statuses, " ") != "in_progress completed" {
		t.Errorf("compaction: %v\n%s", statuses, c.Quote())
	}
	c.Turn(id, "say and on")
}

func TestLive_UsageCostTitle(t *testing.T) {
	w := newWorld(t)
	w.Model.On(scriptedmodel.Exactly("count\nwell"), scriptedmodel.Step{scriptedmodel.Usage(1000, 50, 3000, 200), scriptedmodel.Say("ok")})
	c := w.open(acp.ClientCapabilities{}, nil)
	id := c.New("")
	_, got := c.Turn(id, "count\nwell")
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
	if m := w.Model.Turns()[0].Header; m.Get("X-Api-Key") == "" || http.Header(m).Get("Anthropic-Version") == "" {
		t.Error("the model's request lacks headers")
	}
}
