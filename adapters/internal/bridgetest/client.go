package bridgetest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters"
)

// Patience bounds every wait of a test.
const Patience = 60 * time.Second

// Answer is what a client says to a request of the agent. nil leaves it open.
type Answer func(method string, params json.RawMessage) any

// Client is the gateway's end of a connection. It notes all frames, and answers
// what the agent asks by its Answer. Its methods are safe for concurrent use;
// those that wait fail the test when Patience is over.
type Client struct {
	W    *World
	Conn acp.Conn

	answer Answer

	mu     sync.Mutex
	frames []acp.Message
	woken  chan struct{} // closed and replaced when frames grows
	end    error
	done   chan struct{}
	lastID int64
}

// Open opens the World's adapter and initializes it. The connection is closed
// when the test ends. A nil answer leaves every request open.
func (w *World) Open(caps acp.ClientCapabilities, answer Answer) *Client {
	w.T.Helper()
	conn, err := w.Adapter().Open(w.T.Context(), adapters.Options{StateDir: w.State})
	if err != nil {
		w.T.Fatal(err)
	}
	c := &Client{W: w, Conn: conn, answer: answer, woken: make(chan struct{}), done: make(chan struct{})}
	go c.read()
	w.T.Cleanup(c.Close)
	if _, e := c.Call(acp.MethodInitialize, &acp.InitializeRequest{ProtocolVersion: 1, ClientCapabilities: &caps}); e != nil {
		w.T.Fatal(e)
	}
	return c
}

// Close closes the connection. It is idempotent.
func (c *Client) Close() {
	if err := c.Conn.Close(); err != nil {
		c.W.T.Error(err)
	}
	<-c.done
}

func (c *Client) read() {
	defer close(c.done)
	for {
		m, err := c.Conn.Read(context.Background())
		c.mu.Lock()
		if err != nil {
			c.end = err
		} else {
			m = m.Clone()
			c.frames = append(c.frames, m)
		}
		close(c.woken)
		c.woken = make(chan struct{})
		c.mu.Unlock()
		if err != nil {
			return
		}
		if m.IsRequest() && c.answer != nil {
			if result := c.answer(m.Method(), m.Params()); result != nil {
				b, _ := acp.Encode(result)
				_ = c.Conn.Write(context.Background(), acp.NewResult(m.ID(), b))
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
		frames, woken, end := c.frames, c.woken, c.end
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
	return slices.Clip(c.frames)
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
	return len(c.frames)
}

// Begin sends a request and returns its id.
func (c *Client) Begin(method string, params any) acp.ID {
	c.W.T.Helper()
	b, err := acp.Encode(params)
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
	b, _ := acp.Encode(params)
	if err := c.Conn.Write(context.Background(), acp.NewNotification(method, b)); err != nil {
		c.W.T.Fatal(err)
	}
}

// Result waits for the response to a request.
func (c *Client) Result(id acp.ID) (json.RawMessage, *acp.Error) {
	c.W.T.Helper()
	_, m := c.Await("response "+string(id), 0, func(m *acp.Message) bool { return m.IsResponse() && m.ID() == id })
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
func (c *Client) New(own string) acp.SessionID {
	c.W.T.Helper()
	return acp.SessionID(acp.MemberString(c.NewResult(own), "sessionId"))
}

// NewResult is New for who wants the whole result.
func (c *Client) NewResult(own string) json.RawMessage {
	c.W.T.Helper()
	r := &acp.NewSessionRequest{Cwd: c.W.Cwd, MCPServers: []acp.MCPServer{}}
	if own != "" {
		r.Meta = map[string]json.RawMessage{acp.MetaKey: json.RawMessage(own)}
	}
	return c.Must(acp.MethodSessionNew, r)
}

// Prompt sends a prompt and returns its id.
func (c *Client) Prompt(id acp.SessionID, text string) acp.ID {
	c.W.T.Helper()
	return c.Begin(acp.MethodSessionPrompt, &acp.PromptRequest{SessionID: id, Prompt: []acp.ContentBlock{acp.TextBlock(text)}})
}

// Turn runs a prompt and returns how it ended and the updates that it caused.
func (c *Client) Turn(id acp.SessionID, text string) (acp.StopReason, []acp.SessionUpdate) {
	c.W.T.Helper()
	from := c.Seen()
	r, e := c.Result(c.Prompt(id, text))
	if e != nil {
		c.W.T.Fatalf("prompt %q: %v\n%s", text, e, c.Quote())
	}
	return acp.StopReason(acp.MemberString(r, "stopReason")), c.Updates(from)
}

// Updates are those from a position on.
func (c *Client) Updates(from int) []acp.SessionUpdate {
	c.W.T.Helper()
	var out []acp.SessionUpdate
	for _, m := range c.Frames()[from:] {
		if m.Method() != acp.MethodSessionUpdate {
			continue
		}
		var u acp.SessionUpdate
		if err := json.Unmarshal(m.Update(), &u); err != nil {
			c.W.T.Fatal(err)
		}
		out = append(out, u)
	}
	return out
}

// Said joins what the agent said.
func Said(list []acp.SessionUpdate) string {
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
