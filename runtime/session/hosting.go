package session

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/internal/awake"
	"sandboxagent.dev/sandbox-agent/runtime/agents"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
	"sandboxagent.dev/sandbox-agent/runtime/observe"
	"sandboxagent.dev/sandbox-agent/runtime/viewer"
)

// agentBound is how long an agent may take to close or delete a session, startBound how
// long to be started for the sake of a deletion, and to do it: programs take some seconds
// on a busy machine, and what they do not delete comes back by its native id.
const (
	agentBound = 5 * time.Second
	startBound = 30 * time.Second
)

// errGivenUp is why a start ended that nobody waits for any more.
var errGivenUp = errors.New("the session was closed while its agent started")

// Request gives the process that serves the session what ask returns; a dormant one is given a process first. ask does
// not wait, and takes no lock of the session. fail is called with its error, or why there is no process. While the agent is
// slow to read it may wait, until ctx ends: that is the client's.
func (s *Session) Request(ctx context.Context, n agents.Needs, ask func(at At) (agents.Request, error), fail func(err error)) {
	s.handle(event{kind: requested, req: &waiter{needs: n, ctx: ctx, ask: ask, fail: fail}})
}

// startLocked begins to give the session a process.
func (s *Session) startLocked(e effect) {
	var around context.Context
	var n agents.Needs
	if e.turn != nil {
		around, n = e.turn.span.Context(), e.turn.needs
	} else {
		around, n = e.req.ctx, e.req.needs
	}
	ctx, cancel := agents.Within(observe.Within(s.set.o.Life, around), s.set.o.RequestTimeout)
	ctx, giveUp := context.WithCancelCause(ctx)
	s.giveUp = func() { giveUp(errGivenUp) }
	s.set.o.Tasks.Go(func() {
		defer cancel()
		l, err := s.start(ctx, n, e.attempt)
		if err != nil {
			s.handle(event{kind: startFailed, attempt: e.attempt, err: err})
			return
		}
		s.handle(event{kind: started, attempt: e.attempt, link: l, err: l.p.Cause()})
	})
}

// start gives a dormant session a process, with the agent's own memory of it where
// the agent has one.
func (s *Session) start(ctx context.Context, n agents.Needs, attempt uint64) (*link, error) {
	s.caughtUp()
	s.change(func(rec *record) { rec.Opening = true }) // what cannot be kept is taken back: the agent is not opened with it
	s.mu.Lock()
	rec := s.rec
	s.mu.Unlock()
	a := s.set.o.Agents.Find(rec.Agent)
	if a == nil {
		return nil, problem.New(problem.UnsupportedAgent, "the session's agent %q is no longer configured", rec.Agent)
	}
	if rec.lacksCredentials() {
		return nil, rec.errCredentials()
	}
	asked, over := rec.Setup, rec.ModeOver
	l, less, err := s.opened(ctx, n, a, rec, attempt)
	// What is not tried to the end is tried once more with the next start, and told then. A load that was refused meanwhile
	// has taken back what it asked for, and that stays so.
	back := func() {
		s.change(func(now *record) {
			if less != nil && now.Before != nil && bytes.Equal(now.Setup, less) {
				now.take(asked)
				now.ModeOver = over
			}
		})
	}
	if err != nil {
		return nil, err
	}
	if why, had := l.refusal(permissionMode), rec.permissionModeBefore(); why != "" && had != "" {
		// What has no effect does not end that either.
		s.abandon(l)
		s.change(func(now *record) {
			now.Setup = rawjson.SetMember(now.Setup, rawjson.AppendQuoted(nil, had), "_meta", acp.MetaKey, permissionMode)
			now.ModeOver = false
			rec, less = *now, now.Setup
		})
		var fewer json.RawMessage
		l, fewer, err = s.opened(ctx, n, a, rec, attempt)
		if fewer != nil {
			less = fewer
		}
		if err != nil {
			back()
			return nil, err
		}
		s.mu.Lock()
		s.refused = append([]Unsupported{{permissionMode, why}}, s.refused...)
		s.mu.Unlock()
	}
	if err := s.chooseAgain(ctx, l); err != nil {
		s.abandon(l)
		back()
		return nil, err
	}
	loaded := rec.Before != nil
	if loaded {
		s.unsetRefused(l)
	} else { // it may take them with the next start, as it has with an earlier one
		s.tellUnsupported(l.refusals())
	}
	s.tried(loaded)
	return l, nil
}

