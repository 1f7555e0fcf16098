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
