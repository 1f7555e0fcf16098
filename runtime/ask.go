package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// ask is a request of an agent that waits for somebody's answer. It does not
// change once it is open.
type ask struct {
	id      int64  // what clients see
	agentID acp.ID // what the agent sees
	method  string
	params  json.RawMessage // kept for questions and the list of open asks
	session *Session        // nil for a request of no session
	proc    *proc
	seq     uint64
	at      time.Time

	span    Span       // of one for a person
	answers [][]string // given to earlier pieces of a question asked piece by piece
}

// Methods of agents that ask.
const (
	methodPermission = "session/request_permission"
	methodElicit     = "elicitation/create"
	methodQuestion   = acp.MethodRequestQuestion
	methodCancelReq  = "$/cancel_request"
)

// forPerson reports whether the request is for a person, and so listed as
// pending and answered as cancelled with its turn.
func (a *ask) forPerson() bool {
	switch a.method {
	case methodPermission, methodElicit, methodQuestion:
		return true
	}
	return false
}

// cancelledAnswer is the result that tells the agent nobody will decide.
func (a *ask) cancelledAnswer() []byte {
	switch a.method {
	case methodPermission:
		return []byte(`{"outcome":{"outcome":"cancelled"}}`)
	case methodElicit:
		return []byte(`{"action":"cancel"}`)
	case methodQuestion:
		return []byte(`{"outcome":"cancelled","answers":[]}`)
	}
	return nil
}

// ask records a request of the agent. It runs on the pump and reports whether
// something was appended.
func (s *Session) ask(p *proc, m *acp.Message) bool {
	refuse := func(e *acp.Error) bool {
		r := acp.NewError(m.ID(), e)
		p.trySend(r.Frame())
		return false
	}
	if s.hostAnswers(m.Method()) {
		s.askHost(p, m)
		return false
	}
	if !s.anybodyCan(m.Method()) {
		return refuse(acp.Errorf(acp.CodeMethodNotFound, "no attached client offers %s", m.Method()))
	}
	a := &ask{
		id: s.r.nextAsk(), agentID: m.ID(), method: m.Method(),
		params: bytes.Clone(m.Params()), session: s, proc: p, at: time.Now(),
	}
	frame := m.AppendRewritten(make([]byte, 0, len(m.Frame())+32), acp.IntID(a.id), s.id)
	s.mu.Lock()
	t := s.turn
	s.mu.Unlock()
	around := context.Background()
	if t != nil {
		around = t.span.Context()
	}
	a.observe(around) // before anybody else can find it
	s.r.mu.Lock()
	s.r.asks[a.id] = a
	s.r.mu.Unlock()
	s.asksMu.Lock()
	defer s.asksMu.Unlock()
	if len(s.asks) >= maxAsks {
		s.r.forgetAsk(a.id)
		a.span.End(Outcome{Result: Dropped})
		return refuse(acp.Errorf(acp.CodeInternal, "the session has %d open requests already", maxAsks))
	}
	s.recordAskLocked(a, frame)
	return true
}

// observe begins the span of a request for a person.
func (a *ask) observe(ctx context.Context) {
	if a.span = (noSpan{}); !a.forPerson() {
		return
	}
	w := Work{Name: a.method, Agent: a.proc.agent.id}
	if a.session != nil {
		w.Session = a.session.id
	}
	a.span = a.proc.agent.r.watch.Begin(ctx, w)
}

// decision is what a person's response m says, in one word.
func (a *ask) decision(m *acp.Message) Outcome {
	if e := m.Err(); e != nil {
		return outcomeOf(e)
	}
	res := m.Result()
	if action := rawjson.MemberString(res, "action"); action != "" { // of an elicitation
		return Outcome{Result: action}
	}
	if rawjson.MemberString(res, "outcome", "outcome") != "selected" {
		if outcome := rawjson.MemberString(res, "outcome"); outcome != "" { // of a question
			return Outcome{Result: outcome}
		}
		return Outcome{Result: Cancelled}
	}
	chosen := rawjson.MemberString(res, "outcome", "optionId")
	options, _ := rawjson.Member(a.params, "options")
	for _, o := range rawjson.Elements(options) {
		if rawjson.MemberString(o, "optionId") == chosen {
			return Outcome{Result: rawjson.MemberString(o, "kind")}
		}
	}
	return Outcome{Result: "answered"}
}

