package codex

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// escalates scripts a command that needs a permission in every mode that asks.
func (w *world) escalates(prompt, file string) {
	w.Model.On(scriptedmodel.Exactly(prompt), scriptedmodel.Step{scriptedmodel.Call("exec_command", map[string]any{
		"cmd": "touch " + filepath.Join(w.Cwd, file), "sandbox_permissions": "require_escalated", "justification": "because",
	})}, scriptedmodel.Step{scriptedmodel.Say("went on")})
}

func (w *world) made(file string) bool {
	_, err := os.Stat(filepath.Join(w.Cwd, file))
	return err == nil
}

// liveAnswersLateTwiceAfterCancel: codex waits for an answer as long as it
// takes, the first one counts, and one that comes too late counts for nothing.
func liveAnswersLateTwiceAfterCancel(t *testing.T, w *world) {
	for _, name := range []string{"late", "twice", "cancelled", "closed"} {
		w.escalates(name, name)
	}
	c := w.open(schema.ClientCapabilities{}, nil)
	id := c.New(`{"permissionMode":"write"}`)
	begin := func(prompt string) (p acp.ID, ask acp.ID) {
		from := c.Seen()
		p = c.Prompt(id, prompt)
		_, m := c.Await("a question", from, func(m *acp.Message) bool { return m.Method() == acp.MethodSessionRequestPermission })
		return p, m.ID()
	}
	answer := func(ask acp.ID, option string) {
		t.Helper()
		b, err := schema.Encode(bridgetest.Pick(option)(acp.MethodSessionRequestPermission, nil))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Conn.Write(t.Context(), acp.NewResult(ask, b)); err != nil {
			t.Fatal(err)
		}
	}
	ends := func(p acp.ID, want schema.StopReason) {
		t.Helper()
		if r, e := c.Result(p); e != nil || rawjson.MemberString(r, "stopReason") != string(want) {
			t.Errorf("it ended with %s, %v, want %s\n%s", r, e, want, c.Quote())
		}
	}

	// Late: another session has its turns meanwhile.
	p, ask := begin("late")
	other := c.New("")
	for _, text := range []string{"one", "two"} {
		if _, got := c.Turn(other, "say "+text); bridgetest.Said(got) != text {
			t.Errorf("meanwhile it said %q", bridgetest.Said(got))
		}
	}
	answer(ask, "allow_once")
	ends(p, schema.StopReasonEndTurn)
	if !w.made("late") {
		t.Error("a late answer was not taken")
	}

	p, ask = begin("twice")
	answer(ask, "reject_once")
	answer(ask, "allow_once")
	ends(p, schema.StopReasonEndTurn)
	if w.made("twice") {
		t.Error("the second answer was taken")
	}

	p, ask = begin("cancelled")
	c.Notify(acp.MethodSessionCancel, map[string]any{"sessionId": id})
	ends(p, schema.StopReasonCancelled)
	answer(ask, "allow_once")
	if _, got := c.Turn(id, "say on"); bridgetest.Said(got) != "on" {
		t.Errorf("afterwards it said %q", bridgetest.Said(got))
	}

	_, ask = begin("closed")
	c.Must(acp.MethodSessionClose, &schema.CloseSessionRequest{SessionID: id})
	answer(ask, "allow_once")
	if _, got := c.Turn(other, "say still here"); bridgetest.Said(got) != "still here" {
		t.Errorf("another session said %q", bridgetest.Said(got))
	}
	for _, name := range []string{"cancelled", "closed"} {
		if w.made(name) {
			t.Errorf("%s: an answer that came too late was taken for a permission", name)
		}
	}
}

