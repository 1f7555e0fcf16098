package opencode

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
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

const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

// last is the newest request of a turn.
func (w *world) last() scriptedmodel.Request {
	w.T.Helper()
	all := w.Turns()
	if len(all) == 0 {
		w.T.Fatal("the model was asked nothing")
	}
	return all[len(all)-1]
}

func (c *client) set(id schema.SessionID, option, value string) {
	c.W.T.Helper()
	c.Must(acp.MethodSessionSetConfigOption, map[string]any{"sessionId": id, "configId": option, "value": value})
}

func restartModesModelsEffort(t *testing.T, w *world, c *client) (after func(again *client)) {
	id := c.New("")
	c.set(id, configEffort, "high")
	c.Turn(id, "say one")
	if r := w.last(); r.Model != "large" || r.Effort != "high" {
		t.Errorf("model %s, effort %s", r.Model, r.Effort)
	}
	c.set(id, configModel, "scripted/small")
	c.set(id, configMode, "plan")
	c.Turn(id, "say two")
	if r := w.last(); r.Model != "small" || r.Effort != "" || !strings.Contains(string(r.Body), "plan") {
		t.Errorf("model %s, effort %s", r.Model, r.Effort)
	}
	for option, value := range map[string]string{configModel: "scripted/nope", configMode: "nope", configEffort: "nope", "nope": "x"} {
		if _, e := c.Call(acp.MethodSessionSetConfigOption, map[string]any{"sessionId": id, "configId": option, "value": value}); e == nil || e.Code != acp.CodeInvalidParams {
			t.Errorf("%s %s: %v", option, value, e)
		}
	}
	return func(again *client) { // the next process is told again
		r := again.Must(acp.MethodSessionResume, &schema.ResumeSessionRequest{SessionID: id, Cwd: w.Cwd})
		if now := rawjson.MemberString(r, "modes", "currentModeId"); now != "plan" {
			t.Errorf("the mode is %s", now)
		}
		again.Turn(id, "say three")
		if r := w.last(); r.Model != "small" {
			t.Errorf("then the model is %s", r.Model)
		}
	}
}

func liveWishes(t *testing.T, w *world) {
	more, skills := t.TempDir(), t.TempDir()
	w.Write(filepath.Join(more, "a.txt"), "MORE\n", 0o600)
	w.Write(filepath.Join(skills, "demo/SKILL.md"), "---\nname: demo\ndescription: does demos\n---\nBODY\n", 0o600)
	w.Write(filepath.Join(w.Cwd, "opencode.json"), `{"permission": {"external_directory": "ask"}, "agent": {"reviewer": {"mode": "primary", "description": "reviews", "prompt": "YOU REVIEW"}}}`, 0o600)
	c := w.open(schema.ClientCapabilities{}, nil)
	own, _ := json.Marshal(map[string]any{
		"instructions": "PROJECT RULES", "appendSystemPrompt": "APPENDED", "additionalDirectories": []string{more},
		"skills": map[string]any{"paths": []string{skills}}, "permissionMode": "nope",
		"agentSpecific": map[string]any{"opencode": map[string]any{"permission": []rule{{"bash", "rm *", "deny"}}, "customAgent": "reviewer", "x": 1}},
	})
	r := c.NewResult(string(own))
	id := schema.SessionID(rawjson.MemberString(r, "sessionId"))
	raw, _ := rawjson.Member(r, "_meta", acp.MetaKey, "unsupported")
	if list := rawjson.Elements(raw); len(list) != 2 {
		t.Errorf("unsupported are %s", raw)
	}
	if mode, _ := rawjson.Member(r, "modes", "currentModeId"); string(mode) != `"reviewer"` {
		t.Errorf("the mode is %s", mode)
	}
	none := c.NewResult(`{"agentSpecific":{"opencode":{"customAgent":"nobody"}}}`)
	if !bytes.Contains(none, []byte(`there is no agent \"nobody\"`)) || !bytes.Contains(none, []byte(`"currentModeId":"build"`)) {
		t.Errorf("of an agent that there is not: %s", none)
	}
	if _, got := c.Turn(id, "read "+filepath.Join(more, "a.txt")); !strings.Contains(bridgetest.Said(got), "MORE") {
		t.Errorf("said %q", bridgetest.Said(got))
	}
	body := string(w.last().Body)
	for _, part := range []string{"YOU REVIEW", "PROJECT RULES", "APPENDED", "does demos", filepath.Join(skills, "demo/SKILL.md")} {
		if !strings.Contains(body, part) {
			t.Errorf("the model is not told %q", part)
		}
	}
	if _, got := c.Turn(id, "run rm x"); len(calls(got)) != 1 || calls(got)[0].Status != schema.ToolCallStatusFailed {
		t.Errorf("what was denied is %+v", calls(got))
	}
}

