package main_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// dialect names a way to carry ACP to the gateway.
type dialect string

const (
	inline   dialect = "inline"
	standard dialect = "standard"
	wsocket  dialect = "websocket"
	stdio    dialect = "stdio" // of the acp command, see startEditor
)

var dialects = []dialect{inline, standard, wsocket}

// header returns the dialect's connection header.
func (d dialect) header() string {
	if d == inline {
		return "X-ACP-Connection-Id"
	}
	return "Acp-Connection-Id"
}

// message is one frame from the gateway.
type message struct {
	raw     []byte
	eventID uint64 // of its SSE event, 0 elsewhere

	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   *rpcError       `json:"error"`
}

type rpcError struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

func (e *rpcError) Error() string { return fmt.Sprintf("%s (%d) %s", e.Message, e.Code, e.Data) }

// params is what tests look at in a session's messages.
type params struct {
	SessionID string          `json:"sessionId"`
	RequestID json.RawMessage `json:"requestId"`
	Update    struct {
		SessionUpdate string          `json:"sessionUpdate"`
		ToolCallID    string          `json:"toolCallId"`
		Content       json.RawMessage `json:"content"`
	} `json:"update"`
	Options []struct {
		OptionID string `json:"optionId"`
		Kind     string `json:"kind"`
	} `json:"options"`
	Meta struct {
		Gateway struct {
			Seq uint64 `json:"seq"`
		} `json:"sandboxagent.dev"`
	} `json:"_meta"`
}

func (m *message) params() params {
	var p params
	_ = json.Unmarshal(m.Params, &p)
	return p
}

// chunk returns the text of an agent_message_chunk of the session.
func (m *message) chunk(session string) (string, bool) {
	if m.Method != "session/update" {
		return "", false
	}
	var p struct {
		SessionID string `json:"sessionId"`
		Update    struct {
			SessionUpdate string `json:"sessionUpdate"`
			Content       struct {
				Text string `json:"text"`
			} `json:"content"`
		} `json:"update"`
	}
	_ = json.Unmarshal(m.Params, &p) // of other updates the content may have another form
	if p.Update.SessionUpdate != "agent_message_chunk" || p.SessionID != session {
		return "", false
	}
	return p.Update.Content.Text, true
}

// options choose how a client connects.
type options struct {
	eventIDs bool
	question bool // the client understands the question extension
	// subagents says that the client knows them as sessions of their own.
	subagents bool
	agent     string // "" is the default agent
	cwd       string // of new sessions; "" is the test's own
	// cuts are numbers of bytes after which the event stream's, or the
	// WebSocket's, TCP connection breaks: one for each connection, in order.
	cuts []int
	// noStream opens no event stream.
	noStream bool
	client   *http.Client // for the POSTs
}

// client is one ACP client over one dialect. It answers nothing by itself.
type client struct {
	t    testing.TB
	g    *gateway
	kind dialect
	opts options
	id   string // connection id
	init json.RawMessage

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	http   *http.Client
	ws     *websocket.Conn
	editor *editor
	check  func(direction string, frame []byte)
	nextID atomic.Int64
	drops  atomic.Int64 // streams that broke and were opened again

	mu      sync.Mutex
	once    bool            // do not open a broken stream again
	streams map[string]bool // opened, by session
	inbox   []message       // everything but awaited responses
	wake    chan struct{}   // closed and replaced when inbox or lastID changes
	lastID  uint64          // of the newest SSE event
	waiting map[string]chan message
	closed  error // why the connection ended
}

