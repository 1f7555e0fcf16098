package version_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/acptest"
	"sandboxagent.dev/sandbox-agent/acp/version"
)

func TestChoose(t *testing.T) {
	const info = `"info":{"name":"c","version":"1"}`
	const lowered = `{"protocolVersion":1,"clientCapabilities":{"fs":{"readTextFile":false,"writeTextFile":false},"terminal":false,` +
		`"session":{"configOptions":{"boolean":{}},"notices":{},"compaction":{}},"plan":{},"auth":{"terminal":false}}`
	for _, c := range []struct {
		name, id, params string
		offered          []int
		want             int
		lowered, refused string
	}{
		{"one", "1", `{"protocolVersion":1,"clientInfo":{}}`, version.All(), 1, `{"protocolVersion":1,"clientInfo":{}}`, ""},
		{"two", "1", `{"protocolVersion":2,` + info + `}`, version.All(), 2, lowered + `,"clientInfo":{"name":"c","version":"1"}}`, ""},
		{
			"two with an elicitation and more", `"a"`, `{"protocolVersion":2,` + info + `,"capabilities":{"elicitation":{"form":{}},"auth":{"terminal":{}},"_meta":{"a":1}},"_meta":{"b":2}}`, version.All(), 2,
			strings.Replace(lowered[:len(lowered)-1], `"auth":{"terminal":false}`, `"auth":{"terminal":true}`, 1) + `,"elicitation":{"form":{}},"_meta":{"a":1}},"clientInfo":{"name":"c","version":"1"},"_meta":{"b":2}}`, "",
		},
		{"a later one", "1", `{"protocolVersion":7,"info":5}`, version.All(), 2, lowered + "}", ""},
		{"a later one of a client of the first", "1", `{"protocolVersion":7,"clientCapabilities":{"terminal":true}}`, version.All(), 2, `{"protocolVersion":1,"clientCapabilities":{"terminal":true}}`, ""},
		{"two where there is one", "1", `{"protocolVersion":2,` + info + `}`, []int{1}, 1, lowered + `,"clientInfo":{"name":"c","version":"1"}}`, ""},
		{"two in the first form where there is one", "1", `{"protocolVersion":2,"clientCapabilities":{"terminal":true},"clientInfo":{"name":"x"}}`, []int{1}, 1, `{"protocolVersion":1,"clientCapabilities":{"terminal":true},"clientInfo":{"name":"x"}}`, ""},
		{"zero where there is one", "1", `{"protocolVersion":0}`, []int{1}, 1, `{"protocolVersion":0}`, ""},
		{"one where there is two", "1", `{"protocolVersion":1}`, []int{2}, 0, "", `-32022 protocol version 1 is not supported: ask for 2 {"requested":1,"supported":[2]}`},
		{"zero", "1", `{"protocolVersion":0}`, version.All(), 0, "", `-32022 protocol version 0 is not supported: ask for 1 or 2 {"requested":0,"supported":[1,2]}`},
		{"none", "1", `{}`, version.All(), 0, "", "-32602 initialize needs params.protocolVersion, a number from 0 to 65535: send 2 "},
		{"a string", "1", `{"protocolVersion":"2"}`, version.All(), 0, "", "-32602 initialize needs params.protocolVersion, a number from 0 to 65535: send 2 "},
		{"too large", "1", `{"protocolVersion":65536}`, version.All(), 0, "", "-32602 initialize needs params.protocolVersion, a number from 0 to 65535: send 2 "},
		{"two without info", "1", `{"protocolVersion":2}`, version.All(), 0, "", "-32602 initialize of version 2 needs params.info with name and version "},
		{"two with half an info", "1", `{"protocolVersion":2,"info":{"name":"c"}}`, version.All(), 0, "", "-32602 initialize of version 2 needs params.info with name and version "},
		{"two with a fraction for an id", "1.5", `{"protocolVersion":2,` + info + `}`, version.All(), 0, "", "-32600 the id of a request must be a string or an integer "},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := acp.NewRequest(acp.ID(c.id), "initialize", []byte(c.params))
			got, err := version.Choose(&m, c.offered)
			if c.refused != "" {
				if err == nil || string(acp.IntID(err.Code))+" "+err.Message+" "+string(err.Data) != c.refused {
					t.Errorf("it is refused with %v, want %s", err, c.refused)
				}
				return
			}
			if err != nil || got.Version != c.want || string(got.Params) != c.lowered {
				t.Errorf("version %d, %v, params\n%s\nwant version %d\n%s", got.Version, err, got.Params, c.want, c.lowered)
			}
		})
	}
}