// permissionModeBefore is the permissionMode with which the agent has opened the session last, "" for none, and where no load asks for
// another one since that it can do without.
func (rec *record) permissionModeBefore() string {
	before := record{Setup: rec.Before}
	had, wish := before.permissionMode(), rec.permissionMode()
	if had == "" || had == wish || wish == "readonly" {
		return ""
	}
	return had
}

// opened has the agent open its own session again, as rec has it, or else as it was before a load, with the setup less, or else begin anew.
func (s *Session) opened(ctx context.Context, n agents.Needs, a *agents.Agent, rec record, attempt uint64) (l *link, less json.RawMessage, err error) {
	l, refused, err := s.reopened(ctx, n, a, rec, attempt)
	if before := rec.beforeLoad(taken(a.Info())); refused != nil && !sameJSON(before.Setup, rec.Setup) {
		// What a load has asked for since may be why.
		switch last, again, lastErr := s.reopened(ctx, n, a, before, attempt); {
		case lastErr == nil && last != nil:
			s.undo(rec, before, refused)
			l, less, refused = last, before.Setup, nil
		case lastErr == nil && again != nil: // whether it has the conversation is said where it was
			refused = again
		}
	}
	if err != nil {
		return nil, nil, err
	}
	if l == nil {
		if refused != nil {
			s.logger().Warn("agent could not restore session", "agent", rec.Agent, "err", refused)
			if !isLost(a.Info().Kind, rec.AgentSessionID, refused) && !rec.beginsAnew() && s.hasAnswers() {
				return nil, nil, errNotNow(rec.Agent, refused)
			}
		}
		if l, err = s.startFresh(ctx, n, a, rec, attempt); err != nil {
			return nil, nil, err
		}
		s.tellContinuity(ContinuityFresh)
	}
	return l, less, nil
}

// beforeLoad is the record with the setup with which the agent has opened the session last, except for what it is not opened with: that
// has its effect in other ways. takes is what the agent's adapter takes. One that must only read by now does so with that setup, too.
func (rec *record) beforeLoad(takes []string) record {
	before := *rec
	if rec.Before == nil {
		return before
	}
	before.take(rec.Before)
	for _, f := range append(slices.Clip(setFields), beginAnew) {
		if slices.Contains(takes, f) && rec.permissionMode() != "readonly" {
			continue
		}
		path := []string{"_meta", acp.MetaKey, f}
		if v, given := rawjson.Member(rec.Setup, path...); given {
			before.Setup = rawjson.SetMember(before.Setup, v, path...)
		} else {
			before.Setup = rawjson.DeleteMember(before.Setup, path...)
		}
	}
	return before
}

// undo gives the session the settings back with which its agent opens it.
func (s *Session) undo(asked, before record, why *acp.Error) {
	fields := differing(before.Setup, asked.Setup)
	s.logger().Warn("agent does not open the session with its new settings", "fields", fields, "err", why)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rec.take(before.Setup)
	s.rec.ModeOver = asked.ModeOver && before.permissionMode() == asked.permissionMode()
	s.refused = append(cannot(fields, "agent "+asked.Agent+" does not open the session with it: "+why.Message), s.refused...)
	s.unsaved = true
}

