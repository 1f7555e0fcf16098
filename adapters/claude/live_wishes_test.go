package claude

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// TestLive_Wishes has all that a client may wish for in one session: MCP servers,
// instructions, skills, directories, a mode, settings with hooks.
func TestLive_Wishes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Env = append(w.Env, "CLAUDE_CODE_ENABLE_TASKS=1", "ANTHROPIC_MODEL=claude-sonnet-4-5")
	w.Write("skills/greeting/SKILL.md", "---\nname: greeting\ndescription: GREET PEOPLE WELL\n---\nSay: SKILL BODY $ARGUMENTS\n", 0o600)
	extra := t.TempDir()
	w.Write(filepath.Join(extra, "there.txt"), "there\n", 0o600)
	w.Model.On(scriptedmodel.Contains("SKILL BODY"), scriptedmodel.Step{scriptedmodel.Say("greeted")})
	for _, name := range []string{"demo", "web"} {
		w.Model.On(scriptedmodel.Exactly("use "+name), scriptedmodel.Step{scriptedmodel.Call("mcp__"+name+"__ask", map[string]any{})}, scriptedmodel.Step{scriptedmodel.SayResult()})
	}
	own, _ := schema.Encode(map[string]any{
		"instructions": "PROJECT INSTRUCTIONS", "appendSystemPrompt": "APPENDED PROMPT", "title": "Given title", "permissionMode": "write",
		"skills": map[string]any{"paths": []string{filepath.Join(w.Home, "skills")}}, "additionalDirectories": []string{extra},
		"agentSpecific": json.RawMessage(`{"claude":{"includeHookEvents":true,"settings":{"hooks":{"UserPromptSubmit":[{"hooks":[{"type":"command","command":"echo from the hook"}]}]}}}}`),
	})
	var asked []string
	c := w.open(noticing, func(method string, params json.RawMessage) any {
		asked = append(asked, method)
		if method == acp.MethodElicitationCreate {
			return map[string]any{"action": "accept", "content": map[string]string{"name": "Ada"}}
		}
		return bridgetest.Pick(optionAllow)(method, params)
	})
	var r schema.NewSessionResponse
	if err := json.Unmarshal(c.Must(acp.MethodSessionNew, &schema.NewSessionRequest{
		Cwd: w.Cwd, MCPServers: w.servers(), Meta: map[string]json.RawMessage{acp.MetaKey: own},
	}), &r); err != nil {
		t.Fatal(err)
	}
	unsupported, _ := rawjson.Member(r.Meta[acp.MetaKey], "unsupported")
	if list := rawjson.Elements(unsupported); len(list) != 1 || rawjson.MemberString(list[0], "field") != "mcpServers.broken" {
		t.Errorf("unsupported is %s, want the broken server", unsupported)
	}
	id := r.SessionID
	from := c.Servers(id, 0, "broken=failed! demo=ready(ask) web=ready(ask)")
	_, got := c.Turn(id, "say hi")
	c.Servers(id, from, "broken=failed! demo=ready(ask) web=ready(ask)") // a turn may have ended one
	if !slices.ContainsFunc(got, func(u schema.SessionUpdate) bool {
		return u.Notice != nil && u.Notice.Description != nil && strings.Contains(*u.Notice.Description, "from the hook")
	}) {
		t.Errorf("the hook's output was not shown\n%s", c.Quote())
	}
	body := string(w.Turns()[0].Body)
	for _, want := range []string{"PROJECT INSTRUCTIONS", "APPENDED PROMPT", "GREET PEOPLE WELL"} {
		if !strings.Contains(body, want) {
			t.Errorf("the model did not get %q", want)
		}
	}
	if _, got := c.Turn(id, "/session:greeting Bob"); bridgetest.Said(got) != "greeted" {
		t.Errorf("the skill said %q\n%s", bridgetest.Said(got), c.Quote())
	}
	if _, got := c.Turn(id, "read "+filepath.Join(extra, "there.txt")); !strings.Contains(bridgetest.Said(got), "there") {
		t.Errorf("reading in the additional directory said %q", bridgetest.Said(got))
	}
	made := filepath.Join(w.Cwd, "made")
	if c.Turn(id, "write "+made+" x"); len(asked) > 0 {
		t.Errorf("in mode write it asked %q", asked)
	}
	w.Read(made)
	if _, got := c.Turn(id, "use web"); !strings.Contains(bridgetest.Said(got), "called over http") {
		t.Errorf("said %q\n%s", bridgetest.Said(got), c.Quote())
	}
	asked = nil
	if _, got := c.Turn(id, "use demo"); !strings.Contains(bridgetest.Said(got), `"Ada"`) || !strings.Contains(bridgetest.Said(got), "env hidden") || !slices.Contains(asked, acp.MethodElicitationCreate) {
		t.Errorf("asked %q, said %q\n%s", asked, bridgetest.Said(got), c.Quote())
	}
	w.tasks(c, id)
	c.Close()
	if left, _ := filepath.Glob(filepath.Join(w.State, "run", "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// servers are MCP servers of each kind; the first one asks the user, the second
// one wants a header, and the third one does not exist.
func (w *world) servers() []schema.MCPServer {
	w.T.Helper()
	web := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.Header.Get("X-Secret") != "sesame" {
			rw.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		body := bufio.NewReader(r.Body)
		line, _ := body.ReadBytes(0)
		out := mcpAnswer(line, nil)
		if out == "" {
			rw.WriteHeader(http.StatusAccepted)
			return
		}
		rw.Header().Set("Content-Type", "application/json")
		_, _ = rw.Write([]byte(out))
	}))
	w.T.Cleanup(web.Close)
	exe, err := os.Executable()
	if err != nil {
		w.T.Fatal(err)
	}
	return []schema.MCPServer{
		{Stdio: &schema.MCPServerStdio{Name: "demo", Command: exe, Args: []string{"-test.run=^TestMCPServer$"}, Env: []schema.EnvVariable{
			{Name: "TEST_MCP_SERVER", Value: "1"}, {Name: "TEST_MCP_SECRET", Value: "hidden"},
		}}},
		{HTTP: &schema.MCPServerHTTP{Name: "web", URL: web.URL, Headers: []schema.HTTPHeader{{Name: "X-Secret", Value: "sesame"}}}},
		{Stdio: &schema.MCPServerStdio{Name: "broken", Command: "/no/such/program", Args: []string{}, Env: []schema.EnvVariable{}}},
	}
}