func TestParse(t *testing.T) {
	for list, want := range map[string][]int{"1,2": {1, 2}, "2": {2}, " 2, 1,2 ": {1, 2}, "": nil, "3": nil, "1;2": nil, "1,": nil} {
		got, err := version.Parse(list)
		if !slices.Equal(got, want) || (err == nil) != (want != nil) {
			t.Errorf("%q is %v, %v", list, got, err)
		}
	}
}

func TestAgain(t *testing.T) {
	for _, c := range []struct {
		params string
		begun  bool
		want   int64
	}{
		{`{"protocolVersion":2,"info":{"name":"c","version":"1"}}`, false, 0},
		{`{"protocolVersion":2,"info":{"name":"c","version":"1"}}`, true, acp.CodeInvalidRequest},
		{`{"protocolVersion":1}`, false, acp.CodeInvalidRequest},
		{`{"protocolVersion":2}`, false, acp.CodeInvalidParams},
	} {
		m := acp.NewRequest("1", "initialize", []byte(c.params))
		err := version.Again(&m, c.begun)
		if c.want == 0 && err != nil || c.want != 0 && (err == nil || err.Code != c.want) {
			t.Errorf("%s again, begun %v: %v, want code %d", c.params, c.begun, err, c.want)
		}
	}
}

func TestInitialized(t *testing.T) {
	got := version.Initialized([]byte(`{"protocolVersion":1,"agentCapabilities":{"loadSession":true,"promptCapabilities":{"image":true,"audio":false},"mcpCapabilities":{"http":true,"sse":true},` +
		`"sessionCapabilities":{"list":{},"resume":{},"close":{},"delete":{},"fork":{}},"_meta":{"k":1}},"agentInfo":{"name":"a","version":"2"},` +
		`"authMethods":[{"id":"key","name":"Key"},{"type":"terminal","id":"t","name":"T","env":{"A":"1"}}]}`))
	want := `{"protocolVersion":2,"info":{"name":"a","version":"2"},"capabilities":{"session":{"prompt":{"image":{}},"mcp":{"stdio":{},"http":{}},"delete":{},"fork":{}},"_meta":{"k":1}},` +
		`"authMethods":[{"name":"Key","methodId":"key","type":"agent"},{"type":"terminal","name":"T","env":[{"name":"A","value":"1"}],"methodId":"t"}]}`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	check(t, "initialize", string(got))
}

// check finds the result a legal one of version 2.
func check(t *testing.T, method, result string) {
	t.Helper()
	frame := acp.NewResult("1", []byte(result))
	if err := acptest.NewFor(t, 2).ValidateFrame(frame.Frame(), func(string) string { return method }); err != nil {
		t.Error(err)
	}
}

