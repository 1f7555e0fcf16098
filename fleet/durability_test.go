package fleet_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/control"
	"sandboxagent.dev/sandbox-agent/fleet"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/runtime/session"
)

// syncBox is a gateway whose sessions are sync, as a node and at an address of its own. While
// stuck is set, what the hub asks for to store it is not answered, also when it asked before.
type syncBox struct {
	*node
	url   string
	stuck atomic.Bool
	freed chan struct{} // closed when those that are stuck go on
	// handler is the gateway.
	handler http.Handler
	older   bool         // it is of a version that knows no lines
	breaks  bool         // each line ends with its third page, and of that the half comes
	lines   atomic.Int64 // that were begun
}

// stuckWriter is an answer that does not begin while its node is stuck.
type stuckWriter struct {
	http.ResponseWriter
	b *syncBox
	r *http.Request
}

func (w *stuckWriter) WriteHeader(status int) {
	w.wait()
	w.ResponseWriter.WriteHeader(status)
}

func (w *stuckWriter) Write(p []byte) (int, error) {
	w.wait()
	return w.ResponseWriter.Write(p)
}

func (w *stuckWriter) wait() {
	if w.b.stuck.Load() {
		select {
		case <-w.b.freed:
		case <-w.r.Context().Done():
		}
	}
}

// Hijack implements http.Hijacker.
func (w *stuckWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffered, err := http.NewResponseController(w.ResponseWriter).Hijack()
	ctx, cancel := context.WithCancel(context.Background())
	w.b.lines.Add(1)
	return &stuckConn{Conn: conn, w: &stuckWriter{b: w.b, r: w.r.WithContext(ctx)}, cancel: cancel}, buffered, err
}

// stuckConn is the same for a connection that goes on with pages.
type stuckConn struct {
	net.Conn
	w      *stuckWriter
	cancel func()
	pages  int
}

func (c *stuckConn) Write(p []byte) (int, error) {
	c.w.wait()
	if c.pages++; c.w.b.breaks && c.pages == 3 {
		_, _ = c.Conn.Write(p[:len(p)/2])
		return len(p) / 2, c.Close()
	}
	return c.Conn.Write(p)
}

func (c *stuckConn) Close() error {
	c.cancel()
	return c.Conn.Close()
}

func (w *stuckWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (h *hub) syncBox(name string) *syncBox { return h.syncBoxOf(name, &syncBox{}) }

func (h *hub) syncBoxOf(name string, b *syncBox) *syncBox {
	h.t.Helper()
	b.freed = make(chan struct{})
	joined := make(chan struct{})
	box := newBoxTold(h.t, session.Sync, func(bound time.Duration) error {
		<-joined
		return b.joiner.Trouble(bound)
	}, nil)
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(control.HeaderStored) != "" {
			w = &stuckWriter{w, b, r}
		}
		if b.older && r.Header.Get("Upgrade") == control.ProtocolAttend {
			r.Header.Del("Upgrade")
		}
		box.ServeHTTP(w, r)
	})
	b.handler = box
	srv := httptest.NewServer(handler)
	h.t.Cleanup(srv.Close)
	b.url = srv.URL
	b.node = h.join(name, h.joinToken(), nil, handler)
	close(joined)
	return b
}

// startSync starts a hub with the gateway box, a client of it, and a session.
func startSync(t *testing.T) (h *hub, b *syncBox, c *client, session string) {
	t.Helper()
	return startSyncOf(t, &syncBox{})
}

func startSyncOf(t *testing.T, of *syncBox) (h *hub, b *syncBox, c *client, session string) {
	t.Helper()
	h = startCopier(t)
	b = h.syncBoxOf("box", of)
	c = dial(t, b.url, "")
	c.must("initialize", numbered)
	return h, b, c, rawjson.MemberString(c.must("session/new", `{"cwd":"/tmp","mcpServers":[]}`), "sessionId")
}

// seqOf returns the number of the event that a message is, 0 for none.
func seqOf(m *acp.Message) uint64 {
	raw, _ := rawjson.Member(m.Meta(), acp.MetaKey, "seq")
	n, _ := strconv.ParseUint(string(raw), 10, 64)
	return n
}

const numbered = `{"protocolVersion":1,"clientCapabilities":{"_meta":{"sandboxagent.dev":{"notices":true,"eventIds":true}}}}`

