package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// replayBound limits how long the response to session/load waits for the replay
// to be written when they travel on different streams.
const replayBound = 30 * time.Second

// setupOf returns the params of a session's creation as they are kept: without
// secrets, and without what belongs to this one call.
func setupOf(params json.RawMessage) json.RawMessage {
	p := append(json.RawMessage(nil), params...)
	p = rawjson.DeleteMember(p, "sessionId")
	p = rawjson.DeleteMember(p, "_meta", acp.MetaKey, "credentials")
	return rawjson.DeleteMember(p, "_meta", acp.MetaKey, "after")
}

// sessionMeta is the gateway's _meta in the result of new, load, resume, fork.
func (s *Session) sessionMeta() map[string]any {
	s.mu.Lock()
	meta := map[string]any{
		"agent": s.rec.Agent, "agentSessionId": s.rec.AgentSessionID, "continuity": s.rec.Continuity,
		"turn": map[bool]string{true: "running", false: "idle"}[s.turn != nil],
	}
	s.mu.Unlock()
	meta["seq"] = s.log().Last()
	meta["pending"] = s.openAsks()
	return meta
}

// withMeta adds what the gateway says of the session to a result; what the
// agent's adapter said stays.
func (s *Session) withMeta(result json.RawMessage) json.RawMessage {
	meta := s.sessionMeta()
	for _, name := range slices.Sorted(maps.Keys(meta)) {
		if v, err := schema.Encode(meta[name]); err == nil {
			result = rawjson.SetMember(result, v, "_meta", acp.MetaKey, name)
		}
	}
	return result
}

// newSession handles session/new.
func (c *Client) newSession(ctx context.Context, q *request, m *acp.Message) {
	if err := c.r.roomForSession(); err != nil {
		q.fail(nil, err)
		return
	}
	cwd := rawjson.MemberString(m.Params(), "cwd")
	if !filepath.IsAbs(cwd) {
		q.fail(nil, acp.Errorf(acp.CodeInvalidParams, "session/new needs params.cwd, an absolute path"))
		return
	}
	a := c.agent
	if name := rawjson.MemberString(m.Meta(), acp.MetaKey, "agent"); name != "" && name != a.id {
		var err error
		if a, err = c.r.agentNamed(name); err != nil {
			q.fail(nil, err)
			return
		}
	}
	w, bad := c.wantsFor(a, rawjson.MemberString(m.Params(), "cwd"), m.Meta())
	if bad != nil {
		q.fail(nil, bad)
		return
	}
	wanted := rawjson.MemberString(m.Meta(), acp.MetaKey, "requestedSessionId")
	if wanted != "" && !plainID(wanted) {
		q.fail(nil, acp.Errorf(acp.CodeInvalidParams, "requestedSessionId must be 1 to %d visible ASCII characters: it travels in a header", maxSessionID))
		return
	}
	if wanted != "" && !c.r.reserve(wanted) {
		q.fail(nil, taken(wanted))
		return
	}
	create := func(p *proc, m *acp.Message) {
		setup, asked := setupOf(m.Params()), bytes.Clone(m.Meta())
		p.create(1)
		shown := shown(m)
		q.toAgent(ctx, p, &shown, "", func(res *acp.Message, err error) {
			defer p.create(-1)
			if err != nil || res.Err() != nil {
				c.r.unreserve(wanted)
				q.relay(nil, res, err)
				return
			}
			c.created(q, p, res.Result(), record{
				ID: wanted, Agent: a.id, Cwd: cwd, Setup: setup, credentials: w.credentials, Capabilities: c.caps.raw,
				Title: rawjson.MemberString(setup, "_meta", acp.MetaKey, "title"),
			}, asked, nil)
		})
	}
	if a == c.agent && w.same(c.wants()) {
		c.withConnectionProcess(q, m, func() { c.r.unreserve(wanted) }, create)
		return
	}
	own := m.Clone()
	c.r.work.Go(func() {
		p, err := a.process(within(c.r.ctx, q.span.Context()), w)
		if err != nil {
			c.r.unreserve(wanted)
			q.fail(nil, err)
			return
		}
		defer p.release()
		create(p, &own)
	})
}

func taken(id string) *acp.Error {
	return acp.Errorf(acp.CodeInvalidParams, "session id %q is taken: choose another, or open it with session/load", id).
		WithData(problem.New(problem.SessionAlreadyExists, "session id %q is taken", id))
}

