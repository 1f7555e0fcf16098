package main_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"
	"testing"

	"github.com/coder/websocket"
)

// call is one HTTP request to the endpoint, made from a good one.
type call struct {
	method  string      // "" is POST
	host    string      // "" is the gateway's own
	path    string      // "" is /v2/rpc
	header  http.Header // set on top of a good request's; a nil value removes
	session string
	body    string // "" is a notification that the gateway accepts
}

// row is one rule of the wire contract.
type row struct {
	name string
	call
	status int
	allow  string // in the Allow header
}

const (
	unknownID    = "6f0f1a52-0000-4000-8000-000000000000"
	notification = `{"jsonrpc":"2.0","method":"_example.com/nothing","params":{}}`
)

var (
	noToken   = http.Header{"Authorization": nil}
	html      = "text/html"
	eventType = "text/event-stream"
)

// rows returns the rules that are the same in both dialects.
func commonRows(d dialect, other dialect) []row {
	id := d.header()
	initialize := func(id, meta string) string {
		return `{"jsonrpc":"2.0",` + id + `"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{}` + meta + `}}`
	}
	return []row{
		{"a good notification", call{}, 202, ""},
		{"a media type with parameters in any case", call{header: http.Header{"Content-Type": {"Application/JSON; charset=utf-8"}}}, 202, ""},
		{"any answer accepted", call{header: http.Header{"Accept": {"*/*"}}}, 202, ""},
		{"no Accept at all", call{header: http.Header{"Accept": nil}}, 202, ""},

		{"foreign Host", call{host: "example.com"}, 403, ""},
		{"foreign Host with a port", call{host: "example.com:80"}, 403, ""},
		{"foreign Host before the token", call{host: "example.com", header: noToken}, 403, ""},
		{"localhost in any case", call{host: "LocalHost"}, 202, ""},
		{"localhost with another port", call{host: "localhost:1"}, 202, ""},
		{"foreign Origin", call{header: http.Header{"Origin": {"https://example.com"}}}, 403, ""},
		{"null Origin", call{header: http.Header{"Origin": {"null"}}}, 403, ""},
		{"foreign Origin before the token", call{header: http.Header{"Origin": {"https://example.com"}, "Authorization": nil}}, 403, ""},

		{"no token", call{header: noToken}, 401, ""},
		{"wrong token", call{header: http.Header{"Authorization": {"Bearer wrong"}}}, 401, ""},
		{"another scheme", call{header: http.Header{"Authorization": {"Basic " + token}}}, 401, ""},
		{"token before method", call{method: "PUT", header: noToken}, 401, ""},
		{"token before connection id", call{header: http.Header{"Authorization": nil, id: {unknownID}}}, 401, ""},
		{"token in the query", call{path: "/v2/rpc?token=" + token, header: noToken}, 401, ""},
		{"token in x-sandbox-token", call{header: http.Header{"Authorization": nil, "X-Sandbox-Token": {token}}}, 202, ""},
		{"wrong x-sandbox-token", call{header: http.Header{"Authorization": nil, "X-Sandbox-Token": {"wrong"}}}, 401, ""},

		{"PUT", call{method: "PUT"}, 405, "POST"},
		{"PATCH", call{method: "PATCH"}, 405, "GET"},
		{"method before media type", call{method: "PUT", header: http.Header{"Content-Type": {html}}}, 405, "DELETE"},

		{"no media type", call{header: http.Header{"Content-Type": nil}}, 415, ""},
		{"another media type", call{header: http.Header{"Content-Type": {"text/plain"}}}, 415, ""},
		{"media type before connection id", call{header: http.Header{"Content-Type": {"text/plain"}, id: {unknownID}}}, 415, ""},
		{"GET of JSON", call{method: "GET", header: http.Header{"Accept": {"application/json"}}}, 406, ""},
		{"GET of HTML before connection id", call{method: "GET", header: http.Header{"Accept": {html}, id: {unknownID}}}, 406, ""},

		{"33 MiB", call{body: `{"jsonrpc":"2.0","method":"_x","params":{"x":"` + strings.Repeat("x", 33<<20) + `"}}`}, 413, ""},
		{"bad JSON", call{body: `{"jsonrpc":"2.0",`}, 400, ""},
		{"blank body", call{body: " "}, 400, ""},
		{"two objects", call{body: notification + notification}, 400, ""},
		{"batch", call{body: "[" + notification + "]"}, 400, ""},
		{"empty batch", call{body: "[]"}, 400, ""},
		{"null", call{body: "null"}, 400, ""},
		{"string", call{body: `"x"`}, 400, ""},
		{"bad JSON before connection id", call{body: `{`, header: http.Header{id: {unknownID}}}, 400, ""},

		{"no connection id", call{header: http.Header{id: nil}}, 400, ""},
		{"unknown connection id", call{header: http.Header{id: {unknownID}}}, 404, ""},
		{"strange connection id", call{header: http.Header{id: {"../../etc/passwd"}}}, 404, ""},
		{"the other dialect's header", call{header: http.Header{id: nil, other.header(): {"same"}}}, 400, ""},
		{"both headers", call{header: http.Header{other.header(): {"same"}}}, 400, ""},

		{"initialize without id", call{header: http.Header{id: nil}, body: initialize("", "")}, 400, ""},
		{"initialize with null id", call{header: http.Header{id: nil}, body: initialize(`"id":null,`, "")}, 400, ""},
		{"initialize with an unknown agent", call{header: http.Header{id: nil}, body: initialize(`"id":1,`, `,"_meta":{"sandboxagent.dev":{"agent":"nobody"}}`)}, 400, ""},
		{"initialize with an unknown agent in the query", call{path: "/v2/rpc?agent=nobody", header: http.Header{id: nil}, body: initialize(`"id":1,`, "")}, 400, ""},

		{"answer to nothing", call{body: `{"jsonrpc":"2.0","id":4711,"result":{}}`}, 202, ""},
		{"error to nothing", call{body: `{"jsonrpc":"2.0","id":"x","error":{"code":1,"message":"x"}}`}, 202, ""},
		{"initialized", call{body: `{"jsonrpc":"2.0","method":"initialized"}`}, 202, ""},
		{"cancel of an unknown request", call{body: `{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":77}}`}, 202, ""},
		{"cancel of an unknown session", call{session: "unknown", body: `{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"unknown"}}`}, 202, ""},

		{"GET without connection id", call{method: "GET", header: http.Header{id: nil, "Accept": {eventType}}}, 400, ""},
		{"GET with unknown connection id", call{method: "GET", header: http.Header{id: {unknownID}, "Accept": {eventType}}}, 404, ""},
		{"second GET", call{method: "GET", header: http.Header{"Accept": {eventType}}}, 409, ""},
		{"Last-Event-ID that is no number", call{method: "GET", header: http.Header{"Accept": {eventType}, "Last-Event-Id": {"x"}}}, 400, ""},
		{"negative Last-Event-ID", call{method: "GET", header: http.Header{"Accept": {eventType}, "Last-Event-Id": {"-1"}}}, 400, ""},

		{"DELETE without connection id", call{method: "DELETE", header: http.Header{id: nil}}, 400, ""},

		{"unknown path", call{method: "GET", path: "/v2/nothing"}, 404, ""},
		{"unknown path without token", call{method: "GET", path: "/v2/sessions", header: noToken}, 401, ""},
		{"health without token", call{method: "GET", path: "/v2/health", header: noToken}, 200, ""},
		{"health of a foreign Host", call{method: "GET", path: "/v2/health", host: "example.com"}, 403, ""},
	}
}

