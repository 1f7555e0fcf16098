package fleet_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/fleet"
	"sandboxagent.dev/sandbox-agent/fleet/store"
)

// peers are two hubs with one store that can reach each other.
func peers(t *testing.T) (one, two *hub) {
	t.Helper()
	shared := store.Options{URL: natsServer(t), Advertise: advertised}
	return startCopierOn(t, "one", shared), startCopierOn(t, "two", shared)
}

// A client at one hub uses a node whose tunnel another one holds, by every way.
func TestPeers_PassRequestsOn(t *testing.T) {
	one, two := peers(t)
	one.box("box", map[string]string{"team": "a"})
	two.awaitState("box", fleet.StateOnline)
	token := one.token(fleet.NewToken{Kind: store.KindClient, Scope: store.ScopeDrive})
	two.await("the other hub answers for the node", func() bool {
		status, _ := two.ask(http.MethodGet, "/nodes/box/v2/sessions", token, nil)
		return status == http.StatusOK
	})
	c := two.hello(token)
	s := c.session("box")
	c.send(`{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":` + prompt(s, "permission") + `}`)
	ask, _ := c.next(0, "the permission request", func(m *acp.Message) bool { return m.Method() == "session/request_permission" })
	c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"outcome":{"outcome":"cancelled"}}}`, ask.ID()))
	if end := c.response("7"); end.Err() != nil {
		t.Errorf("%s", end.Frame())
	}
	through := dial(t, two.url+"/nodes/box", token)
	through.must("initialize", `{"protocolVersion":1,"clientCapabilities":{}}`)
	through.must("session/load", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
	// The token is checked by the hub that was asked.
	foreign := one.token(fleet.NewToken{Kind: store.KindClient, Scope: store.ScopeAdmin, Labels: map[string]string{"team": "b"}})
	two.await("the token is known", func() bool {
		status, body := two.ask(http.MethodGet, "/nodes/box/v2/sessions", foreign, nil)
		return status == http.StatusNotFound && kindOf(body) == "node_not_found"
	})
}

// A hub that has just started has requests wait for the nodes of the one before it. One of them joins another hub, with other labels: it is
// none for those who have waited, by whatever way they came, and is sent nothing.
func TestPeers_NodeComesWithOtherLabels(t *testing.T) {
	t.Parallel() // it waits more than it computes
	shared := store.Options{URL: natsServer(t), Advertise: advertised}
	before, other := startCopierOn(t, "before", shared), startCopierOn(t, "other", shared)
	token := before.joinToken()
	n := before.begin(before.url, "box", token, map[string]string{"team": "x"}, newGateway())
	other.awaitState("box", fleet.StateOnline)
	n.leave()
	<-n.done
	before.stop()
	h := startCopierOn(t, "after", shared)
	of := h.token(fleet.NewToken{Kind: store.KindClient, Scope: store.ScopeDrive, Labels: map[string]string{"team": "x"}})
	answer := h.asksBy(of, http.MethodGet, "/nodes/box/v2/sessions", nil)
	c := h.hello(of)
	c.send(`{"jsonrpc":"2.0","id":"asked","method":"session/new","params":{"cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"node":"box"}}}}`)
	c.must("session/list", `{}`) // behind it
	sent, own := make(chan string, 100), newGateway()
	other.begin(other.url, "box", token, map[string]string{"team": "y"}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v2/sessions/changes" {
			sent <- r.Method + " " + r.URL.Path
		}
		own.ServeHTTP(w, r)
	}))
	if got := <-answer; !strings.HasPrefix(got, "404") || !strings.Contains(got, "node_not_found") {
		t.Errorf("over HTTP: %s", got)
	}
	if m := c.response(`"asked"`); errorKind(m) != "node_not_found" {
		t.Errorf("over ACP: %s", m.Frame())
	}
	for len(sent) > 0 {
		t.Errorf("the node was asked %s", <-sent)
	}
}

