package relay

import (
	"slices"
	"strings"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/runtime/viewer"
)

// held is what waits until its session can be reached.
type held struct {
	kind  heldKind
	place uint64                                 // among what the client has asked of the session: it is sent in that order
	bytes int                                    // of a request
	send  func(by *sender, refused *acp.Message) // with why the session cannot be reached, if it cannot
}

// sender sends what waits for a session, or has asked a node to open the session for that. Of several the newest one does.
type sender struct{ refuses bool } // what waits is refused, one after the other

type heldKind uint8

const (
	heldRequest heldKind = iota
	heldCancel           // behind some requests
	heldNamed            // behind some requests: a cancel of the prompts that were cancelled alone
	heldOpening          // the hub's own request to open the session: its answer releases what is behind it
)

const (
	// Requests that wait for a session to be opened, and their bytes, or one request. More are refused, but
	// not those that are asked once more: they were there before.
	maxHeld      = 64
	maxHeldBytes = maxOutBytes / 2
	// Prompts that were cancelled alone. The oldest is forgotten: it is cancelled where it is, but no more when it is sent once more.
	maxAlone = 2 * maxHeld

	// What session.moving says beside the id of a move.
	moveUnheard = "not heard yet"    // the hub is about to be asked whether the session is moved
	moveRefused = "told by its node" // the node says that the session went, and the hub does not say so yet
)

// awaitsLocked reports whether what is asked of the session must wait. Client.mu is held.
func (s *session) awaitsLocked() bool { return s.moving != "" || s.behind }

// sendsLocked makes the caller the one who sends what waits. Client.mu is held.
func (s *session) sendsLocked() *sender {
	s.sender = new(sender)
	return s.sender
}

// refuse answers what waits for a session that cannot be opened. If somebody does that it goes on in its order.
func (c *Client) refuse(s *session, refused *acp.Message) {
	c.mu.Lock()
	if s.sender != nil && s.sender.refuses {
		c.mu.Unlock()
		return
	}
	by := s.sendsLocked()
	c.mu.Unlock()
	c.release(s, by, refused)
}

// release lets those go on that wait for a session to be opened, unless it is being moved, or somebody else does that now.
func (c *Client) release(s *session, by *sender, refused *acp.Message) {
	for {
		c.mu.Lock()
		if s.sender != by {
			c.mu.Unlock()
			return
		}
		if len(s.held) == 0 || s.awaitsLocked() && refused == nil {
			s.sender = nil
			c.mu.Unlock()
			c.settle(s)
			return
		}
		answer := refused
		if err := c.lostLocked(s); err != nil && answer == nil {
			res := acp.NewError("0", viewer.ErrorOf(err))
			answer = &res
		}
		by.refuses = answer != nil
		h := s.held[0]
		s.held = s.held[1:] // who comes meanwhile comes behind
		passed := h.kind == heldCancel && h.place < s.sent
		if h.kind == heldRequest && answer == nil {
			s.sent = max(s.sent, h.place)
		}
		c.mu.Unlock()
		if passed { // it would end what comes behind it
			continue
		}
		h.send(by, answer)
		switch h.kind {
		case heldRequest:
			c.mu.Lock()
			s.waiting--
			s.bytes -= h.bytes
			c.mu.Unlock()
		case heldOpening:
			if answer == nil {
				return
			}
		}
	}
}

func (c *Client) releaseUnlessOpening(s *session) {
	c.mu.Lock()
	var by *sender
	if s.sender == nil { // else the answer to that releases them
		by = s.sendsLocked()
	}
	c.mu.Unlock()
	if by != nil {
		c.release(s, by, nil)
	}
}

