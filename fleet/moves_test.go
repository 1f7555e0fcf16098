package fleet_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/fleet"
	"sandboxagent.dev/sandbox-agent/fleet/relay"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/runtime"
	"sandboxagent.dev/sandbox-agent/runtime/session"
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

// moved waits until the client is told that a session is at another node.
func (c *client) moved(session string) {
	c.t.Helper()
	c.next(0, "that it has moved", func(m *acp.Message) bool {
		return m.Method() == "_sandboxagent/session/moved" && m.Session() == session
	})
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
	other.must("session/load", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"env":{"PLACE":"here"}}}}`)
	got := h.move(s, fleet.MoveRequest{Node: "two"})
	if got.From != "one" || got.Node != "two" || got.Term != 2 || got.Missing != 0 || got.LastSeq == 0 || got.Continuity != "fresh" {
		t.Errorf("%+v", got)
	}
	for _, one := range []*client{c, other} {
		m, _ := one.next(0, "that it has moved", func(m *acp.Message) bool { return m.Method() == "_sandboxagent/session/moved" })
		if rawjson.MemberString(m.Params(), "node") != "two" || rawjson.MemberString(m.Params(), "continuity") != "fresh" || !strings.Contains(string(m.Params()), `"leftOut":["env.PLACE"]`) {
			t.Errorf("%s", m.Frame())
		}
	}
	c.says(s, "second")
	other.says(s, "third")
	c.next(0, "what the other one has asked for", func(m *acp.Message) bool { return saidIn(m) == "third" })
	if nodes := h.listed(s); !slices.Equal(nodes, []string{"two"}) {
		t.Errorf("it is listed at %v", nodes)
	}
	// Who names the node that it left means this session, also a client whose connection broke.
	named := h.hello(adminToken)
	if m := named.must("session/load", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"node":"one"}}}`); rawjson.MemberString(m, "_meta", acp.MetaKey, "node") != "two" {
		t.Errorf("by the name of the node that it left: %s", m)
	}
	named.says(s, "by name")
	c.next(0, "what was asked for by that name", func(m *acp.Message) bool { return saidIn(m) == "by name" })
	// At that node it can be read, and nothing else.
	direct := dial(t, h.url+"/nodes/one", adminToken)
	direct.must("initialize", `{"protocolVersion":1,"clientCapabilities":{}}`)
	if m := direct.call("session/load", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`); errorKind(m) != "conflict" || !strings.Contains(m.Err().Message, "two") {
		t.Errorf("by the node's own address: %s", m.Frame())
	}
	for method, params := range map[string]string{
		"session/prompt":   prompt(s, "echo x"),
		"session/fork":     `{"sessionId":"` + s + `","cwd":"/tmp","mcpServers":[]}`,
		"session/resume":   `{"sessionId":"` + s + `","cwd":"/tmp","mcpServers":[]}`,
		"session/set_mode": `{"sessionId":"` + s + `","modeId":"x"}`,
	} {
		if m := direct.call(method, params); errorKind(m) != "conflict" || !strings.Contains(m.Err().Message, "went to the node two of the same hub") {
			t.Errorf("%s by the node's own address: %s", method, m.Frame())
		}
	}
	var back fleet.Moved
	if err := json.Unmarshal(c.must("_sandboxagent/session/move", `{"sessionId":"`+s+`","node":{"labels":{"size":"small"}}}`), &back); err != nil || back.Node != "one" || back.Term != 3 {
		t.Errorf("back: %+v", back)
	}
	c.says(s, "fourth")
	want := []string{"first", "second", "third", "by name", "fourth"}
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

// quiet is an answer of which nothing passes until free is closed.
type quiet struct {
	http.ResponseWriter
	r    *http.Request
	free chan struct{}
}

func (w quiet) Write(p []byte) (int, error) {
	select {
	case <-w.free:
	case <-w.r.Context().Done():
	}
	return w.ResponseWriter.Write(p)
}

func (w quiet) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// movingToQuiet moves a session from the node one to two, which tells nothing of its sessions before free
// is closed. Moved gets the answer's status.
func (h *hub) movingToQuiet() (c *client, s string, moved chan int, free chan struct{}) {
	target := newBox(h.t)
	free, moved = make(chan struct{}), make(chan int, 1)
	h.box("one", nil)
	h.join("two", h.joinToken(), nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v2/sessions/changes" {
			w = quiet{w, r, free}
		}
		target.ServeHTTP(w, r)
	}))
	c = h.hello(adminToken)
	s = c.session("one")
	c.says(s, "first")
	h.knows(s, "one", 1)
	go func() {
		status, _ := h.ask(http.MethodPost, "/v2/sessions/"+s+"/move", adminToken, fleet.MoveRequest{Node: "two"})
		moved <- status
	}()
	return c, s, moved, free
}

// Who is told that a session has moved finds it where it is, and moves it on, also when its node is slow to
// tell of it.
func TestMove_AnsweredWhenListed(t *testing.T) {
	h := startCopier(t)
	_, s, moved, free := h.movingToQuiet()
	h.await("it is open at its next node", func() bool {
		status, body := h.ask(http.MethodGet, "/nodes/two/v2/sessions/"+s, adminToken, nil)
		var there runtime.SessionInfo
		return status == http.StatusOK && json.Unmarshal(body, &there) == nil && there.State != runtime.StateClosed
	})
	close(free)
	if status := <-moved; status != http.StatusOK {
		t.Fatalf("the move was answered with %d", status)
	}
	if nodes := h.listed(s); !slices.Equal(nodes, []string{"two"}) {
		t.Errorf("it is listed at %v", nodes)
	}
	for _, to := range []string{"one", "two", "one"} {
		h.move(s, fleet.MoveRequest{Node: to})
		if got := h.session(s); got.Node != to || got.State == runtime.StateClosed {
			t.Errorf("it was moved to %s, and is %s at %s", to, got.State, got.Node)
		}
	}
}

// A move that fails leaves the session where it is, and says so.
func TestMove_FailsAndStays(t *testing.T) {
	h, source := startMeddled(t)
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
	for body, detail := range map[string]string{`{"node":"two","labels":{"a":"b"}}`: "not both", `{"node":""}`: "node is empty"} {
		if status, b := h.ask(http.MethodPost, "/v2/sessions/"+s+"/move", adminToken, json.RawMessage(body)); status != http.StatusBadRequest || kindOf(b) != "invalid_request" || !strings.Contains(string(b), detail) {
			t.Errorf("%s: %d %s", body, status, b)
		}
	}
	<-dies
	c.says(s, "second")
	direct := dial(t, h.url+"/nodes/one", adminToken)
	direct.must("initialize", `{"protocolVersion":1,"clientCapabilities":{}}`)
	source.meddle(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Has("movedTo") {
			direct.must("session/load", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
			direct.says(s, "meanwhile")
		}
		return false
	})
	if kind, detail := h.notMoved(s, fleet.MoveRequest{Node: "two"}); kind != "conflict" || !strings.Contains(detail, "it went on while it was moved") {
		t.Errorf("%s: %s", kind, detail)
	}
	if status, body := h.ask(http.MethodGet, "/nodes/two/v2/sessions/"+s, adminToken, nil); status != http.StatusNotFound {
		t.Errorf("what had come: %d %s", status, body)
	}
	source.meddle(nil)
	c.send(`{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":` + prompt(s, "permission") + `}`)
	ask, _ := c.next(0, "the permission request", func(m *acp.Message) bool { return m.Method() == "session/request_permission" })
	if kind, detail := h.notMoved(s, fleet.MoveRequest{Node: "two"}); kind != "conflict" || !strings.Contains(detail, "stays at one") {
		t.Errorf("while it works: %s: %s", kind, detail)
	}
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"outcome":{"outcome":"cancelled"}}}`, ask.ID()))
	c.response("7")
}

// A node that was begun with a copy of another's folder has the other's sessions as its own. A move of one of them to it is
// refused, and leaves both as they are. So does one that another node has refused: it may be given a copy.
func TestMove_NodeHasItsOwn(t *testing.T) {
	h := startCopier(t)
	h.box("one", nil)
	h.box("two", nil)
	c, other := h.hello(adminToken), h.hello(adminToken)
	s := c.session("one")
	c.says(s, "first")
	h.knows(s, "one", 1)
	if kind, detail := h.notMoved(s, fleet.MoveRequest{Node: "two", Cwd: "/no/such/folder"}); kind != "invalid_request" {
		t.Fatalf("to a folder that is not there: %s: %s", kind, detail)
	}
	status, file := h.ask(http.MethodGet, "/nodes/one/v2/sessions/"+s+"/export?open=true", adminToken, nil)
	if status != http.StatusOK {
		t.Fatalf("export: %d %s", status, file)
	}
	if status, body := importAt(t, h.url+"/nodes/two", adminToken, file); status != http.StatusCreated {
		t.Fatalf("import: %d %s", status, body)
	}
	h.knows(s, "two", 1)
	at := func(node string) string {
		return `{"sessionId":"` + s + `","cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"node":"` + node + `"}}}`
	}
	other.must("session/load", at("two"))
	other.says(s, "of its own")
	status, body := h.ask(http.MethodPost, "/v2/sessions/"+s+"/move?node=one", adminToken, fleet.MoveRequest{Node: "two"})
	if kind := kindOf(body); kind != "session_already_exists" || !strings.Contains(string(body), "two has one of its own") {
		t.Errorf("a move to it: %d %s", status, body)
	}
	if nodes := h.listed(s); len(nodes) != 2 {
		t.Errorf("it is listed at %v", nodes)
	}
	c.says(s, "second")
	other.says(s, "goes on")
	if got := other.heard(s); !slices.Equal(got, []string{"first", "of its own", "goes on"}) {
		t.Errorf("at the node that has its own: %q", got)
	}
	// Without a name it goes where there is none.
	h.box("three", nil)
	status, body = h.ask(http.MethodPost, "/v2/sessions/"+s+"/move?node=one", adminToken, fleet.MoveRequest{})
	if got := rawjson.MemberString(body, "node"); status != http.StatusOK || got != "three" {
		t.Errorf("without a name: %d %s", status, body)
	}
	other.says(s, "as before")
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

