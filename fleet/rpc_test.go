package fleet_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/acphttp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/sse"
	"sandboxagent.dev/sandbox-agent/adapters/mock"
	"sandboxagent.dev/sandbox-agent/control"
	"sandboxagent.dev/sandbox-agent/fleet"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/runtime"
	"sandboxagent.dev/sandbox-agent/runtime/session"
)

// box has a real gateway with the mock agent join as a node.
func (h *hub) box(name string, labels map[string]string) *node {
	h.t.Helper()
	return h.boxAt(h.url, name, labels)
}

func (h *hub) boxAt(address, name string, labels map[string]string) *node {
	h.t.Helper()
	n := h.begin(address, name, h.joinToken(), labels, newBox(h.t))
	h.awaitState(name, fleet.StateOnline)
	return n
}

// newBox is a real gateway with the mock agent.
func newBox(t testing.TB) http.Handler { return newBoxOf(t, session.Async) }

// newBoxOf is one whose sessions have a durability.
func newBoxOf(t testing.TB, d session.Durability) http.Handler {
	t.Helper()
	return newBoxTold(t, d, nil, nil)
}

// newBoxTold is newBoxOf for a gateway that is told why the hub stores nothing.
func newBoxTold(t testing.TB, d session.Durability, trouble func(time.Duration) error, log *slog.Logger) http.Handler {
	t.Helper()
	return newBoxIn(t, t.TempDir(), d, trouble, log)
}

// newBoxIn is newBoxTold with the data directory of one before it.
func newBoxIn(t testing.TB, dir string, d session.Durability, trouble func(time.Duration) error, log *slog.Logger) http.Handler {
	t.Helper()
	return newBoxWith(t, runtime.Options{DefaultAgent: "mock", DataDir: dir, HubTrouble: trouble, Durability: d}, log)
}

// newBoxWith is a gateway with the mock agent and some options.
func newBoxWith(t testing.TB, o runtime.Options, log *slog.Logger) http.Handler {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o.Adapters, o.Stored, o.Version = append(o.Adapters, mock.New(exe)), true, "test"
	rt, err := runtime.New(o)
	if err != nil {
		t.Fatal(err)
	}
	rpc := acphttp.New(rt, acphttp.Options{})
	api := control.New(control.Options{Sessions: rt, Travel: rt, Copies: rt, RPC: rpc, Version: "test", Logger: log})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		api.Shutdown(ctx)
		if err := rt.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		_ = rpc.Shutdown(ctx)
	})
	return api
}