// connect opens a connection and initializes it.
func connect(t testing.TB, g *gateway, kind dialect, o options) *client {
	t.Helper()
	c := &client{
		t: t, g: g, kind: kind, opts: o,
		streams: map[string]bool{}, waiting: map[string]chan message{}, wake: make(chan struct{}),
		http: o.client, check: checker(t),
	}
	if c.http == nil {
		c.http = &http.Client{Transport: &http.Transport{}}
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	t.Cleanup(c.abandon)
	meta := map[string]any{}
	if o.agent != "" {
		meta["agent"] = o.agent
	}
	own := map[string]any{"notices": true}
	if o.eventIDs {
		own["eventIds"] = true
	}
	if o.question {
		own["requestQuestion"] = true
	}
	capabilities := map[string]any{"_meta": map[string]any{"sandboxagent.dev": own}}
	if o.subagents {
		capabilities["subagents"] = map[string]any{}
	}
	p := map[string]any{"protocolVersion": 1, "clientCapabilities": capabilities, "_meta": map[string]any{"sandboxagent.dev": meta}}
	if kind == wsocket {
		c.dial()
		c.init = c.must("initialize", p)
		return c
	}
	resp, body := c.post(c.frame(json.RawMessage("0"), "initialize", p), "")
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("initialize: %s %s", resp.Status, body)
	}
	std, same := resp.Header.Get("Acp-Connection-Id"), resp.Header.Get("X-ACP-Connection-Id")
	if std == "" || std != same {
		t.Fatalf("initialize: connection ids %q and %q, want the same value in both headers", std, same)
	}
	c.id = std
	var m message
	if err := json.Unmarshal(body, &m); err != nil || m.Error != nil || string(m.ID) != "0" {
		t.Fatalf("initialize: %v, %s", err, body)
	}
	c.check("in", body)
	c.init = m.Result
	if !o.noStream {
		c.stream("")
	}
	return c
}

// abandon drops the client without a word to the gateway.
func (c *client) abandon() {
	c.cancel()
	if c.ws != nil {
		_ = c.ws.CloseNow()
	}
	c.wg.Wait()
	c.http.CloseIdleConnections()
}

// close ends the connection as a polite client does.
func (c *client) close() {
	c.t.Helper()
	if c.kind == wsocket {
		_ = c.ws.Close(websocket.StatusNormalClosure, "")
		c.abandon()
		return
	}
	resp, body := c.request(http.MethodDelete, nil, nil)
	want := http.StatusAccepted
	if c.kind == inline {
		want = http.StatusNoContent
	}
	if resp.StatusCode != want {
		c.t.Errorf("DELETE: %s %s, want %d", resp.Status, body, want)
	}
	c.abandon()
}

// frame builds a request, or a notification when id is nil.
func (c *client) frame(id json.RawMessage, method string, params any) []byte {
	c.t.Helper()
	raw, ok := params.(json.RawMessage)
	if !ok {
		raw = encode(c.t, params)
	}
	b := []byte(`{"jsonrpc":"2.0",`)
	if id != nil {
		b = append(append(append(b, `"id":`...), id...), ',')
	}
	b = append(append(b, `"method":`...), encode(c.t, method)...)
	b = append(append(b, `,"params":`...), raw...)
	b = append(b, '}')
	c.check("out", b)
	return b
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return bytes.TrimSpace(b.Bytes())
}

