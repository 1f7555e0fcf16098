package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/lasting"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/runtime/observe"
	"sandboxagent.dev/sandbox-agent/runtime/viewer"
)

const (
	helloID = acp.ID(`"hub-initialize"`)

	// giveUp is how long requests that are under way wait for a node to come back: longer
	// than a gateway needs to start, or to join another hub.
	giveUp      = time.Minute
	maxOut      = 256              // messages that wait to be sent to a node; more are refused
	maxOutBytes = 32 << 20         // and their bytes, or one message
	maxAsks     = 1024             // open requests of one node's agents; beyond, the node is left
	maxChildren = 4096             // subagents that a line knows; beyond, one of them is forgotten, and cannot be cancelled
	replayBound = 30 * time.Second // the answer to session/load waits so long for a client that does not read the replay

	methodNodeState = "_sandboxagent/node/state"
)

// line is a client's connection to one node. Its life: it is opened with the first request
// for the node; it is up, or away while the node is; it ends with its client, or when the
// node has refused it, misbehaved or stayed away, and another one is opened for the next
// request.
type line struct {
	c    *Client
	node string
	conn *lasting.Conn
	own  *session // what the node says of no session
	out  chan acp.Message

	ctx     context.Context // done when it must end, with why
	cancel  context.CancelCauseFunc
	dialed  bool        // of the goroutine that dials
	untaken acp.ID      // the request that the connection did not take, at its end. Of the writer
	away    atomic.Bool // it was up, and the node is not there

	// Guarded by Client.mu.
	ended    bool
	caps     json.RawMessage // what the node's agent can, nil until it has answered
	calls    map[acp.ID]call
	children map[string]string   // sessions that live in the log of another, which is the value; at most maxChildren
	leaving  map[string]*leaving // sessions that the hub itself leaves, until the node has answered
	asks     int                 // open requests
	bytes    int                 // of what is in out
}

// call is a request that a node has not answered.
type call struct {
	session string // that it is about, "" for none
	method  string
	own     bool // the hub's
	done    func(res *acp.Message)
	awaited []*latch // wait for its end
}

// answer ends it.
func (o *call) answer(res *acp.Message) {
	o.done(res)
	o.over()
}

// over tells those who wait for its end.
func (o *call) over() {
	for _, l := range o.awaited {
		l.one()
	}
}

// lineTo returns the connection to a node, which is opened if there is none. The agent is
// that of the session for which it is opened, "" for the node's choice.
func (c *Client) lineTo(node, agent string) (*line, error) {
	if err := c.g.fleet.Away(node); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch l := c.lines[node]; {
	case c.closed:
		return nil, errEnded
	case l != nil: // where it is not there again yet, what it is sent waits with what is under way
		return l, nil
	case len(c.lines) >= maxLines:
		return nil, problem.New(problem.TooManyRequests, "this connection uses %d nodes already: use another one", maxLines)
	}
	l := &line{c: c, node: node, out: make(chan acp.Message, maxOut), calls: map[acp.ID]call{}, children: map[string]string{}, leaving: map[string]*leaving{}}
	l.ctx, l.cancel = context.WithCancelCause(c.ctx)
	l.own = newSession(c, l, "")
	hello := c.hello
	if agent != "" && c.agent == "" {
		hello = acp.NewRequest(helloID, acp.MethodInitialize, rawjson.SetMember(hello.Params(), rawjson.AppendQuoted(nil, agent), "_meta", acp.MetaKey, "agent"))
	}
	l.conn = lasting.New(lasting.Options{Dial: l.dial, GiveUp: giveUp, First: true, Gone: l.gone, Take: l.taken})
	c.lines[node] = l
	c.work.Go(func() { l.run(hello) })
	return l, nil
}

// dial opens a connection for lasting, which calls it again when one has broken.
func (l *line) dial(ctx context.Context) (acp.Conn, error) {
	again, up := l.dialed, l.wasUp()
	l.dialed = true
	if up && !l.away.Swap(true) {
		l.tell("offline")
	}
	conn, err := l.c.g.fleet.Dial(ctx, l.c.token, l.node, up)
	switch {
	case !again:
	case err == nil:
		if l.away.Swap(false) {
			l.tell("online")
		}
	case problem.From(err).Kind == problem.NodeNotFound:
		l.end(err) // it was forgotten, or the token is not for it any more: there is nothing to wait for
	case !up:
		if err := l.c.g.fleet.Away(l.node); err != nil { // else it may take the next one
			l.end(err)
		}
	}
	return conn, err
}

// wasUp reports whether the node has ever answered on the line.
func (l *line) wasUp() bool {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.caps != nil
}

