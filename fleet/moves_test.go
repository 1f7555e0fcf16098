package fleet_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
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

// The node of a session is cut off and goes on by itself, while the session goes on at another one.
// When it is back it lets go of the session; what it did meanwhile is kept beside it, and nothing
// is mixed.
func TestMove_NodeIsCutOff(t *testing.T) {
	t.Parallel() // it waits more than it computes
	h := startCopier(t)
	box := newBox(t)
	n := h.join("one", h.joinToken(), nil, box)
	h.box("two", nil)
	c := h.hello(adminToken)
	s := c.session("one")
	c.says(s, "first")
	h.bundled(s, "one")
	// Of this no event tells.
	c.must("_sandboxagent/session/set_metadata", `{"sessionId":"`+s+`","metadata":{"ticket":"X-1"}}`)
	c.must("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"env":{"PLACE":"here"}}}}`)
	h.bundled(s, "one")
	n.leave()
	<-n.done
	h.awaitState("one", fleet.StateOffline)
	alone := httptest.NewServer(box)
	defer alone.Close()
	local := dial(t, alone.URL, "")
	local.must("initialize", `{"protocolVersion":1,"clientCapabilities":{}}`)
	local.must("session/load", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
	local.says(s, "alone")

	got := h.move(s, fleet.MoveRequest{})
	if got.Node != "two" || got.Term != 2 || got.Missing != 0 || got.Continuity != "fresh" {
		t.Errorf("%+v", got)
	}
	m, _ := c.next(0, "that it has moved", func(m *acp.Message) bool { return m.Method() == "_sandboxagent/session/moved" })
	if rawjson.MemberString(m.Params(), "node") != "two" || rawjson.MemberString(m.Params(), "from") != "one" || !strings.Contains(string(m.Params()), `"leftOut":["env.PLACE"]`) {
		t.Errorf("%s", m.Frame())
	}
	if _, there := h.ask(http.MethodGet, "/nodes/two/v2/sessions/"+s, adminToken, nil); rawjson.MemberString(there, "metadata", "ticket") != "X-1" {
		t.Errorf("what was changed without an event is lost: %s", there)
	}
	c.says(s, "second")
	h.knows(s, "two", got.LastSeq+10_000)

	h.join("one", h.joinToken(), nil, box)
	h.await("what the node did meanwhile is known, and it has let go", func() bool {
		status, body := h.ask(http.MethodGet, "/v2/sessions/"+s, adminToken, nil)
		var shown fleet.Session
		if err := json.Unmarshal(body, &shown); status != http.StatusOK || err != nil {
			t.Fatalf("%d %s", status, body)
		}
		_, direct := h.ask(http.MethodGet, "/nodes/one/v2/sessions/"+s, adminToken, nil)
		return shown.Node == "two" && len(shown.Moves.Before) == 1 && shown.Moves.Before[0].Extra > 0 && strings.Contains(string(direct), `"state":"closed"`) && strings.Contains(string(direct), "node://two")
	})
	if m := local.call("session/prompt", prompt(s, "echo refused")); m.Err() == nil {
		t.Errorf("the node that was cut off takes prompts: %s", m.Frame())
	}
	// Through the hub the session is that of its owner, and none other.
	c.says(s, "third")
	if got := c.heard(s); !slices.Equal(got, []string{"first", "second", "third"}) {
		t.Errorf("the client heard %q", got)
	}
	h.await("all of it is copied", func() bool { return strings.Contains(strings.Join(h.lines(s, 100), "\n"), "third") })
	theirs, own := strings.Join(h.lines(s+"?node=one", 100), "\n"), strings.Join(h.lines(s, 100), "\n")
	for text, at := range map[string][2]bool{"echo first": {true, true}, "echo alone": {true, false}, "echo second": {false, true}, "echo third": {false, true}} {
		if strings.Contains(theirs, text) != at[0] || strings.Contains(own, text) != at[1] {
			t.Errorf("%q is in what the node had: %v, and in the session: %v", text, strings.Contains(theirs, text), strings.Contains(own, text))
		}
	}
	if nodes := h.listed(s); !slices.Equal(nodes, []string{"two"}) {
		t.Errorf("it is listed at %v", nodes)
	}
	again := h.hello(adminToken)
	again.must("session/load", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
	if got := again.heard(s); !slices.Equal(got, []string{"first", "second", "third"}) {
		t.Errorf("loaded: %q", got)
	}
}

// meddler stands before a gateway.
type meddler struct {
	box  http.Handler
	mu   sync.Mutex
	with func(w http.ResponseWriter, r *http.Request) bool // in place of the gateway if it returns true
}

func (m *meddler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	with := m.with
	m.mu.Unlock()
	if with == nil || !with(w, r) {
		m.box.ServeHTTP(w, r)
	}
}

func (m *meddler) meddle(with func(w http.ResponseWriter, r *http.Request) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.with = with
}

// startMeddled returns a hub with the nodes one, before which the meddler stands, and two.
func startMeddled(t testing.TB) (*hub, *meddler) {
	t.Helper()
	h, source := startCopier(t), &meddler{box: newBox(t)}
	h.join("one", h.joinToken(), nil, source)
	h.box("two", nil)
	return h, source
}

// cutShort passes on the beginning of an answer.
type cutShort struct {
	http.ResponseWriter
	left int
}

func (c *cutShort) Write(b []byte) (int, error) {
	if c.left -= len(b); c.left < 0 {
		panic(http.ErrAbortHandler)
	}
	return c.ResponseWriter.Write(b)
}

// writing is told of each part of an answer before it is written.
type writing struct {
	http.ResponseWriter
	part func()
}

func (w writing) Write(b []byte) (int, error) {
	w.part()
	return w.ResponseWriter.Write(b)
}

// Who moves a session leaves as its node gives it, and the node, which has closed it for that, notices it later. What
// another client asks meanwhile finds the session as it was.
func TestMove_GivenUpAsItIsGiven(t *testing.T) {
	h, source := startMeddled(t)
	c := h.hello(adminToken)
	s := c.session("one")
	var much strings.Builder // so that a part is written before the end: it is compressed
	for much.Len() < 1<<20 {
		much.WriteString(rand.Text())
	}
	c.must("session/prompt", prompt(s, "echo "+much.String()))
	h.knows(s, "one", 1)
	gives, noticed := make(chan struct{}), make(chan struct{})
	give, notice := sync.OnceFunc(func() { close(gives) }), sync.OnceFunc(func() { close(noticed) })
	defer notice()
	var left atomic.Bool
	source.meddle(func(w http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.URL.Path == "/v2/sessions/"+s && left.Load():
			notice()
		case strings.HasSuffix(r.URL.Path, "/export") && r.URL.Query().Get("open") == "":
			source.box.ServeHTTP(writing{w, func() { give(); <-noticed }}, r.WithContext(context.WithoutCancel(r.Context())))
			return true
		}
		return false
	})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, h.url+"/v2/sessions/"+s+"/move", strings.NewReader(`{"node":"two"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	answered := make(chan error, 1)
	go func() {
		resp, err := plain.RoundTrip(req)
		if err == nil {
			resp.Body.Close()
		}
		answered <- err
	}()
	<-gives
	c.send(`{"jsonrpc":"2.0","id":9,"method":"session/prompt","params":` + prompt(s, "echo second") + `}`)
	left.Store(true)
	leave()
	if err := <-answered; err == nil {
		t.Error("the move was answered")
	}
	if m := c.response("9"); m.Err() != nil {
		t.Errorf("the prompt was answered %s", m.Frame())
	}
	if nodes := h.listed(s); !slices.Equal(nodes, []string{"one"}) {
		t.Errorf("it is listed at %v", nodes)
	}
}

// The node breaks off what it gives: the session stays there. It breaks in the moment in which it
// lets go: the hub does not know, and finds out when it is back. At no time it is open at both.
func TestMove_SourceBreaks(t *testing.T) {
	t.Run("its hub moves it", func(t *testing.T) {
		h := startCopier(t)
		sourceBreaks(t, h, h)
	})
	t.Run("another hub moves it", func(t *testing.T) {
		one, two := peers(t)
		sourceBreaks(t, one, two)
	})
}

// sourceBreaks is that for a node of one hub, and another hub that moves its session.
func sourceBreaks(t *testing.T, h, by *hub) {
	source := &meddler{box: newBox(t)}
	n := h.join("one", h.joinToken(), nil, source)
	by.box("two", nil)
	h.awaitState("two", fleet.StateOnline)
	c := h.hello(adminToken)
	s := c.session("one")
	c.says(s, "first")
	h.bundled(s, "one")
	by.await("it can ask for the session", func() bool {
		status, _ := by.ask(http.MethodGet, "/nodes/one/v2/sessions/"+s, adminToken, nil)
		return status == http.StatusOK && len(by.listed(s)) == 1
	})

	source.meddle(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/export") && r.URL.Query().Get("open") == "" {
			source.box.ServeHTTP(&cutShort{w, 100}, r)
			return true
		}
		return false
	})
	if kind, detail := by.notMoved(s, fleet.MoveRequest{Node: "two"}); kind != "node_offline" || !strings.Contains(detail, "stays at one") {
		t.Errorf("%s: %s", kind, detail)
	}
	c.says(s, "second")

	source.meddle(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/close") {
			source.box.ServeHTTP(httptest.NewRecorder(), r)
			n.leave()
			panic(http.ErrAbortHandler)
		}
		return false
	})
	if kind, detail := by.notMoved(s, fleet.MoveRequest{Node: "two"}); kind != "node_offline" || !strings.Contains(detail, "finds out") {
		t.Errorf("%s: %s", kind, detail)
	}
	<-n.done
	h.awaitState("one", fleet.StateOffline)
	source.meddle(nil)
	h.join("one", h.joinToken(), nil, source)
	c.next(0, "that it has moved", func(m *acp.Message) bool { return m.Method() == "_sandboxagent/session/moved" })
	c.says(s, "third")
	if got := c.heard(s); !slices.Equal(got, []string{"first", "second", "third"}) {
		t.Errorf("the client heard %q", got)
	}
	h.knows(s, "two", 1) // its clients are told first
	if nodes := h.listed(s); !slices.Equal(nodes, []string{"two"}) {
		t.Errorf("it is listed at %v", nodes)
	}
}

// A session is deleted while it is on its way: nothing of it is left, also at the node that it was to go
// to, and clients that have it open do not wait for the move.
func TestMove_DeletedMeanwhile(t *testing.T) {
	h, source := startMeddled(t)
	c, other := h.hello(adminToken), h.hello(adminToken)
	s := c.session("one")
	c.says(s, "first")
	h.bundled(s, "one")
	source.meddle(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Has("movedTo") {
			h.knows(s, "two", 1)
			other.must("session/delete", `{"sessionId":"`+s+`","_meta":{"sandboxagent.dev":{"node":"one"}}}`)
			h.await("the hub has heard that it was deleted", func() bool {
				return !slices.ContainsFunc(h.store.Sessions(), func(have *store.Session) bool { return have.Session == s && have.Node == "one" })
			})
		}
		return false
	})
	if kind, detail := h.notMoved(s, fleet.MoveRequest{Node: "two"}); kind != "session_not_found" || !strings.Contains(detail, "deleted") {
		t.Errorf("%s: %s", kind, detail)
	}
	h.await("nothing is left of it", func() bool {
		all := h.list(adminToken, "?state=moved&state=gone").Sessions
		return len(all) == 0 && len(h.listed(s)) == 0 && len(h.store.Owners()) == 0
	})
	if m := c.call("session/prompt", prompt(s, "echo second")); errorKind(m) != "session_not_found" {
		t.Errorf("%s", m.Frame())
	}
}

// Who closes a session that is on its way closes it where it goes: it is not open again there.
func TestMove_ClosedMeanwhile(t *testing.T) {
	t.Parallel() // it waits more than it computes
	for _, over := range []string{"ACP", "HTTP"} {
		t.Run(over, func(t *testing.T) {
			h, source := startMeddled(t)
			c := h.hello(adminToken)
			s := c.session("one")
			c.says(s, "first")
			h.bundled(s, "one")
			closed := make(chan string, 1)
			if over == "HTTP" {
				c.stop() // who has it open follows it, and that opens it
			}
			source.meddle(func(_ http.ResponseWriter, r *http.Request) bool {
				switch {
				case !r.URL.Query().Has("movedTo"):
				case over == "HTTP":
					go func() {
						status, body := h.ask(http.MethodPost, "/v2/sessions/"+s+"/close", adminToken, nil)
						closed <- strings.TrimPrefix(fmt.Sprintf("%d %s", status, body), "204 ")
					}()
				default:
					c.send(`{"jsonrpc":"2.0","id":"closing","method":"session/close","params":{"sessionId":"` + s + `"}}`)
					c.must("session/list", `{}`) // behind it
					go func() {
						m := c.response(`"closing"`)
						closed <- errorKind(m)
					}()
				}
				return false
			})
			h.move(s, fleet.MoveRequest{Node: "two"})
			if wrong := <-closed; wrong != "" {
				t.Error(wrong)
			}
			h.await("it is closed where it went", func() bool {
				at := h.session(s)
				return at.Node == "two" && at.State == runtime.StateClosed
			})
		})
	}
}

// A session is closed while it is on its way to a node that dies of it: it stays where it was, closed.
func TestMove_ClosedAndTheOtherNodeDies(t *testing.T) {
	for _, over := range []string{"ACP", "HTTP"} {
		t.Run(over, func(t *testing.T) {
			h := startCopier(t)
			h.box("one", nil)
			c := h.hello(adminToken)
			s := c.session("one")
			c.says(s, "first")
			h.knows(s, "one", 1)
			comes, asked := make(chan struct{}), make(chan struct{})
			var dying *node
			dying = h.join("dies", h.joinToken(), nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/v2/sessions/import" {
					http.NotFound(w, r)
					return
				}
				_, _ = r.Body.Read(make([]byte, 10))
				close(comes)
				<-asked
				dying.leave()
				_, _ = io.Copy(io.Discard, r.Body) // until it breaks
			}))
			moved, closed := make(chan string, 1), make(chan string, 1)
			go func() {
				kind, detail := h.notMoved(s, fleet.MoveRequest{Node: "dies"})
				moved <- kind + ": " + detail
			}()
			<-comes
			if over == "ACP" {
				c.send(`{"jsonrpc":"2.0","id":"closing","method":"session/close","params":{"sessionId":"` + s + `"}}`)
				c.must("session/list", `{}`) // behind it
				close(asked)
				closed <- errorKind(c.response(`"closing"`))
			} else {
				go func() {
					status, body := h.ask(http.MethodPost, "/v2/sessions/"+s+"/close", adminToken, nil)
					closed <- strings.TrimPrefix(fmt.Sprintf("%d %s", status, body), "204 ")
				}()
				close(asked)
			}
			if why := <-moved; !strings.Contains(why, "stays at one") {
				t.Errorf("the move: %s", why)
			}
			if wrong := <-closed; wrong != "" {
				t.Errorf("the close: %s", wrong)
			}
			h.await("it is closed where it was", func() bool {
				at := h.session(s)
				return at.Node == "one" && at.State == runtime.StateClosed
			})
		})
	}
}

// A session is deleted in the moment in which it has gone to another node: it is not taken back, also when who
// has moved it may do so no more.
func TestMove_DeletedWhereItGoes(t *testing.T) {
	for name, revoked := range map[string]bool{"the token is good": false, "the token is revoked": true} {
		t.Run(name, func(t *testing.T) { deletedWhereItGoes(t, revoked, 0) })
	}
	t.Run("the token is revoked long before", func(t *testing.T) {
		deletedWhereItGoes(t, true, 2500*time.Millisecond) // longer than who is told so may take to read it
	})
}

func deletedWhereItGoes(t *testing.T, revoked bool, long time.Duration) {
	h := startCopier(t)
	target := &meddler{box: newBox(t)}
	h.box("one", nil)
	h.join("two", h.joinToken(), nil, target)
	c := h.hello(adminToken)
	s := c.session("one")
	c.says(s, "first")
	h.bundled(s, "one")
	token := h.token(fleet.NewToken{Kind: store.KindClient, Scope: store.ScopeDrive})
	var once sync.Once
	target.meddle(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/v2/rpc" { // to open it
			once.Do(func() {
				if revoked {
					h.ask(http.MethodDelete, "/v2/tokens/"+idOf(token), adminToken, nil)
					<-time.After(long)
				}
				answer := httptest.NewRecorder()
				target.box.ServeHTTP(answer, httptest.NewRequest(http.MethodDelete, "http://127.0.0.1/v2/sessions/"+s, nil))
				if answer.Code != http.StatusNoContent {
					t.Errorf("delete: %d %s", answer.Code, answer.Body)
				}
			})
		}
		return false
	})
	status, body := h.ask(http.MethodPost, "/v2/sessions/"+s+"/move", token, fleet.MoveRequest{Node: "two"})
	if status != http.StatusNotFound || kindOf(body) != "session_not_found" || !strings.Contains(string(body), "was deleted there") {
		t.Errorf("%d %s", status, body)
	}
	h.await("it is in no list", func() bool { return len(h.listed(s)) == 0 })
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

// The agent could not restore a session that had come to another node, and has begun another one there. When the
// session is back where it was, and is deleted, nothing is left of what the agent had there first.
func TestMove_DeletedWithAllThatAgentsKeep(t *testing.T) {
	h, dir := startCopier(t), t.TempDir()
	h.join("one", h.joinToken(), nil, newBoxIn(t, dir, session.Async, nil, nil))
	h.box("two", nil)
	c := h.hello(adminToken)
	s := c.session("one")
	for i, node := range []string{"two", "one"} {
		if got := h.move(s, fleet.MoveRequest{Node: node}); got.Node != node {
			t.Errorf("%+v", got)
		}
		c.says(s, fmt.Sprint(i))
	}
	kept := func() []string {
		files, err := filepath.Glob(filepath.Join(dir, "state", "mock", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	if len(kept()) == 0 {
		t.Error("the agent keeps nothing of a session that goes on")
	}
	c.must("session/delete", `{"sessionId":"`+s+`"}`)
	if left := kept(); len(left) > 0 {
		t.Errorf("it is deleted, and the agent has %q", left)
	}
}

// What an agent keeps of a session is on its way to the hub when the session is deleted: it is not kept.
func TestBundle_OfASessionThatIsDeletedMeanwhile(t *testing.T) {
	h, source := startMeddled(t)
	given, pass := make(chan bool, 10), make(chan bool)
	source.meddle(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/export") {
			return false
		}
		whole := httptest.NewRecorder()
		source.box.ServeHTTP(whole, r)
		given <- true
		<-pass
		maps.Copy(w.Header(), whole.Header())
		w.WriteHeader(whole.Code)
		_, _ = w.Write(whole.Body.Bytes())
		return true
	})
	c := h.hello(adminToken)
	s := c.session("one")
	c.says(s, "first")
	<-given
	id := h.store.SessionsNamed(s)[0].ReplicaID
	c.must("session/delete", `{"sessionId":"`+s+`"}`)
	h.await("the hub knows that it is deleted", func() bool { return h.store.Session(id) == nil })
	source.meddle(nil)
	close(pass)
	other := c.session("one")
	c.says(other, "second")
	h.bundled(other, "one") // one after the other
	if b, err := h.store.AboutBundle(t.Context(), id); b != nil || err != nil {
		t.Errorf("the hub keeps %+v, %v", b, err)
	}
}

// A session that somebody had closed goes on without its node. When that is back it has let go of the session as
// of any other: it does not open it, and the session can come back to it.
func TestMove_ClosedAndItsNodeIsAway(t *testing.T) {
	h := startCopier(t)
	box := newBox(t)
	n := h.join("one", h.joinToken(), nil, box)
	h.box("two", nil)
	c := h.hello(adminToken)
	s := c.session("one")
	c.says(s, "first")
	c.must("session/close", `{"sessionId":"`+s+`"}`)
	h.bundled(s, "one")
	n.leave()
	<-n.done
	h.awaitState("one", fleet.StateOffline)
	if got := h.move(s, fleet.MoveRequest{Node: "two"}); got.Node != "two" {
		t.Errorf("%+v", got)
	}
	h.join("one", h.joinToken(), nil, box)
	h.await("its node says where it went", func() bool {
		_, direct := h.ask(http.MethodGet, "/nodes/one/v2/sessions/"+s, adminToken, nil)
		return strings.Contains(string(direct), "node://two")
	})
	if got := h.move(s, fleet.MoveRequest{Node: "one"}); got.Node != "one" {
		t.Errorf("%+v", got)
	}
	c = h.hello(adminToken)
	c.must("session/load", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
	c.says(s, "second")
	if got := c.heard(s); !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("loaded: %q", got)
	}
}

// A session that was moved is deleted: nothing of it is left at the nodes that had it before, as soon as they are there.
func TestMove_DeletedLater(t *testing.T) {
	for name, c := range map[string]struct {
		away  bool // the first node is away when the session is deleted
		alone bool // and the session was open there when it went on without it
	}{
		"the first node is there":     {},
		"the first node is away":      {away: true},
		"the first node went on, too": {away: true, alone: true},
	} {
		t.Run(name, func(t *testing.T) {
			here, there := peers(t)
			box := newBox(t)
			n := here.join("one", here.joinToken(), nil, box)
			there.box("two", nil)
			here.awaitState("two", fleet.StateOnline)
			there.awaitState("one", fleet.StateOnline)
			user := there.hello(adminToken)
			s := user.session("one")
			user.says(s, "first")
			here.bundled(s, "one")
			leave := func() {
				n.leave()
				<-n.done
				there.awaitState("one", fleet.StateOffline)
			}
			if c.alone {
				leave()
			}
			there.move(s, fleet.MoveRequest{Node: "two"})
			if c.away && !c.alone {
				leave()
			}
			user.must("session/delete", `{"sessionId":"`+s+`"}`)
			here.await("no copy is left", func() bool { return len(here.store.Sessions()) == 0 && len(there.store.Sessions()) == 0 })
			if c.away {
				if len(here.store.Owners()) == 0 {
					t.Error("nobody remembers that something of it is at the first node")
				}
				here.join("one", here.joinToken(), nil, box)
			}
			here.await("nothing is left of it", func() bool {
				status, _ := here.ask(http.MethodGet, "/nodes/one/v2/sessions/"+s, adminToken, nil)
				return status == http.StatusNotFound && len(here.store.Sessions()) == 0 && len(here.store.Owners()) == 0
			})
		})
	}
}

// A session is closed as soon as it is at its new node, before the hub is told that it was open: the
// move does not wait for the hub to be told that.
func TestMove_ClosedWhereItGoes(t *testing.T) {
	h := startCopier(t)
	c, s, moved, free := h.movingToQuiet()
	c.next(0, "that it has moved", func(m *acp.Message) bool { return m.Method() == "_sandboxagent/session/moved" })
	c.must("session/close", `{"sessionId":"`+s+`"}`)
	close(free)
	select {
	case status := <-moved:
		if status != http.StatusOK {
			t.Errorf("the move was answered with %d", status)
		}
	case <-time.After(10 * time.Second):
		t.Error("the move waits for what is true no more")
		<-moved
	}
}

// A hub ends in the middle of a move. The session is where it was, and the next hub moves it.
func TestMove_HubEnds(t *testing.T) {
	dir := t.TempDir()
	h := startCopierOn(t, "first", store.Options{Dir: dir})
	source, target := &meddler{box: newBox(t)}, &meddler{box: newBox(t)}
	h.join("one", h.joinToken(), nil, source)
	h.join("two", h.joinToken(), nil, target)
	c := h.hello(adminToken)
	s := c.session("one")
	c.says(s, "first")
	h.bundled(s, "one")
	asked := make(chan struct{})
	target.meddle(func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/v2/sessions/import" {
			return false
		}
		close(asked)
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
		return true
	})
	answered := make(chan string, 1)
	go func() {
		_, body := h.ask(http.MethodPost, "/v2/sessions/"+s+"/move", adminToken, fleet.MoveRequest{Node: "two"})
		answered <- string(body)
	}()
	<-asked
	if !slices.ContainsFunc(h.store.Owners(), func(o *store.Owner) bool { return o.Session == s && o.Moving != nil }) {
		t.Error("nobody knows that it is being moved")
	}
	h.stop()
	if body := <-answered; kindOf([]byte(body)) != "unavailable" || !strings.Contains(body, "stays at one") {
		t.Errorf("who waited was told %s", body)
	}
	target.meddle(nil)
	h = startCopierOn(t, "second", store.Options{Dir: dir})
	h.join("one", h.joinToken(), nil, source)
	h.join("two", h.joinToken(), nil, target)
	c = h.hello(adminToken)
	c.must("session/load", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
	c.says(s, "second")
	if got := h.move(s, fleet.MoveRequest{Node: "two"}); got.Node != "two" {
		t.Errorf("%+v", got)
	}
	c.says(s, "third")
	if got := c.heard(s); !slices.Equal(got, []string{"first", "second", "third"}) {
		t.Errorf("the client heard %q", got)
	}
}

// A hub ends when the node of another one has just let go of the session that it moves: the other finishes the
// move, though nothing more changes of the session.
func TestMove_HubOfAnotherNodeEnds(t *testing.T) {
	t.Parallel() // it waits more than it computes

	shared, copies := store.Options{URL: natsServer(t), Advertise: advertised}, fleet.Options{Replicate: true} // what agents keep is one more reason to look
	h, ends := startHubThat(t, "stays", shared, copies), startHubThat(t, "ends", shared, copies)
	source := &meddler{box: newBox(t)}
	h.join("one", h.joinToken(), nil, source)
	h.box("two", nil)
	c := h.hello(adminToken)
	s := c.session("one")
	c.says(s, "first")
	ends.knows(s, "one", 1)
	source.meddle(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/close") {
			return false
		}
		source.box.ServeHTTP(w, r)
		var last <-chan struct{} // the node tells once more, of all that came behind
		h.await("the hub of the node has heard of it", func() bool {
			last = h.store.SessionNews()
			return rawjson.MemberString(h.session(s).Metadata, "movedTo") != ""
		})
		select {
		case <-last:
		case <-r.Context().Done():
		}
		ends.store.Close()
		return true
	})
	ends.notMoved(s, fleet.MoveRequest{Node: "two"})
	c.next(0, "that it has moved", func(m *acp.Message) bool { return m.Method() == "_sandboxagent/session/moved" })
	c.says(s, "second")
	if nodes := h.listed(s); !slices.Equal(nodes, []string{"two"}) {
		t.Errorf("it is listed at %v", nodes)
	}
}

// A node dies in the middle of a turn. The session goes on at another one: who asked is told, what
// the hub had is there, and what is known to be missing is said. The node that comes back is not
// sent the prompt again.
func TestMove_NodeDiesInATurn(t *testing.T) {
	h := startCopier(t)
	source := &meddler{box: newBox(t)}
	n := h.join("one", h.joinToken(), nil, source)
	h.box("two", nil)
	c := h.hello(adminToken)
	s := c.session("one")
	c.says(s, "first")
	h.bundled(s, "one")
	// From here on nothing more is given to the hub, though it is told that there is more.
	source.meddle(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/events") {
			panic(http.ErrAbortHandler)
		}
		return false
	})
	c.send(`{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":` + prompt(s, "permission") + `}`)
	c.next(0, "the permission request", func(m *acp.Message) bool { return m.Method() == "session/request_permission" })
	h.await("the hub knows that something is missing", func() bool { return h.session(s).Replica.Missing > 0 })
	n.leave()
	<-n.done
	h.awaitState("one", fleet.StateOffline)
	missing := h.session(s).Replica.Missing
	got := h.move(s, fleet.MoveRequest{Node: "two"})
	if got.Remembered == 0 || got.Remembered > got.LastSeq {
		t.Errorf("the agent knows the session up to event %d of %d", got.Remembered, got.LastSeq)
	}
	if got.Missing == 0 || got.Missing != missing {
		t.Errorf("%d events are missing, and it says %+v", missing, got)
	}
	if end := c.response("7"); errorKind(end) != "node_offline" {
		t.Errorf("the prompt was answered %s", end.Frame())
	}
	m, _ := c.next(0, "that it has moved", func(m *acp.Message) bool { return m.Method() == "_sandboxagent/session/moved" })
	if raw, _ := rawjson.Member(m.Params(), "missing"); string(raw) != fmt.Sprint(missing) {
		t.Errorf("%s", m.Frame())
	}
	c.next(0, "that nobody asks any more", func(m *acp.Message) bool { return m.Method() == "$/cancel_request" })
	c.says(s, "second")
	source.meddle(nil)
	h.join("one", h.joinToken(), nil, source)
	h.await("the node's own end of it is known", func() bool {
		before := h.session(s).Moves.Before
		return len(before) == 1 && before[0].Missing == missing && before[0].Extra >= missing
	})
	c.says(s, "third")
	if prompts := strings.Count(strings.Join(h.lines(s+"?node=one", 100), "\n"), `"session/prompt"`); prompts != 2 {
		t.Errorf("the node that was lost had %d prompts, want 2", prompts)
	}
	if got := c.heard(s); !slices.Equal(got[:1], []string{"first"}) || !slices.Equal(got[len(got)-2:], []string{"second", "third"}) {
		t.Errorf("the client heard %q", got)
	}
}

// Why the next node does not take a session is told, whatever the hub is about when it hears of it.
func TestMove_RevivedSessionIsRefused(t *testing.T) {
	h := startCopier(t)
	n := h.join("one", h.joinToken(), nil, newBox(t))
	c := h.hello(adminToken)
	s := c.session("one")
	c.must("session/prompt", prompt(s, "flood 200 65536"))
	h.bundled(s, "one")
	var some atomic.Int64
	h.join("two", h.joinToken(), nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.CopyN(io.Discard, r.Body, some.Load()) // the rest is not read
		problem.Write(w, problem.New(problem.InsufficientStorage, "there is no room for it"))
	}))
	n.leave()
	<-n.done
	h.awaitState("one", fleet.StateOffline)
	for _, part := range []int64{0, 100, 1 << 10, 16 << 10} { // it is compressed
		some.Store(part)
		if kind, detail := h.notMoved(s, fleet.MoveRequest{Node: "two"}); kind != "insufficient_storage" || !strings.Contains(detail, "there is no room for it") {
			t.Errorf("refused after %d bytes: %s: %s", part, kind, detail)
		}
	}
}

// A sandbox is made anew with an empty disk. The session is brought back to it.
func TestMove_DiskIsLost(t *testing.T) {
	h := startCopier(t)
	n := h.join("one", h.joinToken(), nil, newBox(t))
	c := h.hello(adminToken)
	s := c.session("one")
	c.says(s, "first")
	h.bundled(s, "one")
	c.stop() // else it opens the session again, as far as the agent itself still knows it
	n.leave()
	<-n.done
	h.awaitState("one", fleet.StateOffline)
	if kind, _ := h.notMoved(s, fleet.MoveRequest{}); kind != "node_offline" {
		t.Errorf("without another node: %s", kind)
	}
	h.join("one", h.joinToken(), nil, newBox(t))
	h.await("the session is gone", func() bool { return h.session(s).State == fleet.SessionGone })
	if got := h.move(s, fleet.MoveRequest{}); got.Node != "one" || got.Missing != 0 || got.Term != 2 || got.LastSeq == 0 {
		t.Errorf("%+v", got)
	}
	c = h.hello(adminToken)
	c.must("session/load", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
	c.says(s, "second")
	if got := c.heard(s); !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("loaded: %q", got)
	}
	h.await("it is there", func() bool { return h.session(s).State == runtime.StateIdle })
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
	n.leave()
	<-n.done
	h.awaitState("one", fleet.StateOffline)
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
			n.leave()
			<-n.done
			h.awaitState("two", fleet.StateOffline)
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
		n.leave()
		<-n.done
		h.awaitState("one", fleet.StateOffline)
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

// A node that goes away while it is asked is named, and the error says what to do.
func TestMove_NodeDoesNotAnswer(t *testing.T) {
	h := startCopier(t)
	g := newGateway()
	g.put("s", begun, some(2, nil)...)
	var one *node
	joined := make(chan struct{})
	one = h.join("one", h.joinToken(), nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v2/sessions/s" {
			<-joined
			one.leave()
			<-r.Context().Done()
			return
		}
		g.ServeHTTP(w, r)
	}))
	close(joined)
	h.join("two", h.joinToken(), nil, newGateway())
	h.copied("s", 2)
	status, body := h.ask(http.MethodPost, "/v2/sessions/s/move", adminToken, fleet.MoveRequest{Node: "two"})
	if kindOf(body) != "node_offline" || !strings.Contains(string(body), "one does not answer: ") || strings.Contains(string(body), "localhost") {
		t.Errorf("%d %s", status, body)
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