// request sends one HTTP request with this connection's headers; set nil in
// header for none to be changed.
func (c *client) request(method string, body []byte, header http.Header) (*http.Response, []byte) {
	c.t.Helper()
	req, err := http.NewRequestWithContext(c.ctx, method, c.g.url+"/v2/rpc", bytes.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	c.g.authorize(req.Header)
	if c.id != "" {
		req.Header.Set(c.kind.header(), c.id)
	}
	for k, v := range header {
		req.Header[k] = v
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return &http.Response{Status: err.Error(), Header: http.Header{}}, nil
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return &http.Response{Status: err.Error(), Header: resp.Header}, b
	}
	return resp, b
}

func (c *client) post(frame []byte, session string) (*http.Response, []byte) {
	c.t.Helper()
	h := http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json"}}
	if session != "" && c.kind == standard && c.id != "" {
		h.Set("Acp-Session-Id", session)
	}
	return c.request(http.MethodPost, frame, h)
}

// startID sends a request with the given id and returns where its response will
// arrive.
func (c *client) startID(id json.RawMessage, method string, params any) <-chan message {
	c.t.Helper()
	f := c.frame(id, method, params)
	var env struct {
		Params struct {
			SessionID string `json:"sessionId"`
		} `json:"params"`
	}
	_ = json.Unmarshal(f, &env)
	session := env.Params.SessionID
	ch := make(chan message, 1)
	c.mu.Lock()
	if c.closed != nil {
		ch <- failed(c.closed)
		c.mu.Unlock()
		return ch
	}
	if c.kind != inline {
		c.waiting[idKey(id)] = ch
	}
	c.mu.Unlock()
	switch c.kind {
	case wsocket:
		if err := c.ws.Write(c.ctx, websocket.MessageText, f); err != nil {
			c.fail(err)
		}
	case stdio:
		if err := c.editor.write(f); err != nil {
			c.fail(err)
		}
	case standard:
		if session != "" && !c.opts.noStream {
			c.stream(session)
		}
		if resp, body := c.post(f, session); resp.StatusCode != http.StatusAccepted {
			ch <- failed(fmt.Errorf("POST: %s %s", resp.Status, body))
		}
	case inline:
		c.wg.Go(func() {
			resp, body := c.post(f, session)
			var m message
			if resp.StatusCode != http.StatusOK || json.Unmarshal(body, &m) != nil {
				ch <- failed(fmt.Errorf("POST: %s %s", resp.Status, body))
				return
			}
			m.raw = body
			c.check("in", body)
			if s := resp.Header.Get("X-ACP-Last-Event-Id"); s != "" {
				m.eventID, _ = strconv.ParseUint(s, 10, 64)
			}
			ch <- m
		})
	}
	return ch
}

// idKey is the same for ids of the same value and type: strings may be escaped
// in several ways.
func idKey(id json.RawMessage) string {
	var s string
	if len(id) > 0 && id[0] == '"' && json.Unmarshal(id, &s) == nil {
		return strconv.Quote(s)
	}
	return string(id)
}

// failed is a response made here, for a request that has none.
func failed(err error) message { return message{Error: &rpcError{Message: err.Error()}} }

// start is startID with an id of the client's own.
func (c *client) start(method string, params any) <-chan message {
	c.t.Helper()
	return c.startID(json.RawMessage(strconv.FormatInt(c.nextID.Add(1), 10)), method, params)
}

// wait returns the response and, for inline, only after the events that the
// response says precede it.
func (c *client) wait(ch <-chan message) (json.RawMessage, error) {
	c.t.Helper()
	m := c.response(ch)
	if c.kind == inline && !c.opts.noStream && m.eventID > 0 {
		c.until(func() bool { return c.lastID >= m.eventID }, "event %d, which precedes the response", m.eventID)
	}
	if m.Error != nil {
		return nil, m.Error
	}
	return m.Result, nil
}

// response returns the response, or an error made here when it does not come.
func (c *client) response(ch <-chan message) message {
	select {
	case m := <-ch:
		return m
	case <-time.After(4 * patience):
		return failed(fmt.Errorf("no response within %v", 4*patience))
	}
}

// call sends a request and returns its result.
func (c *client) call(method string, params any) (json.RawMessage, error) {
	c.t.Helper()
	return c.wait(c.start(method, params))
}

// must is call for requests that succeed.
func (c *client) must(method string, params any) json.RawMessage {
	c.t.Helper()
	r, err := c.call(method, params)
	if err != nil {
		c.t.Fatalf("%s: %v (%s)", method, err, c.kind)
	}
	return r
}

// notify sends a notification.
func (c *client) notify(method string, params any) {
	c.t.Helper()
	c.send(c.frame(nil, method, params))
}

// answer responds to a request of the gateway's.
func (c *client) answer(request message, result any) {
	c.t.Helper()
	b := append([]byte(`{"jsonrpc":"2.0","id":`), request.ID...)
	b = append(append(b, `,"result":`...), encode(c.t, result)...)
	c.sendFor(append(b, '}'), request.params().SessionID)
}

func (c *client) send(f []byte) {
	c.t.Helper()
	var env struct {
		Params struct {
			SessionID string `json:"sessionId"`
		} `json:"params"`
	}
	_ = json.Unmarshal(f, &env)
	c.sendFor(f, env.Params.SessionID)
}

func (c *client) sendFor(f []byte, session string) {
	c.t.Helper()
	switch c.kind {
	case wsocket:
		if err := c.ws.Write(c.ctx, websocket.MessageText, f); err != nil {
			c.t.Errorf("write: %v", err)
		}
		return
	case stdio:
		if err := c.editor.write(f); err != nil {
			c.t.Errorf("write: %v", err)
		}
		return
	}
	if resp, body := c.post(f, session); resp.StatusCode != http.StatusAccepted || len(body) > 0 {
		c.t.Errorf("POST %.100s: %s %q, want 202 without a body", f, resp.Status, body)
	}
}

// newSession makes a session and returns its id.
func (c *client) newSession() string { return c.newSessionWith(nil) }

// newSessionWith makes a session with fields of the gateway's own.
func (c *client) newSessionWith(own map[string]any) string {
	c.t.Helper()
	dir := c.opts.cwd
	if dir == "" {
		var err error
		if dir, err = os.Getwd(); err != nil {
			c.t.Fatal(err)
		}
	}
	var r struct {
		SessionID string `json:"sessionId"`
	}
	params := map[string]any{"cwd": dir, "mcpServers": []any{}}
	if own != nil {
		params["_meta"] = map[string]any{"sandboxagent.dev": own}
	}
	if err := json.Unmarshal(c.must("session/new", params), &r); err != nil || r.SessionID == "" {
		c.t.Fatalf("session/new: %v", err)
	}
	if c.kind == standard && !c.opts.noStream {
		c.stream(r.SessionID)
	}
	return r.SessionID
}

// attach resumes or loads a session; after nil is from now.
func (c *client) attach(method, session string, after *uint64) json.RawMessage {
	c.t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		c.t.Fatal(err)
	}
	p := map[string]any{"sessionId": session, "cwd": dir, "mcpServers": []any{}}
	if after != nil {
		p["_meta"] = map[string]any{"sandboxagent.dev": map[string]any{"after": *after}}
	}
	return c.must(method, p)
}

