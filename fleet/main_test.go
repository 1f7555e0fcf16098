package fleet_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/goleak"

	"sandboxagent.dev/sandbox-agent/adapters/mock"
	"sandboxagent.dev/sandbox-agent/adapters/mock/agent"
	"sandboxagent.dev/sandbox-agent/control"
	"sandboxagent.dev/sandbox-agent/fleet"
	"sandboxagent.dev/sandbox-agent/fleet/join"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/internal/patient"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == mock.Arg {
		os.Exit(agent.Main(context.Background(), os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0") // else an agent sleeps for a second before it ends
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("sandboxagent.dev/sandbox-agent/internal/process.startAll"))
}

// patience bounds what would otherwise wait for ever. Nothing is measured by it: on a slow machine that
// does other work, too, a start of an agent can take half a minute.
const patience = 2 * time.Minute

const adminToken = "admin-token-of-the-tests"

// advertised in the options of a store stands for the hub's own address.
const advertised = "its own"

// hub is a running hub with a store of its own, or with that of other.
type hub struct {
	t     testing.TB
	url   string
	store *store.Store
	hub   *fleet.Hub
	stop  func()
}

func startHub(t testing.TB) *hub {
	return startHubOn(t, "hub", store.Options{Dir: t.TempDir()})
}

func startHubOn(t testing.TB, name string, o store.Options) *hub {
	return startHubWith(t, name, o, false)
}

func startCopierOn(t testing.TB, name string, o store.Options) *hub {
	return startHubWith(t, name, o, true)
}

func startHubWith(t testing.TB, name string, o store.Options, replicate bool) *hub {
	t.Helper()
	return startHubThat(t, name, o, fleet.Options{Replicate: replicate, Bundles: replicate})
}

func startHubThat(t testing.TB, name string, o store.Options, does fleet.Options) *hub {
	t.Helper()
	h := &hub{t: t}
	o.Hub = name
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.hub.ServeHTTP(w, r) }))
	h.url = "http://" + srv.Listener.Addr().String()
	if o.Advertise == advertised {
		o.Advertise = h.url
	}
	var err error
	ready := make(chan struct{})
	moved := func(node, other string) {
		select {
		case <-ready:
			h.hub.Moved(node, other)
		default: // a hub that has not begun has no tunnels
		}
	}
	if h.store, err = store.Open(t.Context(), o, moved); err != nil {
		t.Fatal(err)
	}
	does.Store, does.AdminToken, does.Version, does.CORS = h.store, adminToken, "test", control.CORS{Origins: []string{"https://page.example"}}
	does.UI = fstest.MapFS{"index.html": {Data: []byte("the hub's own page")}}
	h.hub = fleet.New(does)
	running, end := context.WithCancel(context.Background())
	ran := make(chan struct{})
	go func() {
		defer close(ran)
		h.hub.Run(running)
	}()
	close(ready)
	srv.Start()
	h.stop = sync.OnceFunc(func() {
		h.ends()
		end()
		<-ran
		srv.Close()
		h.store.Close()
	})
	t.Cleanup(h.stop)
	return h
}

// ends shuts the hub down.
func (h *hub) ends() {
	h.t.Helper()
	if err := h.hub.Shutdown(context.Background()); err != nil {
		h.t.Error(err)
	}
}

// token makes a token.
func (h *hub) token(n fleet.NewToken) string {
	h.t.Helper()
	status, body := h.ask(http.MethodPost, "/v2/tokens", adminToken, n)
	var made fleet.CreatedToken
	if err := json.Unmarshal(body, &made); status != http.StatusCreated || err != nil {
		h.t.Fatalf("make a token: %d %s", status, body)
	}
	return made.Text
}

func (h *hub) joinToken() string { return h.token(fleet.NewToken{Kind: store.KindJoin}) }

// ask sends a request with a JSON body, if body is not nil.
func (h *hub) ask(method, path, token string, body any) (int, []byte) {
	h.t.Helper()
	resp := h.open(method, path, token, body)
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		h.t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp.StatusCode, b
}

// open returns an answer whose body the test reads.
func (h *hub) open(method, path, token string, body any) *http.Response {
	h.t.Helper()
	var sent io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			h.t.Fatal(err)
		}
		sent = strings.NewReader(string(b))
	}
	req, err := http.NewRequestWithContext(h.t.Context(), method, h.url+path, sent)
	if err != nil {
		h.t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := plain.RoundTrip(req)
	if err != nil {
		h.t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp
}

// plain keeps no connection behind the tests and follows no redirect.
var plain = &http.Transport{DisableKeepAlives: true, DisableCompression: true}

// node is a gateway that has joined: a handler behind a Joiner.
type node struct {
	tokenFile string

	joiner *join.Joiner
	srv    *http.Server
	leave  context.CancelFunc
	done   chan struct{}
}

// join has a handler join as a node, and returns when the hub has it.
func (h *hub) join(name, token string, labels map[string]string, handler http.Handler) *node {
	h.t.Helper()
	n := h.begin(h.url, name, token, labels, handler)
	h.awaitState(name, fleet.StateOnline)
	return n
}

func (h *hub) begin(address, name, token string, labels map[string]string, handler http.Handler) *node {
	h.t.Helper()
	file := filepath.Join(h.t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		h.t.Fatal(err)
	}
	u, err := url.Parse(address)
	if err != nil {
		h.t.Fatal(err)
	}
	n := &node{tokenFile: file, done: make(chan struct{})}
	if n.joiner, err = join.New(join.Options{Hub: u, TokenFile: file, Name: name, Labels: labels, Version: "test"}); err != nil {
		h.t.Fatal(err)
	}
	n.srv = &http.Server{Handler: handler, ConnContext: func(ctx context.Context, c net.Conn) context.Context {
		if join.Tunnelled(c) {
			return control.Vouch(ctx)
		}
		return ctx
	}}
	n.joiner.SetAgents([]string{"mock"})
	ctx, leave := context.WithCancel(context.Background())
	n.leave = leave
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = n.srv.Serve(n.joiner.Listener())
	}()
	go func() {
		defer close(n.done)
		n.joiner.Run(ctx)
		_ = n.srv.Close()
		<-served
	}()
	h.t.Cleanup(func() { leave(); <-n.done })
	return n
}

// loses has a node leave, and returns when the hub says that it is offline.
func (h *hub) loses(n *node, name string) {
	h.t.Helper()
	n.leave()
	<-n.done
	h.awaitState(name, fleet.StateOffline)
}

// awaitState returns when the hub says that a node is in a state.
func (h *hub) awaitState(name, state string) {
	h.t.Helper()
	h.await(name+" is "+state, func() bool {
		status, body := h.ask(http.MethodGet, "/v2/nodes/"+name, adminToken, nil)
		var n fleet.Node
		return status == http.StatusOK && json.Unmarshal(body, &n) == nil && n.State == state
	})
}

// await returns when ok does; nobody announces what it looks for.
func (h *hub) await(what string, ok func() bool) {
	h.t.Helper()
	if !patient.Until(patience, ok) {
		h.t.Fatalf("%s: not within %v", what, patience)
	}
}

// kindOf is the last part of the type of a problem document, "" for none.
func kindOf(body []byte) string {
	var p struct{ Type string }
	_ = json.Unmarshal(body, &p)
	return p.Type[strings.LastIndex(p.Type, ":")+1:]
}

// echo answers with what it was asked.
var echo = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(w, r.Body)
})