// created makes the session that the agent has just created in answer to q, and
// sets what was asked for in q's _meta. It runs on the pump: the session's messages go to its log from now on. What
// touches the disk, and the response, follow on another goroutine; prepare runs
// there first.
func (c *Client) created(q *request, p *proc, result json.RawMessage, rec record, asked json.RawMessage, prepare func(s *Session)) {
	rec.AgentSessionID = rawjson.MemberString(result, "sessionId")
	if rec.AgentSessionID == "" {
		c.r.unreserve(rec.ID)
		q.fail(nil, acp.Errorf(acp.CodeInternal, "agent %s answered %s without a sessionId", rec.Agent, q.method))
		return
	}
	rec.CreatedAt, rec.Continuity = time.Now().UTC(), ContinuityNative
	if modes, ok := rawjson.Member(result, "modes"); ok {
		rec.Modes = bytes.Clone(modes)
	}
	if opts, ok := rawjson.Member(result, "configOptions"); ok {
		rec.ConfigOptions = bytes.Clone(opts)
	}
	s := c.r.register(rec, c.num)
	s.mu.Lock()
	s.priced = q.method == "session/new" // a fork's sum begins with what it was forked from
	s.mu.Unlock()
	s.serving.Store(p)
	if err := p.bind(rec.AgentSessionID, s); err != nil {
		s.serving.Store(nil)
	}
	result = bytes.Clone(result)
	c.r.work.Go(func() {
		if err := s.keep(); err != nil {
			s.giveBack()
			c.r.mu.Lock()
			delete(c.r.sessions, s.id)
			c.r.mu.Unlock()
			s.discard(false)
			q.fail(nil, err)
			return
		}
		if prepare != nil {
			prepare(s)
		}
		missing := s.configureNew(c.r.ctx, p, asked)
		s.mu.Lock()
		if len(s.rec.Modes) > 0 {
			result = rawjson.SetMember(result, s.rec.Modes, "modes")
		}
		if len(s.rec.ConfigOptions) > 0 {
			result = rawjson.SetMember(result, s.rec.ConfigOptions, "configOptions")
		}
		s.mu.Unlock()
		if said, ok := rawjson.Member(result, "_meta", acp.MetaKey, "unsupported"); len(missing) > 0 && ok {
			var more []unsupported
			if json.Unmarshal(said, &more) == nil {
				missing = append(more, missing...)
			}
		}
		if len(missing) > 0 {
			if b, err := schema.Encode(missing); err == nil {
				result = rawjson.SetMember(result, b, "_meta", acp.MetaKey, "unsupported")
			}
		}
		if s.id != s.native() {
			result = rawjson.SetMember(result, s.quoted, "sessionId")
		}
		c.welcome(q, s, s.withMeta(result))
	})
}

// register adds a session under the id that was asked for, else under the
// agent's own id if that is free, else under a new one.
func (r *Runtime) register(rec record, creator journal.Recipient) *Session {
	if rec.ID != "" {
		s := newSession(r, rec)
		s.creator = creator
		r.mu.Lock()
		delete(r.reserved, rec.ID)
		r.sessions[rec.ID] = s
		r.mu.Unlock()
		return s
	}
	if rec.ID = rec.AgentSessionID; !plainID(rec.ID) {
		rec.ID = uuid.NewString()
	}
	for {
		s := newSession(r, rec)
		s.creator = creator
		if r.addSession(s) {
			return s
		}
		rec.ID = uuid.NewString()
	}
}

// maxSessionID bounds the ids that sessions get here.
const maxSessionID = 256

// plainID reports whether the id can be a session's: it travels in headers.
func plainID(id string) bool {
	for _, c := range []byte(id) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return id != "" && len(id) <= maxSessionID
}

// reserve keeps the id for a session that is being created.
func (r *Runtime) reserve(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sessions[id] != nil || r.reserved[id] {
		return false
	}
	r.reserved[id] = true
	return true
}

func (r *Runtime) unreserve(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.reserved, id)
}

// openSession handles session/load and session/resume.
func (c *Client) openSession(q *request, m *acp.Message) {
	if !m.HasSession() {
		q.fail(nil, acp.Errorf(acp.CodeInvalidParams, "%s needs params.sessionId, a string", q.method))
		return
	}
	s := c.r.session(m.Session())
	if s == nil {
		c.openForeign(q, m)
		return
	}
	if err := s.logReady(); err != nil {
		q.fail(nil, err)
		return
	}
	s.mu.Lock()
	if end := s.rec.Ended; end != nil {
		s.mu.Unlock()
		q.fail(nil, acp.Errorf(acp.CodeResourceNotFound, "session %s has ended (%s): start a new one", s.id, end.Reason))
		return
	}
	reopened := s.rec.Closed
	if reopened {
		s.rec.Closed, s.unsaved = false, true
	}
	s.mu.Unlock()
	if reopened {
		s.save()
	}
	s.settleCalls()
	last := s.log().Last()
	var after, replay uint64
	raw, given := rawjson.Member(m.Meta(), acp.MetaKey, "after")
	switch {
	case given:
		n, err := strconv.ParseUint(string(raw), 10, 64)
		if err != nil || n > last {
			q.fail(nil, acp.Errorf(acp.CodeInvalidParams, `_meta["%s"].after must be a sequence number of the session, 0 to %d`, acp.MetaKey, last))
			return
		}
		after = n
	case q.method == "session/load":
		replay = last
	default:
		after = last
	}
	if oldest := s.log().Oldest(); after+1 < oldest {
		q.fail(nil, acp.Errorf(acp.CodeInternal, "events after %d are no longer kept, the oldest is %d", after, oldest).
			WithData(problem.New(problem.EventsExpired, "events after %d are no longer kept", after).With("oldestSeq", oldest)))
		return
	}
	f := c.attach(s, after, replay)
	s.mu.Lock()
	result := json.RawMessage("{}")
	if len(s.rec.Modes) > 0 {
		result = rawjson.SetMember(result, s.rec.Modes, "modes")
	}
	if len(s.rec.ConfigOptions) > 0 {
		result = rawjson.SetMember(result, s.rec.ConfigOptions, "configOptions")
	}
	s.mu.Unlock()
	result = s.withMeta(result)
	if c.loadsBeside() && q.method == "session/load" {
		// The response travels on the connection's stream, the replay on the
		// session's: it must not overtake it.
		c.r.work.Go(func() {
			c.awaitWritten(c.r.ctx, f.session, last, replayBound)
			q.result(nil, c.withReplayed(f, result))
		})
		return
	}
	q.result(s, result)
}

