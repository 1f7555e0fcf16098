package agent

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"strconv"
	"strings"
	"sync"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/version"
)

// second is the agent's end of a connection whose client may ask for version 2 of the
// protocol. The agent behind it speaks version 1, and in prompts of their own what only
// version 2 has; see second_prompt.go.
type second struct {
	acp.AgentConn

	mu       sync.Mutex // orders what is written
	two      bool       // the client has asked for version 2
	seq      uint64
	out      version.Frames
	requests map[acp.ID]string // the client's that are open: their methods in version 1
	resumed  map[acp.ID]string // of those that open a session: its id
	turns    map[acp.ID]string // prompts that were answered when they began: their sessions
	asks     map[acp.ID]ask
	sessions map[string]*view
	ids      string // what the ids of messages begin with: a process must not repeat those of the one before
}

type ask struct {
	session, method string
	params          json.RawMessage
}

// view is a session as the client of version 2 sees it.
type view struct {
	*version.View
	history bool // what comes is a replay
}

func newSecond(c acp.AgentConn) *second {
	return &second{
		AgentConn: c, requests: map[acp.ID]string{}, resumed: map[acp.ID]string{}, turns: map[acp.ID]string{}, asks: map[acp.ID]ask{}, sessions: map[string]*view{},
		ids: "message-" + strings.ToLower(rand.Text()[:8]) + "-",
	}
}

// isTwo reports whether the client speaks version 2.
func (c *second) isTwo() bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.two
}

// Read implements [acp.AgentConn].
func (c *second) Read() (acp.Message, error) {
	for {
		m, err := c.AgentConn.Read()
		if err != nil {
			return m, err
		}
		if lowered, ok, err := c.lower(m); ok || err != nil {
			return lowered, err
		}
	}
}

// lower returns a message of the client as version 1 has it, and false when it was
// answered here.
func (c *second) lower(m acp.Message) (acp.Message, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.Method() == acp.MethodInitialize && m.IsRequest() {
		choice, bad := version.Choose(&m, version.All())
		if bad != nil {
			return m, false, c.writeLocked(version.Refusal(&m, bad))
		}
		c.two = choice.Version == version.Two
		c.requests[m.ID()] = m.Method()
		return acp.NewRequest(m.ID(), m.Method(), choice.Params), true, nil
	}
	if !c.two {
		return m, true, nil
	}
	if m.IsResponse() {
		a, open := c.asks[m.ID()]
		if !open {
			return m, true, nil
		}
		delete(c.asks, m.ID())
		done := acp.NewNotification(acp.MethodCancelRequest, rawjson.Object{}.Raw("requestId", []byte(m.ID())).End())
		return version.Answer(a.method, a.params, &m), true, c.stepLocked(a.session, version.AskDone, &done)
	}
	switch m.Method() {
	case version.MethodToolCallCancel, version.MethodTerminalCancel:
		return m, true, nil
	}
	lowered, bad := version.Request(&m)
	if bad != nil {
		if m.IsRequest() {
			return m, false, c.writeLocked(version.Refusal(&m, bad))
		}
		return m, false, nil
	}
	if m.IsRequest() {
		c.requests[m.ID()] = lowered.Method()
	}
	switch lowered.Method() {
	case acp.MethodSessionLoad, acp.MethodSessionResume:
		cwd := rawjson.MemberString(m.Params(), "cwd")
		c.sessions[m.Session()] = &view{View: version.NewView(version.About{Session: m.Session(), Cwd: cwd, IDs: c.ids}), history: true}
		c.resumed[m.ID()] = m.Session()
	case acp.MethodSessionPrompt:
		v := c.sessions[m.Session()]
		if v == nil || v.Running() {
			break
		}
		c.turns[m.ID()] = m.Session()
		answer := acp.NewResult(m.ID(), rawjson.Object{}.String("messageId", c.ids+strconv.FormatUint(c.seq+1, 10)).End())
		if err := c.writeLocked(answer); err != nil {
			return m, false, err
		}
		return lowered, true, c.stepLocked(m.Session(), version.Client, &lowered)
	}
	return lowered, true, nil
}

