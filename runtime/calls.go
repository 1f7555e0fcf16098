package runtime

import (
	"slices"
	"sync"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// calls are the tool calls of a session that have begun and not ended. Their agent
// ends them; the session ends those that an agent leaves behind when its process is
// gone.
type calls struct {
	mu   sync.Mutex
	open []string // ids, in the order in which they began
}

// note takes what an update says of a call.
func (c *calls) note(update []byte) {
	id := rawjson.MemberString(update, "toolCallId")
	if id == "" {
		return
	}
	status := rawjson.MemberString(update, "status")
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.Index(c.open, id)
	switch {
	case status == "completed" || status == "failed":
		if i >= 0 {
			c.open = slices.Delete(c.open, i, i+1)
		}
	case i < 0 && (status != "" || rawjson.MemberString(update, "sessionUpdate") == "tool_call"):
		c.open = append(c.open, id)
	}
}

// take returns the open calls and forgets them.
func (c *calls) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	open := c.open
	c.open = nil
	return open
}

// failCalls ends the calls that are open: nobody works on them any more.
func (s *Session) failCalls(reason string) {
	open := s.calls.take()
	if len(open) == 0 {
		return
	}
	defer s.flush()
	for _, id := range open {
		frame := append([]byte(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":`), s.quoted...)
		frame = append(frame, `,"update":{"sessionUpdate":"tool_call_update","toolCallId":`...)
		frame = rawjson.AppendQuoted(frame, id)
		frame = append(frame, `,"status":"failed","_meta":{"`+acp.MetaKey+`":{"ended":`...)
		frame = rawjson.AppendQuoted(frame, reason)
		s.log().Append(journal.Update, journal.Everyone, append(frame, `}}}}}`...))
	}
}

// settleCalls ends the calls that an earlier gateway left open when it was killed:
// once, before anybody reads the session's history or gives it work.
func (s *Session) settleCalls() {
	s.settled.Do(func() {
		if s.live() != nil {
			return
		}
		if s.endsClean() {
			return
		}
		log := s.log()
		cur := log.Cursor(log.Oldest() - 1)
		for {
			batch, err := cur.Next(nil, 256<<10)
			if err != nil {
				s.r.log.Error("look for open calls in the log", "session", s.id, "err", err)
				return
			}
			if len(batch) == 0 {
				break
			}
			for _, e := range batch {
				if e.Kind != journal.Update {
					continue
				}
				if m, err := acp.Parse(e.Frame); err == nil {
					s.noteCall(&m)
				}
			}
		}
		s.failCalls("the gateway was ended while the call ran")
	})
}

// endsClean reports whether the end of the log shows that the last turn ended, and
// no call behind it is open: then the rest need not be read.
func (s *Session) endsClean() bool {
	const looked = 64
	log := s.log()
	last := log.Last()
	batch, err := log.Cursor(max(log.Oldest()-1, last-min(last, looked))).Next(nil, 1<<20)
	if err != nil {
		return false
	}
	clean := last == 0
	for _, e := range batch {
		if e.Kind != journal.Response && e.Kind != journal.Update {
			continue
		}
		m, err := acp.Parse(e.Frame)
		if err != nil {
			return false
		}
		switch {
		case e.Kind == journal.Response:
			_, turn := rawjson.Member(m.Result(), "stopReason")
			clean = clean || turn
		case string(m.UpdateKind()) == "tool_call", string(m.UpdateKind()) == "tool_call_update":
			clean = false
		}
	}
	return clean
}

func (s *Session) noteCall(m *acp.Message) {
	switch string(m.UpdateKind()) {
	case "tool_call", "tool_call_update":
		s.calls.note(m.Update())
	}
}
