package fleet_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/nats-io/nats-server/v2/server"

	"sandboxagent.dev/sandbox-agent/fleet"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/fleet/store/storetest"
	"sandboxagent.dev/sandbox-agent/fleet/tunnel"
)

// knock asks to join as a gateway does, and returns the WebSocket or the problem.
func (h *hub) knock(token string, hello tunnel.Hello) (*websocket.Conn, int, string) {
	h.t.Helper()
	header := hello.Header()
	header.Set("Authorization", "Bearer "+token)
	ws, resp, err := websocket.Dial(h.t.Context(), h.url+tunnel.Path, &websocket.DialOptions{
		HTTPClient: &http.Client{Transport: plain}, HTTPHeader: header, Subprotocols: []string{tunnel.Subprotocol}, CompressionMode: websocket.CompressionDisabled,
	})
	if err == nil {
		h.t.Cleanup(func() { _ = ws.CloseNow() })
		return ws, resp.StatusCode, ""
	}
	if resp == nil {
		h.t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body) // the library keeps the beginning
	return nil, resp.StatusCode, string(body)
}

func hello(name string, labels map[string]string) tunnel.Hello {
	return tunnel.Hello{Name: name, Labels: labels, Version: "test", Instance: "INSTANCEOF" + strings.Repeat("X", 10)}
}

func TestJoin_WhoMayJoinAsWhom(t *testing.T) {
	h := startHub(t)
	a := map[string]string{"team": "a"}
	any, teamA := h.joinToken(), h.token(fleet.NewToken{Kind: store.KindJoin, Labels: a})
	teamB := h.token(fleet.NewToken{Kind: store.KindJoin, Labels: map[string]string{"team": "b"}})
	one := h.token(fleet.NewToken{Kind: store.KindJoin, Node: "one"})
	ws, _, problem := h.knock(teamA, hello("taken", nil))
	if ws == nil {
		t.Fatal(problem)
	}
	h.awaitState("taken", fleet.StateOnline)
	other := hello("taken", nil)
	other.Instance = strings.Repeat("Y", 20)
	oldInstance := hello("old", nil)
	oldInstance.Instance = "short"
	tests := []struct {
		name  string
		token string
		hello tunnel.Hello
		want  int
		says  string
	}{
		{"the one of the token", one, hello("one", nil), 101, ""},
		{"another than that of the token", one, hello("two", nil), 403, "the token is for the node one"},
		{"a label that the token has not", teamA, hello("new", map[string]string{"team": "b"}), 403, "team=a"},
		{"further labels", teamA, hello("further", map[string]string{"zone": "x"}), 101, ""},
		{"a name of other labels, that is gone or not", teamB, hello("taken", nil), 403, "belongs to a node that this token is not for"},
		{"a name in use, as another program", any, other, 409, "another gateway is connected as taken"},
		{"a name in use, as the same program", teamA, hello("taken", nil), 101, ""},
		{"no name", any, hello("", nil), 400, "no name of a node"},
		{"a name with a path", any, hello("../v2", nil), 400, "no name of a node"},
		{"labels that are none", any, hello("x", map[string]string{"a b": "c"}), 400, "name of a label"},
		{"no instance", any, oldInstance, 400, "which instance"},
	}
	for _, tt := range tests {
		_, status, body := h.knock(tt.token, tt.hello)
		if status != tt.want || !strings.Contains(body, tt.says) {
			t.Errorf("%s: %d %s, want %d with %q", tt.name, status, body, tt.want, tt.says)
		}
	}
	_, body := h.ask(http.MethodGet, "/v2/nodes/further", adminToken, nil)
	var n fleet.Node
	if err := json.Unmarshal(body, &n); err != nil || n.Labels["team"] != "a" || n.Labels["zone"] != "x" {
		t.Errorf("the node's labels and its token's: %s", body)
	}
}

