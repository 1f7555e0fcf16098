package codex

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

func (c *client) set(id schema.SessionID, option, value string) json.RawMessage {
	c.W.T.Helper()
	quoted, _ := schema.Encode(value)
	return c.Must(acp.MethodSessionSetConfigOption, &schema.SetSessionConfigOptionRequest{SessionID: id, ConfigID: schema.SessionConfigID(option), Value: quoted})
}

// chosen are the values of config options.
func chosen(result json.RawMessage) map[string]string {
	out := map[string]string{}
	options, _ := rawjson.Member(result, "configOptions")
	for _, o := range rawjson.Elements(options) {
		out[rawjson.MemberString(o, "id")] = rawjson.MemberString(o, "currentValue")
	}
	return out
}

func (w *world) again(id schema.SessionID) *schema.ResumeSessionRequest {
	return &schema.ResumeSessionRequest{SessionID: id, Cwd: w.Cwd}
}

// last is the newest call of the model.
func (w *world) last() *scriptedmodel.Request {
	w.T.Helper()
	turns := w.Turns()
	if len(turns) == 0 {
		w.T.Fatal("the model was not called")
	}
	return &turns[len(turns)-1]
}

// restartModesModelsEffort also checks that choices outlive the process, which
// codex itself forgets in part.
func restartModesModelsEffort(t *testing.T, w *world, c *client) (after func(again *client)) {
	result := c.NewResult("")
	id := schema.SessionID(rawjson.MemberString(result, "sessionId"))
	if got := chosen(result); got[configMode] != modeReadOnly || got[configModel] != "gpt-5.5" {
		t.Errorf("at first %v", got)
	}
	if bytes.Count(result, []byte(`"value":"gpt-`)) < 2 {
		t.Errorf("few models: %s", result)
	}
	c.set(id, configModel, "gpt-6.1-sol")
	c.set(id, configEffort, "high")
	c.Must(acp.MethodSessionSetMode, &schema.SetSessionModeRequest{SessionID: id, ModeID: modeFullAccess})
	if _, got := c.Turn(id, "run touch "+filepath.Join(w.Cwd, "made")); !strings.Contains(bridgetest.Said(got), "ran:") {
		t.Errorf("said %q", bridgetest.Said(got))
	}
	if _, err := os.Stat(filepath.Join(w.Cwd, "made")); err != nil {
		t.Errorf("full access: %v\n%s", err, c.Quote())
	}
	if r := w.last(); r.Model != "gpt-6.1-sol" || r.Effort != "high" {
		t.Errorf("model %s with effort %s", r.Model, r.Effort)
	}
	quoted, _ := schema.Encode("nope")
	for _, option := range []string{configMode, configModel, configEffort, "nope"} {
		r := &schema.SetSessionConfigOptionRequest{SessionID: id, ConfigID: schema.SessionConfigID(option), Value: quoted}
		if _, e := c.Call(acp.MethodSessionSetConfigOption, r); e == nil || e.Code != acp.CodeInvalidParams {
			t.Errorf("option %s: %v", option, e)
		}
	}
	return func(again *client) {
		got := chosen(again.Must(acp.MethodSessionResume, w.again(id)))
		want := map[string]string{configMode: modeFullAccess, configModel: "gpt-6.1-sol", configEffort: "high"}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("after a restart %v, want %v", got, want)
		}
		if _, list := again.Turn(id, "run touch "+filepath.Join(w.Cwd, "again")); !strings.Contains(bridgetest.Said(list), "ran:") {
			t.Errorf("said %q", bridgetest.Said(list))
		}
		if _, err := os.Stat(filepath.Join(w.Cwd, "again")); err != nil {
			t.Errorf("full access after a restart: %v", err)
		}
	}
}

