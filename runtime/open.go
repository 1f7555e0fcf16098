package runtime

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/runtime/agents"
	"sandboxagent.dev/sandbox-agent/runtime/observe"
	"sandboxagent.dev/sandbox-agent/runtime/session"
	"sandboxagent.dev/sandbox-agent/runtime/viewer"
)

// replayBound limits how long the response to session/load waits for a client that
// does not read the replay.
const replayBound = 30 * time.Second

// withAgent goes on with the agent that the request names, or the connection's. To
// look for one that nobody has used yet may take seconds: what the client sends behind
// this request does not wait for it. fail is called when there is none.
func (c *Client) withAgent(m *acp.Message, then func(a *agents.Agent, m *acp.Message), fail func(err error)) {
	name := rawjson.MemberString(m.Meta(), acp.MetaKey, "agent")
	if name == "" || name == c.agent.ID() {
		then(c.agent, m)
		return
	}
	if a := c.r.agents.Local(name); a != nil {
		then(a, m)
		return
	}
	own := m.Clone()
	c.r.tasks.Go(func() {
		a, err := c.r.agents.Named(name)
		if err != nil {
			fail(err)
			return
		}
		then(a, &own)
	})
}

// newSession handles session/new.
func (c *Client) newSession(ctx context.Context, q *viewer.Request, m *acp.Message) {
	if err := c.r.sessions.Room(); err != nil {
		q.Fail(nil, err)
		return
	}
	cwd := rawjson.MemberString(m.Params(), "cwd")
	if cwd == "" {
		q.Fail(nil, acp.Errorf(acp.CodeInvalidParams, "session/new needs params.cwd, an absolute path"))
		return
	}
	if err := session.CheckFolder(cwd); err != nil {
		q.Fail(nil, err)
		return
	}
	c.withAgent(m, func(a *agents.Agent, m *acp.Message) { c.newSessionOf(ctx, q, m, a, cwd) }, func(err error) { q.Fail(nil, err) })
}

// newSessionOf makes a session of an agent.
func (c *Client) newSessionOf(ctx context.Context, q *viewer.Request, m *acp.Message, a *agents.Agent, cwd string) {
	n, err := c.needsFor(a, cwd, m)
	if err == nil {
		err = c.r.sessions.CheckDurability(m.Meta())
	}
	if err != nil {
		q.Fail(nil, err)
		return
	}
	handover, err := handoverIn(m.Meta())
	if err != nil {
		q.Fail(nil, err)
		return
	}
	id, err := c.r.requestedID(m.Meta())
	if err != nil {
		q.Fail(nil, err)
		return
	}
	create := func(p *agents.Process, m *acp.Message) {
		setup, asked := session.Setup(m.Params()), bytes.Clone(m.Meta())
		shown, created := shownTo(p, m), p.Creating()
		c.callFor(ctx, q, p, c.making(q, p, &shown, "", func(res *acp.Message, err error) {
			defer created()
			if err != nil || res.Err() != nil {
				c.r.sessions.Unreserve(id)
				relay(q, nil, p, res, err)
				return
			}
			c.created(q, p, res.Result(), asked, session.New{ID: id, Cwd: cwd, Setup: setup, Credentials: n.Credentials, Handover: handover}, func(*session.Session) {})
		}))
	}
	if a == c.agent && n.Same(&c.needs) {
		c.withProcessForNew(q, m, func() { c.r.sessions.Unreserve(id) }, create)
		return
	}
	own := m.Clone()
	c.r.tasks.Go(func() {
		p, err := a.Process(c.r.within(q), n)
		if err != nil {
			c.r.sessions.Unreserve(id)
			q.Fail(nil, err)
			return
		}
		defer p.Release()
		create(p, &own)
	})
}