// A node whose hub cannot be asked is not chosen for a session, neither for a new one nor for one that moves, as long as there is
// another one. Alone, it is said what to do.
func TestPeers_NodeThatCannotBeAskedIsNotChosen(t *testing.T) {
	shared := store.Options{URL: natsServer(t)}
	one, two := startCopierOn(t, "one", shared), startCopierOn(t, "two", shared)
	one.box("a", nil) // of two with as much work it would be the first
	two.awaitState("a", fleet.StateOnline)
	c := two.hello(adminToken)
	if m := c.call("session/new", `{"cwd":"/tmp","mcpServers":[]}`); m.Err() == nil || !strings.Contains(string(m.Frame()), "--advertise") {
		t.Errorf("with no other one: %s", m.Frame())
	}
	two.box("b", nil)
	s := rawjson.MemberString(c.must("session/new", `{"cwd":"/tmp","mcpServers":[]}`), "sessionId")
	c.says(s, "first")
	two.bundled(s, "b")
	if kind, detail := two.notMoved(s, fleet.MoveRequest{}); kind != "node_not_found" {
		t.Errorf("a move to any other one: %s, %s", kind, detail)
	}
	two.box("c", nil)
	if got := two.move(s, fleet.MoveRequest{}); got.Node != "c" {
		t.Errorf("a move when there is one: %+v", got)
	}
}

// What hubs ask each other nobody else can ask, and it goes no further than one hub.
func TestPeers_AreNotForClients(t *testing.T) {
	one, two := peers(t)
	seen := make(chan http.Header, 8)
	one.join("box", one.joinToken(), nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v2/sessions/changes" { // which the hub asks for itself
			http.NotFound(w, r)
			return
		}
		seen <- r.Header
		w.Header().Set("Location", "/v2/elsewhere")
		_, _ = io.Copy(w, r.Body)
	}))
	two.awaitState("box", fleet.StateOnline)
	for _, secret := range []string{"", adminToken, one.joinToken(), one.token(fleet.NewToken{Kind: store.KindClient, Scope: store.ScopeAdmin}), two.store.Secret()} {
		if status, body := one.ask(http.MethodGet, "/v2/peer/nodes/box/v2/sessions", secret, nil); status != http.StatusUnauthorized && status != http.StatusNotFound {
			t.Errorf("with %.10s: %d %s", secret, status, body)
		}
	}
	for _, path := range []string{"/v2/nodes", "/nodes/box/v2/sessions", "/v2/tokens", "/v2/rpc", "/v2/join"} {
		if status, body := one.ask(http.MethodGet, path, one.store.Secret(), nil); status != http.StatusForbidden {
			t.Errorf("%s with the secret of hubs: %d %s", path, status, body)
		}
	}
	if len(seen) > 0 {
		t.Fatal("the node was asked")
	}
	if status, body := two.ask(http.MethodGet, "/v2/peer/nodes/box/v2/sessions", two.store.Secret(), nil); status != http.StatusServiceUnavailable || kindOf(body) != "node_offline" {
		t.Errorf("a hub that does not hold the node: %d %s", status, body)
	}
	resp := two.open(http.MethodPost, "/nodes/box/x?y=1", adminToken, "words")
	defer resp.Body.Close()
	if b, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || string(b) != `"words"` || resp.Header.Get("Location") != "/nodes/box/v2/elsewhere" {
		t.Errorf("%s %q, leads to %q: %v", resp.Status, b, resp.Header.Get("Location"), err)
	}
	for name, values := range <-seen {
		for _, v := range values {
			if strings.Contains(v, one.store.Secret()) || strings.Contains(v, adminToken) || name == "X-Sandbox-Hub-For" {
				t.Errorf("the node sees %s: %s", name, v)
			}
		}
	}
	for _, path := range []string{"/v2/nodes", "/v2/nodes/box", "/v2/version", "/metrics", "/v2/tokens"} {
		if _, body := two.ask(http.MethodGet, path, adminToken, nil); strings.Contains(string(body), one.store.Secret()) || strings.Contains(string(body), two.store.Secret()) {
			t.Errorf("%s shows a secret of hubs", path)
		}
	}
}

