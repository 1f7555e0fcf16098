package bridgetest

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// Patience bounds every wait of a test.
const Patience = 2 * time.Minute

// Answer is what a client says to a request of the agent. nil leaves it open.
type Answer func(method string, params json.RawMessage) any

// Client is the gateway's end of a connection. It notes all frames, and answers
// what the agent asks by its Answer. Its methods are safe for concurrent use;
// those that wait fail the test when Patience is over.
//
// A Client of a [World.Part] has a connection that others used before and will
// use after it. It knows only the frames that came since it was opened.
type Client struct {
	W    *World
	Conn acp.Conn

	*link
	base int                // how many frames came before
	made []schema.SessionID // sessions that end with a part
}

// link is a connection.
type link struct {
	conn acp.Conn
	done chan struct{} // closed when reading has ended
	end  error         // why; valid when done is closed

	mu     sync.Mutex
	answer Answer
	frames []acp.Message
	woken  chan struct{} // closed and replaced when frames grows
	lastID int64
	first  json.RawMessage // the result of the session that parts share
}

// Open opens the World's adapter and initializes it. The connection is closed
// when the test ends. A nil answer leaves every request open. In a part of a
// test it is a connection of the whole test, unless there is none yet whose
// client had the same capabilities.
func (w *World) Open(caps schema.ClientCapabilities, answer Answer) *Client {
	w.T.Helper()
	if w.whole == nil {
		return w.OpenAlone(caps, answer)
	}
	key := string(Encoded(caps))
	l := w.whole.links[key]
	if l == nil || l.over() {
		l = w.whole.dial(w)
		w.whole.links[key] = l
		(&Client{W: w, Conn: l.conn, link: l}).initialize(caps)
	}
	l.mu.Lock()
	l.answer = answer
	c := &Client{W: w, Conn: l.conn, link: l, base: len(l.frames)}
	l.mu.Unlock()
	w.T.Cleanup(func() { c.leave(key) })
	return c
}

// OpenAlone is Open with a connection that no other part of the test uses.
func (w *World) OpenAlone(caps schema.ClientCapabilities, answer Answer) *Client {
	w.T.Helper()
	l := w.dial(w)
	l.answer = answer
	c := &Client{W: w, Conn: l.conn, link: l}
	c.initialize(caps)
	return c
}

// dial opens a connection that lasts as long as the World's test; t's is the test
// that needs it.
func (w *World) dial(t *World) *link {
	t.T.Helper()
	conn, err := t.Adapter().Open(t.T.Context(), adapters.Options{StateDir: w.State})
	if err != nil {
		t.T.Fatal(err)
	}
	l := &link{conn: conn, woken: make(chan struct{}), done: make(chan struct{})}
	go l.read()
	w.T.Cleanup(func() {
		if err := l.close(); err != nil {
			w.T.Error(err)
		}
	})
	return l
}

func (c *Client) initialize(caps schema.ClientCapabilities) {
	c.W.T.Helper()
	if _, e := c.Call(acp.MethodInitialize, &schema.InitializeRequest{ProtocolVersion: 1, ClientCapabilities: &caps}); e != nil {
		c.W.T.Fatal(e)
	}
}

