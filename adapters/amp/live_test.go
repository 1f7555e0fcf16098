package amp

import (
	"crypto/sha256"
	"encoding/json"
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

// calls are the tool calls of updates as they are at the end, by the tool.
func calls(list []schema.SessionUpdate) map[string]schema.ToolCallStatus {
	names := map[schema.ToolCallID]string{}
	out := map[string]schema.ToolCallStatus{}
	for _, u := range list {
		switch {
		case u.ToolCall != nil:
			names[u.ToolCall.ToolCallID] = *u.ToolCall.Name
			out[*u.ToolCall.Name] = u.ToolCall.Status
		case u.ToolCallUpdate != nil && u.ToolCallUpdate.Status != "":
			out[names[u.ToolCallUpdate.ToolCallID]] = u.ToolCallUpdate.Status
		}
	}
	return out
}

// asked counts the requests for permissions.
func asked(c *bridgetest.Client, from int) int {
	n := 0
	for _, m := range c.Frames()[from:] {
		if m.IsRequest() && m.Method() == acp.MethodSessionRequestPermission {
			n++
		}
	}
	return n
}

// TestLive_Shared runs what needs nothing of its own in one session of one client.
func TestLive_Shared(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.OneSession = true
	for _, part := range []struct {
		name string
		test func(t *testing.T, w *world)
	}{
		{"PermissionModes", livePermissionModes},
		{"RejectedWithAReason", liveRejectedWithAReason},
		{"PermissionOfASubagent", livePermissionOfASubagent},
		{"PermissionIsRemembered", livePermissionIsRemembered},
		{"WorkspaceSettingsThatDecide", liveWorkspaceSettingsThatDecide},
		{"EndsOfTurns", liveEndsOfTurns},
		{"CancelEverywhere", liveCancelEverywhere},
		{"LargePrompt", liveLargePrompt},
		{"ReusedCallID", liveReusedCallID},
		{"ResumeTellsTheModel", liveResumeTellsTheModel},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, &world{w.Part(t)}) })
	}
}

func livePermissionModes(t *testing.T, w *world) {
	file := filepath.Join(w.Cwd, "made.txt")
	c := w.open(bridgetest.Pick(optionAllow))
	ids := map[string]schema.SessionID{"default": c.New("")}
	for _, one := range []struct {
		mode, prompt string
		asks         int
		status       schema.ToolCallStatus
	}{
		{"default", "write " + file + " text", 1, schema.ToolCallStatusCompleted},
		{"write", "write " + file + " text", 0, schema.ToolCallStatusCompleted},
		{"write", "write " + w.Cwd + "/.amp/settings.json {}", 1, schema.ToolCallStatusCompleted},
		{"write", "write " + w.Home + "/elsewhere.txt text", 1, schema.ToolCallStatusCompleted},
		{"write", "run touch " + file, 1, schema.ToolCallStatusCompleted},
		{"readonly", "write " + file + " text", 0, schema.ToolCallStatusFailed},
		{"readonly", "run touch " + file, 0, schema.ToolCallStatusFailed},
		{"bypass", "run touch " + file, 0, schema.ToolCallStatusCompleted},
	} {
		if ids[one.mode] == "" {
			if one.mode == "bypass" { // which the workspace's settings may decide about
				w.Write(filepath.Join(w.Cwd, ".amp", "settings.json"), deciding[0], 0o600)
			}
			ids[one.mode] = c.New(`{"permissionMode":"` + one.mode + `"}`)
		}
		from := c.Seen()
		_, got := c.Turn(ids[one.mode], one.prompt)
		for tool, status := range calls(got) {
			if status != one.status {
				t.Errorf("%s, %s: %s is %s", one.mode, one.prompt, tool, status)
			}
		}
		if n := asked(c, from); n != one.asks || len(calls(got)) != 1 {
			t.Errorf("%s, %s: asked %d times, calls %v", one.mode, one.prompt, n, calls(got))
		}
		if one.mode == "readonly" && !strings.Contains(c.Quote(), "read-only") {
			t.Errorf("%s, %s: nothing says why\n%s", one.mode, one.prompt, c.Quote())
		}
		_ = os.RemoveAll(filepath.Join(w.Cwd, ".amp"))
	}
}