// bundled returns when the hub has what the agent keeps of all that was said up to now.
func (h *hub) bundled(id, node string) {
	h.t.Helper()
	_, body := h.ask(http.MethodGet, "/nodes/"+node+"/v2/sessions/"+id, adminToken, nil)
	var there runtime.SessionInfo
	if err := json.Unmarshal(body, &there); err != nil || there.EventCount == 0 {
		h.t.Fatalf("%s: %v", body, err)
	}
	h.await("the bundle of "+id, func() bool {
		for _, s := range h.store.Sessions() {
			if s.Session == id && s.Node == node && s.Bundled >= there.EventCount && s.BundledEdits == there.Edits && s.Through >= there.EventCount {
				return true
			}
			if s.BundleTrouble != "" {
				h.t.Fatal(s.BundleTrouble)
			}
		}
		return false
	})
}

// Gateways need not have an agent for those who name none: the hub names the session's.
func TestMove_WithoutADefaultAgent(t *testing.T) {
	h := startCopier(t)
	for _, name := range []string{"one", "two"} {
		h.join(name, h.joinToken(), nil, newBoxWith(t, runtime.Options{DataDir: t.TempDir()}, nil))
	}
	c := h.hello(adminToken)
	s := rawjson.MemberString(c.must("session/new", `{"cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"node":"one","agent":"mock"}}}`), "sessionId")
	c.says(s, "first")
	h.bundled(s, "one")
	if got := h.move(s, fleet.MoveRequest{Node: "two"}); got.Node != "two" {
		t.Errorf("%+v", got)
	}
	c.says(s, "second")
}