// tried notes that the agent has opened the session with the settings that it has, and
// tells everybody which of those that a load had changed have no effect.
func (s *Session) tried(changed bool) {
	s.mu.Lock()
	s.rec.Before, s.unsaved = nil, s.unsaved || changed
	refused := s.refused
	s.mu.Unlock()
	if changed {
		s.tellUnsupported(refused)
		s.saveSoon()
	}
}

// tellUnsupported tells everybody what has no effect.
func (s *Session) tellUnsupported(list []Unsupported) {
	if len(list) == 0 {
		return
	}
	if b, err := schema.Encode(list); err == nil {
		s.tell(rawjson.Object{}.String("sessionUpdate", "session_info_update").Raw("_meta",
			rawjson.Object{}.Raw(acp.MetaKey, rawjson.Object{}.Raw("unsupported", b).End()).End()).End())
	}
}

// process returns a process for the session as rec has it, which its caller releases.
func (s *Session) process(ctx context.Context, n agents.Needs, a *agents.Agent, rec record) (*agents.Process, error) {
	n = rec.needs(n, a)
	if n.Alone {
		n.Backoff = &s.backoff
	}
	return a.Process(ctx, n)
}

// reopened has the agent open its own session again, as rec has it. There is no link if
// the agent cannot, or refuses to for another reason than a login.
func (s *Session) reopened(ctx context.Context, n agents.Needs, a *agents.Agent, rec record, attempt uint64) (_ *link, refused *acp.Error, err error) {
	p, err := s.process(ctx, n, a, rec)
	if err != nil {
		return nil, nil, err
	}
	defer p.Release()
	method := ""
	switch caps := p.Capabilities(); {
	case caps.Load && (a.Info().Record || rec.Imported): // it may have what was said elsewhere meanwhile, and shows what it has
		method = acp.MethodSessionLoad
	case caps.Resume:
		method = acp.MethodSessionResume
	case caps.Load:
		method = acp.MethodSessionLoad
	default:
		return nil, nil, nil
	}
	l, err := s.restore(ctx, p, method, rec, attempt)
	if said := refusedBy(err); said != nil && method == acp.MethodSessionLoad && p.Capabilities().Resume {
		s.logger().Debug("agent does not show its record", "err", said) // it may go on with it nevertheless
		l, err = s.restore(ctx, p, acp.MethodSessionResume, rec, attempt)
	}
	if said := refusedBy(err); said != nil {
		return nil, said, nil
	}
	return l, nil, err
}

// refusedBy returns the error by which an agent does not open a session, nil for others
// and where a login is missing.
func refusedBy(err error) *acp.Error {
	if said, ok := errors.AsType[*acp.Error](err); ok && said.Code != acp.CodeAuthRequired {
		return said
	}
	return nil
}

// beginsAnew reports whether an agent may begin anew that cannot open its conversation.
func (rec *record) beginsAnew() bool {
	v, _ := rawjson.Member(rec.Setup, "_meta", acp.MetaKey, beginAnew)
	return string(v) == "true"
}

// errNotNow is the error of a prompt whose session the agent does not open.
func errNotNow(agent string, why *acp.Error) *acp.Error {
	return &acp.Error{Code: why.Code, Message: "agent " + agent + " cannot open its conversation now: " + why.Message +
		`. Try again, or, to go on without what the agent remembers, load the session with _meta["` + acp.MetaKey + `"].` + beginAnew + " true", Data: why.Data}
}

// tellContinuity tells everybody what the agent remembers.
func (s *Session) tellContinuity(c Continuity) {
	s.tell([]byte(`{"sessionUpdate":"session_info_update","_meta":{"` + acp.MetaKey + `":{"continuity":"` + string(c) + `"}}}`))
}

// begunAnew reports whether an agent says that it has nothing of the session that it was
// asked to open again.
func begunAnew(result json.RawMessage) bool {
	return rawjson.MemberString(result, "_meta", acp.MetaKey, "continuity") == string(ContinuityFresh)
}

