package runtime

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/runtime/agents"
	"sandboxagent.dev/sandbox-agent/runtime/observe"
	"sandboxagent.dev/sandbox-agent/runtime/session"
	"sandboxagent.dev/sandbox-agent/runtime/viewer"
)

// Send takes one message of the client.
func (c *Client) Send(ctx context.Context, m acp.Message) error {
	c.Touch()
	return c.take(ctx, &m, nil)
}

// Call takes a request whose response its sender collects.
func (c *Client) Call(ctx context.Context, m acp.Message) (<-chan acp.Reply, error) {
	c.Touch()
	sink := make(chan acp.Reply, 1)
	return sink, c.take(ctx, &m, sink)
}

func (c *Client) take(ctx context.Context, m *acp.Message, sink chan acp.Reply) error {
	if c.Capabilities().Two() {
		if m = c.lower(m, sink); m == nil {
			return nil
		}
	}
	if m.Meta() != nil && !(m.IsRequest() && takesCredentials(m.Method())) {
		own := withoutCredentials(m) // what is written down and passed on has none
		m = &own
	}
	switch {
	case m.IsResponse():
		c.r.sessions.Answer(c.Client, m)
	case m.IsNotification():
		c.notification(ctx, m)
	default:
		c.request(ctx, m, sink)
	}
	return nil
}

// notification handles what wants no answer. What nobody knows is ignored.
func (c *Client) notification(ctx context.Context, m *acp.Message) {
	if m.Method() == acp.MethodCancelRequest {
		c.cancelRequest(ctx, m)
		return
	}
	if c.watch {
		return
	}
	if !m.HasSession() {
		if p := c.process.Load(); p != nil && m.Method() != "initialized" && m.Method() != "notifications/initialized" {
			_ = p.Send(ctx, m.Clone())
		}
		return
	}
	c.tellInOrder(ctx, m)
}

// tell takes a notification for a session.
func (c *Client) tell(ctx context.Context, m *acp.Message) {
	s := c.r.sessions.Find(m.Session())
	if s == nil && m.Method() == acp.MethodSessionCancel {
		_, named := acp.PromptIDs(m)
		if parent := c.r.sessions.Parent(m.Session()); parent != nil && !named { // a subagent has no prompts
			parent.CancelChild(ctx, m)
			return
		}
	}
	if s == nil {
		c.r.log.Debug("notification for an unknown session", "client", c.ID(), "method", m.Method())
		return
	}
	if m.Method() == acp.MethodSessionCancel {
		s.Cancel(c.Number(), m)
		return
	}
	s.Record(c.Number(), m)
	s.Send(ctx, m)
}

// cancelRequest handles a client's $/cancel_request: who works on the request decides.
func (c *Client) cancelRequest(ctx context.Context, m *acp.Message) {
	if id, ok := rawjson.Member(m.Params(), "requestId"); ok {
		if q := c.Request(acp.ID(id)); q != nil {
			q.Withdraw(ctx)
		}
	}
}

// watching are the requests of a connection that only watches.
var watching = map[string]bool{
	acp.MethodInitialize: true, acp.MethodSessionList: true, acp.MethodSessionLoad: true, acp.MethodSessionResume: true,
	"_sandboxagent/session/detach": true, "_sandboxagent/session/events": true, "_sandboxagent/session/get": true, "_sandboxagent/session/pending": true,
	"_sandboxagent/session/permissions": true,
}

// request registers the request and handles it.
func (c *Client) request(ctx context.Context, m *acp.Message, sink chan acp.Reply) {
	begin := func() observe.Span { return observe.NoSpan{} }
	if _, known := acp.LookupMethod(m.Method()); known && m.Method() != acp.MethodSessionPrompt { // a prompt's turn has a span
		w := observe.Work{Name: m.Method(), Agent: c.agentOf(m), Session: m.Session(), Meta: m.Meta()}
		begin = func() observe.Span { return c.r.o.Observer.Begin(ctx, w) }
	}
	q := c.Accept(m, sink, begin)
	if q == nil {
		return
	}
	if c.watch && !watching[q.Method()] {
		q.Fail(nil, problem.New(problem.PermissionDenied, "this connection only watches: open another one without watch for %s", q.Method()))
		return
	}
	if m.HasSession() && m.Session() == "" {
		q.Fail(nil, acp.Errorf(acp.CodeInvalidParams, "params.sessionId is empty"))
		return
	}
	if c.Capabilities().Two() {
		c.raise(q, m.Session())
	}
	switch q.Method() {
	case acp.MethodSessionNew, acp.MethodSessionLoad, acp.MethodSessionResume, acp.MethodSessionFork:
		params, err := session.Normal(m.Params())
		if err != nil {
			q.Fail(nil, err)
			return
		}
		if len(params) != len(m.Params()) || string(params) != string(m.Params()) {
			own := acp.NewRequest(m.ID(), m.Method(), params)
			m = &own
		}
	}
	c.inOrder(ctx, q, m, func(ctx context.Context, m *acp.Message) { c.handle(ctx, q, m) })
}

