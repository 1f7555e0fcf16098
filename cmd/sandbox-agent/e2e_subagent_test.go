package main_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// seen is a frame of version 1 in a few words: what it is, with the session where that is
// not the one of the test.
func seen(m *message, session string) string {
	var f struct {
		Params struct {
			SessionID string `json:"sessionId"`
			Update    struct {
				SessionUpdate, ToolCallID, Status, MessageID string
				Content                                      json.RawMessage
				State                                        struct{ State, StopReason string }
			}
			ToolCall struct{ ToolCallID string }
		}
	}
	if json.Unmarshal(m.raw, &f) != nil || m.Method != "session/update" && m.Method != "session/request_permission" {
		return ""
	}
	u := f.Params.Update
	words := []string{strings.TrimPrefix(f.Params.SessionID, session), strings.TrimPrefix(m.Method, "session/"), u.SessionUpdate, u.ToolCallID, f.Params.ToolCall.ToolCallID, u.Status, u.State.State, u.State.StopReason}
	var block struct{ Text string }
	if json.Unmarshal(u.Content, &block) == nil {
		words = append(words, block.Text)
	}
	if words[1] == "update" {
		words[1] = ""
	}
	return strings.Join(strings.Fields(strings.Join(words, " ")), " ")
}

// A subagent of an agent of version 1, over real connections: a session of its own for who
// knows subagents, in either version and over either transport, live, replayed and in the
// list; for others a call.
func TestVersions_Subagent(t *testing.T) {
	g := startGateway(t)
	two := dialSecond(t, g)
	session, _ := two.call("session/new", map[string]any{"cwd": t.TempDir()})["sessionId"].(string)
	plain := connect(t, g, wsocket, options{})
	plain.attach("session/load", session, nil)
	knowing := connect(t, g, standard, options{subagents: true})
	knowing.attach("session/load", session, nil)
	seenBy := func(c *client, from int) (out []string) {
		for _, m := range c.messages()[from:] {
			if words := seen(&m, session); words != "" && !strings.HasPrefix(words, "available_") && !strings.HasPrefix(words, "session_info") && !strings.HasPrefix(words, "config_") && !strings.HasPrefix(words, "current_") && !strings.HasPrefix(words, "usage_") {
				out = append(out, words)
			}
		}
		return out
	}
	marks := map[*client]int{plain: plain.mark(), knowing: knowing.mark()}
	two.prompt(session, "subagent")
	request := two.asked()
	child := session + ".call-1-1"
	if params := request["params"].(map[string]any); params["sessionId"] != child {
		t.Errorf("version 2 is asked %v", params)
	}
	if _, got := g.post(http.MethodGet, "/v2/sessions/"+session, ""); !strings.Contains(got, `"sessionId":"`+child+`"`) || strings.Count(got, `"state":"waiting"`) != 2 {
		t.Errorf("the list has %s", got)
	}
	// Who has not been shown it when it is answered is not asked any more.
	knowing.find(marks[knowing], "the request", func(m *message) bool { return m.Method == "session/request_permission" })
	two.answer(request, chosen("allow_once"))
	two.until(func(u map[string]any) bool { return isState("idle")(u) && u["_session"] == session }, 0)
	said := strings.Join(two.conversation(), "\n")
	if !strings.Contains(said, child+" sub-call-1-1 I look around: allow_once.") || !strings.Contains(said, "look around\n") {
		t.Errorf("version 2 was told\n%s", said)
	}
	ends := func(c *client, last string) []string {
		c.find(marks[c], "the end of the turn", func(m *message) bool { return strings.HasSuffix(seen(m, session), last) })
		return seenBy(c, marks[c])
	}
	const own = ".call-1-1 "
	history := []string{
		"user_message_chunk subagent", "tool_call call-1-1 in_progress", "subagent_update running", own + "session_message",
		own + "agent_message_chunk I look", own + "tool_call call-1-2 pending",
	}
	asks := []string{own + "request_permission call-1-2", "subagent_update requires_action", "subagent_update running"}
	rest := []string{
		own + "tool_call_update call-1-2 completed", own + "agent_message_chunk around: allow_once.",
		"tool_call_update call-1-1 completed", "subagent_update idle end_turn", "agent_message_chunk The subagent is done.",
	}
	want := append(append(append([]string{}, history...), asks...), rest...)
	if diff := cmp.Diff(want, ends(knowing, "is done.")); diff != "" {
		t.Errorf("version 1 with subagents (-want +got):\n%s", diff)
	}
	for _, words := range ends(plain, "is done.") {
		if strings.HasPrefix(words, own) || strings.Contains(words, "subagent_update") || strings.Contains(words, "session_message") {
			t.Errorf("who does not know subagents is told %q", words)
		}
	}

	// After a kill: the same, and the list has it.
	knowing.close()
	plain.close()
	g.kill(syscall.SIGKILL)
	g.start()
	again := connect(t, g, wsocket, options{subagents: true})
	again.attach("session/load", session, nil)
	want = append(append(append([]string{}, history...), asks[1:]...), rest...)
	if diff := cmp.Diff(want, seenBy(again, 0)); diff != "" {
		t.Errorf("a replay (-want +got):\n%s", diff)
	}
	if _, got := g.post(http.MethodGet, "/v2/sessions/"+session, ""); !strings.Contains(got, `"sessionId":"`+child+`"`) {
		t.Errorf("behind a restart the list has %s", got)
	}
}
