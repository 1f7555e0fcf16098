package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// Send takes one message of the client.
func (c *Client) Send(ctx context.Context, m acp.Message) error {
	c.used.Store(time.Now().UnixMilli())
	return c.take(ctx, &m, nil)
}

// Call takes a request whose response its sender collects.
func (c *Client) Call(ctx context.Context, m acp.Message) (<-chan acp.Reply, error) {
	c.used.Store(time.Now().UnixMilli())
	sink := make(chan acp.Reply, 1)
	return sink, c.take(ctx, &m, sink)
}

func (c *Client) take(ctx context.Context, m *acp.Message, sink chan acp.Reply) error {
	if m.Meta() != nil && !takesCredentials(m.Method()) {
		own := shown(m) // what is written down and passed on has none
		m = &own
	}
	switch {
	case m.IsResponse():
		c.r.answer(c, m)
	case m.IsNotification():
		c.notification(ctx, m)
	default:
		c.request(ctx, m, sink)
	}
	return nil
}

// notification handles what wants no answer. What nobody knows is ignored.
func (c *Client) notification(ctx context.Context, m *acp.Message) {
	if m.Method() == methodCancelReq {
		c.cancelRequest(ctx, m)
		return
	}
	if !m.HasSession() {
		if p := c.proc.Load(); p != nil && m.Method() != "initialized" && m.Method() != "notifications/initialized" {
			own := m.Clone()
			_ = p.send(ctx, own.Frame())
		}
		return
	}
	s := c.r.session(m.Session())
	if s == nil {
		c.r.log.Debug("notification for an unknown session", "client", c.id, "method", m.Method())
		return
	}
	if m.Method() == "session/cancel" {
		s.cancel(c, m)
		return
	}
	s.log().Append(journal.Client, c.num, m.Frame())
	s.flush()
	if p := s.live(); p != nil {
		_ = p.send(ctx, m.AppendRewritten(nil, "", s.toAgent()))
	}
}

// cancelRequest passes a client's $/cancel_request on under the agent's id.
func (c *Client) cancelRequest(ctx context.Context, m *acp.Message) {
	raw, ok := rawjson.Member(m.Params(), "requestId")
	if !ok {
		return
	}
	c.mu.Lock()
	q := c.requests[acp.ID(raw)]
	c.mu.Unlock()
	if q == nil {
		return
	}
	if q.method == "session/prompt" {
		for _, s := range c.attached() {
			s.withdraw(q)
		}
		return
	}
	if p, n := q.proc.Load(), q.agent.Load(); p != nil && n != 0 {
		f := acp.NewNotification(methodCancelReq, append(append([]byte(`{"requestId":`), acp.IntID(n)...), '}'))
		_ = p.send(ctx, f.Frame())
	}
}

func (c *Client) attached() []*Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []*Session
	for _, f := range c.feeds {
		if f.session != nil {
			out = append(out, f.session)
		}
	}
	return out
}

// request registers the request and handles it.
func (c *Client) request(ctx context.Context, m *acp.Message, sink chan acp.Reply) {
	q := &request{client: c, id: m.ID(), method: m.Method(), sink: sink, span: noSpan{}}
	_, known := acp.LookupMethod(q.method)
	var w Work
	if known = known && q.method != "session/prompt"; known {
		w = Work{Name: q.method, Agent: c.agentOf(m), Session: m.Session(), Meta: m.Meta()}
	}
	c.mu.Lock()
	taken := c.requests[q.id] != nil
	if !taken {
		if known { // before anybody else can find the request and answer it
			q.span = c.r.watch.Begin(ctx, w)
		}
		c.requests[q.id] = q
	}
	c.mu.Unlock()
	if taken {
		e := acp.NewError(q.id, acp.Errorf(acp.CodeInvalidRequest, "a request with id %s is still open on this connection", q.id))
		if sink != nil {
			sink <- acp.Reply{Frame: e.Frame()}
		} else {
			c.post(journal.Response, e.Frame())
		}
		return
	}
	switch q.method {
	case "initialize":
		q.fail(nil, acp.Errorf(acp.CodeInvalidRequest, "the connection is initialized already"))
	case "session/new":
		c.newSession(ctx, q, m)
	case "session/load", "session/resume":
		c.openSession(q, m)
	case "session/list":
		c.listSessions(q, m)
	case "session/prompt":
		if s := c.sessionOf(q, m); s != nil {
			if err := s.logWrites(); err != nil {
				q.fail(nil, err)
				return
			}
			c.ensureAttached(s)
			s.submit(ctx, q, m)
		}
	case "session/close":
		if s := c.sessionOf(q, m); s != nil {
			c.r.work.Go(func() { q.finish(s.close(c.r.ctx)) })
		}
	case "session/delete":
		if s := c.sessionOf(q, m); s != nil {
			c.r.work.Go(func() { q.finish(c.r.DeleteSession(c.r.ctx, s.id)) })
		}
	case "session/fork":
		if s := c.sessionOf(q, m); s != nil {
			c.fork(ctx, q, m, s)
		}
	case "session/set_mode", "session/set_config_option", "session/set_model":
		if s := c.sessionOf(q, m); s != nil {
			c.configure(ctx, q, m, s)
		}
	default:
		switch {
		case strings.HasPrefix(q.method, "_sandboxagent/"):
			c.extension(q, m)
		case m.HasSession():
			if s := c.sessionOf(q, m); s != nil {
				c.ensureAttached(s)
				c.withProcess(ctx, q, m, s, func(p *proc, m *acp.Message) {
					q.toAgent(ctx, p, m, s.toAgent(), func(res *acp.Message, err error) { q.relay(s, res, err) })
				})
			}
		default:
			c.toConnection(ctx, q, m)
		}
	}
}