func promptParams(session, text string) map[string]any {
	return map[string]any{"sessionId": session, "prompt": []any{map[string]any{"type": "text", "text": text}}}
}

// prompt runs a turn and returns its stop reason.
func (c *client) prompt(session, text string) string {
	c.t.Helper()
	return stopReason(c.t, c.must("session/prompt", promptParams(session, text)))
}

func stopReason(t testing.TB, result json.RawMessage) string {
	t.Helper()
	var r struct {
		StopReason string `json:"stopReason"`
	}
	if err := json.Unmarshal(result, &r); err != nil {
		t.Fatalf("%v in %s", err, result)
	}
	return r.StopReason
}

// forget drops what was received; the test that made the connection keeps it to its end.
func (c *client) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inbox = nil
}

// messages returns what has arrived and no request waited for.
func (c *client) messages() []message {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.inbox[:len(c.inbox):len(c.inbox)]
}

// until waits for a condition on the client's state, as long as something
// arrives now and then; ok runs with mu held.
func (c *client) until(ok func() bool, what string, args ...any) {
	c.t.Helper()
	stalled := time.NewTimer(patience)
	defer stalled.Stop()
	for {
		c.mu.Lock()
		done, wake, closed := ok(), c.wake, c.closed
		c.mu.Unlock()
		if done {
			return
		}
		if closed != nil {
			c.t.Fatalf("%s: the connection ended while waiting for %s: %v", c.kind, fmt.Sprintf(what, args...), closed)
		}
		select {
		case <-wake:
			stalled.Reset(patience)
		case <-stalled.C:
			c.t.Fatalf("%s: waited in vain for %s; %s", c.kind, fmt.Sprintf(what, args...), c.summary())
		}
	}
}

