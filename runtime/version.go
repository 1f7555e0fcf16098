package runtime

import (
	"context"
	"encoding/json"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/version"
	"sandboxagent.dev/sandbox-agent/runtime/agents"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
	"sandboxagent.dev/sandbox-agent/runtime/observe"
	"sandboxagent.dev/sandbox-agent/runtime/session"
	"sandboxagent.dev/sandbox-agent/runtime/viewer"
)

// This file is what clients of version 2 of the protocol send. All else in this package
// knows version 1 alone.

// lower returns the message of a client of version 2 as version 1 has it, nil when it was
// answered here.
func (c *Client) lower(m *acp.Message, sink chan acp.Reply) *acp.Message {
	if m.IsResponse() {
		id, _ := m.ID().Int()
		if a, open := c.r.sessions.Asks().Open(id); open {
			answer := version.Answer(a.Method, a.Params, m)
			return &answer
		}
		return m
	}
	if m.Method() == acp.MethodInitialize && m.IsRequest() {
		c.initializeAgain(m, sink)
		return nil
	}
	if m.IsRequest() {
		c.asked.Store(true)
	}
	if cancel := version.CancelOfCall(m); c.cancels(&cancel) {
		return &cancel
	}
	lowered, err := version.Request(m)
	if err != nil {
		if m.IsRequest() {
			c.refuse(m, err, sink)
		}
		return nil
	}
	return &lowered
}

// lowerMode returns the request by which a client of version 2 sets an option as version 1 has it for what the session has
// when it is the request's turn: there the option may be the mode.
func (c *Client) lowerMode(m *acp.Message, s *session.Session) *acp.Message {
	if c.Capabilities().Two() && m.Method() == acp.MethodSessionSetConfigOption {
		about := s.BesideLog()
		if mode, ok := version.SetMode(m, about.Options, about.Modes); ok {
			return &mode
		}
	}
	return m
}

// cancelsPart reports whether the method, which version 1 does not have, cancels a call or
// a terminal by itself.
func cancelsPart(method string) bool {
	return method == version.MethodToolCallCancel || method == version.MethodTerminalCancel
}

// agentSession returns the session that is known by the id, or has a child with it.
func (c *Client) agentSession(id string) *session.Session {
	if s := c.r.sessions.Find(id); s != nil {
		return s
	}
	return c.r.sessions.Parent(id)
}

// cancels reports whether the message cancels a call or a terminal by itself, of an agent
// that takes it: one of version 2, or one that says that it takes it for calls.
func (c *Client) cancels(m *acp.Message) bool {
	if !cancelsPart(m.Method()) {
		return false
	}
	s := c.agentSession(m.Session())
	if s == nil {
		return false
	}
	p := s.Process()
	if p == nil {
		return false
	}
	return version.SaidByTwo(p.Initialized()) || m.Method() == version.MethodToolCallCancel && version.CancelsOne(p.Initialized())
}

// cancelPart has the session's agent cancel a call or a terminal by itself.
func (c *Client) cancelPart(ctx context.Context, q *viewer.Request, m *acp.Message) {
	s := c.agentSession(m.Session())
	if s == nil { // it has ended meanwhile
		q.Fail(nil, notFound(m.Session()))
		return
	}
	child := s.ID() != m.Session()
	own := m.Clone()
	s.Request(observe.Within(ctx, q.Context()), c.needs, func(at session.At) (agents.Request, error) {
		p, native := at.Process(), at.Native()
		switch {
		case child && version.SaidByTwo(p.Initialized()):
			native = "" // the agent knows it by the id that its client does
		case child && native == "":
			native = s.ID() // the agent knows no child
		}
		return c.forAgent(q, p, &own, native, func(res *acp.Message, err error) { relay(q, nil, p, res, err) }), nil
	}, func(err error) { q.Fail(nil, err) })
}

// initializeAgain answers an initialize that is repeated: until anything else is asked it
// may be, and what it says then counts.
func (c *Client) initializeAgain(m *acp.Message, sink chan acp.Reply) {
	err := version.Again(m, c.asked.Load())
	var choice version.Choice
	if err == nil {
		choice, err = version.Choose(m, []int{version.Two})
	}
	p := c.process.Load()
	if err == nil && p == nil && !c.watch {
		err = acp.Errorf(acp.CodeInvalidRequest, "the connection has ended")
	}
	if err != nil {
		c.refuse(m, err, sink)
		return
	}
	caps := capabilitiesOf(choice)
	caps.Watch = c.watch
	c.Renew(caps)
	c.answer(acp.NewResult(m.ID(), c.initialized(p)), sink)
}

// refuse answers a request that does not begin.
func (c *Client) refuse(m *acp.Message, err *acp.Error, sink chan acp.Reply) {
	c.answer(version.Refusal(m, err), sink)
}

func (c *Client) answer(m acp.Message, sink chan acp.Reply) {
	if sink != nil {
		sink <- acp.Reply{Frame: m.Frame()}
		return
	}
	c.Post(journal.Response, m.Frame())
}

// raise has the response to a request of a client of version 2 translated.
func (c *Client) raise(q *viewer.Request, id string) {
	q.Raise(func(m *acp.Message) []byte {
		var options, modes json.RawMessage
		switch q.Method() {
		case acp.MethodSessionSetConfigOption, acp.MethodSessionSetMode: // they are answered without a lock
			if s := c.r.sessions.Find(id); s != nil {
				about := s.BesideLog()
				options, modes = about.Options, about.Modes
			}
		}
		return version.Reply(q.Method(), m, options, modes)
	})
}

// closeSession closes a session for the client. In version 2 the client is told nothing
// of it after the answer.
func (c *Client) closeSession(q *viewer.Request, s *session.Session, closed func(context.Context) (string, error)) {
	went, err := closed(c.r.ctx)
	if err == nil {
		c.awaitEnd(s)
		if c.Capabilities().Two() {
			c.Detach(s)
		}
	}
	finish(q)(went, err)
}

// awaitEnd waits until the client was told how what went on in a session has ended: the
// answer to what has ended it comes behind that, though it is not in the log.
func (c *Client) awaitEnd(s *session.Session) {
	c.AwaitEntry(c.r.ctx, s, s.Log().Saved(), replayBound)
}