// agentOf returns the agent that a request is for, "" when it names one itself.
func (c *Client) agentOf(m *acp.Message) string {
	if s := c.r.session(m.Session()); s != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.rec.Agent
	}
	if rawjson.MemberString(m.Meta(), acp.MetaKey, "agent") != "" {
		return ""
	}
	return c.agent.id
}

// finish answers a request whose result is empty.
func (q *request) finish(err error) {
	if err != nil {
		q.fail(nil, err)
		return
	}
	q.result(nil, []byte("{}"))
}

// relay answers with what the agent said, or why it said nothing.
func (q *request) relay(s *Session, res *acp.Message, err error) {
	if err != nil {
		q.fail(s, err)
		return
	}
	q.forward(s, res)
}

// sessionOf returns the session a request names, or answers that there is none.
func (c *Client) sessionOf(q *request, m *acp.Message) *Session {
	if !m.HasSession() {
		q.fail(nil, acp.Errorf(acp.CodeInvalidParams, "%s needs params.sessionId, a string", q.method))
		return nil
	}
	s := c.r.session(m.Session())
	if s == nil {
		q.fail(nil, notFound(m.Session()))
		return nil
	}
	if q.method != "session/delete" {
		if err := s.logReady(); err != nil {
			q.fail(nil, err)
			return nil
		}
	}
	return s
}

func notFound(id string) *acp.Error {
	return acp.Errorf(acp.CodeResourceNotFound, "session %q was not found", id).WithData(map[string]string{"sessionId": id})
}

// toConnection passes a request of no session to the agent process that the
// connection was opened with.
func (c *Client) toConnection(ctx context.Context, q *request, m *acp.Message) {
	var login json.RawMessage
	if q.method == "authenticate" {
		login = bytes.Clone(m.Params())
	}
	c.withConnectionProcess(q, m, func() {}, func(p *proc, m *acp.Message) {
		q.toAgent(ctx, p, m, "", func(res *acp.Message, err error) {
			if err == nil && res.Err() == nil {
				p.agent.loggedIn(q.method, login)
			}
			q.relay(nil, res, err)
		})
	})
}

// withConnectionProcess calls f with the connection's process. When that has
// ended a new one is started first, and f runs on another goroutine. When that
// fails failed is called and the request is answered.
func (c *Client) withConnectionProcess(q *request, m *acp.Message, failed func(), f func(p *proc, m *acp.Message)) {
	if p := c.proc.Load(); p != nil && p.alive() {
		f(p, m)
		return
	}
	own := m.Clone()
	c.r.work.Go(func() {
		p, err := c.restart(within(c.r.ctx, q.span.Context()))
		if err != nil {
			failed()
			q.fail(nil, err)
			return
		}
		f(p, &own)
	})
}

// restart gives the connection a new process of its agent.
func (c *Client) restart(ctx context.Context) (*proc, error) {
	p, err := c.agent.process(ctx, c.wants())
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	if closed {
		p.release()
		return p, nil
	}
	if old := c.proc.Swap(p); old != nil {
		old.release()
	}
	return p, nil
}

func (p *proc) alive() bool {
	select {
	case <-p.gone:
		return false
	default:
		return true
	}
}

// withProcess calls f with the process that serves the session. A dormant
// session is given one first, and f runs on another goroutine.
func (c *Client) withProcess(_ context.Context, q *request, m *acp.Message, s *Session, f func(p *proc, m *acp.Message)) {
	s.mu.Lock()
	err := s.openErrorLocked()
	s.mu.Unlock()
	if err != nil {
		q.fail(s, err)
		return
	}
	s.log().Append(journal.Client, c.num, m.Frame())
	s.flush()
	if p := s.live(); p != nil {
		f(p, m)
		return
	}
	own := m.Clone()
	c.r.work.Go(func() {
		p, err := s.ensure(within(c.r.ctx, q.span.Context()), c)
		if err != nil {
			q.fail(s, err)
			return
		}
		f(p, &own)
	})
}