// importAt has a gateway take a file with a session.
func importAt(t *testing.T, url, token string, file []byte) (status int, body []byte) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v2/sessions/import", bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/zstd")
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := plain.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, body
}

// What the hub has of a session whose node is away is a file that any gateway imports.
func TestExport_WithoutTheNode(t *testing.T) {
	h := startCopier(t)
	source := &meddler{box: newBox(t)}
	n := h.join("one", h.joinToken(), nil, source)
	c := h.hello(adminToken)
	s := c.session("one")
	c.says(s, "first")
	h.bundled(s, "one")
	bare := c.session("one") // nothing is said in it, and nothing is kept
	h.knows(bare, "one", 0)
	source.meddle(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/events") {
			panic(http.ErrAbortHandler)
		}
		return false
	})
	c.says(s, "second") // the hub hears that there is more, and is not given it
	h.await("something is missing", func() bool { return h.session(s).Replica.Missing > 0 })
	c.stop()
	h.loses(n, "one")
	if status, body := h.ask(http.MethodGet, "/v2/sessions/"+bare+"/export", adminToken, nil); status != http.StatusServiceUnavailable || kindOf(body) != "unavailable" {
		t.Errorf("one of which there is nothing: %d %s", status, body)
	}
	status, file := h.ask(http.MethodGet, "/v2/sessions/"+s+"/export", adminToken, nil)
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, file)
	}
	elsewhere := httptest.NewServer(newBox(t))
	defer elsewhere.Close()
	if status, b := importAt(t, elsewhere.URL, "", file); status != http.StatusCreated || !strings.Contains(string(b), "which the hub does not have") {
		t.Fatalf("%d %s", status, b)
	}
	there := dial(t, elsewhere.URL, "")
	there.must("initialize", `{"protocolVersion":1,"clientCapabilities":{}}`)
	there.must("session/load", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
	there.says(s, "third")
	if got := there.heard(s); !slices.Equal(got, []string{"first", "third"}) {
		t.Errorf("it has %q", got)
	}
}