// The same program is let in again at once, while its old connection seems to live:
// its network has changed. What went through the old one ends.
func TestJoin_AgainTakesOver(t *testing.T) {
	h := startHub(t)
	token := h.joinToken()
	first := h.tunnel(token, "box")
	h.awaitState("box", fleet.StateOnline)
	end := h.tunnel(token, "box")
	select {
	case <-first.Done():
	case <-time.After(patience):
		t.Fatal("the old tunnel goes on")
	}
	h.awaitState("box", fleet.StateOnline)
	srv := &http.Server{Handler: echo}
	defer srv.Close()
	go func() { _ = srv.Serve(accepting{end}) }()
	if status, body := h.ask(http.MethodPost, "/nodes/box/x", adminToken, "hello"); status != http.StatusOK || string(body) != `"hello"` {
		t.Errorf("through the new tunnel: %d %s", status, body)
	}
	_ = end.Close()
	h.awaitState("box", fleet.StateOffline)
}

// tunnel joins, and leaves it to the test to accept streams.
func (h *hub) tunnel(token, name string) *tunnel.Tunnel {
	h.t.Helper()
	ws, _, problem := h.knock(token, hello(name, nil))
	if ws == nil {
		h.t.Fatal(problem)
	}
	end, err := tunnel.Node(ws)
	if err != nil {
		h.t.Fatal(err)
	}
	h.t.Cleanup(func() { _ = end.Close() })
	return end
}

func TestJoin_RevokedTokenEndsTunnel(t *testing.T) {
	h := startHub(t)
	token := h.joinToken()
	h.join("box", token, nil, echo)
	if status, _ := h.ask(http.MethodDelete, "/v2/nodes/box", adminToken, nil); status != http.StatusConflict {
		t.Errorf("a node that is online was removed: %d", status)
	}
	if status, body := h.ask(http.MethodDelete, "/v2/tokens/"+idOf(token), adminToken, nil); status != http.StatusNoContent {
		t.Fatalf("revoke: %d %s", status, body)
	}
	h.awaitState("box", fleet.StateOffline)
	status, body := h.ask(http.MethodPost, "/nodes/box/v2/rpc", adminToken, "x")
	if status != http.StatusServiceUnavailable || kindOf(body) != "node_offline" || !strings.Contains(string(body), "joins again by itself") {
		t.Errorf("a node that is offline: %d %s", status, body)
	}
	if status, body := h.ask(http.MethodDelete, "/v2/nodes/box", adminToken, nil); status != http.StatusNoContent {
		t.Errorf("remove: %d %s", status, body)
	}
	if status, body := h.ask(http.MethodPost, "/nodes/box/v2/rpc", adminToken, "x"); status != http.StatusNotFound || kindOf(body) != "node_not_found" {
		t.Errorf("a node that was removed: %d %s", status, body)
	}
}