// making is forAgent for a request that makes a session. One that is made behind the time limit is nobody's: whoever has asked was told that
// there is none.
func (c *Client) making(q *viewer.Request, p *agents.Process, m *acp.Message, native string, done func(res *acp.Message, err error)) agents.Request {
	r := c.forAgent(q, p, m, native, done)
	r.Late = func(res *acp.Message) {
		if res.Err() == nil {
			p.Discard(res.Result())
		}
	}
	return r
}

// requestedID returns the id that a session is to have, which is reserved for it then; "" for any.
func (r *Runtime) requestedID(meta json.RawMessage) (string, error) {
	id := rawjson.MemberString(meta, acp.MetaKey, "requestedSessionId")
	switch {
	case id == "":
	case !session.PlainID(id):
		return "", acp.Errorf(acp.CodeInvalidParams, "requestedSessionId must be 1 to %d visible ASCII characters, and neither of the words changes and import, nor . or ..: it travels in headers and paths", session.MaxID)
	case !r.sessions.Reserve(id, true):
		return "", taken(id)
	}
	return id, nil
}

// handoverIn returns the text of another conversation that a session is to begin with.
func handoverIn(meta json.RawMessage) (string, error) {
	raw, given := rawjson.Member(meta, acp.MetaKey, "handover")
	text := rawjson.MemberString(meta, acp.MetaKey, "handover")
	switch {
	case given && text == "":
		return "", acp.Errorf(acp.CodeInvalidParams, `_meta["%s"].handover must be a text that is not empty, not %.40s`, acp.MetaKey, raw)
	case len(text) > session.MaxHandover:
		return "", acp.Errorf(acp.CodeInvalidParams, `_meta["%s"].handover has %d bytes, and %d are the most: shorten it`, acp.MetaKey, len(text), session.MaxHandover)
	}
	return text, nil
}

// shownTo returns a request that sets up a session as the agent sees it: in its forms,
// and without credentials.
func shownTo(p *agents.Process, m *acp.Message) acp.Message {
	shown := withoutCredentials(m)
	params := rawjson.DeleteMember(session.ServersFor(p.Agent().Info(), shown.Params()), "_meta", acp.MetaKey, "handover")
	if string(params) == string(shown.Params()) {
		return shown
	}
	return acp.NewRequest(m.ID(), m.Method(), params)
}

// busy is the error of a request for a session that only an agent has while another one opens or deletes it.
func busy(id string) error {
	return problem.New(problem.Conflict, "session %s is being opened or deleted by another request: try again", id)
}

func taken(id string) *acp.Error {
	return acp.Errorf(acp.CodeInvalidParams, "session id %q is taken: choose another, or open it with session/load", id).
		WithData(problem.New(problem.SessionAlreadyExists, "session id %q is taken", id))
}

// created makes the session that the agent has just created in answer to q, and sets
// what was asked for in q's _meta. It runs on the reader: the session's messages go to
// its log from now on. What touches the disk, and the response, follow on another
// goroutine; prepare runs there first.
func (c *Client) created(q *viewer.Request, p *agents.Process, result, asked json.RawMessage, n session.New, prepare func(s *session.Session)) {
	if rawjson.MemberString(result, "sessionId") == "" {
		c.r.sessions.Unreserve(n.ID)
		q.Fail(nil, acp.Errorf(acp.CodeInternal, "agent %s answered %s without a sessionId", p.Agent().ID(), q.Method()))
		return
	}
	n.Capabilities, n.Creator = c.Capabilities().Raw, c.Client
	if n.ID == "" {
		n.ID = c.r.sessions.ReserveFor(rawjson.MemberString(result, "sessionId"))
	}
	// Whoever finds the session from now on, in the list perhaps, has its agent do nothing before that is set what was asked for.
	end := c.r.loads.begin(n.ID)
	s := c.r.sessions.Create(p, result, n)
	result = bytes.Clone(result)
	c.r.tasks.Go(func() {
		defer end()
		fail := func(err error) {
			if _, failed := s.Delete(c.r.ctx); failed != nil {
				_ = s.Made() // it stays, and whoever finds it can use it
			}
			q.Fail(nil, err)
		}
		if err := s.Keep(); err != nil {
			fail(err)
			return
		}
		prepare(s)
		s.Remembered(result)
		missing, err := s.Finish(c.r.ctx, p, asked)
		if err == nil {
			err = s.Made()
		}
		if err != nil {
			fail(err)
			return
		}
		result = withUnsupported(result, missing)
		if rawjson.MemberString(result, "sessionId") != s.ID() {
			result = rawjson.SetMember(result, rawjson.AppendQuoted(nil, s.ID()), "sessionId")
		}
		c.Created(q, s, s.Describe(result, s.Log().Last()))
		s.Answered()
	})
}

