package fleet_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"sandboxagent.dev/sandbox-agent/fleet"
	"sandboxagent.dev/sandbox-agent/fleet/store"
)

// door leads to one hub after the other, and to none in between.
type door struct {
	*httptest.Server
	to atomic.Pointer[hub]
}

func newDoor(t *testing.T) *door {
	d := &door{}
	d.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if h := d.to.Load(); h != nil {
			h.hub.ServeHTTP(w, r)
			return
		}
		w.WriteHeader(http.StatusBadGateway)
	}))
	t.Cleanup(d.Close) // behind the nodes' own
	return d
}

// restarted is a hub that was started in the place of one that a node, box, had joined, which is yet to come back. A session of it is
// there.
func restarted(t *testing.T) (h *hub, d *door, n *node, session string) {
	t.Helper()
	d, kept := newDoor(t), store.Options{Dir: t.TempDir()}
	before := startCopierOn(t, "before", kept)
	d.to.Store(before)
	n = before.boxAt(d.URL, "box", map[string]string{"size": "small"})
	c := before.hello(adminToken)
	session = c.session("box")
	c.says(session, "first")
	before.bundled(session, "box")
	d.to.Store(nil)
	before.stop()
	return startCopierOn(t, "after", kept), d, n, session
}

// Who asks a hub that has just started for a node that had joined the one before waits for it, however the node is asked for.
func TestRestart_RequestsWaitForNodes(t *testing.T) {
	t.Parallel() // it waits more than it computes
	h, d, n, s := restarted(t)
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
	d.to.Store(h)
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

// asks sends a request, and returns its answer to come when the hub has it.
func (h *hub) asks(method, path string, body any) <-chan string {
	h.t.Helper()
	answer := make(chan string, 1)
	go func() {
		status, body := h.ask(method, path, adminToken, body)
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
			h, d, _, s := restarted(t)
			h.box("two", nil)
			method, path, _ := strings.Cut(asked, " ")
			var body any
			if path == "/move" {
				body = fleet.MoveRequest{Node: "two"}
			}
			answer := h.asks(method, "/v2/sessions/"+s+path, body)
			d.to.Store(h)
			if got := <-answer; !there(h, s, got) {
				t.Error(got)
			}
		})
	}
}

// A client that waits does not hold up the end of the hub.
func TestRestart_EndsBeforeNodesAreThere(t *testing.T) {
	t.Parallel() // it waits more than it computes
	h, _, _, _ := restarted(t)
	answer := h.asks(http.MethodGet, "/nodes/box/v2/sessions", nil)
	h.hub.Shutdown()
	if got := <-answer; !strings.HasPrefix(got, "503") {
		t.Error(got)
	}
}
