package runtime

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// subagentCalls are what an agent of version 1 says of a subagent that reads a file.
func subagentCalls(native string, permission bool) []string {
	update := func(u string) string {
		return `{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"` + native + `","update":` + u + `}}`
	}
	out := []string{
		update(`{"sessionUpdate":"tool_call","toolCallId":"t","title":"Look","status":"in_progress","rawInput":{"prompt":"look"},"_meta":{"sandboxagent.dev":{"subagent":{"cancel":true}}}}`),
		update(`{"sessionUpdate":"tool_call_update","toolCallId":"t","content":[{"type":"content","content":{"type":"text","text":"I see"}}],"_meta":{"sandboxagent.dev":{"said":{"text":"I see","messageId":"m"}}}}`),
		update(`{"sessionUpdate":"tool_call","toolCallId":"r","title":"Read","status":"pending","_meta":{"sandboxagent.dev":{"parentToolCallId":"t"}}}`),
	}
	if permission {
		out = append(out, `{"jsonrpc":"2.0","id":7,"method":"session/request_permission","params":{"sessionId":"`+native+`","toolCall":{"toolCallId":"r","title":"Read"},"options":[{"optionId":"o","name":"O","kind":"allow_once"}]}}`)
	}
	return out
}

const knowsSubagents = `{"subagents":{}}`

// briefly is brief, with the session where that is not s.
func briefly(s string, m acp.Message) string {
	if id := m.Session(); id != "" && id != s {
		return strings.TrimPrefix(id, s) + " " + brief(m)
	}
	return brief(m)
}

func (tc *testClient) told(s string, n int) []string {
	tc.t.Helper()
	var out []string
	for range n {
		out = append(out, briefly(s, tc.next()))
	}
	return out
}

