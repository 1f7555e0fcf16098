package relay

import (
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/version"
	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
	"sandboxagent.dev/sandbox-agent/runtime/observe"
	"sandboxagent.dev/sandbox-agent/runtime/viewer"
)

const (
	maxLines    = 256  // nodes of one connection; more are refused
	maxSessions = 1024 // that one connection has open; more are refused
)

// Client is the connection of one ACP client to the hub. Its streams are those of a
// [viewer.Client], which has no logs of its own here but what came from the nodes lately.
type Client struct {
	*viewer.Client
	g       *Gateway
	token   store.Token
	onClose func(id string)
	two     bool // it speaks version 2 of the protocol

	ctx  context.Context // done when the connection has ended
	end  context.CancelFunc
	work sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	agent    string      // that the connection names, "" for none
	hello    acp.Message // what nodes are sent as initialize
	notices  bool        // the client knows notifications of the gateway's own
	turns    bool        // it wants to know how turns end
	watch    bool        // it only looks
	asked    bool        // something other than initialize
	lines    map[string]*line
	sessions map[string]*session // by their ids
	lost     map[string]lost     // sessions of which it has not got all; bounded as sessions are
	asks     map[int64]*ask      // open requests of agents, by the ids that the client knows
	lastAsk  int64
	lastCall int64
}

var _ acp.Client = (*Client)(nil)

// lost is a session that was open, and why it is no more.
type lost struct {
	s   *session
	why string
}

// greetLocked takes what an initialize says of the client. Nodes are sent the client's own,
// with the agent that it named elsewhere. One that may only read names none, and is one that watches: a node
// starts no agent for it, and opens no session that is closed. Nodes of earlier versions start that of the session.
func (c *Client) greetLocked(m acp.Message, choice version.Choice) {
	params := rawjson.DeleteMember(m.Params(), "_meta", acp.MetaKey, "node")
	caps, _ := rawjson.Member(choice.Params, "clientCapabilities")
	read, drives := viewer.ReadCapabilities(caps), c.token.Scope.Allows(store.ScopeDrive)
	c.notices, c.turns, c.watch = read.WantsNotices(), read.WantsTurns(), read.Watch || !drives
	if !drives { // no agent is to be started, or installed, for who may only read
		params = rawjson.DeleteMember(params, "_meta", acp.MetaKey, "agent")
		c.agent = ""
	} else if name := rawjson.MemberString(m.Meta(), acp.MetaKey, "agent"); name != "" {
		c.agent = name
	} else if c.agent != "" {
		params = rawjson.SetMember(params, rawjson.AppendQuoted(nil, c.agent), "_meta", acp.MetaKey, "agent")
	}
	if !drives { // no agent is to wait for its answers
		for _, place := range []string{"clientCapabilities", "capabilities"} {
			for _, path := range [][]string{{"fs"}, {"terminal"}, {"elicitation"}, {"_meta", acp.MetaKey, "requestQuestion"}} {
				params = rawjson.DeleteMember(params, append([]string{place}, path...)...)
			}
		}
		place := "clientCapabilities"
		if choice.Version == version.Two {
			place = "capabilities"
		}
		params = rawjson.SetMember(params, []byte("true"), place, "_meta", acp.MetaKey, "watch")
		if !c.notices { // who asks for nothing of a gateway's own is told nothing of it
			params = rawjson.SetMember(params, []byte("false"), place, "_meta", acp.MetaKey, "notices")
		}
	}
	c.two = choice.Version == version.Two
	c.hello = acp.NewRequest(helloID, acp.MethodInitialize, params)
}

// SetShape decides how events travel. The inline dialect does not carry version 2.
func (c *Client) SetShape(shape acp.Shape) error {
	if shape == acp.Inline && c.two {
		return problem.New(problem.InvalidRequest, "this connection speaks version 2 of the protocol, which the inline dialect does not carry: go on with the header of the standard dialect, or initialize with protocolVersion 1")
	}
	return c.Client.SetShape(shape)
}

// Send implements [acp.Client].
func (c *Client) Send(ctx context.Context, m acp.Message) error {
	c.Touch()
	c.take(ctx, &m, nil)
	return nil
}