// tell says to the client how its connection to the node is.
func (l *line) tell(state string) {
	l.c.tell(methodNodeState, rawjson.Object{}.String("node", l.node).String("state", state).End())
}

// run works on the line until it ends.
func (l *line) run(hello acp.Message) {
	l.c.AttachFrom(l.own, 0)
	err := l.conn.Write(l.ctx, hello)
	var writer sync.WaitGroup
	writer.Go(l.write)
	if err == nil {
		_, err = l.conn.Read(l.ctx) // until it ends: messages go to taken
	}
	if l.ctx.Err() != nil {
		err = context.Cause(l.ctx)
	}
	l.cancel(err)
	_ = l.conn.Close() // it says why it ended in what it reads
	writer.Wait()
	l.over(err)
}

// write sends what waits. A node that takes nothing makes its own line wait.
func (l *line) write() {
	for {
		select {
		case m := <-l.out:
			if l.conn.Write(context.Background(), m) != nil { // it ends with the line's
				if m.IsRequest() {
					l.untaken = m.ID()
				}
				return
			}
			l.c.mu.Lock()
			l.bytes -= len(m.Frame())
			l.c.mu.Unlock()
		case <-l.ctx.Done():
			return
		}
	}
}

func errFull(node string) *problem.Error {
	return problem.New(problem.TooManyRequests, "%s does not take the messages that wait for it: try again when it has", node)
}

// send has a message sent, which it keeps.
func (l *line) send(m acp.Message) error {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	n := len(m.Frame())
	switch {
	case l.ended:
		return problem.New(problem.NodeOffline, "the connection to %s has just ended: try again", l.node)
	case len(l.out) == cap(l.out), l.bytes > 0 && l.bytes+n > maxOutBytes:
		return errFull(l.node)
	}
	l.bytes += n
	l.out <- m // it has room: all senders hold the lock
	return nil
}

// tellNode sends what has no answer by which its sender could be told that it was not
// taken. A node that takes nothing is left, and that is told.
func (l *line) tellNode(m acp.Message) {
	if err := l.send(m); err != nil {
		l.end(err)
	}
}

// end ends the line. It does not wait.
func (l *line) end(why error) { l.cancel(why) }

// call sends a request, that of a client or, with nil, the hub's own. Done is called once
// with the answer, as the node is read, and must not wait.
func (l *line) call(q *viewer.Request, m *acp.Message, done func(res *acp.Message)) error {
	c := l.c
	c.mu.Lock()
	c.lastCall++
	id := acp.IntID(c.lastCall)
	l.calls[id] = call{session: m.Session(), method: m.Method(), own: q == nil, done: done}
	c.mu.Unlock()
	sent := forNode(m).Rewritten(id, "")
	if q != nil {
		sent = traced(sent, q.Span(), l.node)
	}
	err := l.send(sent)
	if err != nil {
		c.mu.Lock()
		open, is := l.calls[id]
		delete(l.calls, id)
		c.mu.Unlock()
		if !is {
			return nil // the end of the line has answered it
		}
		open.over()
		return err
	}
	if q != nil {
		withdraw := func(context.Context) {
			l.tellNode(acp.NewNotification(acp.MethodCancelRequest, rawjson.Object{}.Raw("requestId", []byte(id)).End()))
		}
		if q.OnWithdraw(withdraw); q.Withdrawn() { // while it waited for its session, such as one that moves
			withdraw(c.ctx)
		}
	}
	return nil
}

// traced returns a request in the trace of the client's, which a node continues.
func traced(m acp.Message, span observe.Span, node string) acp.Message {
	if s, ok := span.(interface{ At(node string) }); ok {
		s.At(node)
	}
	if len(m.Params()) == 0 {
		return m
	}
	return observe.WithTrace(m, span)
}

// forNode returns a message without what is between the client and the hub.
func forNode(m *acp.Message) *acp.Message {
	if _, ok := rawjson.Member(m.Meta(), acp.MetaKey, "node"); !ok {
		return m
	}
	own := acp.NewRequest(m.ID(), m.Method(), rawjson.DeleteMember(m.Params(), "_meta", acp.MetaKey, "node"))
	return &own
}

// taken takes a message of the node as it comes, and as long as it takes the node is not read. To hand
// it to another goroutine would take longer than most of them do.
func (l *line) taken(m acp.Message) {
	if l.ctx.Err() != nil {
		return
	}
	if err := l.take(m); err != nil {
		l.end(err)
	}
}