// The hub that holds a node ends while an agent streams, and the node joins the other one.
// A client of that one sees each piece once.
func TestPeers_HubOfTheNodeEnds(t *testing.T) {
	one, two := peers(t)
	n := one.box("box", nil)
	two.awaitState("box", fleet.StateOnline)
	c := two.hello(adminToken)
	two.await("the other hub says how it is reached", func() bool {
		_, _, ok := two.store.Peer("one")
		return ok
	})
	s := c.session("box")
	c.send(`{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":` + prompt(s, "slow") + `}`)
	piece := func(m *acp.Message) bool { return m.Session() == s && string(m.UpdateKind()) == "agent_message_chunk" }
	_, at := c.next(0, "a piece", piece)
	n.leave() // as when its hub is gone: it comes back elsewhere, as the same gateway
	<-n.done
	one.stop()
	two.join("box", two.joinToken(), nil, n.srv.Handler)
	_, at = c.next(at, "that the node is back", func(m *acp.Message) bool {
		return m.Method() == "_sandboxagent/node/state" && rawjson.MemberString(m.Params(), "state") == "online"
	})
	c.next(at, "a piece", piece)
	c.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"` + s + `"}}`)
	if end := c.response("7"); rawjson.MemberString(end.Result(), "stopReason") != "cancelled" {
		t.Errorf("%s", end.Frame())
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	ticks := 0
	for i := range c.got {
		if !piece(&c.got[i]) {
			continue
		}
		if got, want := rawjson.MemberString(c.got[i].Update(), "content", "text"), fmt.Sprintf("tick %d ", ticks); got != want {
			t.Fatalf("the client sees %q, want %q", got, want)
		}
		ticks++
	}
}

// A hub that was killed is named by the store for a while. Who asks for its nodes does not
// wait for that.
func TestPeers_HubIsDead(t *testing.T) {
	shared := store.Options{URL: natsServer(t), Advertise: advertised}
	h := startHubOn(t, "alive", shared)
	shared.Hub, shared.Advertise = "dead", "http://127.0.0.1:1"
	dead, err := store.Open(t.Context(), shared, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer dead.Close()
	if _, err := dead.Join(t.Context(), store.Node{Name: "box", Version: "test", Instance: "instance"}, func(store.Node) error { return nil }); err != nil {
		t.Fatal(err)
	}
	h.awaitState("box", fleet.StateOnline)
	c := h.hello(adminToken)
	began := time.Now()
	if m := c.call("session/new", `{"cwd":"/tmp","mcpServers":[]}`); errorKind(m) != "node_offline" {
		t.Errorf("%s", m.Frame())
	}
	if status, body := h.ask(http.MethodGet, "/nodes/box/v2/sessions", adminToken, nil); status != http.StatusServiceUnavailable || kindOf(body) != "node_offline" {
		t.Errorf("%d %s", status, body)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("that took %v", took)
	}
	// It had no time to note that its node is gone: when the node came is not when it was last there.
	dead.Close()
	h.awaitState("box", fleet.StateOffline)
	if _, body := h.ask(http.MethodGet, "/nodes/box/v2/sessions", adminToken, nil); kindOf(body) != "node_offline" || !strings.Contains(string(body), "since the hub that it joined ended") || strings.Contains(string(body), `"since"`) {
		t.Errorf("%s", body)
	}
	if _, body := h.ask(http.MethodGet, "/v2/nodes/box", adminToken, nil); strings.Contains(string(body), `"since"`) || !strings.Contains(string(body), `"joined"`) {
		t.Errorf("%s", body)
	}
}

// A hub was killed and started anew at the same address. Until the store tells of that, its nodes are
// away: it is not the client's token that is not known there.
func TestPeers_HubIsAnotherRun(t *testing.T) {
	shared := store.Options{URL: natsServer(t), Advertise: advertised}
	log := &logged{}
	h := startHubThat(t, "alive", shared, fleet.Options{Replicate: true, Bundles: true, Logger: slog.New(slog.NewTextHandler(log, nil))})
	shared.Hub, shared.Advertise = "killed", startHubOn(t, "anew", shared).url
	killed, err := store.Open(t.Context(), shared, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer killed.Close()
	if _, err := killed.Join(t.Context(), store.Node{Name: "box", Version: "test", Instance: "instance"}, func(store.Node) error { return nil }); err != nil {
		t.Fatal(err)
	}
	h.awaitState("box", fleet.StateOnline)
	h.box("here", nil)
	c := h.hello(adminToken)
	s := c.session("here")
	c.says(s, "one")
	h.knows(s, "here", 1)
	if m := c.call("session/new", `{"cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"node":"box"}}}`); errorKind(m) != "node_offline" || strings.Contains(string(m.Frame()), shared.Advertise) {
		t.Errorf("session/new: %s", m.Frame())
	}
	for _, r := range []struct {
		method, path string
		body         any
	}{
		{http.MethodGet, "/nodes/box/v2/sessions", nil},
		{http.MethodPost, "/v2/sessions/" + s + "/move", map[string]string{"node": "box"}},
	} {
		if status, body := h.ask(r.method, r.path, adminToken, r.body); status != http.StatusServiceUnavailable || kindOf(body) != "node_offline" {
			t.Errorf("%s: %d %s", r.path, status, body)
		}
	}
	if n := log.count("another hub cannot be asked"); n != 1 {
		t.Errorf("the log says so %d times", n)
	}
}

