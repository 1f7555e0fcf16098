package session

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/version"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/runtime/agents"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
	"sandboxagent.dev/sandbox-agent/runtime/viewer"
)

// New is what a session is made from.
type New struct {
	ID           string          // reserved for it; never "" in Create
	Setup        json.RawMessage // what the agent is given again when it is opened anew; see [Setup]
	Cwd          string
	Title        string // of what it is a fork of; one that is asked for is in the setup
	Credentials  adapters.Credentials
	Capabilities json.RawMessage // of the client that makes it
	Creator      *viewer.Client  // may be nil
	From         *Session        // that it is a fork of; nil for none
	// Handover is a text about another conversation, which the agent is given with the
	// first prompt; "" for none.
	Handover string
	// chosen is what was chosen of the session that it is a fork of, and of the fork, too.
	chosen choices
}

// MaxHandover bounds such a text.
const MaxHandover = 256 << 10

// Setup returns the params of a session's creation as they are kept: without
// secrets, and without what belongs to this one call.
func Setup(params json.RawMessage) json.RawMessage {
	p := bytes.Clone(params)
	p = rawjson.DeleteMember(p, "sessionId")
	p = rawjson.DeleteMember(p, "_meta", acp.MetaKey, "credentials")
	p = rawjson.DeleteMember(p, "_meta", acp.MetaKey, "handover")
	return rawjson.DeleteMember(p, "_meta", acp.MetaKey, "after")
}

// Create makes the session that the agent has just created with the given result. It is
// called by the process's reader: the session's messages go to its log from now on. It
// writes nothing; see [Session.Keep] and [Session.Finish].
func (set *Set) Create(p *agents.Process, result json.RawMessage, n New) *Session {
	rec := record{
		ID: n.ID, Agent: p.Agent().ID(), AgentSessionID: rawjson.MemberString(result, "sessionId"), Title: n.Title, Cwd: n.Cwd,
		Setup: n.Setup, credentials: n.Credentials, OwnCredentials: n.Credentials.Fields(), Capabilities: n.Capabilities,
		CreatedAt: time.Now().UTC(), Continuity: ContinuityNative,
	}
	if n.From != nil {
		n.From.mu.Lock()
		rec.Modes, rec.ConfigOptions, rec.Gist, rec.Incomplete = n.From.rec.Modes, n.From.rec.ConfigOptions, n.From.rec.Gist, true // until Inherit is done
		n.From.mu.Unlock()
	}
	if n.Handover != "" {
		rec.Handover = n.Handover
		if n.From == nil {
			rec.Continuity = ContinuityReplayed
		}
	}
	rec.noteTitle(rawjson.MemberString(n.Setup, "_meta", acp.MetaKey, "title"))
	rec.read(result)
	rec.choices = n.chosen
	s := set.add(rec, n.Creator.Number())
	s.mu.Lock()
	s.traced = n.From == nil     // likewise
	s.cost.known = n.From == nil // a fork's sum begins with what it was forked from
	s.mu.Unlock()
	l := &link{s: s, p: p, native: rec.AgentSessionID, opened: true}
	l.opens(result)
	s.handle(event{kind: bound, link: l})
	if err := p.Bind(l.native, l); err != nil {
		s.handle(event{kind: startFailed, err: err})
	} else {
		s.handle(event{kind: started, link: l, err: p.Cause()})
	}
	return s
}