// deciding are settings of a workspace that decide what is allowed.
var deciding = []string{`{"amp.dangerouslyAllowAll":true}`, `{"amp.permissions":[{"tool":"Bash","action":"ask"}]}`}

// The user's settings are taken over, never changed, and the private copy with
// the session's secrets goes away with it.
func TestLive_SettingsStayTheUsers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	own := w.Write(".config/amp/settings.json", `{"amp.dangerouslyAllowAll":true,"amp.permissions":[{"tool":"Bash","matches":{"cmd":"ls *"},"action":"ask"},{"tool":"Bash","matches":{"cmd":"pwd"},"action":"reject","message":"no pwd here"}]}`, 0o640)
	before, info := sha256.Sum256([]byte(w.Read(own))), must(os.Stat(own))
	c := w.open(bridgetest.Pick(optionAllow))
	r := &schema.NewSessionRequest{Cwd: w.Cwd, MCPServers: []schema.MCPServer{{HTTP: &schema.MCPServerHTTP{
		Name: "far", URL: "http://127.0.0.1:9/mcp", Headers: []schema.HTTPHeader{{Name: "Authorization", Value: "Bearer hidden-in-a-file"}},
	}}}}
	r.Meta = map[string]json.RawMessage{acp.MetaKey: json.RawMessage(`{"agentSpecific":{"amp":{"permissionRules":[{"tool":"Bash","matches":{"cmd":"ls -l"},"action":"reject","message":"no list here"}]}}}`)}
	id := schema.SessionID(rawjson.MemberString(c.Must(acp.MethodSessionNew, r), "sessionId"))
	if _, got := c.Turn(id, "run ls -l"); asked(c, 0) != 0 || calls(got)["Bash"] != schema.ToolCallStatusFailed || !strings.Contains(c.Quote(), "no list here") {
		t.Errorf("the session's rule, before the user's: asked %d times, %v", asked(c, 0), calls(got))
	}
	if _, got := c.Turn(id, "run ls -a"); asked(c, 0) != 1 || calls(got)["Bash"] != schema.ToolCallStatusCompleted {
		t.Errorf("the user's rule that asks: asked %d times, %v", asked(c, 0), calls(got))
	}
	if _, got := c.Turn(id, "run pwd"); calls(got)["Bash"] != schema.ToolCallStatusFailed || !strings.Contains(c.Quote(), "no pwd here") {
		t.Errorf("the user's rule that rejects: %v", calls(got))
	}
	pid := c.Conn.(interface{ PID() int }).PID()
	cmdline := string(must(os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))))
	if strings.Contains(cmdline, "hidden-in-a-file") || strings.Contains(cmdline, "dangerously") || strings.Contains(cmdline, "sgamp_") {
		t.Errorf("the command line is %q", cmdline)
	}
	files, _ := filepath.Glob(filepath.Join(w.State, "run", "*", "*.json"))
	if len(files) != 2 {
		t.Errorf("private files %q", files)
	}
	for _, f := range files {
		if mode := must(os.Stat(f)).Mode().Perm(); mode != 0o600 {
			t.Errorf("%s has mode %v", f, mode)
		}
	}
	c.Close()
	if left, _ := filepath.Glob(filepath.Join(w.State, "run", "*")); len(left) > 0 {
		t.Errorf("left %q", left)
	}
	if after := must(os.Stat(own)); sha256.Sum256([]byte(w.Read(own))) != before || !after.ModTime().Equal(info.ModTime()) || after.Mode() != info.Mode() {
		t.Error("the user's settings have changed")
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func liveWorkspaceSettingsThatDecide(t *testing.T, w *world) {
	w.Cwd = t.TempDir()
	c := w.open(nil)
	for _, content := range deciding {
		w.Write(filepath.Join(w.Cwd, ".amp", "settings.json"), content, 0o600)
		_, e := c.Call(acp.MethodSessionNew, &schema.NewSessionRequest{Cwd: w.Cwd, MCPServers: []schema.MCPServer{}})
		if e == nil || e.Code != acp.CodeInvalidParams || !strings.Contains(e.Message, "permissionMode bypass") {
			t.Errorf("%s: %v", content, e)
		}
	}
}

func livePermissionIsRemembered(t *testing.T, w *world) {
	agentcache.Long(t, `the scenario "permission allowed for the session is not asked again" shows it through the gateway`)
	c := w.open(bridgetest.Pick(optionAlways))
	id := c.Fresh()
	made := filepath.Join(w.Cwd, "made")
	w.Model.On(scriptedmodel.Exactly("the same elsewhere"), scriptedmodel.Step{scriptedmodel.Call(toolBash, object{"cmd": "touch " + made, "cwd": w.Home})}, scriptedmodel.Step{scriptedmodel.SayResult()})
	for i, prompt := range []string{"run touch " + made, "run touch " + made, "run touch " + made + "2", "write " + made + " a", "write " + made + " b", "the same elsewhere"} {
		if _, got := c.Turn(id, prompt); len(calls(got)) != 1 {
			t.Errorf("%s: %v", prompt, calls(got))
		}
		if want := []int{1, 1, 2, 3, 3, 4}[i]; asked(c, 0) != want {
			t.Errorf("%s: asked %d times, want %d", prompt, asked(c, 0), want)
		}
	}
	other := c.New("")
	if c.Turn(other, "run touch "+made); asked(c, 0) != 5 {
		t.Error("another session has the same permissions")
	}
}

func liveRejectedWithAReason(t *testing.T, w *world) {
	c := w.open(func(method string, _ json.RawMessage) any {
		return object{"outcome": object{"outcome": "selected", "optionId": optionReject}, "_meta": object{acp.MetaKey: object{"message": "rather not today"}}}
	})
	id := c.New("")
	stop, got := c.Turn(id, "run touch "+w.Cwd+"/x")
	if stop != schema.StopReasonEndTurn || calls(got)["Bash"] != schema.ToolCallStatusFailed {
		t.Errorf("%s, %v", stop, calls(got))
	}
	if turns := w.Turns(); !turns[len(turns)-1].Says(scriptedmodel.ToolRole, "rather not today") {
		t.Error("the model does not hear why")
	}
}

// A subagent's calls are on no line, but its permissions are asked for.
func livePermissionOfASubagent(t *testing.T, w *world) {
	agentcache.Long(t, `the scenario "permission inside a subagent" shows it through the gateway`)
	w.Model.On(scriptedmodel.Exactly("delegate it"), scriptedmodel.Step{scriptedmodel.Call(toolTask, object{"prompt": "run touch " + w.Cwd + "/sub", "description": "touches"})}, scriptedmodel.Step{scriptedmodel.SayResult()})
	c := w.open(bridgetest.Pick(optionAllow))
	_, got := c.Turn(c.New(""), "delegate it")
	want := map[string]schema.ToolCallStatus{toolTask: schema.ToolCallStatusCompleted, "Bash": schema.ToolCallStatusCompleted}
	if now := calls(got); asked(c, 0) != 1 || len(now) != 2 || now[toolTask] != want[toolTask] || now["Bash"] != want["Bash"] {
		t.Errorf("asked %d times, %v\n%s", asked(c, 0), now, c.Quote())
	}
	task := schema.ToolCallID("")
	for _, u := range got {
		if u.ToolCall == nil {
			continue
		}
		if *u.ToolCall.Name == toolTask {
			task = u.ToolCall.ToolCallID
		} else if p := rawjson.MemberString(u.ToolCall.Meta[acp.MetaKey], "parentToolCallId"); p != string(task) {
			t.Errorf("the call belongs to %q, want %q", p, task)
		}
	}
	if _, err := os.Stat(w.Cwd + "/sub"); err != nil {
		t.Error(err)
	}
}

// Every state in which a turn can be cancelled, and the session goes on.
func liveCancelEverywhere(t *testing.T, w *world) {
	agentcache.Long(t, `the scenarios "cancel at once" and "cancel while ..." show it through the gateway`)
	gate := make(chan struct{})
	defer close(gate)
	w.Model.On(scriptedmodel.Exactly("think for ever"), scriptedmodel.Step{scriptedmodel.Gate(gate)})
	c := w.open(nil)
	id := c.New("")
	pids := filepath.Join(w.Cwd, "pid")
	cancel := func(what, prompt string, ready func(from int)) {
		t.Helper()
		from := c.Seen()
		turn := c.Prompt(id, prompt)
		ready(from)
		c.Notify(acp.MethodSessionCancel, &schema.CancelNotification{SessionID: id})
		r, e := c.Result(turn)
		if e != nil || rawjson.MemberString(r, "stopReason") != "cancelled" {
			t.Fatalf("%s: %s, %v", what, r, e)
		}
		for tool, status := range calls(c.Updates(from)) {
			if status != schema.ToolCallStatusFailed {
				t.Errorf("%s: %s is %s", what, tool, status)
			}
		}
	}
	update := func(name string) func(from int) {
		return func(from int) {
			c.Await(name, from, func(m *acp.Message) bool {
				return m.Method() == name || m.Method() == acp.MethodSessionUpdate && strings.Contains(string(m.Update()), name)
			})
		}
	}
	cancel("at once", "say too late", func(int) {})
	cancel("while the model thinks", "think for ever", func(int) {
		if _, err := w.Model.Await(t.Context(), func(r *scriptedmodel.Request) bool {
			return r.Prompt == "think for ever" && r.Kind == scriptedmodel.Turn
		}); err != nil {
			t.Fatal(err)
		}
	})
	cancel("while a command runs", "run sh -c 'echo $$ > "+pids+"; echo begun > "+pids+".done; sleep 600'", func(int) {
		for { // nobody tells
			if _, err := os.Stat(pids + ".done"); err == nil || t.Context().Err() != nil {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
	cancel("while a permission is open", "run touch "+w.Cwd+"/never", update(acp.MethodSessionRequestPermission))
	if _, got := c.Turn(id, "recall"); !strings.Contains(bridgetest.Said(got), "touch") {
		t.Errorf("the thread goes on with %q", bridgetest.Said(got))
	}
	pid := strings.TrimSpace(w.Read(pids))
	if stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat")); err == nil && !strings.Contains(string(stat), ") Z ") {
		t.Error("the command runs on")
	}
	if _, err := os.Stat(w.Cwd + "/never"); err == nil {
		t.Error("nobody has allowed it")
	}
}

// How turns end that the program does not end with the usual words.
func liveEndsOfTurns(t *testing.T, w *world) {
	agentcache.Long(t, `the scenarios "max_tokens and refusal" and "provider's refusal is quoted" show it through the gateway`)
	stop := func(reason string) {
		w.Model.On(scriptedmodel.Exactly("stop "+reason), scriptedmodel.Step{scriptedmodel.Say("so far"), scriptedmodel.Stop(reason)})
	}
	stop("max_tokens")
	stop("refusal")
	c := w.open(nil)
	id := c.New("")
	for _, reason := range []schema.StopReason{schema.StopReasonMaxTokens, schema.StopReasonRefusal} {
		if got, updates := c.Turn(id, "stop "+string(reason)); got != reason || bridgetest.Said(updates) != "so far" {
			t.Errorf("%s ended with %s, said %q", reason, got, bridgetest.Said(updates))
		}
	}
	_, e := c.Result(c.Prompt(id, "fail 400"))
	if e == nil || e.Code != acp.CodeInternal || !strings.Contains(e.Message, "scripted failure 400") || rawjson.MemberString(e.Data, "kind") == "" {
		t.Errorf("fail 400: %v", e)
	}
	if _, e = c.Result(c.Prompt(id, "fail 401")); e == nil || e.Code != acp.CodeAuthRequired {
		t.Errorf("fail 401: %v", e)
	}
	if _, got := c.Turn(id, "recall"); !strings.Contains(bridgetest.Said(got), "stop refusal") {
		t.Errorf("the thread goes on with %q", bridgetest.Said(got))
	}
	image := schema.ContentBlock{Image: &schema.ImageContent{Data: "AAAA", MimeType: "image/png"}}
	if _, e := c.Call(acp.MethodSessionPrompt, &schema.PromptRequest{SessionID: id, Prompt: []schema.ContentBlock{image}}); e == nil || !strings.Contains(e.Message, "no images") {
		t.Errorf("an image: %v", e)
	}
}

// liveReusedCallID: amp says nothing more behind a call whose id was used before.
// The call is shown, the turn ends with an error, and the next one works.
func liveReusedCallID(t *testing.T, w *world) {
	w.Use(Adapter{stuck: time.Second}) // until it is given up amp takes a whole processor
	c := w.OpenAlone(schema.ClientCapabilities{}, nil)
	id := c.Fresh()
	r, e := c.Result(c.Prompt(id, "reread "+w.Write("again.txt", "again", 0o600)))
	if e == nil || !strings.Contains(e.Message, "the id of a tool call again") {
		t.Fatalf("it ended with %s, %v\n%s", r, e, c.Quote())
	}
	calls := map[schema.ToolCallID]schema.ToolCallStatus{}
	for _, u := range c.Updates(0) {
		if u.ToolCall != nil {
			calls[u.ToolCall.ToolCallID] = u.ToolCall.Status
		}
		if u.ToolCallUpdate != nil {
			calls[u.ToolCallUpdate.ToolCallID] = u.ToolCallUpdate.Status
		}
	}
	if calls["call_again"] != schema.ToolCallStatusCompleted || calls["call_again-2"] != schema.ToolCallStatusFailed {
		t.Errorf("the calls are %v", calls)
	}
	if stop, got := c.Turn(id, "say alive"); stop != schema.StopReasonEndTurn || bridgetest.Said(got) != "alive" {
		t.Errorf("the next turn ended with %s and said %q", stop, bridgetest.Said(got))
	}
}

func liveLargePrompt(t *testing.T, w *world) {
	c := w.open(nil)
	text := strings.Repeat("0123456789", (maxPrompt-100)/10)
	if _, e := c.Result(c.Prompt(c.New(""), text+text)); e == nil || e.Code != acp.CodeInvalidParams {
		t.Errorf("twice as much: %v", e)
	}
	t.Run("answered", func(t *testing.T) {
		agentcache.Long(t, "on a busy machine Amp does not answer one in ten")
		id := c.Fresh()
		w.Model.On(scriptedmodel.Contains("big"), scriptedmodel.Step{scriptedmodel.Say("read")})
		if _, got := c.Turn(id, "big "+text); bridgetest.Said(got) != "read" {
			t.Errorf("said %q", bridgetest.Said(got))
		}
	})
}

func liveResumeTellsTheModel(t *testing.T, w *world) {
	agentcache.Long(t, `the scenario "closed, loaded and resumed, ..." shows it through the gateway`)
	c := w.OpenAlone(schema.ClientCapabilities{}, nil)
	id, unused := c.Fresh(), c.Fresh()
	c.Turn(id, "say before the end")
	c.Close()
	c = w.OpenAlone(schema.ClientCapabilities{}, nil)
	for _, id := range []schema.SessionID{id, unused} {
		c.Must(acp.MethodSessionResume, &schema.ResumeSessionRequest{SessionID: id, Cwd: w.Cwd})
	}
	c.Turn(id, "say after it")
	turns := w.Turns()
	if !slices.Contains(turns[len(turns)-1].Prompts(), "say before the end") {
		t.Errorf("the model hears %q", turns[len(turns)-1].Prompts())
	}
	if _, got := c.Turn(unused, "say something"); bridgetest.Said(got) != "something" {
		t.Errorf("a session in which nothing was said says %q", bridgetest.Said(got))
	}
	_, e := c.Call(acp.MethodSessionResume, &schema.ResumeSessionRequest{SessionID: "T-00000000-0000-4000-8000-000000000000", Cwd: w.Cwd})
	if e == nil || e.Code != acp.CodeResourceNotFound {
		t.Errorf("a thread that does not exist: %v", e)
	}
}
