package fleet_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/fleet"
)

// move moves a session and returns what the hub says.
func (h *hub) move(id string, o fleet.MoveRequest) fleet.Moved {
	h.t.Helper()
	status, body := h.ask(http.MethodPost, "/v2/sessions/"+id+"/move", adminToken, o)
	var got fleet.Moved
	if err := json.Unmarshal(body, &got); status != http.StatusOK || err != nil {
		h.t.Fatalf("move %s: %d %s", id, status, body)
	}
	return got
}

// notMoved is move for one that must fail; it returns the problem.
func (h *hub) notMoved(id string, o fleet.MoveRequest) (kind, detail string) {
	h.t.Helper()
	status, body := h.ask(http.MethodPost, "/v2/sessions/"+id+"/move", adminToken, o)
	var p struct{ Detail string }
	if err := json.Unmarshal(body, &p); status < 400 || err != nil {
		h.t.Fatalf("move %s: %d %s", id, status, body)
	}
	return kindOf(body), p.Detail
}

// says has the agent say a text, and returns when it has.
func (c *client) says(session, text string) {
	c.t.Helper()
	from := c.count()
	if end := c.must("session/prompt", prompt(session, "echo "+text)); rawjson.MemberString(end, "stopReason") != "end_turn" {
		c.t.Fatalf("the prompt ended with %s", end)
	}
	c.next(from, text, func(m *acp.Message) bool { return m.Session() == session && saidIn(m) == text })
}

func (c *client) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.got)
}

func saidIn(m *acp.Message) string {
	if string(m.UpdateKind()) != "agent_message_chunk" {
		return ""
	}
	return rawjson.MemberString(m.Update(), "content", "text")
}

// heard is what the client was given of a session's agent, piece by piece.
func (c *client) heard(session string) (out []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.got {
		if text := saidIn(&c.got[i]); text != "" && c.got[i].Session() == session {
			out = append(out, text)
		}
	}
	return out
}

// listed returns the nodes of a session in the list of all.
func (h *hub) listed(id string) (nodes []string) {
	h.t.Helper()
	for _, s := range h.list(adminToken, "").Sessions {
		if s.ID == id {
			nodes = append(nodes, s.Node)
		}
	}
	return nodes
}

// at has the hub say where a session is, once it knows that there are so many events of it.
func (h *hub) knows(id, node string, events uint64) {
	h.t.Helper()
	h.await(fmt.Sprintf("the hub has %d events of %s from %s", events, id, node), func() bool {
		for _, s := range h.store.Sessions() {
			if s.Session == id && s.Node == node && s.Through >= events {
				return true
			}
		}
		return false
	})
}

// A session goes to another node and back while clients have it open. They go on without a new
// connection, see each event once, and are told.
func TestMove_ClientsGoOn(t *testing.T) {
	h := startCopier(t)
	h.box("one", map[string]string{"size": "small"})
	h.box("two", nil)
	c, other := h.hello(adminToken), h.hello(adminToken)
	s := c.session("one")
	c.says(s, "first")
	h.knows(s, "one", 1)
	other.must("session/load", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
	got := h.move(s, fleet.MoveRequest{Node: "two"})
	if got.From != "one" || got.Node != "two" || got.Term != 2 || got.Missing != 0 || got.LastSeq == 0 || got.Continuity != "fresh" {
		t.Errorf("%+v", got)
	}
	for _, one := range []*client{c, other} {
		m, _ := one.next(0, "that it has moved", func(m *acp.Message) bool { return m.Method() == "_sandboxagent/session/moved" })
		if rawjson.MemberString(m.Params(), "node") != "two" || rawjson.MemberString(m.Params(), "continuity") != "fresh" {
			t.Errorf("%s", m.Frame())
		}
	}
	c.says(s, "second")
	other.says(s, "third")
	c.next(0, "what the other one has asked for", func(m *acp.Message) bool { return saidIn(m) == "third" })
	if nodes := h.listed(s); !slices.Equal(nodes, []string{"two"}) {
		t.Errorf("it is listed at %v", nodes)
	}
	// At the node that it left it can be read, and nothing else.
	if m := h.hello(adminToken).call("session/load", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"node":"one"}}}`); errorKind(m) != "conflict" || !strings.Contains(m.Err().Message, "two") {
		t.Errorf("at the node that it left: %s", m.Frame())
	}
	direct := dial(t, h.url+"/nodes/one", adminToken)
	direct.must("initialize", `{"protocolVersion":1,"clientCapabilities":{}}`)
	if m := direct.call("session/load", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`); errorKind(m) != "conflict" || !strings.Contains(m.Err().Message, "two") {
		t.Errorf("by the node's own address: %s", m.Frame())
	}
	var back fleet.Moved
	if err := json.Unmarshal(c.must("_sandboxagent/session/move", `{"sessionId":"`+s+`","node":{"labels":{"size":"small"}}}`), &back); err != nil || back.Node != "one" || back.Term != 3 {
		t.Errorf("back: %+v", back)
	}
	c.says(s, "fourth")
	want := []string{"first", "second", "third", "fourth"}
	for name, one := range map[string]*client{"c": c, "other": other} {
		one.next(0, "the last", func(m *acp.Message) bool { return saidIn(m) == "fourth" })
		if got := one.heard(s); !slices.Equal(got, want) {
			t.Errorf("%s heard %q", name, got)
		}
	}
	h.await("the record of the node that has it", func() bool { return h.session(s).Node == "one" })
	shown := h.session(s)
	if shown.Moves == nil || shown.Moves.Term != 3 || len(shown.Moves.Before) != 1 || shown.Moves.Before[0].Node != "two" || shown.Moves.Before[0].Extra != 0 {
		t.Errorf("%+v", shown.Moves)
	}
}

