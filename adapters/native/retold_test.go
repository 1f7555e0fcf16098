package native

import (
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

func TestRetold_CallsAreCallsAndTheRestIsLeftOut(t *testing.T) {
	says := func(kind, text string) string {
		return up(string(rawjson.Object{}.String("sessionUpdate", kind).Raw("content", rawjson.Object{}.String("type", "text").String("text", text).End()).End()))
	}
	const (
		load   = `{"jsonrpc":"2.0","id":3,"method":"session/load","params":{"sessionId":"s"}}`
		answer = `{"jsonrpc":"2.0","id":3,"result":{}}`
	)
	live := says("agent_message_chunk", "[Function Call: is_what_it_says]")
	inner := newScript(
		live,
		says("user_message_chunk", "<session_context>\nThis is the Gemini CLI.\n</session_context>"),
		says("user_message_chunk", "read two files"),
		says("agent_thought_chunk", "**Two**\nfiles"),
		says("agent_message_chunk", "[Thought: true]I read them.[Function Call: read_file][Function Call: read_file]"),
		says("user_message_chunk", "[Function Response: read_file][Function Response: read_file]"),
		says("agent_message_chunk", "[Thought: true]done [Function Call: x] here"),
		says("user_message_chunk", "[Function Response: x] and what I say to it"),
		says("agent_message_chunk", "[Function Call: write_file]"),
		says("agent_message_chunk", "a list: [1] [2]"),
		answer, live,
	)
	c := retell(inner)
	first, err := c.Read(t.Context())
	if err != nil || string(first.Frame()) != live {
		t.Errorf("without a load: %s, %v", first.Frame(), err)
	}
	if err := c.Write(t.Context(), acp.MustParse([]byte(load))); err != nil {
		t.Fatal(err)
	}
	var got []string
	for range 11 {
		m, err := c.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		u := m.Update()
		text := rawjson.MemberString(u, "content", "text")
		if string(m.UpdateKind()) == "tool_call" {
			text = rawjson.MemberString(u, "toolCallId") + " " + rawjson.MemberString(u, "title") + " " + rawjson.MemberString(u, "status")
		}
		if m.IsResponse() {
			text = "answer"
		}
		got = append(got, strings.TrimSpace(strings.TrimSuffix(string(m.UpdateKind()), "_chunk")+" "+text))
	}
	want := []string{
		"user_message read two files", "agent_thought **Two**\nfiles", "agent_message I read them.",
		"tool_call replayed-1 read_file completed", "tool_call replayed-2 read_file completed",
		"agent_message done [Function Call: x] here", "user_message and what I say to it",
		"tool_call replayed-3 write_file completed", "agent_message a list: [1] [2]", "answer",
		"agent_message [Function Call: is_what_it_says]",
	}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("read\n%q, want\n%q", got, want)
	}
}
