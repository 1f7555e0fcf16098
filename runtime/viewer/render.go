package viewer

import (
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// renderLocked returns the entry's frame as this client is given it, nil when
// it is not.
func (st *Stream) renderLocked(f *Feed, e journal.Entry) []byte {
	c := st.c
	switch e.Kind {
	case journal.Client, journal.Second:
		return nil
	case journal.Update, journal.First, journal.Echo:
		if e.Seq > f.replay && !e.To.Includes(c.num) {
			return nil
		}
		if e.Frame = c.caps.Load().knows.Tell(e.Frame); e.Frame == nil {
			return nil
		}
	case journal.Notice:
		if e.Seq <= f.replay || !e.To.Includes(c.num) || !c.caps.Load().notices && e.Kind != journal.Update && ownNotice(e.Frame) {
			return nil
		}
	case journal.TurnEnd:
		if !c.caps.Load().turns || e.Seq <= f.replay || !e.To.Includes(c.num) {
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
		id := doneAsk(e.Frame)
		if _, given := c.given[id]; !given {
			return nil
		}
		delete(c.given, id)
		if !e.To.Includes(c.num) {
			return nil
		}
		return e.Frame
	}
	return st.numbered(f, e.Seq, e.Frame)
}

// doneAsk returns which request the frame says is open no more. No request has id 0.
func doneAsk(frame []byte) int64 {
	id, _ := rawjson.Member(frame, "params", "requestId")
	n, _ := acp.ID(id).Int()
	return n
}

// ownNotice reports whether the frame is a notification of the gateway's own.
func ownNotice(frame []byte) bool {
	m, err := acp.Parse(frame)
	return err == nil && strings.HasPrefix(m.Method(), Notices)
}

// renderAskLocked gives out a request that is still open, in the form the client
// can answer.
func (st *Stream) renderAskLocked(f *Feed, e journal.Entry) []byte {
	c := st.c
	m, err := acp.Parse(e.Frame)
	if err != nil {
		return nil
	}
	id, ok := m.ID().Int()
	if !ok {
		return nil
	}
	a, open := c.asks.Open(id)
	caps := c.caps.Load()
	if !open || !caps.Can(a.Method, a.Params) {
		return nil
	}
	frame := e.Frame
	if m.Method() == acp.MethodRequestQuestion {
		if frame = a.formFor(*caps, frame); frame == nil {
			return nil
		}
	}
	c.given[id] = a.Session
	if caps.viewed() {
		frame = raiseAsk(caps, f.view, frame)
	}
	return st.numbered(f, e.Seq, frame)
}

// numbered adds the entry's sequence number for clients that want it, and whose log it is in if the frame
// is of a subagent's session, and notes that the client was shown it, where the frame says of which session
// it is. mu is held, unless the feed is nobody else's.
func (st *Stream) numbered(f *Feed, seq uint64, frame []byte) []byte {
	if !st.c.caps.Load().eventNumbers || f.session == nil {
		return frame
	}
	m, err := acp.Parse(frame)
	if err != nil {
		return frame
	}
	root := ""
	switch id := f.session.ID(); {
	case m.Session() == id:
		f.shown = max(f.shown, seq)
	case m.HasSession():
		root = id
	}
	start := len(st.arena)
	st.arena = m.AppendSeq(st.arena, seq, root)
	return st.arena[start:len(st.arena):len(st.arena)]
}

// again renders an entry that was handed out before.
func (st *Stream) again(f *Feed, e journal.Entry) []byte {
	if e.Kind == journal.AskDone {
		return e.Frame
	}
	caps := st.c.caps.Load()
	if e.Kind.IsUpdate() {
		return st.numbered(f, e.Seq, caps.knows.Tell(e.Frame))
	}
	if e.Kind == journal.Ask && caps.viewed() {
		return st.numbered(f, e.Seq, st.raiseAgain(caps, f.view, e))
	}
	if e.Kind == journal.Ask {
		if m, err := acp.Parse(e.Frame); err == nil && m.Method() == acp.MethodRequestQuestion {
			id, _ := m.ID().Int()
			if a, open := st.c.asks.Open(id); open {
				return st.numbered(f, e.Seq, a.formFor(*caps, e.Frame))
			}
		}
	}
	return st.numbered(f, e.Seq, e.Frame)
}