func restartAttachments(t *testing.T, w *world, c *client) (after func(again *client)) {
	id := c.New("")
	mime := "text/plain"
	c.Must(acp.MethodSessionPrompt, &schema.PromptRequest{SessionID: id, Prompt: []schema.ContentBlock{
		schema.TextBlock("say seen"),
		{Image: &schema.ImageContent{Data: pixel, MimeType: "image/png"}},
		{ResourceLink: &schema.ResourceLink{Name: "elsewhere", URI: "https://example.com/x"}},
		{ResourceLink: &schema.ResourceLink{Name: "notes", URI: "file://" + w.Write("notes.txt", "LINKED\n", 0o600)}},
		{Resource: &schema.EmbeddedResource{Resource: schema.EmbeddedResourceResource{BlobResourceContents: &schema.BlobResourceContents{URI: "file:///w/b.txt", MimeType: &mime, Blob: "QkxPQg=="}}}},
	}})
	body := string(w.last().Body)
	for _, part := range []string{pixel, "https://example.com/x", "LINKED", "BLOB"} {
		if !strings.Contains(body, part) {
			t.Errorf("the model is not given %q", part)
		}
	}
	return func(again *client) {
		from := again.Seen()
		again.Must(acp.MethodSessionLoad, &schema.LoadSessionRequest{SessionID: id, Cwd: w.Cwd, MCPServers: []schema.MCPServer{}})
		images := 0
		for _, u := range again.Updates(from) {
			if u.UserMessageChunk != nil && u.UserMessageChunk.Content.Image != nil {
				images++
			}
		}
		if images != 1 {
			t.Errorf("%d images are replayed", images)
		}
	}
}

// liveNoNetwork has a workspace with plugins to install, no catalogue and no
// ripgrep. Nothing waits for them, and what OpenCode leaves is removed.
func liveNoNetwork(t *testing.T, w *world) {
	w.Write(filepath.Join(w.Cwd, ".opencode/command/x.md"), "say x\n", 0o600)
	begun := time.Now()
	c := w.open(schema.ClientCapabilities{}, nil)
	id := c.New("")
	if _, got := c.Turn(id, "/x"); bridgetest.Said(got) != "x" {
		t.Errorf("said %q", bridgetest.Said(got))
	}
	w.Model.On(scriptedmodel.Exactly("search"), scriptedmodel.Step{scriptedmodel.Call("glob", map[string]any{"pattern": "*.md"})}, scriptedmodel.Step{scriptedmodel.Say("searched")})
	if _, got := c.Turn(id, "search"); bridgetest.Said(got) != "searched" || len(calls(got)) != 1 {
		t.Errorf("said %q", bridgetest.Said(got))
	}
	if took := time.Since(begun); took > 45*time.Second {
		t.Errorf("it took %v", took)
	}
	c.Must(acp.MethodSessionClose, &schema.CloseSessionRequest{SessionID: id})
	if got := names(t, filepath.Join(w.Cwd, ".opencode")); len(got) != 1 || got[0] != "command" {
		t.Errorf("in .opencode there are %q", got)
	}
}