// WriteLines implements [acp.AgentConn].
func (c *second) WriteLines(lines []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.two {
		return c.AgentConn.WriteLines(lines)
	}
	for line := range bytes.Lines(lines) {
		m, err := acp.Parse(bytes.Clone(bytes.TrimSuffix(line, []byte("\n"))))
		if err != nil {
			err = c.AgentConn.WriteLines(line) // it is meant to be none
		} else {
			err = c.raiseLocked(&m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// raiseLocked writes a message of the agent as version 2 has it.
func (c *second) raiseLocked(m *acp.Message) error {
	switch {
	case m.IsResponse():
		return c.respondLocked(m)
	case m.Method() == acp.MethodSessionUpdate:
		kind := version.Update
		if onlyTwo[string(m.UpdateKind())] {
			kind = version.Second
		}
		v := c.sessions[m.Session()]
		if v != nil && v.Running() && kind == version.Second && rawjson.MemberString(m.Update(), "state") == "idle" {
			return nil // what was in the background has ended; the turn goes on
		}
		return c.stepLocked(m.Session(), kind, m)
	case m.IsRequest():
		c.asks[m.ID()] = ask{m.Session(), m.Method(), m.Params()}
		if err := c.stepLocked(m.Session(), version.Ask, m); err != nil {
			return err
		}
		v := c.sessions[m.Session()]
		if _, said := rawjson.Member(m.Params(), "title"); said || v == nil {
			return c.writeLocked(*m)
		}
		return c.writeLocked(acp.MustParse(v.Ask(m)))
	}
	return c.writeLocked(*m)
}

// onlyTwo are the updates that the agent says in version 2 itself.
var onlyTwo = map[string]bool{
	"state_update": true, "agent_message": true, "tool_call_content_chunk": true, "terminal_update": true, "terminal_output_chunk": true,
}

// respondLocked writes the answer to a request of the client.
func (c *second) respondLocked(m *acp.Message) error {
	method := c.requests[m.ID()]
	delete(c.requests, m.ID())
	if session, begun := c.turns[m.ID()]; begun {
		delete(c.turns, m.ID())
		return c.stepLocked(session, version.Response, m)
	}
	if id, opens := c.resumed[m.ID()]; opens {
		delete(c.resumed, m.ID())
		if v := c.sessions[id]; m.Result() != nil && v != nil {
			v.history = false
			c.out.Reset()
			v.State(&c.out)
			if err := c.writeMadeLocked(); err != nil {
				return err
			}
		}
	}
	switch {
	case m.Result() == nil:
		return c.writeLocked(*m)
	case method == acp.MethodInitialize:
		return c.writeLocked(acp.NewResult(m.ID(), version.Initialized(m.Result())))
	case method == acp.MethodSessionNew || method == acp.MethodSessionFork:
		id := rawjson.MemberString(m.Result(), "sessionId")
		c.sessions[id] = &view{View: version.NewView(version.About{Session: id, Cwd: "/", IDs: c.ids})}
	}
	return c.writeLocked(acp.MustParse(version.Reply(method, m, nil, nil)))
}

// stepLocked writes what the client of version 2 is told of something that happened in a
// session. Of a session that it does not know it is told as it is.
func (c *second) stepLocked(session string, kind version.Kind, m *acp.Message) error {
	v := c.sessions[session]
	if v == nil {
		if kind == version.Update || kind == version.Second {
			return c.writeLocked(*m)
		}
		return nil
	}
	c.seq++
	c.out.Reset()
	v.Step(version.Entry{Seq: c.seq, Kind: kind, Frame: m.Frame()}, v.history, &c.out)
	return c.writeMadeLocked()
}

func (c *second) writeMadeLocked() error {
	for i := range c.out.Len() {
		if err := c.AgentConn.WriteLines(append(bytes.Clone(c.out.At(i)), '\n')); err != nil {
			return err
		}
	}
	return nil
}

func (c *second) writeLocked(m acp.Message) error {
	return c.AgentConn.WriteLines(append(bytes.Clone(m.Frame()), '\n'))
}
