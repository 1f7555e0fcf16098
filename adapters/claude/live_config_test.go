package claude

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/internal/scriptedmodel"
)

const dot = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

func liveAttachments(t *testing.T, w *world) {
	w.Model.On(scriptedmodel.Contains("look at"), scriptedmodel.Step{scriptedmodel.Say("seen")})
	c := w.open(noticing, nil)
	id := c.New("")
	prompt := func(blocks ...schema.ContentBlock) *acp.Error {
		_, e := c.Call(acp.MethodSessionPrompt, &schema.PromptRequest{SessionID: id, Prompt: blocks})
		return e
	}
	text := schema.TextResourceContents{Text: "EMBEDDED TEXT", URI: "file:///w/notes.md"}
	pdf, plainText := "application/pdf", "text/plain"
	e := prompt(schema.TextBlock("look at this"),
		schema.ContentBlock{Image: &schema.ImageContent{Data: dot, MimeType: "image/png"}},
		schema.ContentBlock{ResourceLink: &schema.ResourceLink{Name: "linked.go", URI: "file:///w/linked.go"}},
		schema.ContentBlock{Resource: &schema.EmbeddedResource{Resource: schema.EmbeddedResourceResource{TextResourceContents: &text}}},
		schema.ContentBlock{Resource: &schema.EmbeddedResource{Resource: schema.EmbeddedResourceResource{BlobResourceContents: &schema.BlobResourceContents{
			Blob: base64.StdEncoding.EncodeToString([]byte("BLOB TEXT")), URI: "file:///w/blob.txt", MimeType: &plainText,
		}}}},
		schema.ContentBlock{Resource: &schema.EmbeddedResource{Resource: schema.EmbeddedResourceResource{BlobResourceContents: &schema.BlobResourceContents{
			Blob: base64.StdEncoding.EncodeToString([]byte("%PDF-1.4 tiny")), URI: "file:///w/paper.pdf", MimeType: &pdf,
		}}}})
	if e != nil {
		t.Fatal(e)
	}
	body := string(w.Turns()[0].Body)
	for _, want := range []string{dot, "linked.go", "EMBEDDED TEXT", "BLOB TEXT", "application/pdf"} {
		if !strings.Contains(body, want) {
			t.Errorf("the model did not get %.30s", want)
		}
	}
	if e := prompt(schema.ContentBlock{Audio: &schema.AudioContent{Data: "AAAA", MimeType: "audio/wav"}}); e == nil || e.Code != acp.CodeInvalidParams {
		t.Errorf("audio: %v", e)
	}
	zip := "application/zip"
	if e := prompt(schema.ContentBlock{Resource: &schema.EmbeddedResource{Resource: schema.EmbeddedResourceResource{BlobResourceContents: &schema.BlobResourceContents{
		Blob: "AAAA", URI: "file:///w/a.zip", MimeType: &zip,
	}}}}); e == nil || !strings.Contains(e.Message, "a.zip") {
		t.Errorf("an archive: %v", e)
	}

	// And a tool's image comes back as one.
	png, _ := base64.StdEncoding.DecodeString(dot)
	file := filepath.Join(w.Cwd, "dot.png")
	if err := os.WriteFile(file, png, 0o600); err != nil {
		t.Fatal(err)
	}
	_, got := c.Turn(id, "read "+file)
	for _, u := range got {
		if u.ToolCallUpdate != nil {
			for _, one := range u.ToolCallUpdate.Content {
				if one.Content != nil && one.Content.Content.Image != nil {
					return
				}
			}
		}
	}
	t.Errorf("no image was shown\n%s", c.Quote())
}