// The file with the token is read for each attempt, so a token can be replaced; when
// the file is gone, the last one is used.
func TestJoin_TokenIsReplaced(t *testing.T) {
	t.Parallel() // it waits more than it computes
	h := startHub(t)
	n := h.begin(h.url, "box", "sah-aaaaaaaaaaaa-nobodys", nil, echo)
	h.await("it was refused", func() bool {
		_, body := h.ask(http.MethodGet, "/metrics", adminToken, nil)
		return strings.Contains(string(body), `status="401"`)
	})
	token := h.joinToken()
	if err := os.WriteFile(n.tokenFile, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	h.awaitState("box", fleet.StateOnline)
	if err := os.Remove(n.tokenFile); err != nil {
		t.Fatal(err)
	}
	shown := func() (n fleet.Node) {
		if status, body := h.ask(http.MethodGet, "/v2/nodes/box", adminToken, nil); status != http.StatusOK || json.Unmarshal(body, &n) != nil {
			t.Fatalf("%d %s", status, body)
		}
		return n
	}
	if status, body := h.ask(http.MethodPost, "/nodes/box/x", adminToken, "x"); status != http.StatusOK { // there is the tunnel, too
		t.Fatalf("%d %s", status, body)
	}
	before := shown()
	// The hub ends the tunnel, and the node comes back: it may be away for a tenth of a second.
	h.hub.Moved("box", "another")
	h.await("the node is back", func() bool {
		now := shown()
		return now.State == fleet.StateOnline && now.Since.After(before.Since)
	})
}

// One token cannot take all streams of a node, and all together no more than there are.
func TestProxy_Shares(t *testing.T) {
	h := startHub(t)
	var open sync.WaitGroup
	open.Add(256)
	h.join("box", h.joinToken(), nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hold" {
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			open.Done()
			<-r.Context().Done()
		}
	}))
	var held []*http.Response
	defer func() {
		for _, r := range held {
			r.Body.Close()
		}
	}()
	for i := range 2 {
		token := h.token(fleet.NewToken{Kind: store.KindClient, Scope: store.ScopeDrive})
		for range 128 {
			resp := h.open(http.MethodGet, "/nodes/box/hold", token, nil)
			held = append(held, resp)
			if resp.StatusCode != http.StatusOK {
				t.Fatalf("stream %d: %d", len(held), resp.StatusCode)
			}
		}
		status, body := h.ask(http.MethodGet, "/nodes/box/x", token, nil)
		if status != http.StatusTooManyRequests || !strings.Contains(string(body), "of this token") {
			t.Errorf("one more of token %d: %d %s", i, status, body)
		}
	}
	open.Wait()
	status, body := h.ask(http.MethodGet, "/nodes/box/x", adminToken, nil)
	if status != http.StatusTooManyRequests || !strings.Contains(string(body), "256") {
		t.Errorf("one more of another: %d %s", status, body)
	}
	for _, r := range held {
		r.Body.Close()
	}
	held = nil
	h.await("there is room again", func() bool {
		status, _ := h.ask(http.MethodGet, "/nodes/box/x", adminToken, nil)
		return status == http.StatusOK
	})
}

// stuck is a client that takes nothing of its answer until it is let go of.
type stuck struct {
	*httptest.ResponseRecorder
	begun, free chan struct{}
}

func (s stuck) Write(b []byte) (int, error) {
	close(s.begun)
	<-s.free
	return s.ResponseRecorder.Write(b)
}

// A hub that ends waits for what goes on as long as it is told to, whatever that is.
func TestHub_ShutdownHasABound(t *testing.T) {
	h := startHub(t)
	client := stuck{httptest.NewRecorder(), make(chan struct{}), make(chan struct{})}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		h.hub.ServeHTTP(client, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/v2/health", nil))
	}()
	<-client.begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.hub.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("it says %v", err)
	}
	close(client.free)
	<-answered
}