// Remembered notes what the result that made a fork says of the agent's memory.
func (s *Session) Remembered(result json.RawMessage) {
	if begunAnew(result) && s.hasAnswers() {
		s.change(func(rec *record) { rec.Continuity = ContinuityFresh })
	}
}

// hasAnswers reports whether the agent has answered a prompt in the session, or begun to.
// It reads the log up to there: the prompt in hand is part of it already.
func (s *Session) hasAnswers() bool {
	if s.Log().Oldest() > 1 {
		return true // what is gone had answers
	}
	cur := s.Log().Whole(0)
	for {
		batch, err := cur.Next(nil, 256<<10)
		if err != nil || len(batch) == 0 {
			return false
		}
		for _, e := range batch {
			if m, err := acp.Parse(e.Frame); err == nil && isAnswer(e.Kind, &m) {
				return true
			}
		}
	}
}

// isAnswer reports whether an entry shows that the agent has answered, or begun to.
func isAnswer(k journal.Kind, m *acp.Message) bool {
	switch k {
	case journal.Update, journal.First:
		switch string(m.UpdateKind()) {
		case "agent_message_chunk", "agent_thought_chunk", "tool_call":
			return true
		}
	case journal.Response:
		return rawjson.MemberString(m.Result(), "stopReason") != "" && acp.TurnBegan(m.Result())
	case journal.TurnEnd: // of a turn whose client was answered when it began
		return rawjson.MemberString(m.Params(), "result", "stopReason") != "" && acp.TurnBegan(m.Params())
	}
	return false
}

// restore has the agent open its own session again. What it replays the log has
// already.
func (s *Session) restore(ctx context.Context, p *agents.Process, method string, rec record, attempt uint64) (_ *link, err error) {
	span := s.set.o.Observer.Begin(ctx, observe.Work{Name: method, Agent: rec.Agent, Session: s.id, ToAgent: true})
	defer func() { span.End(observe.OutcomeOf(err)) }()
	l := &link{s: s, p: p, native: rec.AgentSessionID, replaying: method == acp.MethodSessionLoad}
	answered, err := s.set.opens(ctx, opening{p, l.native})
	if err != nil {
		return nil, unopened(p, err)
	}
	if l.replaying {
		l.merge = s.newMerge(p.Agent().Info().Record)
	}
	s.handle(event{kind: bound, attempt: attempt, link: l})
	s.record(p)
	if err := p.Bind(l.native, l); err != nil {
		answered()
		return nil, unopened(p, err)
	}
	params := rawjson.SetMember(ServersFor(p.Agent().Info(), rec.Setup), rawjson.AppendQuoted(nil, l.native), "sessionId")
	// On the reader: what the agent says behind its answer is new.
	var res json.RawMessage
	looked := make(chan struct{})
	_, err = p.AskThen(ctx, method, params, func(said json.RawMessage, err error) {
		defer close(looked)
		res = said
		switch wanted := s.openedBy(l, said, err, answered); {
		case err != nil:
		case wanted:
			s.bringIn(l)
		case begunAnew(said): // it does not say so once more
			s.forgotten(l)
		}
	})
	if err != nil && !s.taken(l) {
		return nil, unopened(p, err)
	}
	<-looked
	var continuity Continuity // "" for what the record has: that may be newer than rec
	s.mu.Lock()
	// Who loads a conversation shows it: one that is not shown is lost.
	empty := begunAnew(res) || method == acp.MethodSessionLoad && !l.replayed && (rec.Imported || !p.Capabilities().Resume)
	s.mu.Unlock()
	switch {
	case empty && s.hasAnswers():
		continuity = ContinuityFresh
		s.tellContinuity(continuity)
	case rec.Imported && method == acp.MethodSessionLoad:
		continuity = ContinuityNative
		s.tellContinuity(continuity)
	}
	s.adopt(l, continuity)
	return l, nil
}

