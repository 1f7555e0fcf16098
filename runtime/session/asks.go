package session

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/runtime/agents"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
	"sandboxagent.dev/sandbox-agent/runtime/observe"
	"sandboxagent.dev/sandbox-agent/runtime/viewer"
)

// maxAsks bounds the requests of an agent that are open in a session, and those of a process that are of none; more are
// refused.
const maxAsks = 64

// ask is a request of an agent that waits for somebody's answer. But for who is asked it does not change
// once it is open. One of a session is closed under the session's mu, so that log,
// agent and state agree on who answered.
type ask struct {
	viewer.Ask
	agentID acp.ID   // what the agent sees
	session *Session // nil for a request of no session
	process *agents.Process
	seq     uint64 // in the session's log
	at      time.Time
	frame   []byte       // as clients are asked
	span    observe.Span // of one for a person

	to map[*viewer.Client]struct{} // who is asked what is of no session; guarded by the table's mu
}

// askTable knows the open requests of all agents by the ids that clients know.
type askTable struct {
	ids askIDs

	mu   sync.Mutex // held for nothing but its own fields
	open map[int64]*ask
}

// Open implements [viewer.Asks].
func (t *askTable) Open(id int64) (*viewer.Ask, bool) {
	a := t.find(id)
	if a == nil {
		return nil, false
	}
	return &a.Ask, true
}

func (t *askTable) find(id int64) *ask {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.open[id]
}

func (t *askTable) add(a *ask) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open[a.ID] = a
}

// remove reports whether the request was open until now.
func (t *askTable) remove(a *ask) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	was := t.open[a.ID] == a
	delete(t.open, a.ID)
	return was
}

// of returns the open requests of a process that match.
func (t *askTable) of(p *agents.Process, match func(*ask) bool) []*ask {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []*ask
	for _, a := range t.open {
		if a.process == p && match(a) {
			out = append(out, a)
		}
	}
	return out
}

// addOfNone opens a request of no session, unless its process has too many of them open.
func (t *askTable) addOfNone(a *ask) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, other := range t.open {
		if other.process == a.process && other.session == nil {
			n++
		}
	}
	if n >= maxAsks {
		return false
	}
	a.to = map[*viewer.Client]struct{}{}
	t.open[a.ID] = a
	return true
}

// addClient notes that a client is asked, and reports whether that is new and the request still open.
func (t *askTable) addClient(a *ask, c *viewer.Client) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, is := a.to[c]; is || t.open[a.ID] != a {
		return false
	}
	a.to[c] = struct{}{}
	maps.DeleteFunc(a.to, func(c *viewer.Client, _ struct{}) bool { // clients come and go while it waits
		select {
		case <-c.Done():
			return true
		default:
			return false
		}
	})
	return true
}

// newAsk returns a request of the agent that is not open yet. It may write a file.
func (set *Set) newAsk(p *agents.Process, m *acp.Message) *ask {
	return &ask{
		Ask:     viewer.Ask{ID: set.nextAskID(), Method: m.Method(), Params: bytes.Clone(m.Params())},
		agentID: m.ID(), process: p, at: time.Now(), span: observe.NoSpan{},
	}
}

func (set *Set) nextAskID() int64 {
	id, err := set.asks.ids.take()
	if err != nil {
		set.o.Logger.Error("ids of requests may repeat after a restart", "err", err)
	}
	return id
}

// observe begins the span of a request for a person, as part of the work of ctx.
func (a *ask) observe(ctx context.Context, o observe.Observer) {
	if !a.ForPerson() {
		return
	}
	a.span = o.Begin(ctx, observe.Work{Name: a.Method, Agent: a.process.Agent().ID(), Session: a.Session})
}

// cancelled is the answer that tells the agent that nobody will decide.
func (a *ask) cancelled() acp.Message {
	switch a.Method {
	case acp.MethodSessionRequestPermission:
		return acp.NewResult(a.agentID, []byte(`{"outcome":{"outcome":"cancelled"}}`))
	case acp.MethodElicitationCreate:
		return acp.NewResult(a.agentID, []byte(`{"action":"cancel"}`))
	case acp.MethodRequestQuestion:
		return acp.NewResult(a.agentID, []byte(`{"outcome":"cancelled","answers":[]}`))
	}
	return acp.NewError(a.agentID, acp.Errorf(acp.CodeCancelled, "the request was cancelled"))
}

// withdrawn tells the clients that the request is open no more.
func (a *ask) withdrawn() []byte {
	n := acp.NewNotification(acp.MethodCancelRequest, requestParams(a.ID))
	return n.Frame()
}