func (c *client) summary() string {
	in := c.messages()
	s := fmt.Sprintf("%d messages arrived", len(in))
	if len(in) > 0 {
		s += fmt.Sprintf(", the last: %.300s", in[len(in)-1].raw)
	}
	return s
}

// find waits for a message from position from on that satisfies ok.
func (c *client) find(from int, what string, ok func(*message) bool) message {
	c.t.Helper()
	var found message
	next := from
	c.until(func() bool {
		for ; next < len(c.inbox); next++ {
			if ok(&c.inbox[next]) {
				found = c.inbox[next]
				return true
			}
		}
		return false
	}, "%s", what)
	return found
}

// findMethod waits for a message with a method.
func (c *client) findMethod(method string) message {
	c.t.Helper()
	return c.find(0, method, func(m *message) bool { return m.Method == method })
}

func (c *client) mark() int { return len(c.messages()) }

// deliver takes one frame from a stream or a socket.
func (c *client) deliver(raw []byte, eventID uint64) {
	m := message{raw: raw, eventID: eventID}
	if err := json.Unmarshal(raw, &m); err != nil || m.JSONRPC != "2.0" {
		c.t.Errorf("%s: a frame is not JSON-RPC: %v: %.300s", c.kind, err, raw)
		return
	}
	c.check("in", raw)
	c.mu.Lock()
	defer c.mu.Unlock()
	if eventID > 0 {
		c.lastID = max(c.lastID, eventID)
	}
	if ch := c.waiting[idKey(m.ID)]; m.Method == "" && ch != nil {
		delete(c.waiting, idKey(m.ID))
		ch <- m
	} else {
		c.inbox = append(c.inbox, m)
	}
	close(c.wake)
	c.wake = make(chan struct{})
}

// fail ends the connection: who waits for a response gets err.
func (c *client) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed != nil {
		return
	}
	c.closed = err
	for id, ch := range c.waiting {
		delete(c.waiting, id)
		ch <- failed(err)
	}
	close(c.wake)
	c.wake = make(chan struct{})
}

// errCut is how a connection with a limit ends.
var errCut = errors.New("the connection was cut by the test")

// counter follows a session's numbered agent_message_chunks.
type counter struct {
	session string
	next    int // expected number
	pos     int // in the inbox
	base    int // number of the first chunk
}

var number = regexp.MustCompile(`\d+`)

// count advances over the client's messages and fails the test at a gap, a
// double or a wrong order.
func (n *counter) count(c *client, in []message) {
	for ; n.pos < len(in); n.pos++ {
		text, ok := in[n.pos].chunk(n.session)
		if !ok {
			continue
		}
		got, err := strconv.Atoi(number.FindString(text))
		if err != nil {
			c.t.Fatalf("%s: chunk %q has no number", c.kind, text)
		}
		if n.next == 0 {
			n.base = got
		}
		if got != n.base+n.next {
			c.t.Fatalf("%s: chunk %d follows chunk %d after %d", c.kind, got, n.base+n.next-1, n.next)
		}
		n.next++
	}
}

// awaitChunks waits until the session's numbered chunks up to total have arrived
// from position from on: complete, in order, each once.
func (c *client) awaitChunks(session string, from, total int) {
	c.t.Helper()
	n := &counter{session: session, pos: from}
	c.until(func() bool {
		n.count(c, c.inbox)
		return n.next >= total
	}, "%d chunks of %s", total, session)
	if n.next != total || n.base > 1 {
		c.t.Errorf("%s: %d chunks from number %d, want %d", c.kind, n.next, n.base, total)
	}
}
