package lasting

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/version"
)

// Interrupt returns what tells the client that the turn in a session has failed, if one goes on:
// in version 2, where the answer to a prompt says only that the turn has begun, the state that
// ends it and, for a client whose own it is and that asked for those, the gateway's own notification. It
// returns them once. Prompts that were not answered are not ended by it.
func (c *Conn) Interrupt(id string, why *acp.Error) []acp.Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.interruptLocked(id, why)
}

func (c *Conn) interruptLocked(id string, why *acp.Error) []acp.Message {
	s := c.sessions[id]
	if s == nil || s.turn.name == "" && !s.works {
		return nil
	}
	name, end := s.turn.name, s.turn.end
	s.turn, s.works = turn{}, false
	if end == nil {
		end = failed(id, name, why)
	}
	return c.endsLocked(id, name, end)
}

// Failed returns what tells the client that the turn of a prompt has failed, which was answered and whose session the
// client is not attached to any more. It is for clients of version 2: in version 1 the turn has ended with the answer.
func (c *Conn) Failed(id, prompt string, why *acp.Error) []acp.Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.endsLocked(id, prompt, failed(id, prompt, why))
}

// failed is a turn_ended of a turn that has failed.
func failed(id, prompt string, why *acp.Error) []byte {
	told := acp.NewError("0", why)
	return rawjson.Object{}.String("sessionId", id).String("promptId", prompt).Raw("error", told.ErrorRaw()).End()
}

// endsLocked returns what tells the client of version 2 how a turn ended, as turn_ended says it. name is that of its
// prompt, "" for a turn that is not the client's.
func (c *Conn) endsLocked(id, name string, end []byte) []acp.Message {
	state := rawjson.Object{}.String("sessionUpdate", "state_update").String("state", "idle")
	if failure, failed := rawjson.Member(end, "error"); failed {
		state = state.String("stopReason", "error").Raw("error", rawjson.DeleteMember(failure, "data"))
	} else {
		state = state.String("stopReason", rawjson.MemberString(end, "result", "stopReason"))
	}
	out := []acp.Message{acp.NewNotification(acp.MethodSessionUpdate, rawjson.Object{}.String("sessionId", id).Raw("update", state.End()).End())}
	if c.turns && name != "" {
		out = append(out, acp.NewNotification(methodTurnEnded, end))
	}
	return out
}

// showsLocked notes the state of a session that the client is given.
func (c *Conn) showsLocked(m *acp.Message) {
	if !c.two || string(m.UpdateKind()) != "state_update" {
		return
	}
	s := c.sessions[m.Session()]
	if s == nil {
		return
	}
	if s.works = rawjson.MemberString(m.Update(), "state") != "idle"; s.works {
		s.since = s.after
	}
}

// beginsLocked notes that a prompt was answered: in version 2 its turn has begun.
func (c *Conn) beginsLocked(r *request, result []byte) {
	_, begun := rawjson.Member(result, "messageId")
	if s := c.sessions[r.session]; s != nil && c.two && begun && !r.over {
		s.turn = turn{name: r.name, after: r.after, n: r.n, cancel: r.cancel, alone: r.alone}
	}
}

// errAnew is how a turn ends that its gateway knows nothing more of.
var errAnew = acp.Errorf(acp.CodeInternal, "the turn was interrupted: the gateway was started anew")

// errCancelled is how a prompt of version 2 ends that was cancelled and has not begun.
var errCancelled = acp.Errorf(acp.CodeCancelled, "the prompt was cancelled before it began")

// unbegun is how one of version 1 does.
var unbegun = []byte(`{"stopReason":"cancelled","_meta":{"` + acp.MetaKey + `":{"began":false}}}`)

// errNoBeginning is how a prompt of version 2 ends whose turn has ended, and whose beginning cannot be found.
var errNoBeginning = acp.Errorf(acp.CodeInternal, "the turn has ended, and the event that began it is lost")

