package adaptertest

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
)

var discard = slog.New(slog.DiscardHandler)

const protocolVersion = 1

func (c *client) initialize() *schema.InitializeResponse {
	c.t.Helper()
	r := new(schema.InitializeResponse)
	c.must(acp.MethodInitialize, &schema.InitializeRequest{
		ProtocolVersion: protocolVersion, ClientCapabilities: &schema.ClientCapabilities{},
	}, r)
	c.hello = r
	return r
}

// newSession makes a session of an initialized agent.
func (c *client) newSession() schema.SessionID {
	c.t.Helper()
	var r schema.NewSessionResponse
	c.must(acp.MethodSessionNew, &schema.NewSessionRequest{Cwd: c.cwd, MCPServers: []schema.MCPServer{}}, &r)
	if r.SessionID == "" {
		c.fatalf("the new session has no id")
	}
	return r.SessionID
}

// ready returns the shared connection and its first session, in which no turn
// runs.
func (s *suite) ready(t testing.TB) (*client, schema.SessionID) {
	t.Helper()
	c := s.connected(t)
	if c.first == "" {
		c.first = c.newSession()
	}
	return c, c.first
}

// other is another session of the connection, in which nothing was said.
func (c *client) other() schema.SessionID {
	c.t.Helper()
	if c.second == "" {
		c.second = c.newSession()
	}
	return c.second
}

// turn is a prompt and what came of it.
type turn struct {
	c       *client
	session schema.SessionID
	id      acp.ID
	from    int // where to look for what it causes

	// Valid after end.
	at      int // position of the response
	updates []schema.SessionUpdate
	result  json.RawMessage
	stop    schema.StopReason
	err     *acp.Error
}

// begin starts a turn.
func (c *client) begin(session schema.SessionID, text string) *turn {
	c.t.Helper()
	return c.beginRaw(session, c.encode(&schema.PromptRequest{SessionID: session, Prompt: []schema.ContentBlock{schema.TextBlock(text)}}))
}

func (c *client) beginRaw(session schema.SessionID, params []byte) *turn {
	c.t.Helper()
	id, from := c.request(acp.MethodSessionPrompt, params)
	return &turn{c: c, session: session, id: id, from: from}
}

// started waits for the turn's first update.
func (p *turn) started() {
	p.c.t.Helper()
	p.c.await(p.from, "an update of session "+string(p.session), func(m *acp.Message) bool {
		return m.Method() == acp.MethodSessionUpdate && m.Session() == string(p.session)
	})
}

// over waits for the turn's response, an error perhaps.
func (p *turn) over() *turn {
	p.c.t.Helper()
	var m *acp.Message
	p.at, m = p.c.response(p.id, acp.MethodSessionPrompt, p.from)
	p.updates = p.c.updates(p.session, p.from, p.at)
	p.err, p.result = m.Err(), m.Result()
	if p.err == nil {
		var r schema.PromptResponse
		if err := json.Unmarshal(p.result, &r); err != nil {
			p.c.fatalf("the result of a prompt: %v", err)
		}
		p.stop = r.StopReason
	}
	return p
}

// end waits for the end of a turn that does not fail.
func (p *turn) end() *turn {
	p.c.t.Helper()
	if p.over(); p.err != nil {
		p.c.fatalf("the prompt failed: %v", p.err)
	}
	return p
}

// prompt runs a turn to its regular end.
func (c *client) prompt(session schema.SessionID, prompt Prompt) *turn {
	c.t.Helper()
	p := c.begin(session, prompt.Text).end()
	if p.stop != schema.StopReasonEndTurn {
		c.fatalf("the turn ended with %s, want %s", p.stop, schema.StopReasonEndTurn)
	}
	p.says(prompt.Says)
	return p
}

func (p *turn) says(want string) {
	p.c.t.Helper()
	if said := said(p.updates); !strings.Contains(said, want) {
		p.c.fatalf("the agent said %.400q, want %q in it", said, want)
	}
}

func (c *client) cancel(session schema.SessionID) {
	c.t.Helper()
	c.notify(acp.MethodSessionCancel, &schema.CancelNotification{SessionID: session})
}

// updates decodes the updates of a session among the frames between two
// positions.
func (c *client) updates(session schema.SessionID, from, to int) []schema.SessionUpdate {
	c.t.Helper()
	var out []schema.SessionUpdate
	for _, m := range c.between(from, to) {
		if m.Method() != acp.MethodSessionUpdate || m.Session() != string(session) {
			continue
		}
		var u schema.SessionUpdate
		if err := json.Unmarshal(m.Update(), &u); err != nil {
			c.fatalf("an update: %v", err)
		}
		out = append(out, u)
	}
	return out
}

// quiet checks that a turn that has ended sends nothing any more.
func (p *turn) quiet() {
	p.c.t.Helper()
	for _, u := range p.c.updates(p.session, p.at, p.c.barrier()) {
		if ofTurn(&u) {
			p.c.fatalf("an update of the turn came after its response")
		}
	}
}

// ofTurn reports whether an update belongs to a turn. Names, modes and the like
// may change at any time.
func ofTurn(u *schema.SessionUpdate) bool {
	return u.UserMessageChunk != nil || u.AgentMessageChunk != nil || u.AgentThoughtChunk != nil ||
		u.ToolCall != nil || u.ToolCallUpdate != nil || u.Plan != nil
}

// said joins what the agent said.
func said(updates []schema.SessionUpdate) string {
	return join(updates, func(u *schema.SessionUpdate) *schema.ContentChunk { return u.AgentMessageChunk })
}

// asked joins what the user said.
func asked(updates []schema.SessionUpdate) string {
	return join(updates, func(u *schema.SessionUpdate) *schema.ContentChunk { return u.UserMessageChunk })
}

func join(updates []schema.SessionUpdate, chunk func(u *schema.SessionUpdate) *schema.ContentChunk) string {
	var b strings.Builder
	for i := range updates {
		if c := chunk(&updates[i]); c != nil && c.Content.Text != nil {
			b.WriteString(c.Content.Text.Text)
		}
	}
	return b.String()
}