// Whenever a client is shown an event, the hub has it, also those that stand before it. That
// there is a session at all is one of the things that it has.
func TestSync_ShownWhenStored(t *testing.T) {
	for name, of := range map[string]*syncBox{"a line": {}, "an older node": {older: true}, "lines that break": {breaks: true}} {
		t.Run(name, func(t *testing.T) { shownWhenStored(t, of) })
	}
}

func shownWhenStored(t *testing.T, of *syncBox) {
	h, b, c, s := startSyncOf(t, of)
	if !slices.ContainsFunc(h.store.Sessions(), func(r *store.Session) bool { return r.Session == s }) {
		t.Fatal("a client knows a session that the hub does not")
	}
	id := store.ReplicaID{Node: "box", Session: s, Epoch: 1}
	stored := func(seq uint64) {
		t.Helper()
		end, err := h.store.End(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		if end.Last < seq {
			t.Fatalf("event %d was shown, and the hub has them up to %d", seq, end.Last)
		}
	}
	c.send(`{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":` + prompt(s, "stream 300 20") + `}`)
	at, last := 0, uint64(0)
	for n := range 300 {
		m, i := c.next(at, "a piece", func(m *acp.Message) bool { return string(m.UpdateKind()) == "agent_message_chunk" })
		at = i + 1
		seq := seqOf(m)
		if n > 0 && seq != last+1 {
			t.Fatalf("event %d stands behind event %d", seq, last)
		}
		last = seq
		stored(seq)
	}
	if m := c.response("7"); m.Err() != nil {
		t.Fatalf("%s", m.Frame())
	}
	stored(last + 1) // the answer
	if n := b.lines.Load(); of.older != (n == 0) || n > 1 != of.breaks {
		t.Errorf("%d lines were begun", n)
	}
	if list := h.list(adminToken, "").Sessions; len(list) != 1 || list[0].Durability != session.Sync {
		t.Errorf("the list: %+v", list)
	}
	// Who asks the gateway for more than is shown gets nothing by it.
	resp := h.open(http.MethodGet, "/nodes/box/v2/sessions/"+s+"/events", adminToken, nil)
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Errorf("a page of events: %s", resp.Status)
	}
}

// While the hub does not store it nothing is shown, to nobody and by no way. Clients are told, and
// it comes whole when the hub has it.
func TestSync_HubDoesNotStore(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	t.Parallel() // it waits for ten seconds
	h, b, c, s := startSync(t)
	c.must("session/prompt", prompt(s, "echo before"))
	shown := func() string {
		t.Helper()
		resp, err := plain.RoundTrip(must(http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+"/v2/sessions/"+s, nil)))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return string(must(io.ReadAll(resp.Body)))
	}
	h.await("all of it is stored", func() bool { return !strings.Contains(shown(), "unstored") })
	b.stuck.Store(true)
	c.send(`{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":` + prompt(s, "echo meanwhile") + `}`)
	h.await("the gateway has what is not shown", func() bool { return strings.Contains(shown(), `"unstored"`) && strings.Contains(shown(), `"idle"`) })
	storage, _ := c.next(0, "that the hub does not store it", func(m *acp.Message) bool { return m.Method() == "_sandboxagent/session/storage" })
	if !strings.Contains(string(storage.Frame()), `"writable":false`) || !strings.Contains(string(storage.Frame()), "durability is sync") {
		t.Errorf("the client is told %s", storage.Frame())
	}
	if m := c.call("session/prompt", prompt(s, "echo more")); errorKind(m) != "unavailable" {
		t.Errorf("a prompt meanwhile: %s", m.Frame())
	}
	other := dial(t, b.url, "")
	other.must("initialize", numbered)
	other.must("session/load", fmt.Sprintf(`{"sessionId":%q,"cwd":"/tmp","mcpServers":[]}`, s))
	for _, path := range []string{"/events", "/transcript", "/events?after=0&limit=1000"} {
		resp, err := plain.RoundTrip(must(http.NewRequestWithContext(t.Context(), http.MethodGet, b.url+"/v2/sessions/"+s+path, nil)))
		if err != nil {
			t.Fatal(err)
		}
		text := string(must(io.ReadAll(resp.Body)))
		resp.Body.Close()
		if !strings.Contains(text, "before") || strings.Contains(text, "meanwhile") {
			t.Errorf("%s shows %s", path, text)
		}
	}
	for i, who := range []*client{c, other} {
		who.mu.Lock()
		for _, m := range who.got {
			if strings.Contains(string(m.Frame()), "meanwhile") {
				t.Errorf("client %d was shown %s", i, m.Frame())
			}
		}
		who.mu.Unlock()
	}
	b.stuck.Store(false)
	close(b.freed)
	if m := c.response("7"); m.Err() != nil {
		t.Errorf("the prompt: %s", m.Frame())
	}
	for i, who := range []*client{c, other} {
		who.next(0, fmt.Sprintf("what client %d was not shown", i), func(m *acp.Message) bool {
			return string(m.UpdateKind()) == "agent_message_chunk" && strings.Contains(string(m.Frame()), "meanwhile")
		})
	}
	c.next(0, "that the hub stores it", func(m *acp.Message) bool {
		return m.Method() == "_sandboxagent/session/storage" && strings.Contains(string(m.Frame()), `"writable":true`)
	})
	c.must("session/prompt", prompt(s, "echo after"))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// When the node is gone the list says of its sessions what each one does by itself: all that was