// promptFound is what a gateway knows of a prompt.
type promptFound struct {
	begun  uint64 // the event that it is, 0 for none
	end    []byte // what tells how its turn ended, nil while that goes on
	ended  uint64 // the event that end is
	said   uint64 // the newest event before that of which clients are told, 0 for none
	active bool   // the session works, or waits for an answer
	over   bool   // that is another turn: the prompt's own was lost with its gateway

	expired *acp.Error // says that the prompt may be among the events that are no longer kept; nil when they all are
}

// goesOn reports whether the turn of the prompt does, or the prompt waits for one that does.
func (f promptFound) goesOn() bool { return f.end == nil && f.active && !f.over }

// findPrompt asks what became of a prompt, or of the turn behind an event when it is not known whose. It fails when the prompt may be
// among the events that are no longer kept, unless it is known to have begun.
func (c *Conn) findPrompt(live *link, session string, t turn, begun bool) (f promptFound, failure *acp.Error, err error) {
	about := rawjson.Object{}.String("sessionId", session).End()
	// The state first: a turn that ends behind it is told of.
	info, failure, err := c.patientCall(live, "_sandboxagent/session/get", about)
	if err != nil || failure != nil {
		return f, failure, err
	}
	state := rawjson.MemberString(info, "state")
	f.active = state == "running" || state == "waiting"
	if f.active && t.name == "" {
		return f, nil, nil // its end will be told
	}
	for after, more := t.after, true; more; {
		page, failure, err := c.patientCall(live, "_sandboxagent/session/events", rawjson.SetMember(about, strconv.AppendUint(nil, after, 10), "after"))
		if oldest := oldestKept(failure); err == nil && oldest > after+1 {
			f.expired, after = failure, oldest-1
			continue
		}
		if err != nil || failure != nil {
			return f, failure, err
		}
		events, _ := rawjson.Member(page, "events")
		for _, e := range rawjson.Elements(events) {
			raw, _ := rawjson.Member(e, "seq")
			after, _ = strconv.ParseUint(string(raw), 10, 64)
			params, _ := rawjson.Member(e, "message", "params")
			switch method := rawjson.MemberString(e, "message", "method"); {
			case method == acp.MethodSessionPrompt && rawjson.MemberString(params, "_meta", acp.MetaKey, "promptId") == t.name:
				f.begun, f.over = after, false
			case method == acp.MethodSessionPrompt: // a session has one turn at a time
				f.over = f.begun > 0
			case method == acp.MethodSessionUpdate && rawjson.MemberString(e, "direction") != "gateway": // else it repeats a prompt
				f.said = after
			case method == methodTurnEnded && (t.name == "" && acp.TurnBegan(params) || t.name != "" && rawjson.MemberString(params, "promptId") == t.name):
				f.end, f.ended = params, after
				return f, nil, nil
			case method == methodTurnEnded: // a gateway names no prompt that knows no more whose turn it was
				_, named := rawjson.Member(params, "promptId")
				f.over = f.over || f.begun > 0 && !named && acp.TurnBegan(params)
			}
		}
		more = rawjson.MemberBool(page, "hasMore")
	}
	if f.begun == 0 && !begun {
		failure = f.expired
	}
	return f, failure, nil
}

// cancelsLocked notes that a cancel is sent behind the prompts of its session that it is for, or that it was not.
func (c *Conn) cancelsLocked(m *acp.Message, sent bool) {
	ids, named := acp.PromptIDs(m)
	note := func(name string, cancel, alone *bool) {
		switch {
		case !named:
			*cancel = sent
		case slices.Contains(ids, name):
			*alone = sent
		}
	}
	for _, r := range c.requests {
		if r.method == acp.MethodSessionPrompt && r.session == m.Session() && r.sent {
			note(r.name, &r.cancel, &r.alone)
		}
	}
	if s := c.sessions[m.Session()]; s != nil && s.turn.name != "" {
		note(s.turn.name, &s.turn.cancel, &s.turn.alone)
	}
}