// handle handles a request whose turn it is.
func (c *Client) handle(ctx context.Context, q *viewer.Request, m *acp.Message) {
	switch q.Method() {
	case acp.MethodInitialize:
		q.Fail(nil, acp.Errorf(acp.CodeInvalidRequest, "the connection is initialized already"))
	case acp.MethodSessionNew:
		c.newSession(ctx, q, m)
	case acp.MethodSessionLoad, acp.MethodSessionResume:
		c.openSession(q, m)
	case acp.MethodSessionList:
		c.listSessions(q, m)
	case acp.MethodSessionPrompt:
		if s := c.sessionOf(q, m); s != nil {
			if err := cmp.Or(acp.CheckPromptID(m), s.Writable(), s.Authorized()); err != nil {
				q.Fail(nil, err)
				return
			}
			if s.Refusal() == nil { // a prompt that is refused leaves a client that has left the session where it is
				c.attach(s)
			}
			s.Prompt(ctx, q, m, c.needs)
		}
	case acp.MethodSessionClose:
		if s := c.sessionOf(q, m); s != nil {
			closed := s.BeginClose() // before the client's next request, such as a load
			c.r.tasks.Go(func() { c.closeSession(q, s, closed) })
		}
	case acp.MethodSessionDelete:
		if m.HasSession() && c.r.sessions.Find(m.Session()) == nil {
			c.deleteForeign(ctx, q, m)
			return
		}
		if s := c.sessionOf(q, m); s != nil {
			deleted := s.BeginDelete()
			c.r.tasks.Go(func() { finish(q)(deleted(c.r.ctx)) })
		}
	case acp.MethodSessionFork:
		if s := c.sessionOf(q, m); s != nil {
			c.fork(ctx, q, m, s)
		}
	case acp.MethodSessionSetMode, acp.MethodSessionSetConfigOption, acp.MethodSessionSetModel, acp.MethodSessionSetTitle:
		if s := c.sessionOf(q, m); s != nil {
			c.configure(ctx, q, m, s)
		}
	default:
		switch {
		case ours(q.Method()):
			c.extension(q, m)
		case c.cancels(m):
			c.cancelPart(ctx, q, m)
		case m.HasSession():
			if s := c.sessionOf(q, m); s != nil {
				c.attach(s)
				c.toSession(ctx, q, m, s, nil, nil)
			}
		default:
			c.toConnection(ctx, q, m)
		}
	}
}

// ours reports whether a method is an extension of this gateway.
func ours(method string) bool { return strings.HasPrefix(method, "_sandboxagent/") }

// finish answers a request that has no result but where its session went, if only what was left of that was here.
func finish(q *viewer.Request) func(went string, err error) {
	return func(went string, err error) {
		if err != nil || went == "" {
			q.Finish(nil, err)
			return
		}
		q.Result(nil, wentTo([]byte("{}"), went))
	}
}

// wentTo adds to the answer to a request what finish says.
func wentTo(result json.RawMessage, went string) json.RawMessage {
	return rawjson.SetMember(result, rawjson.AppendQuoted(nil, went), "_meta", acp.MetaKey, "movedTo")
}

// agentOf returns the agent that a request is for, "" when it names one itself.
func (c *Client) agentOf(m *acp.Message) string {
	if s := c.r.sessions.Find(m.Session()); s != nil {
		return s.About().Agent
	}
	if rawjson.MemberString(m.Meta(), acp.MetaKey, "agent") != "" || c.agent == nil {
		return ""
	}
	return c.agent.ID()
}

