package relay

import (
	"cmp"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/runtime/viewer"
)

const (
	methodMove      = "_sandboxagent/session/move"
	methodDetach    = "_sandboxagent/session/detach"
	methodTurnEnded = "_sandboxagent/session/turn_ended"

	// MethodMoved tells clients that a session went to another node. If the one before was lost it
	// is among the session's events, at the place of what is missing.
	MethodMoved = "_sandboxagent/session/moved"

	// HoldFor is how long requests about a session wait that is being moved. Then they go where it
	// is, and the node says whether it takes them.
	HoldFor = time.Minute
)

// moveSession has the hub move a session.
func (c *Client) moveSession(q *viewer.Request, m *acp.Message) error {
	if !m.HasSession() {
		return acp.Errorf(acp.CodeInvalidParams, "%s needs params.sessionId, a string", q.Method())
	}
	if bad := cmp.Or(acp.NeedTexts(m.Params(), "params", "cwd"), acp.NeedFlags(m.Params(), "params", "workspace")); bad != nil {
		return bad
	}
	var at selection
	if raw, ok := rawjson.Member(m.Params(), "node"); ok {
		var err error
		if at, err = selectionOf(raw, "params.node"); err != nil {
			return err
		}
	}
	to := Destination{Node: at.name, Labels: at.labels, Cwd: rawjson.MemberString(m.Params(), "cwd"), Workspace: rawjson.MemberBool(m.Params(), "workspace")}
	id := m.Session()
	if !c.begin(func() {
		got, err := c.g.fleet.Move(c.ctx, c.token, id, to)
		if err != nil {
			q.Fail(nil, err)
			return
		}
		q.Encode(nil, got)
	}) {
		return errEnded
	}
	return nil
}

// Owned is told of a session that is being moved, was moved, or stays where it is. Its clients'
// requests wait while it is on its way, and go on where it arrives. It does not wait.
func (g *Gateway) Owned(o *store.Owner) {
	for _, c := range g.all() {
		c.owned(o)
	}
}

func (c *Client) owned(o *store.Owner) {
	c.mu.Lock()
	s := c.sessions[o.Session]
	if s == nil {
		s = c.lost[o.Session].s
	}
	if s == nil || s.at() == nil || c.closed {
		c.mu.Unlock()
		return
	}
	defer c.mu.Unlock()
	move := ""
	if o.Moving != nil {
		move = o.Moving.ID
	}
	c.ownedLocked(s, o, move)
}

// ownedLocked takes the newest record of who has a session of the connection, and its move. A session is either open at the node of its line or lost,
// and the newest record says what becomes of it:
//
//	                                        open                              lost
//	another node has it                     it is opened there                it is opened there
//	its node has it, and a move goes on     what is asked waits               what is asked waits
//	its node has it, and none goes on       what is asked goes there          it is opened there again
//	where it is it cannot be opened         it is lost; what is asked is refused, unless a move goes on, or a newer
//	                                        record is there, by which it is opened once more
//
// Client.mu is held.
func (c *Client) ownedLocked(s *session, o *store.Owner, move string) {
	node := s.at().node
	went := o.Other(node) != nil && o.Other(node).Term > 0
	if !went && node != o.Node {
		return
	}
	awaited := s.awaitsLocked()
	c.moveLocked(s, move)
	s.owner = o
	s.behind = went || move == "" && c.lost[s.id].s == s // of several moves the last one counts
	switch {
	case s.behind:
		c.beginLocked(func() { c.follow(s) })
	case awaited && !s.awaitsLocked():
		c.beginLocked(func() { c.releaseUnlessOpening(s) })
	}
}

// follow goes on with a session where it is now, also when it goes further meanwhile.
func (c *Client) follow(s *session) {
	s.following.Lock()
	defer s.following.Unlock()
	for {
		c.mu.Lock()
		o, behind := s.owner, s.behind
		c.mu.Unlock()
		if !behind || !c.goOn(s, o) {
			return
		}
		c.releaseUnlessOpening(s)
	}
}