// Call implements [acp.Client].
func (c *Client) Call(ctx context.Context, m acp.Message) (<-chan acp.Reply, error) {
	c.Touch()
	sink := make(chan acp.Reply, 1)
	c.take(ctx, &m, sink)
	return sink, nil
}

// Stream implements [acp.Client].
func (c *Client) Stream(id string, after *uint64) (acp.Stream, error) {
	st, err := c.Client.Stream(id, after)
	if err != nil {
		return nil, err
	}
	return st, nil
}

// AwaitWritten implements [acp.Client].
func (c *Client) AwaitWritten(ctx context.Context, r acp.Reply, bound time.Duration) uint64 {
	c.mu.Lock()
	var s viewer.Session // without a value for none
	if known := c.sessions[r.Session]; known != nil {
		s = known
	} else if known := c.lost[r.Session].s; known != nil {
		s = known
	}
	c.mu.Unlock()
	return c.AwaitEntry(ctx, s, r.Seq-1, bound) // the response itself is not on the stream
}

// Close ends the connection. Its sessions go on at their nodes.
func (c *Client) Close() {
	if !c.Client.Close() {
		return
	}
	c.g.forget(c)
	c.end()
	if c.onClose != nil {
		c.onClose(c.ID())
	}
}

// tend ends the connection when its token is worth nothing any more, or its client is gone,
// and then waits for all that belongs to it.
func (c *Client) tend(over <-chan struct{}) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for c.ctx.Err() == nil {
		select {
		case <-over:
			c.Close()
		case <-tick.C:
			if c.Abandoned(abandonedAfter) {
				c.Close()
			}
			for _, s := range c.Attached() {
				s.(*session).forgetWritten()
			}
		case <-c.ctx.Done():
		}
	}
	c.mu.Lock()
	c.closed = true
	lines := c.lines
	c.lines = map[string]*line{}
	c.mu.Unlock()
	for _, l := range lines {
		l.end(errEnded)
	}
	c.work.Wait()
}

func (c *Client) take(ctx context.Context, m *acp.Message, sink chan<- acp.Reply) {
	switch {
	case m.IsResponse():
		c.answered(m)
	case m.IsNotification():
		c.notified(ctx, m)
	default:
		q := c.Accept(m, sink, func() observe.Span { return c.g.begin(ctx, m) })
		if q == nil {
			return
		}
		if err := c.request(q, m); err != nil {
			q.Fail(nil, err)
		}
	}
}

// begin begins the span of a request, in the trace that it names or that it has come with.
func (g *Gateway) begin(ctx context.Context, m *acp.Message) observe.Span {
	if g.observer == nil {
		return observe.NoSpan{}
	}
	return g.observer.Begin(ctx, observe.Work{Name: m.Method(), Session: m.Session(), Meta: m.Meta()})
}

// request handles a request; the error is its answer.
func (c *Client) request(q *viewer.Request, m *acp.Message) error {
	if need := needed(q.Method()); !c.token.Scope.Allows(need) {
		return problem.New(problem.PermissionDenied, "%s needs a token with the scope %s, and this one has %s", q.Method(), need, c.token.Scope)
	}
	if q.Method() == acp.MethodInitialize {
		return c.initializeAgain(q, m)
	}
	c.mu.Lock()
	c.asked = true
	c.mu.Unlock()
	if m.HasSession() && m.Session() == "" {
		return acp.Errorf(acp.CodeInvalidParams, "params.sessionId is empty")
	}
	switch q.Method() {
	case methodMove, acp.MethodSessionNew:
		c.mu.Lock()
		watches := c.watch
		c.mu.Unlock()
		if watches {
			return problem.New(problem.PermissionDenied, "this connection only watches: open another one without watch for %s", q.Method())
		}
	}
	switch q.Method() {
	case acp.MethodSessionList:
		return c.list(q, m)
	case acp.MethodSessionNew:
		return c.newSession(q, m)
	case acp.MethodSessionLoad, acp.MethodSessionResume:
		return c.openSession(q, m)
	case methodMove:
		return c.moveSession(q, m)
	}
	if m.HasSession() {
		return c.toSession(q, m)
	}
	if !c.token.Scope.Allows(store.ScopeDrive) { // a node of an earlier version would start its agent for that
		return acp.Errorf(acp.CodeInvalidParams, "%s needs params.sessionId, a string", q.Method())
	}
	return c.toNode(q, m)
}

