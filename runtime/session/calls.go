package session

import (
	"cmp"
	"math"
	"slices"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/acp/version"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// calls are the tool calls of a session that have begun and not ended, and its compactions. Their agent
// ends them; the session ends those that an agent leaves behind when its process is
// gone. The session's mu guards them.
type calls struct {
	open        []openCall // in the order in which they began
	compactions []openCall // likewise
	second      []second   // what goes on of what clients of version 2 alone are told, likewise
	exited      []second   // the terminals of which that was said, maxSecond at most; the oldest is forgotten
	inMiddle    bool       // what was said before is not known
	behind      uint64     // the log's entry by which an agent of version 2 says what goes on in the background; 0 when nothing does
}

// openCall is a tool call that goes on, or a compaction.
type openCall struct {
	id    string
	from  uint64 // the log's entries from there on show it
	quiet bool   // a turn that was cancelled has ended with it, and the agent says no more of it
}

// second is a call of a child of an agent of version 2, or a terminal of the agent's.
type second struct {
	child, call, terminal string // child is "" for the session itself

	from uint64 // the log's entries from there on show it
}

// is reports whether both are the same.
func (s second) is(other second) bool {
	s.from = other.from
	return s == other
}

// maxSecond bounds how much of that is known. The oldest is forgotten.
const maxSecond = 256

// noteSecond takes what clients of version 2 are told, which is an entry of the log from a number on. own says that it is
// of the session, whose calls both versions have.
func (c *calls) noteSecond(m *acp.Message, own bool, from uint64) {
	one, begins, over := second{from: from}, false, false
	if !own {
		one.child = m.Session()
	}
	switch string(m.UpdateKind()) {
	case "tool_call_update":
		if own {
			return
		}
		one.call = rawjson.MemberString(m.Update(), "toolCallId")
		status := rawjson.MemberString(m.Update(), "status")
		begins = status == "pending" || status == "in_progress" // not what is said of it behind its end
		over = status == "completed" || status == "failed" || status == "cancelled"
	case "terminal_update":
		one.terminal = rawjson.MemberString(m.Update(), "terminalId")
		exit, _ := rawjson.Member(m.Update(), "exitStatus")
		over = len(exit) > 0 && exit[0] == '{'
		begins = rawjson.MemberString(m.Update(), "command") != "" || !c.inMiddle && !slices.ContainsFunc(c.exited, one.is) // likewise
	case "state_update":
		if own {
			c.behind = 0
			if list, _ := rawjson.Member(m.Update(), "background"); len(rawjson.Elements(list)) > 0 {
				c.behind = from
			}
		}
		return
	default:
		return
	}
	if over && one.terminal != "" && !slices.ContainsFunc(c.exited, one.is) {
		c.exited = append(c.exited[max(0, len(c.exited)+1-maxSecond):], one)
	}
	i := slices.IndexFunc(c.second, one.is)
	switch {
	case over && i >= 0:
		c.second = slices.Delete(c.second, i, i+1)
	case begins && !over && i < 0:
		if len(c.second) >= maxSecond {
			c.second = slices.Delete(c.second, 0, 1)
		}
		c.second = append(c.second, one)
	}
}

// tells reports whether clients of version 2 were told that a child's call goes on.
func (c *calls) tells(child, id string) bool {
	return slices.ContainsFunc(c.second, second{child: child, call: id}.is)
}

// note takes what an update says of a call or a compaction, which is an entry of the log from a number on.
func (c *calls) note(update []byte, from uint64) {
	list, member := &c.open, "toolCallId"
	kind, status := rawjson.MemberString(update, "sessionUpdate"), rawjson.MemberString(update, "status")
	over := status == "completed" || status == "failed"
	switch kind {
	case "tool_call", "tool_call_update":
	case compactionUpdate:
		list, member, over = &c.compactions, "compactionId", over || status == "cancelled"
	default:
		return
	}
	id := rawjson.MemberString(update, member)
	if id == "" {
		return
	}
	i := slices.IndexFunc(*list, func(o openCall) bool { return o.id == id })
	switch {
	case over && i >= 0:
		*list = slices.Delete(*list, i, i+1)
	case !over && i >= 0:
		(*list)[i].quiet = false
	case !over && (status != "" || kind == "tool_call"):
		*list = append(*list, openCall{id: id, from: from})
	}
}

// leave notes that a turn has ended that was cancelled: the agent may say no more of what it has begun, since the protocol leaves that to clients.
func (c *calls) leave() {
	for i := range c.open {
		c.open[i].quiet = true
	}
}

// countCallsLocked tells the machine of the calls that are open.
func (s *Session) countCallsLocked() {
	s.m.calls, s.m.quiet = len(s.calls.open), 0
	for _, c := range s.calls.open {
		if c.quiet {
			s.m.quiet++
		}
	}
	s.m.rests()
}

// from returns the oldest entry of the log that what is open needs.
func (c *calls) from() uint64 {
	from := uint64(math.MaxUint64)
	for _, list := range [][]openCall{c.open, c.compactions} {
		for _, one := range list {
			from = min(from, one.from)
		}
	}
	for _, one := range c.second {
		from = min(from, one.from)
	}
	if c.behind > 0 {
		from = min(from, c.behind)
	}
	return from
}

// take returns the ids of the open calls and forgets them.
func (c *calls) take() []string {
	ids := make([]string, len(c.open))
	for i, o := range c.open {
		ids[i] = o.id
	}
	c.open = nil
	return ids
}

// failCallsLocked ends the calls that are open, the compactions, and what goes on in the background: nobody works on them
// any more. It is followed by noteAloneLocked.
func (s *Session) failCallsLocked(reason string, x *after) {
	if s.calls.behind > 0 { // then they are told that nothing is done any more
		s.calls.behind, s.notedAlone = 0, true
	}
	open, compactions, goesOn := s.calls.take(), s.calls.compactions, s.calls.second
	s.calls.compactions = nil
	s.countCallsLocked()
	if len(open)+len(compactions)+len(goesOn) == 0 {
		return
	}
	x.flush = true
	children := s.rec.Subagents
	for _, id := range open {
		n := s.failCall(id, reason, journal.Everyone, children, s.calls.tells)
		s.noteSubagentLocked(&n)
	}
	for _, c := range compactions {
		s.failCompaction(c.id, reason, journal.Everyone)
	}
	s.endTerminals(goesOn, journal.Everyone)
	s.calls.second = nil
}

// failCompaction writes that a compaction has ended because nobody works on it.
func (s *Session) failCompaction(id, reason string, to journal.Recipient) {
	n := s.compactionFailed(id, reason)
	s.Log().Append(journal.Update, to, n.Frame())
}

func (s *Session) compactionFailed(id, reason string) acp.Message {
	update := rawjson.Object{}.String("sessionUpdate", compactionUpdate).String("compactionId", id).String("status", "failed").String("error", reason).End()
	return acp.NewNotification(acp.MethodSessionUpdate, rawjson.Object{}.String("sessionId", s.id).Raw("update", update).End())
}

// endTerminals writes that an agent's terminals have ended. How is not known.
func (s *Session) endTerminals(list []second, to journal.Recipient) {
	for _, one := range list {
		if one.terminal == "" {
			continue
		}
		update := rawjson.Object{}.String("sessionUpdate", "terminal_update").String("terminalId", one.terminal).Raw("exitStatus", []byte("{}")).End()
		n := acp.NewNotification(acp.MethodSessionUpdate, rawjson.Object{}.String("sessionId", cmp.Or(one.child, s.id)).Raw("update", update).End())
		s.Log().Append(journal.Second, to, n.Frame())
	}
}

// failCall writes that a call has ended because nobody works on it. A child of an agent of
// version 2 is a call in version 1 alone: clients of version 2 know the child, and its calls
// by their own ids.
func (s *Session) failCall(id, reason string, to journal.Recipient, children []version.Subagent, told func(child, call string) bool) acp.Message {
	ended := rawjson.Object{}.String("ended", reason).End()
	update := rawjson.Object{}.String("sessionUpdate", "tool_call_update").String("toolCallId", id).String("status", "failed").
		Raw("_meta", rawjson.Object{}.Raw(acp.MetaKey, ended).End()).End()
	n := acp.NewNotification(acp.MethodSessionUpdate, rawjson.Object{}.String("sessionId", s.id).Raw("update", update).End())
	kind := journal.Update
	if ends, of := version.EndsChild(id, children, told); of {
		kind = journal.First
		for _, frame := range ends {
			s.Log().Append(journal.Second, to, frame)
		}
	}
	s.Log().Append(kind, to, n.Frame())
	return n
}

// EndLostCalls ends the calls, and the turn, that an earlier gateway left open when it was
// killed: once, before anybody reads the session's history or gives it work. All that is open shows in what the log has
// from where the record says, or since the record was written; in all of it where the record knows more than the log has.
func (s *Session) EndLostCalls() {
	s.lostCalls.Do(func() {
		if s.Process() != nil {
			return
		}
		s.catchUp(everything)
		s.mu.Lock()
		unsure, from := s.rec.Unsure, s.rec.OpenFrom
		s.mu.Unlock()
		if unsure || s.behind.Load() { // about what may be anywhere; or the log could not be read
			from = 0
		}
		lost := calls{inMiddle: from > 1}
		var none version.Frames
		turns := version.NewView(version.About{Session: s.id})
		log := s.Log()
		cur := log.Whole(max(from, log.Oldest(), 1) - 1)
		for {
			batch, err := cur.Next(nil, 256<<10)
			if err != nil {
				s.logger().Error("look for open calls in the log", "err", err)
				s.unread.Store(true)
				return
			}
			if len(batch) == 0 {
				break
			}
			for _, e := range batch {
				switch e.Kind {
				case journal.Second:
					if m, err := acp.Parse(e.Frame); err == nil {
						lost.noteSecond(&m, m.Session() == s.id, e.Seq)
					}
					none.Reset()
					turns.Step(version.Entry{Seq: e.Seq, Kind: version.Kind(e.Kind), To: int64(e.To), Frame: e.Frame}, true, &none)
					continue
				case journal.Client, journal.Response, journal.TurnEnd, journal.Notice:
					none.Reset()
					turns.Step(version.Entry{Seq: e.Seq, Kind: version.Kind(e.Kind), To: int64(e.To), Frame: e.Frame}, true, &none)
					continue
				case journal.Update, journal.First:
				default:
					continue
				}
				m, err := acp.Parse(e.Frame)
				if err != nil {
					continue
				}
				lost.note(m.Update(), e.Seq)
				if isCall(&m) {
					s.noteSubagent(&m) // it may begin in an event before the record's newest, and be one behind it
				}
			}
		}
		var x after
		s.mu.Lock()
		s.rec.Unsure, s.unsaved = false, s.unsaved || unsure
		s.calls.open, s.calls.second, s.calls.exited, s.calls.inMiddle = append(lost.open, s.calls.open...), lost.second, lost.exited, lost.inMiddle
		s.calls.compactions = append(lost.compactions, s.calls.compactions...)
		s.failCallsLocked("the gateway was ended meanwhile", &x)
		s.restSubagentsLocked()
		if turns.Running() && s.m.turn == nil {
			s.endLostTurnLocked(&x)
		}
		if turns.Alone() && !s.m.alone {
			s.notedAlone = true
			x.flush = s.noteAloneLocked() || x.flush
		}
		s.traced = true
		s.unlock(&x)
	})
}

// endLostTurnLocked notes the end of a turn whose gateway was killed.
func (s *Session) endLostTurnLocked(x *after) {
	why, err := schema.Encode(acp.Errorf(acp.CodeInternal, "the gateway was ended while the turn ran"))
	if err != nil {
		return
	}
	n := acp.NewNotification("_sandboxagent/session/turn_ended", rawjson.Object{}.String("sessionId", s.id).Raw("error", why).Raw("began", []byte("true")).End())
	s.Log().Append(journal.TurnEnd, journal.Everyone, n.Frame())
	x.flush = true
}

// compactionUpdate is the kind of an update that tells of a compaction's begin and end.
const compactionUpdate = "compaction_update"

func isCall(m *acp.Message) bool {
	kind := string(m.UpdateKind())
	return kind == "tool_call" || kind == "tool_call_update"
}
