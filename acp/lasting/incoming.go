package lasting

import (
	"maps"
	"slices"
	"strconv"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

const (
	methodEnded     = "_sandboxagent/session/ended"
	methodTurnEnded = "_sandboxagent/session/turn_ended"
	methodPending   = "_sandboxagent/session/pending"
	methodDetach    = "_sandboxagent/session/detach"
	methodDamaged   = "_sandboxagent/session/events_damaged"
	// maxAnswered bounds the answers that are kept of a session, in case they
	// have not arrived; the oldest leave.
	maxAnswered = 128
)

// incoming takes a message of the gateway and returns what the client is given
// for it, until it is called again. The caller holds order.
func (c *Conn) incoming(m acp.Message) []acp.Message {
	c.mu.Lock()
	out := c.incomingLocked(m)
	r := c.refused
	c.refused = nil
	c.mu.Unlock()
	return c.behindRefused(r, m.Err(), out)
}

// behindRefused puts before a refusal what ends with it: when r, which was to open a session, leaves that closed the prompts
// whose end would be told wait for nothing more. It is nil when nothing was refused so.
func (c *Conn) behindRefused(r *request, why *acp.Error, out []acp.Message) []acp.Message {
	if r == nil {
		return out
	}
	if r.attached && c.o.Gone != nil {
		c.o.Gone(r.session, why, true)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closesLocked(r) { // the client asks to open it once more
		return out
	}
	return append(c.forgetLocked(r.session, why, func(q *request) bool { return q.told }), out...)
}

func (c *Conn) incomingLocked(m acp.Message) []acp.Message {
	if m.IsResponse() {
		return c.respondedLocked(m)
	}
	if m.Method() == acp.MethodCancelRequest {
		return c.withdrawnLocked(m)
	}
	if m.Method() == methodEnded && rawjson.MemberString(m.Params(), "data", "reason") == "deleted" {
		return c.deletedLocked(m)
	}
	s := c.sessionLocked(&m)
	c.noteChildLocked(&m)
	seq, numbered := uintOf(m.Meta(), "seq")
	if s == nil || !numbered {
		return c.shownAsIsLocked(m)
	}
	s.unsure = 0
	if m.IsRequest() {
		return c.askedLocked(s, seq, m)
	}
	if !c.isNewLocked(s, seq) {
		return nil
	}
	if m.Method() == methodTurnEnded {
		return c.turnEndedLocked(m.Params(), m)
	}
	return c.shownAsIsLocked(m)
}

// closesLocked reports whether the client is attached to a session no more when a request to open it is refused.
func (c *Conn) closesLocked(r *request) bool {
	s := c.sessions[r.session]
	return r.opens() && (s == nil || !s.here && s.opened == r.n) // else another request opens it
}

// shownAsIsLocked returns a message as the client is given it.
func (c *Conn) shownAsIsLocked(m acp.Message) []acp.Message {
	c.showsLocked(&m)
	c.one[0] = m
	return c.one[:]
}

// sessionLocked returns the session that a message belongs to, which may be of a child of it. Gateways of
// earlier versions do not say whose: it was announced.
func (c *Conn) sessionLocked(m *acp.Message) *session {
	id := m.Session()
	if s := c.sessions[id]; s != nil || id == "" {
		return s
	}
	if root := m.Root(); root != "" {
		return c.sessions[root]
	}
	return c.sessions[c.children[id]]
}

// maxChildren bounds the children that are known. What comes of others may come twice when
// the connection breaks.
const maxChildren = 4096

// noteChildLocked notes the session that a child is of: it has the child's events.
func (c *Conn) noteChildLocked(m *acp.Message) {
	if !c.parts || string(m.UpdateKind()) != "subagent_update" || len(c.children) >= maxChildren {
		return
	}
	of := m.Session()
	if root, nested := c.children[of]; nested {
		of = root
	}
	if child := rawjson.MemberString(m.Update(), "sessionId"); child != "" && c.sessions[of] != nil {
		c.children[child] = of
	}
}

// isNewLocked reports whether the client has not been given the frame with the event's
// number, and notes that it is. An event is one frame in version 1. In version 2, and for who knows subagents, it
// may be several, and in version 2 the state may be told behind those of the last.
func (c *Conn) isNewLocked(s *session, seq uint64) bool {
	if seq < s.after || seq == s.after && !c.parts {
		c.replayBeginsLocked(s, seq)
	}
	switch {
	case seq > s.after:
		s.after, s.part, s.given, s.skip = seq, true, 1, 0
		return true
	case seq < s.after || !c.parts:
		return false
	case s.skip > 0:
		s.skip--
		return false
	}
	s.given++
	return true
}

// replayBeginsLocked has a session go on behind an event that is not newer than what the client was given, if a replay begins with
// it: what comes again is wanted again.
func (c *Conn) replayBeginsLocked(s *session, seq uint64) {
	var first *request
	for _, r := range c.requests {
		if c.sessions[r.session] == s && r.sent && r.replays() && r.replay != replayBegan && r.from < seq && (first == nil || r.n < first.n) {
			first = r
		}
	}
	if first == nil {
		return
	}
	first.replay = replayBegan
	s.after = seq - 1
	s.wholeLocked()
}

// wholeLocked notes that the client has all frames of the newest event.
func (s *session) wholeLocked() { s.part, s.given, s.skip = false, 0, 0 }

// fromLocked returns the event behind which the session goes on, on a new connection. If events
// have parts the newest comes again, as not all of it may have arrived. told says that
// the client has asked for the state, which follows; else it is not given that.
func (c *Conn) fromLocked(s *session, told bool) uint64 {
	switch {
	case !c.parts:
		return s.after
	case s.part:
		s.skip = s.given
		return s.after - 1
	case c.two && !told:
		s.skip = 1
	}
	return s.after
}

// respondedLocked takes a response: to a request of the client, or of the Conn.
func (c *Conn) respondedLocked(m acp.Message) []acp.Message {
	if answered, ok := c.own[m.ID()]; ok {
		delete(c.own, m.ID())
		answered <- m
		return nil
	}
	r := c.requests[m.ID()]
	if r == nil {
		return nil // answered on an earlier connection
	}
	if c.onceMoreLocked(r, m.Err()) {
		return nil
	}
	c.answeredLocked(r)
	delete(c.requests, r.id)
	if m.Err() != nil {
		switch {
		case c.closesLocked(r):
			c.refused = r
		case r.method == acp.MethodSessionPrompt:
			c.refusedPromptLocked(r)
		case r.opens():
			if s := c.sessions[r.session]; s.opened == r.n && s.from > s.after { // it stays attached where the one before has opened it
				s.after = s.from
				s.wholeLocked()
			}
			return append(c.foundLocked(r.session), m)
		}
		return []acp.Message{m}
	}
	if s := c.sessions[r.session]; s != nil && r.opens() {
		s.here, s.unsure = true, 0
	}
	switch r.method {
	case acp.MethodInitialize:
		c.hello = r.frame // what was said last counts
	case acp.MethodSessionNew, acp.MethodSessionFork:
		if id := rawjson.MemberString(m.Result(), "sessionId"); id != "" {
			after, _ := uintOf(resultMeta(m), "seq")
			if r.frame.Method() == acp.MethodSessionNew && !c.two {
				after = 0 // what the agent has said by then follows
			}
			c.attachLocked(id, r.frame.Params(), after).here = true
		}
	case acp.MethodSessionResume:
		seq, _ := uintOf(resultMeta(m), "seq")
		switch s := c.sessions[r.session]; {
		case s == nil:
		case s.opened > r.n: // what the next one asks for is still to come
			s.from = seq
		default:
			if s.after = max(s.after, seq); c.parts {
				s.wholeLocked()
			}
		}
		return append([]acp.Message{m}, c.foundLocked(r.session)...)
	case acp.MethodSessionPrompt:
		if s := c.sessions[r.session]; s != nil {
			s.unsure = 0
		}
		if c.beginsLocked(r, m.Result()); c.two && r.deleted != nil { // the end of the turn is not told any more
			return []acp.Message{acp.NewError(r.id, r.deleted)}
		}
	case methodPending:
		m = acp.NewResult(m.ID(), c.pendingLocked(r.session, m.Result()))
	case acp.MethodSessionClose, acp.MethodSessionDelete, methodDetach, "_sandboxagent/session/terminate":
		if s := c.sessions[r.session]; s == nil || s.opened < r.n && !c.promptsBehindLocked(r) {
			c.leaveLocked(r.session)
			return append(c.foundLocked(r.session), m)
		} else { // it is opened again behind that, and what its agent asks is asked anew
			s.here = c.promptsBehindLocked(r)
			if s.unsure = 0; s.here {
				s.unsure = r.n
			}
			return append(s.withdrawals(), m)
		}
	}
	return []acp.Message{m}
}

// foundLocked answers the prompts of a session whose ends were found, and do not come on its stream after all.
func (c *Conn) foundLocked(session string) (out []acp.Message) {
	for id, q := range c.requests {
		if q.session == session && q.end != nil && !c.two && !c.comesLocked(session, q.ended) {
			delete(c.requests, id)
			c.answeredLocked(q)
			out = append(out, outcome(id, q.end))
		}
	}
	return out
}

// promptsBehindLocked reports whether a prompt waits that was written behind a request which detaches from its session: it attaches to
// that anew. One behind a request that closes its session is refused.
func (c *Conn) promptsBehindLocked(r *request) bool {
	for _, q := range c.requests {
		if q.session == r.session && q.n > r.n && q.method == acp.MethodSessionPrompt && r.method == methodDetach {
			return true
		}
	}
	return false
}

// refusedPromptLocked takes a prompt that was refused. If the client has detached from its session before, and nothing has shown since that it is
// attached anew, it is not, unless another prompt does that, or a request that opens the session.
func (c *Conn) refusedPromptLocked(r *request) {
	s := c.sessions[r.session]
	if s == nil || s.unsure == 0 {
		return
	}
	opens := false
	for _, q := range c.requests {
		if q.session == r.session && q.method == acp.MethodSessionPrompt && q.n > s.unsure {
			return
		}
		opens = opens || q.session == r.session && q.opens()
	}
	if s.here, s.unsure = false, 0; !opens {
		c.leaveLocked(r.session)
	}
}

// withdrawals lets go of what the agent has asked, and returns what takes that back from the client as far as it has not answered.
func (s *session) withdrawals() (out []acp.Message) {
	for _, seq := range slices.Sorted(maps.Keys(s.asks)) {
		if a := s.asks[seq]; a.answer == nil {
			out = append(out, withdrawal(a))
		}
	}
	clear(s.asks)
	return out
}

// leaveLocked notes that the client is not attached to a session, and its children, any more.
func (c *Conn) leaveLocked(id string) {
	delete(c.sessions, id)
	maps.DeleteFunc(c.children, func(_, of string) bool { return of == id })
}

func resultMeta(m acp.Message) []byte {
	meta, _ := rawjson.Member(m.Result(), "_meta")
	return meta
}

// attachLocked notes that the client is attached to a session.
func (c *Conn) attachLocked(id string, params []byte, after uint64) *session {
	s := c.sessions[id]
	if s == nil {
		s = &session{asks: map[uint64]*ask{}}
		c.sessions[id] = s
	}
	again := rawjson.Object{}.String("sessionId", id)
	for _, name := range []string{"cwd", "mcpServers", "additionalDirectories", "_meta"} {
		if v, ok := rawjson.Member(params, name); ok {
			again = again.Raw(name, v)
		}
	}
	s.params, s.after = again.End(), max(s.after, after)
	return s
}

// askedLocked takes a request of the agent, which the client may have been shown
// before.
func (c *Conn) askedLocked(s *session, seq uint64, m acp.Message) []acp.Message {
	if seq > s.after {
		s.after, s.part, s.given, s.skip = seq, true, 0, 0
	}
	if a := s.asks[seq]; a != nil {
		a.id = m.ID()
		if a.answer != nil {
			c.queueLocked(outgoing{m: *a.answer, ask: a})
		}
		return nil
	}
	a := &ask{method: m.Method(), shown: m.ID(), id: m.ID()}
	for c.shownLocked(a.shown) != nil { // the gateway was started anew, and counts from one
		c.lastOwn++
		a.shown = acp.IntID(int64(1<<40 + c.lastOwn))
	}
	s.asks[seq] = a
	s.pruneAsks()
	if a.shown == m.ID() {
		return []acp.Message{m}
	}
	return []acp.Message{m.Rewritten(a.shown, "")}
}

// pruneAsks lets answers go that are old.
func (s *session) pruneAsks() {
	if len(s.asks) <= maxAnswered {
		return
	}
	for _, seq := range slices.Sorted(maps.Keys(s.asks)) {
		if len(s.asks) <= maxAnswered {
			return
		}
		if s.asks[seq].answer != nil {
			delete(s.asks, seq)
		}
	}
}

// pendingLocked returns a list of a session's open requests with the ids that the client knows them by. One
// that it was not given has none if another request has that id.
func (c *Conn) pendingLocked(session string, result []byte) []byte {
	s := c.sessions[session]
	list, _ := rawjson.Member(result, "pending")
	out := []byte("[")
	for i, one := range rawjson.Elements(list) {
		if i > 0 {
			out = append(out, ',')
		}
		id, _ := rawjson.Member(one, "requestId")
		raw, _ := rawjson.Member(one, "seq")
		seq, _ := strconv.ParseUint(string(raw), 10, 64)
		switch {
		case s != nil && s.asks[seq] != nil:
			one = rawjson.SetMember(one, []byte(s.asks[seq].shown), "requestId")
		case c.shownLocked(acp.ID(id)) != nil:
			one = rawjson.DeleteMember(one, "requestId")
		}
		out = append(out, one...)
	}
	return rawjson.SetMember(result, append(out, ']'), "pending")
}

// shownLocked returns the unanswered request that the client knows by id.
func (c *Conn) shownLocked(id acp.ID) *ask {
	for _, s := range c.sessions {
		for _, a := range s.asks {
			if a.shown == id && a.answer == nil {
				return a
			}
		}
	}
	return nil
}

// withdrawnLocked takes a $/cancel_request: it names the request as this
// connection knows it.
func (c *Conn) withdrawnLocked(m acp.Message) []acp.Message {
	raw, _ := rawjson.Member(m.Params(), "requestId")
	for _, s := range c.sessions {
		for seq, a := range s.asks {
			if a.id != acp.ID(raw) || a.id == "" {
				continue
			}
			delete(s.asks, seq)
			if a.answer != nil {
				return nil
			}
			return []acp.Message{withdrawal(a)}
		}
	}
	return []acp.Message{m}
}

func withdrawal(a *ask) acp.Message {
	return acp.NewNotification(acp.MethodCancelRequest, rawjson.Object{}.Raw("requestId", []byte(a.shown)).End())
}

// turnEndedLocked makes the response of a prompt from the news of its end. It is
// nil for other prompts, unless the client wants to hear of those.
func (c *Conn) turnEndedLocked(params []byte, m acp.Message) []acp.Message {
	name := rawjson.MemberString(params, "promptId")
	if s := c.sessions[m.Session()]; s != nil && s.turn.name == name {
		s.turn = turn{}
	}
	for id, r := range c.requests {
		switch {
		case r.name == "" || r.name != name:
			continue
		case c.two: // a prompt is answered when it begins, which can come on another way than its events
			r.over = true
			continue
		}
		delete(c.requests, id)
		c.answeredLocked(r)
		return []acp.Message{outcome(id, params)}
	}
	if c.turns {
		return []acp.Message{m}
	}
	return nil
}

// outcome is the response that a turn_ended stands for.
func outcome(id acp.ID, params []byte) acp.Message {
	if result, ok := rawjson.Member(params, "result"); ok {
		return acp.NewResult(id, result)
	}
	if e, ok := rawjson.Member(params, "error"); ok {
		return acp.NewErrorRaw(id, e)
	}
	return acp.NewError(id, acp.Errorf(acp.CodeInternal, "the turn ended without a result"))
}