// liveExtraPermissions: the model asks for more than its mode allows.
func liveExtraPermissions(t *testing.T, w *world) {
	extra := outside(t)
	script := func(prompt, file string, ask bool) {
		steps := []scriptedmodel.Step{
			{scriptedmodel.Call("exec_command", map[string]any{"cmd": "echo x > " + filepath.Join(extra, file)})}, {scriptedmodel.Say("went on")},
		}
		if ask {
			steps = append([]scriptedmodel.Step{{scriptedmodel.Call("request_permissions", map[string]any{
				"reason": "to write there", "permissions": map[string]any{"file_system": map[string]any{"write": []string{extra}}},
			})}}, steps...)
		}
		w.Model.On(scriptedmodel.Exactly(prompt), steps...)
	}
	var mu sync.Mutex
	option, asked := "", []string{}
	c := w.open(schema.ClientCapabilities{}, func(method string, params json.RawMessage) any {
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, string(params))
		return bridgetest.Pick(option)(method, params)
	})
	id := c.New(`{"permissionMode":"write","agentSpecific":{"codex":{"config":{"features.request_permissions_tool":true,"features.exec_permission_approvals":true}}}}`)
	for _, one := range []struct {
		option string
		ask    bool
		made   bool
	}{
		{"reject_once", true, false},
		{"allow_once", true, true},
		{"", false, false}, // it was for that turn
		{"allow_session", true, true},
		{"", false, true},
	} {
		name := "permission-" + strconv.Itoa(c.Seen())
		script(name, name, one.ask)
		mu.Lock()
		option, asked = one.option, nil
		mu.Unlock()
		stop, _ := c.Turn(id, name)
		_, err := os.Stat(filepath.Join(extra, name))
		mu.Lock()
		if stop != schema.StopReasonEndTurn || (err == nil) != one.made || one.ask != (len(asked) == 1) {
			t.Errorf("%q: it ended with %s, made %v, asked %q\n%s", one.option, stop, err == nil, asked, c.Quote())
		}
		for _, a := range asked {
			if !strings.Contains(a, "to write there") || !strings.Contains(a, extra) {
				t.Errorf("the request does not say what for: %s", a)
			}
		}
		mu.Unlock()
	}
}

// liveCodeMode: a model that writes programs, whose calls of tools are shown
// as calls.
func liveCodeMode(t *testing.T, w *world) {
	w.Write(filepath.Join(w.Cwd, "old.txt"), "one\ntwo\n", 0o600)
	program := "const [a, b] = await Promise.all([tools.exec_command({cmd:\"echo first\"}), tools.exec_command({cmd:\"echo second; exit 3\"})]);\n" +
		"await tools.apply_patch(\"*** Begin Patch\\n*** Update File: old.txt\\n@@\\n-two\\n+TWO\\n*** End Patch\\n\");\n" +
		"await tools.update_plan({plan:[{step:\"A\",status:\"in_progress\"}]}); text(a.output + b.output);"
	w.Model.On(scriptedmodel.Exactly("program"), scriptedmodel.Step{scriptedmodel.Call("exec", program)}, scriptedmodel.Step{scriptedmodel.Say("done")})
	c := w.open(schema.ClientCapabilities{}, nil)
	id := c.New(`{"permissionMode":"write","agentSpecific":{"codex":{"model":"gpt-6.1-sol"}}}`)
	stop, got := c.Turn(id, "program")
	plan := false
	for _, u := range got {
		plan = plan || u.Plan != nil && len(u.Plan.Entries) == 1
	}
	var titles []string
	for _, call := range calls(got) {
		titles = append(titles, call.Title+" "+string(call.Status))
		for _, one := range call.Content {
			if d := one.Diff; d != nil && (*d.OldText != "one\ntwo\n" || d.NewText != "one\nTWO\n") {
				t.Errorf("the diff is %q, %q", *d.OldText, d.NewText)
			}
		}
	}
	slices.Sort(titles)
	want := []string{"Edit " + filepath.Join(w.Cwd, "old.txt") + " completed", "echo first completed", "echo second; exit 3 failed"}
	if stop != schema.StopReasonEndTurn || bridgetest.Said(got) != "done" || !plan || !slices.Equal(titles, want) {
		t.Errorf("it ended with %s, said %q, plan %v, calls %q, want %q\n%s", stop, bridgetest.Said(got), plan, titles, want, c.Quote())
	}

	// A cancelled one ends the command that its program runs.
	beat := filepath.Join(w.Cwd, "beat") // in the sandbox it has no process id that means something
	from := c.Seen()
	p := c.Prompt(id, "run while true; do echo tock | tee -a "+beat+"; sleep 0.1; done")
	c.output(from, "tock")
	c.Notify(acp.MethodSessionCancel, map[string]any{"sessionId": id})
	if r, e := c.Result(p); e != nil || rawjson.MemberString(r, "stopReason") != "cancelled" {
		t.Errorf("it ended with %s, %v", r, e)
	}
	falls(t, beat)
	for _, call := range calls(c.Updates(from)) {
		if call.Status != schema.ToolCallStatusFailed {
			t.Errorf("%s was left %s", call.Title, call.Status)
		}
	}
}

// ends waits until the process is gone whose id a command has written.
func ends(t *testing.T, file string) {
	t.Helper()
	for end := time.Now().Add(bridgetest.Patience); alive(t, file); {
		if time.Now().After(end) {
			t.Fatal("the command runs on")
		}
		time.Sleep(20 * time.Millisecond) // nobody tells of its end
	}
}