// unopened is why a process has not opened a session. Where it has come to its end meanwhile, as it may for another session's sake,
// what waits for it may be given to the next one.
func unopened(p *agents.Process, err error) error {
	if refusedBy(err) == nil && !p.Alive() {
		return &agents.UntakenError{Cause: err}
	}
	return err
}

// endedAt is [unopened] for what is asked behind the opening, nil while the process lives.
func endedAt(p *agents.Process) error {
	if p.Alive() {
		return nil
	}
	return &agents.UntakenError{Cause: p.Cause()}
}

// startFresh has the agent create a new session under the gateway's old one.
func (s *Session) startFresh(ctx context.Context, n agents.Needs, a *agents.Agent, rec record, attempt uint64) (_ *link, err error) {
	p, err := s.process(ctx, n, a, rec)
	if err != nil {
		return nil, err
	}
	defer p.Release()
	span := s.set.o.Observer.Begin(ctx, observe.Work{Name: acp.MethodSessionNew, Agent: rec.Agent, Session: s.id, ToAgent: true})
	defer func() { span.End(observe.OutcomeOf(err)) }()
	l := &link{s: s, p: p}
	s.record(p)
	created, looked := p.Creating(), make(chan struct{})
	_, err = p.AskThen(ctx, acp.MethodSessionNew, ServersFor(p.Agent().Info(), rec.Setup), func(res json.RawMessage, err error) {
		defer created()
		defer close(looked)
		if err != nil {
			return
		}
		s.mu.Lock()
		l.native = rawjson.MemberString(res, "sessionId")
		before := s.rec
		wanted := s.openedLocked(l, res, nil)
		if wanted {
			s.rec.AgentSessionID = l.native
			s.rec.outlives(before)
		}
		s.mu.Unlock()
		if !wanted {
			s.closeUnwanted(l, func() {})
			if p.Capabilities().Delete { // nothing is in it, and nobody knows its id
				p.Tell(acp.MethodSessionDelete, sessionParams(l.native))
			}
			return
		}
		s.handle(event{kind: bound, attempt: attempt, link: l})
		_ = p.Bind(l.native, l) // of a process that is ending: the start fails, too
	})
	if err != nil && !s.taken(l) {
		return nil, unopened(p, err)
	}
	<-looked
	s.adopt(l, ContinuityFresh)
	return l, nil
}

// taken gives up a link whose agent was waited for no longer, unless it has opened the session in that moment: what follows from that was begun
// then, and it is gone on with.
func (s *Session) taken(l *link) bool {
	s.mu.Lock()
	opened, native := l.opened, l.native
	l.unwanted = !opened
	s.mu.Unlock()
	if !opened {
		l.p.Unbind(native, l)
	}
	return opened
}

// forgotten notes, and tells everybody, that the agent has nothing of the session any more, as it has answered who waited no more.
// Where another process serves the session by then, or is opening it, that one knows better.
func (s *Session) forgotten(l *link) {
	other := func() bool { return s.m.link != nil && s.m.link.p != l.p } // mu is held
	s.mu.Lock()
	over := other()
	if !over && s.rec.Handover != "" {
		s.rec.HandedOver, s.unsaved = false, true
	}
	s.mu.Unlock()
	if over {
		return
	}
	s.set.o.Tasks.Go(func() {
		if !s.hasAnswers() {
			return
		}
		fresh := false
		s.change(func(rec *record) {
			if fresh = !other(); fresh {
				rec.Continuity = ContinuityFresh
			}
		})
		if fresh {
			s.tellContinuity(ContinuityFresh)
		}
	})
}

// openedBy notes that the agent has answered the request to open the session, with what it says of its settings, and
// reports whether somebody still wants to know. If nobody does, it closes it again. It is called on the reader: what the agent says of
// them behind its answer is newer. answered is called when the agent may be asked for the session once more.
func (s *Session) openedBy(l *link, res json.RawMessage, err error, answered func()) (wanted bool) {
	s.mu.Lock()
	wanted = s.openedLocked(l, res, err)
	s.mu.Unlock()
	if !wanted && err == nil {
		s.closeUnwanted(l, answered)
	} else {
		answered()
	}
	return wanted
}