// goOn goes on with a session where a record says that it is, right behind what the client was given
// of it. Of events that the node before it has lost with itself the client is told. A session that was never open
// is opened by what waits for it. One that a node is still asked to open is left until that has answered: false.
func (c *Client) goOn(s *session, o *store.Owner) (gone bool) {
	from := s.at()
	to, err := c.lineFor(o.Node, s.id)
	left := o.Other(from.node) // nil where it stayed, or is again
	c.mu.Lock()
	isLost := c.lost[s.id].s == s
	switch {
	case s.owner != o || !s.behind: // a newer record was told meanwhile
		c.mu.Unlock()
		return true
	case s.asking > 0:
		c.mu.Unlock()
		return false
	}
	s.behind = false
	switch {
	case c.openLocked(s.id) != s, // the client has left it, or opened it anew
		from.node == o.Node && !isLost:
		c.mu.Unlock()
		return true
	case err == nil && isLost && !s.open:
		err = problem.New(problem.NodeOffline, "the connection to %s ended before session %q was open: try again", from.node, s.id)
	}
	if err != nil {
		waits, open := c.strandLocked(s, o, "it went to another node: "+err.Error()), s.open
		c.mu.Unlock()
		if open {
			from.passes(s, left)
		}
		if waits {
			return true
		}
		refused := acp.NewError("0", viewer.ErrorOf(err))
		c.refuse(s, &refused)
		return true
	}
	s.line.Store(to)
	s.sent = 0
	by, open, letGo := s.sendsLocked(), s.open, func() {}
	if open {
		delete(c.lost, s.id)
		c.sessions[s.id] = s
		if from == to {
			letGo = from.letGoLocked(s)
		}
	}
	c.mu.Unlock()
	var refused *acp.Message
	answered := newLatch(func() { c.release(s, by, refused) })
	c.awaitAnswers(s, to, answered)
	if !open {
		c.opens(answered)
		return true
	}
	letGo()
	after := from.passes(s, left)
	params := rawjson.Object{}.String("sessionId", s.id).Raw("mcpServers", []byte("[]")).End()
	m := acp.NewRequest("0", acp.MethodSessionResume, rawjson.SetMember(params, strconv.AppendUint(nil, after, 10), "_meta", acp.MetaKey, "after"))
	opened := func(res *acp.Message) {
		waits := false
		c.mu.Lock()
		if s.sender != by { // it is opened elsewhere, or once more, already
			c.mu.Unlock()
			return
		}
		if res.Err() != nil {
			_ = isConflict(res) && c.leavesLocked(s, to, res) // then what is asked waits until the hub hears of that
			waits = c.strandLocked(s, o, "it went to "+o.Node+", where it could not be opened: "+res.Err().Message)
		} else {
			s.open = true // it may have been refused to the connection before that
		}
		c.mu.Unlock()
		switch {
		case res.Err() == nil && left != nil && !left.Lost:
			c.tell(MethodMoved, movedNotice(s.id, from.node, o, left, res))
		case res.Err() != nil && !waits:
			refused = res
		}
		c.opens(answered)
	}
	to.whenLeft(s, answered.done, func(err error) {
		c.mu.Lock()
		stale := s.sender != by
		c.mu.Unlock()
		if stale {
			return
		}
		if err == nil {
			err = to.call(nil, &m, opened)
		}
		if err != nil {
			res := acp.NewError("0", viewer.ErrorOf(err))
			opened(&res)
		}
	})
	return true
}

// strandLocked notes that a session could not be opened where a record says that it is, and reports whether what is asked of it
// waits nevertheless: for the end of a move, or as a newer record was told meanwhile. Client.mu is held.
func (c *Client) strandLocked(s *session, o *store.Owner, why string) (waits bool) {
	c.loseLocked(s, why)
	if s.owner != o && s.owner.Moving == nil && !s.behind {
		s.behind = true
		c.beginLocked(func() { c.follow(s) })
	}
	return s.awaitsLocked()
}

func movedNotice(id, from string, o *store.Owner, left *store.Other, res *acp.Message) []byte {
	n := rawjson.Object{}.String("sessionId", id).String("from", from).String("node", o.Node).
		Raw("term", strconv.AppendUint(nil, o.Term, 10)).Raw("lastSeq", strconv.AppendUint(nil, left.LastSeq, 10)).Raw("missing", strconv.AppendUint(nil, left.Missing, 10))
	if continuity := rawjson.MemberString(res.Result(), "_meta", acp.MetaKey, "continuity"); continuity != "" {
		n = n.String("continuity", continuity)
	}
	return WithLeftOut(n, left.LeftOut).End()
}

// WithLeftOut has a notice of a move name what the session had and has no more, such as variables with keys: its agent
// may do without them from now on.
func WithLeftOut(notice rawjson.Object, leftOut []string) rawjson.Object {
	if len(leftOut) == 0 {
		return notice
	}
	list, _ := json.Marshal(leftOut)
	return notice.Raw("leftOut", list)
}

// passes has the node let go of a session that went from it, and returns the event behind which that goes on. Left is what went on from there,
// nil where it did not go.
func (l *line) passes(s *session, left *store.Other) (after uint64) {
	if left != nil {
		prompted := l.owesPrompt(s)
		l.forsake(s, left.Lost)
		s.passed(left.LastSeq, prompted)
	}
	s.noting.Lock()
	defer s.noting.Unlock()
	return s.seen
}