// The machine of a hub is lost, or stopped: it closes no connection and answers nothing. Who has asked it
// waits no longer than until the store knows.
func TestPeers_HubIsSilent(t *testing.T) {
	shared := store.Options{URL: natsServer(t), Advertise: advertised}
	h := startCopierOn(t, "alive", shared)
	h.box("here", nil)
	asked, lost := make(chan struct{}, 8), make(chan struct{})
	streams := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/stream"):
			_ = http.NewResponseController(w).Flush()
		case r.Header.Get("Upgrade") == "words":
			if conn := acceptWords(t, w); conn != nil {
				defer conn.Close()
			}
		}
		asked <- struct{}{}
		<-lost
	}))
	defer streams.Close()
	defer close(lost)
	shared.Hub, shared.Advertise = "silent", streams.URL
	silent, err := store.Open(t.Context(), shared, nil)
	if err != nil {
		t.Fatal(err)
	}
	end := sync.OnceFunc(silent.Close)
	defer end()
	if _, err := silent.Join(t.Context(), store.Node{Name: "box", Version: "test", Instance: "instance"}, func(store.Node) error { return nil }); err != nil {
		t.Fatal(err)
	}
	h.awaitState("box", fleet.StateOnline)
	c := h.hello(adminToken)
	s := c.session("here")
	c.says(s, "one")
	h.knows(s, "here", 1)
	answers := make(chan string, 5)
	ask := func(method, path string, body any) {
		status, b := h.ask(method, path, adminToken, body)
		answers <- fmt.Sprint(path, " ", status, " ", kindOf(b))
	}
	go ask(http.MethodGet, "/nodes/box/v2/sessions", nil)
	go ask(http.MethodPost, "/v2/sessions/"+s+"/move", map[string]string{"node": "box"})
	go func() {
		m := c.call("session/new", `{"cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"node":"box"}}}`)
		answers <- "session/new 503 " + errorKind(m)
	}()
	stream := h.open(http.MethodGet, "/nodes/box/stream", adminToken, nil) // it has begun before the hub is gone
	go func() {
		defer stream.Body.Close()
		if _, err := io.Copy(io.Discard, stream.Body); err != nil {
			answers <- "a stream 503 node_offline"
			return
		}
		answers <- "a stream looks whole"
	}()
	_, words := h.speakWords("box")
	go func() {
		_, _ = io.Copy(io.Discard, words)
		answers <- "another protocol 503 node_offline"
	}()
	for range 5 {
		<-asked
	}
	end() // as when its lease runs out
	for range 5 {
		select {
		case got := <-answers:
			if !strings.HasSuffix(got, " 503 node_offline") {
				t.Error(got)
			}
		case <-time.After(patience):
			t.Fatal("nobody says that the hub is gone")
		}
	}
}