// ask opens a request of the session's agent, which the reader has brought. It reports
// whether something was appended.
func (s *Session) ask(l *link, m *acp.Message) bool {
	if s.hostAnswers(m.Method()) {
		s.askHost(l, m)
		return false
	}
	a := s.set.newAsk(l.p, m)
	a.session, a.Session = s, s.id
	frame := m.AppendRewritten(make([]byte, 0, len(m.Frame())+32), acp.IntID(a.ID), s.id)
	s.mu.Lock()
	if a.ForPerson() && s.m.link == l && s.m.ends() {
		// The cancel has met it on its way: it is answered as those that were open then.
		l.p.Put(a.cancelled())
		s.mu.Unlock()
		return false
	}
	if (a.ForPerson() || alters(a.Method)) && l.mayNotWorkLocked() { // nobody is to allow it, or to do it
		l.p.Put(a.cancelled())
		s.handleLocked(event{kind: works})
		return false
	}
	defer s.shownLeaving()
	var refused *acp.Error
	switch {
	case s.m.link != l, s.m.hosting == releasing, s.m.life == stopping && s.m.turn == nil:
		refused = acp.Errorf(acp.CodeCancelled, "the session is being closed")
	case !s.anybodyCanLocked(a.Method, a.Params):
		refused = acp.Errorf(acp.CodeMethodNotFound, "no attached client offers %s", a.Method)
	case len(s.asks) >= maxAsks:
		a.observe(context.Background(), s.set.o.Observer)
		a.span.End(observe.Outcome{Result: observe.Dropped})
		refused = acp.Errorf(acp.CodeInternal, "the session has %d open requests already", maxAsks)
	}
	if refused != nil {
		l.p.Put(acp.NewError(a.agentID, refused))
		return false
	}
	around := context.Background()
	if t := s.m.turn; t != nil {
		around = t.span.Context()
	}
	a.observe(around, s.set.o.Observer)
	s.openAskLocked(a, frame)
	return true
}

// openAskLocked appends the request and opens it. Readers see it with the next flush,
// so nobody can answer it before it is open.
func (s *Session) openAskLocked(a *ask, frame []byte) {
	s.set.asks.add(a)
	a.frame = frame
	a.seq = s.Log().Append(journal.Ask, journal.Everyone, frame)
	if s.asks == nil {
		s.asks = map[int64]*ask{}
	}
	s.asks[a.ID] = a
	s.m.asks = len(s.asks)
	s.lookAgainLocked()
}

// OpenAsk implements [viewer.Session].
func (s *Session) OpenAsk(seq uint64) (e journal.Entry, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, a := range s.asks {
		if a.seq == seq {
			return journal.NewEntry(seq, a.at, journal.Ask, journal.Everyone, a.frame), true
		}
	}
	return e, false
}

// anybodyCanLocked reports whether an attached client offers the method. With nobody
// attached the request waits for somebody, if it is one that clients know.
func (s *Session) anybodyCanLocked(method string, params json.RawMessage) bool {
	for f := range s.feeds {
		if f.Client().Capabilities().Can(method, params) {
			return true
		}
	}
	_, known := acp.LookupMethod(method)
	return !s.attendedLocked() && (known || method == acp.MethodRequestQuestion)
}

// closeAskLocked closes a request that is open, and tells those who may hold it.
func (s *Session) closeAskLocked(a *ask, to journal.Recipient, outcome observe.Outcome, x *after) {
	delete(s.asks, a.ID)
	s.m.asks = len(s.asks)
	s.m.rests()
	s.Log().Append(journal.AskDone, to, a.withdrawn()) // first: who sees that it is open no more finds it in the log
	s.set.asks.remove(a)
	a.span.End(outcome)
	x.flush = true
}

// closeAsksLocked closes the open requests that which chooses. With a link the agent is
// answered that they were cancelled; without, it is gone.
func (s *Session) closeAsksLocked(l *link, which func(*ask) bool, result string, x *after) {
	for _, a := range s.openAsksLocked() {
		if !which(a) {
			continue
		}
		s.closeAskLocked(a, journal.Everyone, observe.Outcome{Result: result}, x)
		if l != nil {
			l.p.Put(a.cancelled())
		}
	}
}

// openAsksLocked returns the open requests, oldest first.
func (s *Session) openAsksLocked() []*ask {
	out := make([]*ask, 0, len(s.asks))
	for _, a := range s.asks {
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b *ask) int { return int(a.seq) - int(b.seq) })
	return out
}

// answer takes a client's response to a request of the session's agent. The first
// that comes counts.
func (s *Session) answer(c *viewer.Client, a *ask, m *acp.Message) {
	result, more := a.Interpret(c.Capabilities(), m)
	var next *ask
	if more != nil { // the next piece of a question has an id of its own
		piece := *a
		piece.ID, piece.Answers, next = s.set.nextAskID(), more, &piece
		next.observe(a.span.Context(), s.set.o.Observer)
	}
	var x after
	s.mu.Lock()
	if s.asks[a.ID] != a {
		s.mu.Unlock()
		if next != nil {
			next.span.End(observe.Outcome{Result: observe.Dropped})
		}
		return
	}
	s.Log().Append(journal.Client, c.Number(), m.Frame())
	decision := a.Decision(m)
	s.closeAskLocked(a, journal.Except(c.Number()), decision, &x)
	s.noteGrantLocked(a, decision.Result, m, &x)
	switch {
	case next != nil:
		s.openAskLocked(next, next.Piece())
	case result != nil:
		a.process.Queue(acp.NewResult(a.agentID, result))
		x.queued(a.process)
	default:
		a.process.Queue(m.Rewritten(a.agentID, ""))
		x.queued(a.process)
	}
	s.unlock(&x)
	c.ForgetAsk(a.ID) // nobody tells it of what it has decided
}