// Finish sets what was asked for in the _meta of a session's creation by p, or has it set when the agent is started next,
// if p has ended meanwhile, or the gateway ends. It returns what had no effect. The error is why the session must not be used.
func (s *Session) Finish(ctx context.Context, p *agents.Process, asked json.RawMessage) ([]Unsupported, error) {
	l, info := s.served(), p.Agent().Info()
	s.mu.Lock()
	now := s.rec
	s.choosing++ // what the agent does not offer yet it is set to behind this
	s.mu.Unlock()
	defer s.EndChoosing()
	if l != nil {
		if err := unheld(now.permissionMode(), l.refusal(permissionMode)); err != nil {
			return nil, err
		}
		s.unsetRefused(l)
	}
	c, chosen, setup := s.made(&now, info, members(asked, acp.MetaKey)), now.list(), now.Setup
	now.Setup = nil // all of it is asked for
	s.mu.Lock()
	c.judge(&now, l, info)
	s.mu.Unlock()
	c.fields = nil // it is opened with it
	if err := s.carryOut(ctx, agents.Needs{}, info, c); err != nil {
		return nil, err
	}
	c.missing = slices.DeleteFunc(c.missing, func(m Unsupported) bool { return l != nil && l.refusal(m.Field) != "" }) // the agent has told it
	for _, m := range c.missing {                                                                                      // what has no effect is no setting, but for what was given to an agent that does not take it
		if m.Reason != notTaken(info.ID) {
			s.unset(m.Field)
		}
	}
	more, err := s.carry(ctx, l, chosen, false)
	if err != nil && p.Alive() && ctx.Err() == nil {
		return nil, err
	}
	missing := append(c.missing, more...)
	if len(missing) > 0 || l != nil && len(l.refused) > 0 {
		_ = s.save() // what had no effect is no setting for the next gateway either, which is to try it when it is asked for again
	}
	return append(missing, untimed(info, setup)...), nil
}

// Inherit copies the history of another session up to an entry. Who makes the fork knows
// it, or loads it: as something new it would look like an answer.
func (s *Session) Inherit(from *Session, upTo uint64, maker journal.Recipient) {
	defer from.KeepWhole()()
	oldest := from.Log().Oldest()
	cur, damaged := from.Log().Whole(oldest-1), false
	var running calls // in the other session, which goes on with them
	for cur.After() < upTo {
		batch, err := cur.Next(nil, 256<<10)
		if err != nil || len(batch) == 0 {
			s.logger().Warn("copy history of forked session", "from", from.id, "err", err)
			damaged = true
			break // what was copied is ended as if it were all
		}
		for _, e := range batch {
			damaged = damaged || e.Kind == journal.Damage
			if e.Seq > upTo || !e.Kind.IsUpdate() && e.Kind != journal.Second && e.Kind != journal.Echo {
				continue
			}
			if m, err := acp.Parse(e.Frame); err == nil && m.HasSession() {
				own := string(m.SessionRaw()) == string(from.quoted)
				if e.Kind == journal.Second {
					running.noteSecond(&m, own, e.Seq)
				} else {
					running.note(m.Update(), e.Seq)
				}
				if e.Kind == journal.Second && !own {
					m = m.For(version.Two, s.quoted) // of a child, which keeps its id
				}
				s.mu.Lock()
				s.append(e.Kind, journal.Except(maker), &m)
				if isCall(&m) && e.Kind.IsUpdate() {
					s.noteSubagentLocked(&m)
				}
				s.mu.Unlock()
			}
		}
		s.Flush()
	}
	s.mu.Lock()
	children := s.rec.Subagents
	s.mu.Unlock()
	for _, id := range running.take() {
		n := s.failCall(id, "the call goes on in the session that this one was made from", journal.Except(maker), children, running.tells)
		s.noteSubagent(&n)
	}
	for _, one := range running.compactions {
		s.failCompaction(one.id, "it goes on in the session that this one was made from", journal.Except(maker))
	}
	s.endTerminals(running.second, journal.Except(maker))
	s.mu.Lock()
	if running.behind > 0 && !s.m.alone {
		s.notedAlone = true
		s.noteAloneLocked()
	}
	s.mu.Unlock()
	s.Flush()
	from.mu.Lock()
	lacks := damaged || from.incompleteLocked(oldest)
	from.mu.Unlock()
	s.mu.Lock()
	s.rec.Incomplete, s.unsaved, s.traced = lacks, true, true
	s.mu.Unlock()
	_ = s.noteEnd() // what the log says so far is of the other session, and its costs are
}

// Needs returns what a process needs to be for the session's sake.
func (s *Session) Needs(n agents.Needs, a *agents.Agent) agents.Needs {
	s.mu.Lock()
	rec := s.rec
	s.mu.Unlock()
	return rec.needs(n, a)
}

