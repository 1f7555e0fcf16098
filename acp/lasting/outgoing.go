package lasting

import (
	"context"
	"slices"
	"strconv"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
)

// outgoing is a message on its way to the gateway. It is in one place at a time:
// in the queue, or in the hands of who sends it, who takes it from the queue and
// puts it back if the connection did not take it. One goroutine at a time sends: the
// connection's sender, or a Write whose message is the only one, since to wake the sender
// takes longer than to send. The next connection gets its sender when nobody sends on the one
// before; so what is put back is in front of whatever the next one sends.
//
// Two kinds are not put back. A request was noted as sent, and restore finds out
// what became of it. An answer belongs to the connection on which its request was
// offered; it is kept with the request until that is offered again.
type outgoing struct {
	m       acp.Message
	request *request      // of one
	ask     *ask          // of an answer
	taken   chan struct{} // closed when it was sent, or waits for the next connection; nil when nobody waits for that
}

// Write sends a message, now or with the next connection. ctx bounds the wait for
// room among what waits; what has found room is sent, also when ctx ends. Write does not
// return before that then, unless ctx can end, or the message waits behind a request whose node is away.
func (c *Conn) Write(ctx context.Context, m acp.Message) error {
	for {
		c.mu.Lock()
		if err := context.Cause(c.ctx); err != nil {
			c.mu.Unlock()
			return err
		}
		if !c.begun {
			refused, ok := c.beginLocked(m)
			c.mu.Unlock()
			if !ok {
				c.give(refused)
			}
			return nil
		}
		if len(c.queue)+len(c.later) >= maxWaiting {
			room := c.room
			c.crowded = true
			c.mu.Unlock()
			select {
			case <-room:
				continue
			case <-ctx.Done():
				return ctx.Err()
			case <-c.ctx.Done():
				return context.Cause(c.ctx)
			}
		}
		if c.namesWaitingLocked(m) != nil {
			own := m.Clone()
			c.work.Go(func() { c.takeBack(own) }) // the client may be the one that reads
			c.mu.Unlock()
			return nil
		}
		out, ok := c.outgoingLocked(m.Clone())
		if !ok || !c.renewing && c.waitsLocked(out) {
			c.mu.Unlock()
			return nil
		}
		if live := c.live; live != nil && !c.busy && len(c.queue) == 0 && ctx.Done() == nil {
			c.queue, c.busy = append(c.queue, out), true
			c.mu.Unlock()
			c.sendOwn(live)
			return nil
		}
		if c.up {
			out.taken = make(chan struct{})
		}
		c.queueLocked(out)
		c.mu.Unlock()
		if out.taken != nil {
			select {
			case <-out.taken:
			case <-ctx.Done():
			}
		}
		return nil
	}
}

// queueLocked puts a message behind what waits, and wakes the sender.
func (c *Conn) queueLocked(out outgoing) {
	c.queue = append(c.queue, out)
	c.wakeUp()
}

// wakeUp has the sender look at the queue.
func (c *Conn) wakeUp() {
	select {
	case c.wake <- struct{}{}:
	default: // it will
	}
}

// send sends what is in the queue until the connection ends. Only the sender of a
// connection calls it.
func (c *Conn) send(live *link) {
	defer c.pause()
	c.mu.Lock()
	c.up, c.live = true, live
	c.mu.Unlock()
	for c.sendAll(live) {
		select {
		case <-c.wake:
		case <-c.soon.C:
			c.mu.Lock()
			c.askAgainLocked()
			c.mu.Unlock()
		case <-live.ctx.Done():
			return
		}
	}
}

// sendAll sends what is in the queue, unless a Write is sending, which wakes the sender if there is
// more. It reports whether the connection takes it.
func (c *Conn) sendAll(live *link) bool {
	c.mu.Lock()
	if c.busy {
		c.mu.Unlock()
		return true
	}
	c.busy = true
	c.mu.Unlock()
	defer c.sent()
	for {
		out, ok := c.next()
		if !ok {
			return true
		}
		if live.Write(live.ctx, out.m) != nil {
			c.putBack(out)
			return false
		}
		out.done()
	}
}

// sendOwn sends the one message in the queue for the Write that brought it, which has set busy.
func (c *Conn) sendOwn(live *link) {
	defer c.sent()
	out, ok := c.next()
	if ok && live.Write(live.ctx, out.m) != nil {
		c.putBack(out)
		live.end()
	}
}

// sent notes that who has sent does so no more.
func (c *Conn) sent() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy = false
	if c.quiet != nil {
		close(c.quiet)
		c.quiet = nil
	}
	if len(c.queue) > 0 {
		c.wakeUp()
	}
}