// A move that fails leaves the session where it is, and says so.
func TestMove_FailsAndStays(t *testing.T) {
	h := startCopier(t)
	one := h.box("one", nil)
	h.box("two", nil)
	c := h.hello(adminToken)
	s := c.session("one")
	c.says(s, "first")
	h.knows(s, "one", 1)
	// A node that takes what comes, and dies of it.
	dies := make(chan struct{})
	var dying *node
	dying = h.join("dies", h.joinToken(), nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v2/sessions/import" {
			_, _ = r.Body.Read(make([]byte, 10))
			dying.leave()
			close(dies)
			_, _ = io.Copy(io.Discard, r.Body) // until it breaks
			return
		}
		http.NotFound(w, r)
	}))
	for name, tt := range map[string]struct {
		o            fleet.MoveRequest
		kind, detail string
	}{
		"it is there":     {fleet.MoveRequest{Node: "one"}, "conflict", "already"},
		"no such node":    {fleet.MoveRequest{Node: "three"}, "node_not_found", "three"},
		"no such label":   {fleet.MoveRequest{Labels: map[string]string{"a": "b"}}, "node_not_found", ""},
		"no such folder":  {fleet.MoveRequest{Node: "two", Cwd: "/no/such/folder"}, "invalid_request", "stays at one"},
		"the target dies": {fleet.MoveRequest{Node: "dies"}, "node_offline", "stays at one"},
	} {
		if kind, detail := h.notMoved(s, tt.o); kind != tt.kind || !strings.Contains(detail, tt.detail) {
			t.Errorf("%s: %s: %s", name, kind, detail)
		}
		if nodes := h.listed(s); !slices.Equal(nodes, []string{"one"}) {
			t.Errorf("%s: it is listed at %v", name, nodes)
		}
	}
	<-dies
	c.says(s, "second")
	c.send(`{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":` + prompt(s, "permission") + `}`)
	ask, _ := c.next(0, "the permission request", func(m *acp.Message) bool { return m.Method() == "session/request_permission" })
	if kind, detail := h.notMoved(s, fleet.MoveRequest{Node: "two"}); kind != "conflict" || !strings.Contains(detail, "stays at one") {
		t.Errorf("while it works: %s: %s", kind, detail)
	}
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"outcome":{"outcome":"cancelled"}}}`, ask.ID()))
	c.response("7")
	// The node goes away that has it, in the middle.
	one.leave()
	<-one.done
	h.awaitState("one", fleet.StateOffline)
	if kind, _ := h.notMoved(s, fleet.MoveRequest{Node: "two"}); kind != "node_offline" {
		t.Errorf("a session whose node is away: %s", kind)
	}
}

// Of two who move a session at the same time one does, and it is at one node.
func TestMove_TwoAtOnce(t *testing.T) {
	h := startCopier(t)
	h.box("one", nil)
	h.box("two", nil)
	h.box("three", nil)
	c := h.hello(adminToken)
	s := c.session("one")
	c.says(s, "first")
	h.knows(s, "one", 1)
	type answer struct {
		status int
		body   []byte
	}
	answers := make(chan answer, 8)
	for i := range cap(answers) {
		go func() {
			status, body := h.ask(http.MethodPost, "/v2/sessions/"+s+"/move?node=one", adminToken, fleet.MoveRequest{Node: []string{"two", "three"}[i%2]})
			answers <- answer{status, body}
		}()
	}
	moved := ""
	for range cap(answers) {
		a := <-answers
		switch {
		case a.status == http.StatusOK:
			var got fleet.Moved
			if err := json.Unmarshal(a.body, &got); err != nil || moved != "" {
				t.Errorf("it was moved to %s and %s: %v", moved, got.Node, err)
			}
			moved = got.Node
		case kindOf(a.body) != "conflict":
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	if moved == "" {
		t.Fatal("nobody has moved it")
	}
	c.says(s, "second")
	if nodes := h.listed(s); !slices.Equal(nodes, []string{moved}) {
		t.Errorf("it went to %s and is listed at %v", moved, nodes)
	}
	if got := c.heard(s); !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("the client heard %q", got)
	}
}

// The nodes are at two hubs, and the clients at both.
func TestMove_OverTwoHubs(t *testing.T) {
	one, two := peers(t)
	one.box("a", nil)
	two.box("b", nil)
	one.awaitState("b", fleet.StateOnline)
	two.awaitState("a", fleet.StateOnline)
	two.await("the other hub answers for the node", func() bool {
		status, _ := two.ask(http.MethodGet, "/nodes/a/v2/sessions", adminToken, nil)
		return status == http.StatusOK
	})
	one.await("the other hub answers for the node", func() bool {
		status, _ := one.ask(http.MethodGet, "/nodes/b/v2/sessions", adminToken, nil)
		return status == http.StatusOK
	})
	here, there := one.hello(adminToken), two.hello(adminToken)
	s := here.session("a")
	here.says(s, "first")
	one.knows(s, "a", 1)
	two.knows(s, "a", 1)
	there.must("session/load", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
	if got := two.move(s, fleet.MoveRequest{Node: "b"}); got.Node != "b" || got.Term != 2 {
		t.Errorf("%+v", got)
	}
	for _, c := range []*client{here, there} {
		c.next(0, "that it has moved", func(m *acp.Message) bool { return m.Method() == "_sandboxagent/session/moved" })
	}
	here.says(s, "second")
	there.says(s, "third")
	for name, c := range map[string]*client{"here": here, "there": there} {
		c.next(0, "the last", func(m *acp.Message) bool { return saidIn(m) == "third" })
		if got := c.heard(s); !slices.Equal(got, []string{"first", "second", "third"}) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