var inlineRows = []row{
	{"POST that accepts HTML only", call{header: http.Header{"Accept": {html}}}, 406, ""},
	{"POST that accepts application/*", call{header: http.Header{"Accept": {"application/*"}}}, 202, ""},
	{"no jsonrpc", call{body: `{"method":"x"}`}, 400, ""},
	{"wrong jsonrpc", call{body: `{"jsonrpc":"1.0","method":"x"}`}, 400, ""},
	{"neither method nor id", call{body: `{"jsonrpc":"2.0"}`}, 400, ""},
	{"method and result", call{body: `{"jsonrpc":"2.0","id":1,"method":"x","result":{}}`}, 400, ""},
	{"request of an unknown session", call{body: `{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"unknown","prompt":[]}}`}, 200, ""},
	{"DELETE of an unknown connection", call{method: "DELETE", header: http.Header{"X-ACP-Connection-Id": {unknownID}}}, 204, ""},
}

var standardRows = []row{
	{"GET that accepts anything", call{method: "GET", header: http.Header{"Accept": {"*/*"}}}, 406, ""},
	{"GET without Accept", call{method: "GET", header: http.Header{"Accept": nil}}, 406, ""},
	{"invalid object", call{body: `{"jsonrpc":"2.0"}`}, 202, ""},
	{"initialize with a connection id", call{body: `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}`}, 400, ""},
	{"request of an unknown session", call{session: "unknown", body: `{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"unknown","prompt":[]}}`}, 202, ""},
	{"session method without session header", call{body: `{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`}, 400, ""},
	{"session method with another session header", call{session: "t", body: `{"jsonrpc":"2.0","id":1,"method":"session/prompt","params":{"sessionId":"s","prompt":[]}}`}, 400, ""},
	{"cancel without session header", call{body: `{"jsonrpc":"2.0","method":"session/cancel","params":{"sessionId":"s"}}`}, 400, ""},
	{"id of 1100 characters", call{body: `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 1100) + `","method":"_x"}`}, 400, ""},
	{"session id of 1100 characters", call{session: strings.Repeat("x", 1100)}, 400, ""},
	{"GET of an unknown session", call{method: "GET", session: "never-heard-of", header: http.Header{"Accept": {eventType}}}, 200, ""},
	{"DELETE of an unknown connection", call{method: "DELETE", header: http.Header{"Acp-Connection-Id": {unknownID}}}, 404, ""},
}

// do sends the call over a connection and returns the answer; the body of an
// event stream is not read.
func do(t *testing.T, c *client, r call) (*http.Response, []byte) {
	t.Helper()
	if r.method == "" {
		r.method = http.MethodPost
	}
	if r.path == "" {
		r.path = "/v2/rpc"
	}
	if r.body == "" && r.method != http.MethodGet && r.method != http.MethodDelete {
		r.body = notification
	}
	req, err := http.NewRequestWithContext(t.Context(), r.method, c.g.url+r.path, strings.NewReader(r.body))
	if err != nil {
		t.Fatal(err)
	}
	if c.check != nil && r.method == http.MethodPost {
		c.check("out", []byte(r.body))
	}
	req.Host = r.host
	c.g.authorize(req.Header)
	req.Header.Set(c.kind.header(), c.id)
	if r.method != http.MethodGet && r.method != http.MethodDelete {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.session != "" {
		req.Header.Set("Acp-Session-Id", r.session)
	}
	for k, v := range r.header {
		k = http.CanonicalHeaderKey(k)
		if v == nil {
			req.Header.Del(k)
			continue
		}
		if v[0] == "same" {
			v = []string{c.id}
		}
		req.Header[k] = v
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return &http.Response{Status: err.Error(), Header: http.Header{}}, nil
	}
	defer resp.Body.Close()
	if strings.HasPrefix(resp.Header.Get("Content-Type"), eventType) {
		return resp, nil
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, b
}

func TestStatus(t *testing.T) {
	g := startGateway(t, "--token", token)
	for _, tt := range []struct {
		kind, other dialect
		rows        []row
	}{
		{inline, standard, inlineRows},
		{standard, inline, standardRows},
	} {
		t.Run(string(tt.kind), func(t *testing.T) {
			c := connect(t, g, tt.kind, options{})
			c.notify("_example.com/pin_the_dialect", map[string]any{})
			for _, r := range append(commonRows(tt.kind, tt.other), tt.rows...) {
				resp, body := do(t, c, r.call)
				if resp.StatusCode != r.status {
					t.Errorf("%s: %s %.300s, want %d", r.name, resp.Status, body, r.status)
					continue
				}
				checkAnswer(t, r, resp, body)
			}
			if c.closed != nil {
				t.Errorf("the connection did not survive: %v", c.closed)
			}
		})
	}
}

// checkAnswer checks what every answer must have besides its status.
func checkAnswer(t *testing.T, r row, resp *http.Response, body []byte) {
	t.Helper()
	if strings.Contains(string(body), token) {
		t.Errorf("%s: the answer contains the token: %s", r.name, body)
	}
	switch {
	case resp.StatusCode == http.StatusAccepted || resp.StatusCode == http.StatusNoContent:
		if len(body) > 0 {
			t.Errorf("%s: a body with %s: %s", r.name, resp.Status, body)
		}
	case resp.StatusCode >= 400:
		var p struct {
			Type, Title, Detail string
			Status              int
		}
		mt, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
		if err := json.Unmarshal(body, &p); err != nil || mt != "application/problem+json" {
			t.Errorf("%s: %s with content type %q, not a problem document: %.300s", r.name, resp.Status, resp.Header.Get("Content-Type"), body)
			return
		}
		if !strings.HasPrefix(p.Type, "urn:sandbox-agent:error:") || p.Title == "" || p.Detail == "" || p.Status != resp.StatusCode {
			t.Errorf("%s: an incomplete problem document: %s", r.name, body)
		}
	}
	if resp.StatusCode == http.StatusUnauthorized && !strings.HasPrefix(resp.Header.Get("WWW-Authenticate"), "Bearer") {
		t.Errorf("%s: WWW-Authenticate is %q", r.name, resp.Header.Get("WWW-Authenticate"))
	}
	if r.allow != "" && !strings.Contains(resp.Header.Get("Allow"), r.allow) {
		t.Errorf("%s: Allow is %q, want %s in it", r.name, resp.Header.Get("Allow"), r.allow)
	}
	if len(resp.Header.Values("Set-Cookie")) > 0 {
		t.Errorf("%s: a cookie is set", r.name)
	}
	if strings.Contains(r.name, "unknown agent") && !strings.Contains(string(body), "mock") {
		t.Errorf("%s: the answer does not list the agents: %s", r.name, body)
	}
}

func TestStatus_SameOriginIsAllowed(t *testing.T) {
	g := startGateway(t, "--token", token)
	c := connect(t, g, inline, options{})
	if resp, body := do(t, c, call{header: http.Header{"Origin": {g.url}}}); resp.StatusCode != http.StatusAccepted {
		t.Errorf("same origin: %s %s", resp.Status, body)
	}
}

func TestStatus_InvalidObjectIsAnsweredOnTheStream(t *testing.T) {
	g := startGateway(t)
	c := connect(t, g, standard, options{})
	for body, id := range map[string]string{
		`{"jsonrpc":"2.0"}`:                          "null",
		`{"jsonrpc":"2.0","id":null,"method":"x"}`:   "null",
		`{"jsonrpc":"2.0","id":"read","method":7}`:   `"read"`,
		`{"jsonrpc":"2.0","id":1,"result":1,"x":[}}`: "",
	} {
		resp, _ := do(t, c, call{body: body})
		if id == "" {
			if resp.StatusCode != http.StatusBadRequest {
				t.Errorf("%s: %s", body, resp.Status)
			}
			continue
		}
		c.find(0, "an error for an invalid object", func(m *message) bool {
			return m.Error != nil && m.Error.Code == -32600 && string(m.ID) == id
		})
	}
}

func TestStatus_BrokenStreamIsTakenOver(t *testing.T) {
	g := startGateway(t)
	for _, kind := range []dialect{inline, standard} {
		c := connect(t, g, kind, options{})
		c.mu.Lock()
		c.once = true
		c.mu.Unlock()
		body, err := c.get("", "0", 0)
		if err != nil {
			t.Fatalf("%s: GET with Last-Event-ID while a stream is open: %v", kind, err)
		}
		c.untilClosed(func() bool { return false }) // the first stream ends
		body.Close()
	}
}

func TestStatus_WebSocketIDIsNotForHTTP(t *testing.T) {
	g := startGateway(t)
	ws := connect(t, g, wsocket, options{})
	for _, kind := range []dialect{inline, standard} {
		c := &client{t: t, g: g, kind: kind, id: ws.id}
		for _, r := range []call{{}, {method: "GET", header: http.Header{"Accept": {eventType}}}} {
			if resp, body := do(t, c, r); resp.StatusCode != http.StatusNotFound {
				t.Errorf("%s %s: %s %s, want 404", kind, r.method, resp.Status, body)
			}
		}
	}
}

func TestStatus_NoDefaultAgent(t *testing.T) {
	g := newGateway(t)
	for i, a := range g.args {
		if a == "--default-agent" {
			g.args = append(g.args[:i:i], g.args[i+2:]...)
			break
		}
	}
	g.start()
	c := &client{t: t, g: g, kind: inline}
	body := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1,"clientCapabilities":{}}}`
	resp, answer := do(t, c, call{header: http.Header{c.kind.header(): nil}, body: body})
	if resp.StatusCode != http.StatusBadRequest || !bytes.Contains(answer, []byte("mock")) {
		t.Errorf("initialize without an agent: %s %s, want 400 with the list of agents", resp.Status, answer)
	}
	resp, answer = do(t, c, call{path: "/v2/rpc?agent=mock", header: http.Header{c.kind.header(): nil}, body: body})
	if resp.StatusCode != http.StatusOK {
		t.Errorf("initialize with the agent in the query: %s %s", resp.Status, answer)
	}
}

// upgrade opens a WebSocket without initializing it.
func upgrade(t *testing.T, g *gateway, h http.Header, protocols ...string) (*websocket.Conn, *http.Response, error) {
	t.Helper()
	ws, resp, err := websocket.Dial(t.Context(), "ws"+strings.TrimPrefix(g.url, "http")+"/v2/rpc", &websocket.DialOptions{HTTPHeader: h, Subprotocols: protocols})
	if err == nil {
		ws.SetReadLimit(-1)
		t.Cleanup(func() { _ = ws.CloseNow() })
	}
	return ws, resp, err
}

func TestWebSocket_Upgrade(t *testing.T) {
	g := startGateway(t, "--token", token)
	bearer := "bearer." + base64.RawURLEncoding.EncodeToString([]byte(token))
	for _, tt := range []struct {
		name      string
		header    http.Header
		protocols []string
		status    int
		protocol  string
	}{
		{"token in the header", http.Header{"Authorization": {"Bearer " + token}}, nil, 101, ""},
		{"token as subprotocol", nil, []string{"acp.sandboxagent.dev", bearer}, 101, "acp.sandboxagent.dev"},
		{"no token", nil, nil, 401, ""},
		{"wrong token as subprotocol", nil, []string{"acp.sandboxagent.dev", "bearer.d3Jvbmc"}, 401, ""},
		{"foreign Origin", http.Header{"Authorization": {"Bearer " + token}, "Origin": {"https://example.com"}}, nil, 403, ""},
		{"null Origin", http.Header{"Authorization": {"Bearer " + token}, "Origin": {"null"}}, nil, 403, ""},
		{"same Origin", http.Header{"Authorization": {"Bearer " + token}, "Origin": {g.url}}, nil, 101, ""},
	} {
		ws, resp, err := upgrade(t, g, tt.header, tt.protocols...)
		if resp == nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		if resp.StatusCode != tt.status {
			t.Errorf("%s: %s, want %d", tt.name, resp.Status, tt.status)
		}
		if err == nil && ws.Subprotocol() != tt.protocol {
			t.Errorf("%s: subprotocol %q, want %q", tt.name, ws.Subprotocol(), tt.protocol)
		}
	}
}

func TestWebSocket_FirstMessage(t *testing.T) {
	g := startGateway(t)
	for _, tt := range []struct {
		name, first string
		code        websocket.StatusCode
	}{
		{"not initialize", `{"jsonrpc":"2.0","id":1,"method":"session/list"}`, websocket.StatusProtocolError},
		{"a notification", notification, websocket.StatusProtocolError},
		{"initialize without id", `{"jsonrpc":"2.0","method":"initialize","params":{"protocolVersion":1}}`, websocket.StatusProtocolError},
		{"33 MiB", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"x":"` + strings.Repeat("x", 33<<20) + `"}}`, websocket.StatusMessageTooBig},
	} {
		ws, _, err := upgrade(t, g, nil)
		if err != nil {
			t.Fatal(err)
		}
		// The gateway may close before it has read all of a frame.
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		_ = ws.Write(ctx, websocket.MessageText, []byte(tt.first))
		for err == nil {
			_, _, err = ws.Read(ctx)
		}
		cancel()
		if got := websocket.CloseStatus(err); got != tt.code {
			t.Errorf("%s: closed with %v (%v), want %v", tt.name, got, err, tt.code)
		}
	}
}