// take takes a message of the node, which is there until it returns. An error ends the line.
func (l *line) take(m acp.Message) error {
	switch {
	case m.IsResponse() && m.ID() == helloID:
		return l.greeted(&m)
	case m.IsResponse():
		l.c.mu.Lock()
		open, ok := l.calls[m.ID()]
		delete(l.calls, m.ID())
		l.c.mu.Unlock()
		if ok {
			open.answer(&m)
		}
	case m.IsRequest():
		return l.asked(m)
	case m.Method() == acp.MethodCancelRequest:
		l.withdrawn(m)
	default:
		if s := l.sessionOf(&m); s != nil {
			s.show(l.ctx, l, m)
		} else {
			l.c.g.log.Debug("a node told of a session that is not open at it", "node", l.node, "method", m.Method())
		}
	}
	return nil
}

// greeted takes the node's answer to initialize.
func (l *line) greeted(m *acp.Message) error {
	if e := m.Err(); e != nil {
		return e
	}
	v, _ := rawjson.Member(m.Result(), "protocolVersion")
	if two := string(v) == "2"; two != l.c.two {
		return problem.New(problem.NotSupported, "%s speaks version %s of the protocol, and this connection another: initialize with protocolVersion %s", l.node, v, v)
	}
	caps, _ := rawjson.Member(m.Result(), "agentCapabilities")
	if l.c.two {
		caps, _ = rawjson.Member(m.Result(), "capabilities")
	}
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.caps = rawjson.DeleteMember(caps, "_meta", acp.MetaKey)
	return nil
}

// sessionOf returns the session that a message of the node belongs to: that it names, the
// one whose log has that, or the line's own for none. It is nil for one of another node.
func (l *line) sessionOf(m *acp.Message) *session {
	if !m.HasSession() {
		return l.own
	}
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	id := m.Session()
	s := l.c.sessions[id]
	if s == nil {
		root := m.Root()
		if root == "" { // gateways of earlier versions do not say: it was announced
			root = l.children[id]
		}
		if s = l.c.sessions[root]; s != nil && s.at() == l {
			l.noteChildLocked(id, s)
		}
	}
	ends := l.c.two && m.Method() == methodTurnEnded
	if s == nil && m.Method() != "" && (ends || seqIn(m.Meta(), acp.MetaKey, "seq") == 0) {
		s = l.c.lost[id].s // how its turn ended is still told, which the connection to the node does
	}
	switch {
	case ends && s == nil: // the client has the session no more, and may wait for the end of a turn there
		return l.own
	case ends && s.at() != l: // the session is at another node; see endsAtLast
		return s
	}
	if s == nil || s.at() != l || l.leaving[s.id] != nil && seqIn(m.Meta(), acp.MetaKey, "seq") > 0 {
		return nil
	}
	if string(m.UpdateKind()) == "subagent_update" {
		l.noteChildLocked(rawjson.MemberString(m.Update(), "sessionId"), s)
	}
	return s
}

// noteChildLocked notes a subagent of a session. Client.mu is held.
func (l *line) noteChildLocked(child string, s *session) {
	if child == "" || child == s.id {
		return
	}
	l.children[child] = s.id
	for one := range l.children {
		if len(l.children) <= maxChildren {
			break
		}
		if one != child {
			delete(l.children, one)
		}
	}
}

// forgetLocked forgets what is known of a session that the client leaves: its subagents, and what its agent asks,
// which is asked again when the client opens it again. It returns the ids of that. Client.mu is held.
func (l *line) forgetLocked(s *session) (asks []int64) {
	maps.DeleteFunc(l.children, func(_, of string) bool { return of == s.id })
	for n, a := range l.c.asks {
		if a.line == l && a.session == s {
			delete(l.c.asks, n)
			l.asks--
			asks = append(asks, n)
		}
	}
	return asks
}

// made takes the answer to a request that makes a session.
func (l *line) made(q *viewer.Request, res *acp.Message) {
	id := rawjson.MemberString(res.Result(), "sessionId")
	if res.Err() != nil || id == "" {
		q.Forward(nil, res)
		return
	}
	c := l.c
	s := newSession(c, l, id)
	s.open = true
	s.saw(res.Result())
	c.mu.Lock()
	had, full := c.sessions[id], len(c.sessions) >= maxSessions
	if had == nil && !full {
		c.sessions[id] = s
	}
	c.mu.Unlock()
	switch {
	case had != nil:
		q.Fail(nil, problem.New(problem.SessionAlreadyExists, "%s has made a session with the id %q, which this connection has at %s: open it on another connection", l.node, id, had.at().node))
	case full:
		q.Fail(nil, problem.New(problem.TooManyRequests, "%s has made the session %q, and this connection has %d open: open it on another one", l.node, id, maxSessions))
	default:
		c.g.noteMade(id, l.node)
		c.Created(q, s, l.signed(res.Result()))
	}
}