// recordAskLocked appends the ask and opens it. Readers see it with the next
// flush, so nobody can answer it before it is open.
func (s *Session) recordAskLocked(a *ask, frame []byte) {
	a.seq = s.log().Append(journal.Ask, journal.Everyone, frame)
	s.asks[a.seq] = a
}

// anybodyCan reports whether an attached client offers the method. With nobody
// attached the request waits for somebody, if it is one that clients know.
func (s *Session) anybodyCan(method string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for f := range s.feeds {
		if f.client.caps.can(method) {
			return true
		}
	}
	_, known := acp.LookupMethod(method)
	return len(s.feeds) == 0 && (known || method == methodQuestion)
}

// nextAsk returns the id by which clients know a request.
func (r *Runtime) nextAsk() int64 {
	id, err := r.askIDs.take()
	if err != nil {
		r.log.Error("ids of requests may repeat after a restart", "err", err)
	}
	return id
}

func (r *Runtime) forgetAsk(id int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.asks, id)
}

// answer takes a client's response to a request it was given. What nobody waits
// for, or what the client was never given, is dropped.
func (r *Runtime) answer(c *Client, m *acp.Message) {
	id, ok := m.ID().Int()
	if !ok {
		return
	}
	r.mu.Lock()
	a := r.asks[id]
	r.mu.Unlock()
	if a == nil || !c.mayAnswer(a) {
		r.log.Debug("response to no open request", "client", c.id, "id", string(m.ID()))
		return
	}
	if a.session != nil {
		a.session.log().Append(journal.Client, c.num, m.Frame())
		a.session.active.Store(time.Now().UnixMilli())
	}
	result, more := r.interpret(c, a, m)
	if !r.settle(a, c.num, a.decision(m)) {
		return
	}
	if more != nil {
		r.askOn(a, more)
		return
	}
	var frame []byte
	if result != nil {
		n := acp.NewResult(a.agentID, result)
		frame = n.Frame()
	} else {
		frame = m.AppendRewritten(nil, a.agentID, "")
	}
	a.proc.trySend(frame)
}

// settle closes the ask and tells everybody but winner who may hold it. It
// reports whether this call closed it.
func (r *Runtime) settle(a *ask, winner journal.Recipient, outcome Outcome) bool {
	r.mu.Lock()
	open := r.asks[a.id] == a
	delete(r.asks, a.id)
	r.mu.Unlock()
	if !open {
		return false
	}
	a.span.End(outcome)
	n := acp.NewNotification(methodCancelReq, append(append([]byte(`{"requestId":`), acp.IntID(a.id)...), '}'))
	if a.session == nil {
		for _, c := range a.proc.clients() {
			if c.num != winner {
				c.post(journal.AskDone, n.Frame())
			}
		}
		return true
	}
	s := a.session
	s.asksMu.Lock()
	delete(s.asks, a.seq)
	s.asksMu.Unlock()
	s.log().Append(journal.AskDone, journal.Except(winner), n.Frame())
	s.flush()
	return true
}

// dropAsks closes the open asks for people and answers the agent that they were
// cancelled.
func (s *Session) dropAsks(p *proc) {
	s.closeAsks(p, (*ask).forPerson, Cancelled)
}

// closeAsks closes the open asks that which chooses. With p the agent is
// answered; without, its process is gone.
func (s *Session) closeAsks(p *proc, which func(*ask) bool, result string) {
	s.asksMu.Lock()
	if len(s.asks) == 0 {
		s.asksMu.Unlock()
		return
	}
	open := make([]*ask, 0, len(s.asks))
	for _, a := range s.asks {
		if which(a) {
			open = append(open, a)
		}
	}
	s.asksMu.Unlock()
	for _, a := range open {
		if s.r.settle(a, 0, Outcome{Result: result}) && p != nil {
			p.trySend(a.cancelled())
		}
	}
}

func every(*ask) bool { return true }

