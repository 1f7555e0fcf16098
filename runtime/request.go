package runtime

import (
	"context"
	"sync/atomic"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// request is a client's request on its way to its one response.
type request struct {
	client *Client
	id     acp.ID
	method string
	sink   chan<- acp.Reply // inline; room for one
	agent  atomic.Int64     // its id at the agent, 0 before and for prompts
	proc   atomic.Pointer[proc]
	done   atomic.Bool
	span   Span // ends with the response; of a prompt the turn has one instead
}

// respond delivers the frame. A response of a session goes into the session's
// log, so it keeps its place among the updates; another goes to the
// connection's own.
func (q *request) respond(s *Session, frame []byte, timedOut bool, outcome Outcome) {
	if !q.done.CompareAndSwap(false, true) {
		return
	}
	q.span.End(outcome)
	c := q.client
	rep := acp.Reply{Frame: frame, TimedOut: timedOut}
	var log *journal.Log
	if s != nil {
		log = s.log()
	}
	c.mu.Lock()
	delete(c.requests, q.id)
	attached := s != nil && c.feedLocked(s) != nil
	if log != nil {
		// Under the lock, so that whoever attaches or detaches the client
		// either finds the entry or is seen here.
		to := c.num
		if !attached && q.sink == nil {
			to = journal.Nobody
		}
		rep.Session, rep.Seq = s.id, log.Append(journal.Response, to, frame)
	}
	c.mu.Unlock()
	if s != nil {
		s.flush()
	}
	switch {
	case q.sink != nil:
		q.sink <- rep
	case !attached:
		c.post(journal.Response, frame)
	}
}

// result answers with a raw result.
func (q *request) result(s *Session, raw []byte) {
	m := acp.NewResult(q.id, raw)
	q.respond(s, m.Frame(), false, outcomeOf(nil))
}

// encode answers with the encoding of v.
func (q *request) encode(s *Session, v any) {
	b, err := schema.Encode(v)
	if err != nil {
		q.fail(s, err)
		return
	}
	q.result(s, b)
}

// fail answers with err as a JSON-RPC error.
func (q *request) fail(s *Session, err error) {
	m := acp.NewError(q.id, callError(err))
	q.respond(s, m.Frame(), err == errRequestTimeout, outcomeOf(err))
}

// forward answers with the agent's response under the client's id.
func (q *request) forward(s *Session, res *acp.Message) {
	if p := q.proc.Load(); p != nil && !p.ownLogin {
		p.agent.learnAuth(q.method, res.Err())
	}
	outcome := outcomeOf(nil)
	if e := res.Err(); e != nil {
		outcome = outcomeOf(e)
	}
	q.respond(s, res.AppendRewritten(make([]byte, 0, len(res.Frame())+len(q.id)), q.id, ""), false, outcome)
}

// toAgent sends the client's request to p and hands what comes back to done,
// which runs on the pump and must not wait.
func (q *request) toAgent(ctx context.Context, p *proc, m *acp.Message, session string, done func(res *acp.Message, err error)) {
	q.proc.Store(p)
	p.call(ctx, p.agent.r.o.RequestTimeout, func(id acp.ID) []byte {
		n, _ := id.Int()
		q.agent.Store(n)
		return m.AppendRewritten(make([]byte, 0, len(m.Frame())+32), id, session)
	}, done)
}