// withUnsupported adds what has no effect to what the agent's result says of it.
func withUnsupported(result json.RawMessage, missing []session.Unsupported) json.RawMessage {
	if len(missing) == 0 {
		return result
	}
	missing = append(session.UnsupportedIn(result), missing...)
	if b, err := schema.Encode(missing); err == nil {
		result = rawjson.SetMember(result, b, "_meta", acp.MetaKey, "unsupported")
	}
	return result
}

// fork handles session/fork: the new session begins with the old one's history.
func (c *Client) fork(ctx context.Context, q *viewer.Request, m *acp.Message, s *session.Session) {
	if err := cmp.Or(c.r.sessions.Room(), s.Writable()); err != nil {
		q.Fail(nil, err)
		return
	}
	if cwd := rawjson.MemberString(m.Params(), "cwd"); cwd != "" {
		if err := session.CheckFolder(cwd); err != nil {
			q.Fail(nil, err)
			return
		}
	}
	asks, err := c.needsOf(m.Meta())
	if err == nil {
		err = c.r.sessions.CheckDurability(m.Meta())
	}
	if err != nil {
		q.Fail(nil, err)
		return
	}
	if err := cmp.Or(s.Refusal(), s.Authorized()); err != nil {
		q.Fail(s, err)
		return
	}
	own := m.Clone()
	n := s.ForkFrom(own.Params())
	if n.Handover, err = handoverIn(m.Meta()); err == nil {
		n.ID, err = c.r.requestedID(m.Meta())
	}
	if err != nil {
		q.Fail(s, err)
		return
	}
	fail := func(err error) {
		c.r.sessions.Unreserve(n.ID)
		q.Fail(s, err)
	}
	if _, given := rawjson.Member(own.Meta(), acp.MetaKey, "credentials"); given {
		n.Credentials = asks.Credentials
	}
	make := func(p *agents.Process, native string) (agents.Request, error) {
		if !p.Capabilities().Fork {
			return agents.Request{}, acp.Errorf(acp.CodeMethodNotFound, "agent %s cannot fork sessions", p.Agent().ID())
		}
		upTo := s.Log().Appended()
		if s.Held() { // the fork begins with what nobody may be shown yet
			n.Setup = rawjson.SetMember(n.Setup, []byte(`"sync"`), "_meta", acp.MetaKey, "durability")
		}
		asked, _ := rawjson.Member(n.Setup, "_meta")
		// The agent is asked for all that the fork is opened with later.
		of := acp.NewRequest(own.ID(), own.Method(), rawjson.SetMember(n.Setup, own.SessionRaw(), "sessionId"))
		shown, created := shownTo(p, &of), p.Creating()
		return c.making(q, p, &shown, native, func(res *acp.Message, err error) {
			defer created()
			if err != nil || res.Err() != nil {
				c.r.sessions.Unreserve(n.ID)
				relay(q, s, p, res, err)
				return
			}
			c.created(q, p, res.Result(), asked, n, func(fork *session.Session) {
				s.Flush()
				fork.Inherit(s, min(upTo, s.Log().Saved()), c.Number())
			})
		}), nil
	}
	s.Record(c.Number(), withoutValues(m))
	about := s.About()
	where := func(at session.At) (agents.Request, error) { return make(at.Process(), at.Native()) }
	forkAt := func(a *agents.Agent) {
		if a == nil {
			s.Request(observe.Within(ctx, q.Context()), c.needs, where, fail)
			return
		}
		needs, of := n.Needs(c.needs, a), s.Needs(c.needs, a)
		if needs.Same(&of) {
			s.Request(observe.Within(ctx, q.Context()), c.needs, where, fail)
			return
		}
		// One of the two has its process alone, or the fork asks for another one.
		c.r.tasks.Go(func() {
			p, err := a.Process(c.r.within(q), needs)
			if err != nil {
				fail(err)
				return
			}
			defer p.Release()
			ask, err := make(p, about.AgentSessionID)
			if err != nil {
				fail(err)
				return
			}
			p.Call(c.r.within(q), ask)
		})
	}
	if a := c.r.agents.Local(about.Agent); a != nil {
		forkAt(a)
		return
	}
	c.r.tasks.Go(func() { forkAt(c.r.agents.Find(about.Agent)) })
}

