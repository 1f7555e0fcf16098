package runtime

import (
	"fmt"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// recorder is an agent with a record of its own, which a terminal may add to.
type recorder struct {
	*fakeAgent
	said []string // prompts and answers in turn
}

func newRecorder() *recorder {
	a := &recorder{fakeAgent: &fakeAgent{
		info: adapters.Info{Record: true}, caps: `{"loadSession":true,"sessionCapabilities":{"resume":{},"close":{},"fork":{}}}`,
	}}
	a.handle = func(c *fakeConn, m acp.Message) {
		switch m.Method() {
		case "session/new":
			c.newSession(m)
		case "session/fork":
			c.result(m, `{"sessionId":"forked"}`)
		case "session/load":
			c.update(m.Session(), `{"sessionUpdate":"available_commands_update","availableCommands":[]}`)
			for i, text := range a.said {
				kind := []string{"user_message_chunk", "agent_message_chunk"}[i%2]
				c.update(m.Session(), fmt.Sprintf(`{"sessionUpdate":%q,"messageId":"m%d","content":{"type":"text","text":%q}}`, kind, i, text))
			}
			c.result(m, `{}`)
		case "session/prompt":
			blocks, _ := rawjson.Member(m.Params(), "prompt")
			text := rawjson.MemberString(rawjson.Elements(blocks)[0], "text")
			a.said = append(a.said, text, "re-"+text)
			c.chunk(m.Session(), "re-"+text)
			c.result(m, `{"stopReason":"end_turn"}`)
		default:
			if m.IsRequest() {
				c.result(m, `{}`)
			}
		}
	}
	return a
}

func (c *fakeConn) update(session, update string) {
	c.send(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"` + session + `","update":` + update + `}}`)
}

// imported returns the texts that are marked as made elsewhere.
func imported(ms []acp.Message) string {
	var out []acp.Message
	for _, m := range ms {
		if rawjson.MemberBool(m.Update(), "_meta", acp.MetaKey, "imported") {
			out = append(out, m)
		}
	}
	return texts(out)
}

func (tc *testClient) loaded(s string) (shown []acp.Message, result string) {
	tc.t.Helper()
	shown, res := tc.until(tc.request("session/load", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`))
	return shown, string(res.Result())
}

// What was said in a terminal while a session had no process stands in its log before
// the next prompt, once.
func TestMerge_TurnsOfATerminal(t *testing.T) {
	a := newRecorder()
	r := newRuntime(t, t.TempDir(), a.fakeAgent)
	tc := connect(t, r, "")
	watcher := connect(t, r, "")
	s := tc.session()
	watcher.call("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp"}`)
	tc.until(tc.request("session/prompt", prompt(s, "one")))
	for n, words := range []string{"two", "three"} {
		tc.call("session/close", `{"sessionId":"`+s+`"}`)
		tc.call("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp"}`)
		if n == 0 {
			a.said = append(a.said, "elsewhere", "there")
		}
		before, _ := tc.until(tc.request("session/prompt", prompt(s, words)))
		if got, want := texts(before), []string{"user:elsewhere there re-two", "re-three"}[n]; got != want {
			t.Errorf("who prompts is shown %q, want %q", got, want)
		}
	}
	const all = "user:one re-one user:elsewhere there user:two re-two user:three re-three"
	var seen []acp.Message
	for texts(seen) != all {
		seen = append(seen, watcher.next())
		if !strings.HasPrefix(all, texts(seen)) {
			t.Fatalf("who watches is shown %q, want %q", texts(seen), all)
		}
	}
	shown, result := connect(t, r, "").loaded(s)
	if texts(shown) != all || imported(shown) != "user:elsewhere there" || strings.Contains(result, "historyIncomplete") {
		t.Errorf("a load shows %q, marked %q, and says %s", texts(shown), imported(shown), result)
	}
}

// What the record has between turns of the log has no place there any more, and that is said.
func TestMerge_WhatIsMissing(t *testing.T) {
	a := newRecorder()
	r := newRuntime(t, t.TempDir(), a.fakeAgent)
	tc := connect(t, r, "")
	s := tc.session()
	for _, words := range []string{"one", "two"} {
		tc.until(tc.request("session/prompt", prompt(s, words)))
	}
	tc.call("session/close", `{"sessionId":"`+s+`"}`)
	a.said = []string{"one", "re-one", "between", "re-between", "two", "re-two", "last", "re-last"}
	tc.call("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp"}`)
	tc.until(tc.request("session/prompt", prompt(s, "three")))
	shown, result := connect(t, r, "").loaded(s)
	if got := texts(shown); got != "user:one re-one user:two re-two user:last re-last user:three re-three" || !strings.Contains(result, `"historyIncomplete":true`) {
		t.Errorf("a load shows %q and says %s", got, result)
	}
}

// What a fork has from its beginning is not taken for new.
func TestMerge_Fork(t *testing.T) {
	a := newRecorder()
	r := newRuntime(t, t.TempDir(), a.fakeAgent)
	tc := connect(t, r, "")
	s := tc.session()
	tc.until(tc.request("session/prompt", prompt(s, "one")))
	fork := rawjson.MemberString([]byte(tc.call("session/fork", `{"sessionId":"`+s+`","cwd":"/tmp"}`)), "sessionId")
	tc.call("session/close", `{"sessionId":"`+fork+`"}`)
	tc.call("session/resume", `{"sessionId":"`+fork+`","cwd":"/tmp"}`)
	if before, _ := tc.until(tc.request("session/prompt", prompt(fork, "two"))); texts(before) != "re-two" {
		t.Errorf("a turn of the fork shows %q", texts(before))
	}
	if shown, result := connect(t, r, "").loaded(fork); texts(shown) != "user:one re-one user:two re-two" || strings.Contains(result, "historyIncomplete") {
		t.Errorf("a load of the fork shows %q and says %s", texts(shown), result)
	}
}