// ForkFrom returns what a fork of the session that is asked for with params is made from. Its agent may find the
// conversation with the session's variables only, or read it with no other version: the fork has both of the session,
// and its credentials, where params name no others.
func (s *Session) ForkFrom(params json.RawMessage) New {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := New{Cwd: s.rec.Cwd, Title: s.rec.Title, Setup: s.rec.Setup, Credentials: s.rec.credentials, From: s}
	asked := Setup(params)
	if cwd := rawjson.MemberString(params, "cwd"); cwd != "" {
		n.Cwd, n.Setup = cwd, asked
		for _, name := range []string{"env", "agentVersion"} {
			v, had := rawjson.Member(s.rec.Setup, "_meta", acp.MetaKey, name)
			if _, given := rawjson.Member(asked, "_meta", acp.MetaKey, name); had && !given {
				n.Setup = rawjson.SetMember(n.Setup, v, "_meta", acp.MetaKey, name)
			}
		}
	} else { // the protocol wants one; without it the settings are those of the session, too, and what is asked for counts more
		now := s.rec
		now.OwnMode = ""
		if _, given := rawjson.Member(asked, "_meta", acp.MetaKey, permissionMode); given || now.ModeOver || now.permissionMode() == "readonly" {
			now.forgetMode(false)
			now.forget("mode")
		}
		n.Setup = rawjson.DeleteMember(n.Setup, "_meta", acp.MetaKey, "title") // it is called as the session is by now
		n.Setup = rawjson.DeleteMember(n.Setup, "_meta", acp.MetaKey, "requestedSessionId")
		for _, f := range configFields {
			if _, given := rawjson.Member(asked, "_meta", acp.MetaKey, f.field); given {
				now.forget(f.field)
			}
			n.Setup = rawjson.DeleteMember(n.Setup, "_meta", acp.MetaKey, f.field) // what was chosen is newer
		}
		n.chosen = now.choices
		for _, path := range [][]string{nil, {"_meta"}, {"_meta", acp.MetaKey}} {
			for name, v := range members(asked, path...) {
				if !slices.Contains([]string{"cwd", "_meta", acp.MetaKey}, name) && (name != "mcpServers" || len(rawjson.Elements(v)) > 0) {
					n.Setup = rawjson.SetMember(n.Setup, v, append(slices.Clip(path), name)...)
				}
			}
		}
	}
	return n
}

// Needs adds to needs what the process of the session that is to be made needs to be.
func (n *New) Needs(needs agents.Needs, a *agents.Agent) agents.Needs {
	rec := record{Setup: n.Setup, credentials: n.Credentials, Cwd: n.Cwd}
	return rec.needs(needs, a)
}

// Refusal says why the session takes no work, nil when it does.
func (s *Session) Refusal() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m.refusal()
}

// opening is a session that a process of its agent is asked to open, by the agent's own id.
type opening struct {
	p      *agents.Process
	native string
}

// opens waits until the process has answered who has asked it for the session before, and has waited no more: what it shows until then
// is not for who asks next. answered is to be called behind the next answer, or the process's end. One that has not answered in time gets no
// more sessions.
func (set *Set) opens(ctx context.Context, of opening) (answered func(), err error) {
	set.mu.Lock()
	for before := set.opening[of]; before != nil; before = set.opening[of] {
		set.mu.Unlock()
		select {
		case <-before:
		case <-ctx.Done():
			if err = context.Cause(ctx); isTimeout(err) {
				of.p.Retire()
			}
			return nil, err
		}
		set.mu.Lock()
	}
	answered = set.opensLocked(of)
	set.mu.Unlock()
	of.p.DropEarly(of.native) // it is of that answer
	return answered, nil
}

func (set *Set) opensLocked(of opening) (answered func()) {
	answer := make(chan struct{})
	set.opening[of] = answer
	return func() {
		set.mu.Lock()
		if set.opening[of] == answer {
			delete(set.opening, of)
		}
		set.mu.Unlock()
		close(answer)
	}
}