// leave ends what a part of a test has begun. A part that failed may have left
// anything, so its connection is closed.
func (c *Client) leave(key string) {
	if c.W.T.Failed() {
		delete(c.W.whole.links, key)
		_ = c.link.close()
		return
	}
	for _, id := range c.made {
		if c.over() {
			return
		}
		_, _ = c.Call(acp.MethodSessionClose, &schema.CloseSessionRequest{SessionID: id}) // the part may have closed it
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answer = nil
}

// Close closes the connection. It is idempotent.
func (c *Client) Close() {
	if err := c.link.close(); err != nil {
		c.W.T.Error(err)
	}
}

func (l *link) close() error {
	err := l.conn.Close()
	<-l.done
	return err
}

func (l *link) over() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

func (l *link) read() {
	defer close(l.done)
	for {
		m, err := l.conn.Read(context.Background())
		l.mu.Lock()
		if err != nil {
			l.end = err
		} else {
			m = m.Clone()
			l.frames = append(l.frames, m)
		}
		close(l.woken)
		l.woken = make(chan struct{})
		answer := l.answer
		l.mu.Unlock()
		if err != nil {
			return
		}
		if m.IsRequest() && answer != nil {
			if result := answer(m.Method(), m.Params()); result != nil {
				b, _ := schema.Encode(result)
				_ = l.conn.Write(context.Background(), acp.NewResult(m.ID(), b))
			}
		}
	}
}

// Await waits for a frame from position from on, and returns its position.
func (c *Client) Await(what string, from int, ok func(m *acp.Message) bool) (int, *acp.Message) {
	c.W.T.Helper()
	limit := time.NewTimer(Patience)
	defer limit.Stop()
	for {
		c.mu.Lock()
		frames, woken, end := c.frames[c.base:], c.woken, c.end
		c.mu.Unlock()
		for ; from < len(frames); from++ {
			if m := frames[from]; ok(&m) {
				return from, &m
			}
		}
		if end != nil {
			c.W.T.Fatalf("no %s: reading ended: %v\n%s", what, end, c.Quote())
		}
		select {
		case <-woken:
		case <-limit.C:
			c.W.T.Fatalf("no %s in time\n%s", what, c.Quote())
		}
	}
}

// Ended waits for the end of the connection and returns why it ended.
func (c *Client) Ended() error {
	c.W.T.Helper()
	limit := time.NewTimer(Patience)
	defer limit.Stop()
	select {
	case <-c.done:
	case <-limit.C:
		c.W.T.Fatalf("the connection goes on\n%s", c.Quote())
	}
	return c.end
}

// Frames returns what has come so far.
func (c *Client) Frames() []acp.Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clip(c.frames[c.base:])
}

// Quote renders the last frames, for messages of failure.
func (c *Client) Quote() string {
	frames := c.Frames()
	var b strings.Builder
	for _, m := range frames[max(0, len(frames)-60):] {
		if s := string(m.Frame()); strings.Contains(s, "available_commands_update") {
			b.WriteString("\t...commands\n")
		} else {
			fmt.Fprintf(&b, "\t%.500s\n", s)
		}
	}
	return b.String()
}

// Seen is the position of the next frame.
func (c *Client) Seen() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.frames) - c.base
}

// Begin sends a request and returns its id.
func (c *Client) Begin(method string, params any) acp.ID {
	c.W.T.Helper()
	b, err := schema.Encode(params)
	if err != nil {
		c.W.T.Fatal(err)
	}
	c.mu.Lock()
	c.lastID++
	id := acp.IntID(c.lastID)
	c.mu.Unlock()
	if err := c.Conn.Write(context.Background(), acp.NewRequest(id, method, b)); err != nil {
		c.W.T.Fatal(err)
	}
	return id
}

// Notify sends a notification.
func (c *Client) Notify(method string, params any) {
	c.W.T.Helper()
	b, _ := schema.Encode(params)
	if err := c.Conn.Write(context.Background(), acp.NewNotification(method, b)); err != nil {
		c.W.T.Fatal(err)
	}
}

// terminalOnly finds in an error, as it is sent, what only terminals can show.
var terminalOnly = regexp.MustCompile(`\\u00(0[0-8be-f]|1|7f|[89])`)

// Result waits for the response to a request. Errors must be plain text.
func (c *Client) Result(id acp.ID) (json.RawMessage, *acp.Error) {
	c.W.T.Helper()
	_, m := c.Await("response "+string(id), 0, func(m *acp.Message) bool { return m.IsResponse() && m.ID() == id })
	if m.Err() != nil && terminalOnly.Match(m.Frame()) {
		c.W.T.Errorf("an error with control characters: %s", m.Frame())
	}
	return m.Result(), m.Err()
}