// initializeAgain answers an initialize that is repeated, which version 2 allows until
// anything else is asked.
func (c *Client) initializeAgain(q *viewer.Request, m *acp.Message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.two {
		return acp.Errorf(acp.CodeInvalidRequest, "the connection is initialized already")
	}
	if err := version.Again(m, c.asked); err != nil {
		return err
	}
	choice, err := version.Choose(m, []int{version.Two})
	if err != nil {
		return err
	}
	c.greetLocked(*m, choice)
	q.Result(nil, c.g.initialized(c))
	return nil
}

// list answers session/list for all nodes.
func (c *Client) list(q *viewer.Request, m *acp.Message) error {
	at, err := selectionIn(m.Meta())
	if err != nil {
		return err
	}
	if bad := cmp.Or(acp.NeedTexts(m.Params(), "params", "cwd", "cursor"), acp.NeedOwnTexts(m.Meta(), "agent")); bad != nil {
		return bad
	}
	query := Query{
		Node: at.name, Labels: at.labels, Agent: rawjson.MemberString(m.Meta(), acp.MetaKey, "agent"),
		Cwd: rawjson.MemberString(m.Params(), "cwd"), Cursor: rawjson.MemberString(m.Params(), "cursor"),
	}
	if !c.begin(func() {
		page, err := c.g.fleet.List(c.ctx, c.token, query)
		if err != nil {
			q.Fail(nil, err)
			return
		}
		q.Encode(nil, page)
	}) {
		return errEnded
	}
	return nil
}

var errEnded = problem.New(problem.ClientNotFound, "the connection has ended: initialize again")

// begin runs f on a goroutine of the connection; false when that has ended.
func (c *Client) begin(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.beginLocked(f)
}

func (c *Client) beginLocked(f func()) bool {
	if c.closed {
		return false
	}
	c.work.Go(f)
	return true
}

// newSession has a node make a session.
func (c *Client) newSession(q *viewer.Request, m *acp.Message) error {
	at, err := selectionIn(m.Meta())
	if err != nil {
		return err
	}
	if bad := acp.NeedOwnTexts(m.Meta(), "agent"); bad != nil {
		return bad
	}
	agent := rawjson.MemberString(m.Meta(), acp.MetaKey, "agent")
	if agent == "" {
		c.mu.Lock()
		agent = c.agent
		c.mu.Unlock()
	}
	node, placed, err := c.g.place(c.token, at, agent, nil)
	if err != nil {
		return err
	}
	l, err := c.lineTo(node, agent)
	if err != nil {
		placed()
		return err
	}
	if err := l.call(q, m, func(res *acp.Message) {
		defer placed()
		l.made(q, res)
	}); err != nil {
		placed()
		return err
	}
	return nil
}

// openSession has a node load or resume a session. That a client sees what comes of it,
// the session is the connection's before the node answers.
func (c *Client) openSession(q *viewer.Request, m *acp.Message) error {
	if !m.HasSession() {
		return acp.Errorf(acp.CodeInvalidParams, "%s needs params.sessionId, a string", q.Method())
	}
	l, err := c.lineOf(m)
	if err != nil {
		return c.loadCopy(q, m, err)
	}
	s, fresh, err := c.attach(l, m)
	if err != nil {
		return err
	}
	own := m.Clone() // of those that wait
	c.open(q, s, &own, fresh, 0)
	if fresh {
		c.hear(s)
	}
	return nil
}