// copied, and nothing waits for the store any more.
func TestSync_ListWithoutTheNode(t *testing.T) {
	h, b, c, s := startSync(t)
	c.must("session/prompt", prompt(s, "stream 300 20"))
	c.must("session/prompt", prompt(s, "echo x"))
	b.leave()
	<-b.done
	h.awaitState("box", fleet.StateOffline)
	h.await("what is known is noted", func() bool {
		one, list := h.session(s), h.list(adminToken, "").Sessions
		return len(list) == 1 && one.State == fleet.SessionOffline && list[0].Replica.LastSeq >= 300 && list[0].Replica.LastSeq == one.Replica.LastSeq && list[0].EventCount == one.EventCount
	})
	if got := h.list(adminToken, "").Sessions[0]; got.Unstored != 0 || got.Replica.Missing != 0 {
		t.Errorf("all is stored, and the list has %d unstored and %d missing", got.Unstored, got.Replica.Missing)
	}
}

// What a node had told of and the hub does not have is missing, once the node is away, and waits for
// nothing.
func TestSync_MissingWithoutTheNode(t *testing.T) {
	t.Parallel() // it waits more than it computes
	h, b, c, s := startSync(t)
	c.must("session/prompt", prompt(s, "echo before"))
	b.stuck.Store(true)
	c.send(`{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":` + prompt(s, "echo meanwhile") + `}`)
	h.await("the hub hears of what it does not have", func() bool {
		got := h.session(s)
		return got.Unstored > 0 && got.Replica.Missing == got.Unstored
	})
	b.leave()
	<-b.done
	h.awaitState("box", fleet.StateOffline)
	for what, got := range map[string]fleet.Session{"the session": h.session(s), "the list": h.list(adminToken, "").Sessions[0]} {
		if got.Unstored != 0 || got.Replica.Missing == 0 || got.EventCount != got.Replica.LastSeq {
			t.Errorf("%s has %d events, copied up to %d, %d missing, %d unstored", what, got.EventCount, got.Replica.LastSeq, got.Replica.Missing, got.Unstored)
		}
	}
}

// A hub that has been away for ten seconds stores nothing, whenever something is asked for: prompts and
// new sessions are refused at once, and nothing is begun.
func TestSync_HubIsAway(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long")
	}
	t.Parallel() // it waits for ten seconds
	h, b, c, s := startSync(t)
	c.must("session/prompt", prompt(s, "echo before"))
	b.leave()
	<-b.done
	h.await("the hub is away for ten seconds", func() bool { return b.joiner.Trouble(10*time.Second) != nil })
	begun := time.Now()
	for method, params := range map[string]string{
		"session/prompt": prompt(s, "echo meanwhile"),
		"session/new":    `{"cwd":"/tmp","mcpServers":[]}`,
		"session/fork":   fmt.Sprintf(`{"sessionId":%q,"cwd":"/tmp","mcpServers":[]}`, s),
	} {
		if m := c.call(method, params); errorKind(m) != "unavailable" || !strings.Contains(m.Err().Message, "not been connected to the hub") {
			t.Errorf("%s: %s", method, m.Frame())
		}
	}
	if took := time.Since(begun); took > 9*time.Second {
		t.Errorf("to be refused took %v", took)
	}
	c.must("session/new", `{"cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"durability":"async"}}}`)
}