// Two nodes ask with the same ids, and the client uses ids that differ in type only. Each
// answer goes where it belongs.
func TestRPC_TwoNodes(t *testing.T) {
	h := startHub(t)
	h.box("one", nil)
	h.box("two", nil)
	c := h.hello(adminToken)
	sessions := []string{c.session("one"), c.session("two")}
	ids := []string{`1`, `"1"`, `0`, `-1`}
	asks := map[string]*acp.Message{} // by session
	for i, s := range sessions {
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"session/prompt","params":%s}`, ids[i], prompt(s, "permission")))
		asks[s], _ = c.next(0, "the permission request", func(m *acp.Message) bool { return m.Method() == "session/request_permission" && m.Session() == s })
	}
	if asks[sessions[0]].ID() == asks[sessions[1]].ID() {
		t.Fatalf("two open requests have the id %s", asks[sessions[0]].ID())
	}
	for i, s := range sessions { // by another prompt meanwhile, whose id is near
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"_sandboxagent/session/pending","params":{"sessionId":%q}}`, ids[2+i], s))
		list, _ := rawjson.Member(c.response(ids[2+i]).Result(), "pending")
		ask := asks[s]
		if open := rawjson.Elements(list); len(open) != 1 || !strings.Contains(string(open[0]), `"requestId":`+string(ask.ID())) {
			t.Errorf("open at %s is %s, want %s", s, list, ask.ID())
		}
	}
	for i, option := range []string{"allow_once", "reject_once"} {
		ask := asks[sessions[i]]
		options, _ := rawjson.Member(ask.Params(), "options")
		for _, o := range rawjson.Elements(options) {
			if rawjson.MemberString(o, "kind") == option {
				c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"outcome":{"outcome":"selected","optionId":%q}}}`, ask.ID(), rawjson.MemberString(o, "optionId")))
			}
		}
		if got := rawjson.MemberString(c.response(ids[i]).Result(), "stopReason"); got != "end_turn" {
			t.Errorf("the prompt %s ended with %q", ids[i], got)
		}
		c.next(0, option, func(m *acp.Message) bool {
			return m.Session() == sessions[i] && strings.Contains(string(m.Frame()), "permission: "+option)
		})
	}
}

// slowToTell is a gateway that tells of its sessions when it is let.
func slowToTell(box http.Handler, let <-chan struct{}) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v2/sessions/changes" {
			select {
			case <-let:
			case <-r.Context().Done():
				return
			}
		}
		box.ServeHTTP(w, r)
	})
}

// Who has made a session can ask for it, though its node has not told the hub of it yet.
func TestRPC_MadeAndAskedForAtOnce(t *testing.T) {
	h := startCopier(t)
	let := make(chan struct{})
	h.join("one", h.joinToken(), nil, slowToTell(newBox(t), let))
	h.awaitState("one", fleet.StateOnline)
	c := h.hello(adminToken)
	s := c.session("one")
	c.stop() // as the command prompt
	type answer struct {
		what string
		ok   bool
		text string
	}
	asks := map[string]func() (bool, string){
		"session": func() (bool, string) {
			status, b := h.ask(http.MethodGet, "/v2/sessions/"+s, adminToken, nil)
			return status == http.StatusOK, string(b)
		},
		"events": func() (bool, string) {
			status, b := h.ask(http.MethodGet, "/v2/sessions/"+s+"/events?node=one", adminToken, nil)
			return status == http.StatusOK, string(b)
		},
		"transcript": func() (bool, string) {
			status, b := h.ask(http.MethodGet, "/v2/sessions/"+s+"/transcript", adminToken, nil)
			return status == http.StatusOK, string(b)
		},
		"move": func() (bool, string) {
			status, b := h.ask(http.MethodPost, "/v2/sessions/"+s+"/move", adminToken, fleet.MoveRequest{Node: "one"})
			return status == http.StatusConflict && strings.Contains(string(b), "is at one already"), string(b)
		},
		"its move": func() (bool, string) {
			m := h.hello(adminToken).call("_sandboxagent/session/move", fmt.Sprintf(`{"sessionId":%q,"node":"one"}`, s))
			return errorKind(m) == "conflict", string(m.Frame())
		},
		"list": func() (bool, string) {
			status, b := h.ask(http.MethodGet, "/v2/sessions", adminToken, nil)
			return status == http.StatusOK && strings.Contains(string(b), s), string(b)
		},
		"its list": func() (bool, string) {
			b := h.hello(adminToken).must("session/list", `{}`)
			return strings.Contains(string(b), s), string(b)
		},
		"load": func() (bool, string) {
			m := h.hello(adminToken).call("session/load", fmt.Sprintf(`{"sessionId":%q,"cwd":"/tmp","mcpServers":[]}`, s))
			return m.Err() == nil, string(m.Frame())
		},
	}
	if status, body := h.ask(http.MethodGet, "/v2/sessions/mock-2/events", adminToken, nil); status != http.StatusNotFound {
		t.Errorf("a session that nobody has: %d %s", status, body)
	}
	for _, other := range []string{h.token(fleet.NewToken{Kind: store.KindClient, Labels: map[string]string{"team": "b"}}), h.token(fleet.NewToken{Kind: store.KindClient, Node: "two"})} {
		if status, body := h.ask(http.MethodGet, "/v2/sessions/"+s, other, nil); status != http.StatusNotFound {
			t.Errorf("with a token for others: %d %s", status, body)
		}
	}
	answers := make(chan answer)
	for what, ask := range asks {
		go func() {
			ok, text := ask()
			answers <- answer{what, ok, text}
		}()
	}
	soon := time.After(200 * time.Millisecond) // by then whoever waits for nothing has answered
	for range asks {
		var got answer
		select {
		case got = <-answers:
		case <-soon:
			close(let)
			got = <-answers
		}
		if !got.ok {
			t.Errorf("%s: %s", got.what, got.text)
		}
	}
}

// Where a session is made is what the client says, and else where the least is going on.
func TestRPC_NewSessionChoosesItsNode(t *testing.T) {
	h := startHub(t)
	h.box("a", map[string]string{"team": "red"})
	h.box("b", map[string]string{"team": "blue", "size": "large"})
	away := h.box("c", map[string]string{"team": "gone"})
	h.loses(away, "c")
	red := h.token(fleet.NewToken{Kind: store.KindClient, Scope: store.ScopeDrive, Labels: map[string]string{"team": "red"}})
	c := h.hello(adminToken)
	for _, tt := range []struct{ token, own, want string }{
		{adminToken, `{"node":"b"}`, "b"},
		{adminToken, `{"node":{"labels":{"size":"large"}}}`, "b"},
		{adminToken, `{"node":{"labels":{"team":"red"}},"agent":"mock"}`, "a"},
		{adminToken, `{}`, "a"}, // b has two sessions, a has one
		{red, `{}`, "a"},
		{red, `{"node":"b"}`, "node_not_found"},
		{red, `{"node":"nobody"}`, "node_not_found"},
		{red, `{"node":{"labels":{"team":"blue"}}}`, "node_not_found"},
		{adminToken, `{"node":"c"}`, "node_offline"},
		{adminToken, `{"node":{"labels":{"team":"gone"}}}`, "node_offline"},
		{adminToken, `{"agent":"none"}`, "unsupported_agent"},
		{adminToken, `{"node":{"label":"x"}}`, "invalid_request"},
		{adminToken, `{"node":7}`, "invalid_request"},
	} {
		with := c
		if tt.token != adminToken {
			with = h.hello(tt.token)
		}
		m := with.call("session/new", `{"cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":`+tt.own+`}}`)
		got := rawjson.MemberString(m.Result(), "_meta", acp.MetaKey, "node")
		if m.Err() != nil {
			got = errorKind(m)
		}
		if got != tt.want {
			t.Errorf("%s: %q, want %q: %s", tt.own, got, tt.want, m.Frame())
		}
	}
}

// The way to a node breaks while its agent streams, twice in a turn that goes on, and once in one in which much
// comes at once. The client sees each piece once, in order, and is told.
func TestRPC_NodeComesBack(t *testing.T) {
	t.Parallel() // it waits more than it computes
	h := startHub(t)
	h.box("box", nil)
	c := h.hello(adminToken)
	s := c.session("box")
	chunk := func(m *acp.Message) bool { return m.Session() == s && string(m.UpdateKind()) == "agent_message_chunk" }
	cut := func(from int) (at int) {
		t.Helper()
		_, at = c.next(from, "a piece", chunk)
		h.hub.Moved("box", "nowhere")
		for _, state := range []string{"offline", "online"} {
			_, at = c.next(at, "that the node is "+state, func(m *acp.Message) bool {
				return m.Method() == "_sandboxagent/node/state" && rawjson.MemberString(m.Params(), "state") == state
			})
		}
		return at + 1
	}
	number := regexp.MustCompile(`\d+`)
	pieces := func(from int) (n int) {
		t.Helper()
		c.mu.Lock()
		defer c.mu.Unlock()
		next := 0
		for i := from; i < len(c.got); i++ {
			if !chunk(&c.got[i]) {
				continue
			}
			text := rawjson.MemberString(c.got[i].Update(), "content", "text")
			if want := fmt.Sprint(next); number.FindString(text) != want && n > 0 {
				t.Fatalf("%q came, want number %s", text, want)
			}
			fmt.Sscan(number.FindString(text), &next)
			next++
			n++
		}
		return n
	}

	c.send(`{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":` + prompt(s, "slow") + `}`)
	c.next(cut(cut(0)), "a piece behind all that", chunk)
	c.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"` + s + `"}}`)
	if end := c.response("7"); rawjson.MemberString(end.Result(), "stopReason") != "cancelled" {
		t.Errorf("the prompt was answered %s", end.Frame())
	}
	pieces(0)

	const n = 4000
	from := c.count()
	c.send(`{"jsonrpc":"2.0","id":8,"method":"session/prompt","params":` + prompt(s, fmt.Sprintf("stream %d 20", n)) + `}`)
	cut(from)
	if end := c.response("8"); rawjson.MemberString(end.Result(), "stopReason") != "end_turn" {
		t.Errorf("the prompt was answered %s", end.Frame())
	}
	if count := pieces(from); count != n {
		t.Errorf("%d pieces came of %d", count, n)
	}
}

// A node that is away: what it has is listed, and what is asked of it refused at once.
func TestRPC_NodeIsAway(t *testing.T) {
	h := startCopier(t)
	box := h.box("box", nil)
	c := h.hello(adminToken)
	s := c.session("box")
	c.must("session/prompt", prompt(s, "echo words"))
	h.await("the copy has the turn", func() bool {
		for _, one := range h.store.Sessions() {
			if one.Session == s && one.Through > 0 && one.Info.State == runtime.StateIdle {
				return true
			}
		}
		return false
	})
	h.loses(box, "box")
	other := h.hello(adminToken)
	for _, with := range []*client{c, other} {
		list, _ := rawjson.Member(with.must("session/list", `{}`), "sessions")
		if !strings.Contains(string(list), `"state":"offline"`) || !strings.Contains(string(list), s) {
			t.Errorf("the list: %s", list)
		}
		for method, params := range map[string]string{
			"session/prompt":                           prompt(s, "echo more"),
			"session/resume":                           `{"sessionId":"` + s + `","cwd":"/tmp"}`,
			"session/close":                            `{"sessionId":"` + s + `"}`,
			"_sandboxagent/session/get":                `{"sessionId":"` + s + `"}`,
			"session/set_mode":                         `{"sessionId":"` + s + `","modeId":"plan"}`,
			"_sandboxagent/session/permissions":        `{"sessionId":"` + s + `"}`,
			"_sandboxagent/session/forget_permissions": `{"sessionId":"` + s + `","all":true}`,
			"session/new":                              `{"cwd":"/tmp","mcpServers":[]}`,
			"_sandboxagent/fs/read_file":               `{"path":"/x"}`,
		} {
			if m := with.call(method, params); errorKind(m) != "node_offline" {
				t.Errorf("%s: %s", method, m.Frame())
			}
		}
	}
	// The copy can be loaded, and nothing be done in it until the node has it loaded.
	load := `{"sessionId":"` + s + `","cwd":"/tmp","mcpServers":[]}`
	if m := c.call("session/load", load); errorKind(m) != "node_offline" {
		t.Errorf("a session that goes on when its node is back was loaded: %s", m.Frame())
	}
	res := other.must("session/load", load)
	if meta, _ := rawjson.Member(res, "_meta", acp.MetaKey); !rawjson.MemberBool(meta, "copy") || rawjson.MemberBool(meta, "historyIncomplete") || rawjson.MemberString(meta, "state") != "offline" {
		t.Errorf("a copy was loaded with %s", res)
	}
	updates := func(with *client) (out []string) {
		with.mu.Lock()
		defer with.mu.Unlock()
		for _, m := range with.got {
			if m.Method() == "session/update" {
				out = append(out, string(m.Update()))
			}
		}
		return out
	}
	copied := updates(other)
	h.join("box", h.joinToken(), nil, box.srv.Handler)
	if m := other.call("session/prompt", prompt(s, "echo more")); errorKind(m) != "node_offline" {
		t.Errorf("a prompt goes on from a copy: %s", m.Frame())
	}
	third := h.hello(adminToken)
	third.must("session/load", load)
	if diff := cmp.Diff(updates(third), copied); diff != "" || len(copied) < 2 {
		t.Errorf("the copy shows other updates (-node +copy):\n%s", diff)
	}
	other.must("session/load", load)
	other.must("session/prompt", prompt(s, "echo more"))
}

// agentMethods are all that the protocol has clients call, and all of the gateway's own.
func agentMethods(t *testing.T, h *hub) []string {
	t.Helper()
	b, err := os.ReadFile("../acp/methods_gen.go")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range regexp.MustCompile(`Name: "([^"]+)", Side: Side(?:Agent|Both), Kind: [^,}]*KindRequest`).FindAllStringSubmatch(string(b), -1) {
		out = append(out, m[1])
	}
	out = append(out, "auth/login", "auth/logout", "tool_call/cancel", "terminal/cancel", "session/set_model", "_other/extension", "_sandboxagent/fs/write_file", "_sandboxagent/session/newer")
	c := dial(t, h.url, adminToken)
	own, _ := rawjson.Member(c.must("initialize", `{"protocolVersion":1,"clientCapabilities":{}}`), "agentCapabilities", "_meta", acp.MetaKey, "extensions", "methods")
	for _, m := range rawjson.Elements(own) {
		out = append(out, rawjson.Unquote(m))
	}
	if len(out) < 30 {
		t.Fatalf("%d methods were found", len(out))
	}
	return out
}