// lastPrompts are the newest of the client's prompts, by session.
type lastPrompts map[string]struct {
	n      int
	cancel bool     // it goes on, and a cancel was sent behind it, perhaps in vain
	alone  []string // of all that go on: those that were cancelled alone, perhaps in vain
}

func (l lastPrompts) note(session string, n int, cancel bool) {
	if p := l[session]; n >= p.n {
		p.n, p.cancel = n, cancel
		l[session] = p
	}
}

// noteAlone notes a prompt that goes on, and for which alone a cancel was sent.
func (l lastPrompts) noteAlone(session, name string) {
	p := l[session]
	p.alone = append(p.alone, name)
	l[session] = p
}

// cancelAgain sends the cancels that may have gone with a connection, when all prompts are on their way again. One
// of all that is not behind the last of its session would end that, too, and is lost.
func (l lastPrompts) cancelAgain(c *Conn, live *link) error {
	for _, id := range slices.Sorted(maps.Keys(l)) {
		m := acp.CancelOf(id, l[id].alone)
		switch {
		case l[id].cancel:
			m = acp.NewNotification(acp.MethodSessionCancel, rawjson.Object{}.String("sessionId", id).End())
		case len(l[id].alone) == 0:
			continue
		}
		if err := c.behind(live, outgoing{m: m}); err != nil {
			return err
		}
	}
	return nil
}

// sentBehind reports whether another prompt of the session was sent behind request n.
func (c *Conn) sentBehind(session string, n int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sentBehindLocked(session, n)
}

func (c *Conn) sentBehindLocked(session string, n int) bool {
	for _, r := range c.requests {
		if r.method == acp.MethodSessionPrompt && r.session == session && r.sent && r.n > n {
			return true
		}
	}
	return false
}

// recoverPrompt finds out what became of a prompt that was not answered.
func (c *Conn) recoverPrompt(live *link, r *request, last lastPrompts) error {
	on, err := c.recovered(live, r)
	cancel, alone := c.cancels(r)
	last.note(r.session, r.n, on && cancel)
	if on && alone {
		last.noteAlone(r.session, r.name)
	}
	return err
}

// cancels reports whether a cancel of all was sent behind the prompt, and one of it alone.
func (c *Conn) cancels(r *request) (all, alone bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return r.cancel, r.alone
}

// recovered is recoverPrompt for one prompt. It reports whether the prompt goes on.
func (c *Conn) recovered(live *link, r *request) (on bool, err error) {
	mine := turn{name: r.name, after: r.after}
	f, failure, err := c.findPrompt(live, r.session, mine, false)
	if begun := f.begun; begun > 0 && f.end == nil && !f.active && !f.over { // an earlier connection may have brought it just now, behind the state
		f, failure, err = c.findPrompt(live, r.session, mine, true)
		f.begun = cmp.Or(f.begun, begun)
	}
	c.mu.Lock()
	switch {
	case c.two || err != nil:
	case failure != nil && r.end != nil: // it was found on an earlier connection
		f, failure = promptFound{begun: r.begun, end: r.end, ended: r.ended}, nil
	case failure == nil:
		r.told, r.end, r.ended, r.begun = f.begun > 0 || f.end != nil, f.end, f.ended, cmp.Or(f.begun, f.ended) // else it is sent again
		if r.told && f.end == nil && r.deleted != nil {                                                         // meanwhile
			failure = r.deleted
		}
	}
	c.mu.Unlock()
	cancelled, _ := c.cancels(r)
	switch {
	case err != nil:
		return false, err
	case failure != nil:
		c.answer(acp.NewError(r.id, failure))
		return false, nil
	case c.isTwo() && f.begun > 0: // there the answer is that it has begun
		c.order.Lock()
		defer c.order.Unlock()
		c.hasBegun(r, f)
	case c.isTwo() && f.end != nil && acp.TurnBegan(f.end): // its beginning, which the answer names, is kept no longer
		c.answer(acp.NewError(r.id, cmp.Or(f.expired, errNoBeginning)))
	case c.isTwo() && f.end != nil:
		c.answer(acp.NewError(r.id, errCancelled))
	case f.end != nil:
		c.order.Lock()
		defer c.order.Unlock()
		c.mu.Lock()
		comes := c.comesLocked(r.session, f.ended) // on the stream, behind the turn's updates
		c.mu.Unlock()
		if !comes {
			c.answer(outcome(r.id, f.end))
		}
	case f.begun == 0 && !f.active && cancelled && c.sentBehind(r.session, r.n):
		// It is not there, nor does it wait for a turn. Sent now nobody could cancel it without what is behind it.
		if c.isTwo() {
			c.answer(acp.NewError(r.id, errCancelled))
		} else {
			c.answer(acp.NewResult(r.id, unbegun))
		}
	case f.begun == 0:
		return c.again(live, r, r.frame)
	case !f.goesOn(): // else its end will be told
		c.answer(acp.NewError(r.id, errAnew))
	}
	return f.goesOn(), nil
}