// A hub that ends ends what goes through it, and answers what it has begun.
func TestHub_Shutdown(t *testing.T) {
	h := startHub(t)
	h.join("box", h.joinToken(), nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	answer := make(chan string, 1)
	go func() {
		status, body := h.ask(http.MethodGet, "/nodes/box/x", adminToken, nil)
		answer <- fmt.Sprint(status, kindOf(body))
	}()
	h.await("the request is there", func() bool {
		_, body := h.ask(http.MethodGet, "/metrics", adminToken, nil)
		return strings.Contains(string(body), "sandbox_hub_tunnel_streams 1")
	})
	h.ends()
	if got := <-answer; got != "503unavailable" {
		t.Errorf("the open request was answered %s", got)
	}
	if status, _ := h.ask(http.MethodGet, "/v2/ready", "", nil); status != http.StatusServiceUnavailable {
		t.Errorf("it says that it is ready: %d", status)
	}
	if n, _ := h.store.Node("box"); n.Connected {
		t.Error("the store still says that the node is connected")
	}
}

// A client that does not send what it has announced holds up neither the end of its token nor that of the hub,
// and is told.
func TestHub_ClientsThatSendNothing(t *testing.T) {
	t.Parallel() // it waits more than it computes
	ends := map[string]struct {
		end  func(h *hub, token string)
		want string
	}{
		"its token": {func(h *hub, token string) { h.ask(http.MethodDelete, "/v2/tokens/"+idOf(token), adminToken, nil) }, "401token_invalid"},
		"the hub":   {func(h *hub, _ string) { h.stop() }, "503unavailable"},
	}
	for what, e := range ends {
		t.Run(what, func(t *testing.T) {
			h := startHub(t)
			h.join("box", h.joinToken(), nil, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
			token := h.token(fleet.NewToken{Kind: store.KindClient, Scope: store.ScopeAdmin})
			answers := map[string]chan string{}
			for _, begun := range []string{"POST /v2/tokens 100", "POST /nodes/box/x 100", "PUT /nodes/box/v2/fs/file 100000000"} {
				method, rest, _ := strings.Cut(begun, " ")
				path, length, _ := strings.Cut(rest, " ")
				conn, err := net.Dial("tcp", strings.TrimPrefix(h.url, "http://"))
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close()
				fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: hub\r\nAuthorization: Bearer %s\r\nContent-Length: %s\r\n\r\n{", method, path, token, length)
				answer := make(chan string, 1)
				answers[begun] = answer
				go func() {
					resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
					if err != nil {
						answer <- err.Error()
						return
					}
					defer resp.Body.Close()
					body, _ := io.ReadAll(resp.Body) // what is cut is no problem
					answer <- fmt.Sprint(resp.StatusCode, kindOf(body))
				}()
			}
			h.await("all of them are served", func() bool {
				_, body := h.ask(http.MethodGet, "/metrics", adminToken, nil)
				return strings.Contains(string(body), fmt.Sprintf("sandbox_hub_http_requests_open %d\n", 1+len(answers)))
			})
			e.end(h, token)
			for begun, answer := range answers {
				select {
				case got := <-answer:
					if got != e.want {
						t.Errorf("%s was answered %s, want %s", begun, got, e.want)
					}
				case <-time.After(patience):
					t.Errorf("%s is open still", begun)
				}
			}
		})
	}
}

// When a hub is replaced all its nodes come back by themselves.
func TestJoin_ComeBack(t *testing.T) {
	t.Parallel() // it waits more than it computes
	const nodes = 100
	shared := store.Options{URL: natsServer(t)}
	h, after := startHubOn(t, "before", shared), startHubOn(t, "after", shared)
	var mu sync.Mutex
	var present http.Handler = h.hub
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		to := present
		mu.Unlock()
		to.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close) // behind the nodes' own
	token := h.joinToken()
	for i := range nodes {
		h.begin(front.URL, fmt.Sprintf("node-%d", i), token, nil, echo)
	}
	tunnels := func(of *hub) func() bool {
		return func() bool {
			_, body := of.ask(http.MethodGet, "/metrics", adminToken, nil)
			return strings.Contains(string(body), fmt.Sprintf("\nsandbox_hub_tunnels %d\n", nodes))
		}
	}
	h.await("all have joined", tunnels(h))
	mu.Lock()
	present = after.hub
	mu.Unlock()
	h.ends()
	after.await("all have come back", tunnels(after))
}

// Hubs that share a store know the same nodes and tokens. A node is used at the hub
// that it has joined, and when it joins another one the first lets go of it.
func TestHubs_ShareAStore(t *testing.T) {
	shared := store.Options{URL: natsServer(t)}
	one, two := startHubOn(t, "one", shared), startHubOn(t, "two", shared)
	token := one.token(fleet.NewToken{Kind: store.KindClient, Scope: store.ScopeDrive})
	first := one.tunnel(one.joinToken(), "box")
	one.awaitState("box", fleet.StateOnline)
	two.awaitState("box", fleet.StateOnline)
	two.await("the token is known", func() bool {
		status, body := two.ask(http.MethodGet, "/nodes/box/v2/sessions", token, nil)
		return status == http.StatusServiceUnavailable && kindOf(body) == "node_offline" && strings.Contains(string(body), "another hub of this store, one")
	})
	second := two.tunnel(two.joinToken(), "box")
	select {
	case <-first.Done():
	case <-time.After(patience):
		t.Fatal("the first hub holds on to the node")
	}
	two.awaitState("box", fleet.StateOnline)
	srv := &http.Server{Handler: echo}
	defer srv.Close()
	go func() { _ = srv.Serve(accepting{second}) }()
	if status, body := two.ask(http.MethodPost, "/nodes/box/x", token, "hello"); status != http.StatusOK {
		t.Errorf("at the second hub: %d %s", status, body)
	}
	one.awaitState("box", fleet.StateOnline) // as the second one says
}

// A node joins another hub while its tunnel at the first one is being opened. The first hub lets go of it
// all the same, though it had no tunnel to end when it was told.
func TestHubs_NodeIsTakenWhileItJoins(t *testing.T) {
	shared := store.Options{URL: natsServer(t)}
	one, two := startHubOn(t, "one", shared), startHubOn(t, "two", shared)
	front, told, release := holding(t, one)
	first := (&hub{t: t, url: front}).tunnel(one.joinToken(), "box")
	<-told
	two.await("the other hub knows of the node", func() bool { _, ok := two.store.Node("box"); return ok })
	second := two.tunnel(two.joinToken(), "box")
	one.await("the first hub is told", func() bool { n, _ := one.store.Node("box"); return n.Hub == "two" })
	release()
	select {
	case <-first.Done():
	case <-time.After(patience):
		t.Fatal("the first hub holds on to the node")
	}
	two.awaitState("box", fleet.StateOnline)
	select {
	case <-second.Done():
		t.Error("the other hub has let go of it, too")
	default:
	}
}

// A gateway whose departure the store did not take does not keep its name: another one joins by it, at any hub, and it
// can be removed. Neither does one that has joined by a record of which its hub was not told.
func TestJoin_DepartureIsNotTaken(t *testing.T) {
	t.Parallel() // it waits more than it computes
	names := []string{"box", "spare"}
	leaves := map[string]func(h *hub, nats *storetest.Cluster){
		"the store is away when it leaves": func(h *hub, nats *storetest.Cluster) {
			var there []*node
			for _, name := range names {
				there = append(there, h.join(name, h.joinToken(), nil, echo))
			}
			nats.Stop(0)
			for i, n := range there {
				n.leave()
				<-n.done
				h.awaitState(names[i], fleet.StateOffline)
			}
			nats.Start(0)
		},
		"its hub was not told that it has joined": func(h *hub, _ *storetest.Cluster) {
			for _, name := range names {
				if _, err := h.store.Join(h.t.Context(), store.Node{Name: name, Instance: "former"}, func(store.Node) error { return nil }); err != nil {
					h.t.Fatal(err)
				}
			}
		},
	}
	for how, leave := range leaves {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			nats := storetest.NewCluster(t, 1)
			nats.Start(0)
			shared := store.Options{URL: nats.URL()}
			one, two := startHubOn(t, "one", shared), startHubOn(t, "two", shared)
			leave(one, nats)
			one.await("the store is there", func() bool { return one.store.Ready() == nil && two.store.Ready() == nil })
			one.await("one of the names is removed", func() bool {
				status, _ := one.ask(http.MethodDelete, "/v2/nodes/spare", adminToken, nil)
				return status == http.StatusNoContent
			})
			two.begin(two.url, "box", two.joinToken(), nil, echo)
			two.await("another gateway has the name", func() bool { n, _ := two.store.Node("box"); return n.Connected && n.Hub == "two" })
		})
	}
}