// The table is written from what the pages promise.
var watch = []string{
	"initialize", "session/list", "session/load", "session/resume",
	"_sandboxagent/session/detach", "_sandboxagent/session/events", "_sandboxagent/session/get", "_sandboxagent/session/pending", "_sandboxagent/session/permissions",
}

// What a token does not allow is refused, for each method. What it is not for is as if it
// were not there.
func TestRPC_ScopeOfEveryMethod(t *testing.T) {
	h := startCopier(t)
	h.box("box", map[string]string{"team": "a"})
	owner := h.hello(adminToken)
	s := owner.session("box")
	h.await("the session is known", func() bool { return len(h.store.Sessions()) == 1 })
	read := h.hello(h.token(fleet.NewToken{Kind: store.KindClient, Scope: store.ScopeRead}))
	drive := h.hello(h.token(fleet.NewToken{Kind: store.KindClient, Scope: store.ScopeDrive, Labels: map[string]string{"team": "a"}}))
	foreign := h.hello(h.token(fleet.NewToken{Kind: store.KindClient, Scope: store.ScopeAdmin, Labels: map[string]string{"team": "b"}}))
	destroys := []string{"session/delete", "session/close", "_sandboxagent/session/terminate"}
	for _, method := range agentMethods(t, h) {
		params := func(id string) string {
			return fmt.Sprintf(`{"sessionId":%q,"cwd":"/tmp","mcpServers":[],"prompt":[{"type":"text","text":"hello"}]}`, id)
		}
		if m := read.call(method, params(s)); (errorKind(m) == "permission_denied") == slices.Contains(watch, method) {
			t.Errorf("%s with read: %s", method, m.Frame())
		}
		if method != "initialize" && method != "session/list" && method != "session/new" {
			there, nowhere := foreign.call(method, params(s)), foreign.call(method, params("nowhere"))
			blind := func(m *acp.Message, id string) string {
				return regexp.MustCompile(`"id":\d+`).ReplaceAllString(strings.ReplaceAll(string(m.Frame()), id, "ID"), "")
			}
			if there.Err() == nil || blind(there, s) != blind(nowhere, "nowhere") {
				t.Errorf("%s of a foreign session: %s\nof none: %s", method, there.Frame(), nowhere.Frame())
			}
		}
		if slices.Contains(destroys, method) {
			continue
		}
		if m := drive.call(method, params(s)); errorKind(m) == "permission_denied" {
			t.Errorf("%s with drive: %s", method, m.Frame())
		}
	}
	if list := foreign.must("session/list", `{}`); string(list) != `{"sessions":[]}` {
		t.Errorf("the list shows foreign sessions: %s", list)
	}
	// Who watches sees what happens, is asked nothing, and cancels nothing.
	read.must("session/load", `{"sessionId":"`+s+`","cwd":"/","mcpServers":[{"name":"x","command":"touch","args":["/tmp/never"],"env":[]}],"_meta":{"sandboxagent.dev":{"title":"taken over"}}}`)
	owner.send(`{"jsonrpc":"2.0","id":"p","method":"session/prompt","params":` + prompt(s, "permission") + `}`)
	ask, _ := owner.next(0, "the permission request", func(m *acp.Message) bool { return m.Method() == "session/request_permission" })
	read.send(`{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"` + s + `"}}`)
	for id := range 20 { // whatever the id were
		read.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"outcome":{"outcome":"selected","optionId":"allow"}}}`, id))
	}
	open := read.must("_sandboxagent/session/pending", `{"sessionId":"`+s+`"}`)
	if list, _ := rawjson.Member(open, "pending"); len(rawjson.Elements(list)) != 1 {
		t.Errorf("after what somebody has said who may only read these requests are open: %s", list)
	}
	owner.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"outcome":{"outcome":"cancelled"}}}`, ask.ID()))
	owner.response(`"p"`)
	read.next(0, "what the tool call has come to", func(m *acp.Message) bool { return m.Session() == s && strings.Contains(string(m.Frame()), "tool_call") })
	read.mu.Lock()
	defer read.mu.Unlock()
	if slices.ContainsFunc(read.got, func(m acp.Message) bool { return m.IsRequest() }) {
		t.Error("somebody who may only read is asked for a permission")
	}
	if title := rawjson.MemberString(owner.must("_sandboxagent/session/get", `{"sessionId":"`+s+`"}`), "title"); title == "taken over" {
		t.Error("somebody who may only read has changed the title")
	}
}