func liveFailures(t *testing.T, w *world) {
	agentcache.Long(t, `the scenarios "bad key ends the prompt at once" and "provider's refusal is quoted" show it through the gateway`)
	c := w.open(schema.ClientCapabilities{}, nil)
	a := w.probe.agent
	id := c.New("")
	for prompt, want := range map[string]int64{"fail 401": acp.CodeAuthRequired, "fail 400": acp.CodeInternal, "fail 403": acp.CodeInternal} {
		_, e := c.Result(c.Prompt(id, prompt))
		if e == nil || e.Code != want || strings.Contains(e.Message, "Unexpected server error") {
			t.Errorf("%s: %v", prompt, e)
		}
	}
	if _, e := c.Call(acp.MethodSessionNew, &schema.NewSessionRequest{Cwd: filepath.Join(w.Cwd, "none"), MCPServers: []schema.MCPServer{}}); e == nil || e.Code != acp.CodeInvalidParams {
		t.Errorf("a directory that does not exist: %v", e)
	}
	// OpenCode itself answers with a bare 500, and goes on with what was wrong.
	for wrong, want := range map[string]string{"mode": "nope", "model": "not-there"} {
		s, err := a.session(id)
		if err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		right := s.set
		other := *s.set.catalog
		other.models = append([]model{{provider: "scripted", id: "not-there"}}, other.models...)
		if s.set.catalog = &other; wrong == "mode" {
			s.set.mode = want
		} else {
			s.set.model = "scripted/" + want
		}
		s.mu.Unlock()
		_, e := c.Result(c.Prompt(id, "say x"))
		if e == nil || !strings.Contains(e.Message, want) || strings.Contains(e.Error(), "    at ") {
			t.Errorf("a wrong %s: %v", wrong, e)
		}
		s.mu.Lock()
		s.set = right
		s.mu.Unlock()
		if _, got := c.Turn(id, "say unstuck"); bridgetest.Said(got) != "unstuck" {
			t.Errorf("after a wrong %s it said %q", wrong, bridgetest.Said(got))
		}
	}
	// A wrong configuration is explained by what OpenCode says of it.
	broken := &schema.NewSessionRequest{Cwd: t.TempDir(), MCPServers: []schema.MCPServer{}}
	w.Write(filepath.Join(broken.Cwd, "opencode.json"), `{"permission": 5}`, 0o600)
	_, e := c.Call(acp.MethodSessionNew, broken)
	if e == nil || !strings.Contains(e.Message, "configuration") || !strings.Contains(e.Message, "close the sessions") {
		t.Errorf("a wrong configuration: %v", e)
	}
	// Credentials that are put right count in the same directory, whether a session
	// is open there or not.
	bare := &schema.NewSessionRequest{Cwd: t.TempDir(), MCPServers: []schema.MCPServer{}}
	file := filepath.Join(bare.Cwd, "opencode.json")
	w.Write(file, `{"enabled_providers": []}`, 0o600)
	if _, e = c.Call(acp.MethodSessionNew, bare); e == nil || e.Code != acp.CodeAuthRequired {
		t.Errorf("no provider: %v", e)
	}
	w.Write(file, `{"provider": {"scripted": {"options": {"apiKey": "a-wrong-key"}}}}`, 0o600)
	keyed := schema.SessionID(rawjson.MemberString(c.Must(acp.MethodSessionNew, bare), "sessionId"))
	if _, e := c.Result(c.Prompt(keyed, "fail 401")); e == nil || e.Code != acp.CodeAuthRequired || w.last().Header.Get("Authorization") != "Bearer a-wrong-key" {
		t.Errorf("a wrong key: %v, sent as %q", e, w.last().Header.Get("Authorization"))
	}
	w.Write(file, `{"provider": {"scripted": {"options": {"apiKey": "the-right-key"}}}}`, 0o600)
	if _, got := c.Turn(keyed, "say right"); bridgetest.Said(got) != "right" || w.last().Header.Get("Authorization") != "Bearer the-right-key" {
		t.Errorf("then it said %q with %q", bridgetest.Said(got), w.last().Header.Get("Authorization"))
	}
	if _, got := c.Turn(id, "say alive"); bridgetest.Said(got) != "alive" {
		t.Errorf("then it said %q", bridgetest.Said(got))
	}
}