// openSession handles session/load and session/resume.
func (c *Client) openSession(q *viewer.Request, m *acp.Message) {
	if !m.HasSession() {
		q.Fail(nil, acp.Errorf(acp.CodeInvalidParams, "%s needs params.sessionId, a string", q.Method()))
		return
	}
	s := c.r.sessions.Find(m.Session())
	if s == nil {
		var err error
		if s, err = c.r.sessions.Reread(m.Session()); err != nil {
			q.Fail(nil, err)
			return
		}
	}
	if s == nil && c.watch {
		q.Fail(nil, notFound(m.Session()))
		return
	}
	if s == nil && rawjson.MemberString(m.Params(), "cwd") == "" {
		err := notFound(m.Session())
		err.Message += ": to open one that only its agent has, name its directory in params.cwd"
		q.Fail(nil, err)
		return
	}
	if s == nil {
		c.openForeign(q, m)
		return
	}
	if err := s.Readable(); err != nil {
		q.Fail(nil, err)
		return
	}
	if c.watch {
		c.watchSession(q, m, s)
		return
	}
	wait, err := s.Open()
	if err != nil {
		q.Fail(nil, err)
		return
	}
	if wait != nil {
		own, end := m.Clone(), c.r.loads.begin(s.ID())
		c.r.tasks.Go(func() {
			defer end()
			select {
			case <-wait:
				if c.r.sessions.Find(own.Session()) == nil { // it was deleted: what its agent may still have of it was not asked for
					q.Fail(nil, notFound(own.Session()))
					return
				}
				c.openSession(q, &own)
			case <-c.r.ctx.Done():
				q.Fail(nil, agents.ErrShutdown)
			}
		})
		return
	}
	if _, _, err := after(m, s); err != nil { // before the session is changed
		q.Fail(nil, err)
		return
	}
	change, err := s.Asked(m.Params(), !slices.Contains(c.Attached(), viewer.Session(s)))
	if err != nil {
		q.Fail(nil, err)
		return
	}
	renew := q.Method() == acp.MethodSessionLoad && s.AddedElsewhere()
	if change.None() && !renew {
		s.EndLostCalls()
		c.attachNow(q, m, s, nil, false)
		return
	}
	own, end := m.Clone(), c.r.loads.begin(s.ID())
	c.r.tasks.Go(func() {
		var missing []session.Unsupported
		if !change.None() {
			var err error
			if missing, err = s.Apply(c.r.within(q), c.needs, &change); err != nil {
				end()
				q.Fail(nil, err)
				return
			}
		}
		s.EndLostCalls()
		attach := func(incomplete bool) {
			c.attachNow(q, &own, s, missing, incomplete)
			end()
		}
		if !renew || !s.AddedElsewhere() {
			attach(false)
			return
		}
		// What was said elsewhere meanwhile is asked of the agent before the session is shown.
		s.Renewed(q.Context(), c.needs,
			func() { c.r.tasks.Go(func() { attach(false) }) },
			func(err error) {
				c.r.o.Logger.Warn("ask an agent what was said elsewhere", "session", s.ID(), "err", err)
				c.r.tasks.Go(func() { attach(true) })
			})
	})
}