// A connection ends with the token that opened it, and belongs to nobody else.
func TestRPC_ConnectionBelongsToItsToken(t *testing.T) {
	h := startHub(t)
	h.box("box", nil)
	token := h.token(fleet.NewToken{Kind: store.KindClient, Scope: store.ScopeDrive})
	c := h.hello(token)
	c.session("box")
	post := func(token, connection, body string) *http.Response {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.url+"/v2/rpc", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		req.Header.Set("Content-Type", "application/json")
		if connection != "" {
			req.Header.Set(acphttp.HeaderInlineConnection, connection)
		}
		resp, err := plain.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp
	}
	id := post(token, "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}`).Header.Get(acphttp.HeaderInlineConnection)
	const list = `{"jsonrpc":"2.0","id":2,"method":"session/list","params":{}}`
	if status := post(adminToken, id, list).StatusCode; status != http.StatusNotFound {
		t.Errorf("the connection of another token answers %d", status)
	}
	if status := post(token, id, list).StatusCode; status != http.StatusOK {
		t.Errorf("the own connection answers %d", status)
	}
	if status, body := h.ask(http.MethodDelete, "/v2/tokens/"+idOf(token), adminToken, nil); status != http.StatusNoContent {
		t.Fatalf("revoke: %d %s", status, body)
	}
	h.await("the connection has ended", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.end != nil
	})
	h.await("no connection is left", func() bool {
		_, body := h.ask(http.MethodGet, "/metrics", adminToken, nil)
		return strings.Contains(string(body), "\nsandbox_hub_acp_connections 0\n")
	})
}