// openedLocked is openedBy without closing what nobody wants.
func (s *Session) openedLocked(l *link, res json.RawMessage, err error) (wanted bool) {
	l.replaying, l.opened = false, err == nil
	if wanted = !l.unwanted; wanted && err == nil {
		l.opens(res)
		s.rec.read(res)
		s.unsaved = true
	}
	return wanted
}

// abandon gives up a link that was never served by. The agent may still answer.
func (s *Session) abandon(l *link) {
	s.mu.Lock()
	open := l.opened && !l.unwanted // else it is closed when it is answered
	l.unwanted = true
	native := l.native
	s.mu.Unlock()
	l.p.Unbind(native, l)
	if !open {
		return
	}
	s.set.mu.Lock()
	closed := s.set.opensLocked(opening{l.p, native}) // the next start waits for it
	s.set.mu.Unlock()
	s.closeUnwanted(l, closed)
}

// closeUnwanted has the agent close a session that nobody wants at this process, and calls closed when it has, or takes long.
func (s *Session) closeUnwanted(l *link, closed func()) {
	if !l.p.Capabilities().Close {
		closed()
		return
	}
	once := sync.OnceFunc(closed)
	timer := awake.AfterFunc(agentBound, once)
	l.p.TellThen(acp.MethodSessionClose, sessionParams(l.native), func() {
		timer.Stop()
		once()
	})
}