// open has the node of a session open it for the client, who is answered with that. Fresh says that it was none of the connection's
// before: where its node does not come a copy is shown in its place. What a node has refused because a move had begun is asked once more,
// where the session is then: again is its place then, else 0.
func (c *Client) open(q *viewer.Request, s *session, m *acp.Message, fresh bool, again uint64) {
	c.mu.Lock()
	s.opens++
	c.mu.Unlock()
	answered := func(refused *acp.Message) {
		c.mu.Lock()
		s.opens--
		s.open = s.open || refused == nil
		unwanted := refused != nil && s.opens == 0 && (s.left || !s.open) // else another request has opened it, or may yet
		var asks []int64
		if s.left = s.left && refused != nil; unwanted {
			s.over = refused.Err() // it is not gone on with: the client has it no more
			asks = c.forgetOpenLocked(s)
		}
		c.mu.Unlock()
		if unwanted {
			s.withdraw(asks)
			c.settle(s)
			c.detachBehind(s)
			c.refuse(s, refused)
		}
	}
	failed := func(err error) {
		res := acp.NewError("0", viewer.ErrorOf(err))
		answered(&res)
		q.Fail(nil, err)
	}
	if err := c.whenOpen(s, again, m, func(place uint64, refused *acp.Message) error {
		if refused != nil { // it is the connection's no more
			answered(refused)
			if err := c.openSession(q, m); err != nil {
				q.Fail(nil, err)
			}
			return nil
		}
		s.asked()
		at, sent := c.beginOpen(s), m
		if !c.token.Scope.Allows(store.ScopeDrive) {
			own := acp.NewRequest(m.ID(), m.Method(), watchingParams(m))
			sent = &own
		}
		opened := func(res *acp.Message) {
			defer c.endOpen(s, res.Err() == nil) // before it is followed it is known what waits
			switch {
			case again == 0 && c.hasLeft(s, at, res):
				c.open(q, s, m, fresh, place)
				c.mu.Lock()
				s.opens-- // only now: it is still wanted
				c.mu.Unlock()
			case res.Err() != nil:
				answered(res)
				if !fresh || s.log.Appended() > 0 || !c.begin(func() {
					if c.loadCopy(q, m, errAway(res)) != nil {
						q.Forward(nil, res)
					}
				}) {
					q.Forward(nil, res)
				}
			default:
				answered(nil)
				c.opened(q, s, at.signed(res.Result()))
			}
		}
		if err := at.call(q, sent, opened); err != nil {
			res := acp.NewError("0", viewer.ErrorOf(err))
			opened(&res)
		}
		return nil
	}, failed); err != nil {
		failed(err)
	}
}

// watchingParams are the params with which somebody opens a session who may only read:
// nothing in them changes the session or names a program, or a directory for one.
func watchingParams(m *acp.Message) json.RawMessage {
	o := rawjson.Object{}.String("sessionId", m.Session()).Raw("mcpServers", []byte("[]"))
	if from, ok := rawjson.Member(m.Params(), "replayFrom"); ok {
		o = o.Raw("replayFrom", from)
	}
	params := json.RawMessage(o.End())
	if after, ok := rawjson.Member(m.Meta(), acp.MetaKey, "after"); ok {
		params = rawjson.SetMember(params, after, "_meta", acp.MetaKey, "after")
	}
	return params
}

// acts reports whether a gateway attaches who sends a request with the method. The answer
// has its place among the session's events.
func acts(method string) bool {
	switch method {
	case acp.MethodSessionClose, acp.MethodSessionDelete, acp.MethodSessionFork:
		return false
	}
	return !strings.HasPrefix(method, viewer.Notices)
}

// changes reports whether a request ends or leaves a session, changes it without an event of its own, or copies it: it is done in its
// place among the others.
func changes(method string) bool {
	switch method {
	case acp.MethodSessionClose, acp.MethodSessionDelete, acp.MethodSessionFork, methodDetach,
		"_sandboxagent/session/set_metadata", "_sandboxagent/session/terminate":
		return true
	}
	return false
}

