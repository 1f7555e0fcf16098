package agents

import (
	"bytes"
	"context"
	"slices"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

const (
	flushBytes  = 64 << 10 // appended at most before it is shown
	sampleEvery = 16       // the time of one batch of so many is taken
	earlyLimit  = 4096     // messages of sessions whose id is not known yet
	earlyBytes  = 32 << 20 // and their bytes
	maxLeft     = 256      // sessions that are known to be nobody's any more; the oldest is forgotten
)

// Receiver takes what the agent says of one session. Its methods are called by the
// process's reader, Lost by whoever ends the process; they must not wait, but
// for Flush, which may hold the agent back.
type Receiver interface {
	// Receive takes a message, which is not kept. It reports whether something must
	// be flushed.
	Receive(m *acp.Message) bool
	// Flush shows what was received since the last call.
	Flush()
	// Lost says that the process is ending. It is called once, and a message that was
	// on its way can still come.
	Lost(cause error)
}

// early holds messages of sessions that are being created.
type early struct {
	creating int                      // requests in flight that may create a session
	messages map[string][]acp.Message // by the JSON token of the agent's session id
	n, bytes int
}

// read owns the agent's output: it routes every message and shows what was received
// when no further message has arrived yet.
func (p *Process) read() {
	o := p.agent.set.o.Observer
	buffered, _ := p.conn.(acp.Buffered)
	var dirty []Receiver
	held := 0            // bytes of messages since the last flush
	updates := uint64(0) // not counted yet
	var batch uint       // flushes that showed something
	var began time.Time  // when the first message of a batch was read, of every sampleEvery-th
	count := func() {
		if updates > 0 {
			p.agent.updates.Add(updates)
			updates = 0
		}
	}
	flush := func() {
		held = 0
		for i, r := range dirty {
			r.Flush()
			dirty[i] = nil
		}
		if len(dirty) > 0 {
			if !began.IsZero() {
				o.Forwarded(time.Since(began))
			}
			batch++
		}
		count()
		dirty, began = dirty[:0], time.Time{}
	}
	var last route
	var m acp.Message // outside the loop: it escapes
	for {
		var err error
		if m, err = p.conn.Read(context.Background()); err != nil {
			flush()
			p.closeInput()
			p.end(err)
			_ = p.conn.Close()
			return
		}
		switch {
		case m.IsResponse():
			count()
			p.response(&m) // it follows its updates: they are in the log before it
		case m.HasSession():
			if held == 0 && batch%sampleEvery == 0 {
				began = time.Now()
			}
			if !p.find(&last, &m) {
				break // kept, or of no session
			}
			if last.to.Receive(&m) {
				if m.Update() != nil {
					updates++
				}
				if len(dirty) == 0 || dirty[len(dirty)-1] != last.to {
					dirty = append(dirty, last.to)
				}
			}
		default:
			flush()
			if m.Method() == acp.MethodCancelRequest && p.CancelHosted(&m) {
				break
			}
			if m.Method() == acp.MethodAuthStatusUpdate {
				p.hearAuth(&m)
			}
			p.agent.set.o.Connection(p, &m)
		}
		if held += len(m.Frame()); held >= flushBytes || buffered == nil || !buffered.Buffered() {
			flush()
		}
	}
}

// route is who took the message before.
type route struct {
	token    []byte // of the session id
	to       Receiver
	turnover uint64
}

// find sets r to who takes the message, and reports whether somebody does. A message
// of a session that is being created is kept until its id is known. One that asks something of a session that the process had is refused at
// once.
func (p *Process) find(r *route, m *acp.Message) bool {
	if r.to != nil && r.turnover == p.turnover.Load() && bytes.Equal(r.token, m.Belongs()) {
		return true
	}
	key := string(m.Belongs())
	p.mu.Lock()
	r.token, r.turnover, r.to = append(r.token[:0], key...), p.turnover.Load(), p.routes[key]
	if r.to != nil {
		p.mu.Unlock()
		return true
	}
	left := m.IsRequest() && slices.Contains(p.left, key) // the agent may do nothing else before it is answered
	if e := &p.early; e.creating > 0 && !left && e.n < earlyLimit && e.bytes < earlyBytes {
		if e.messages == nil {
			e.messages = map[string][]acp.Message{}
		}
		e.messages[key] = append(e.messages[key], m.Clone())
		e.n++
		e.bytes += len(m.Frame())
		p.mu.Unlock()
		return false
	}
	p.mu.Unlock()
	p.agent.log.Warn("message for a session this process does not have", "method", m.Method(), "session", m.Session())
	p.refuseUnknown(m)
	return false
}

// giveUp takes what came early for a session, and is for nobody.
func (p *Process) giveUp(came []acp.Message) {
	if len(came) == 0 {
		return
	}
	p.agent.log.Warn("messages for a session this process does not have", "messages", len(came), "session", came[0].Session())
	for i := range came {
		p.refuseUnknown(&came[i])
	}
}

// refuseUnknown answers the agent what it asks for a session that nobody has here.
func (p *Process) refuseUnknown(m *acp.Message) {
	if m.IsRequest() {
		p.Put(acp.NewError(m.ID(), acp.Errorf(acp.CodeResourceNotFound, "session not found")))
	}
}

// Bind makes the process's messages for the agent's session id go to r, those that
// came early first, and holds the process until Unbind. It is called by the reader,
// or before the agent is asked for the session.
func (p *Process) Bind(native string, r Receiver) error {
	key := string(rawjson.AppendQuoted(nil, native))
	p.mu.Lock()
	if p.state >= ending {
		defer p.mu.Unlock()
		return p.cause
	}
	if p.routes[key] == nil {
		p.holds++
	}
	p.routes[key] = r
	p.left = slices.DeleteFunc(p.left, func(was string) bool { return was == key })
	p.turnover.Add(1)
	came := p.early.take(key)
	p.mu.Unlock()
	for i := range came {
		if m := &came[i]; r.Receive(m) && m.Update() != nil {
			p.agent.updates.Add(1)
		}
	}
	r.Flush()
	return nil
}

// DropEarly gives up what came early for the agent's session id: of one that is not about to be created.
func (p *Process) DropEarly(native string) {
	p.mu.Lock()
	came := p.early.take(string(rawjson.AppendQuoted(nil, native)))
	p.mu.Unlock()
	p.giveUp(came)
}

// take returns the messages of a session, and keeps them no longer.
func (e *early) take(key string) (came []acp.Message) {
	came = e.messages[key]
	delete(e.messages, key)
	for i := range came {
		e.n, e.bytes = e.n-1, e.bytes-len(came[i].Frame())
	}
	return came
}

// Unbind undoes the Bind of r.
func (p *Process) Unbind(native string, r Receiver) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := string(rawjson.AppendQuoted(nil, native))
	if p.routes[key] == r {
		delete(p.routes, key)
		p.left = append(p.left[max(0, len(p.left)+1-maxLeft):], key)
		p.turnover.Add(1)
		p.releaseLocked()
	}
}

// Creating says that a request is in flight that may create a session, whose
// messages can come before its id is known. The function returned undoes it.
func (p *Process) Creating() (done func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.early.creating++
	return func() {
		p.mu.Lock()
		var came map[string][]acp.Message
		if p.early.creating--; p.early.creating <= 0 {
			came, p.early = p.early.messages, early{}
		}
		p.mu.Unlock()
		for _, of := range came {
			p.giveUp(of)
		}
	}
}

// response hands a response to who waits for it. An answer that comes after its
// time limit has nobody left.
func (p *Process) response(m *acp.Message) {
	if n, ok := m.ID().Int(); ok {
		if k := p.take(n); k != nil {
			k.finish(m, nil)
			return
		}
	}
	p.agent.log.Debug("response to no open request", "id", string(m.ID()))
}