// passed notes that a session goes on at another node, to which the events up
// to last went. A client may have been given more of them, which were lost. Of the end of its own turn it may have been given the
// state alone, with the newest event: then all of that comes again. Prompted says that a prompt of its own was not answered, which may be
// that of the turn.
func (s *session) passed(last uint64, prompted bool) {
	s.c.mu.Lock()
	prompted = prompted && s.c.turns
	s.c.mu.Unlock()
	s.noting.Lock()
	defer s.noting.Unlock()
	own := slices.ContainsFunc(s.owed, func(t owed) bool { return t.name != "" && t.begun < s.idle }) || prompted && s.idle > s.ended
	again := s.seen <= last && s.idle > 0 && s.idle == s.seen && own
	s.seen, s.told, s.idle, s.ended = min(s.seen, last), last, min(s.idle, last), min(s.ended, last)
	if s.lapsed.seq > last {
		s.lapsed = lapsed{}
	}
	if again {
		s.seen--
	}
}

// lineFor returns the connection to a node to which a session was moved. The gateway there need not have an agent for
// those who name none: that of the session is named.
func (c *Client) lineFor(node, session string) (*line, error) {
	if _, err := c.g.fleet.Node(c.token, node); err != nil {
		return nil, err // the token is not for it
	}
	found, _ := c.g.fleet.Find(c.token, session, "") // where it is not known, the gateway's own is asked for
	return c.lineTo(node, found.Agent)
}

// changed takes the answer to what changes a session. If a move has begun before it came to the node, that has changed
// what it is about to let go of, or what is left there: it is done once more, where the session is when the
// move is over, unless that is still the same node. One to which it was taken back has opened it anew. Term is that of its owner before
// the node was asked.
func (c *Client) changed(q *viewer.Request, at *line, m *acp.Message, before place, term uint64, res *acp.Message) {
	id := m.Session()
	left, from := at.wentTo(res), ""
	again := func() bool {
		return res.Err() != nil || q.Method() != acp.MethodSessionFork && (c.nodeOf(id) != at.node || c.termOf(id) > term)
	}
	canAsk := func(node string) bool {
		_, err := c.g.fleet.Node(c.token, node)
		return err == nil // else the token is not for it
	}
	final := func() bool { return res.Err() == nil && left != "" && !canAsk(left) }
	leftAlone := func(at *line, left, why string) error {
		return problem.New(problem.Conflict, "session %q went from %s to %s, and only what was left of it there was asked for; %s: try again", id, at.node, left, why).With("node", left)
	}
	if q.Method() == acp.MethodSessionFork && res.Err() == nil || final() || !c.movesFrom(at, id, res) && c.termOf(id) <= term {
		at.answered(q, id, before, res)
		return
	}
	if left != "" {
		from = at.node
	}
	if err := c.whenSettled(q, m, before, from, func(now place) error {
		switch node := c.nodeOf(id); {
		case res.Err() == nil && left != "" && (node == "" || !again()):
			return leftAlone(at, left, "this hub does not reach it there yet")
		case !again(): // what was asked meanwhile is behind it
			at.answered(q, id, before, res)
			return nil
		}
		l, err := c.lineOf(m)
		if err != nil {
			return err
		}
		return l.call(q, m, func(res *acp.Message) {
			if left := l.wentTo(res); q.Method() != acp.MethodSessionFork && res.Err() == nil && left != "" && canAsk(left) {
				q.Fail(nil, leftAlone(l, left, "it has moved on meanwhile"))
				return
			}
			l.answered(q, id, now, res)
		})
	}); err != nil {
		q.Fail(nil, err)
	}
}

// latch does something when all is answered that it waits for, once.
type latch struct {
	left atomic.Int32
	once sync.Once
	then func()
	done chan struct{} // closed when it does that
}

// newLatch returns one that waits for one answer until it is told of more.
func newLatch(then func()) *latch {
	l := &latch{then: then, done: make(chan struct{})}
	l.left.Store(1)
	return l
}

// one notes one of the answers.
func (l *latch) one() {
	if l.left.Add(-1) == 0 {
		l.goOn()
	}
}

// goOn waits for nothing more.
func (l *latch) goOn() {
	l.once.Do(func() {
		close(l.done)
		l.then()
	})
}

