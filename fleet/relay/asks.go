package relay

import (
	"encoding/json"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/fleet/store"
)

// ask is an open request of an agent.
type ask struct {
	line    *line
	id      acp.ID // as the node knows it
	session *session
	seq     uint64 // number of its event, 0 when the node does not say
}

// asked takes a request of an agent. A client that may only read is not shown it, and one that has the session open
// no more, or not yet, cannot answer: others do. An error would be an answer, for all of them. One that
// the client was shown and that is open is not shown again, also where the node has another id for it now.
func (l *line) asked(m acp.Message) error {
	s, c := l.sessionOf(&m), l.c
	if s == nil || !c.token.Scope.Allows(store.ScopeDrive) {
		return nil
	}
	seq := seqIn(m.Meta(), acp.MetaKey, "seq")
	c.mu.Lock()
	before, had := l.askOfLocked(m.ID())
	shown := l.askAtLocked(s, seq)
	if had != nil && had != shown { // the node counts anew: what it has asked before is open no more
		delete(c.asks, before)
		l.asks--
	}
	if shown == nil && l.asks >= maxAsks {
		c.mu.Unlock()
		return problem.New(problem.TooManyRequests, "%s has %d requests open on this connection: answer some", l.node, maxAsks)
	}
	id := c.lastAsk + 1
	if shown != nil {
		shown.id = m.ID()
	} else {
		l.asks++
		c.lastAsk = id
		c.asks[id] = &ask{line: l, id: m.ID(), session: s, seq: seq}
	}
	c.mu.Unlock()
	if had != nil && had != shown {
		had.session.show(l.ctx, l, withdrawal(before))
	}
	if shown == nil {
		s.show(l.ctx, l, m.Rewritten(acp.IntID(id), ""))
	}
	return nil
}

// askAtLocked returns the open request with the number of an event of a session.
func (l *line) askAtLocked(s *session, seq uint64) *ask {
	for _, a := range l.c.asks {
		if a.line == l && a.session == s && seq > 0 && a.seq == seq {
			return a
		}
	}
	return nil
}

// askOfLocked returns the open request that the node knows by id.
func (l *line) askOfLocked(id acp.ID) (int64, *ask) {
	for n, a := range l.c.asks {
		if a.line == l && a.id == id {
			return n, a
		}
	}
	return 0, nil
}

// withdrawn takes the news that a request needs no answer any more.
func (l *line) withdrawn(m acp.Message) {
	id, _ := rawjson.Member(m.Params(), "requestId")
	l.c.mu.Lock()
	n, a := l.askOfLocked(acp.ID(id))
	if a != nil {
		delete(l.c.asks, n)
		l.asks--
	}
	l.c.mu.Unlock()
	if a != nil {
		a.session.show(l.ctx, l, withdrawal(n))
	}
}

// withdraw tells the client that what it was asked in the session needs no answer.
func (s *session) withdraw(asks []int64) {
	for _, n := range asks {
		s.show(s.c.ctx, s.at(), withdrawal(n))
	}
}

func withdrawal(n int64) acp.Message {
	return acp.NewNotification(acp.MethodCancelRequest, rawjson.Object{}.Raw("requestId", []byte(acp.IntID(n))).End())
}

// withdraw takes back what was asked over a line that has ended.
func (l *line) withdraw() {
	l.c.mu.Lock()
	open := map[int64]*session{}
	for n, a := range l.c.asks {
		if a.line == l {
			open[n] = a.session
			delete(l.c.asks, n)
			l.asks--
		}
	}
	l.c.mu.Unlock()
	for n, s := range open {
		s.show(l.ctx, l, withdrawal(n))
	}
}

// answered passes an answer on to the node that has asked.
func (c *Client) answered(m *acp.Message) {
	n, ok := m.ID().Int()
	c.mu.Lock()
	a := c.asks[n]
	if a != nil && ok {
		delete(c.asks, n)
		a.line.asks--
	}
	c.mu.Unlock()
	if a == nil || !ok {
		c.g.log.Debug("an answer to nothing that is open", "client", c.ID())
		return
	}
	a.line.tellNode(m.Rewritten(a.id, ""))
}

// pending returns a list of open requests with the ids that the client knows them by. One that it
// was not given has none: the node's own id may be that of another session's request.
func (l *line) pending(result json.RawMessage) json.RawMessage {
	list, _ := rawjson.Member(result, "pending")
	out := []byte("[")
	l.c.mu.Lock()
	for i, one := range rawjson.Elements(list) {
		if i > 0 {
			out = append(out, ',')
		}
		id, _ := rawjson.Member(one, "requestId")
		if n, a := l.askOfLocked(acp.ID(id)); a != nil {
			one = rawjson.SetMember(one, []byte(acp.IntID(n)), "requestId")
		} else {
			one = rawjson.DeleteMember(one, "requestId")
		}
		out = append(out, one...)
	}
	l.c.mu.Unlock()
	return rawjson.SetMember(result, append(out, ']'), "pending")
}
