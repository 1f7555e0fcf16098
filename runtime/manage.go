package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

const (
	stopBound  = 5 * time.Second // for a turn to end after it was cancelled
	agentBound = 5 * time.Second // for an agent to close or delete a session
)

// configure handles what sets a mode or an option: the agent decides, the
// gateway remembers.
func (c *Client) configure(ctx context.Context, q *request, m *acp.Message, s *Session) {
	c.ensureAttached(s)
	mode, _ := rawjson.Member(m.Params(), "modeId")
	mode = bytes.Clone(mode)
	option, value := rawjson.MemberString(m.Params(), "configId"), json.RawMessage(nil)
	if v, ok := rawjson.Member(m.Params(), "value"); ok {
		value = bytes.Clone(v)
	}
	c.withProcess(ctx, q, m, s, func(p *proc, m *acp.Message) {
		q.toAgent(ctx, p, m, s.toAgent(), func(res *acp.Message, err error) {
			if err == nil && res.Err() == nil {
				opts, _ := rawjson.Member(res.Result(), "configOptions")
				s.mu.Lock()
				if len(opts) > 0 {
					s.rec.ConfigOptions = bytes.Clone(opts)
				}
				if q.method == "session/set_mode" && len(mode) > 0 && len(s.rec.Modes) > 0 {
					s.rec.Modes = rawjson.SetMember(s.rec.Modes, mode, "currentModeId")
				}
				s.chosenLocked(q.method, mode, option, value)
				s.unsaved = true
				s.mu.Unlock()
				c.r.work.Go(s.save)
			}
			q.relay(s, res, err)
		})
	})
}

// fork handles session/fork: the new session begins with the old one's history.
func (c *Client) fork(ctx context.Context, q *request, m *acp.Message, s *Session) {
	if err := c.r.roomForSession(); err != nil {
		q.fail(nil, err)
		return
	}
	c.forForking(ctx, q, m, s, func(p *proc, m *acp.Message) {
		if !p.caps.fork {
			q.fail(s, acp.Errorf(acp.CodeMethodNotFound, "agent %s cannot fork sessions", p.agent.id))
			return
		}
		upTo := s.log().Last()
		s.mu.Lock()
		rec := record{
			Agent: s.rec.Agent, Cwd: s.rec.Cwd, Title: s.rec.Title, Setup: s.rec.Setup, credentials: s.rec.credentials,
			Capabilities: c.caps.raw, Modes: s.rec.Modes, ConfigOptions: s.rec.ConfigOptions,
		}
		s.mu.Unlock()
		if cwd := rawjson.MemberString(m.Params(), "cwd"); cwd != "" {
			rec.Cwd = cwd
			rec.Setup = setupOf(m.Params())
		}
		p.create(1)
		q.toAgent(ctx, p, m, s.toAgent(), func(res *acp.Message, err error) {
			defer p.create(-1)
			if err != nil || res.Err() != nil {
				q.relay(s, res, err)
				return
			}
			c.created(q, p, res.Result(), rec, nil, func(n *Session) { n.inherit(s, upTo) })
		})
	})
}

// forForking calls f with the process that makes the fork: the session's own,
// or a new one when the session has its process alone.
func (c *Client) forForking(ctx context.Context, q *request, m *acp.Message, s *Session, f func(p *proc, m *acp.Message)) {
	s.mu.Lock()
	rec, err := s.rec, s.openErrorLocked()
	s.mu.Unlock()
	a := s.r.agent(rec.Agent)
	if a == nil || err != nil {
		c.withProcess(ctx, q, m, s, f) // says what is wrong
		return
	}
	w := rec.wants(c.wants())
	if w.alone = w.alone || a.adapter.Info().PerSession; !w.alone {
		c.withProcess(ctx, q, m, s, f)
		return
	}
	own := m.Clone()
	c.r.work.Go(func() {
		p, err := a.process(within(c.r.ctx, q.span.Context()), w)
		if err != nil {
			q.fail(s, err)
			return
		}
		defer p.release()
		f(p, &own)
	})
}

// inherit copies the history of another session up to an entry.
func (s *Session) inherit(from *Session, upTo uint64) {
	cur := from.log().Cursor(0)
	for cur.After() < upTo {
		batch, err := cur.Next(nil, 256<<10)
		if err != nil || len(batch) == 0 {
			s.r.log.Warn("copy history of forked session", "session", s.id, "from", from.id, "err", err)
			return
		}
		for _, e := range batch {
			if e.Seq > upTo || (e.Kind != journal.Update && e.Kind != journal.Echo) {
				continue
			}
			if m, err := acp.Parse(e.Frame); err == nil && m.HasSession() {
				s.append(e.Kind, journal.Everyone, &m)
			}
		}
		s.flush()
	}
}