// sessionOf returns the session a request names, or answers that there is none.
func (c *Client) sessionOf(q *viewer.Request, m *acp.Message) *session.Session {
	if !m.HasSession() {
		q.Fail(nil, acp.Errorf(acp.CodeInvalidParams, "%s needs params.sessionId, a string", q.Method()))
		return nil
	}
	s := c.r.sessions.Find(m.Session())
	if s == nil {
		q.Fail(nil, c.r.noneSuch(m.Session()))
		return nil
	}
	if q.Method() != acp.MethodSessionDelete {
		if err := s.Readable(); err != nil {
			q.Fail(nil, err)
			return nil
		}
	}
	return s
}

// noneSuch answers a request for a session that there is none of, or that only lives in
// another's log.
func (r *Runtime) noneSuch(id string) *acp.Error {
	parent := r.sessions.Parent(id)
	if parent == nil {
		return notFound(id)
	}
	const what = "session %q is a subagent of session %q, which has all of it: ask for that one; a subagent can be cancelled, and nothing else"
	return acp.Errorf(acp.CodeResourceNotFound, what, id, parent.ID()).
		WithData(problem.New(problem.SessionNotFound, what, id, parent.ID()).With("sessionId", id).With("parentSessionId", parent.ID()))
}

// notFound answers a request for a session that there is none of.
func notFound(id string) *acp.Error {
	return acp.Errorf(acp.CodeResourceNotFound, "session %q was not found", id).
		WithData(problem.New(problem.SessionNotFound, "session %q was not found", id).With("sessionId", id))
}

// theirs is the error with which an agent refuses a request about a session that only it
// may have. What it does not find is the session, if it does not say otherwise.
func theirs(err error) error {
	said, ok := errors.AsType[*acp.Error](err)
	if !ok || said.Code != acp.CodeResourceNotFound {
		return err
	}
	switch rawjson.MemberString(said.Data, "type") {
	case "", problem.NotFound.Type():
		return said.WithData(map[string]string{"type": problem.SessionNotFound.Type()})
	}
	return err
}

// deleteForeign passes the wish to delete a session that only the agent has on to it:
// session/list names such sessions, too. Nobody opens it meanwhile: the session would be here, and its agent would have nothing of it.
func (c *Client) deleteForeign(ctx context.Context, q *viewer.Request, m *acp.Message) {
	id := m.Session()
	if !c.r.sessions.Reserve(id, false) {
		q.Fail(nil, busy(id))
		return
	}
	free := func() { c.r.sessions.Unreserve(id) }
	c.withProcessForNew(q, m, free, func(p *agents.Process, m *acp.Message) {
		if !p.Capabilities().Delete {
			free()
			q.Fail(nil, notFound(id))
			return
		}
		c.call(ctx, q, p, m, "", func(res *acp.Message, err error) {
			free()
			if err == nil && res.Err() != nil && res.Err().Code == acp.CodeResourceNotFound {
				err = theirs(res.Err())
			}
			relay(q, nil, p, res, err)
		})
	})
}

// attach attaches a client that acts on a session that it did not open.
func (c *Client) attach(s *session.Session) {
	if !c.Reads(s) {
		c.AttachFrom(s, s.BeginsFor(c.Client))
	}
}

// within returns a context that ends with the gateway, for work that is part of q.
func (r *Runtime) within(q *viewer.Request) context.Context {
	return observe.Within(r.ctx, q.Context())
}

// call sends the client's request to p under an id of p's, and with session in place of
// its session's id. done runs on the reader and must not wait.
func (c *Client) call(ctx context.Context, q *viewer.Request, p *agents.Process, m *acp.Message, session string, done func(res *acp.Message, err error)) {
	c.callFor(ctx, q, p, c.forAgent(q, p, m, session, done))
}

// callFor is call for a request that is there.
func (c *Client) callFor(ctx context.Context, q *viewer.Request, p *agents.Process, r agents.Request) {
	if ctx.Err() != nil { // its client is gone, the request goes on
		ctx = c.r.within(q)
	}
	p.Call(ctx, r)
}