// The clock of the hub that has moved a session is an hour ahead, or was set back since. Who asks for what is left of
// the session is not kept waiting for its new node as long as that.
func TestMove_ClocksDiffer(t *testing.T) {
	for name, since := range map[string]time.Duration{"ahead": time.Hour, "behind": -time.Hour} {
		t.Run(name, func(t *testing.T) {
			h := startCopier(t)
			h.box("one", nil)
			n := h.join("two", h.joinToken(), nil, newBox(t))
			c := h.hello(adminToken)
			s := c.session("one")
			c.says(s, "first")
			h.knows(s, "one", 1)
			h.loses(n, "two")
			line := store.LineOf(h.store.SessionsNamed(s)[0].Info)
			if _, err := h.store.UpdateOwner(t.Context(), line, func(*store.Owner) (*store.Owner, error) {
				return &store.Owner{Node: "two", Term: 2, Since: time.Now().Add(since), Others: []store.Other{{Node: "one", Term: 1}}}, nil
			}); err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			status, body := h.ask(http.MethodPost, "/v2/sessions/"+s+"/close", adminToken, nil)
			if took := time.Since(begun); took > relay.HoldFor/2 {
				t.Errorf("after %v: %d %s", took, status, body)
			}
		})
	}
}

// copyLive copies a folder in which a gateway works: what it renames or removes meanwhile is not there.
func copyLive(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		place, b := filepath.Join(to, strings.TrimPrefix(path, from)), []byte(nil)
		switch {
		case err != nil:
		case e.IsDir():
			return os.MkdirAll(place, 0o700)
		case e.Type().IsRegular():
			if b, err = os.ReadFile(path); err == nil {
				return os.WriteFile(place, b, 0o600)
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A gateway is killed before anything was said in a session, whose first event has a higher number then. What the
// hub has of it is all that there was, also where it goes on without its node.
func TestMove_FirstEventIsNotNumberOne(t *testing.T) {
	h, before, after := startCopier(t), t.TempDir(), filepath.Join(t.TempDir(), "after")
	n := h.join("one", h.joinToken(), nil, newBoxIn(t, before, session.Async, nil, nil))
	h.box("two", nil)
	c := h.hello(adminToken)
	s := c.session("one")
	copyLive(t, before, after) // as it is left when it is killed
	leave := func() {
		h.loses(n, "one")
	}
	leave()
	n = h.join("one", h.joinToken(), nil, newBoxIn(t, after, session.Async, nil, nil))
	h.awaitState("one", fleet.StateOnline)
	c = h.hello(adminToken)
	c.must("session/load", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
	c.says(s, "first")
	h.bundled(s, "one")
	leave()
	got := h.move(s, fleet.MoveRequest{Node: "two"})
	if shown := h.session(s); shown.OldestSeq != 0 || shown.HistoryIncomplete || got.LastSeq < 1000 {
		t.Errorf("after %+v: oldest %d, incomplete %v", got, shown.OldestSeq, shown.HistoryIncomplete)
	}
	if lines := strings.Join(h.lines(s, 100), "\n"); !strings.Contains(lines, "first") {
		t.Errorf("its events: %s", lines)
	}
}

// Clients of version 2 of the protocol go on as others do, over each transport's own stream.
func TestMove_VersionTwo(t *testing.T) {
	h := startCopier(t)
	h.box("one", nil)
	h.box("two", nil)
	c := h.hello(adminToken)
	s := c.session("one")
	c.says(s, "first")
	h.bundled(s, "one")
	two := dial(t, h.url, adminToken)
	two.must("initialize", `{"protocolVersion":2,"info":{"name":"test","version":"1"},"capabilities":{}}`)
	two.must("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
	for i, node := range []string{"two", "one", "two"} {
		h.move(s, fleet.MoveRequest{Node: node})
		text := fmt.Sprintf("then %d", i)
		two.must("session/prompt", prompt(s, "echo "+text))
		at := 0
		for _, one := range []*client{c, two} {
			_, at = one.next(0, text, func(m *acp.Message) bool {
				return m.Session() == s && string(m.UpdateKind()) == "agent_message_chunk" && strings.Contains(string(m.Frame()), text)
			})
		}
		two.next(at, "that it is idle", func(m *acp.Message) bool { return m.Session() == s && strings.Contains(string(m.Frame()), `"idle"`) })
	}
	two.mu.Lock()
	defer two.mu.Unlock()
	for i := range 3 {
		text, n := fmt.Sprintf("then %d", i), 0
		for _, m := range two.got {
			if string(m.UpdateKind()) == "agent_message_chunk" && strings.Contains(string(m.Frame()), text) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%q came %d times", text, n)
		}
	}
}

// The log of a node that has let go of a session says so once, and where it went.
func TestMove_NodeLogsIt(t *testing.T) {
	h := startCopier(t)
	var said bytes.Buffer // read when the node has answered
	h.join("one", h.joinToken(), nil, newBoxTold(t, session.Async, nil, slog.New(slog.NewTextHandler(&said, nil))))
	h.box("two", nil)
	c := h.hello(adminToken)
	s := c.session("one")
	c.says(s, "first")
	h.bundled(s, "one")
	h.move(s, fleet.MoveRequest{Node: "two"})
	h.stop()
	if log := said.String(); strings.Count(log, "goes on at another gateway") != 1 || !strings.Contains(log, "session="+s+" to=node://two") {
		t.Errorf("the log:\n%s", log)
	}
}