// acceptWords answers a request that wants to go on with the protocol "words", and returns its connection;
// nil when there is none.
func acceptWords(t *testing.T, w http.ResponseWriter) net.Conn {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		t.Error(err)
		return nil
	}
	_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: words\r\n\r\n")
	return conn
}

// speakWords has a node go on with that protocol.
func (h *hub) speakWords(node string) (*net.TCPConn, io.Reader) {
	h.t.Helper()
	conn, err := (&net.Dialer{}).DialContext(h.t.Context(), "tcp", strings.TrimPrefix(h.url, "http://"))
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = conn.Close() })
	_, _ = fmt.Fprintf(conn, "GET /nodes/%s/words HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nConnection: Upgrade\r\nUpgrade: words\r\n\r\n", node, conn.RemoteAddr(), adminToken)
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		h.t.Fatalf("%+v, %v", resp, err)
	}
	return conn.(*net.TCPConn), in
}

// What goes on with another protocol passes through two hubs as through one: a client that has said all is
// answered.
func TestPeers_OtherProtocol(t *testing.T) {
	one, two := peers(t)
	one.join("box", one.joinToken(), nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") == "" {
			http.NotFound(w, r)
			return
		}
		if conn := acceptWords(t, w); conn != nil {
			defer conn.Close()
			said, _ := io.ReadAll(conn)
			_, _ = fmt.Fprintf(conn, "you said %s", said)
		}
	}))
	two.awaitState("box", fleet.StateOnline)
	for _, h := range []*hub{one, two} {
		conn, in := h.speakWords("box")
		_, _ = io.WriteString(conn, "all")
		if err := conn.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(in); err != nil || string(got) != "you said all" {
			t.Errorf("%q, %v", got, err)
		}
	}
}

// The way to the hub of a node breaks behind a request, which may have been done then. Of one that never left that is not said.
func TestPeers_BreaksBehindARequest(t *testing.T) {
	shared := store.Options{URL: natsServer(t), Advertise: advertised}
	h := startHubOn(t, "alive", shared)
	came := make(chan struct{}, 1)
	breaks := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/held") {
			_, _ = io.Copy(io.Discard, r.Body) // else it is not noticed that the hub is gone
			came <- struct{}{}
			<-r.Context().Done()
		}
		panic(http.ErrAbortHandler)
	}))
	defer breaks.Close()
	for hub, address := range map[string]string{"breaks": breaks.URL, "closed": "http://127.0.0.1:1"} {
		shared.Hub, shared.Advertise = hub, address
		other, err := store.Open(t.Context(), shared, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer other.Close()
		if _, err := other.Join(t.Context(), store.Node{Name: "at-" + hub, Version: "test", Instance: "instance"}, func(store.Node) error { return nil }); err != nil {
			t.Fatal(err)
		}
		h.awaitState("at-"+hub, fleet.StateOnline)
	}
	for path, unknown := range map[string]bool{"/nodes/at-breaks/v2/processes": true, "/nodes/at-closed/v2/processes": false} {
		status, body := h.ask(http.MethodPost, path, adminToken, map[string]string{"command": "true"})
		if said := strings.Contains(string(body), `"done":"unknown"`); status != http.StatusServiceUnavailable || kindOf(body) != "node_offline" || said != unknown {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	answer := make(chan string, 1)
	go func() {
		_, body := h.ask(http.MethodPost, "/nodes/at-breaks/held", adminToken, map[string]string{})
		answer <- string(body)
	}()
	<-came
	h.ends()
	if body := <-answer; kindOf([]byte(body)) != "unavailable" || !strings.Contains(body, `"done":"unknown"`) {
		t.Errorf("as the hub ends: %s", body)
	}
}
