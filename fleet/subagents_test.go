package fleet_test

import (
	"fmt"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

func isAsk(m *acp.Message) bool { return m.Method() == acp.MethodSessionRequestPermission }

// pendingIDs are the ids of a session's open requests as a connection knows them, "" for one that it was not given.
func (c *client) pendingIDs(session string) (out []string) {
	c.t.Helper()
	list, _ := rawjson.Member(c.must("_sandboxagent/session/pending", fmt.Sprintf(`{"sessionId":%q}`, session)), "pending")
	for _, one := range rawjson.Elements(list) {
		id, _ := rawjson.Member(one, "requestId")
		out = append(out, string(id))
	}
	return out
}

// Nodes count their requests as the hub does. What a connection was not given it has no id of: the node's own
// would answer a request of another session.
func TestRPC_PendingOfASessionThatIsNotOpen(t *testing.T) {
	h := startHub(t)
	h.box("one", nil)
	h.box("two", nil)
	other := h.hello(adminToken)
	theirs := other.session("one")
	other.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":` + prompt(theirs, "permission") + `}`)
	other.next(0, "the other's request", isAsk)
	c := h.hello(adminToken)
	mine := c.session("two")
	c.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":` + prompt(mine, "permission") + `}`)
	ask, _ := c.next(0, "the own request", isAsk)
	if ids := c.pendingIDs(mine); len(ids) != 1 || ids[0] != string(ask.ID()) {
		t.Errorf("the own session has %q open, want %s", ids, ask.ID())
	}
	if ids := c.pendingIDs(theirs); len(ids) != 1 || ids[0] != "" {
		t.Errorf("a session that is not open here has %q open, want one without an id", ids)
	}
	c.must("session/resume", fmt.Sprintf(`{"sessionId":%q,"cwd":"/tmp","mcpServers":[]}`, theirs))
	given, _ := c.next(0, "the request that was open", func(m *acp.Message) bool { return isAsk(m) && m.Session() == theirs })
	if ids := c.pendingIDs(theirs); len(ids) != 1 || ids[0] != string(given.ID()) {
		t.Errorf("the session has %q open, want %s", ids, given.ID())
	}
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"outcome":{"outcome":"cancelled"}}}`, given.ID()))
	other.next(0, "the end of the other's turn", func(m *acp.Message) bool { return m.IsResponse() && string(m.ID()) == "1" })
	if ids := c.pendingIDs(mine); len(ids) != 1 || ids[0] != string(ask.ID()) {
		t.Errorf("after the other's was answered the own session has %q open, want %s", ids, ask.ID())
	}
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"outcome":{"outcome":"cancelled"}}}`, ask.ID()))
	if m := c.response("1"); !strings.Contains(string(m.Frame()), "stopReason") {
		t.Errorf("the own turn: %s", m.Frame())
	}
}

// knowing initializes a connection that knows subagents as sessions of their own.
func (h *hub) knowing(token string, version int) *client {
	h.t.Helper()
	c := dial(h.t, h.url, token)
	params := `{"protocolVersion":1,"clientCapabilities":{"subagents":{}}}`
	if version == 2 {
		params = `{"protocolVersion":2,"info":{"name":"test","version":"1"},"capabilities":{}}`
	}
	c.must("initialize", params)
	return c
}

// Who opens a session while a subagent waits for an answer is asked, too, and sees what comes of it.
func TestRPC_SubagentOfASessionThatIsOpened(t *testing.T) {
	h := startHub(t)
	h.box("box", nil)
	owner := h.knowing(adminToken, 2)
	s := owner.session("box")
	owner.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":` + prompt(s, "subagent") + `}`)
	ask, _ := owner.next(0, "the subagent's request", isAsk)
	child := ask.Session()
	if child == s {
		t.Fatalf("the session itself asks: %s", ask.Frame())
	}
	var watchers []*client
	for _, tt := range []struct {
		name    string
		version int
		method  string
		more    string
	}{
		{"resumed", 2, "session/resume", ``},
		{"behind an event", 2, "session/resume", `,"_meta":{"sandboxagent.dev":{"after":1}}`},
		{"replayed", 2, "session/resume", `,"replayFrom":{"type":"start"}`},
		{"resumed in version 1", 1, "session/resume", ``},
		{"loaded in version 1", 1, "session/load", ``},
	} {
		c := h.knowing(adminToken, tt.version)
		c.must(tt.method, fmt.Sprintf(`{"sessionId":%q,"cwd":"/tmp","mcpServers":[]%s}`, s, tt.more))
		shown, _ := c.next(0, tt.name+": the subagent's request", isAsk)
		if shown.Session() != child {
			t.Errorf("%s: it asks in session %s, want %s", tt.name, shown.Session(), child)
		}
		if ids := c.pendingIDs(s); len(ids) != 1 || ids[0] != string(shown.ID()) {
			t.Errorf("%s: %q are open, want %s", tt.name, ids, shown.ID())
		}
		watchers = append(watchers, c)
		ask = shown
	}
	last := watchers[len(watchers)-1]
	options, _ := rawjson.Member(ask.Params(), "options")
	last.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"outcome":{"outcome":"selected","optionId":%q}}}`, ask.ID(), rawjson.MemberString(rawjson.Elements(options)[0], "optionId")))
	for i, c := range watchers {
		c.next(0, fmt.Sprintf("%d: what the subagent does then", i), func(m *acp.Message) bool {
			return m.Session() == child && strings.Contains(string(m.Frame()), `"completed"`)
		})
		if c == last {
			continue
		}
		c.next(0, fmt.Sprintf("%d: that it is answered", i), func(m *acp.Message) bool { return m.Method() == acp.MethodCancelRequest })
	}
}