// livePermissions maps every decision about a command.
func livePermissions(t *testing.T, w *world) {
	ask := func(name string) scriptedmodel.Action {
		return scriptedmodel.Call("exec_command", map[string]any{
			"cmd": "touch " + filepath.Join(w.Cwd, name), "sandbox_permissions": "require_escalated", "justification": "because of " + name,
		})
	}
	for _, name := range []string{"a", "b", "c"} {
		w.Model.On(scriptedmodel.Exactly("make "+name), scriptedmodel.Step{ask(name)}, scriptedmodel.Step{scriptedmodel.Say("went on")})
	}
	option, asked := "", 0
	c := w.open(schema.ClientCapabilities{}, func(method string, params json.RawMessage) any {
		asked++
		if option == "cancelled" {
			return map[string]any{"outcome": map[string]string{"outcome": "cancelled"}}
		}
		return bridgetest.Pick(option)(method, params)
	})
	id := c.New("")
	made := func(name string) bool { _, err := os.Stat(filepath.Join(w.Cwd, name)); return err == nil }
	for _, one := range []struct {
		option, name string
		stop         schema.StopReason
		made         bool
		asked        int
	}{
		{"reject_once", "a", schema.StopReasonEndTurn, false, 1},
		{"cancelled", "a", schema.StopReasonCancelled, false, 1},
		{"allow_once", "a", schema.StopReasonEndTurn, true, 1},
		{"allow_session", "b", schema.StopReasonEndTurn, true, 1},
		{"reject_once", "b", schema.StopReasonEndTurn, true, 0}, // allowed already
		{"allow_rule", "c", schema.StopReasonEndTurn, true, 1},
	} {
		option, asked = one.option, 0
		stop, got := c.Turn(id, "make "+one.name)
		if stop != one.stop || made(one.name) != one.made || asked != one.asked {
			t.Errorf("%s: it ended with %s, made %v, asked %d times\n%s", one.option, stop, made(one.name), asked, c.Quote())
		}
		call := only(t, got)
		if ok := call.Status == schema.ToolCallStatusCompleted; ok != one.made {
			t.Errorf("%s: the call is %s", one.option, call.Status)
		}
	}
	rules := filepath.Join(w.Home, ".codex/rules/default.rules")
	if rules := w.Read(rules); !strings.Contains(rules, "touch") {
		t.Errorf("the rule that was chosen is not there: %s", rules)
	}
	var granted []string
	for _, g := range (Adapter{}).Grants(adapters.Options{StateDir: w.State}, string(id)) {
		granted = append(granted, string(g.Where)+" "+g.Kind+" "+g.Title+" "+g.File)
	}
	if want := []string{"process execute `touch " + filepath.Join(w.Cwd, "b") + "` ", "file execute commands that begin with touch " + filepath.Join(w.Cwd, "c") + " " + rules}; !slices.Equal(granted, want) {
		t.Errorf("granted is %q, want %q", granted, want)
	}
}

func liveQuestion(t *testing.T, w *world) {
	agentcache.Long(t, `the scenarios "question ..." show it through the gateway`)
	w.Model.On(scriptedmodel.Exactly("ask me"), scriptedmodel.Step{scriptedmodel.Call("request_user_input", map[string]any{"questions": []any{map[string]any{
		"id": "color", "header": "Color", "question": "Which color?",
		"options": []any{map[string]string{"label": "Red", "description": "warm"}, map[string]string{"label": "Blue", "description": "cold"}},
	}}})}, scriptedmodel.Step{scriptedmodel.SayResult()})
	c := w.open(schema.ClientCapabilities{}, func(method string, _ json.RawMessage) any {
		if method != acp.MethodRequestQuestion {
			return nil
		}
		return &acp.QuestionResponse{Outcome: acp.QuestionAnswered, Answers: [][]string{{"Blue"}}}
	})
	id := c.New("")
	c.Must(acp.MethodSessionSetMode, &schema.SetSessionModeRequest{SessionID: id, ModeID: modePlan})
	if _, got := c.Turn(id, "ask me"); !strings.Contains(bridgetest.Said(got), "Blue") {
		t.Errorf("the model was told %q\n%s", bridgetest.Said(got), c.Quote())
	}
	c.Must(acp.MethodSessionSetMode, &schema.SetSessionModeRequest{SessionID: id, ModeID: modeReadOnly})
	if _, got := c.Turn(id, "say back"); bridgetest.Said(got) != "back" {
		t.Errorf("said %q", bridgetest.Said(got))
	}
}