// Call sends a request and waits for its response.
func (c *Client) Call(method string, params any) (json.RawMessage, *acp.Error) {
	c.W.T.Helper()
	return c.Result(c.Begin(method, params))
}

// Must is Call for requests that succeed.
func (c *Client) Must(method string, params any) json.RawMessage {
	c.W.T.Helper()
	r, e := c.Call(method, params)
	if e != nil {
		c.W.T.Fatalf("%s: %v\n%s", method, e, c.Quote())
	}
	return r
}

// New makes a session with our _meta, "" for none.
func (c *Client) New(own string) schema.SessionID {
	c.W.T.Helper()
	return schema.SessionID(rawjson.MemberString(c.NewResult(own), "sessionId"))
}

// NewResult is New for who wants the whole result.
func (c *Client) NewResult(own string) json.RawMessage {
	c.W.T.Helper()
	if own == "" && c.W.whole != nil && c.W.OneSession {
		if c.first == nil {
			c.first = c.new("")
		}
		return c.first
	}
	r := c.new(own)
	if c.W.whole != nil {
		c.made = append(c.made, schema.SessionID(rawjson.MemberString(r, "sessionId")))
	}
	return r
}

// Fresh is New with a session in which nothing was said.
func (c *Client) Fresh() schema.SessionID {
	c.W.T.Helper()
	id := schema.SessionID(rawjson.MemberString(c.new(""), "sessionId"))
	if c.W.whole != nil {
		c.made = append(c.made, id)
	}
	return id
}

func (c *Client) new(own string) json.RawMessage {
	c.W.T.Helper()
	r := &schema.NewSessionRequest{Cwd: c.W.Cwd, MCPServers: []schema.MCPServer{}}
	if own != "" {
		r.Meta = map[string]json.RawMessage{acp.MetaKey: json.RawMessage(own)}
	}
	return c.Must(acp.MethodSessionNew, r)
}

// Prompt sends a prompt and returns its id.
func (c *Client) Prompt(id schema.SessionID, text string) acp.ID {
	c.W.T.Helper()
	return c.Begin(acp.MethodSessionPrompt, &schema.PromptRequest{SessionID: id, Prompt: []schema.ContentBlock{schema.TextBlock(text)}})
}

// Turn runs a prompt and returns how it ended and the updates that it caused.
func (c *Client) Turn(id schema.SessionID, text string) (schema.StopReason, []schema.SessionUpdate) {
	c.W.T.Helper()
	from := c.Seen()
	r, e := c.Result(c.Prompt(id, text))
	if e != nil {
		c.W.T.Fatalf("prompt %q: %v\n%s", text, e, c.Quote())
	}
	return schema.StopReason(rawjson.MemberString(r, "stopReason")), c.Updates(from)
}

// Updates are those from a position on.
func (c *Client) Updates(from int) []schema.SessionUpdate {
	c.W.T.Helper()
	var out []schema.SessionUpdate
	for _, m := range c.Frames()[from:] {
		if m.Method() != acp.MethodSessionUpdate {
			continue
		}
		var u schema.SessionUpdate
		if err := json.Unmarshal(m.Update(), &u); err != nil {
			c.W.T.Fatal(err)
		}
		out = append(out, u)
	}
	return out
}

// Said joins what the agent said.
func Said(list []schema.SessionUpdate) string {
	var b strings.Builder
	for _, u := range list {
		if u.AgentMessageChunk != nil && u.AgentMessageChunk.Content.Text != nil {
			b.WriteString(u.AgentMessageChunk.Content.Text.Text)
		}
	}
	return b.String()
}

// Pick answers permission requests with an option, and questions not at all.
func Pick(option string) Answer {
	return func(method string, _ json.RawMessage) any {
		if method != acp.MethodSessionRequestPermission {
			return nil
		}
		return map[string]any{"outcome": map[string]string{"outcome": "selected", "optionId": option}}
	}
}
