package acptest_test

import (
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/acptest"
)

func update(body string) string {
	return `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s","update":` + body + `}}`
}

func TestValidateFrame(t *testing.T) {
	v := acptest.New(t)
	methodOf := func(id string) string {
		return map[string]string{"1": "session/prompt", `"n"`: "session/new", "-5": "_x", "0": "session/set_model"}[id]
	}
	for _, c := range []struct{ name, frame, want string }{
		{"chunk", update(`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"x"}}`), ""},
		{"chunk with a bad text", update(`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":5}}`), "session/update params: /update/content/text: got number, want string"},
		{"chunk with an unknown block", update(`{"sessionUpdate":"agent_message_chunk","content":{"type":"video"}}`), "/update/content/type: value must be"},
		{"unknown update", update(`{"sessionUpdate":"brand_new"}`), "/update/sessionUpdate: value must be"},
		{"tool call without title", update(`{"sessionUpdate":"tool_call","toolCallId":"t"}`), "/update: missing property 'title'"},
		{"bad plan entry", update(`{"sessionUpdate":"plan","entries":[{"content":"c","priority":"high","status":"x"}]}`), "/update/entries/0/status"},
		{"null list", update(`{"sessionUpdate":"plan","entries":null}`), "/update/entries: got null, want array"},
		{"no session", `{"jsonrpc":"2.0","method":"session/update","params":{"update":{"sessionUpdate":"plan","entries":[]}}}`, "missing property 'sessionId'"},
		{"update as a request", `{"jsonrpc":"2.0","id":4,"method":"session/update","params":{}}`, "session/update: this side has no such request"},
		{"agent method", `{"jsonrpc":"2.0","id":4,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`, "session/prompt: this side has no such request"},
		{"unknown method", `{"jsonrpc":"2.0","method":"session/other"}`, "session/other: this side has no such notification"},
		{"extension", `{"jsonrpc":"2.0","method":"_x/y","params":[1]}`, ""},
		{"permission", `{"jsonrpc":"2.0","id":4,"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"t"},"options":[{"optionId":"o","name":"n","kind":"allow_once"}]}}`, ""},
		{"permission of an unknown kind", `{"jsonrpc":"2.0","id":4,"method":"session/request_permission","params":{"sessionId":"s","toolCall":{"toolCallId":"t"},"options":[{"optionId":"o","name":"n","kind":"maybe"}]}}`, "/options/0/kind"},
		{"elicitation", `{"jsonrpc":"2.0","id":4,"method":"elicitation/create","params":{"message":"m","mode":"form","sessionId":"s","requestedSchema":{"type":"object","properties":{}}}}`, ""},
		{"elicitation without a schema", `{"jsonrpc":"2.0","id":4,"method":"elicitation/create","params":{"message":"m","mode":"form","sessionId":"s"}}`, "missing property 'requestedSchema'"},
		{"cancel request", `{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"a"}}`, ""},
		{"cancel of nothing", `{"jsonrpc":"2.0","method":"$/cancel_request","params":{}}`, "missing property 'requestId'"},
		{"prompt result", `{"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}`, ""},
		{"prompt result without reason", `{"jsonrpc":"2.0","id":1,"result":{}}`, "session/prompt result: /: missing property 'stopReason'"},
		{"result of the other request", `{"jsonrpc":"2.0","id":"n","result":{"stopReason":"end_turn"}}`, "session/new result: /: missing property 'sessionId'"},
		{"result of an extension", `{"jsonrpc":"2.0","id":-5,"result":[]}`, ""},
		{"result of an unknown method", `{"jsonrpc":"2.0","id":0,"result":{}}`, "the schema knows no result of session/set_model"},
		{"result of nothing", `{"jsonrpc":"2.0","id":9,"result":{}}`, "no request 9 is open"},
		{"error", `{"jsonrpc":"2.0","id":1,"error":{"code":-32002,"message":"m","data":{}}}`, ""},
		{"error without message", `{"jsonrpc":"2.0","id":1,"error":{"code":1}}`, "error: /: missing property 'message'"},
		{"error of nothing", `{"jsonrpc":"2.0","id":9,"error":{"code":1,"message":"m"}}`, "no request 9 is open"},
		{"error without id", `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m"}}`, ""},
		{"no version", `{"id":1,"result":{"stopReason":"end_turn"}}`, "envelope: "},
		{"batch", `[]`, "envelope: "},
		{"float id", `{"jsonrpc":"2.0","id":1.5,"method":"_x"}`, "the id 1.5 is not an integer"},
		{"extra member", `{"jsonrpc":"2.0","method":"_x","meta":{}}`, "unexpected member meta"},
		{"two lines", "{\"jsonrpc\":\"2.0\",\n\"method\":\"_x\"}", "not one line"},
	} {
		t.Run(c.name, func(t *testing.T) { expect(t, v.ValidateFrame([]byte(c.frame), methodOf), c.want) })
	}
}

func TestValidateClientFrame(t *testing.T) {
	v := acptest.New(t)
	methodOf := func(id string) string { return map[string]string{"1": "session/request_permission"}[id] }
	for _, c := range []struct{ name, frame, want string }{
		{"initialize", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}`, ""},
		{"prompt", `{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"image","data":"","mimeType":"image/png"}]}}`, ""},
		{"prompt without mime type", `{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[{"type":"image","data":""}]}}`, "/prompt/0: missing property 'mimeType'"},
		{"cancel", `{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}`, ""},
		{"agent side", `{"jsonrpc":"2.0","method":"session/update","params":{}}`, "session/update: this side has no such notification"},
		{"outcome", `{"jsonrpc":"2.0","id":1,"result":{"outcome":{"outcome":"selected","optionId":"o"}}}`, ""},
		{"outcome without option", `{"jsonrpc":"2.0","id":1,"result":{"outcome":{"outcome":"selected"}}}`, "/outcome: missing property 'optionId'"},
	} {
		t.Run(c.name, func(t *testing.T) { expect(t, v.ValidateClientFrame([]byte(c.frame), methodOf), c.want) })
	}
}

func TestRecorder_PairsBothDirections(t *testing.T) {
	r := acptest.NewRecorder(t)
	r.Client([]byte(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{}}`))
	ask := `{"jsonrpc":"2.0","id":1,"method":"fs/read_text_file","params":{"sessionId":"s","path":"/a"}}`
	expect(t, r.Gateway([]byte(ask)), "")
	expect(t, r.Gateway([]byte(ask)), "the id 1 is used for fs/read_text_file")
	expect(t, r.CheckClient([]byte(`{"jsonrpc":"2.0","id":1,"result":{}}`)), "missing property 'content'")
	expect(t, r.CheckClient([]byte(`{"jsonrpc":"2.0","id":1,"result":{"content":"x"}}`)), "")
	if c, g := r.Open(); c != 1 || g != 0 {
		t.Errorf("%d and %d requests are open, want 1 and 0", c, g)
	}
	done := `{"jsonrpc":"2.0","id":1,"result":{"stopReason":"end_turn"}}`
	expect(t, r.Gateway([]byte(done)), "")
	expect(t, r.Gateway([]byte(done)), "no request 1 is open")
}

func expect(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("error %v, want none", err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("error %v, want %s", err, want)
	}
}