// A subagent of an agent of version 1 is a session of its own for clients of version 2 and
// for those of version 1 that know subagents; others see its calls.
func TestSubagent_Clients(t *testing.T) {
	a := &fakeAgent{caps: `{"_meta":{"sandboxagent.dev":{"cancelsCalls":{}}}}`}
	r := newRuntime(t, t.TempDir(), a)
	plain := connect(t, r, "")
	c := a.conn()
	s := plain.session()
	knowing := connect(t, r, knowsSubagents)
	knowing.call("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
	two := connectTwo(t, r, "")
	two.call("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp"}`)
	id := plain.request("session/prompt", prompt(s, "hi"))
	p := c.next(t, "session/prompt")
	for _, frame := range subagentCalls("native-1", true) {
		c.send(frame)
	}
	const child = ".t "
	wantTwo := []string{
		"user_message sa.1", "state_update running", "tool_call_update t in_progress", "subagent_update", child + "state_update running", child + "session_message sa.3.task",
		child + "agent_message_chunk m I see", child + "tool_call_update r pending", child + "session/request_permission Read",
		child + "state_update requires_action", "subagent_update", "state_update requires_action",
	}
	if diff := cmp.Diff(wantTwo, two.told(s, len(wantTwo))); diff != "" {
		t.Fatalf("version 2 (-want +got):\n%s", diff)
	}
	wantOne := []string{
		"user_message_chunk hi", "tool_call t in_progress", "subagent_update", child + "session_message sa.3.task", child + "agent_message_chunk m I see", child + "tool_call r pending",
		child + "session/request_permission", "subagent_update",
	}
	if diff := cmp.Diff(wantOne, knowing.told(s, len(wantOne))); diff != "" {
		t.Fatalf("version 1 with subagents (-want +got):\n%s", diff)
	}
	wantPlain := []string{"tool_call t in_progress", "tool_call_update t", "tool_call r pending", "session/request_permission"}
	if diff := cmp.Diff(wantPlain, plain.told(s, len(wantPlain))); diff != "" {
		t.Fatalf("version 1 (-want +got):\n%s", diff)
	}
	list := children(t, r, s)
	want := []string{s + child + "of " + s + " by t, Look: waiting"}
	if diff := cmp.Diff(want, list); diff != "" {
		t.Errorf("listed (-want +got):\n%s", diff)
	}

	if _, ok := rawjson.Member([]byte(two.callErr("session/prompt", prompt(s+".t", "you there")).Data), "parentSessionId"); !ok {
		t.Error("who prompts a subagent is not told whose it is")
	}

	// It can be cancelled by itself, by its own id.
	two.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"` + s + `.t"}}`)
	if cancel := c.next(t, "tool_call/cancel"); cancel.Session() != "native-1" || rawjson.MemberString(cancel.Params(), "toolCallId") != "t" {
		t.Errorf("the agent is sent %s", cancel.Frame())
	}
	// So can a call of it, if the agent can do that.
	call := two.request("tool_call/cancel", `{"sessionId":"`+s+`.t","toolCallId":"r"}`)
	cancel := c.next(t, "tool_call/cancel")
	if cancel.Session() != "native-1" || rawjson.MemberString(cancel.Params(), "toolCallId") != "r" {
		t.Errorf("the agent is sent %s", cancel.Frame())
	}
	c.send(`{"jsonrpc":"2.0","id":` + string(cancel.ID()) + `,"error":{"code":-32602,"message":"not that one"}}`)
	two.expect(string(call) + " error -32602")
	c.send(`{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":7}}`)
	c.next(t, "")
	c.send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"native-1","update":{"sessionUpdate":"tool_call_update","toolCallId":"r","status":"failed"}}}`)
	c.send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"native-1","update":{"sessionUpdate":"tool_call_update","toolCallId":"t","status":"failed"}}}`)
	c.result(p, `{"stopReason":"end_turn"}`)
	if _, res := plain.until(id); res.Err() != nil {
		t.Fatal(res.Err())
	}
	wantTwo = []string{
		"$/cancel_request", child + "state_update running", "subagent_update", "state_update running",
		child + "tool_call_update r failed", "tool_call_update t failed", child + "state_update idle error the subagent has failed, or was ended", "subagent_update", "state_update idle end_turn",
	}
	if diff := cmp.Diff(wantTwo, two.told(s, len(wantTwo))); diff != "" {
		t.Fatalf("version 2 (-want +got):\n%s", diff)
	}
	two.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"` + s + `.t"}}`) // it does nothing: nobody is told
	plain.call("_sandboxagent/session/get", `{"sessionId":"`+s+`"}`)
	if list := children(t, r, s); !strings.HasSuffix(list[0], ": idle") {
		t.Errorf("listed %v", list)
	}
	select {
	case m := <-c.got:
		t.Errorf("the agent is sent %s", m.Frame())
	default:
	}
}

// children are those of a session, as a client is told them.
func children(t *testing.T, r *Runtime, s string) []string {
	t.Helper()
	info, err := r.Session(s)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	b, err := json.Marshal(info.Children)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range rawjson.Elements(b) {
		get := func(name string) string { return rawjson.MemberString(one, name) }
		out = append(out, fmt.Sprintf("%s of %s by %s, %s: %s", get("sessionId"), get("parentSessionId"), get("toolCallId"), get("title"), get("state")))
	}
	return out
}

// What a client of version 1 that knows subagents is given again on a stream that broke is
// what it was given, wherever it broke; and a load shows the same children.
func TestSubagent_EventsAgain(t *testing.T) {
	a := &fakeAgent{}
	r := newRuntime(t, t.TempDir(), a)
	c, _, err := r.Connect(t.Context(), acp.NewRequest("0", "initialize", []byte(`{"protocolVersion":1,"clientCapabilities":{"subagents":{},"_meta":{"sandboxagent.dev":{"eventIds":true}}}}`)), acp.ConnectOptions{Shape: acp.PerSession})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	control, err := c.Stream("", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	ask := func(id, method, params string) {
		t.Helper()
		if err := c.Send(t.Context(), acp.NewRequest(acp.ID(id), method, []byte(params))); err != nil {
			t.Fatal(err)
		}
	}
	ask("1", "session/new", `{"cwd":"/tmp","mcpServers":[]}`)
	_, frame, _ := strings.Cut(collect(t, control, 1)[0], " ")
	s := rawjson.MemberString([]byte(frame), "result", "sessionId")
	st, err := c.Stream(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	var events []string
	until := func(end string) {
		t.Helper()
		from := len(events)
		for !slices.ContainsFunc(events[from:], func(e string) bool { return strings.Contains(e, end) }) {
			events = append(events, collect(t, st, 1)...)
		}
	}
	conn := a.conn()
	ask("2", "session/prompt", prompt(s, "hi"))
	p := conn.next(t, "session/prompt")
	for _, frame := range subagentCalls("native-1", false) {
		conn.send(frame)
	}
	conn.result(p, `{"stopReason":"end_turn"}`)
	until(`"stopReason"`)
	live := len(events)
	ask("3", "session/load", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
	until(`"toolCallId":"r"`)
	if got := strings.Count(strings.Join(events[live:], "\n"), `"sessionId":"`+s+`.t"`); got != 4 { // announced, told its task, words, call
		t.Errorf("a load shows the child in\n%s", strings.Join(events[live:], "\n"))
	}
	for from := range events {
		var after uint64
		_, _ = fmt.Sscan(events[from], &after)
		again, err := c.Stream(s, &after)
		if err != nil {
			t.Fatal(err)
		}
		if want := events[from+1:]; len(want) > 0 {
			if diff := cmp.Diff(want, collect(t, again, len(want))); diff != "" {
				t.Fatalf("behind event %d (-given +given again):\n%s", after, diff)
			}
		}
		again.Close()
	}
}

// The children of a session whose gateway was killed are listed by the next one. They have
// ended.
func TestSubagent_Listed(t *testing.T) {
	dir := t.TempDir()
	a := &fakeAgent{}
	first := newRuntime(t, dir, a)
	tc := connect(t, first, "")
	s := tc.session()
	tc.request("session/prompt", prompt(s, "hi"))
	c := a.conn()
	c.next(t, "session/prompt")
	for _, frame := range subagentCalls("native-1", false) {
		c.send(frame)
	}
	tc.told(s, 3)
	killed := t.TempDir()
	copyDir(t, killed, dir)
	next := newRuntime(t, killed, &fakeAgent{})
	two := connectTwo(t, next, "")
	two.call("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp","replayFrom":{"type":"start"}}`)
	want := []string{s + ".t of " + s + " by t, Look: idle"}
	if diff := cmp.Diff(want, children(t, next, s)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
