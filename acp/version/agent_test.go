package version_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/version"
)

// exchange plays frames between a gateway and an agent of version 2: those behind > are of
// the gateway, the others of the agent. It returns what each of them gets: behind > the
// agent, else the gateway, with the version whose clients alone are given it.
func exchange(frames ...string) []string {
	a := version.NewAgent()
	var got []string
	for _, f := range frames {
		own, asked := strings.CutPrefix(f, toAgent)
		m := acp.MustParse([]byte(own))
		if asked {
			if told, ok := a.Tell(&m); ok {
				got = append(got, toAgent+string(told.Frame()))
			}
			continue
		}
		for _, m := range a.Hear(&m, nil) {
			mark := ""
			if v := m.Version(); v != 0 {
				mark = strconv.Itoa(v) + " "
			}
			if m.OfChild() {
				mark += "of " + string(m.Belongs()) + " "
			}
			got = append(got, mark+string(m.Frame()))
		}
	}
	return got
}

func request(id, method, params string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"` + method + `","params":` + params + `}`
}

func notification(method, params string) string {
	return `{"jsonrpc":"2.0","method":"` + method + `","params":` + params + `}`
}

func result(id, value string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"result":` + value + `}`
}

func idle(rest string) string {
	return update(`{"sessionUpdate":"state_update","state":"idle"` + rest + `}`)
}

var running = update(`{"sessionUpdate":"state_update","state":"running"}`)

func said(text string) string {
	return update(`{"sessionUpdate":"agent_message_chunk","messageId":"said","content":{"type":"text","text":"` + text + `"}}`)
}

func working(now string) string {
	return notification(acp.MethodWorking, `{"sessionId":"s","working":`+now+`}`)
}

const option = `{"configId":"m","name":"Mode","category":"mode","type":"select","currentValue":"a","options":[{"value":"a","name":"A"},{"groupId":"g","name":"G","options":[{"value":"b","name":"B"}]}]}`