// natsServer is a NATS server elsewhere.
func natsServer(t *testing.T) string {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, JetStreamMaxStore: math.MaxInt64, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("the NATS server is not ready")
	}
	return s.ClientURL()
}

// The page names every metric, and none that there is not.
func TestDocs_Metrics(t *testing.T) {
	h := startHub(t)
	var body []byte
	h.await("a request was counted", func() bool { // which it is behind its answer
		_, body = h.ask(http.MethodGet, "/metrics", adminToken, nil)
		return strings.Contains(string(body), "sandbox_hub_http_requests_total{")
	})
	page, err := os.ReadFile("../docs/fleet.mdx")
	if err != nil {
		t.Fatal(err)
	}
	name := regexp.MustCompile(`sandbox_hub_\w+`)
	shown := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^# HELP (sandbox_hub_\w+) `).FindAllStringSubmatch(string(body), -1) {
		shown[m[1]] = true
		if !strings.Contains(string(page), "`"+m[1]+"`") {
			t.Errorf("fleet.mdx does not name %s", m[1])
		}
	}
	for _, m := range name.FindAllString(string(page), -1) {
		if !shown[m] {
			t.Errorf("fleet.mdx names %s, which there is not", m)
		}
	}
}

// holding returns the address of a hub whose gateways are told that they have joined, when told is closed, and
// of which it has no tunnel until release is called.
func holding(t *testing.T, h *hub) (url string, told <-chan struct{}, release func()) {
	said, goOn := make(chan struct{}), make(chan struct{})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.hub.ServeHTTP(&late{w, said, goOn}, r)
	}))
	t.Cleanup(front.Close)
	release = sync.OnceFunc(func() { close(goOn) })
	t.Cleanup(release)
	return front.URL, said, release
}