// whenOpen calls f when the session is open, with why it cannot be reached if it cannot. At is the place of what is asked,
// 0 for behind all that was asked before; f is given it. An error of f that comes later goes to failed.
func (c *Client) whenOpen(s *session, at uint64, m *acp.Message, f func(at uint64, refused *acp.Message) error, failed func(error)) error {
	c.mu.Lock()
	again, bytes := at != 0, len(m.Frame())
	if err := s.over; err != nil { // nobody lets anything go on that waits there
		c.mu.Unlock()
		return err
	}
	if !again {
		s.place++
		at = s.place
	}
	free := s.sender == nil && !s.awaitsLocked() && len(s.held) == 0
	cancelled := m.Method() == acp.MethodSessionPrompt && s.cancelled > at // one that is sent once more is still cancelled
	var refused *acp.Message
	if err := c.lostLocked(s); err != nil && free {
		res := acp.NewError("0", viewer.ErrorOf(err))
		refused = &res
	} else if acts(m.Method()) {
		s.wanted = max(s.wanted, at)
	}
	if free && (!cancelled || s.passedLocked(at)) {
		if refused == nil {
			s.sent = max(s.sent, at)
		}
		c.mu.Unlock()
		return f(at, refused)
	}
	if !again && (s.waiting >= maxHeld || s.bytes > 0 && s.bytes+bytes > maxHeldBytes) {
		n, size := s.waiting, s.bytes
		c.mu.Unlock()
		return problem.New(problem.TooManyRequests, "requests wait for session %q to be opened at %s, %d with %d bytes: try again when some of them were answered", s.id, s.at().node, n, size)
	}
	s.waiting++
	s.bytes += bytes
	s.holdLocked(held{heldRequest, at, bytes, func(_ *sender, refused *acp.Message) {
		if err := f(at, refused); err != nil {
			failed(err)
		}
	}})
	if cancelled {
		c.holdCancelLocked(s, s.cancelled, acp.NewNotification(acp.MethodSessionCancel, rawjson.Object{}.String("sessionId", s.id).End()))
	}
	c.mu.Unlock()
	if free {
		c.releaseUnlessOpening(s)
	}
	return nil
}

// passedLocked reports whether what was asked at a place was cancelled, and its node was sent what was asked behind the
// cancel: one more would end that. Client.mu is held.
func (s *session) passedLocked(at uint64) bool { return at < s.cancelled && s.cancelled < s.sent }

// alone is a prompt that was cancelled alone.
type alone struct {
	id     string
	at     uint64 // the cancel's place: it is for what was asked before
	passed bool   // a node was sent a prompt of the same id that was asked behind it: one more cancel would end that
}

// sends notes that what was asked at a place is sent, and returns to which node: where the session is now, which may have been
// moved meanwhile. A prompt is not sent that was passed, or cancelled alone.
func (c *Client) sends(s *session, at uint64, m *acp.Message) (to *line, never bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.Method() == acp.MethodSessionPrompt {
		id := rawjson.MemberString(m.Meta(), acp.MetaKey, "promptId")
		never = s.passedLocked(at) || slices.ContainsFunc(s.alone, func(one alone) bool { return one.id == id && at < one.at })
		for i := range s.alone {
			if one := &s.alone[i]; !never && one.id == id {
				one.passed = true
			}
		}
	}
	s.sent = max(s.sent, at)
	return s.at(), never
}

// neverBegan is the answer to a prompt that was cancelled before its node has taken it.
func (c *Client) neverBegan() acp.Message {
	if c.two {
		return acp.NewError("0", acp.Errorf(acp.CodeCancelled, "the prompt was cancelled before it began"))
	}
	return acp.NewResult("0", rawjson.Object{}.String("stopReason", "cancelled").Raw("_meta", rawjson.Object{}.Raw(acp.MetaKey, []byte(`{"began":false}`)).End()).End())
}

// place is one among what the client has asked of a session.
type place struct {
	s *session
	n uint64
}

// placeOf is that of what is asked of a session behind all that was asked before.
func (c *Client) placeOf(id string) place {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.sessions[id]
	if s == nil {
		return place{}
	}
	return place{s, s.place}
}

// reachedLocked returns the session of the connection with the id, also one that was lost as long as that waits to be opened again;
// nil for none. Client.mu is held.
func (c *Client) reachedLocked(id string) *session {
	if s := c.openLocked(id); s != nil && (s == c.sessions[id] || s.awaitsLocked()) {
		return s
	}
	return nil
}

// whenSettled calls f when the session that a message names is on its way to no other node, as whenOpen does if it is one of
// the connection's. Left is a node that says that the session went, "" for none. An error of f that comes later is the answer
// to the request.
func (c *Client) whenSettled(q *viewer.Request, m *acp.Message, at place, left string, f func(at place) error) error {
	id := m.Session()
	c.mu.Lock()
	open := c.reachedLocked(id)
	c.mu.Unlock()
	if at.s != open { // the client has left the session, and perhaps opened it anew: it is asked behind that
		at = place{s: open}
	}
	failed := func(err error) { q.Fail(nil, err) }
	switch {
	case open != nil:
		return c.whenOpen(open, at.n, m, func(n uint64, refused *acp.Message) error {
			c.mu.Lock()
			anew := refused != nil && c.sessions[id] != nil // by what was asked before it: it is done behind that
			c.mu.Unlock()
			if anew {
				return c.whenSettled(q, m, place{}, left, f)
			}
			return f(place{open, n})
		}, failed)
	case left == "" && c.moveOf(id) == "":
		return f(at)
	}
	if !c.begin(func() {
		c.g.fleet.Settle(c.ctx, c.token, id, left)
		c.mu.Lock()
		again := c.reachedLocked(id) != nil // one that was lost, and is opened where the move has ended: it is asked behind that
		c.mu.Unlock()
		ask := func() error { return f(at) }
		if again {
			ask = func() error { return c.whenSettled(q, m, place{}, "", f) }
		}
		if err := ask(); err != nil {
			failed(err)
		}
	}) {
		return errEnded
	}
	return nil
}