// watchSession attaches a client that only watches. What it asks for besides changes nothing, and the agent is
// not asked what was said elsewhere.
func (c *Client) watchSession(q *viewer.Request, m *acp.Message, s *session.Session) {
	if err := s.Over(); err != nil {
		q.Fail(nil, err)
		return
	}
	s.EndLostCalls()
	c.attachNow(q, m, s, nil, q.Method() == acp.MethodSessionLoad && s.AddedElsewhere())
}

// after is the event of a session behind which a load or resume goes on, if it names one. The error is why it cannot.
func after(m *acp.Message, s *session.Session) (n uint64, given bool, err error) {
	raw, given := rawjson.Member(m.Meta(), acp.MetaKey, "after")
	if !given {
		return 0, false, nil
	}
	n, err = strconv.ParseUint(string(raw), 10, 64)
	// Who was shown more before the gateway was started again is right: the hub has it.
	if most := s.Log().Saved(); err != nil || n > most {
		return 0, true, acp.Errorf(acp.CodeInvalidParams, `_meta["%s"].after must be a sequence number of the session, 0 to %d`, acp.MetaKey, most)
	}
	if oldest := s.Log().Oldest(); n+1 < oldest {
		return 0, true, acp.Errorf(acp.CodeInternal, "events after %d are no longer kept, the oldest is %d", n, oldest).
			WithData(problem.New(problem.EventsExpired, "events after %d are no longer kept", n).With("oldestSeq", oldest))
	}
	return n, true, nil
}

// attachNow attaches the client to a session that it loads or resumes, and answers. incomplete says that the agent's own
// record may have more, which is not known of the session itself.
func (c *Client) attachNow(q *viewer.Request, m *acp.Message, s *session.Session, missing []session.Unsupported, incomplete bool) {
	last, oldest, replay := s.Log().Last(), s.Log().Oldest(), uint64(0)
	from, given, err := after(m, s)
	var attached bool
	switch {
	case err != nil:
		q.Fail(nil, err)
		return
	case given:
		attached = c.Attach(s, from, 0)
	case q.Method() == acp.MethodSessionLoad:
		replay = last // what is there; the result says that it is not all
		attached = c.Attach(s, oldest-1, replay)
	default:
		attached = c.Resume(s, max(last, oldest-1))
	}
	if !attached {
		q.Fail(nil, notFound(s.ID()))
		return
	}
	result := s.Describe(withUnsupported(json.RawMessage("{}"), missing), last)
	if incomplete { // as far as can be known now
		result = rawjson.SetMember(result, []byte("true"), "_meta", acp.MetaKey, "historyIncomplete")
	}
	if replay > 0 && oldest > 1 {
		result = rawjson.SetMember(result, strconv.AppendUint(nil, oldest, 10), "_meta", acp.MetaKey, "oldestSeq")
	}
	c.answerOpened(q, s, last, result)
}

// answerOpened answers a session/load or session/resume when the client was given what
// came before, and says which message was the last of it, by the number that the client has
// seen: another goroutine waits for that one, since the client may read slowly. The answer is no entry of the
// session's log: to look at a session is no event in it.
func (c *Client) answerOpened(q *viewer.Request, s *session.Session, last uint64, result json.RawMessage) {
	if c.Shape() == acp.Inline {
		q.ResultBehind(s, last, result)
		s.TellTrouble(c.Client)
		return
	}
	c.r.tasks.Go(func() {
		c.AwaitEntry(c.r.ctx, s, last, replayBound)
		if shown := c.Shown(s); shown > 0 && c.Shape() == acp.PerSession {
			result = rawjson.SetMember(result, strconv.AppendUint(nil, shown, 10), "_meta", acp.MetaKey, "replayedSeq")
		}
		q.Result(nil, result)
		s.TellTrouble(c.Client)
	})
}