// OpenForeign opens a session that the agent has from elsewhere, whose id was reserved.
// It is not among the set's before the agent has opened it. read attaches the client:
// what the agent replays is its log, unless the log has it, which was there without a
// record then and has kept entries. replayed is the last entry of that.
func (set *Set) OpenForeign(ctx context.Context, p *agents.Process, method string, params json.RawMessage, n New, read func(s *Session, kept uint64)) (_ *Session, _ json.RawMessage, replayed uint64, _ error) {
	rec := record{
		ID: n.ID, AgentSessionID: n.ID, Agent: p.Agent().ID(), Cwd: n.Cwd, CreatedAt: time.Now().UTC(),
		Continuity: ContinuityNative, Setup: n.Setup, credentials: n.Credentials, OwnCredentials: n.Credentials.Fields(), Capabilities: n.Capabilities,
		Incomplete: method == acp.MethodSessionResume,
	}
	rec.noteTitle(rawjson.MemberString(n.Setup, "_meta", acp.MetaKey, "title"))
	bounded, cancel := agents.Within(ctx, set.o.RequestTimeout)
	defer cancel()
	answered, err := set.opens(bounded, opening{p, n.ID})
	if err != nil {
		return nil, nil, 0, err
	}
	asked := false
	defer func() {
		if !asked {
			answered()
		}
	}()
	s := newSession(set, rec, starting)
	if err := s.Readable(); err != nil {
		set.trouble.set(s.id, nil) // there is no such session
		return nil, nil, 0, err
	}
	kept := s.Log().Saved()
	if kept == 0 {
		if err := set.store.beginOpening(s.id); err != nil {
			s.discard(false)
			return nil, nil, 0, err
		}
	}
	if kept > 0 {
		s.behind.Store(true)
		s.mu.Lock()
		s.traced = false
		s.mu.Unlock()
		s.EndLostCalls()
		kept = s.Log().Saved()
	}
	l := &link{s: s, p: p, native: s.id, replaying: method == acp.MethodSessionLoad && kept > 0}
	if l.replaying && p.Agent().Info().Record {
		l.merge = s.newMerge(true)
	}
	s.handle(event{kind: bound, link: l})
	err = p.Bind(l.native, l)
	var res json.RawMessage
	if err == nil {
		read(s, kept)
		asked = true
		looked := make(chan struct{})
		_, err = p.AskThen(bounded, method, params, func(said json.RawMessage, err error) {
			defer close(looked)
			res = said
			if !s.openedBy(l, said, err, answered) || err != nil {
				return
			}
			s.bringIn(l)
			replayed = s.Log().Appended()
			s.handle(event{kind: started, link: l, err: p.Cause()})
		})
		if err != nil && s.taken(l) {
			err = nil
		}
		if err == nil {
			<-looked
		}
	}
	if err != nil {
		s.abandon(l)
		s.handle(event{kind: startFailed, err: err})
		s.discard(kept > 0)
		if kept > 0 {
			err = acp.Errorf(acp.CodeInternal, "the record of session %s cannot be read, and its agent does not open it (%v): its log is kept in %s", s.id, err, set.store.path(s.id))
		}
		return nil, nil, 0, err
	}
	if s.Flush(); s.Log().Saved() >= replayed { // else a start without the record is to ask the agent again
		set.store.opened(s.id)
	}
	s.list()
	set.mu.Lock()
	set.enterLocked(s)
	set.mu.Unlock()
	s.change(func(*record) {})
	s.record(p)
	return s, res, replayed, nil
}

// discard undoes an opening that failed. Files that were there before stay.
func (s *Session) discard(keepFiles bool) {
	for _, c := range s.Clients() {
		c.Detach(s)
	}
	s.handle(event{kind: discarded})
	close(s.gone)
	s.closeLog()
	s.saving.Lock()
	s.stopRaw()
	if !keepFiles {
		_ = s.moveFiles()
	}
	s.saving.Unlock()
	if !keepFiles {
		s.set.removeAway(s.away)
	}
}