// forAgent is the client's request as call sends it.
func (c *Client) forAgent(q *viewer.Request, p *agents.Process, m *acp.Message, session string, done func(res *acp.Message, err error)) agents.Request {
	return agents.Request{Timeout: c.r.o.RequestTimeout, Done: done, Build: func(id acp.ID) acp.Message {
		q.OnWithdraw(func(ctx context.Context) {
			_ = p.Send(ctx, acp.NewNotification(acp.MethodCancelRequest, rawjson.Object{}.Raw("requestId", []byte(id)).End()))
		})
		return m.Rewritten(id, session)
	}}
}

// relay answers with what the agent said, or why it said nothing.
func relay(q *viewer.Request, s viewer.Session, p *agents.Process, res *acp.Message, err error) {
	if err != nil {
		q.Fail(s, err)
		return
	}
	if !p.OwnLogin() {
		p.Agent().LearnAuth(q.Method(), res)
	}
	q.Forward(s, res)
}

// toSession passes a request on to the process that serves the session, and its answer back.
// done, if it is not nil, is called once with what came of it in place of that: on the reader with the agent's answer. It is at no process
// where it was given none. late, if it is not nil, is called with an answer of the agent that comes behind its time limit.
func (c *Client) toSession(ctx context.Context, q *viewer.Request, m *acp.Message, s *session.Session, done func(at session.At, res *acp.Message, err error),
	late func(at session.At, res *acp.Message),
) {
	if done == nil {
		done = func(at session.At, res *acp.Message, err error) { relay(q, s, at.Process(), res, err) }
	}
	if err := s.Refusal(); err == nil { // a refused one is no part of the history
		s.Record(c.Number(), m)
	}
	own := m.Clone()
	s.Request(observe.Within(ctx, q.Context()), c.needs, func(at session.At) (agents.Request, error) {
		r := c.forAgent(q, at.Process(), &own, at.Native(), func(res *acp.Message, err error) { done(at, res, err) })
		if late != nil {
			r.Late = func(res *acp.Message) { late(at, res) }
		}
		return r, nil
	}, func(err error) { done(session.At{}, nil, err) })
}

// configure handles what sets a mode, a model, an option or the title: the agent decides, the
// gateway remembers. The client is answered when that would survive the gateway.
func (c *Client) configure(ctx context.Context, q *viewer.Request, m *acp.Message, s *session.Session) {
	if err := s.Writes(); err != nil { // what cannot be kept is not begun
		q.Fail(nil, err)
		return
	}
	c.attach(s)
	m = c.lowerMode(m, s)
	method, params, asked := m.Method(), bytes.Clone(m.Params()), s.Choosing()
	choice := session.ChoiceOf(method, params)
	c.toSession(ctx, q, m, s, func(at session.At, res *acp.Message, err error) {
		answer := func(res *acp.Message, err error) { relay(q, s, at.Process(), res, err) }
		if err != nil || res.Err() != nil {
			s.EndChoosing()
			answer(res, err)
			return
		}
		s.Chose(at, asked, method, params, res, answer)
	}, func(at session.At, res *acp.Message) {
		if res.Err() == nil {
			s.ChoseLate(at, asked, choice, res)
		}
	})
}

// toConnection passes a request of no session to the agent process that the
// connection was opened with.
func (c *Client) toConnection(ctx context.Context, q *viewer.Request, m *acp.Message) {
	var login json.RawMessage
	if q.Method() == acp.MethodAuthenticate {
		login = bytes.Clone(m.Params())
	}
	c.withProcess(q, m, func(p *agents.Process, m *acp.Message) {
		c.call(ctx, q, p, m, "", func(res *acp.Message, err error) {
			if err == nil && res.Err() == nil {
				p.Agent().LoggedIn(q.Method(), login, res.Result())
			}
			relay(q, nil, p, res, err)
		})
	})
}

// takesCredentials reports whether a request with the method starts a process with them.
func takesCredentials(method string) bool {
	return method == acp.MethodSessionNew || method == acp.MethodSessionLoad || method == acp.MethodSessionResume || method == acp.MethodSessionFork
}

// withoutCredentials returns the message as the agent may see it: it was started with
// the credentials, and agents log their input.
func withoutCredentials(m *acp.Message) acp.Message {
	if _, secret := rawjson.Member(m.Meta(), acp.MetaKey, "credentials"); !secret {
		return *m
	}
	return acp.NewRequest(m.ID(), m.Method(), rawjson.DeleteMember(m.Params(), "_meta", acp.MetaKey, "credentials"))
}