// toSession passes a request about a session on to its node.
func (c *Client) toSession(q *viewer.Request, m *acp.Message) error {
	id := m.Session()
	_, named := rawjson.Member(m.Meta(), acp.MetaKey, "node")
	if ends := q.Method() == acp.MethodSessionClose || q.Method() == acp.MethodSessionDelete; named || !ends {
		l, err := c.lineOfChild(m)
		if l != nil { // the node says what can be asked of a subagent
			l, err = c.lineTo(l.node, "")
		}
		if err != nil {
			return err
		}
		if l != nil {
			return l.call(q, m, func(res *acp.Message) { q.Forward(nil, res) })
		}
	}
	if !named && changes(q.Method()) {
		return c.changeSession(q, m)
	}
	own := m.Clone() // of those that wait
	c.mu.Lock()
	gone := c.lost[id].s
	awaited := gone != nil && gone.awaitsLocked()
	c.mu.Unlock()
	l, err := c.lineOf(m)
	switch {
	case acts(q.Method()) && (awaited || err == nil && gone != nil):
		return c.ask(q, gone, &own, 0)
	case err != nil:
		return err
	case !acts(q.Method()):
		before := c.placeOf(id)
		c.abandon(q.Method(), m)
		return l.call(q, m, func(res *acp.Message) { l.answered(q, id, before, res) })
	}
	s, fresh, err := c.attach(l, m)
	if err != nil {
		return err
	}
	if fresh {
		c.join(s, true)
	}
	err = c.ask(q, s, &own, 0)
	if fresh {
		c.hear(s)
	}
	return err
}

// changeSession passes on what changes a session, to where the session is on its way to: at the node that it leaves that
// would be of what is left there.
func (c *Client) changeSession(q *viewer.Request, m *acp.Message) error {
	own := m.Clone() // of those that wait
	return c.whenSettled(q, &own, place{}, "", func(at place) error {
		l, err := c.lineOf(&own)
		if err != nil {
			return err
		}
		term := c.termOf(own.Session())
		c.abandon(q.Method(), &own)
		return l.call(q, &own, func(res *acp.Message) { c.changed(q, l, &own, at, term, res) })
	})
}

// nodeOf returns the node that has a session, that of the connection's if it is one of those; "" if that is not known.
func (c *Client) nodeOf(id string) string {
	c.mu.Lock()
	s := c.sessions[id]
	c.mu.Unlock()
	if s != nil {
		return s.at().node
	}
	found, _ := c.g.find(c.token, id, "")
	return found.Node
}

// ask sends a request to the node of a session when it is open there. One that the node has refused because
// a move had begun is sent once more, to where the session is then: again is its place then, else 0.
func (c *Client) ask(q *viewer.Request, s *session, m *acp.Message, again uint64) error {
	failed := func(err error) { q.Fail(nil, err) }
	return c.whenOpen(s, again, m, func(place uint64, refused *acp.Message) error {
		if refused != nil {
			q.Forward(nil, refused)
			return nil
		}
		at, never := c.sends(s, place, m)
		if never {
			unbegun := c.neverBegan()
			q.Forward(nil, &unbegun)
			return nil
		}
		return at.call(q, m, func(res *acp.Message) {
			if again == 0 && c.hasLeft(s, at, res) {
				if err := c.ask(q, s, m, place); err != nil {
					failed(err)
				}
				return
			}
			if m.Method() != acp.MethodSessionPrompt {
				q.Forward(s, res)
				return
			}
			ends := s.begins(m, res, place)
			q.Forward(s, res)
			for _, end := range ends {
				s.show(c.ctx, s.at(), end)
			}
			c.settle(s)
		})
	}, failed)
}

// toNode passes a request about no session on to the node that it names, or the only one.
func (c *Client) toNode(q *viewer.Request, m *acp.Message) error {
	at, err := selectionIn(m.Meta())
	if err != nil {
		return err
	}
	node, err := c.g.sole(c.token, at)
	if err != nil {
		return err
	}
	l, err := c.lineTo(node, "")
	if err != nil {
		return err
	}
	return l.call(q, m, func(res *acp.Message) { q.Forward(nil, res) })
}

