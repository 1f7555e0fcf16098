package runtime

import (
	"fmt"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

func TestList_HasWhatTheAgentHasFromElsewhere(t *testing.T) {
	a := &fakeAgent{id: "fake", caps: `{"sessionCapabilities":{"list":{}}}`}
	fails := false
	a.handle = func(c *fakeConn, m acp.Message) {
		switch {
		case m.Method() == "session/new":
			c.newSession(m)
		case m.Method() != "session/list":
			c.result(m, `{}`)
		case fails:
			c.out <- acp.NewError(m.ID(), acp.Errorf(acp.CodeInternal, "the disk is on fire"))
		case rawjson.MemberString(m.Params(), "cursor") == "":
			c.result(m, `{"sessions":[{"sessionId":"native-1","cwd":"/tmp"},{"sessionId":"elsewhere-1","cwd":"/tmp","kept":[1.0]}],"nextCursor":"c2"}`)
		default:
			c.result(m, fmt.Sprintf(`{"sessions":[{"sessionId":"elsewhere-2","cwd":%q,"title":%q}]}`, rawjson.MemberString(m.Params(), "cwd"), rawjson.MemberString(m.Params(), "cursor")))
		}
	}
	tc := connect(t, newRuntime(t, t.TempDir(), a, &fakeAgent{id: "other"}), "")
	own := tc.session()
	ids := func(res string) string {
		var out []string
		list, _ := rawjson.Member([]byte(res), "sessions")
		for _, s := range rawjson.Elements(list) {
			out = append(out, rawjson.MemberString(s, "sessionId"))
		}
		return strings.Join(out, " ")
	}
	first := tc.call("session/list", `{"cwd":"/tmp"}`)
	if got := ids(first); got != own+" elsewhere-1" {
		t.Errorf("the first page has %s", got)
	}
	if !strings.Contains(first, `"kept":[1.0]`) || !strings.Contains(first, `{"sandboxagent.dev":{"agent":"fake"}}`) {
		t.Errorf("the agent's session is listed as %s", first)
	}
	second := tc.call("session/list", fmt.Sprintf(`{"cwd":"/tmp","cursor":%q}`, rawjson.MemberString([]byte(first), "nextCursor")))
	if got := ids(second); got != "elsewhere-2" || !strings.Contains(second, `"title":"c2"`) || strings.Contains(second, "nextCursor") {
		t.Errorf("the second page is %s", second)
	}
	if got := ids(tc.call("session/list", `{"_meta":{"sandboxagent.dev":{"agent":"other"}}}`)); got != "" {
		t.Errorf("the other agent has %s", got)
	}
	fails = true
	if res := tc.call("session/list", `{}`); ids(res) != own || !strings.Contains(res, "the disk is on fire") {
		t.Errorf("with an agent that fails: %s", res)
	}
}