// cancelled is the frame that tells the agent nobody will answer.
func (a *ask) cancelled() []byte {
	if a.forPerson() {
		m := acp.NewResult(a.agentID, a.cancelledAnswer())
		return m.Frame()
	}
	m := acp.NewError(a.agentID, acp.Errorf(acp.CodeCancelled, "the request was cancelled"))
	return m.Frame()
}

// dropAsks closes the open asks of no session: nobody takes their answers.
func (p *proc) dropAsks() {
	r := p.agent.r
	var open []*ask
	r.mu.Lock()
	for _, a := range r.asks {
		if a.proc == p && a.session == nil {
			open = append(open, a)
		}
	}
	r.mu.Unlock()
	for _, a := range open {
		r.settle(a, 0, Outcome{Result: Dropped})
	}
}

// askWithdrawn handles the agent's $/cancel_request for one of its requests.
func (s *Session) askWithdrawn(p *proc, m *acp.Message) bool {
	p.withdraw(m)
	return false
}

// withdraw closes the ask that the agent no longer wants an answer to, and
// answers it as cancelled, as JSON-RPC wants every request answered.
func (p *proc) withdraw(m *acp.Message) {
	raw, ok := rawjson.Member(m.Params(), "requestId")
	if !ok {
		return
	}
	if p.withdrawFromHost(raw) {
		return
	}
	r := p.agent.r
	r.mu.Lock()
	var found *ask
	for _, a := range r.asks {
		if a.proc == p && string(a.agentID) == string(raw) {
			found = a
		}
	}
	r.mu.Unlock()
	if found != nil && r.settle(found, 0, Outcome{Result: Withdrawn}) {
		e := acp.NewError(found.agentID, acp.Errorf(acp.CodeCancelled, "cancelled"))
		p.trySend(e.Frame())
	}
}

// connectionMessage routes a message of no session: to the connections that
// were opened with this process, and what concerns the work in hand to the
// sessions whose turn runs.
func (p *proc) connectionMessage(m *acp.Message) {
	switch {
	case m.Method() == methodCancelReq:
		p.withdraw(m)
	case m.IsRequest():
		p.askConnections(m)
	case m.Method() == "_sandboxagent/agent/unparsed":
		n := 0
		p.mu.Lock()
		sessions := make([]*Session, 0, len(p.sessions))
		for _, s := range p.sessions {
			sessions = append(sessions, s)
		}
		p.mu.Unlock()
		for _, s := range sessions {
			s.mu.Lock()
			running := s.turn != nil
			s.mu.Unlock()
			if running {
				s.log().Append(journal.Notice, journal.Everyone, m.Frame())
				s.flush()
				n++
			}
		}
		p.agent.r.log.Warn("agent wrote a line that is no message", "agent", p.agent.id, "sessions", n)
		if n > 0 {
			return
		}
		fallthrough
	default:
		for _, c := range p.clients() {
			c.post(journal.Notice, m.Frame())
		}
	}
}

// askConnections gives a request of no session to the process's connections.
func (p *proc) askConnections(m *acp.Message) {
	r := p.agent.r
	a := &ask{id: r.nextAsk(), agentID: m.ID(), method: m.Method(), params: bytes.Clone(m.Params()), proc: p, at: time.Now()}
	frame := m.AppendRewritten(nil, acp.IntID(a.id), "")
	var to []*Client
	for _, c := range p.clients() {
		if c.caps.can(a.method) {
			to = append(to, c)
		}
	}
	if len(to) == 0 {
		e := acp.NewError(m.ID(), acp.Errorf(acp.CodeMethodNotFound, "no connected client offers %s", m.Method()))
		p.trySend(e.Frame())
		return
	}
	a.observe(context.Background())
	r.mu.Lock()
	r.asks[a.id] = a
	r.mu.Unlock()
	for _, c := range to {
		c.post(journal.Ask, frame)
	}
}

// clients returns the connections that were opened with this process, or are
// attached to a session that it serves.
func (p *proc) clients() []*Client {
	var out []*Client
	for _, c := range p.agent.r.allClients() {
		if p.concerns(c) {
			out = append(out, c)
		}
	}
	return out
}

func (p *proc) concerns(c *Client) bool {
	return c.proc.Load() == p || slices.ContainsFunc(c.attached(), func(s *Session) bool { return s.on(p) })
}