// livePassword shows that nobody can use the server without its password.
func livePassword(t *testing.T, w *world) {
	c := w.open(schema.ClientCapabilities{}, nil)
	a := w.probe.agent
	c.New("")
	srv, _ := a.servers.Open(asConfigured)
	for _, path := range []string{"/session", "/global/health", "/config/providers", "/doc"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.base+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s answers %d", path, resp.StatusCode)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	cmdline, err := os.ReadFile(filepath.Join("/proc", itoa(srv.child.PID()), "cmdline"))
	if err != nil || strings.Contains(string(cmdline), srv.pass) {
		t.Errorf("the command line is %q, %v", cmdline, err)
	}
}

// liveSecrets has a command look for what would let it answer permissions, and for
// providers' keys: in its environment, and in that of the processes above it.
func liveSecrets(t *testing.T, w *world) {
	c := w.open(schema.ClientCapabilities{}, nil)
	id := c.New("")
	look := w.Write("look.sh", "env\necho above:\np=$PPID\nwhile [ $p -gt 1 ]; do tr '\\0' '\\n' < /proc/$p/environ; p=$(awk '{print $4}' /proc/$p/stat); done\necho looked\n", 0o700)
	_, got := c.Turn(id, "run sh "+look)
	srv, _ := w.probe.agent.servers.Open(asConfigured)
	said := bridgetest.Said(got)
	if !strings.Contains(said, "looked") || !strings.Contains(said, "OPENCODE_PID=") {
		t.Fatalf("said %q", said)
	}
	for name, secret := range map[string]string{"the password": srv.pass, "the gateway's key": gatewayKey} {
		if strings.Contains(said, secret) {
			t.Errorf("a command sees %s", name)
		}
	}
	own, _, _ := strings.Cut(said, "above:")
	if strings.Contains(own, scratchVar) {
		t.Errorf("a command unpacks into the server's folder: %s", own)
	}
	for name, kept := range map[string]string{"the session's own key": "XAI_API_KEY=" + sessionKey, "the shell": "SHELL=/"} {
		if !strings.Contains(own, kept) {
			t.Errorf("a command does not see %s", name)
		}
	}
	if strings.Contains(own, "SHELL="+w.State) || strings.Contains(own, shellVar) {
		t.Error("a command sees the gateway's shell")
	}
}

// liveMemoryIsGivenBack shows that a directory is forgotten with its last
// session.
func liveMemoryIsGivenBack(t *testing.T, w *world) {
	c := w.open(schema.ClientCapabilities{}, nil)
	a := w.probe.agent
	id := c.New("")
	other := c.New("")
	srv, _ := a.servers.Open(asConfigured)
	disposed := make(chan struct{}, 8)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	events := watchEvents(ctx, t, srv, disposed)
	c.Must(acp.MethodSessionClose, &schema.CloseSessionRequest{SessionID: id})
	if _, got := c.Turn(other, "say alive"); bridgetest.Said(got) != "alive" {
		t.Errorf("said %q", bridgetest.Said(got))
	}
	select {
	case <-disposed:
		t.Error("a directory was forgotten that is in use")
	default:
	}
	c.Must(acp.MethodSessionClose, &schema.CloseSessionRequest{SessionID: other})
	select {
	case <-disposed:
	case <-time.After(bridgetest.Patience):
		t.Error("the directory is not forgotten")
	}
	again := c.New("")
	if _, got := c.Turn(again, "say again"); bridgetest.Said(got) != "again" {
		t.Errorf("then it said %q", bridgetest.Said(got))
	}
	cancel()
	<-events
}