// stopTurn cancels what runs and waits, bounded; a turn that does not end is
// answered as cancelled by the gateway.
func (s *Session) stopTurn(ctx context.Context) {
	s.cancelAll()
	bounded, cancel := context.WithTimeout(ctx, stopBound)
	defer cancel()
	s.awaitIdle(bounded)
	s.mu.Lock()
	t := s.turn
	s.mu.Unlock()
	if t != nil {
		s.failCalls("the agent did not end the call when it was cancelled")
		s.finish(t, nil, nil)
	}
}

// tellAgent has the agent close or delete its session, when it can.
func (s *Session) tellAgent(ctx context.Context, p *proc, method string, can func(agentCaps) bool) {
	if p == nil || !can(p.caps) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, agentBound)
	defer cancel()
	params := append(append([]byte(`{"sessionId":`), rawjson.AppendQuoted(nil, s.native())...), '}')
	if _, err := p.ask(ctx, method, params); err != nil {
		s.r.log.Warn("agent did not "+method, "session", s.id, "err", err)
	}
}

// close ends the session's work and gives its process back. Load or resume
// opens it again.
func (s *Session) close(ctx context.Context) error {
	s.stopTurn(ctx)
	s.tellAgent(ctx, s.live(), "session/close", func(c agentCaps) bool { return c.closing })
	s.change(func(rec *record) { rec.Closed = true }) // a start that is under way gives its process back by itself
	s.giveBack()
	if err := s.syncLog(); err != nil {
		return err
	}
	s.log().Release(0)
	return nil
}

// terminate ends the session for good; its events stay readable.
func (s *Session) terminate(ctx context.Context, by string) (already bool) {
	s.mu.Lock()
	already = s.rec.Ended != nil
	s.mu.Unlock()
	if already {
		return true
	}
	s.stopTurn(ctx)
	s.tellAgent(ctx, s.live(), "session/close", func(c agentCaps) bool { return c.closing })
	end := EndInfo{Reason: "terminated", TerminatedBy: by, At: time.Now().UTC()}
	s.change(func(rec *record) { rec.Ended = &end })
	s.giveBack()
	s.notify("_sandboxagent/session/ended", endedParams{SessionID: s.id, Data: end})
	if err := s.syncLog(); err != nil {
		s.r.log.Error("sync session log", "session", s.id, "err", err)
	}
	return false
}

// CloseSession closes the session as session/close does.
func (r *Runtime) CloseSession(ctx context.Context, id string) error {
	s := r.session(id)
	if s == nil {
		return problem.New(problem.SessionNotFound, "session %q was not found", id)
	}
	return s.close(ctx)
}

// DeleteSession ends the session and removes everything of it.
func (r *Runtime) DeleteSession(ctx context.Context, id string) error {
	s := r.session(id)
	if s == nil {
		return problem.New(problem.SessionNotFound, "session %q was not found", id)
	}
	s.stopTurn(ctx)
	s.deleteAtAgent(ctx)
	r.mu.Lock()
	if r.sessions[id] != s {
		r.mu.Unlock()
		return problem.New(problem.SessionNotFound, "session %q was not found", id)
	}
	delete(r.sessions, id)
	r.mu.Unlock()
	s.mu.Lock()
	s.gone = true // a start that is under way gives its process back by itself
	var feeds []*feed
	for f := range s.feeds {
		feeds = append(feeds, f)
	}
	s.mu.Unlock()
	s.giveBack()
	for _, f := range feeds {
		f.client.leave(s)
	}
	if err := s.log().Close(); err != nil {
		r.log.Warn("close log of deleted session", "session", id, "err", err)
	}
	return r.store.remove(id)
}

// deleteAtAgent has the agent delete its own record of the session, so that it
// does not come back by its native id. A dormant session's agent is started for
// it.
func (s *Session) deleteAtAgent(ctx context.Context) {
	can := func(c agentCaps) bool { return c.deleting }
	if s.live() != nil {
		s.tellAgent(ctx, s.live(), "session/delete", can)
		return
	}
	s.mu.Lock()
	rec := s.rec
	s.mu.Unlock()
	a := s.r.agent(rec.Agent)
	if a == nil || !a.installed() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, agentBound)
	defer cancel()
	w := want{caps: s.r.offered(processCapabilities(rec.Capabilities))}
	if !a.adapter.Info().PerSession {
		w = rec.wants(w)
	}
	p, err := a.process(ctx, w)
	if err != nil {
		s.r.log.Warn("start agent to delete session", "session", s.id, "err", err)
		return
	}
	defer p.release()
	if !can(p.caps) {
		return
	}
	params := append(append([]byte(`{"sessionId":`), rawjson.AppendQuoted(nil, rec.AgentSessionID)...), '}')
	if _, err := p.ask(ctx, "session/delete", params); err != nil {
		s.r.log.Warn("agent did not session/delete", "session", s.id, "err", err)
	}
}