// A hub that copies nothing says so when a gateway joins it.
func TestSync_HubCopiesNothing(t *testing.T) {
	h := startHubWith(t, "hub", store.Options{Dir: t.TempDir()}, false)
	b := h.syncBox("box")
	h.await("the gateway has heard it", func() bool { // the hub says that it has joined before it has the answer
		err := b.joiner.Trouble(0)
		return err != nil && strings.Contains(err.Error(), "--no-replicas")
	})
	c := dial(t, b.url, "")
	c.must("initialize", numbered)
	begun := time.Now()
	if m := c.call("session/new", `{"cwd":"/tmp","mcpServers":[]}`); errorKind(m) != "unavailable" || !strings.Contains(m.Err().Message, "--no-replicas") {
		t.Errorf("%s", m.Frame())
	}
	if took := time.Since(begun); took > 9*time.Second {
		t.Errorf("to be refused took %v", took)
	}
}

// In a store that takes no more no session is made, and clients of those that are there are told why
// they take no work.
func TestSync_StoreIsFull(t *testing.T) {
	t.Parallel() // it waits more than it computes
	h := startCopierOn(t, "hub", store.Options{Dir: t.TempDir(), LogBytes: 1 << 20})
	b := h.syncBox("box")
	c := dial(t, b.url, "")
	c.must("initialize", numbered)
	s := rawjson.MemberString(c.must("session/new", `{"cwd":"/tmp","mcpServers":[]}`), "sessionId")
	c.send(`{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":` + prompt(s, "stream 6000 200") + `}`)
	storage, _ := c.next(0, "that the hub stores no more", func(m *acp.Message) bool { return m.Method() == "_sandboxagent/session/storage" })
	if !strings.Contains(string(storage.Frame()), "--replica-bytes is reached") {
		t.Errorf("the client is told %s", storage.Frame())
	}
	begun := time.Now()
	for method, params := range map[string]string{"session/prompt": prompt(s, "echo more"), "session/new": `{"cwd":"/tmp","mcpServers":[]}`} {
		if m := c.call(method, params); errorKind(m) != "unavailable" || !strings.Contains(m.Err().Message, "--replica-bytes is reached") {
			t.Errorf("%s: %s", method, m.Frame())
		}
	}
	if took := time.Since(begun); took > 9*time.Second {
		t.Errorf("to be refused took %v", took)
	}
}

// A line ends when it says what cannot be. What was not given is stored nowhere.
func TestSync_LineSaysWhatCannotBe(t *testing.T) {
	h, b, c, s := startSync(t)
	c.must("session/prompt", prompt(s, "echo x"))
	h.await("all of it is stored", func() bool { return h.session(s).Unstored == 0 })
	srv := httptest.NewUnstartedServer(b.handler)
	srv.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context { return control.Vouch(ctx) }
	srv.Start()
	defer srv.Close()
	for name, said := range map[string]func(upTo uint64) string{
		"more than was given": func(upTo uint64) string { return fmt.Sprintf("%d\n", upTo+1) },
		"no number":           func(upTo uint64) string { return fmt.Sprintf("x%d\n", upTo) },
		"no end":              func(uint64) string { return strings.Repeat("1", 8<<10) },
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := net.Dial("tcp", srv.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(time.Minute))
			_, _ = fmt.Fprintf(conn, "GET /v2/sessions/%s/events?after=0&limit=100 HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: %s\r\n%s: 0\r\nPrefer: wait=60\r\n\r\n", s, control.ProtocolAttend, control.HeaderStored)
			in := bufio.NewReader(conn)
			resp, err := http.ReadResponse(in, nil)
			if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
				t.Fatalf("%v, %v", resp, err)
			}
			page, err := in.ReadBytes('\n')
			if err != nil {
				t.Fatal(err)
			}
			var given struct{ UpTo uint64 }
			if err := json.Unmarshal(page, &given); err != nil || given.UpTo == 0 {
				t.Fatalf("%s: %v", page, err)
			}
			if _, err := io.WriteString(conn, said(given.UpTo)); err != nil {
				t.Fatal(err)
			}
			if rest, err := io.ReadAll(in); len(rest) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("then it gives %s, %v", rest, err)
			}
		})
	}
}