// mcpServer is an MCP server on stdio with tools that echo and ask.
const mcpServer = `const send = (o) => process.stdout.write(JSON.stringify({ jsonrpc: "2.0", ...o }) + "\n");
const tool = (name, hint) => ({ name, description: name, inputSchema: { type: "object", properties: { text: { type: "string" } } }, annotations: { readOnlyHint: hint } });
let call, n = 0;
require("node:readline").createInterface({ input: process.stdin }).on("line", (line) => {
  const m = JSON.parse(line);
  const text = (t) => ({ content: [{ type: "text", text: t }] });
  if (m.method === "initialize") send({ id: m.id, result: { protocolVersion: m.params.protocolVersion, capabilities: { tools: {} }, serverInfo: { name: "demo", version: "1" } } });
  else if (m.method === "tools/list") send({ id: m.id, result: { tools: [tool("echo", true), tool("write", false), tool("ask", true)] } });
  else if (m.method === "tools/call" && m.params.name === "ask") {
    call = m.id;
    send({ id: "e" + n++, method: "elicitation/create", params: { message: "Your name?", requestedSchema: { type: "object", properties: { name: { type: "string" } } } } });
  } else if (m.method === "tools/call") send({ id: m.id, result: text(m.params.name + ": " + m.params.arguments.text + " " + (process.env.DEMO ?? "")) });
  else if (!m.method && String(m.id).startsWith("e")) send({ id: call, result: text("asked: " + JSON.stringify(m.result)) });
  else if (m.id !== undefined) send({ id: m.id, error: { code: -32601, message: "unknown" } });
});
`

func liveMCP(t *testing.T, w *world) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skipf("node is not installed: %v", err)
	}
	script := w.Write("mcp.cjs", mcpServer, 0o600)
	for _, name := range []string{"echo", "write", "ask"} {
		w.Model.On(scriptedmodel.Exactly("mcp "+name), scriptedmodel.Step{scriptedmodel.Call("mcp__demo/"+name, map[string]string{"text": "hello"})}, scriptedmodel.Step{scriptedmodel.SayResult()})
	}
	asked := []string{}
	c := w.open(showing, func(method string, params json.RawMessage) any {
		asked = append(asked, method)
		if method == acp.MethodElicitationCreate {
			return map[string]any{"action": "accept", "content": map[string]string{"name": "Ada"}}
		}
		return bridgetest.Pick("allow_session")(method, params)
	})
	result := c.Must(acp.MethodSessionNew, &schema.NewSessionRequest{Cwd: w.Cwd, MCPServers: []schema.MCPServer{
		{Stdio: &schema.MCPServerStdio{Name: "demo", Command: node, Args: []string{script}, Env: []schema.EnvVariable{{Name: "DEMO", Value: "from-env"}}}},
		{Stdio: &schema.MCPServerStdio{Name: "broken", Command: "/no/such/program"}},
		{SSE: &schema.MCPServerSSE{Name: "old", URL: "http://127.0.0.1:1/sse", Headers: []schema.HTTPHeader{}}},
	}})
	if !bytes.Contains(result, []byte(`"unsupported":[{"field":"mcpServers"`)) {
		t.Errorf("a server that codex cannot have is not reported: %s", result)
	}
	id := schema.SessionID(rawjson.MemberString(result, "sessionId"))
	c.Servers(id, 0, "broken=failed! demo=ready(ask,echo,write)")
	if _, got := c.Turn(id, "mcp echo"); !strings.Contains(bridgetest.Said(got), "hello from-env") || len(asked) != 0 {
		t.Errorf("said %q, asked %q\n%s", bridgetest.Said(got), asked, c.Quote())
	}
	for range 2 {
		_, got := c.Turn(id, "mcp write")
		if call := only(t, got); call.Title != "demo.write" || call.Status != schema.ToolCallStatusCompleted {
			t.Errorf("%s is %s", call.Title, call.Status)
		}
	}
	if !slices.Equal(asked, []string{acp.MethodSessionRequestPermission}) {
		t.Errorf("asked %q, want one permission for the session", asked)
	}
	asked = nil
	if _, got := c.Turn(id, "mcp ask"); !strings.Contains(bridgetest.Said(got), "Ada") || !slices.Contains(asked, acp.MethodElicitationCreate) {
		t.Errorf("said %q, asked %q", bridgetest.Said(got), asked)
	}
}