// late is an answer whose connection is given away later than its sender hears of it.
type late struct {
	http.ResponseWriter
	told, goOn chan struct{}
}

// Hijack implements http.Hijacker.
func (w *late) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(w.ResponseWriter).Hijack() // sends the answer
	close(w.told)
	<-w.goOn
	return c, rw, err
}

// Unwrap is for http.ResponseController.
func (w *late) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// A gateway that was told that it has joined is online for who asks next, at each hub of the store,
// and what is sent to it arrives.
func TestJoin_IsThereWhenTold(t *testing.T) {
	one, two := peers(t)
	two.await("the other hub says how it is reached", func() bool {
		_, _, ok := two.store.Peer("one")
		return ok
	})
	front, told, release := holding(t, one)
	c, box := one.hello(adminToken), newBox(t)
	one.begin(front, "box", one.joinToken(), nil, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/x" {
			echo.ServeHTTP(w, r)
		} else {
			box.ServeHTTP(w, r)
		}
	}))
	select {
	case <-told:
	case <-time.After(patience):
		t.Fatal("it was not told that it has joined")
	}
	_, body := one.ask(http.MethodGet, "/v2/nodes/box", adminToken, nil)
	var n fleet.Node
	if err := json.Unmarshal(body, &n); err != nil || n.State != fleet.StateOnline {
		t.Errorf("the node that was told that it has joined: %s", body)
	}
	two.awaitState("box", fleet.StateOnline)
	c.send(`{"jsonrpc":"2.0","id":7,"method":"session/new","params":{"cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"node":"box"}}}}`)
	answers := make(chan string, 2)
	for _, h := range []*hub{one, two} {
		go func() {
			status, body := h.ask(http.MethodPost, "/nodes/box/x", adminToken, "hello")
			answers <- fmt.Sprint(status, string(body))
		}()
	}
	// Both are being served there, beside the request that joins and this one.
	one.await("the requests have come", func() bool {
		_, body := one.ask(http.MethodGet, "/metrics", adminToken, nil)
		return strings.Contains(string(body), "\nsandbox_hub_http_requests_open 4\n")
	})
	release()
	for range 2 {
		if a := <-answers; a != `200"hello"` {
			t.Errorf("what was sent to the node is answered %s", a)
		}
	}
	if m := c.response("7"); m.Err() != nil {
		t.Errorf("a new session at the node: %s", m.Frame())
	}
}