// withdrawAsk closes a request that the agent no longer wants an answer to, and
// answers it as cancelled, as JSON-RPC wants every request answered.
func (s *Session) withdrawAsk(a *ask) {
	var x after
	s.mu.Lock()
	if s.asks[a.ID] == a {
		s.closeAskLocked(a, journal.Everyone, observe.Outcome{Result: observe.Withdrawn}, &x)
		a.process.Put(acp.NewError(a.agentID, acp.Errorf(acp.CodeCancelled, "cancelled")))
	}
	s.unlock(&x)
}

// Asks knows the open requests of agents, for those who read logs.
func (set *Set) Asks() viewer.Asks { return &set.asks }

// Answer takes a client's response to a request that it was given. What nobody waits
// for, or what the client was never given, is dropped.
func (set *Set) Answer(c *viewer.Client, m *acp.Message) {
	id, _ := m.ID().Int()
	a := set.asks.find(id)
	switch {
	case a == nil || !c.WasGiven(a.ID):
		set.o.Logger.Debug("response to no open request", "client", c.ID(), "id", string(m.ID()))
	case a.session == nil:
		if set.closeOfConnections(a, c, a.Decision(m)) {
			a.process.Put(m.Rewritten(a.agentID, ""))
			c.ForgetAsk(a.ID)
		}
	case c.Reads(a.session):
		a.session.answer(c, a, m)
	}
}

// Withdrawn handles the agent's $/cancel_request for one of its requests.
func (set *Set) Withdrawn(p *agents.Process, m *acp.Message) {
	if p.CancelHosted(m) {
		return
	}
	id, _ := rawjson.Member(m.Params(), "requestId")
	for _, a := range set.asks.of(p, func(a *ask) bool { return string(a.agentID) == string(id) }) {
		if a.session != nil {
			a.session.withdrawAsk(a)
		} else if set.closeOfConnections(a, nil, observe.Outcome{Result: observe.Withdrawn}) {
			p.Put(acp.NewError(a.agentID, acp.Errorf(acp.CodeCancelled, "cancelled")))
		}
	}
}

// AskConnections gives a request of no session to the clients that the process
// concerns, and later to those that it comes to concern.
func (set *Set) AskConnections(p *agents.Process, m *acp.Message) {
	can := func(c *viewer.Client) bool { return c.Capabilities().Can(m.Method(), m.Params()) }
	if !slices.ContainsFunc(set.o.Readers(p), can) {
		p.Put(acp.NewError(m.ID(), acp.Errorf(acp.CodeMethodNotFound, "no connected client offers %s", m.Method())))
		return
	}
	a := set.newAsk(p, m)
	a.frame = m.AppendRewritten(nil, acp.IntID(a.ID), "")
	a.observe(context.Background(), set.o.Observer)
	if !set.asks.addOfNone(a) {
		a.span.End(observe.Outcome{Result: observe.Dropped})
		p.Put(acp.NewError(m.ID(), acp.Errorf(acp.CodeInternal, "the agent has %d open requests of no session already", maxAsks)))
		return
	}
	for _, c := range set.o.Readers(p) { // anew: who came meanwhile has not seen it open
		set.askClient(a, c)
	}
}

// askLate gives the clients that are attached what the process that has just begun to serve the session has asked before of none.
func (s *Session) askLate() {
	if p := s.Process(); p != nil {
		for _, c := range s.Clients() {
			s.set.AskLate(c, p)
		}
	}
}

// AskLate gives a client that a process has come to concern what that has asked before of no session.
func (set *Set) AskLate(c *viewer.Client, p *agents.Process) {
	for _, a := range set.asks.of(p, func(a *ask) bool { return a.session == nil }) {
		set.askClient(a, c)
	}
}

func (set *Set) askClient(a *ask, c *viewer.Client) {
	if c.Capabilities().Can(a.Method, a.Params) && set.asks.addClient(a, c) {
		c.Post(journal.Ask, a.frame)
	}
}

// closeOfConnections closes a request of no session, and tells everybody but winner
// who may hold it. It reports whether this call closed it.
func (set *Set) closeOfConnections(a *ask, winner *viewer.Client, outcome observe.Outcome) bool {
	if !set.asks.remove(a) {
		return false
	}
	a.span.End(outcome)
	for c := range a.to { // as it is: it is open no more
		if c != winner {
			c.Post(journal.AskDone, a.withdrawn())
		}
	}
	return true
}

// ProcessEnded closes what a process has asked for no session: nobody takes the
// answers.
func (set *Set) ProcessEnded(p *agents.Process) {
	for _, a := range set.asks.of(p, func(a *ask) bool { return a.session == nil }) {
		set.closeOfConnections(a, nil, observe.Outcome{Result: observe.Dropped})
	}
}