func liveInstructionsSkillsDirectories(t *testing.T, w *world) {
	extra := outside(t)
	w.Write("skills/demo-skill/SKILL.md", "---\nname: demo-skill\ndescription: does demos\n---\nSKILL BODY\n", 0o600)
	w.Write(filepath.Join(w.Cwd, "AGENTS.md"), "FROM AGENTS\n", 0o600)
	own, _ := schema.Encode(map[string]any{
		"instructions": "PROJECT RULES", "appendSystemPrompt": "APPENDED", "skills": map[string]any{"paths": []string{filepath.Join(w.Home, "skills")}},
		"additionalDirectories": []string{extra}, "permissionMode": "write",
		"agentSpecific": map[string]any{"codex": map[string]any{"config": map[string]any{"model_reasoning_effort": "low"}, "nope": 1, "replaceSystemPrompt": "IN ITS PLACE"}},
	})
	c := w.open(schema.ClientCapabilities{}, nil)
	result := c.NewResult(string(own))
	if !bytes.Contains(result, []byte(`"field":"agentSpecific.codex.nope"`)) {
		t.Errorf("what has no effect is not reported: %s", result)
	}
	id := schema.SessionID(rawjson.MemberString(result, "sessionId"))
	c.Await("the skill among the commands", 0, func(m *acp.Message) bool {
		return strings.Contains(string(m.Update()), `"name":"demo-skill"`) && strings.Contains(string(m.Update()), `"name":"compact"`)
	})
	c.Turn(id, "run echo x > "+filepath.Join(extra, "made"))
	if _, err := os.Stat(filepath.Join(extra, "made")); err != nil {
		t.Errorf("a further folder: %v\n%s", err, c.Quote())
	}
	r := w.last()
	for _, s := range []string{"CONFIGURED", "PROJECT RULES", "APPENDED", "does demos", "FROM AGENTS", "IN ITS PLACE"} {
		if !bytes.Contains(r.Body, []byte(s)) {
			t.Errorf("the model was not told %s", s)
		}
	}
	if r.Effort != "low" || bytes.Contains(r.Body, []byte("SKILL BODY")) {
		t.Errorf("effort %s", r.Effort)
	}
	c.Turn(id, "$demo-skill say skilled")
	if !bytes.Contains(w.last().Body, []byte("SKILL BODY")) {
		t.Error("the skill was not given to the model")
	}
	if list, _ := os.ReadDir(w.Cwd); len(list) != 1 {
		t.Errorf("the workspace holds %v", list)
	}
}

// liveTrustIsNotWritten: codex declares a repository trusted in the user's
// configuration when a thread is started so that it may write there.
func liveTrustIsNotWritten(t *testing.T, w *world) {
	if out, err := exec.Command("git", "-C", w.Cwd, "init", "-q").CombinedOutput(); err != nil {
		t.Skipf("git: %v: %s", err, out)
	}
	path := filepath.Join(w.Home, ".codex/config.toml")
	before := w.Read(path)
	c := w.open(schema.ClientCapabilities{}, nil)
	for _, own := range []string{"", `{"permissionMode":"write"}`, full} {
		id := c.New(own)
		c.Turn(id, "say hello")
		c.Must(acp.MethodSessionSetMode, &schema.SetSessionModeRequest{SessionID: id, ModeID: modeAgent})
		c.Turn(id, "run touch "+filepath.Join(w.Cwd, "x"))
	}
	if _, err := os.Stat(filepath.Join(w.Cwd, "x")); err != nil {
		t.Errorf("mode agent does not write: %v", err)
	}
	if after := w.Read(path); after != before {
		t.Errorf("the user's configuration is now\n%s", after)
	}
}