func TestRequest(t *testing.T) {
	for _, c := range []struct{ name, method, params, want, refused string }{
		{"new", "session/new", `{"cwd":"/w"}`, `session/new {"cwd":"/w","mcpServers":[]}`, ""},
		{
			"new with servers", "session/new", `{"cwd":"/w","mcpServers":[{"type":"stdio","name":"a","command":"/a"},{"type":"http","name":"b","url":"u","headers":null}]}`,
			`session/new {"cwd":"/w","mcpServers":[{"name":"a","command":"/a","args":[],"env":[]},{"type":"http","name":"b","url":"u","headers":[]}]}`, "",
		},
		{"new with a server of the first version", "session/new", `{"cwd":"/w","mcpServers":[{"type":"sse","name":"b","url":"u"}]}`, "", `-32602 params.mcpServers has the transport "sse", which is not supported: use stdio or http`},
		{"resume", "session/resume", `{"sessionId":"s","cwd":"/w","replayFrom":null}`, `session/resume {"sessionId":"s","cwd":"/w","mcpServers":[]}`, ""},
		{"resume from the start", "session/resume", `{"sessionId":"s","cwd":"/w","replayFrom":{"type":"start"}}`, `session/load {"sessionId":"s","cwd":"/w","mcpServers":[]}`, ""},
		{"resume from somewhere", "session/resume", `{"sessionId":"s","replayFrom":{"type":"message"}}`, "", `-32602 params.replayFrom has a type that is unknown: "message"; send start, or leave it out`},
		{"an option", "session/set_config_option", `{"sessionId":"s","configId":"model","type":"id","value":"x"}`, `session/set_config_option {"sessionId":"s","configId":"model","value":"x"}`, ""},
		{"an option that is on", "session/set_config_option", `{"sessionId":"s","configId":"fast","type":"boolean","value":true}`, `session/set_config_option {"sessionId":"s","configId":"fast","type":"boolean","value":true}`, ""},
		{"an option without a type", "session/set_config_option", `{"sessionId":"s","configId":"model","value":"x"}`, "", "-32602 params.type must be id or boolean"},
		{"an option of the wrong type", "session/set_config_option", `{"type":"boolean","value":"x"}`, "", "-32602 params.value must be true or false, as params.type is boolean"},
		{"login", "auth/login", `{"methodId":"m"}`, `authenticate {"methodId":"m"}`, ""},
		{"logout", "auth/logout", `{}`, `logout {}`, ""},
		{"a prompt", "session/prompt", `{"sessionId":"s","prompt":[]}`, `session/prompt {"sessionId":"s","prompt":[]}`, ""},
		{"cancel of a call", "tool_call/cancel", `{"sessionId":"s","toolCallId":"t"}`, "", `-32602 tool call "t" is unknown or cannot be cancelled by itself: send session/cancel`},
		{"load", "session/load", `{}`, "", "-32601 session/load is of version 1: send session/resume with replayFrom"},
		{"an extension", "_x", `[1]`, `_x [1]`, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := acp.NewRequest("1", c.method, []byte(c.params))
			got, err := version.Request(&m)
			switch {
			case c.refused != "":
				if err == nil || string(acp.IntID(err.Code))+" "+err.Message != c.refused {
					t.Errorf("it is refused with %v, want %s", err, c.refused)
				}
			case err != nil || got.Method()+" "+string(got.Params()) != c.want || got.ID() != "1":
				t.Errorf("%v, %s %s, want %s", err, got.Method(), got.Params(), c.want)
			default:
				if err := acptest.New(t).ValidateClientFrame(got.Frame(), nil); err != nil && c.method != "session/new" {
					t.Error(err)
				}
			}
		})
	}
	frac := acp.NewRequest("0.5", "session/new", []byte("{}"))
	_, err := version.Request(&frac)
	if err == nil {
		t.Fatal("a fraction was taken for an id")
	}
	if refusal := version.Refusal(&frac, err); refusal.ID() != acp.NullID || refusal.Err().Code != acp.CodeInvalidRequest {
		t.Errorf("a fraction for an id is answered %s", refusal.Frame())
	}
}

func TestReply(t *testing.T) {
	const options = `[{"id":"model","name":"M","type":"select","currentValue":"a","options":[{"group":"g","name":"G","options":[{"value":"a","name":"A"}]}]}]`
	const raised = `{"name":"M","type":"select","currentValue":"a","options":[{"name":"G","options":[{"value":"a","name":"A"}],"groupId":"g"}],"configId":"model"}`
	const mode = `{"configId":"mode","name":"Mode","category":"mode","type":"select","currentValue":"ask","options":[{"name":"Ask","value":"ask"},{"name":"Code","description":"writes","value":"code"}]}`
	for _, c := range []struct{ method, two, result, want string }{
		{"session/new", "session/new", `{"sessionId":"s","modes":` + modes + `,"configOptions":` + options + `}`, `{"sessionId":"s","configOptions":[` + mode + `,` + raised + `]}`},
		{"session/load", "session/resume", `{"modes":null}`, `{"configOptions":[]}`},
		{"session/set_mode", "session/set_config_option", `{}`, `{"configOptions":[` + mode + `,` + raised + `]}`},
		{"session/set_config_option", "session/set_config_option", `{"configOptions":[]}`, `{"configOptions":[` + mode + `]}`},
		{"session/close", "session/close", `{}`, `{}`},
	} {
		m := acp.NewResult("1", []byte(c.result))
		got := acp.MustParse(version.Reply(c.method, &m, []byte(options), []byte(modes)))
		if diff := cmp.Diff(c.want, string(got.Result())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.method, diff)
		}
		check(t, c.two, string(got.Result()))
	}
	m := acp.NewResult("1", []byte(`{"stopReason":"cancelled"}`))
	if got := acp.MustParse(version.Reply("session/prompt", &m, nil, nil)); got.Err() == nil || got.Err().Code != acp.CodeCancelled {
		t.Errorf("a prompt that never began is answered %s", got.Frame())
	}
}

