package pi

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridgetest"
	"sandboxagent.dev/sandbox-agent/internal/agentcache"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

// sums are the hashes of the user's configuration, conversations aside.
func (w *world) sums() map[string]string {
	w.T.Helper()
	root := filepath.Join(w.Home, ".pi")
	out := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.Contains(path, "/sessions/") {
			return err
		}
		b, err := os.ReadFile(path)
		sum := sha256.Sum256(b)
		out[strings.TrimPrefix(path, root)] = hex.EncodeToString(sum[:4])
		return err
	})
	if err != nil {
		w.T.Fatal(err)
	}
	return out
}

func (c *client) set(id schema.SessionID, option, value string) {
	c.W.T.Helper()
	quoted, _ := schema.Encode(value)
	c.Must(acp.MethodSessionSetConfigOption, &schema.SetSessionConfigOptionRequest{SessionID: id, ConfigID: schema.SessionConfigID(option), Value: quoted})
}

// liveModelInARunningTurn: an early Pi cannot change it then, and says so.
func liveModelInARunningTurn(t *testing.T, w *world) {
	c := w.open(schema.ClientCapabilities{}, nil)
	id := c.New("")
	from := c.Seen()
	p := c.Prompt(id, "forever")
	c.Await("text", from, has("tick 2"))
	_, e := c.Call(acp.MethodSessionSetConfigOption, &schema.SetSessionConfigOptionRequest{SessionID: id, ConfigID: configModel, Value: []byte(`"scripted/two"`)})
	early := w.version == agentcache.PiLegacy
	if early != (e != nil) || early && !strings.Contains(e.Message, "between turns") {
		t.Errorf("changing the model: %v", e)
	}
	c.cancelled(id, p)
	c.set(id, configModel, "scripted/two")
	c.Turn(id, "say chosen")
	if r := w.last(); r.Model != "two" {
		t.Errorf("model %s was asked", r.Model)
	}
	c.set(id, configModel, "scripted/one")
}