// TestLive_OwnInstallation runs an installation whose helper for the sandbox is
// broken, with a provider that is asked again and again.
func TestLive_OwnInstallation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Write(".codex/config.toml", strings.Replace(w.Read(filepath.Join(w.Home, ".codex/config.toml")), "request_max_retries = 1\nstream_max_retries = 2", "stream_max_retries = 30", 1), 0o600)
	from := filepath.Dir(filepath.Dir(w.Program.Path))
	to := filepath.Join(w.Home, "installation")
	for _, name := range []string{"bin/codex", "bin/codex-code-mode-host", "codex-package.json"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(to, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command("cp", filepath.Join(from, name), filepath.Join(to, name)).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	w.Write("installation/codex-resources/bwrap", "#!/bin/sh\nexit 1\n", 0o700)
	w.Program.Path = filepath.Join(to, "bin/codex")
	t.Run("SandboxMissing", func(t *testing.T) { liveSandboxMissing(t, &world{w.Part(t)}) })
	t.Run("BadKeyIsStoppedEarly", func(t *testing.T) { liveBadKeyIsStoppedEarly(t, &world{w.Part(t)}) })
}

// liveSandboxMissing: codex cannot confine anything, and clients are told.
func liveSandboxMissing(t *testing.T, w *world) {
	c := w.open(noticing, nil)
	result := c.NewResult("")
	id := schema.SessionID(rawjson.MemberString(result, "sessionId"))
	if !bytes.Contains(result, []byte(`"sandbox":{"available":false`)) || !bytes.Contains(result, []byte("On this machine commands fail in this mode")) {
		t.Errorf("nothing says that there is no sandbox: %s", result)
	}
	c.Await("a notice", 0, func(m *acp.Message) bool { return strings.Contains(string(m.Update()), "cannot confine") })
	_, got := c.Turn(id, "run echo hello")
	for _, call := range calls(got) {
		if call.Status != schema.ToolCallStatusFailed {
			t.Errorf("without a sandbox a command is %s: %s", call.Status, contentText(call))
		}
	}
	if strings.Contains(bridgetest.Said(got), "\nhello\n") {
		t.Errorf("the command ran: %s", bridgetest.Said(got))
	}
	c.Must(acp.MethodSessionSetMode, &schema.SetSessionModeRequest{SessionID: id, ModeID: modeFullAccess})
	_, got = c.Turn(id, "run echo hello")
	if call := only(t, got); call.Status != schema.ToolCallStatusCompleted || !strings.Contains(contentText(call), "hello") {
		t.Errorf("with full access a command is %s: %s", call.Status, contentText(call))
	}
}

// noticing are the capabilities of a client that shows notices.
var noticing = schema.ClientCapabilities{Session: &schema.ClientSessionCapabilities{Notices: &schema.NoticeCapabilities{}}}

// openAI makes codex use its own provider, at the model's address.
func (w *world) openAI() {
	w.Write(".codex/config.toml", "model = \"gpt-5.5\"\n[analytics]\nenabled = false\n", 0o600)
}

// TestLive_Credentials has a session that brings its own. The scenario "no key is said at
// once" has none, and TestLive_Login the login's address.
func TestLive_Credentials(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.openAI()
	w.Credentials = adapters.Credentials{APIKey: "sk-brought-along", BaseURL: w.Model.URL + "/v1"}
	again := w.open(schema.ClientCapabilities{}, nil)
	id := again.New("")
	if _, got := again.Turn(id, "say with my own"); bridgetest.Said(got) != "with my own" {
		t.Errorf("said %q", bridgetest.Said(got))
	}
	if key := w.last().Header.Get("Authorization"); key != "Bearer sk-brought-along" {
		t.Errorf("the model was given %q", key)
	}
	if _, err := os.Stat(filepath.Join(w.Home, ".codex/auth.json")); err == nil {
		t.Error("the key was written to disk")
	}
	found, err := exec.Command("grep", "-rl", "sk-brought-along", w.Home, w.State).Output()
	if len(bytes.TrimSpace(found)) > 0 {
		t.Errorf("the key is in %s (%v)", found, err)
	}
}