// openForeign opens a session that the agent has and the gateway does not: one
// that was made elsewhere. Its replay fills the log.
func (c *Client) openForeign(q *viewer.Request, m *acp.Message) {
	if err := c.r.sessions.Room(); err != nil {
		q.Fail(nil, err)
		return
	}
	end := c.r.loads.begin(m.Session()) // before the agent is looked for: what is sent behind this waits for that, too
	refuse := func(err error) {
		q.Fail(nil, err)
		end()
	}
	c.withAgent(m, func(a *agents.Agent, m *acp.Message) { c.openForeignOf(q, m, a, end, refuse) }, refuse)
}

// openForeignOf opens a session that an agent has and the gateway does not. end is called when that is over, by refuse, too, which
// answers with an error.
func (c *Client) openForeignOf(q *viewer.Request, m *acp.Message, a *agents.Agent, end func(), refuse func(err error)) {
	id := m.Session()
	n, err := c.needsFor(a, rawjson.MemberString(m.Params(), "cwd"), m)
	if err == nil {
		err = c.r.sessions.CheckDurability(m.Meta())
	}
	if err != nil {
		refuse(err)
		return
	}
	if !c.r.sessions.Reserve(id, false) {
		refuse(busy(id))
		return
	}
	own := m.Clone()
	c.r.tasks.Go(func() {
		fail := func(err error) { // whoever is told may try again
			c.r.sessions.Unreserve(id)
			refuse(err)
		}
		p, err := a.Process(c.r.within(q), n)
		if err != nil {
			fail(err)
			return
		}
		defer p.Release()
		if caps := p.Capabilities(); !caps.Load && !caps.Resume {
			fail(notFound(id))
			return
		}
		shown := shownTo(p, &own)
		params := rawjson.DeleteMember(shown.Params(), "_meta", acp.MetaKey, "after")
		// Who only resumes is shown nothing of it, but later loads have the history, which
		// the agent tells this once. One that cannot tell it is resumed for a load, too.
		method, shows := acp.MethodSessionLoad, q.Method() == acp.MethodSessionLoad
		if !p.Capabilities().Load {
			method = acp.MethodSessionResume
		} else if _, given := rawjson.Member(params, "mcpServers"); !given {
			params = rawjson.SetMember(params, []byte("[]"), "mcpServers")
		}
		fills := !shows && method == acp.MethodSessionLoad
		s, res, replayed, err := c.r.sessions.OpenForeign(c.r.ctx, p, method, params, session.New{
			ID: id, Cwd: rawjson.MemberString(own.Params(), "cwd"), Setup: session.Setup(own.Params()), Credentials: n.Credentials, Capabilities: c.Capabilities().Raw,
		}, func(s *session.Session, kept uint64) {
			switch {
			case fills, c.Capabilities().Two(): // who speaks version 2 is shown history when it is complete
			case shows:
				c.Attach(s, 0, kept)
			default:
				c.Attach(s, kept, 0)
			}
		})
		if err != nil {
			fail(theirs(err))
			return
		}
		switch {
		case fills, c.Capabilities().Two() && !shows:
			c.Attach(s, replayed, 0)
		case c.Capabilities().Two():
			c.Attach(s, 0, replayed)
		}
		missing, err := s.Finish(c.r.ctx, p, own.Meta())
		if err != nil {
			_, _ = s.Close(c.r.ctx)
			fail(err)
			return
		}
		last := max(replayed, s.Log().Saved()) // what was replayed may not be visible yet
		c.answerOpened(q, s, last, s.Describe(withUnsupported(res, missing), last))
		end()
	})
}