// Nobody but the hub can say that something is stored.
func TestSync_OthersCannotConfirm(t *testing.T) {
	h, b, c, s := startSync(t)
	c.must("session/prompt", prompt(s, "echo one"))
	ask := func(url, token string) (int, string) {
		req := must(http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/v2/sessions/"+s+"/events?after=0", nil))
		req.Header.Set(control.HeaderStored, "1000")
		req.Header.Set("Prefer", "wait=30")
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", control.ProtocolAttend)
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := plain.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body := make([]byte, 64<<10)
		n, _ := resp.Body.Read(body)
		return resp.StatusCode, string(body[:n])
	}
	if status, body := ask(b.url, ""); status != http.StatusForbidden || kindOf([]byte(body)) != "permission_denied" {
		t.Errorf("at the gateway: %d %s", status, body)
	}
	if status, body := ask(h.url+"/nodes/box", adminToken); status != http.StatusOK || strings.Contains(body, "upTo") {
		t.Errorf("through the hub: %d %s", status, body)
	}
}

// What a session asks for is what it gets, and it is told when it cannot have it.
func TestSync_OfASession(t *testing.T) {
	h := startCopier(t)
	h.box("box", nil)
	c := h.hello(adminToken)
	made := rawjson.MemberString(c.must("session/new", `{"cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"durability":"sync"}}}`), "sessionId")
	c.must("session/prompt", prompt(made, "echo x"))
	h.await("the hub says so", func() bool { return h.session(made).Durability == session.Sync && h.session(made).Unstored == 0 })
	usual := c.session("box")
	h.knows(usual, "box", 0)
	if d := h.session(usual).Durability; d != "" {
		t.Errorf("a session that asks for nothing is %s", d)
	}
	if m := c.call("session/new", `{"cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"durability":"full"}}}`); m.Err() == nil || !strings.Contains(m.Err().Message, "async or sync") {
		t.Errorf("a durability that there is not: %s", m.Frame())
	}
	loaded := c.must("session/load", fmt.Sprintf(`{"sessionId":%q,"cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"durability":"async"}}}`, made))
	if !strings.Contains(string(loaded), "it is chosen when a session is made, and is sync") {
		t.Errorf("a load with another one: %s", loaded)
	}
	h.syncBox("other")
	if status, body := h.ask(http.MethodPost, "/v2/sessions/"+made+"/move", adminToken, fleet.MoveRequest{Node: "other"}); status != http.StatusOK {
		t.Errorf("it moves: %d %s", status, body)
	}
	c.must("session/prompt", prompt(made, "echo there"))
	if s := h.session(made); s.Node != "other" || s.Durability != session.Sync {
		t.Errorf("it is at %s, and %s", s.Node, s.Durability)
	}
}

// A session that is sync because its node makes such ones stays so where others are made.
func TestSync_ByDefaultAndMoved(t *testing.T) {
	h, _, _, s := startSync(t)
	h.box("other", nil)
	c := h.hello(adminToken)
	c.must("session/load", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
	c.says(s, "here")
	h.move(s, fleet.MoveRequest{Node: "other"})
	c.says(s, "there")
	fork := rawjson.MemberString(c.must("session/fork", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`), "sessionId")
	for _, id := range []string{s, fork} {
		h.knows(id, "other", 0)
		if got := h.session(id); got.Node != "other" || got.Durability != session.Sync {
			t.Errorf("%s is at %s, and %q", id, got.Node, got.Durability)
		}
	}
	usual := c.session("other")
	h.knows(usual, "other", 0)
	if d := h.session(usual).Durability; d != "" {
		t.Errorf("one that is made there is %s", d)
	}
}

// BenchmarkDurability says what it costs to be shown what is stored: a turn of one line, and one
// of 2,000.
func BenchmarkDurability(b *testing.B) {
	for _, d := range session.Durabilities {
		for _, text := range []string{"echo x", "stream 2000 20"} {
			b.Run(fmt.Sprintf("%s/%s", d, strings.Fields(text)[0]), func(b *testing.B) {
				h := startCopier(b)
				h.join("box", h.joinToken(), nil, newBoxOf(b, d))
				c := h.hello(adminToken)
				s := c.session("box")
				c.must("session/prompt", prompt(s, "echo x"))
				for b.Loop() {
					c.mu.Lock()
					c.got = c.got[:0]
					c.mu.Unlock()
					c.must("session/prompt", prompt(s, text))
				}
			})
		}
	}
}