// holdLocked has something wait at its place. Of cancels of a kind one is enough behind each request.
// Client.mu is held.
func (s *session) holdLocked(h held) {
	i := len(s.held)
	for i > 0 && s.held[i-1].place > h.place {
		i--
	}
	for j := i; j > 0 && cancels(h.kind) && cancels(s.held[j-1].kind); j-- {
		if s.held[j-1].kind == h.kind {
			return
		}
	}
	s.held = slices.Insert(s.held, i, h)
}

func cancels(k heldKind) bool { return k == heldCancel || k == heldNamed }

// cancelHeld sends a cancel behind the requests that wait in a session, or that are to be sent once more: what is sent now
// comes before them.
func (c *Client) cancelHeld(m acp.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.openLocked(m.Session())
	if s == nil {
		return
	}
	s.place++
	if ids, named := acp.PromptIDs(&m); named {
		c.holdNamedLocked(s, ids)
		return
	}
	s.cancelled = s.place
	if s.waiting > 0 {
		c.holdCancelLocked(s, s.cancelled, m)
	}
}

// holdNamedLocked has prompts be cancelled that are to be sent once more, and a cancel of them wait behind the requests, some of
// which may be on their way. Client.mu is held.
func (c *Client) holdNamedLocked(s *session, ids []string) {
	for _, id := range ids {
		s.alone = append(s.alone, alone{id: id, at: s.place})
	}
	s.alone = slices.Clone(s.alone[max(0, len(s.alone)-maxAlone):])
	if s.waiting == 0 {
		return
	}
	s.holdLocked(held{heldNamed, s.place, 0, func(_ *sender, refused *acp.Message) {
		c.mu.Lock()
		var ids []string // of one that is over it ends nothing
		for _, one := range s.alone {
			if !one.passed && !slices.Contains(ids, one.id) {
				ids = append(ids, one.id)
			}
		}
		c.mu.Unlock()
		if refused == nil && len(ids) > 0 {
			s.at().tellNode(acp.CancelOf(s.id, ids))
		}
	}})
}

// holdCancelLocked has a cancel wait at a place. Client.mu is held.
func (c *Client) holdCancelLocked(s *session, at uint64, m acp.Message) {
	s.holdLocked(held{heldCancel, at, 0, func(_ *sender, refused *acp.Message) {
		if refused == nil {
			s.at().tellNode(m)
		}
	}})
}

// hear has what is asked of a session wait that is being moved as it becomes one of the connection. What the hub tells
// of it from then on comes by owned, and is newer.
func (c *Client) hear(s *session) {
	o, move := c.g.fleet.Moving(c.token, s.id)
	c.mu.Lock()
	unheard := s.moving == moveUnheard
	if unheard {
		s.moving = ""
		if o != nil { // it can have arrived elsewhere since its node was looked for
			c.ownedLocked(s, o, move)
		} else {
			c.moveLocked(s, move)
		}
	}
	goes := unheard && !s.awaitsLocked()
	c.mu.Unlock()
	if goes {
		c.releaseUnlessOpening(s)
	}
}

// moveOf returns the id of the move of a session, "" for none.
func (c *Client) moveOf(id string) string {
	_, move := c.g.fleet.Moving(c.token, id)
	return move
}

// termOf returns the term of the owner of a session.
func (c *Client) termOf(id string) uint64 {
	o, _ := c.g.fleet.Moving(c.token, id)
	if o == nil { // it has never been moved
		return 1
	}
	return o.Term
}

// moveLocked notes the move that a session waits for, "" for none. Client.mu is held.
func (c *Client) moveLocked(s *session, move string) {
	was := s.moving
	if s.moving = move; move == "" || move == was {
		return
	}
	atMost := HoldFor
	if move == moveRefused {
		atMost = HearFor
	}
	c.beginLocked(func() { c.stopHolding(s, move, atMost) })
}