func liveModesModelsEffort(t *testing.T, w *world) {
	c := w.open(noticing, nil)
	r := c.NewResult("")
	id := schema.SessionID(rawjson.MemberString(r, "sessionId"))
	value := func(options json.RawMessage, name string) string {
		for _, o := range rawjson.Elements(options) {
			if rawjson.MemberString(o, "id") == name {
				return rawjson.MemberString(o, "currentValue")
			}
		}
		return ""
	}
	set := func(option, v string) (json.RawMessage, *acp.Error) {
		quoted, _ := schema.Encode(v)
		r, e := c.Call(acp.MethodSessionSetConfigOption, &schema.SetSessionConfigOptionRequest{
			SessionID: id, ConfigID: schema.SessionConfigID(option), Value: quoted,
		})
		options, _ := rawjson.Member(r, "configOptions")
		return options, e
	}
	options, _ := rawjson.Member(r, "configOptions")
	defer func(model, effort string) {
		for option, was := range map[string]string{configModel: model, configEffort: effort} {
			if _, e := set(option, was); e != nil {
				t.Errorf("%s %s again: %v", option, was, e)
			}
		}
	}(value(options, configModel), value(options, configEffort))
	if value(options, configMode) != modeDefault || value(options, configModel) == "" || value(options, configEffort) == "" {
		t.Fatalf("the options are %s", options)
	}
	for _, mode := range []string{modeAcceptEdits, modePlan, modeAuto, modeDontAsk, modeDefault} {
		if options, e := set(configMode, mode); e != nil || value(options, configMode) != mode {
			t.Errorf("mode %s: %v, %s", mode, e, value(options, configMode))
		}
	}
	if _, e := set(configMode, "nonsense"); e == nil || e.Code != acp.CodeInvalidParams {
		t.Errorf("mode nonsense: %v", e)
	}
	_, e := set(configMode, modeBypass)
	if os.Geteuid() == 0 && (e == nil || !strings.Contains(e.Message, "IS_SANDBOX")) {
		t.Errorf("bypass as root: %v", e)
	}
	c.Must(acp.MethodSessionSetMode, &schema.SetSessionModeRequest{SessionID: id, ModeID: modePlan})
	c.Must(acp.MethodSessionSetMode, &schema.SetSessionModeRequest{SessionID: id, ModeID: modeDefault})

	if options, e := set(configModel, "sonnet"); e != nil || value(options, configModel) != "sonnet" {
		t.Fatalf("model sonnet: %v, %s", e, options)
	}
	if _, e := set(configModel, "no-such-model"); e == nil || !strings.Contains(e.Message, "sonnet") {
		t.Errorf("no such model: %v", e)
	}
	if options, e := set(configEffort, "low"); e != nil || value(options, configEffort) != "low" {
		t.Fatalf("effort low: %v, %s", e, options)
	}
	if _, e := set(configEffort, "enormous"); e == nil {
		t.Error("effort enormous was taken")
	}
	c.Turn(id, "say hi")
	if m := w.Turns()[0]; !strings.Contains(m.Model, "sonnet") || m.Effort != "low" {
		t.Errorf("the model call has model %q and effort %q", m.Model, m.Effort)
	}
}

// TestMCPServer is the MCP server of the tests, when it is started as one.
func TestMCPServer(t *testing.T) {
	if os.Getenv("TEST_MCP_SERVER") != "1" {
		t.Skip("it is run as a child only")
	}
	in := bufio.NewReader(os.Stdin)
	var call json.RawMessage // id of the call that waits for an elicitation
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			os.Exit(0)
		}
		if out := mcpAnswer(line, &call); out != "" {
			fmt.Println(out)
		}
	}
}

// mcpAnswer is what a server with one tool answers; the tool asks the user.
func mcpAnswer(line []byte, call *json.RawMessage) string {
	id, _ := rawjson.Member(line, "id")
	switch rawjson.MemberString(line, "method") {
	case "initialize":
		version := rawjson.MemberString(line, "params", "protocolVersion")
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":%q,"capabilities":{"tools":{}},"serverInfo":{"name":"demo","version":"1"}}}`, id, version)
	case "tools/list":
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[{"name":"ask","description":"asks","inputSchema":{"type":"object","properties":{}}}]}}`, id)
	case "tools/call":
		if call == nil {
			return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"called over http"}]}}`, id)
		}
		*call = id
		return `{"jsonrpc":"2.0","id":"e1","method":"elicitation/create","params":{"message":"Your name?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}},"required":["name"]}}}`
	case "":
		if call != nil && *call != nil {
			result, _ := rawjson.Member(line, "result")
			text, _ := schema.Encode(string(result) + " env " + os.Getenv("TEST_MCP_SECRET"))
			out := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%s}]}}`, *call, text)
			*call = nil
			return out
		}
	}
	if len(id) > 0 {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{}}`, id)
	}
	return ""
}
