package fleet_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/fleet"
	"sandboxagent.dev/sandbox-agent/fleet/replica"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/runtime"
	"sandboxagent.dev/sandbox-agent/runtime/session"
)

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
	h.loses(n, "one")
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

// A session goes back to a node that was cut off, and that has done more alone than was said in the session since. What
// it did alone is kept as a copy of its own, and nothing of it is in the session. So does one whose node has said less.
func TestMove_BackToWhereItWasCutOff(t *testing.T) {
	t.Parallel() // it waits more than it computes
	for name, alone := range map[string]string{"more": "flood 12000 10", "less": "echo alone"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := startCopier(t)
			box := newBox(t)
			n := h.join("one", h.joinToken(), nil, box)
			h.box("two", nil)
			c := h.hello(adminToken)
			s := c.session("one")
			c.says(s, "first")
			h.bundled(s, "one")
			h.loses(n, "one")
			h.move(s, fleet.MoveRequest{Node: "two"})
			c.says(s, "second")
			h.bundled(s, "two")
			c.stop()
			h.aloneAt(box, s, alone)
			h.join("one", h.joinToken(), nil, box)
			h.await("it has let go", func() bool {
				_, direct := h.ask(http.MethodGet, "/nodes/one/v2/sessions/"+s, adminToken, nil)
				return strings.Contains(string(direct), `"state":"closed"`) && strings.Contains(string(direct), "node://two")
			})
			if got := h.move(s, fleet.MoveRequest{Node: "one"}); got.Node != "one" || got.Term != 3 {
				t.Errorf("%+v", got)
			}
			c = h.hello(adminToken)
			c.must("session/load", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
			c.says(s, "third")
			if got := c.heard(s); !slices.Equal(got, []string{"first", "second", "third"}) {
				t.Errorf("the client heard %q", got)
			}
			h.await("all of it is copied", func() bool {
				return h.session(s).Epoch == 2 && h.session(s).Replica.Missing == 0 && strings.Contains(strings.Join(h.lines(s, 100), "\n"), "third")
			})
			text, before := strings.Join(h.lines(s, 100), "\n"), strings.Join(h.lines(s+"?node=one&epoch=1", 100), "\n")
			if strings.Contains(text, alone) || !strings.Contains(text, "second") || !strings.Contains(before, alone) || strings.Contains(before, "second") {
				t.Errorf("the session:\n%s\nwhat the node did alone:\n%s", text, before)
			}
			if got := h.session(s + "?epoch=1&node=one"); got.State != fleet.SessionGone || got.Replica.Missing != 0 {
				t.Errorf("what the node did alone is %s, and misses %d", got.State, got.Replica.Missing)
			}
		})
	}
}

// What a node did alone is counted by events, also where a kill had it leave out numbers.
func TestMove_ExtraIsOfEvents(t *testing.T) {
	t.Parallel() // it waits more than it computes
	h, dir, killed := startCopier(t), t.TempDir(), t.TempDir()
	token := h.joinToken()
	n := h.join("one", token, nil, newBoxIn(t, dir, session.Async, nil, nil))
	h.box("two", nil)
	c := h.hello(adminToken)
	s := c.session("one")
	c.says(s, "first")
	h.bundled(s, "one")
	c.stop()
	copyLive(t, dir, killed)
	h.loses(n, "one")
	h.move(s, fleet.MoveRequest{Node: "two"})
	box := newBoxIn(t, killed, session.Async, nil, nil)
	h.aloneAt(box, s, "echo alone")
	h.join("one", token, nil, box)
	h.await("what the node did alone is known", func() bool { return strings.Contains(strings.Join(h.lines(s+"?node=one", 100), "\n"), "echo alone") })
	var before fleet.MovedFrom
	events, last := uint64(0), uint64(0)
	h.await("all of it is counted", func() bool {
		before, events = h.session(s).Moves.Before[0], 0
		for _, line := range h.lines(s+"?node=one", 100) {
			if last = replica.SeqOf([]byte(line)); last > before.LastSeq {
				events++
			}
		}
		return before.Extra == events
	})
	if events == 0 || last <= before.LastSeq+events {
		t.Errorf("there are %d events behind %d, the last is %d: no number was left out, so nothing was tried", events, before.LastSeq, last)
	}
}