// stopHolding lets requests go on that have waited for a move for long.
func (c *Client) stopHolding(s *session, move string, atMost time.Duration) {
	late := time.NewTimer(atMost)
	defer late.Stop()
	select {
	case <-late.C:
	case <-c.ctx.Done():
		return
	}
	c.mu.Lock()
	still := s.moving == move
	if still {
		s.moving = ""
	}
	c.mu.Unlock()
	if still {
		c.releaseUnlessOpening(s)
	}
}

// hasLeft reports whether a node has refused something because the session is on its way to another one. The node can
// know that before the hub does.
func (c *Client) hasLeft(s *session, at *line, res *acp.Message) bool {
	if !isConflict(res) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leavesLocked(s, at, res)
}

// leavesLocked reports whether the session is at another node than the one that has answered a request, or on its way to one, also
// where the node alone says so. Client.mu is held.
func (c *Client) leavesLocked(s *session, at *line, res *acp.Message) bool {
	if s.leftLocked(at) {
		return true
	}
	went := at.wentTo(res) != ""
	if went {
		c.moveLocked(s, moveRefused)
	}
	return went
}

// isConflict reports whether a node has refused something, and not done it.
func isConflict(res *acp.Message) bool {
	if res.Err() == nil {
		return false
	}
	data := res.Err().Data
	return rawjson.MemberString(data, "type") == problem.Conflict.Type() && rawjson.MemberString(data, "done") != problem.Unknown
}

// wentTo is the node to which a session went, where the node has refused something because of that, or has done what changes a session to
// what is left of it there; "" for none. What else a node does is answered by its agent, which may say anything.
func (l *line) wentTo(res *acp.Message) string {
	address := rawjson.MemberString(res.Result(), "_meta", acp.MetaKey, "movedTo")
	if isConflict(res) {
		address = rawjson.MemberString(res.Err().Data, "movedTo")
	}
	node, went := strings.CutPrefix(address, "node://")
	if !went || node == l.node {
		return ""
	}
	return node
}

// movesFrom is leavesLocked for what has changed a session, which need not be one of the connection's.
func (c *Client) movesFrom(at *line, id string, res *acp.Message) bool {
	c.mu.Lock()
	if s := c.reachedLocked(id); s != nil {
		defer c.mu.Unlock()
		return c.leavesLocked(s, at, res)
	}
	c.mu.Unlock()
	node := c.nodeOf(id)
	return c.moveOf(id) != "" || node != "" && node != at.node || at.wentTo(res) != ""
}

// leftLocked reports whether the session is at another node than the one of a line, or on its way to one. Client.mu is held.
func (s *session) leftLocked(at *line) bool { return s.awaitsLocked() || s.at() != at }

// beginOpen notes that a node is about to be asked to open a session, and returns the connection to it.
func (c *Client) beginOpen(s *session) *line {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.asking++
	return s.at()
}

// endOpen notes the answer of a node to that. If the session went on meanwhile it is followed now: before, it was not
// known whether there is anything to follow.
func (c *Client) endOpen(s *session, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.asking--
	s.open = s.open || ok
	if s.behind {
		c.beginLocked(func() { c.follow(s) })
	}
}

// join opens a session that the client acts on and has not opened, before what waits: its events from now on
// are the connection's, also when the way to the node breaks. One that goes elsewhere is opened there. No directory is
// named: of a session that was just deleted a node would then open what its agent still has of it.
func (c *Client) join(s *session, first bool) {
	send := func(by *sender, refused *acp.Message) {
		if refused != nil {
			return
		}
		at := c.beginOpen(s)
		opened := func(res *acp.Message) {
			defer c.endOpen(s, res.Err() == nil)
			var refused *acp.Message
			switch {
			case res.Err() == nil:
				s.saw(res.Result())
			case first && c.hasLeft(s, at, res):
				c.join(s, false)
				return
			default:
				refused = res
				c.detach(s)
			}
			c.release(s, by, refused)
		}
		m := acp.NewRequest("0", acp.MethodSessionResume, rawjson.Object{}.String("sessionId", s.id).Raw("mcpServers", []byte("[]")).End())
		if err := at.call(nil, &m, opened); err != nil {
			res := acp.NewError("0", viewer.ErrorOf(err))
			opened(&res)
		}
	}
	c.mu.Lock()
	s.held = slices.Insert(s.held, 0, held{heldOpening, 0, 0, send})
	by := s.sendsLocked()
	c.mu.Unlock()
	c.release(s, by, nil)
}