// withReplayed says in the result which message of the session's stream was the
// last before it: on a connection of its own the result can arrive earlier.
func (c *Client) withReplayed(f *feed, result json.RawMessage) json.RawMessage {
	if f == nil {
		return result
	}
	c.mu.Lock()
	shown := f.shown
	c.mu.Unlock()
	return rawjson.SetMember(result, strconv.AppendUint(nil, shown, 10), "_meta", acp.MetaKey, "replayedSeq")
}

// loadsBeside reports whether the response to session/load and the replay
// travel on different streams.
func (c *Client) loadsBeside() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shape == acp.PerSession
}

// openForeign opens a session that the agent has and the gateway does not: one
// that was made elsewhere. Its replay fills the log.
func (c *Client) openForeign(q *request, m *acp.Message) {
	if err := c.r.roomForSession(); err != nil {
		q.fail(nil, err)
		return
	}
	id := m.Session()
	a := c.agent
	if name := rawjson.MemberString(m.Meta(), acp.MetaKey, "agent"); name != "" {
		var err error
		if a, err = c.r.agentNamed(name); err != nil {
			q.fail(nil, err)
			return
		}
	}
	w, bad := c.wantsFor(a, rawjson.MemberString(m.Params(), "cwd"), m.Meta())
	if bad != nil {
		q.fail(nil, bad)
		return
	}
	if !c.r.reserve(id) {
		q.fail(nil, acp.Errorf(acp.CodeInternal, "session %s is being opened by another request: try again", id))
		return
	}
	own := m.Clone()
	c.r.work.Go(func() {
		fail := func(err error) { // whoever hears of it may try again
			c.r.unreserve(id)
			q.fail(nil, err)
		}
		p, err := a.process(within(c.r.ctx, q.span.Context()), w)
		if err != nil {
			fail(err)
			return
		}
		defer p.release()
		if !p.caps.load && !p.caps.resume {
			fail(notFound(id))
			return
		}
		s := newSession(c.r, record{
			ID: id, AgentSessionID: id, Agent: a.id, Cwd: rawjson.MemberString(own.Params(), "cwd"), CreatedAt: time.Now().UTC(),
			Continuity: ContinuityNative, Setup: setupOf(own.Params()), credentials: w.credentials, Capabilities: c.caps.raw,
		})
		if err := s.logReady(); err != nil {
			fail(err)
			return
		}
		// A log without a readable record: the session was known here.
		kept := s.log().Last()
		load := q.method == "session/load"
		s.muted.Store(load && kept > 0) // the log has what the agent replays
		s.serving.Store(p)
		if err := p.bind(id, s); err != nil {
			s.discard(kept > 0)
			fail(err)
			return
		}
		if load {
			c.attach(s, 0, kept)
		} else {
			c.attach(s, kept, 0)
		}
		params := rawjson.DeleteMember(withoutSecrets(own.Params()), "_meta", acp.MetaKey, "after")
		res, err := p.askThen(c.r.ctx, q.method, params, func() { s.muted.Store(false) })
		if err != nil {
			c.leave(s)
			s.giveBack()
			s.discard(kept > 0)
			if kept > 0 {
				err = acp.Errorf(acp.CodeInternal, "the record of session %s cannot be read, and its agent does not open it (%v): its log is kept in %s", id, err, c.r.store.path(id))
			}
			fail(err)
			return
		}
		s.mu.Lock()
		if v, ok := rawjson.Member(res, "modes"); ok {
			s.rec.Modes = v
		}
		if v, ok := rawjson.Member(res, "configOptions"); ok {
			s.rec.ConfigOptions = v
		}
		s.mu.Unlock()
		c.r.mu.Lock()
		c.r.sessions[id] = s
		delete(c.r.reserved, id)
		c.r.mu.Unlock()
		s.change(func(*record) {})
		if c.loadsBeside() {
			c.awaitWritten(c.r.ctx, s, s.log().Last(), replayBound)
			q.result(nil, c.withReplayed(c.feedOf(s), s.withMeta(res)))
			return
		}
		q.result(s, s.withMeta(res))
	})
}

// discard undoes an opening that failed. Files that were there before stay.
func (s *Session) discard(keepFiles bool) {
	s.mu.Lock()
	s.gone = true
	s.mu.Unlock()
	_ = s.log().Close()
	if !keepFiles {
		_ = s.r.store.remove(s.id)
	}
}
