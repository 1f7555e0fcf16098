package viewer

import (
	"context"
	"errors"
	"sync/atomic"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/acp/version"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
	"sandboxagent.dev/sandbox-agent/runtime/observe"
)

// Request is a client's request on its way to its one response. Its methods are safe
// for concurrent use; after the first response the others do nothing.
type Request struct {
	client   *Client
	id       acp.ID
	method   string
	sink     chan<- acp.Reply // inline; room for one
	done     atomic.Bool
	span     observe.Span // ends with the response
	withdraw atomic.Pointer[func(context.Context)]
	gone     atomic.Bool               // it was withdrawn
	raise    func(*acp.Message) []byte // the response as its client's version has it; nil is as it is

	behind struct { // where a response has its place that no session's log has
		session string
		seq     uint64
	}
}

// Accept notes a request, unless one with its id is open on the connection: that is
// answered at once and nil is returned. sink, if there is one, takes the response in
// place of a stream. begin begins the span of the request, before anybody else can
// find and answer it.
func (c *Client) Accept(m *acp.Message, sink chan<- acp.Reply, begin func() observe.Span) *Request {
	q := &Request{client: c, id: m.ID(), method: m.Method(), sink: sink}
	c.mu.Lock()
	if c.requests[q.id] == nil {
		q.span = begin()
		c.requests[q.id] = q
		c.mu.Unlock()
		return q
	}
	c.mu.Unlock()
	e := acp.NewError(q.id, acp.Errorf(acp.CodeInvalidRequest, "a request with id %s is still open on this connection", q.id))
	if sink != nil {
		sink <- acp.Reply{Frame: e.Frame()}
	} else {
		c.Post(journal.Response, e.Frame())
	}
	return nil
}

// Request returns an open request of the client, nil when there is none with the id.
func (c *Client) Request(id acp.ID) *Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests[id]
}

// Client returns whose request it is.
func (q *Request) Client() *Client { return q.client }

// ID returns the request's id, as its client has it.
func (q *Request) ID() acp.ID { return q.id }

// Method returns the request's method.
func (q *Request) Method() string { return q.method }

// Context has the values for work that is part of the request.
func (q *Request) Context() context.Context { return q.span.Context() }

// Span returns the span of the request.
func (q *Request) Span() observe.Span { return q.span }

// Raise has the response translated for its client. It is called before anybody can
// answer.
func (q *Request) Raise(f func(*acp.Message) []byte) { q.raise = f }

func (q *Request) raised(m *acp.Message) []byte {
	if q.raise == nil {
		return m.Frame()
	}
	return q.raise(m)
}

// Begun answers a prompt that is entry seq of the session's log, if its client speaks
// version 2 of the protocol: there the answer is that the prompt has begun. It reports
// whether it is answered now. As for [Request.Record] the rest is done by the function
// returned.
func (q *Request) Begun(s Session, seq uint64) (deliver func(), answered bool) {
	if !q.client.Capabilities().Two() {
		return nil, false
	}
	q.raise = nil
	m := acp.NewResult(q.id, rawjson.Object{}.String("messageId", version.MessageID(seq)).End())
	return q.Record(s, m.Frame(), false, observe.OutcomeOf(nil)), true
}

// OnWithdraw says what must be done when the client withdraws the request.
func (q *Request) OnWithdraw(f func(context.Context)) { q.withdraw.Store(&f) }

// Withdrawn reports whether the client has withdrawn the request, perhaps before OnWithdraw said what to do.
func (q *Request) Withdrawn() bool { return q.gone.Load() }

// Withdraw does what OnWithdraw said.
func (q *Request) Withdraw(ctx context.Context) {
	q.gone.Store(true)
	if f := q.withdraw.Load(); f != nil {
		(*f)(ctx)
	}
}

