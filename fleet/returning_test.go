package fleet_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/fleet"
	"sandboxagent.dev/sandbox-agent/fleet/store"
)

// restarted is a hub that was started in the place of one that a node, box, had joined, which comes back when it is told. A session of
// it is there.
func restarted(t *testing.T) (h *hub, comes func() *node, session string) {
	t.Helper()
	kept, box := store.Options{Dir: t.TempDir()}, newBox(t)
	before := startCopierOn(t, "before", kept)
	token := before.joinToken()
	join := func(h *hub) *node { return h.begin(h.url, "box", token, map[string]string{"size": "small"}, box) }
	n := join(before)
	before.awaitState("box", fleet.StateOnline)
	c := before.hello(adminToken)
	session = c.session("box")
	c.says(session, "first")
	before.bundled(session, "box")
	before.stop()
	n.leave()
	<-n.done
	h = startCopierOn(t, "after", kept)
	return h, func() *node { return join(h) }, session
}

// Who asks a hub that has just started for a node that had joined the one before waits for it, however the node is asked for.
func TestRestart_RequestsWaitForNodes(t *testing.T) {
	t.Parallel() // it waits more than it computes
	h, comes, s := restarted(t)
	var clients []*client
	for method, params := range map[string]string{
		"session/new":    `{"cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"node":"box"}}}`,
		"session/new ":   `{"cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"node":{"labels":{"size":"small"}},"agent":"mock"}}}`,
		"session/new  ":  `{"cwd":"/tmp","mcpServers":[]}`,
		"session/load":   fmt.Sprintf(`{"sessionId":%q,"cwd":"/tmp","mcpServers":[]}`, s),
		"session/resume": fmt.Sprintf(`{"sessionId":%q,"cwd":"/tmp","mcpServers":[]}`, s),
		"session/prompt": prompt(s, "echo second"),
	} {
		c := h.hello(adminToken)
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":"asked","method":%q,"params":%s}`, strings.TrimSpace(method), params))
		c.must("session/list", `{}`) // behind it
		clients = append(clients, c)
	}
	answer := h.asks(http.MethodGet, "/nodes/box/v2/sessions", nil)
	if status, body := h.ask(http.MethodGet, "/v2/nodes/box", adminToken, nil); status != http.StatusOK || !strings.Contains(string(body), `"state":"offline"`) {
		t.Errorf("before it is there: %d %s", status, body)
	}
	n := comes()
	if got := <-answer; !strings.HasPrefix(got, "200") {
		t.Error(got)
	}
	for _, c := range clients {
		if m := c.response(`"asked"`); m.Err() != nil {
			t.Errorf("%s", m.Frame())
		}
	}
	// One that leaves when it was there is away.
	n.leave()
	h.awaitState("box", fleet.StateOffline)
	if status, body := h.ask(http.MethodGet, "/nodes/box/v2/sessions", adminToken, nil); kindOf(body) != "node_offline" {
		t.Errorf("when it has left: %d %s", status, body)
	}
}

// The same for a hub that shares its store, and whose lease goes on for a moment when it was killed, also where no address of hubs is known.
func TestRestart_OfAHubWhoseLeaseGoesOn(t *testing.T) {
	t.Parallel() // it waits more than it computes
	kept, box := store.Options{URL: natsServer(t)}, newBox(t)
	before := startCopierOn(t, "before", kept)
	token := before.joinToken()
	n := before.begin(before.url, "box", token, nil, box)
	before.awaitState("box", fleet.StateOnline)
	before.ends() // its store is open still
	n.leave()
	<-n.done
	h := startCopierOn(t, "after", kept)
	if !h.store.HubLives("before") {
		t.Fatal("the lease is over")
	}
	answer := h.asks(http.MethodGet, "/nodes/box/v2/sessions", nil)
	h.begin(h.url, "box", token, nil, box)
	if got := <-answer; !strings.HasPrefix(got, "200") {
		t.Error(got)
	}
}

// asks sends a request, and returns its answer to come when the hub has it.
func (h *hub) asks(method, path string, body any) <-chan string {
	h.t.Helper()
	return h.asksBy(adminToken, method, path, body)
}