func TestWebSocket_SurvivesBadFrames(t *testing.T) {
	g := startGateway(t)
	for _, tt := range []struct {
		frame string
		code  int
		id    string
	}{
		{`{"jsonrpc":`, -32700, "null"},
		{`[` + notification + `]`, -32600, "null"},
		{`[]`, -32600, "null"},
		{`17`, -32600, "null"},
		{`{"jsonrpc":"2.0"}`, -32600, "null"},
		{`{"jsonrpc":"2.0","id":null,"method":"initialize"}`, -32600, "null"},
		{`{"jsonrpc":"2.0","id":"read","method":7}`, -32600, `"read"`},
		{`{"id":4711,"method":"session/list"}`, -32600, "4711"},
		{`{"jsonrpc":"2.0","id":4711,"result":1,"error":{}}`, -32600, "null"},
	} {
		c := connect(t, g, wsocket, options{})
		c.check("out", []byte(tt.frame))
		if err := c.ws.Write(t.Context(), websocket.MessageText, []byte(tt.frame)); err != nil {
			t.Fatal(err)
		}
		m := c.find(0, "an error", func(m *message) bool { return m.Error != nil })
		if m.Error.Code != tt.code || string(m.ID) != tt.id {
			t.Errorf("%s is answered with %s, want code %d and id %s", tt.frame, m.raw, tt.code, tt.id)
		}
		if r := c.prompt(c.newSession(), "hello"); r != "end_turn" {
			t.Errorf("after %s a turn ended with %s", tt.frame, r)
		}
	}

	c := connect(t, g, wsocket, options{})
	if _, err := c.call("initialize", map[string]any{"protocolVersion": 1, "clientCapabilities": map[string]any{}}); !isCode(err, -32600) {
		t.Errorf("a second initialize: %v, want -32600", err)
	}
	if err := c.ws.Write(context.Background(), websocket.MessageBinary, []byte(notification)); err != nil {
		t.Fatal(err)
	}
	if r := c.prompt(c.newSession(), "hello"); r != "end_turn" {
		t.Errorf("after a binary frame a turn ended with %s", r)
	}
}

func isCode(err error, code int) bool {
	var e *rpcError
	return errors.As(err, &e) && e.Code == code
}

// Of an initialize the schema of the protocol takes what cannot be read for left out. An agent's process is shared:
// what one client got wrong ends it for nobody.
func TestInitialize_WhatCannotBeRead(t *testing.T) {
	g := startGateway(t)
	for _, with := range []string{
		`"clientInfo":true`, `"clientInfo":{}`, `"clientInfo":{"name":"c"}`, `"clientInfo":{"name":"c","version":"1","title":{}}`,
		`"clientCapabilities":7`, `"clientCapabilities":{"fs":7}`, `"clientCapabilities":{"terminal":"x"}`, `"_meta":[]`,
	} {
		if status, body := g.post(http.MethodPost, "/v2/rpc", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1,`+with+`}}`); status != http.StatusOK || !strings.Contains(body, `"agentCapabilities"`) {
			t.Errorf("%s: %d %s", with, status, body)
		}
	}
}