// opened answers a session/load or session/resume when the client was given what came
// before.
func (c *Client) opened(q *viewer.Request, s *session, result json.RawMessage) {
	s.saw(result)
	last := s.log.Appended()
	if c.Shape() == acp.Inline {
		q.ResultBehind(s, last, result)
		return
	}
	seen := s.reached()
	c.begin(func() {
		c.AwaitEntry(c.ctx, s, last, replayBound)
		if seen > 0 && c.Shape() == acp.PerSession {
			result = rawjson.SetMember(result, fmt.Append(nil, seen), "_meta", acp.MetaKey, "replayedSeq")
		}
		q.Result(nil, result)
	})
}

// signed adds to the answer that opens a session where it is, and what its agent can: what
// the hub said in its own initialize is not about one agent.
func (l *line) signed(result json.RawMessage) json.RawMessage {
	l.c.mu.Lock()
	caps, watches := l.caps, l.c.watch
	l.c.mu.Unlock()
	result = rawjson.SetMember(result, rawjson.AppendQuoted(nil, l.node), "_meta", acp.MetaKey, "node")
	if len(caps) > 0 && !watches { // to who watches the node says nothing of an agent
		result = rawjson.SetMember(result, caps, "_meta", acp.MetaKey, "agentCapabilities")
	}
	return result
}

// answered takes the answer to a request that is no part of its session's events, and was asked at a place.
func (l *line) answered(q *viewer.Request, id string, at place, res *acp.Message) {
	c := l.c
	switch q.Method() {
	case acp.MethodSessionFork:
		l.made(q, res)
		return
	case "_sandboxagent/session/pending":
		if res.Err() == nil {
			q.Result(nil, l.pending(res.Result()))
			return
		}
	default:
		if res.Err() != nil || !leaves(q.Method()) {
			break
		}
		if q.Method() == acp.MethodSessionDelete {
			c.g.ForgetMade(id)
		}
		c.mu.Lock()
		s := c.sessions[id]
		if s == nil || s.at() != l {
			c.mu.Unlock()
			break
		}
		asks := l.forgetLocked(s)
		s.left = s.opens > 0 // the client wants it again behind this
		again := s.left || s != at.s || s.wanted > at.n
		if !again {
			delete(c.sessions, id) // who acts on it again opens it again
		}
		c.mu.Unlock()
		if again { // the client may be yet to read it, and is asked it anew
			s.withdraw(asks)
		}
		if at.s == s {
			s.leaves(at.n)
		}
		last := s.log.Appended()
		c.begin(func() { // what came before is shown before
			c.AwaitEntry(c.ctx, s, last, replayBound)
			q.Forward(nil, res)
			if !again {
				c.Detach(s)
			}
		})
		return
	}
	q.Forward(nil, res)
}

// gone is told of a session that could not be opened again behind what the client has of
// it when the node was back, or that was refused to the client. Where the client has asked to open it otherwise, too, the answer to that says whether
// it goes on.
func (l *line) gone(id string, why *acp.Error, refused bool) {
	l.c.mu.Lock()
	s := l.c.sessions[id]
	if s == nil || s.at() != l {
		l.c.mu.Unlock()
		return
	}
	others := s.opens
	if refused {
		others--
	}
	if others > 0 {
		s.open = false
	} else {
		l.c.loseLocked(s, fmt.Sprintf("%s was away and does not go on with it: %s", l.node, why.Message))
	}
	l.c.mu.Unlock()
	l.interrupt(s, l, why)
}

// interrupt ends the client's turns in a session that this connection does not go on with, and
// that is at another one now or still at this: in version 2 of the protocol no request is open
// that could be answered. The turn of a client of version 1 ends with its request.
func (l *line) interrupt(s *session, at *line, why *acp.Error) {
	for _, m := range l.conn.Interrupt(s.id, why) { // it may know how the newest ended, and would tell that as well
		s.show(l.ctx, at, m)
	}
	s.fails(s, why)
}

// fails tells the client, where it has a session now, of all its turns in this one that they have failed.
func (s *session) fails(now *session, why *acp.Error) {
	for _, t := range s.owes() {
		for _, m := range s.at().conn.Failed(s.id, t.name, why) {
			now.show(s.c.ctx, now.at(), m)
		}
	}
}