// opens notes the first of the answers, and goes on without the others when a node does not give them.
func (c *Client) opens(l *latch) {
	if l.one(); l.left.Load() <= 0 {
		return
	}
	c.begin(func() {
		late := time.NewTimer(HearFor)
		defer late.Stop()
		select {
		case <-late.C:
			l.goOn()
		case <-l.done:
		case <-c.ctx.Done():
		}
	})
}

// awaitAnswers has answered wait for what other nodes are still to answer of a session that a node has now. They may refuse it, and
// then it is sent to that node before what comes behind it.
func (c *Client) awaitAnswers(s *session, at *line, answered *latch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.lines {
		for id, open := range l.calls {
			if l != at && open.session == s.id && !open.own {
				answered.left.Add(1)
				open.awaited = append(open.awaited, answered)
				l.calls[id] = open
			}
		}
	}
}

// owesPrompt reports whether the node has not answered a prompt of the client in a session.
func (l *line) owesPrompt(s *session) bool {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	for _, open := range l.calls {
		if open.session == s.id && open.method == acp.MethodSessionPrompt {
			return true
		}
	}
	return false
}

// forsake ends what is open about a session that another node has now. One that is away would be
// sent it again when it comes back: it is left. Lost says that the session went on without it, and knows nothing of what goes on there, also when
// it is back: what it still answers comes too late.
func (l *line) forsake(s *session, lost bool) {
	c := l.c
	c.mu.Lock()
	var calls []call
	away := l.away.Load() || l.ended
	for id, open := range l.calls {
		if open.session == s.id && (away || lost && !open.own) {
			calls = append(calls, open)
			delete(l.calls, id)
		}
	}
	asks, ended := l.forgetLocked(s), l.ended
	c.mu.Unlock()
	s.withdraw(asks)
	why := problem.New(problem.NodeOffline, "%s went away while it was done, and another node has session %s now: whether it was done is not known", l.node, s.id).DoneUnknown()
	for _, open := range calls {
		res := acp.NewError("0", viewer.ErrorOf(why))
		open.answer(&res)
	}
	if lost { // else the next node tells how its turns ended
		l.interrupt(s, s.at(), viewer.ErrorOf(why))
	}
	switch {
	case ended:
	case away && len(calls) > 0:
		l.end(errors.New("it was away, and a session of it went to another node"))
	default:
		l.c.mu.Lock()
		letGo := l.letGoLocked(s)
		l.c.mu.Unlock()
		letGo()
	}
}

// leaving is a session that the hub leaves at a node. What the node says of it is old until it has answered.
type leaving struct {
	left int         // requests
	then func(error) // nil for nothing
}

// letGoLocked has the node say nothing more of a session. Where that is opened at this node again, what the node has said meanwhile comes
// again. What it returns sends that. Client.mu is held.
func (l *line) letGoLocked(s *session) (send func()) {
	of := l.leaving[s.id]
	if of == nil {
		of = new(leaving)
		l.leaving[s.id] = of
	}
	of.left++
	answered := func(*acp.Message) {
		l.c.mu.Lock()
		of.left--
		over := of.left == 0 && l.leaving[s.id] == of
		if over {
			delete(l.leaving, s.id)
		}
		l.c.mu.Unlock()
		if over && of.then != nil {
			of.then(nil)
		}
	}
	return func() {
		m := acp.NewRequest("0", methodDetach, rawjson.Object{}.String("sessionId", s.id).End())
		if l.call(nil, &m, answered) != nil { // of a line that takes nothing more nothing comes either
			answered(nil)
		}
	}
}

// whenLeft calls then when the hub is not about to leave a session at the node any more, or, with why, when the node does not say
// so for HoldFor. Of several the last one is called. It does not wait longer than until over.
func (l *line) whenLeft(s *session, over <-chan struct{}, then func(error)) {
	l.c.mu.Lock()
	of := l.leaving[s.id]
	if of != nil {
		of.then = then
		l.c.beginLocked(func() { l.stopLeaving(s, of, over) })
	}
	l.c.mu.Unlock()
	if of == nil {
		then(nil)
	}
}

// stopLeaving goes on when a node has not said for long that it has let go of a session.
func (l *line) stopLeaving(s *session, of *leaving, over <-chan struct{}) {
	late := time.NewTimer(HoldFor)
	defer late.Stop()
	select {
	case <-late.C:
	case <-over:
		return
	case <-l.c.ctx.Done():
		return
	}
	l.c.mu.Lock()
	still := l.leaving[s.id] == of
	if still {
		delete(l.leaving, s.id)
	}
	l.c.mu.Unlock()
	if still && of.then != nil {
		of.then(problem.New(problem.NodeOffline, "%s did not say for %v that it has let go of session %q: try again", l.node, HoldFor, s.id))
	}
}