// hasBegun answers a prompt of version 2 whose turn was found, and tells how that ended unless the
// stream does. The caller holds order.
func (c *Conn) hasBegun(r *request, f promptFound) {
	c.mu.Lock()
	s, deleted := c.sessions[r.session], r.deleted
	comes := c.comesLocked(r.session, f.ended)
	if s != nil && (f.end == nil || comes) {
		s.turn = turn{r.name, r.after, r.n, r.cancel, r.alone, f.end}
	}
	var ends []acp.Message
	if f.end != nil && (deleted != nil || !comes && !r.over) {
		ends = c.endsLocked(r.session, r.name, f.end)
	}
	c.mu.Unlock()
	if deleted != nil && f.end == nil {
		c.answer(acp.NewError(r.id, deleted))
		return
	}
	c.answer(acp.NewResult(r.id, rawjson.Object{}.String("messageId", version.MessageID(f.begun)).End()))
	c.giveAll(ends)
	c.settle(r.session, f)
}

// recoverTurn finds out whether the turn in a session goes on: the client's, whose prompt was answered,
// or one that it watches.
func (c *Conn) recoverTurn(live *link, id string, last lastPrompts) error {
	c.mu.Lock()
	s := c.sessions[id]
	if s == nil || s.turn.name == "" && !s.works {
		c.mu.Unlock()
		return nil
	}
	t := s.turn
	if t.name == "" {
		t.after = s.since
	}
	c.mu.Unlock()
	f, failure, err := c.findPrompt(live, id, t, true)
	if err != nil {
		return err
	}
	c.order.Lock()
	switch {
	case isAway(failure): // its node has gone away again: the hub tells the end, its own where the node does not come back
	case failure != nil: // nothing can be learned of it any more
		c.giveAll(c.Interrupt(id, failure))
	default:
		c.mu.Lock()
		if s.turn.name == t.name && t.name != "" { // else it was told meanwhile
			s.turn.end = f.end
		}
		c.mu.Unlock()
		c.settle(id, f)
	}
	c.order.Unlock()
	last.note(id, t.n, t.cancel && f.goesOn())
	if t.alone && f.goesOn() {
		last.noteAlone(id, t.name)
	}
	return nil
}

// settle ends the turn in a session if the gateway does not go on with it and has not
// told how it ended. The caller holds order.
func (c *Conn) settle(id string, f promptFound) {
	if f.end != nil || f.goesOn() {
		return
	}
	out := c.Interrupt(id, errAnew)
	if len(out) > 0 && f.active { // another turn goes on, and the client may have been told so before
		out = append(out, acp.NewNotification(acp.MethodSessionUpdate, rawjson.Object{}.String("sessionId", id).
			Raw("update", rawjson.Object{}.String("sessionUpdate", "state_update").String("state", "running").End()).End()))
		c.mu.Lock()
		c.showsLocked(&out[len(out)-1])
		c.mu.Unlock()
	}
	c.giveAll(out)
}