// liveWishes has all that a client may wish for in one session: MCP servers,
// instructions, skills, directories.
func liveWishes(t *testing.T, w *world) {
	w.Cwd = t.TempDir()
	system := w.Write(".pi/agent/APPEND_SYSTEM.md", "OF THE USER", 0o600)
	t.Cleanup(func() { _ = os.Remove(system) })
	w.Write(filepath.Join(w.Cwd, "AGENTS.md"), "FROM AGENTS", 0o600)
	skill := w.Write("skills/demo/SKILL.md", "---\nname: demo\ndescription: DOES DEMOS\n---\nSKILL BODY\n", 0o600)
	extra := t.TempDir()
	own, _ := schema.Encode(map[string]any{
		"title": "A title", "instructions": "PROJECT RULES", "appendSystemPrompt": "APPENDED", "additionalDirectories": []string{extra},
		"skills": map[string]any{"paths": []string{filepath.Dir(skill), "/no/such/folder"}}, "permissionMode": "nope",
		"agentSpecific": map[string]any{"pi": map[string]any{"nope": 1, "thinking": "low"}},
	})
	c := w.open(schema.ClientCapabilities{}, bridgetest.Pick(optionAllow))
	far := farServer(t)
	result := c.Must(acp.MethodSessionNew, &schema.NewSessionRequest{
		Cwd: w.Cwd, Meta: map[string]json.RawMessage{acp.MetaKey: own},
		MCPServers: append(
			w.near(), far, schema.MCPServer{SSE: &schema.MCPServerSSE{Name: "old", URL: "http://127.0.0.1:1/sse", Headers: []schema.HTTPHeader{}}},
			schema.MCPServer{Stdio: &schema.MCPServerStdio{Name: "broken", Command: "/no/such/program"}},
		),
	})
	id := schema.SessionID(rawjson.MemberString(result, "sessionId"))
	defer c.Must(acp.MethodSessionClose, map[string]any{"sessionId": id})
	c.Turn(id, "say told")
	body := w.last().Body
	for _, part := range []string{"OF THE USER", "FROM AGENTS", "PROJECT RULES", "APPENDED", "DOES DEMOS", extra} {
		if !bytes.Contains(body, []byte(part)) {
			t.Errorf("the model did not hear %q", part)
		}
	}
	if e := w.last().Effort; e != "low" {
		t.Errorf("it thinks %s", e)
	}
	if _, got := c.Turn(id, "/skill:demo say skilled"); !bytes.Contains(w.last().Body, []byte("SKILL BODY")) {
		t.Errorf("the skill was not used: %q", bridgetest.Said(got))
	}
	for _, field := range []string{"permissionMode", "skills", "agentSpecific.pi.nope"} {
		if !bytes.Contains(result, []byte(`"field":"`+field+`"`)) {
			t.Errorf("%s is not reported: %s", field, result)
		}
	}
	w.servers(c, id, result)
	only := schema.SystemPrompt{Mode: schema.SystemPromptModeOverride, Content: []schema.ContentBlock{schema.TextBlock("ONLY THIS")}}
	r := c.Must(acp.MethodSessionNew, &schema.NewSessionRequest{Cwd: w.Cwd, MCPServers: []schema.MCPServer{}, SystemPrompt: &only})
	c.Turn(schema.SessionID(rawjson.MemberString(r, "sessionId")), "say replaced")
	if body := w.last().Body; !bytes.Contains(body, []byte("ONLY THIS")) || bytes.Contains(body, []byte("coding agent harness")) {
		t.Error("the system prompt was not replaced")
	}
	left, err := os.ReadDir(w.Cwd)
	if err != nil || len(left) != 1 {
		t.Errorf("the workspace has %v, %v", left, err)
	}
	// What an MCP server is given is nowhere but in the gateway's private files. Pi keeps there what it has translated.
	err = filepath.WalkDir(w.temp(), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() && (strings.Contains(w.Read(path), "heron") || strings.Contains(w.Read(path), "X-Key")) {
			t.Errorf("the servers' secrets are in %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func liveAttachments(t *testing.T, w *world) {
	c := w.open(schema.ClientCapabilities{}, nil)
	id := c.New("")
	image := schema.ContentBlock{Image: &schema.ImageContent{Data: dot, MimeType: "image/png"}}
	c.Must(acp.MethodSessionPrompt, &schema.PromptRequest{SessionID: id, Prompt: []schema.ContentBlock{schema.TextBlock("say seen"), image, linked, embedded}})
	for _, part := range []string{dot, "file:///w/linked.go", "embedded-4711"} {
		if !bytes.Contains(w.last().Body, []byte(part)) {
			t.Errorf("the model did not get %.30s", part)
		}
	}
	png, _ := base64.StdEncoding.DecodeString(dot)
	from := c.Seen()
	c.Turn(id, "read "+w.Write("dot.png", string(png), 0o600))
	c.Await("the image as a result", from, has(`"type":"image","data":"`))
	for name, prompt := range map[string][]schema.ContentBlock{"empty": {}, "audio": {{Audio: &schema.AudioContent{Data: "AA==", MimeType: "audio/wav"}}}} {
		if _, e := c.Call(acp.MethodSessionPrompt, &schema.PromptRequest{SessionID: id, Prompt: prompt}); e == nil || e.Code != acp.CodeInvalidParams {
			t.Errorf("%s: %v", name, e)
		}
	}
}

func liveCommandsAndCompaction(t *testing.T, w *world) {
	c := w.open(noticing, nil)
	id := c.New("")
	c.Await("the commands", 0, has(`"name":"greet","description":"Greets`))
	if _, got := c.Turn(id, "/greet you"); bridgetest.Said(got) != "greetings to you" {
		t.Errorf("/greet said %q", bridgetest.Said(got))
	}
	if _, e := c.Result(c.Prompt(id, "/compact")); w.version != agentcache.PiLegacy && (e == nil || !strings.Contains(e.Message, "compact")) {
		t.Errorf("compacting next to nothing: %v", e)
	}
	w.fill(func(prompt string) { c.Turn(id, prompt) })
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

	from := c.Seen()
	c.Turn(id, "/bash echo typed by the user; exit 3")
	c.Await("its output", from, has("typed by the user"))
	c.Await("its end", from, has("exited with code 3"))
	c.Turn(id, "say heard")
	if r := w.last(); !r.Says(scriptedmodel.User, "typed by the user") {
		t.Errorf("the model was not told of the command: %+v", r.Messages)
	}
	from = c.Seen()
	p := c.Prompt(id, "/bash echo going; sleep 1000")
	c.Await("the call", from, has(`"in_progress"`)) // an early Pi shows no output before the end
	c.cancelled(id, p)
	c.Must(acp.MethodSessionSetMode, &schema.SetSessionModeRequest{SessionID: id, ModeID: modeReadonly})
	if _, e := c.Result(c.Prompt(id, "/bash touch "+filepath.Join(w.Cwd, "made"))); e == nil || !strings.Contains(e.Message, "only read") {
		t.Errorf("a command in a session that may only read: %v", e)
	}
	c.Must(acp.MethodSessionSetMode, &schema.SetSessionModeRequest{SessionID: id, ModeID: modeDefault})
}

// liveBadStart: what Pi says when it does not start is in the error.
func liveBadStart(t *testing.T, w *world) {
	c := w.open(schema.ClientCapabilities{}, nil)
	before, _ := filepath.Glob(filepath.Join(w.State, "run", "*"))
	own := map[string]json.RawMessage{acp.MetaKey: json.RawMessage(`{"agentSpecific":{"pi":{"model":"nope/nope"}}}`)}
	_, e := c.Call(acp.MethodSessionNew, &schema.NewSessionRequest{Cwd: w.Cwd, MCPServers: []schema.MCPServer{}, Meta: own})
	if e == nil || !strings.Contains(e.Message, "nope") || !strings.Contains(e.Message, "code 1") {
		t.Errorf("a model that is not there: %v", e)
	}
	if left, _ := filepath.Glob(filepath.Join(w.State, "run", "*")); len(left) != len(before) {
		t.Errorf("left behind: %v, before there was %v", left, before)
	}
	c.Turn(c.New(""), "say and on")
}

// servers checks the MCP servers of a session: near, and far over HTTP with the
// client's own words in a header.
func (w *world) servers(c *client, id schema.SessionID, result json.RawMessage) {
	t := w.T
	t.Helper()
	if !strings.Contains(string(result), "stdio and http only") {
		t.Errorf("a server that Pi cannot have is not reported: %s", result)
	}
	if !hasMCP(w.version) {
		if !strings.Contains(string(result), w.version+" has no MCP") {
			t.Errorf("it is not said that there is no MCP: %s", result)
		}
		return
	}
	c.Servers(id, 0, "broken=unknown far=ready(key) near=ready(word)")
	for tool, want := range map[string]string{"mcp__near__word": "the word is !heron $HOME", "mcp__far__key": "the key is !a$HOME"} {
		w.script(tool, scriptedmodel.Step{scriptedmodel.Call(tool, map[string]any{})}, scriptedmodel.Step{scriptedmodel.SayResult()})
		if _, got := c.Turn(id, tool); bridgetest.Said(got) != want {
			t.Errorf("said %q\n%s", bridgetest.Said(got), c.Quote())
		}
	}
	c.Await("its title", 0, has("near: word"))
	if _, err := os.Stat(filepath.Join(w.Home, ".pi/agent/mcp.json")); err == nil {
		t.Error("the user's mcp.json was made")
	}
}

// farServer is an MCP server over HTTP that tells the key of its header.
func farServer(t *testing.T) schema.MCPServer {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
			Params struct {
				Version string `json:"protocolVersion"`
			} `json:"params"`
		}
		if r.Method != http.MethodPost || json.NewDecoder(r.Body).Decode(&m) != nil || m.ID == nil {
			rw.WriteHeader(http.StatusAccepted)
			return
		}
		result := map[string]any{}
		switch m.Method {
		case "initialize":
			result = map[string]any{"protocolVersion": m.Params.Version, "capabilities": map[string]any{"tools": map[string]any{}}, "serverInfo": map[string]string{"name": "far", "version": "1"}}
		case "tools/list":
			result["tools"] = []any{map[string]any{"name": "key", "description": "the key", "inputSchema": map[string]any{"type": "object", "properties": map[string]any{}}}}
		case "tools/call":
			result["content"] = []any{map[string]string{"type": "text", "text": "the key is " + r.Header.Get("X-Key")}}
		}
		rw.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(rw).Encode(map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": result})
	}))
	t.Cleanup(server.Close)
	return schema.MCPServer{HTTP: &schema.MCPServerHTTP{Name: "far", URL: server.URL, Headers: []schema.HTTPHeader{{Name: "X-Key", Value: "!a$HOME"}}}}
}
