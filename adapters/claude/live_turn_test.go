package claude

import (
	"fmt"
	"maps"
	"net/http"
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
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// noticing are the capabilities of a client that shows notices.
var noticing = schema.ClientCapabilities{Session: &schema.ClientSessionCapabilities{
	Notices: &schema.NoticeCapabilities{}, Compaction: &schema.CompactionCapabilities{},
}}

func liveBadKeyEndsAtTheFirstRetry(t *testing.T, w *world) {
	agentcache.Long(t, `the scenario "bad key ends the prompt at once" shows it through the gateway`)
	c := w.open(noticing, nil)
	id := c.New("")
	for _, status := range []int{401, 403} {
		began := time.Now()
		_, e := c.Result(c.Prompt(id, "fail "+strconv.Itoa(status)))
		if e == nil || e.Code != acp.CodeAuthRequired || !strings.Contains(e.Message, "claude auth login") {
			t.Fatalf("the prompt ended with %v", e)
		}
		if d := time.Since(began); d > 20*time.Second {
			t.Errorf("it took %v", d)
		}
		if stop, _ := c.Turn(id, "say good again"); stop != schema.StopReasonEndTurn {
			t.Errorf("the next prompt ended with %s", stop)
		}
	}
}

// cancelled cancels a running prompt and checks how it ends.
func (c *client) cancelled(id schema.SessionID, prompt acp.ID) {
	c.W.T.Helper()
	c.Notify(acp.MethodSessionCancel, &schema.CancelNotification{SessionID: id})
	r, e := c.Result(prompt)
	if e != nil || rawjson.MemberString(r, "stopReason") != string(schema.StopReasonCancelled) {
		c.W.T.Fatalf("the cancelled prompt ended with %s, %v\n%s", r, e, c.Quote())
	}
}

// alive reports whether a process runs. One that nobody has waited for yet does
// not.
func alive(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(b), ") Z ")
}