// adopt takes over the session that the agent has opened. The record is written when the agent is set to what was chosen, see chooseAgain, but
// for one that has begun anew: a gateway that is killed before would begin anew once more, and nobody would know of that one.
func (s *Session) adopt(l *link, continuity Continuity) {
	if continuity == ContinuityFresh {
		defer func() { _ = s.save() }()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if continuity == ContinuityFresh && s.rec.Handover != "" {
		s.rec.HandedOver = false // with the rest it has lost that
	}
	s.rec.Continuity, s.rec.Imported, s.unsaved = cmp.Or(continuity, s.rec.Continuity), false, true
	s.refused = l.refused
	s.announceLocked()
}

// release has the agent close its side of the session, or delete it, and lets its
// process go.
func (s *Session) release(l *link, goal life) {
	ctx, cancel := agents.Within(s.set.o.Life, agentBound)
	defer cancel()
	var err, stays error
	if goal == deleted { // what the gateway cannot delete its agent is not to delete
		stays = s.set.store.place()
	}
	switch {
	case (goal != deleted || stays != nil && l != nil) && l.p.Capabilities().Close:
		_, err = l.p.Ask(ctx, acp.MethodSessionClose, sessionParams(l.native))
	case stays != nil:
	case goal == deleted && l == nil:
		err = s.deleteDormant(nil)
	case goal == deleted && l.p.Capabilities().Delete:
		err = s.deleteAt(ctx, l.p, l.native)
		switch {
		case err == nil:
		case ctx.Err() != nil:
			l.p.Retire() // another one is asked
			err = s.deleteDormant(s.undeleted(agentBound))
		case endedUnder(l.p, err):
			err = s.deleteDormant(viewer.ErrorOf(err))
		case l.p.Capabilities().Close:
			// What the agent keeps, it must not keep open: it could not be opened again.
			if _, open := l.p.Ask(ctx, acp.MethodSessionClose, sessionParams(l.native)); open != nil {
				s.logger().Debug("agent did not close the session that it does not delete", "err", open)
			}
		}
	}
	if l != nil {
		l.p.Unbind(l.native, l)
	}
	if err != nil {
		s.logger().Warn("agent did not let go of the session", "delete", goal == deleted, "err", err)
	}
	if l != nil && ctx.Err() != nil { // it may hang, and is no good to others then
		l.p.Retire()
	}
	switch {
	case goal != deleted || stays != nil:
		err = stays
	case !keptBack(err):
		err = s.putAway()
	}
	s.handle(event{kind: released, link: l, err: err})
}

// keptBack reports whether an agent keeps what it was to delete. What it does not know, or cannot delete, it does
// not keep back. At the gateway's end it was not asked: the session is closed, and can be deleted later.
func keptBack(err error) bool {
	refused, ok := errors.AsType[*acp.Error](err)
	return ok && refused.Code != acp.CodeMethodNotFound && refused.Code != acp.CodeResourceNotFound || errors.Is(err, agents.ErrShutdown)
}

// deleteAt has the agent delete its own record of the session, and then those that it had of it before. Of these it is
// not known that it has them, so that what it says of them keeps nothing back.
func (s *Session) deleteAt(ctx context.Context, p *agents.Process, native string) error {
	_, err := p.Ask(ctx, acp.MethodSessionDelete, sessionParams(native))
	if keptBack(err) || ctx.Err() != nil {
		return err
	}
	s.mu.Lock()
	earlier := s.rec.Earlier
	s.mu.Unlock()
	for _, id := range slices.Backward(earlier) {
		if _, err := p.Ask(ctx, acp.MethodSessionDelete, sessionParams(id)); keptBack(err) || ctx.Err() != nil {
			s.logger().Warn("agent did not delete what it had of the session before", "native_session", id, "err", err)
			break
		}
	}
	return err
}

// deleteDormant has the agent delete its own record of a dormant session, so that it
// does not come back by its native id. The agent is started for it. before is why a process has not done it that was asked before, nil
// if none was: what the agent keeps is kept back then unless another process is asked.
func (s *Session) deleteDormant(before *acp.Error) error {
	s.mu.Lock()
	rec := s.rec
	s.mu.Unlock()
	if rec.Before != nil { // what a load has asked for since was not tried: it is not where to look
		rec.take(rec.Before)
	}
	a := s.set.o.Agents.Find(rec.Agent)
	if a == nil || !a.Installed() {
		if before != nil {
			return before
		}
		return nil
	}
	n := rec.needs(agents.Needs{Capabilities: s.set.Offered(rec.Capabilities)}, a)
	if a.Info().PerSession { // of its process only where to look: it has no session, so that others may share it
		n = agents.Needs{Capabilities: n.Capabilities, Env: n.Env}
	}
	ctx, cancel := agents.Within(s.set.o.Life, startBound)
	defer cancel()
	for range 2 {
		p, err := a.Process(ctx, n)
		if err != nil {
			if before != nil && s.set.o.Life.Err() == nil {
				return before
			}
			return err
		}
		if !p.Capabilities().Delete {
			p.Release()
			return nil
		}
		err = s.deleteAt(ctx, p, rec.AgentSessionID)
		hangs, died := err != nil && ctx.Err() != nil && s.set.o.Life.Err() == nil, endedUnder(p, err)
		if hangs {
			p.Retire() // it may hang, and is no good to others then
		}
		p.Release()
		switch {
		case hangs:
			return s.undeleted(startBound)
		case !died:
			return err
		}
		before = viewer.ErrorOf(err)
	}
	return before
}

// undeleted is the error of a deletion for which a process of the agent took longer than bound.
func (s *Session) undeleted(bound time.Duration) *acp.Error {
	agent := s.About().Agent
	return acp.Errorf(acp.CodeInternal, "agent %s has not deleted what it keeps of session %s: it did not answer within %v. The session is closed: delete it again", agent, s.id, bound).
		WithData(problem.New(problem.Timeout, "agent %s did not answer", agent))
}

// endedUnder reports whether an agent has not deleted what it was to because its process has come to its end, as it may for
// another session's sake: what it keeps would come back by its native id, and the next process is asked.
func endedUnder(p *agents.Process, err error) bool { return err != nil && !keptBack(err) && !p.Alive() }