// What a move that failed has brought to a node that had the session before is nothing that the node did.
func TestMove_ExtraIsNotWhatCame(t *testing.T) {
	t.Parallel() // it waits more than it computes
	h, source := startMeddled(t)
	c := h.hello(adminToken)
	s := c.session("two")
	c.says(s, "first")
	h.bundled(s, "two")
	h.move(s, fleet.MoveRequest{Node: "one"})
	c.says(s, "second")
	h.bundled(s, "one")
	direct := dial(t, h.url+"/nodes/one", adminToken)
	direct.must("initialize", `{"protocolVersion":1,"clientCapabilities":{}}`)
	source.meddle(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.URL.Query().Has("movedTo") {
			direct.must("_sandboxagent/session/set_metadata", fmt.Sprintf(`{"sessionId":%q,"metadata":{"ticket":"X-1"}}`, s))
		}
		return false
	})
	if kind, detail := h.notMoved(s, fleet.MoveRequest{Node: "two"}); kind != "conflict" || !strings.Contains(detail, "it went on while it was moved") {
		t.Errorf("%s: %s", kind, detail)
	}
	h.await("what came to the other node is copied", func() bool { return strings.Contains(strings.Join(h.lines(s+"?node=two", 100), "\n"), "echo second") })
	h.await("it is left there", func() bool { return strings.Contains(string(h.session(s+"?node=two").Metadata), "node://one") })
	if got := h.session(s).Moves.Before; len(got) != 1 || got[0].Node != "two" || got[0].Extra != 0 {
		t.Errorf("the nodes before: %+v", got)
	}
}

// aloneAt has somebody say something in a session at a gateway itself.
func (h *hub) aloneAt(box http.Handler, s, text string) {
	h.t.Helper()
	alone := httptest.NewServer(box)
	defer alone.Close()
	local := dial(h.t, alone.URL, "")
	local.must("initialize", `{"protocolVersion":1,"clientCapabilities":{}}`)
	local.must("session/load", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
	local.must("session/prompt", prompt(s, text))
	local.stop()
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
	h.loses(n, "one")
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
	h.loses(n, "one")
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
	h.loses(n, "one")
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

// What the hub could not copy, in the middle of a session, is told where the session goes on.
func TestMove_CopyWithAGap(t *testing.T) {
	h, source := startCopier(t), &meddler{box: newBox(t)}
	n := h.join("one", h.joinToken(), nil, source)
	h.box("two", nil)
	c := h.hello(adminToken)
	s := c.session("one")
	c.says(s, "first")
	h.bundled(s, "one")
	first := h.session(s).Replica.LastSeq + 1
	events := func(with func(w http.ResponseWriter, after uint64) bool) {
		source.meddle(func(w http.ResponseWriter, r *http.Request) bool {
			after, _ := strconv.ParseUint(r.URL.Query().Get("after"), 10, 64)
			return strings.HasSuffix(r.URL.Path, "/events") && with(w, after)
		})
	}
	events(func(http.ResponseWriter, uint64) bool { panic(http.ErrAbortHandler) })
	c.says(s, "second")
	_, body := h.ask(http.MethodGet, "/nodes/one/v2/sessions/"+s, adminToken, nil)
	var there runtime.SessionInfo
	if err := json.Unmarshal(body, &there); err != nil || there.EventCount <= first {
		t.Fatalf("%s: %v", body, err)
	}
	last := there.EventCount
	events(func(w http.ResponseWriter, after uint64) bool { // it has let go of them meanwhile
		if after >= last {
			return false
		}
		problem.Write(w, problem.New(problem.EventsExpired, "old").With("oldestSeq", last+1))
		return true
	})
	c.says(s, "third")
	h.bundled(s, "one")
	c.stop()
	h.loses(n, "one")
	shows := func(where string) {
		t.Helper()
		c := h.hello(adminToken)
		defer c.stop()
		c.must("session/load", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
		if got := c.heard(s); !slices.Equal(got, []string{"first", "third"}) {
			t.Errorf("%s: it shows %q", where, got)
		}
		var told []string
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, m := range c.got {
			if strings.HasSuffix(m.Method(), "events_damaged") {
				told = append(told, string(m.Params()))
			}
		}
		if want := fmt.Sprintf(`"sessionId":%q,"firstSeq":%d,"lastSeq":%d`, s, first, last); len(told) != 1 || !strings.Contains(told[0], want) {
			t.Errorf("%s: it tells of %q, want %s", where, told, want)
		}
	}
	shows("the copy")
	if got := h.move(s, fleet.MoveRequest{Node: "two"}); got.Node != "two" || got.Missing != 0 {
		t.Errorf("%+v", got)
	}
	shows("where it went")
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