// A hub that ends in order says goodbye, so that clients go elsewhere at once.
func TestRPC_HubEnds(t *testing.T) {
	h := startHub(t)
	h.box("box", nil)
	c := h.hello(adminToken)
	s := c.session("box")
	c.send(`{"jsonrpc":"2.0","id":7,"method":"session/prompt","params":` + prompt(s, "slow") + `}`)
	c.next(0, "a piece", func(m *acp.Message) bool { return string(m.UpdateKind()) == "agent_message_chunk" })
	h.stop()
	h.await("the connection has ended", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.end != nil
	})
	if c.end != io.EOF { // bare: else it is what a broken network says
		t.Errorf("it ended with %v", c.end)
	}
}

// In the inline dialect a response answers its request, and says which event it follows.
func TestRPC_Inline(t *testing.T) {
	h := startHub(t)
	h.box("box", nil)
	connection := ""
	post := func(body string) (json.RawMessage, http.Header) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, h.url+"/v2/rpc", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+adminToken)
		req.Header.Set("Content-Type", "application/json")
		if connection != "" {
			req.Header.Set(acphttp.HeaderInlineConnection, connection)
		}
		resp, err := plain.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s %s, %v", body, resp.Status, b, err)
		}
		return b, resp.Header
	}
	_, header := post(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{}}}`)
	connection = header.Get(acphttp.HeaderInlineConnection)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, h.url+"/v2/rpc", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	req.Header.Set("Accept", sse.ContentType)
	req.Header.Set(acphttp.HeaderInlineConnection, connection)
	stream, err := plain.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	made, _ := post(`{"jsonrpc":"2.0","id":"new","method":"session/new","params":{"cwd":"/tmp","mcpServers":[]}}`)
	s := rawjson.MemberString(made, "result", "sessionId")
	ended, header := post(`{"jsonrpc":"2.0","id":-1,"method":"session/prompt","params":` + prompt(s, "echo inline words") + `}`)
	if id, _ := rawjson.Member(ended, "id"); string(id) != "-1" || rawjson.MemberString(ended, "result", "stopReason") != "end_turn" {
		t.Errorf("the prompt was answered %s", ended)
	}
	last := header.Get(acphttp.HeaderLastEvent)
	events, said := bufio.NewScanner(stream.Body), false
	for events.Scan() {
		said = said || strings.Contains(events.Text(), "inline words")
		if events.Text() == "id: "+last || events.Text() == "id:"+last {
			break
		}
	}
	for events.Scan() && events.Text() != "" {
		said = said || strings.Contains(events.Text(), "inline words")
	}
	if !said || last == "" {
		t.Errorf("the events up to %q have not what the agent said (%v)", last, events.Err())
	}
}

// What has another type than it must have is refused, and not taken for left out.
func TestRPC_FieldsOfOtherTypes(t *testing.T) {
	h := startCopier(t)
	h.box("one", nil)
	c := h.hello(adminToken)
	for _, tt := range []struct{ method, params, want string }{
		{"session/list", `{"cwd":7}`, "params.cwd must be a text, not 7"},
		{"session/list", `{"cursor":{}}`, "params.cursor must be a text, not {}"},
		{"session/list", `{"_meta":{"sandboxagent.dev":{"agent":7}}}`, "agent must be a text, not 7"},
		{"session/new", `{"cwd":"/tmp","mcpServers":[],"_meta":{"sandboxagent.dev":{"agent":["mock"]}}}`, "agent must be a text"},
		{"_sandboxagent/session/move", `{"sessionId":"s","cwd":7}`, "params.cwd must be a text, not 7"},
		{"_sandboxagent/session/move", `{"sessionId":"s","workspace":"yes"}`, `params.workspace must be true or false, not "yes"`},
	} {
		if e := c.call(tt.method, tt.params).Err(); e == nil || e.Code != acp.CodeInvalidParams || !strings.Contains(e.Message, tt.want) {
			t.Errorf("%s %s: %v", tt.method, tt.params, e)
		}
	}
}

// A client has a session open that another one deletes. Who asks for it then is told that there is none: that it is
// open somewhere is no sign of it.
func TestRPC_DeletedWhileAnotherHasItOpen(t *testing.T) {
	h := startCopier(t)
	h.box("one", nil)
	has, deletes, late := h.hello(adminToken), h.hello(adminToken), h.hello(adminToken)
	s := has.session("one")
	has.says(s, "first")
	h.knows(s, "one", 1)
	deletes.must("session/delete", `{"sessionId":"`+s+`"}`)
	h.await("the hub knows that it is deleted", func() bool {
		m := late.call("_sandboxagent/session/get", prompt(s, ""))
		return errorKind(m) == "session_not_found"
	})
	for _, method := range []string{"session/prompt", "session/close"} {
		if m := late.call(method, prompt(s, "second")); errorKind(m) != "session_not_found" {
			t.Errorf("%s: %s", method, m.Frame())
		}
	}
}

// A session is deleted, and another client acts on it at once: whatever of that the hub has heard by then, there is none,
// and what its agent may still have is not opened.
func TestRPC_JustDeleted(t *testing.T) {
	h := startCopier(t)
	h.box("one", nil)
	deletes, late := h.hello(adminToken), h.hello(adminToken)
	for range 10 {
		s := deletes.session("one")
		h.knows(s, "one", 0)
		deletes.must("session/delete", `{"sessionId":"`+s+`"}`)
		for heard := false; !heard; {
			heard = !slices.ContainsFunc(h.store.Sessions(), func(one *store.Session) bool { return one.Session == s })
			if m := late.call("session/prompt", prompt(s, "late")); errorKind(m) != "session_not_found" {
				t.Fatalf("session/prompt: %s", m.Frame())
			}
		}
	}
}

// Who may only read has no agent started, whichever it names, and opens no session that is closed.
func TestRPC_WhoWatchesChangesNothing(t *testing.T) {
	h := startCopier(t)
	h.box("box", nil)
	owner := h.hello(adminToken)
	s := owner.session("box")
	owner.must("session/prompt", prompt(s, "echo hello"))
	owner.must("session/close", `{"sessionId":"`+s+`"}`)
	read := h.token(fleet.NewToken{Kind: store.KindClient, Scope: store.ScopeRead})
	for name, tt := range map[string]struct{ hello, method, params string }{
		"load": {
			`{"protocolVersion":1,"clientCapabilities":{},"_meta":{"sandboxagent.dev":{"agent":"none-such"}}}`,
			"session/load", `{"sessionId":"` + s + `","cwd":"/tmp","mcpServers":[]}`,
		},
		"resume": {
			`{"protocolVersion":2,"info":{"name":"n","version":"1"},"capabilities":{},"_meta":{"sandboxagent.dev":{"agent":"none-such"}}}`,
			"session/resume", `{"sessionId":"` + s + `","cwd":"/tmp","mcpServers":[],"replayFrom":{"type":"start"}}`,
		},
	} {
		c := dial(t, h.url, read)
		c.must("initialize", tt.hello)
		c.must(tt.method, tt.params)
		c.next(0, name+": what was said", func(m *acp.Message) bool { return m.Session() == s && strings.Contains(string(m.Frame()), "hello") })
		if state := rawjson.MemberString(c.must("_sandboxagent/session/get", `{"sessionId":"`+s+`"}`), "state"); state != "closed" {
			t.Errorf("%s: the session is %s", name, state)
		}
	}
	// The watchers see what comes when somebody opens it.
	watcher := dial(t, h.url, read)
	watcher.must("initialize", `{"protocolVersion":1}`)
	watcher.must("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
	owner.must("session/resume", `{"sessionId":"`+s+`","cwd":"/tmp","mcpServers":[]}`)
	owner.must("session/prompt", prompt(s, "echo again"))
	watcher.next(0, "what is said then", func(m *acp.Message) bool { return m.Session() == s && strings.Contains(string(m.Frame()), "again") })
}
