package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// ensure returns the process that serves the session, giving it one when it is
// dormant. It is single-flight.
func (s *Session) ensure(ctx context.Context, c *Client) (*proc, error) {
	for {
		s.mu.Lock()
		if p := s.live(); p != nil {
			s.mu.Unlock()
			return p, nil
		}
		if err := s.openErrorLocked(); err != nil {
			s.mu.Unlock()
			return nil, err
		}
		wait := s.opening
		if wait == nil {
			s.opening = make(chan struct{})
		}
		s.mu.Unlock()
		if wait != nil {
			select {
			case <-wait:
				continue
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		p, err := s.reopen(ctx, c)
		s.mu.Lock()
		close(s.opening)
		s.opening = nil
		refused := s.openErrorLocked()
		s.mu.Unlock()
		if refused != nil && err == nil {
			// It was closed or deleted while its agent started.
			s.giveBack()
			return nil, refused
		}
		return p, err
	}
}

// reopen gives a dormant session a process, with the agent's own memory of it
// where the agent has one.
func (s *Session) reopen(ctx context.Context, c *Client) (*proc, error) {
	s.mu.Lock()
	rec := s.rec
	s.mu.Unlock()
	a := s.r.agent(rec.Agent)
	if a == nil {
		return nil, problem.New(problem.UnsupportedAgent, "the session's agent %q is no longer configured", rec.Agent)
	}
	ctx, cancel := context.WithTimeout(ctx, s.r.o.RequestTimeout)
	defer cancel()
	w := rec.wants(c.wants())
	w.alone = w.alone || a.adapter.Info().PerSession
	if w.alone {
		w.backoff = &s.backoff
	}
	p, err := a.process(ctx, w)
	if err != nil {
		return nil, err
	}
	defer p.release()
	method := ""
	switch {
	case p.caps.resume:
		method = "session/resume"
	case p.caps.load:
		method = "session/load"
	}
	if method != "" {
		span := s.r.watch.Begin(ctx, Work{Name: method, Agent: a.id, Session: s.id, ToAgent: true})
		err := s.restore(ctx, p, method, rec)
		span.End(outcomeOf(err))
		if err == nil {
			s.chooseAgain(ctx, p)
			return p, nil
		}
		refused, ok := errors.AsType[*acp.Error](err)
		if !ok || refused.Code == acp.CodeAuthRequired {
			return nil, err
		}
		s.r.log.Warn("agent could not restore session", "session", s.id, "agent", rec.Agent, "err", err)
	}
	span := s.r.watch.Begin(ctx, Work{Name: "session/new", Agent: a.id, Session: s.id, ToAgent: true})
	err = s.startFresh(ctx, p, rec)
	span.End(outcomeOf(err))
	if err != nil {
		return nil, err
	}
	s.chooseAgain(ctx, p)
	n, err := schema.Encode(map[string]any{
		"sessionId": s.id,
		"update":    map[string]any{"sessionUpdate": "session_info_update", "_meta": map[string]any{acp.MetaKey: map[string]any{"continuity": ContinuityFresh}}},
	})
	if err == nil {
		u := acp.NewNotification("session/update", n)
		s.log().Append(journal.Notice, journal.Everyone, u.Frame())
		s.flush()
	}
	return p, nil
}

// restore has the agent open its own session again. What it replays the log has
// already.
func (s *Session) restore(ctx context.Context, p *proc, method string, rec record) error {
	s.muted.Store(method == "session/load")
	if err := p.bind(rec.AgentSessionID, s); err != nil {
		s.muted.Store(false)
		return err
	}
	params := rawjson.SetMember(rec.Setup, rawjson.AppendQuoted(nil, rec.AgentSessionID), "sessionId")
	// On the pump: what the agent says behind its answer is new.
	res, err := p.askThen(ctx, method, params, func() { s.muted.Store(false) })
	if err != nil {
		s.muted.Store(false)
		p.unbind(rec.AgentSessionID)
		return err
	}
	s.serving.Store(p)
	s.adopt(p, res, rec.Continuity)
	return nil
}

// startFresh has the agent create a new session under the gateway's old one.
func (s *Session) startFresh(ctx context.Context, p *proc, rec record) error {
	type answer struct {
		res json.RawMessage
		err error
	}
	ch := make(chan answer, 1)
	p.create(1)
	p.call(ctx, 0, func(id acp.ID) []byte { m := acp.NewRequest(id, "session/new", rec.Setup); return m.Frame() },
		func(res *acp.Message, err error) {
			defer p.create(-1)
			if err == nil && res.Err() != nil {
				err = res.Err()
			}
			if err != nil {
				ch <- answer{err: err}
				return
			}
			native := rawjson.MemberString(res.Result(), "sessionId")
			s.mu.Lock()
			s.rec.AgentSessionID = native
			s.mu.Unlock()
			s.serving.Store(p)
			err = p.bind(native, s)
			ch <- answer{bytes.Clone(res.Result()), err}
		})
	select {
	case a := <-ch:
		if a.err == nil {
			s.adopt(p, a.res, ContinuityFresh)
		}
		return a.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// adopt takes over what the agent said of the session it opened.
func (s *Session) adopt(p *proc, res json.RawMessage, continuity Continuity) {
	s.change(func(rec *record) {
		rec.Continuity = continuity
		if v, ok := rawjson.Member(res, "modes"); ok {
			rec.Modes = v
		}
		if v, ok := rawjson.Member(res, "configOptions"); ok {
			rec.ConfigOptions = v
		}
	})
	if !p.alive() {
		s.serving.CompareAndSwap(p, nil)
	}
}