// settle tells the client how its turns ended in a session that was lost, as soon as nothing is left by which that is opened again: nothing more
// of them comes.
func (c *Client) settle(s *session) {
	c.mu.Lock()
	why, now := c.lostLocked(s), s
	if anew := c.openLocked(s.id); s.over != nil && anew != nil {
		now = anew
	}
	waits := why == nil || s.over == nil && s.awaitsLocked()
	c.mu.Unlock()
	switch {
	case waits || s.at() == nil:
	case now != s:
		s.fails(now, viewer.ErrorOf(why))
	default:
		s.at().interrupt(s, s.at(), viewer.ErrorOf(why))
	}
}

// loseLocked notes that the connection has not got all of a session. What it has is still
// given to the client.
func (c *Client) loseLocked(s *session, why string) {
	delete(c.sessions, s.id)
	if had, ok := c.lost[s.id]; !ok || had.s != s {
		c.lost[s.id] = lost{s: s, why: why}
	}
}

// leaves reports whether a client that asks for a method leaves the session.
func leaves(method string) bool {
	switch method {
	case acp.MethodSessionClose, acp.MethodSessionDelete, methodDetach, "_sandboxagent/session/terminate":
		return true
	}
	return false
}

// abandon has a session that was lost not be opened again when its client is about to ask a node to leave it. What came of it is still
// given to the client.
func (c *Client) abandon(method string, m *acp.Message) {
	if !leaves(method) {
		return
	}
	at, _ := selectionIn(m.Meta())
	c.mu.Lock()
	var s *session
	if had := c.lost[m.Session()].s; had != nil && (at.name == "" || at.name == had.at().node || had.owner != nil && at.name == had.owner.Node) {
		s = c.overLocked(m.Session())
	}
	c.mu.Unlock()
	if s == nil {
		return
	}
	c.settle(s)
	c.detachBehind(s)
}

// lostLocked says why what is asked of a session cannot be sent: the connection has not got all of it. It is nil for one
// that it has. Client.mu is held.
func (c *Client) lostLocked(s *session) error {
	if s.over != nil {
		return s.over
	}
	gone, is := c.lost[s.id]
	if !is || gone.s != s {
		return nil
	}
	return problem.New(problem.NodeOffline, "what session %q has said meanwhile did not reach this connection, because %s: open it with session/load or session/resume, then go on", s.id, gone.why)
}

// openLocked returns the session of the connection with the id, also one that was lost; nil for none. Client.mu is held.
func (c *Client) openLocked(id string) *session {
	if s := c.sessions[id]; s != nil {
		return s
	}
	return c.lost[id].s
}

// over answers what waits for a line that has ended.
func (l *line) over(err error) {
	c := l.c
	l.withdraw() // first: who opens one of its sessions anew is asked anew
	c.mu.Lock()
	l.ended = true
	if c.lines[l.node] == l {
		delete(c.lines, l.node)
	}
	calls, greeted := l.calls, l.caps != nil
	l.calls = map[acp.ID]call{}
	waits := map[acp.ID]bool{l.untaken: true} // for the connection to take them
	for len(l.out) > 0 {
		if m := <-l.out; m.IsRequest() { // the answers to the node's have ids of its own
			waits[m.ID()] = true
		}
	}
	var left []*session
	for _, s := range c.sessions {
		if s.at() == l {
			left = append(left, s)
		}
	}
	for _, s := range left {
		c.loseLocked(s, "the connection to "+l.node+" ended: "+errText(err))
	}
	c.mu.Unlock()
	if c.ctx.Err() != nil {
		return // nobody is told any more
	}
	refused := errOf(l.node, err)
	why := viewer.ErrorOf(refused)
	lost := viewer.ErrorOf(unknown(l.node, refused))
	for _, s := range left {
		l.interrupt(s, l, lost)
	}
	for id, open := range calls {
		res := acp.NewError(id, lost)
		if waits[id] || !greeted { // the node was not sent it
			res = acp.NewError(id, why)
		}
		open.answer(&res)
	}
	c.detachBehind(l.own)
}

// errOf is what a request is answered with whose line has ended.
func errOf(node string, err error) error {
	if _, ok := errors.AsType[*acp.Error](err); ok { // the node has said why
		return err
	}
	if p, ok := errors.AsType[*problem.Error](err); ok {
		return p
	}
	return problem.Wrap(problem.NodeOffline, err, "the connection to %s broke", node)
}

// unknown says of what a node was sent that it may have been done.
func unknown(node string, err error) error {
	p, ok := errors.AsType[*problem.Error](err)
	if !ok {
		return err
	}
	told := p.DoneUnknown()
	told.Detail += "; whether " + node + " has done what was asked is not known"
	return told
}

func errText(err error) string {
	if err == nil {
		return "it was closed"
	}
	return err.Error()
}