// next takes the first message from the queue, as this connection knows it.
func (c *Conn) next() (outgoing, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue) > 0 {
		out := c.queue[0]
		c.queue[0] = outgoing{}
		c.queue = c.queue[1:]
		c.roomLocked()
		switch {
		case out.request != nil:
			r := out.request
			if r.opens() && c.sessions[r.session] == nil { // it was gone when the client wrote that
				c.attachLocked(r.session, r.frame.Params(), r.from).opened = r.n
			}
			if s := c.sessions[r.session]; !r.sent && r.early && r.opens() && s != nil && s.after == 0 {
				r.frame = c.withOwedLocked(r)
				out.m = r.frame
			}
			if s := c.sessions[r.session]; s != nil && r.from >= s.after && !c.attachesBeforeLocked(r) {
				r.replay = replayExpects
			}
			r.sent = true
		case out.m.Method() == acp.MethodSessionCancel:
			c.cancelsLocked(&out.m, true)
		case out.ask != nil:
			out.m = renamed(out.m, out.ask.id)
		case out.m.IsResponse() && c.offeredLocked(out.m.ID()):
			// It answers a request that nobody waits for any more, and another
			// request has that number on this connection.
			out.done()
			continue
		}
		return out, true
	}
	return outgoing{}, false
}

// roomLocked lets the Writes go on that wait for room, when there is some.
func (c *Conn) roomLocked() {
	if c.crowded && len(c.queue)+len(c.later) < maxWaiting {
		c.crowded = false
		close(c.room)
		c.room = make(chan struct{})
	}
}

// done lets the Write go on that brought the message.
func (o *outgoing) done() {
	if o.taken != nil {
		close(o.taken)
		o.taken = nil
	}
}

// putBack takes a message that a connection did not take.
func (c *Conn) putBack(out outgoing) {
	out.done()
	if out.request != nil || out.m.IsResponse() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if out.m.Method() == acp.MethodSessionCancel {
		c.cancelsLocked(&out.m, false) // it is sent in its place
	}
	c.queue = slices.Insert(c.queue, 0, out)
}

// pause is the end of a connection's sender: what is in the queue waits for the
// next connection.
func (c *Conn) pause() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.up, c.live = false, nil
	for c.busy { // a Write, which ends with the connection
		if c.quiet == nil {
			c.quiet = make(chan struct{})
		}
		quiet := c.quiet
		c.mu.Unlock()
		<-quiet
		c.mu.Lock()
	}
	for i := range c.queue {
		c.queue[i].done()
	}
}

// outgoingLocked notes a message of the client and returns what is sent for it;
// false when nothing is.
func (c *Conn) outgoingLocked(m acp.Message) (outgoing, bool) {
	switch {
	case m.IsResponse():
		return c.answerLocked(m)
	case !m.IsRequest():
		return outgoing{m: m}, true
	}
	c.lastOwn++
	r := &request{id: m.ID(), frame: m, method: m.Method(), session: m.Session(), n: c.lastOwn, early: !c.up}
	if r.method == acp.MethodSessionPrompt {
		r.name = rawjson.MemberString(m.Meta(), acp.MetaKey, "promptId")
		if r.name == "" {
			r.name = c.names + "-" + strconv.Itoa(r.n)
			r.frame = acp.NewRequest(r.id, r.method, rawjson.SetMember(m.Params(), rawjson.AppendQuoted(nil, r.name), "_meta", acp.MetaKey, "promptId"))
		}
		if s := c.sessions[r.session]; s != nil {
			r.after = s.after
		}
	}
	if r.method == acp.MethodInitialize && c.two { // it may be repeated
		r.frame = c.greetingLocked(m)
	}
	if r.opens() {
		after, _ := uintOf(m.Meta(), "after")
		r.attached = c.sessions[r.session] != nil
		s := c.attachLocked(r.session, m.Params(), after)
		s.opened = r.n
		r.from = after
	}
	c.requests[r.id] = r
	return outgoing{m: r.frame, request: r}, true
}

// answerLocked finds the request of the agent that the client answers. The
// answer is kept: it may not arrive.
func (c *Conn) answerLocked(m acp.Message) (outgoing, bool) {
	a := c.shownLocked(m.ID())
	if a == nil {
		return outgoing{m: m}, c.linked // of a request without a session, or nobody waits for it
	}
	a.answer = &m
	return outgoing{m: m, ask: a}, a.id != "" // else when it is offered again
}

// offeredLocked reports whether the connection has offered a request by id.
func (c *Conn) offeredLocked(id acp.ID) bool {
	for _, s := range c.sessions {
		for _, a := range s.asks {
			if a.id == id {
				return true
			}
		}
	}
	return false
}

// renamed is a response with another id.
func renamed(m acp.Message, id acp.ID) acp.Message {
	if m.ID() == id {
		return m
	}
	if e := m.Err(); e != nil {
		return acp.NewError(id, e)
	}
	return acp.NewResult(id, m.Result())
}
