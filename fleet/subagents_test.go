package fleet_test

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/mock"
	"sandboxagent.dev/sandbox-agent/adapters/native"
	"sandboxagent.dev/sandbox-agent/fleet"
	"sandboxagent.dev/sandbox-agent/runtime"
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

// A subagent is cancelled by its own id through the hub as at its gateway, also by who came later: the agent is told.
func TestRPC_SubagentIsCancelled(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	two := native.NewCustom(adapters.Info{ID: "mock2", Name: "Mock of version 2"}, native.Command{Path: exe, Args: []string{mock.Arg, "--acp", "2", "--state-dir", t.TempDir()}}, true)
	h := startHub(t)
	h.join("box", h.joinToken(), nil, newBoxWith(t, runtime.Options{DefaultAgent: "mock2", DataDir: t.TempDir(), Adapters: []adapters.Adapter{two}}, nil))
	h.awaitState("box", fleet.StateOnline)
	owner := h.knowing(adminToken, 2)
	s := rawjson.MemberString(owner.must("session/new", `{"cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"includeRaw":true}}}`), "sessionId")
	owner.send(`{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":` + prompt(s, "child-permission") + `}`)
	owner.next(0, "the subagent's request", isAsk)
	c := h.knowing(adminToken, 2)
	res := c.must("session/resume", fmt.Sprintf(`{"sessionId":%q,"cwd":"/tmp","mcpServers":[]}`, s))
	ask, _ := c.next(0, "the subagent's request", isAsk)
	child := ask.Session()
	if list, _ := rawjson.Member(res, "_meta", acp.MetaKey, "subagents"); string(list) != fmt.Sprintf("[%q]", child) {
		t.Errorf("these work: %s, want %s", list, child)
	}
	if m := c.call("session/prompt", prompt(child, "hello")); m.Err() == nil || rawjson.MemberString(m.Err().Data, "parentSessionId") != s {
		t.Errorf("who prompts a subagent is told %s", m.Frame())
	}
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":%q}}`, child))
	if m := c.call("tool_call/cancel", fmt.Sprintf(`{"sessionId":%q,"toolCallId":"none"}`, child)); errorKind(m) == "session_not_found" {
		t.Errorf("who cancels a call of a subagent is told %s", m.Frame())
	}
	told := func(method string) func() bool {
		return func() bool {
			_, raw := h.ask(http.MethodGet, "/nodes/box/v2/sessions/"+s+"/raw", adminToken, nil)
			return slices.ContainsFunc(strings.Split(string(raw), "\n"), func(line string) bool {
				return strings.Contains(line, `"from":"gateway"`) && strings.Contains(line, method) && strings.Contains(line, child)
			})
		}
	}
	h.await("the agent is told to cancel the subagent", told("session/cancel"))
	h.await("the agent is told to cancel the call", told("tool_call/cancel"))
}