func liveCancelEverywhere(t *testing.T, w *world) {
	agentcache.Long(t, `the scenarios "cancel ..." show it through the gateway`)
	pidfile := filepath.Join(w.Home, "pid")
	// In a session of its own, as a server that a tool starts would be.
	script := w.Write("long.sh", "setsid sh -c 'echo $$ >"+pidfile+"; exec sleep 1000'", 0o700)
	c := w.open(noticing, nil)
	id := c.Fresh()

	c.Notify(acp.MethodSessionCancel, &schema.CancelNotification{SessionID: id}) // idle: harmless

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
	calls := map[schema.ToolCallID]schema.ToolCallStatus{}
	for _, u := range c.Updates(from) {
		if u.ToolCall != nil {
			calls[u.ToolCall.ToolCallID] = u.ToolCall.Status
		}
		if u.ToolCallUpdate != nil && u.ToolCallUpdate.Status != "" {
			calls[u.ToolCallUpdate.ToolCallID] = u.ToolCallUpdate.Status
		}
	}
	for call, status := range calls {
		if status != schema.ToolCallStatusFailed {
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
	if stop, got := c.Turn(id, "say still here"); stop != schema.StopReasonEndTurn || bridgetest.Said(got) != "still here" {
		t.Errorf("after all that: %s, %q", stop, bridgetest.Said(got))
	}
	c.Must(acp.MethodSessionClose, &schema.CloseSessionRequest{SessionID: id})
	if pid == 0 || alive(pid) {
		t.Errorf("the tool's process %d is left", pid)
	}
}

func liveSecondPromptWaits(t *testing.T, w *world) {
	agentcache.Long(t, `the scenario "a second prompt waits" shows it through the gateway`)
	gate := make(chan struct{})
	w.Model.On(scriptedmodel.Exactly("first"), scriptedmodel.Step{scriptedmodel.Say("one "), scriptedmodel.Gate(gate), scriptedmodel.Say("two")})
	c := w.open(noticing, nil)
	id := c.New("")
	from := c.Seen()
	first := c.Prompt(id, "first")
	c.Await("the first answer", from, func(m *acp.Message) bool { return strings.Contains(string(m.Frame()), `"one `) })
	second := c.Prompt(id, "say three")
	third := c.Prompt(id, "say four")
	close(gate)
	for _, p := range []acp.ID{first, second, third} {
		if r, e := c.Result(p); e != nil || rawjson.MemberString(r, "stopReason") != "end_turn" {
			t.Fatalf("prompt %s: %s, %v", p, r, e)
		}
	}
	if got := bridgetest.Said(c.Updates(from)); got != "one twothreefour" && got != "one twofourthree" {
		t.Errorf("said %q", got)
	}
	if n := len(w.Turns()); n != 3 {
		t.Errorf("%d model calls, want 3: one prompt was folded into another", n)
	}
}

func liveTurnsThatNobodyPrompted(t *testing.T, w *world) {
	agentcache.Long(t, `the scenario "a turn that nobody prompted" shows it through the gateway`)
	gate := make(chan struct{})
	w.Model.OnRequest(scriptedmodel.Exactly("in the background"), func(r *scriptedmodel.Request) []scriptedmodel.Step {
		call := scriptedmodel.Step{scriptedmodel.Call("Bash", map[string]any{"command": "sleep 1; echo over", "description": "Wait", "run_in_background": true})}
		if notified(r) {
			return []scriptedmodel.Step{
				call, {scriptedmodel.Gate(gate), scriptedmodel.Say("it is over "), scriptedmodel.Call("Bash", map[string]any{"command": "echo again", "description": "Look"})}, {scriptedmodel.Say("now")},
			}
		}
		return []scriptedmodel.Step{call, {scriptedmodel.Say("started")}}
	})
	c := w.open(noticing, nil)
	id := c.Fresh() // the model looks for its first notification
	from := c.Seen()
	if stop, got := c.Turn(id, "in the background"); stop != schema.StopReasonEndTurn || bridgetest.Said(got) != "started" {
		t.Fatalf("ended with %s, said %q\n%s", stop, bridgetest.Said(got), c.Quote())
	}
	// The model says nothing yet. What is prompted now would be folded into the turn at its call.
	c.Await("the turn that nobody prompted", from, func(m *acp.Message) bool { return m.Method() == acp.MethodWorking })
	p := c.Prompt(id, "say next")
	close(gate)
	if r, e := c.Result(p); e != nil || rawjson.MemberString(r, "stopReason") != "end_turn" {
		t.Fatalf("the next prompt: %s, %v", r, e)
	}
	if got := bridgetest.Said(c.Updates(from)); got != "startedit is over nownext" {
		t.Errorf("said %q\n%s", got, c.Quote())
	}
	done := false
	for _, u := range c.Updates(from) {
		done = done || u.ToolCallUpdate != nil && u.ToolCallUpdate.Status == schema.ToolCallStatusCompleted
	}
	if !done {
		t.Errorf("the background command never ended\n%s", c.Quote())
	}
}

func liveLargeMessages(t *testing.T, w *world) {
	const size = 10 << 20
	text := strings.Repeat("0123456789abcde\n", size/16)
	w.Model.On(scriptedmodel.Contains("say much"), scriptedmodel.Step{scriptedmodel.Chunks(64 << 10), scriptedmodel.Say(text)})
	c := w.open(noticing, nil)
	id := c.New("")
	if _, got := c.Turn(id, "say much "+strings.Repeat("word ", 100<<10)); bridgetest.Said(got) != text {
		t.Errorf("%d bytes came of %d", len(bridgetest.Said(got)), len(text))
	}
	r := w.Turns()[0]
	if !r.Says(scriptedmodel.User, strings.Repeat("word ", 1000)) || len(r.Body) < 500<<10 {
		t.Errorf("the model got %d bytes", len(r.Body))
	}
}

func liveSlashCommandsAndCompaction(t *testing.T, w *world) {
	c := w.open(noticing, nil)
	id := c.New("")
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

// A context that is nearly full is compacted by the program itself: before the next
// prompt, and in the middle of a turn. Clients see that it happens and how full the context
// is then; nothing is said twice, the summary least of all, and the conversation goes on.
func liveAutoCompaction(t *testing.T, w *world) {
	const nearly, size = 985_000, 1_000_000
	full := scriptedmodel.Usage(nearly, 50, 0, 0)
	w.Model.On(scriptedmodel.Exactly("fill it"), scriptedmodel.Step{full, scriptedmodel.Say("it is full")})
	w.Model.On(scriptedmodel.Exactly("fill it and go on"), scriptedmodel.Step{full, scriptedmodel.Say("first part"), scriptedmodel.Shell("echo between")})
	// What the program tells the model to go on with. To the model it is the second round.
	on := scriptedmodel.Step{scriptedmodel.Say("second part")}
	w.Model.On(scriptedmodel.Pattern(`^This session is being continued`), on, on)
	c := w.open(noticing, nil)
	id := c.New("")
	for _, turn := range []struct{ prompt, says, does string }{
		{"fill it", "it is full", "used 985050"},
		{"say behind it", "behind it", "in_progress completed compacted used 120"},
		{"fill it and go on", "first partsecond part", "used 985050 call in_progress completed compacted used 120"},
		{"say the end", "the end", "used 120"},
	} {
		stop, got := c.Turn(id, turn.prompt)
		var does []string
		for _, u := range got {
			switch {
			case u.CompactionUpdate != nil:
				does = append(does, string(u.CompactionUpdate.Status))
			case u.ToolCallUpdate != nil && u.ToolCallUpdate.Status == schema.ToolCallStatusCompleted:
				does = append(does, "call")
			case u.UsageUpdate != nil && u.UsageUpdate.Size != size:
				t.Errorf("%s: the context has %d tokens, want %d", turn.prompt, u.UsageUpdate.Size, size)
			case u.UsageUpdate != nil && u.UsageUpdate.Used < nearly && u.UsageUpdate.Used != 120: // what the program says of its summary
				does = append(does, "compacted")
			case u.UsageUpdate != nil:
				does = append(does, fmt.Sprint("used ", u.UsageUpdate.Used))
			}
		}
		does = slices.Compact(does) // the cost follows when the turn is over
		if said, did := bridgetest.Said(got), strings.Join(does, " "); stop != schema.StopReasonEndTurn || said != turn.says || did != turn.does {
			t.Errorf("%s: it said %q and %s, and ended with %s; want %q and %s", turn.prompt, said, did, stop, turn.says, turn.does)
		}
	}
}

// liveUsageCostTitle also looks at how a session begins.
func liveUsageCostTitle(t *testing.T, w *world) {
	w.Model.On(scriptedmodel.Exactly("count\nwell"), scriptedmodel.Step{scriptedmodel.Usage(1000, 50, 3000, 200), scriptedmodel.Say("ok")})
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
	if !slices.Contains(names, "compact") {
		t.Errorf("the commands are %v", names)
	}
	_, got := c.Turn(id, "count\nwell")
	var title string
	var use *schema.UsageUpdate
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
	if m := w.Turns()[0].Header; m.Get("X-Api-Key") == "" || http.Header(m).Get("Anthropic-Version") == "" {
		t.Error("the model's request lacks headers")
	}
}

// liveCallIsCut: the connection to the model breaks in the middle of a call, which the program
// has the model begin anew. Nothing is left open.
func liveCallIsCut(t *testing.T, w *world) {
	w.Model.On(scriptedmodel.Exactly("cut it"), scriptedmodel.Step{scriptedmodel.Say("before "), scriptedmodel.CutCall("Bash", map[string]any{"command": "touch it", "description": "Touch it"})})
	w.Model.On(scriptedmodel.Contains("cut off mid-stream"), scriptedmodel.Step{scriptedmodel.Say("the rest")})
	c := w.open(schema.ClientCapabilities{}, nil)
	stop, got := c.Turn(c.New(""), "cut it")
	status := map[schema.ToolCallID]schema.ToolCallStatus{}
	for _, u := range got {
		if u.ToolCall != nil {
			status[u.ToolCall.ToolCallID] = u.ToolCall.Status
		}
		if u.ToolCallUpdate != nil {
			status[u.ToolCallUpdate.ToolCallID] = u.ToolCallUpdate.Status
		}
	}
	if len(status) != 1 || slices.Collect(maps.Values(status))[0] != schema.ToolCallStatusFailed || bridgetest.Said(got) != "before the rest" || stop != schema.StopReasonEndTurn {
		t.Errorf("the turn ended with %s, calls are %v\n%s", stop, status, c.Quote())
	}
}
