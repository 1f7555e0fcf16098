package runtime

import (
	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

func (st *Stream) renderLocked(f *feed, e journal.Entry) []byte {
	c := st.c
	switch e.Kind {
	case journal.Client:
		return nil
	case journal.Update, journal.Echo:
		if e.Seq > f.replay && !e.To.Includes(c.num) {
			return nil
		}
	case journal.Notice:
		if e.Seq <= f.replay || !e.To.Includes(c.num) {
			return nil
		}
	case journal.TurnEnd:
		if !c.caps.turns || e.Seq <= f.replay || !e.To.Includes(c.num) {
			return nil
		}
	case journal.Response:
		if e.Seq <= f.since || e.To != c.num || c.shape == acp.Inline && f.session != nil {
			return nil
		}
		return e.Frame
	case journal.Ask:
		return st.renderAskLocked(f, e)
	case journal.AskDone:
		id, ok := rawjson.Member(e.Frame, "params", "requestId")
		n, isInt := acp.ID(id).Int()
		if !ok || !isInt || !c.given[n] {
			return nil
		}
		delete(c.given, n)
		if !e.To.Includes(c.num) {
			return nil
		}
		return e.Frame
	}
	return st.numbered(f, e.Seq, e.Frame)
}

func (st *Stream) renderAskLocked(f *feed, e journal.Entry) []byte {
	c := st.c
	var a *ask
	if f.session != nil {
		a = f.session.openAsk(e.Seq)
		if a == nil || !c.caps.can(a.method) {
			return nil
		}
	}
	frame := e.Frame
	m, err := acp.Parse(frame)
	if err != nil {
		return nil
	}
	id, ok := m.ID().Int()
	if !ok {
		return nil
	}
	c.given[id] = true
	if a != nil && m.Method() == methodQuestion {
		if frame = c.renderQuestion(a, frame); frame == nil {
			return nil
		}
	}
	return st.numbered(f, e.Seq, frame)
}

func (s *Session) openAsk(seq uint64) *ask {
	s.asksMu.Lock()
	defer s.asksMu.Unlock()
	return s.asks[seq]
}

func (st *Stream) numbered(f *feed, seq uint64, frame []byte) []byte {
	if !st.c.caps.eventNumbers || f.session == nil {
		return frame
	}
	m, err := acp.Parse(frame)
	if err != nil {
		return frame
	}
	start := len(st.arena)
	st.arena = m.AppendSeq(st.arena, seq)
	return st.arena[start:len(st.arena):len(st.arena)]
}

// again renders an entry that was handed out before.
func (st *Stream) again(f *feed, e journal.Entry) []byte {
	if e.Kind == journal.AskDone {
		return e.Frame
	}
	if e.Kind == journal.Ask && f.session != nil {
		if a := f.session.openAsk(e.Seq); a != nil {
			if m, err := acp.Parse(e.Frame); err == nil && m.Method() == methodQuestion {
				return st.numbered(f, e.Seq, st.c.renderQuestion(a, e.Frame))
			}
		}
	}
	return st.numbered(f, e.Seq, e.Frame)
}