// notified passes a notification on. One that cannot be is written to the log: nobody
// waits for an answer.
func (c *Client) notified(ctx context.Context, m *acp.Message) {
	if m.Method() == acp.MethodCancelRequest {
		if id, ok := rawjson.Member(m.Params(), "requestId"); ok {
			if q := c.Request(acp.ID(id)); q != nil {
				q.Withdraw(ctx)
			}
		}
		return
	}
	err := error(problem.New(problem.PermissionDenied, "the token has the scope %s", c.token.Scope))
	if c.token.Scope.Allows(needed(m.Method())) {
		if !m.HasSession() {
			return // such as that it is initialized, which concerns no node
		}
		if m.Method() == acp.MethodSessionCancel {
			c.cancelHeld(m.Clone()) // first: they may be on their way in a moment
		}
		l, failed := c.lineForNews(m)
		if err = failed; err == nil {
			l.tellNode(m.Clone())
		}
	}
	if err != nil {
		c.g.log.Debug("a notification was not passed on", "client", c.ID(), "method", m.Method(), "err", err)
	}
}

// attach makes the session that a message names one of the connection; fresh says that it was not: then what is asked
// of it waits for hear. A session that was lost is one again.
func (c *Client) attach(l *line, m *acp.Message) (_ *session, fresh bool, err error) {
	id := m.Session()
	_, named := rawjson.Member(m.Meta(), acp.MetaKey, "node")
	c.mu.Lock()
	had := c.sessions[id]
	switch {
	case had != nil && (had.at() == l || !named): // it can have been moved since the line was looked for
		c.mu.Unlock()
		return had, false, nil
	case had != nil:
		c.mu.Unlock()
		return nil, false, problem.New(problem.Conflict, "this connection has a session with the id %q at %s: use another connection for that of %s", id, had.at().node, l.node)
	case len(c.sessions)+len(c.lost) >= maxSessions:
		c.mu.Unlock()
		return nil, false, problem.New(problem.TooManyRequests, "this connection has %d sessions open: detach from some, or use another connection", maxSessions)
	}
	s := newSession(c, l, id)
	s.moving = moveUnheard
	c.sessions[id] = s
	before := c.overLocked(id)
	c.mu.Unlock()
	c.attachInPlaceOf(before, s)
	return s, true, nil
}

// overLocked takes the session with the id from those that are lost, for the client opens it anew. It is nil if it is none of
// those. Client.mu is held.
func (c *Client) overLocked(id string) *session {
	lost, is := c.lost[id]
	if !is {
		return nil
	}
	lost.s.over = c.lostLocked(lost.s)
	delete(c.lost, id)
	return lost.s
}

// attachInPlaceOf attaches the client to a session in the place of a lost one, if there is one; what waits there is refused.
func (c *Client) attachInPlaceOf(before, s *session) {
	if before != nil {
		unread := c.Reached(before)
		c.Detach(before)
		s.putEnds(before.log.Whole(unread))
	}
	c.AttachFrom(s, 0)
	if before != nil {
		c.mu.Lock()
		over := before.over
		c.mu.Unlock()
		res := acp.NewError("0", viewer.ErrorOf(over))
		c.refuse(before, &res)
	}
}

// detach takes a session from the connection.
func (c *Client) detach(s *session) {
	c.mu.Lock()
	asks := c.forgetOpenLocked(s)
	c.mu.Unlock()
	s.withdraw(asks)
	c.detachBehind(s)
}

// detachBehind detaches the client from a session when what came of it was given to the client, such as how a turn ended.
func (c *Client) detachBehind(s *session) {
	last := s.log.Appended()
	c.begin(func() {
		c.AwaitEntry(c.ctx, s, last, replayBound)
		c.Detach(s)
	})
}

// forgetOpenLocked has a session be none that the connection has open, or opens again, while what came of it is still given to the client.
// It returns the ids of what its agent asks, see forgetLocked. Client.mu is held.
func (c *Client) forgetOpenLocked(s *session) (asks []int64) {
	if c.sessions[s.id] == s {
		delete(c.sessions, s.id)
		return s.at().forgetLocked(s)
	}
	if c.lost[s.id].s == s {
		c.overLocked(s.id)
	}
	return nil
}

// tell shows the client a notification of the hub's own, if it knows such.
func (c *Client) tell(method string, params []byte) {
	c.mu.Lock()
	wanted := c.notices
	c.mu.Unlock()
	if wanted {
		m := acp.NewNotification(method, params)
		c.Post(journal.Response, m.Frame()) // as it is
	}
}
