package schema_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp/schema"
)

func TestTypes_RoundTrip(t *testing.T) {
	for _, c := range []struct {
		name string
		into any
		json string
	}{
		{"text", new(schema.ContentBlock), `{"type":"text","text":"a<b>&c","_meta":{"k":1.0}}`},
		{"unknown field", new(schema.ContentBlock), `{"type":"text","text":"a","x":{"z":1,"a":[1.50]}}`},
		{"unknown variant", new(schema.ContentBlock), `{"z":1.0, "type":"video","a":"\u003c<"}`},
		{"image", new(schema.ContentBlock), `{"type":"image","data":"AA==","mimeType":"image/png"}`},
		{"resource text", new(schema.ContentBlock), `{"type":"resource","resource":{"text":"t","uri":"file:///a"}}`},
		{"resource blob", new(schema.ContentBlock), `{"type":"resource","resource":{"blob":"AA==","uri":"file:///a"}}`},
		{"resource unknown", new(schema.ContentBlock), `{"type":"resource","resource":{"uri":"file:///a","handle":7}}`},
		{"update", new(schema.SessionUpdate), `{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"a"},"messageId":"m"}`},
		{"unknown update", new(schema.SessionUpdate), `{"sessionUpdate":"brand_new","content":[]}`},
		{"cleared title", new(schema.SessionUpdate), `{"sessionUpdate":"session_info_update","title":null}`},
		{"empty lists", new(schema.SessionUpdate), `{"sessionUpdate":"tool_call_update","toolCallId":"t","content":[],"locations":[],"rawInput":null,"_meta":{}}`},
		{"diff", new(schema.ToolCallContent), `{"type":"diff","path":"/a","oldText":"x","newText":"y"}`},
		{"unknown enum value", new(schema.ToolCallUpdate), `{"toolCallId":"t","kind":"dance","status":"paused"}`},
		{"stdio server", new(schema.MCPServer), `{"name":"n","command":"c","args":["-x"],"env":[{"name":"A","value":"b"}]}`},
		{"stdio server with type", new(schema.MCPServer), `{"name":"n","command":"c","args":[],"env":[],"type":"stdio"}`},
		{"http server", new(schema.MCPServer), `{"type":"http","name":"n","url":"http://h","headers":[]}`},
		{"unknown server", new(schema.MCPServer), `{"type":"ws","name":"n"}`},
		{"cancelled outcome", new(schema.RequestPermissionResponse), `{"outcome":{"outcome":"cancelled","why":"x"}}`},
		{"selected outcome", new(schema.RequestPermissionResponse), `{"outcome":{"outcome":"selected","optionId":"o"}}`},
		{"select option", new(schema.SessionConfigOption), `{"id":"i","name":"n","category":"model","type":"select","currentValue":"a","options":[{"value":"a","name":"A"}],"x":1}`},
		{"grouped option", new(schema.SessionConfigOption), `{"id":"i","name":"n","type":"select","currentValue":"a","options":[{"group":"g","name":"G","options":[]}]}`},
		{"boolean option", new(schema.SessionConfigOption), `{"id":"i","name":"n","type":"boolean","currentValue":false}`},
		{"unknown option", new(schema.SessionConfigOption), `{"id":"i","name":"n","currentValue":3,"max":9,"type":"slider"}`},
		{"agent login", new(schema.AuthMethod), `{"id":"i","name":"n"}`},
		{"terminal login", new(schema.AuthMethod), `{"type":"terminal","id":"i","name":"n"}`},
		{"unknown login", new(schema.AuthMethod), `{"type":"oauth","id":"i","name":"n"}`},
		{"set boolean", new(schema.SetSessionConfigOptionRequest), `{"sessionId":"s","configId":"c","type":"boolean","value":true}`},
		{"set value", new(schema.SetSessionConfigOptionRequest), `{"sessionId":"s","configId":"c","value":"v"}`},
		{"elicitation", new(schema.CreateElicitationRequest), `{"message":"m","mode":"form","requestedSchema":{"type":"object","properties":{"a":{"type":"array","items":{"type":"string","enum":["x"]}}}},"sessionId":"s","toolCallId":"t"}`},
		{"accept", new(schema.CreateElicitationResponse), `{"action":"accept","content":{"a":["x"],"b":1.0}}`},
		{"cancel request", new(schema.CancelRequestNotification), `{"requestId":-1}`},
		{"plan", new(schema.SessionUpdate), `{"sessionUpdate":"plan","entries":[{"content":"c","priority":"high","status":"pending","x":null}]}`},
		{"usage", new(schema.SessionUpdate), `{"sessionUpdate":"usage_update","used":53000,"size":200000,"cost":{"amount":0.5,"currency":"USD"}}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			if err := json.Unmarshal([]byte(c.json), c.into); err != nil {
				t.Fatal(err)
			}
			got, err := schema.Encode(c.into)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.json, string(got)); diff != "" {
				t.Errorf("encoded (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTypes_DecodeErrors(t *testing.T) {
	for _, c := range []struct {
		name string
		into any
		json string
		want string
	}{
		{"missing", new(schema.Plan), `{}`, "entries: missing"},
		{"nested", new(schema.Plan), `{"entries":[{"content":"c","priority":1,"status":"pending"}]}`, "entries: 0: priority: number where a string is expected"},
		{"not an object", new(schema.PromptRequest), `{"sessionId":"s","prompt":["x"]}`, "prompt: 0: string where an object is expected"},
		{"not a list", new(schema.PromptRequest), `{"sessionId":"s","prompt":{}}`, "prompt: object where a list is expected"},
		{"no tag", new(schema.ContentBlock), `{"text":"x"}`, "type: missing"},
		{"tag of a wrong kind", new(schema.ContentBlock), `{"type":1}`, "type: number where a string is expected"},
		{"number", new(schema.InitializeRequest), `{"protocolVersion":"1"}`, "protocolVersion: string where a number of type uint16 is expected"},
		{"number too large", new(schema.InitializeRequest), `{"protocolVersion":70000}`, "protocolVersion: number 70000 where a number of type uint16 is expected"},
		{"names are exact", new(schema.CancelNotification), `{"sessionID":"s"}`, "sessionId: missing"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := json.Unmarshal([]byte(c.json), c.into)
			if err == nil || err.Error() != c.want {
				t.Errorf("error %v, want %s", err, c.want)
			}
		})
	}
}

func TestEncode(t *testing.T) {
	for _, c := range []struct {
		name string
		v    any
		want string
	}{
		{"required lists are never null", schema.NewSessionRequest{Cwd: "/"}, `{"cwd":"/","mcpServers":[]}`},
		{"empty option list", schema.SessionConfigSelect{}, `{"currentValue":"","options":[]}`},
		{"set member wins over null in extra", schema.SessionInfoUpdate{Title: new("t"), Extra: map[string]json.RawMessage{"title": json.RawMessage("null")}}, `{"title":"t"}`},
		{"line breaks in raw JSON", schema.ToolCallUpdate{ToolCallID: "t", RawInput: json.RawMessage("{\n\"a\": 1}")}, `{"toolCallId":"t","rawInput":{ "a": 1}}`},
		{"nil pointer", (*schema.Plan)(nil), `null`},
		{"plain value", map[string]any{"a": "<&>"}, `{"a":"<&>"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := schema.Encode(c.v)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, string(got)); diff != "" {
				t.Errorf("encoded (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEncode_Errors(t *testing.T) {
	for _, c := range []struct {
		v    any
		want string
	}{
		{schema.ContentChunk{}, "content: ContentBlock has no variant set"},
		{schema.ToolCallUpdate{RawInput: json.RawMessage(`{`)}, "rawInput: raw JSON: invalid JSON"},
		{schema.Plan{Extra: map[string]json.RawMessage{"x": json.RawMessage("1 2")}}, "x: raw JSON: invalid JSON"},
	} {
		if _, err := schema.Encode(c.v); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("error %v, want %s", err, c.want)
		}
	}
}

func FuzzContentBlock(f *testing.F) {
	f.Add([]byte(`{"type":"text","text":"a","_meta":null}`))
	f.Add([]byte(`{"type":"resource","resource":{"text":"t","uri":"u"}}`))
	f.Add([]byte("{\"type\":\"x\",\n\"a\":[1]}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var v schema.ContentBlock
		if json.Unmarshal(b, &v) != nil {
			return
		}
		first, err := schema.Encode(v)
		if err != nil {
			t.Fatalf("encode what was decoded: %v", err)
		}
		var again schema.ContentBlock
		if err := json.Unmarshal(first, &again); err != nil {
			t.Fatalf("decode what was encoded: %v", err)
		}
		second, err := schema.Encode(again)
		if err != nil || string(first) != string(second) {
			t.Fatalf("second encoding differs: %v\n%s\n%s", err, first, second)
		}
	})
}

func BenchmarkEncodeUpdate(b *testing.B) {
	u := schema.AgentMessage(schema.TextBlock(strings.Repeat("word ", 10)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := schema.Encode(u); err != nil {
			b.Fatal(err)
		}
	}
}