// falls waits until nobody writes into a file any more.
func falls(t *testing.T, file string) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
		before, err := os.Stat(file)
		time.Sleep(time.Second) // ten beats; nobody tells of their end
		after, errAfter := os.Stat(file)
		if err != nil || errAfter != nil {
			t.Fatal(err, errAfter)
		}
		if before.Size() == after.Size() {
			return
		}
	}
	t.Fatal("the command runs on")
}

// outside is a new folder that no mode but full access may write to. The
// temporary folder is open to all that write.
func outside(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "codex-test-")
	if err != nil {
		t.Skipf("there is no folder outside of the temporary one: %v", err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// liveCancelKeepsEarlierTerminals: a cancelled turn ends its own commands,
// and not what earlier turns left running on purpose. The session's end does.
func liveCancelKeepsEarlierTerminals(t *testing.T, w *world) {
	early, late := filepath.Join(w.Cwd, "early"), filepath.Join(w.Cwd, "late")
	w.Model.On(scriptedmodel.Exactly("leave it"),
		scriptedmodel.Step{scriptedmodel.Call("exec_command", map[string]any{"cmd": "echo $$ > " + early + "; while true; do sleep 0.2; done", "yield_time_ms": 300})},
		scriptedmodel.Step{scriptedmodel.Say("left")})
	c := w.open(schema.ClientCapabilities{}, nil)
	id := c.New(full)
	c.Turn(id, "leave it")
	from := c.Seen()
	p := c.Prompt(id, "run echo $$ > "+late+"; while true; do echo tock; sleep 0.2; done")
	c.output(from, "tock")
	c.Notify(acp.MethodSessionCancel, map[string]any{"sessionId": id})
	if r, e := c.Result(p); e != nil || rawjson.MemberString(r, "stopReason") != "cancelled" {
		t.Errorf("it ended with %s, %v", r, e)
	}
	ends(t, late)
	if !alive(t, early) {
		t.Error("what an earlier turn left running was ended")
	}
	c.Must(acp.MethodSessionClose, &schema.CloseSessionRequest{SessionID: id})
	ends(t, early)
}

// mcpOverHTTP is an MCP server with one tool. It notes the requests' headers.
func mcpOverHTTP(t *testing.T) (url string, keys func() []string) {
	t.Helper()
	var mu sync.Mutex
	var seen []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		seen = append(seen, r.Header.Get("X-Key"))
		mu.Unlock()
		if r.Method != http.MethodPost {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		body, err := io.ReadAll(r.Body)
		id, isRequest := rawjson.Member(body, "id")
		if err != nil || !isRequest {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		var result any = map[string]any{}
		switch rawjson.MemberString(body, "method") {
		case "initialize":
			result = map[string]any{
				"protocolVersion": rawjson.MemberString(body, "params", "protocolVersion"), "capabilities": map[string]any{"tools": map[string]any{}},
				"serverInfo": map[string]string{"name": "far", "version": "1"},
			}
		case "tools/list":
			result = map[string]any{"tools": []any{map[string]any{
				"name": "greet", "description": "greets", "inputSchema": map[string]any{"type": "object"}, "annotations": map[string]bool{"readOnlyHint": true},
			}}}
		case "tools/call":
			result = map[string]any{"content": []any{map[string]string{"type": "text", "text": "greetings from afar"}}}
		}
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(map[string]any{"jsonrpc": "2.0", "id": id, "result": result}); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL, func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}
}

func liveMCPOverHTTP(t *testing.T, w *world) {
	url, keys := mcpOverHTTP(t)
	w.Model.On(scriptedmodel.Exactly("greet"), scriptedmodel.Step{scriptedmodel.Call("mcp__far/greet", map[string]string{})}, scriptedmodel.Step{scriptedmodel.SayResult()})
	c := w.open(schema.ClientCapabilities{}, nil)
	result := c.Must(acp.MethodSessionNew, &schema.NewSessionRequest{Cwd: w.Cwd, MCPServers: []schema.MCPServer{
		{HTTP: &schema.MCPServerHTTP{Name: "far", URL: url + "/mcp", Headers: []schema.HTTPHeader{{Name: "X-Key", Value: "a-secret"}}}},
	}})
	_, got := c.Turn(schema.SessionID(rawjson.MemberString(result, "sessionId")), "greet")
	if call := only(t, got); call.Title != "far.greet" || !strings.Contains(contentText(call), "greetings from afar") || !strings.Contains(bridgetest.Said(got), "greetings from afar") {
		t.Errorf("%s shows %q, the model was told %q\n%s", call.Title, contentText(call), bridgetest.Said(got), c.Quote())
	}
	for _, k := range keys() {
		if k != "a-secret" {
			t.Errorf("a request came with %q", k)
		}
	}
	if len(keys()) == 0 {
		t.Error("nobody asked the server")
	}
}