func TestAgent_Exchanges(t *testing.T) {
	begun := []string{toAgent + prompt("1", "hi"), result("1", `{"messageId":"p"}`), running}
	shown := []string{toAgent + prompt("1", "hi"), "2 " + running}
	turn := func(more ...string) []string { return append(append([]string{}, begun...), more...) }
	answered := func(more ...string) []string { return append(append([]string{}, shown...), more...) }
	for _, c := range []struct {
		name     string
		says, is []string
	}{
		{"the end of a turn", turn(idle(`,"stopReason":"max_tokens","usage":{"totalTokens":1}`)), answered("2 "+idle(`,"stopReason":"max_tokens","usage":{"totalTokens":1}`), result("1", `{"stopReason":"max_tokens","usage":{"totalTokens":1}}`))},
		{"an end without a reason", turn(idle("")), answered("2 "+idle(""), result("1", `{"stopReason":"end_turn"}`))},
		{"an end that is unknown", turn(idle(`,"stopReason":"_tired"`)), answered("2 "+idle(`,"stopReason":"_tired"`), result("1", `{"stopReason":"end_turn","_meta":{"sandboxagent.dev":{"stopReason":"_tired"}}}`))},
		{"a turn that failed", turn(idle(`,"stopReason":"error","error":{"code":-32000,"message":"no"}`)), answered("2 "+idle(`,"stopReason":"error","error":{"code":-32000,"message":"no"}`), `{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no"}}`)},
		{"a prompt that is refused", []string{toAgent + prompt("1", "hi"), `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}`, idle(`,"stopReason":"end_turn"`)}, []string{toAgent + prompt("1", "hi"), `{"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"no"}}`, "2 " + idle(`,"stopReason":"end_turn"`)}},
		{
			"an end before the prompt has begun is another turn's",
			[]string{running, toAgent + prompt("1", "hi"), idle(`,"stopReason":"end_turn"`), result("1", `{"messageId":"p"}`), running, idle(`,"stopReason":"refusal"`)},
			[]string{working("true"), "2 " + running, toAgent + prompt("1", "hi"), working("false"), "2 " + idle(`,"stopReason":"end_turn"`), "2 " + running, "2 " + idle(`,"stopReason":"refusal"`), result("1", `{"stopReason":"refusal"}`)},
		},
		{
			"the words of a prompt are not told again",
			[]string{toAgent + prompt("1", "hi"), update(`{"sessionUpdate":"user_message","messageId":"p","content":[{"type":"text","text":"hi"}]}`), result("1", `{"messageId":"p"}`), update(`{"sessionUpdate":"user_message_chunk","messageId":"p","content":{"type":"text","text":"hi"}}`), update(`{"sessionUpdate":"user_message_chunk","messageId":"q","content":{"type":"text","text":"ho"}}`)},
			[]string{toAgent + prompt("1", "hi"), update(`{"sessionUpdate":"user_message_chunk","messageId":"q","content":{"type":"text","text":"ho"}}`)},
		},
		{"what does nothing is not cancelled", []string{toAgent + notification("session/cancel", `{"sessionId":"s"}`), running, idle(""), toAgent + notification("session/cancel", `{"sessionId":"s"}`)}, []string{toAgent + notification("session/cancel", `{"sessionId":"s"}`), working("true"), "2 " + running, working("false"), "2 " + idle("")}},
		{
			"what goes on though it was idle is cancelled, once",
			turn(idle(`,"stopReason":"end_turn"`), said("more"), toAgent+notification("session/cancel", `{"sessionId":"s"}`), toAgent+notification("session/cancel", `{"sessionId":"s"}`)),
			answered("2 "+idle(`,"stopReason":"end_turn"`), result("1", `{"stopReason":"end_turn"}`), said("more"), toAgent+notification("session/cancel", `{"sessionId":"s"}`)),
		},
		{
			"what was shown before it was idle is not cancelled",
			turn(said("all"), idle(`,"stopReason":"end_turn"`), toAgent+notification("session/cancel", `{"sessionId":"s"}`)),
			answered(said("all"), "2 "+idle(`,"stopReason":"end_turn"`), result("1", `{"stopReason":"end_turn"}`)),
		},
		{"what goes on in the background is cancelled", []string{idle(`,"background":[{"type":"terminal","terminalId":"t"}]`), toAgent + notification("session/cancel", `{"sessionId":"s"}`)}, []string{"2 " + idle(`,"background":[{"type":"terminal","terminalId":"t"}]`), toAgent + notification("session/cancel", `{"sessionId":"s"}`)}},
		{"a prompt that has begun is withdrawn", turn(toAgent + notification("$/cancel_request", `{"requestId":1}`)), answered(toAgent + notification("session/cancel", `{"sessionId":"s"}`))},
		{"a prompt that waits is withdrawn", []string{toAgent + prompt("1", "hi"), toAgent + notification("$/cancel_request", `{"requestId":1}`)}, []string{toAgent + prompt("1", "hi"), toAgent + notification("$/cancel_request", `{"requestId":1}`)}},
		{
			"a session is made",
			[]string{toAgent + request("1", "session/new", `{"cwd":"/w","mcpServers":[{"name":"x","command":"y"},{"type":"http","name":"z"}]}`), result("1", `{"sessionId":"s","configOptions":[`+option+`,{"configId":"n","type":"_new"}],"availableCommands":[{"type":"command","name":"c"}]}`)},
			[]string{
				toAgent + request("1", "session/new", `{"cwd":"/w","mcpServers":[{"name":"x","command":"y","type":"stdio"},{"type":"http","name":"z"}]}`),
				result("1", `{"sessionId":"s","configOptions":[{"name":"Mode","category":"mode","type":"select","currentValue":"a","options":[{"value":"a","name":"A"},{"name":"G","options":[{"value":"b","name":"B"}],"group":"g"}],"id":"m"}],"modes":{"currentModeId":"a","availableModes":[{"name":"A","id":"a"},{"name":"B","id":"b"}]}}`),
				update(`{"sessionUpdate":"available_commands_update","availableCommands":[{"type":"command","name":"c"}]}`),
			},
		},
		{
			"a session is loaded, and resumed",
			[]string{toAgent + request("1", "session/load", `{"sessionId":"s"}`), toAgent + request("2", "session/resume", `{"sessionId":"s"}`)},
			[]string{toAgent + request("1", "session/resume", `{"sessionId":"s","replayFrom":{"type":"start"}}`), toAgent + request("2", "session/resume", `{"sessionId":"s"}`)},
		},
		{
			"a mode and an option are set",
			[]string{update(`{"sessionUpdate":"config_option_update","configOptions":[` + option + `]}`), toAgent + request("1", "session/set_mode", `{"sessionId":"s","modeId":"b"}`), result("1", `{"configOptions":[`+option+`]}`), toAgent + request("2", "session/set_config_option", `{"sessionId":"s","configId":"x","value":"y"}`), toAgent + request("3", "session/set_config_option", `{"sessionId":"s","configId":"x","type":"boolean","value":true}`)},
			[]string{
				"2 " + update(`{"sessionUpdate":"config_option_update","configOptions":[`+option+`]}`),
				"1 " + update(`{"sessionUpdate":"current_mode_update","currentModeId":"a"}`),
				"1 " + update(`{"sessionUpdate":"config_option_update","configOptions":[{"name":"Mode","category":"mode","type":"select","currentValue":"a","options":[{"value":"a","name":"A"},{"name":"G","options":[{"value":"b","name":"B"}],"group":"g"}],"id":"m"}]}`),
				toAgent + request("1", "session/set_config_option", `{"sessionId":"s","configId":"m","type":"id","value":"b"}`), result("1", `{}`),
				toAgent + request("2", "session/set_config_option", `{"sessionId":"s","configId":"x","value":"y","type":"id"}`),
				toAgent + request("3", "session/set_config_option", `{"sessionId":"s","configId":"x","type":"boolean","value":true}`),
			},
		},
		{"a login", []string{toAgent + request("1", "authenticate", `{"methodId":"x"}`), toAgent + request("2", "logout", `{}`)}, []string{toAgent + request("1", "auth/login", `{"methodId":"x"}`), toAgent + request("2", "auth/logout", `{}`)}},
		{
			"a notice and a plan",
			[]string{update(`{"sessionUpdate":"notice","severity":"info","title":"x"}`), update(`{"sessionUpdate":"plan_update","plan":{"type":"markdown","planId":"p","content":"# x"}}`), update(`{"sessionUpdate":"plan_removed","planId":"q"}`), update(`{"sessionUpdate":"plan_removed","planId":"p"}`)},
			[]string{
				update(`{"sessionUpdate":"notice","severity":"info","title":"x"}`),
				"2 " + update(`{"sessionUpdate":"plan_update","plan":{"type":"markdown","planId":"p","content":"# x"}}`), "1 " + update(`{"sessionUpdate":"plan","entries":[{"content":"# x","priority":"medium","status":"in_progress"}]}`),
				"2 " + update(`{"sessionUpdate":"plan_removed","planId":"q"}`),
				"2 " + update(`{"sessionUpdate":"plan_removed","planId":"p"}`), "1 " + update(`{"sessionUpdate":"plan","entries":[]}`),
			},
		},
		{"what nobody knows", []string{update(`{"sessionUpdate":"_new","x":null}`), notification("_ext/x", `{"a":1}`), `{"jsonrpc":"2.0","id":7,"result":{}}`}, []string{update(`{"sessionUpdate":"_new","x":null}`), notification("_ext/x", `{"a":1}`), `{"jsonrpc":"2.0","id":7,"result":{}}`}},
		{
			"a child's child",
			[]string{
				update(`{"sessionUpdate":"subagent_update","sessionId":"c","title":"C"}`),
				strings.Replace(update(`{"sessionUpdate":"subagent_update","sessionId":"d","title":"D"}`), `"s"`, `"c"`, 1),
				strings.Replace(update(`{"sessionUpdate":"tool_call_update","toolCallId":"t","title":"T"}`), `"s"`, `"d"`, 1),
			},
			[]string{
				"1 " + update(`{"sessionUpdate":"tool_call","toolCallId":"sa.subagent.c","title":"C","kind":"other","_meta":{"sandboxagent.dev":{"subagent":{"sessionId":"c"}}}}`),
				"2 " + update(`{"sessionUpdate":"subagent_update","sessionId":"c","title":"C"}`),
				"1 " + update(`{"sessionUpdate":"tool_call","toolCallId":"sa.subagent.d","title":"D","kind":"other","_meta":{"sandboxagent.dev":{"subagent":{"sessionId":"d"},"parentToolCallId":"sa.subagent.c"}}}`),
				`2 of "s" ` + strings.Replace(update(`{"sessionUpdate":"subagent_update","sessionId":"d","title":"D"}`), `"s"`, `"c"`, 1),
				"1 " + update(`{"sessionUpdate":"tool_call","toolCallId":"sa.subagent.d.t","title":"T","_meta":{"sandboxagent.dev":{"parentToolCallId":"sa.subagent.d"}}}`),
				`2 of "s" ` + strings.Replace(update(`{"sessionUpdate":"tool_call_update","toolCallId":"t","title":"T"}`), `"s"`, `"d"`, 1),
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if diff := cmp.Diff(c.is, exchange(c.says...)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// What an agent of version 2 says of itself comes to its clients as it was said, with what
// the gateway can.
func TestAgent_Initialize(t *testing.T) {
	hello := acp.MustParse([]byte(request("0", "initialize", `{"protocolVersion":1,"clientCapabilities":{"auth":{"terminal":true},"elicitation":{"form":{}}},"clientInfo":{"name":"n","version":"1"}}`)))
	offer := version.Offer(&hello)
	want := request("0", "initialize", `{"protocolVersion":2,"clientCapabilities":{"auth":{"terminal":true},"elicitation":{"form":{}}},"clientInfo":{"name":"n","version":"1"},"info":{"name":"n","version":"1"},"capabilities":{"auth":{"terminal":{}},"elicitation":{"form":{}}}}`)
	if string(offer.Frame()) != want {
		t.Errorf("the agent is asked\n%s, want\n%s", offer.Frame(), want)
	}
	old := acp.MustParse([]byte(result("0", `{"protocolVersion":1}`)))
	if _, two := version.Offered(&old); two {
		t.Error("an answer of version 1 is taken for one of 2")
	}
	const caps = `{"session":{"prompt":{"image":{}},"mcp":{"stdio":{},"http":{}},"fork":{}},"new":{"a":1}}`
	m := acp.MustParse([]byte(result("0", `{"protocolVersion":2,"info":{"name":"a","version":"1"},"capabilities":`+caps+`,"authMethods":[{"methodId":"m","type":"agent","name":"M"},{"methodId":"t","type":"terminal","name":"T","env":[{"name":"A","value":"b"}]}]}`)))
	lowered, two := version.Offered(&m)
	if !two || !version.SaidByTwo(lowered.Result()) || version.SaidByTwo(old.Result()) {
		t.Fatalf("version 2 is not known by %s", lowered.Frame())
	}
	for path, want := range map[string]string{
		"agentInfo": `{"name":"a","version":"1"}`, "authMethods": `[{"name":"M","id":"m"},{"type":"terminal","name":"T","env":{"A":"b"},"id":"t"}]`,
		"protocolVersion": "1",
	} {
		if got := string(decode(lowered.Result())[path]); got != want {
			t.Errorf("%s is %s, want %s", path, got, want)
		}
	}
	raised := decode(version.Initialized(lowered.Result()))
	if got := string(raised["capabilities"]); got != caps {
		t.Errorf("clients of version 2 are told %s, want %s", got, caps)
	}
	if _, left := raised["_meta"]; left && string(raised["_meta"]) != "{}" && strings.Contains(string(raised["_meta"]), "version2") {
		t.Errorf("clients of version 2 are told what is between the two: %s", raised["_meta"])
	}
}

// What is kept of calls is bounded: version 1 is told where it does not get all.
func TestAgent_Bounds(t *testing.T) {
	a := version.NewAgent()
	hear := func(frame string) (out []acp.Message) {
		m := acp.MustParse([]byte(frame))
		return a.Hear(&m, nil)
	}
	big := strings.Repeat("x", 300<<10)
	last := ""
	for range 5 {
		for _, m := range hear(update(`{"sessionUpdate":"tool_call_content_chunk","toolCallId":"t","content":{"type":"content","content":{"type":"text","text":"` + big + `"}}}`)) {
			if m.Version() == version.One && strings.Contains(string(m.Frame()), "xxx") {
				last = string(m.Frame())
			}
		}
	}
	for _, m := range hear(idle(`,"stopReason":"end_turn"`)) {
		if m.Version() == version.One && strings.Contains(string(m.Frame()), "xxx") {
			last = string(m.Frame())
		}
	}
	if n := strings.Count(last, "x") / (300 << 10); n != 3 || !strings.Contains(last, "the rest is left out") {
		t.Errorf("of five pieces version 1 is shown %d, in %.100s ... %s", n, last, last[max(0, len(last)-200):])
	}
	// What is forgotten is introduced again.
	for i := range 5000 {
		hear(update(`{"sessionUpdate":"tool_call_update","toolCallId":"c` + strconv.Itoa(i) + `","title":"x","status":"completed"}`))
	}
	if first := hear(update(`{"sessionUpdate":"tool_call_update","toolCallId":"c0","status":"failed"}`))[0]; string(first.UpdateKind()) != "tool_call" {
		t.Errorf("a call that is known no more is told of as %s", first.Frame())
	}
	if first := hear(update(`{"sessionUpdate":"tool_call_update","toolCallId":"c4999","status":"failed"}`))[0]; string(first.UpdateKind()) != "tool_call_update" {
		t.Errorf("a call that is known is told of as %s", first.Frame())
	}
}