func TestSetMode(t *testing.T) {
	ask := func(configID string) acp.Message {
		return acp.NewRequest("1", "session/set_config_option", []byte(`{"sessionId":"s","configId":"`+configID+`","value":"code"}`))
	}
	m := ask("mode")
	if got, ok := version.SetMode(&m, nil, []byte(modes)); !ok || string(got.Frame()) != `{"jsonrpc":"2.0","id":1,"method":"session/set_mode","params":{"sessionId":"s","modeId":"code"}}` {
		t.Errorf("%v %s", ok, got.Frame())
	}
	if _, ok := version.SetMode(&m, []byte(`[{"id":"m","category":"mode"}]`), []byte(modes)); ok {
		t.Error("an option of the agent's own was taken for its modes")
	}
	m = ask("model")
	if _, ok := version.SetMode(&m, nil, []byte(modes)); ok {
		t.Error("an option was taken for the modes")
	}
}

// What is no approval in version 2 is none for the agent.
func TestAnswer(t *testing.T) {
	const params = `{"options":[{"optionId":"yes","name":"Yes","kind":"allow_once"}]}`
	for _, c := range []struct{ method, result, want string }{
		{"session/request_permission", `{"outcome":{"outcome":"selected","optionId":"yes"}}`, `{"outcome":{"outcome":"selected","optionId":"yes"}}`},
		{"session/request_permission", `{"outcome":{"outcome":"selected","optionId":"never offered"}}`, `{"outcome":{"outcome":"cancelled"}}`},
		{"session/request_permission", `{"outcome":{"outcome":"later"}}`, `{"outcome":{"outcome":"cancelled"}}`},
		{"session/request_permission", `{}`, `{"outcome":{"outcome":"cancelled"}}`},
		{"elicitation/create", `{"action":"accept","content":{"a":1}}`, `{"action":"accept","content":{"a":1}}`},
		{"elicitation/create", `{"action":"_snooze"}`, `{"action":"cancel"}`},
		{"_x", `{"anything":1}`, `{"anything":1}`},
	} {
		m := acp.NewResult("4", []byte(c.result))
		if got := version.Answer(c.method, []byte(params), &m); string(got.Result()) != c.want {
			t.Errorf("%s: %s is told as %s, want %s", c.method, c.result, got.Result(), c.want)
		}
	}
}

func TestView_Ask(t *testing.T) {
	v := version.NewView(about)
	var out version.Frames
	v.Step(logOf("u " + update(`{"sessionUpdate":"tool_call","toolCallId":"t","title":"Run it"}`))[0], false, &out)
	for _, c := range []struct{ name, method, params, want string }{
		{
			"with a title", "session/request_permission", `{"sessionId":"s","toolCall":{"toolCallId":"t","title":"Really?"},"options":[{"optionId":"o","name":"O","kind":"allow_once"}]}`,
			`{"sessionId":"s","options":[{"optionId":"o","name":"O","kind":"allow_once"}],"title":"Really?","subject":{"type":"tool_call","toolCall":{"toolCallId":"t","title":"Really?"}}}`,
		},
		{
			"with the call's title", "session/request_permission", `{"sessionId":"s","toolCall":{"toolCallId":"t"},"options":[{"optionId":"o","name":"O","kind":"allow_once"}]}`,
			`{"sessionId":"s","options":[{"optionId":"o","name":"O","kind":"allow_once"}],"title":"Run it","subject":{"type":"tool_call","toolCall":{"toolCallId":"t"}}}`,
		},
		{
			"with none", "session/request_permission", `{"sessionId":"s","toolCall":{"toolCallId":"u"},"options":[{"optionId":"o","name":"O","kind":"allow_once"}]}`,
			`{"sessionId":"s","options":[{"optionId":"o","name":"O","kind":"allow_once"}],"title":"Permission is needed","subject":{"type":"tool_call","toolCall":{"toolCallId":"u"}}}`,
		},
		{
			"a form", "elicitation/create", `{"sessionId":"s","mode":"form","message":"m","requestedSchema":{}}`,
			`{"sessionId":"s","mode":"form","message":"m","requestedSchema":{"type":"object","properties":{}}}`,
		},
	} {
		m := acp.NewRequest("3", c.method, []byte(c.params))
		got := acp.MustParse(v.Ask(&m))
		if string(got.Params()) != c.want {
			t.Errorf("%s: %s, want %s", c.name, got.Params(), c.want)
		}
		if err := acptest.NewFor(t, 2).ValidateFrame(got.Frame(), nil); err != nil {
			t.Error(err)
		}
	}
}