// Record appends the response to the session's log, where it keeps its place among
// the updates, or with nil to the connection's own. The rest is done by the function
// returned, once the session's log was flushed.
func (q *Request) Record(s Session, frame []byte, timedOut bool, outcome observe.Outcome) (deliver func()) {
	if !q.done.CompareAndSwap(false, true) {
		return func() {}
	}
	q.span.End(outcome)
	if q.raise != nil {
		m := acp.MustParse(frame)
		frame = q.raise(&m)
	}
	c := q.client
	rep := acp.Reply{Frame: frame, TimedOut: timedOut, Session: q.behind.session, Seq: q.behind.seq}
	c.mu.Lock()
	delete(c.requests, q.id)
	var f *Feed
	if s != nil {
		f = c.feedLocked(s)
	}
	attached := f != nil
	if s != nil {
		// Under the lock, so that whoever attaches or detaches the client
		// either finds the entry or is seen here.
		to := c.num
		if !attached && q.sink == nil {
			to = journal.Nobody
		}
		rep.Session, rep.Seq = s.ID(), s.Log().Append(journal.Response, to, frame)
		if attached && q.sink == nil {
			f.respondLocked(rep.Seq)
		}
	}
	c.mu.Unlock()
	return func() {
		switch {
		case q.sink != nil:
			c.whenShown(s, rep.Seq, func() { q.sink <- rep })
		case !attached:
			c.whenShown(s, rep.Seq, func() { c.Post(journal.Response, frame) })
		}
	}
}

func (q *Request) respond(s Session, frame []byte, timedOut bool, outcome observe.Outcome) {
	deliver := q.Record(s, frame, timedOut, outcome)
	if s != nil {
		s.Flush()
	}
	deliver()
}

// Result answers with a raw result.
func (q *Request) Result(s Session, raw []byte) {
	m := acp.NewResult(q.id, raw)
	q.respond(s, m.Frame(), false, observe.OutcomeOf(nil))
}

// ResultBehind answers with a raw result that has its place behind entry last of the
// session's log, and is no entry of it. Who collects the response sees to that.
func (q *Request) ResultBehind(s Session, last uint64, raw []byte) {
	q.behind.session, q.behind.seq = s.ID(), last+1
	q.Result(nil, raw)
}

// Encode answers with the encoding of v.
func (q *Request) Encode(s Session, v any) {
	b, err := schema.Encode(v)
	if err != nil {
		q.Fail(s, err)
		return
	}
	q.Result(s, b)
}

// Fail answers with err as a JSON-RPC error. While the file of the session's log takes nothing the answer is no
// part of the log: what was refused is not done, and who asked for it need not wait for room to hear so.
func (q *Request) Fail(s Session, err error) {
	if s != nil && s.Log().Err() != nil {
		s = nil
	}
	m := acp.NewError(q.id, ErrorOf(err))
	q.respond(s, m.Frame(), TimedOut(err), observe.OutcomeOf(err))
}

// Finish answers with an empty result, or with err.
func (q *Request) Finish(s Session, err error) {
	if err != nil {
		q.Fail(s, err)
		return
	}
	q.Result(s, []byte("{}"))
}

// Forward answers with the agent's response under the client's id.
func (q *Request) Forward(s Session, res *acp.Message) {
	q.respond(s, q.Rewritten(res), false, OutcomeOf(res))
}

// Rewritten returns the frame of the agent's response under the client's id.
func (q *Request) Rewritten(res *acp.Message) []byte {
	return res.AppendRewritten(make([]byte, 0, len(res.Frame())+len(q.id)), q.id, "")
}

// OutcomeOf is the outcome of work that the response is the end of.
func OutcomeOf(res *acp.Message) observe.Outcome {
	if e := res.Err(); e != nil {
		return observe.OutcomeOf(e)
	}
	return observe.OutcomeOf(nil)
}

// TimedOut reports whether an error is that the agent did not answer in time.
func TimedOut(err error) bool {
	p, ok := err.(*problem.Error)
	return ok && p.Kind == problem.Timeout
}

// ErrorOf is err as the error of a JSON-RPC response.
func ErrorOf(err error) *acp.Error {
	if e, ok := errors.AsType[*acp.Error](err); ok {
		return e
	}
	if exit, ok := errors.AsType[*adapters.ExitError](err); ok {
		return &acp.Error{Code: acp.CodeInternal, Message: exit.Error(), Data: exit.Data()}
	}
	if pr, ok := errors.AsType[*problem.Error](err); ok {
		code := acp.CodeInternal
		switch pr.Kind {
		case problem.SessionNotFound:
			code = acp.CodeResourceNotFound
		case problem.InvalidRequest, problem.UnsupportedAgent:
			code = acp.CodeInvalidParams
		}
		return acp.Errorf(code, "%s", pr.Error()).WithData(pr)
	}
	return acp.Errorf(acp.CodeInternal, "%s", err.Error())
}
