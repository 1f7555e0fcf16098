package session

import (
	"context"
	"slices"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/runtime/agents"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// merge brings into the log what an agent's own record has and the log has not: turns
// that were made in a terminal. The agent replays its record while it opens the session;
// nothing of that is shown before all of it is there. The session's mu guards it.
type merge struct {
	log    account       // what the log had before
	whole  bool          // it has the session's beginning
	record account       // its turns are kept if they are to be brought in
	now    []acp.Message // of no turn: how things are now; at most maxNow
}

// maxNow bounds the updates that tell how things are while a session is opened. Of more
// the oldest is dropped; all but notices are the newest of their kind anyway.
const maxNow = 64

// newMerge reads the log. What the record has more is only noted, and not brought in, of an
// agent that does not say that it shows its record as it is.
func (s *Session) newMerge(bringsIn bool) *merge {
	m := new(merge)
	var err error
	if m.log, m.whole, err = s.account(); err != nil {
		s.logger().Warn("compare the log with the agent's record", "err", err)
		return nil // then nothing is brought in
	}
	m.record.keeps = bringsIn
	return m
}

// take takes an update of the replay.
func (g *merge) take(m *acp.Message) {
	kind := string(m.UpdateKind())
	began := len(g.record.turns) > 0
	switch kind {
	case "user_message_chunk", "agent_message_chunk", "tool_call", "tool_call_update", "plan":
		g.record.update(m)
		return
	case "agent_thought_chunk":
		if _, part := rawjson.Member(m.Update(), "messageId"); began || part {
			g.record.update(m)
			return
		}
	case "available_commands_update", "current_mode_update", "config_option_update", "usage_update", "session_info_update":
		g.now = slices.DeleteFunc(g.now, func(was acp.Message) bool { return string(was.UpdateKind()) == kind })
	default:
		if began {
			g.record.update(m)
			return
		}
	}
	if len(g.now) == maxNow {
		g.now = slices.Delete(g.now, 0, 1)
	}
	g.now = append(g.now, m.Clone())
}

// bringIn appends what is new of the agent's record, in its order, each update marked.
// It runs on the reader.
func (s *Session) bringIn(l *link) {
	s.mu.Lock()
	g := l.merge
	l.merge = nil
	if g == nil {
		s.mu.Unlock()
		return
	}
	whole := g.whole && !s.rec.Incomplete
	s.mu.Unlock()
	g.record.part(g.log.turns)
	c := compare(g.log.turns, g.record.turns, whole)
	if !g.record.keeps {
		if c.log >= 0 && told(g.record.turns[c.from:]) > 0 {
			s.mu.Lock()
			s.rec.Incomplete, s.unsaved = true, true
			s.mu.Unlock()
		}
		return
	}
	news, lost := g.news(c)
	s.mu.Lock()
	if c.alien || lost {
		s.rec.Incomplete, s.unsaved = true, true
	}
	var open calls
	for i := range news {
		open.note(news[i].Update(), 0)
		if string(news[i].UpdateKind()) == "user_message_chunk" {
			s.noteGistLocked(news[i].Update())
		}
		if isCall(&news[i]) {
			s.noteSubagentLocked(&news[i])
		}
		s.appendMarked(&news[i])
	}
	for _, id := range open.take() { // the agent that made them is not the one that serves
		update := rawjson.Object{}.String("sessionUpdate", "tool_call_update").String("toolCallId", id).String("status", "failed").End()
		n := acp.NewNotification(acp.MethodSessionUpdate, rawjson.Object{}.String("sessionId", s.id).Raw("update", update).End())
		s.noteSubagentLocked(&n)
		s.appendMarked(&n)
	}
	for _, one := range open.compactions { // likewise
		n := s.compactionFailed(one.id, "the agent's record has no end of it")
		s.appendMarked(&n)
	}
	title := s.rec.Title
	s.mu.Unlock()
	for i := range g.now {
		if m := &g.now[i]; string(m.UpdateKind()) != "session_info_update" || rawjson.MemberString(m.Update(), "title") != title {
			l.Receive(m)
		}
	}
	s.Flush()
}

// news returns the updates that are new. lost says that not all of them are there.
func (g *merge) news(c compared) (news []acp.Message, lost bool) {
	turns := g.record.turns
	if c.log >= 0 && c.from > 0 && c.from <= len(turns) {
		was, is := &g.log.turns[c.log], &turns[c.from-1]
		switch {
		case c.log != len(g.log.turns)-1: // later turns of the log do not go on with it
		case was.sent && !was.over && was.said == 0 && len(is.frames) > 0:
			news = append(news, is.frames[is.words:]...) // the gateway was gone when it was answered
		case !was.sent && len(is.frames) > 0:
			same := 0
			for same < len(was.forms) && same < len(is.forms) && was.forms[same] == is.forms[same] {
				same++
			}
			if same > 0 || was.said == 0 { // it was under way when it was brought in
				news = append(news, is.frames[is.words+same:]...)
			}
		}
	}
	for i := min(c.from, len(turns)); i < len(turns); i++ {
		lost = lost || turns[i].frames == nil
		news = append(news, turns[i].frames...)
	}
	return news, lost
}

// appendMarked adds an update that was not made here.
func (s *Session) appendMarked(m *acp.Message) {
	params := rawjson.SetMember(m.Params(), []byte("true"), "update", "_meta", acp.MetaKey, "imported")
	marked := acp.NewNotification(m.Method(), params)
	s.append(journal.Update, journal.Everyone, &marked)
}

// AddedElsewhere reports whether the agent's own record of a session was written since the
// log was: in a terminal, or by the agent itself a moment later. It starts nothing.
func (s *Session) AddedElsewhere() bool {
	s.mu.Lock()
	asleep, left := s.m.hosting == dormant && s.m.refusal() == nil, s.rec.LeftAt
	s.mu.Unlock()
	if !asleep {
		return s.overtaken()
	}
	last := s.Active()
	if left.After(last) {
		last = left
	}
	return s.recorded().Written.After(last)
}

// afterwards is how long behind the last message of a turn a process may still write to
// its agent's record, such as a title.
const afterwards = time.Second

// overtaken reports whether somebody else has written the agent's record while a process
// serves the session and does nothing: what was said there the process does not know. One
// that cannot be opened anew, or has left commands running, is not given up for it.
func (s *Session) overtaken() bool {
	s.mu.Lock()
	l := s.m.link
	idle := s.m.refusal() == nil && s.m.hosting == serving && !s.m.busy() && l.reopens() == ""
	s.mu.Unlock()
	if !idle {
		return false
	}
	r, last := s.recorded(), s.Active()
	return !r.Shared && (r.Prompted.After(last) || r.Written.After(last.Add(afterwards))) && !l.p.LeftRunning()
}

// recorded looks at the agent's own record of the session.
func (s *Session) recorded() adapters.Recorded {
	s.mu.Lock()
	rec := s.rec
	s.mu.Unlock()
	if rec.Imported || rec.lacksCredentials() {
		return adapters.Recorded{}
	}
	a := s.set.o.Agents.Find(rec.Agent)
	if a == nil || !a.Info().Record || !a.Installed() {
		return adapters.Recorded{}
	}
	return a.Recorded(rec.needs(agents.Needs{}, a), rec.AgentSessionID)
}

// Renewed calls ready when a process has opened the session anew: one that serves it and does nothing is given back
// first. fail is called in its place when there is none.
func (s *Session) Renewed(ctx context.Context, n agents.Needs, ready func(), fail func(err error)) {
	s.handle(event{kind: changed, req: &waiter{needs: n, ctx: ctx, ready: ready, fail: fail}})
}