// asksBy is asks with a token.
func (h *hub) asksBy(token, method, path string, body any) <-chan string {
	h.t.Helper()
	answer := make(chan string, 1)
	go func() {
		status, body := h.ask(method, path, token, body)
		answer <- fmt.Sprint(status, " ", string(body))
	}()
	h.await("the request is there", func() bool { return len(answer) > 0 || h.metric("sandbox_hub_http_requests_open") == 2 })
	return answer
}

// What is asked of a session of such a node is done as the node has it, and not as for one whose node is lost.
func TestRestart_SessionIsAtItsNode(t *testing.T) {
	t.Parallel() // it waits more than it computes
	for asked, there := range map[string]func(h *hub, s, answer string) bool{
		"POST /move": func(_ *hub, _, answer string) bool {
			return strings.HasPrefix(answer, "200") && !strings.Contains(answer, "rememberedSeq")
		},
		"DELETE ": func(h *hub, s, answer string) bool {
			status, _ := h.ask(http.MethodGet, "/nodes/box/v2/sessions/"+s, adminToken, nil)
			return strings.HasPrefix(answer, "204") && status == http.StatusNotFound
		},
		"POST /close": func(h *hub, s, answer string) bool {
			_, body := h.ask(http.MethodGet, "/nodes/box/v2/sessions/"+s, adminToken, nil)
			return strings.HasPrefix(answer, "204") && strings.Contains(string(body), `"state":"closed"`)
		},
		"GET /events?acp=2": func(_ *hub, _, answer string) bool { return strings.HasPrefix(answer, "200") },
	} {
		t.Run(asked, func(t *testing.T) {
			h, comes, s := restarted(t)
			h.box("two", nil)
			method, path, _ := strings.Cut(asked, " ")
			var body any
			if path == "/move" {
				body = fleet.MoveRequest{Node: "two"}
			}
			answer := h.asks(method, "/v2/sessions/"+s+path, body)
			comes()
			if got := <-answer; !there(h, s, got) {
				t.Error(got)
			}
		})
	}
}

// A client that waits does not hold up the end of the hub.
func TestRestart_EndsBeforeNodesAreThere(t *testing.T) {
	t.Parallel() // it waits more than it computes
	h, _, s := restarted(t)
	answer := h.asks(http.MethodGet, "/nodes/box/v2/sessions", nil)
	deleted := make(chan int, 1)
	go func() {
		status, _ := h.ask(http.MethodDelete, "/v2/sessions/"+s, adminToken, nil)
		deleted <- status
	}()
	h.await("both wait", func() bool { return h.metric("sandbox_hub_http_requests_open") == 3 })
	h.ends()
	if got := <-answer; !strings.HasPrefix(got, "503") {
		t.Error(got)
	}
	if status := <-deleted; status != http.StatusServiceUnavailable {
		t.Errorf("what was to be deleted at its node: %d", status)
	}
}

// A node whose hub has ended joins another one in a moment. A delete there does not take it for lost meanwhile, and removes nothing; a move
// waits for it, and takes along what it has.
func TestHubs_NodeIsOnItsWay(t *testing.T) {
	t.Parallel() // it waits more than it computes
	one, two := peers(t)
	box := newBox(t)
	token := one.joinToken()
	n := one.begin(one.url, "box", token, nil, box)
	two.awaitState("box", fleet.StateOnline)
	two.box("other", nil)
	c := one.hello(adminToken)
	s := c.session("box")
	c.says(s, "first")
	two.bundled(s, "box")
	n.leave()
	<-n.done
	one.stop()
	two.await("the hub has ended", func() bool { return !two.store.HubLives("one") })
	if status, body := two.ask(http.MethodDelete, "/v2/sessions/"+s, adminToken, nil); kindOf(body) != "node_offline" {
		t.Errorf("while it is on its way: %d %s", status, body)
	}
	answer := two.asks(http.MethodPost, "/v2/sessions/"+s+"/move", fleet.MoveRequest{Node: "other"})
	two.begin(two.url, "box", token, nil, box)
	if got := <-answer; !strings.HasPrefix(got, "200") || strings.Contains(got, "rememberedSeq") {
		t.Error(got)
	}
}