// tasks shows a list of tasks as a plan.
func (w *world) tasks(c *client, id schema.SessionID) {
	w.T.Helper()
	w.Model.On(scriptedmodel.Exactly("by task"),
		scriptedmodel.Step{scriptedmodel.Call("TaskCreate", map[string]any{"subject": "First", "description": "d"})},
		scriptedmodel.Step{scriptedmodel.Call("TaskCreate", map[string]any{"subject": "Second", "description": "d"})},
		scriptedmodel.Step{scriptedmodel.Call("TaskUpdate", map[string]any{"taskId": "1", "status": "completed"}), scriptedmodel.Call("TaskUpdate", map[string]any{"taskId": "2", "status": "in_progress"})},
		scriptedmodel.Step{scriptedmodel.Say("ok")})
	_, got := c.Turn(id, "by task")
	last := ""
	for _, u := range got {
		if u.Plan != nil {
			last = string(bridgetest.Encoded(u.Plan))
		}
	}
	want := `{"entries":[{"content":"First","priority":"medium","status":"completed"},{"content":"Second","priority":"medium","status":"in_progress"}]}`
	if last != want {
		w.T.Errorf("the plan is %s\n%s", last, c.Quote())
	}
}

// liveWithoutForms has an MCP server whose form is declined by a client that has not said
// that it has forms, and wishes that have no effect.
func liveWithoutForms(t *testing.T, w *world) {
	w.Model.On(scriptedmodel.Exactly("use demo"), scriptedmodel.Step{scriptedmodel.Call("mcp__demo__ask", map[string]any{})}, scriptedmodel.Step{scriptedmodel.SayResult()})
	c := w.open(noticing, func(method string, params json.RawMessage) any {
		if method == acp.MethodElicitationCreate {
			return map[string]any{"action": "decline"}
		}
		return bridgetest.Pick(optionAllow)(method, params)
	})
	r := c.Must(acp.MethodSessionNew, &schema.NewSessionRequest{
		Cwd: w.Cwd, MCPServers: w.servers()[:1],
		Meta: map[string]json.RawMessage{acp.MetaKey: json.RawMessage(`{"permissionMode":"whatever","agentSpecific":{"claude":{"noSuchThing":1}},"skills":{"paths":["/no/such"]}}`)},
	})
	for _, field := range []string{"permissionMode", "agentSpecific.claude.noSuchThing", "skills"} {
		if !strings.Contains(string(r), `"field":"`+field+`"`) {
			t.Errorf("%s is not among the unsupported: %s", field, r)
		}
	}
	id := schema.SessionID(rawjson.MemberString(r, "sessionId"))
	if _, got := c.Turn(id, "use demo"); !strings.Contains(bridgetest.Said(got), "decline") {
		t.Errorf("said %q\n%s", bridgetest.Said(got), c.Quote())
	}
	c.Must(acp.MethodSessionClose, &schema.CloseSessionRequest{SessionID: id})
}

func liveReadonly(t *testing.T, w *world) {
	c := w.open(noticing, nil) // answers no request
	made := filepath.Join(w.Cwd, "never-made")
	id := c.New(`{"permissionMode":"readonly"}`)
	c.Turn(id, "write "+made+" x")
	c.Turn(id, "run touch "+made)
	if _, err := os.Stat(made); err == nil {
		t.Error("readonly wrote a file")
	}
}

// liveBudget ends a turn that has cost too much.
func liveBudget(t *testing.T, w *world) {
	loop := make([]scriptedmodel.Step, 5)
	for i := range loop {
		loop[i] = scriptedmodel.Step{scriptedmodel.Shell("echo " + strconv.Itoa(i))}
	}
	w.Model.On(scriptedmodel.Exactly("loop"), loop...)
	c := w.open(noticing, nil)
	if stop, _ := c.Turn(c.New(`{"agentSpecific":{"claude":{"maxBudgetUsd":0.000001}}}`), "loop"); stop != schema.StopReasonMaxTurnRequests {
		t.Errorf("ended with %s\n%s", stop, c.Quote())
	}
}
