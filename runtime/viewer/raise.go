package viewer

import (
	"errors"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/version"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// This file is what a client is given that speaks version 2, or knows subagents. Each of
// its feeds has a view of the log, which is as far as the feed is; an entry becomes any
// number of frames.

// telling is whether a client was told the state of a session that it has opened.
type telling uint8

const (
	nothing telling = iota // to tell
	due
	told // it was handed out, but is not written yet
)

// raised says how events of a run were made from entries; the zero value is that they
// are the entries.
type raised struct {
	per     uint64 // events of each entry
	history bool   // they were replayed as history
	state   bool   // the events are the state behind the entry, and no part of it
	alone   bool   // the event is the agent's request alone, given out of order
}

// pastView is a view for what is handed out again.
type pastView struct {
	view *version.View
	at   uint64 // entries up to here were read
}

// viewOf returns a view of the session's log for the client, of which nothing was read.
func (c *Client) viewOf(s Session) *version.View {
	about := s.BesideLog()
	caps := c.caps.Load()
	about.One, about.Knows = !caps.Two(), caps.knows
	return version.NewView(about)
}

func entryOf(e journal.Entry) version.Entry {
	return version.Entry{Seq: e.Seq, Kind: version.Kind(e.Kind), To: int64(e.To), Frame: e.Frame}
}

// catchUp makes the feed's view, if it has none: it reads what is before pos.
func (st *Stream) catchUp(f *Feed, pos uint64) error {
	st.c.mu.Lock()
	there := f.view != nil
	st.c.mu.Unlock()
	if there {
		return nil
	}
	p := &pastView{view: st.c.viewOf(f.session), at: f.log.Oldest() - 1}
	if err := st.readOn(p, f.log, pos); err != nil {
		return err
	}
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	if f.view == nil && f.pos == pos {
		f.view = p.view
	}
	return nil
}

// readOn reads entries up to one without showing them.
func (st *Stream) readOn(p *pastView, log *journal.Log, upTo uint64) error {
	const batch = 256 << 10
	cur := log.Whole(p.at) // nothing of it is shown
	cur.Room = st.room
	for p.at < upTo {
		entries, err := cur.Next(nil, batch)
		if gone, ok := errors.AsType[*journal.TruncatedError](err); ok && gone.Oldest > p.at+1 {
			p.at = gone.Oldest - 1 // given up meanwhile: what is left is read
			cur.Seek(p.at)
			continue
		}
		if p, ok := errors.AsType[*problem.Error](err); ok { // of room
			return p
		}
		if err != nil {
			return problem.Wrap(problem.Internal, err, "cannot read the session's log")
		}
		if len(entries) == 0 {
			return nil
		}
		for _, e := range entries {
			if e.Seq > upTo {
				return nil
			}
			st.skim.Reset()
			p.view.Step(entryOf(e), true, &st.skim)
			p.at = e.Seq
		}
	}
	return nil
}

// raiseAllLocked hands out the entries that were read of the feed, and tells the state of
// the session where it is due.
func (st *Stream) raiseAllLocked(f *Feed) {
	st.tellStateLocked(f)
	for _, e := range st.entries {
		st.raiseLocked(f, e)
		f.pos = e.Seq
		st.tellStateLocked(f)
	}
	if len(st.entries) > 0 {
		st.polled = append(st.polled, mark{f, f.pos})
	}
}

// tellStateLocked tells the state of the session where the feed has come, if it is due.
func (st *Stream) tellStateLocked(f *Feed) {
	if f.state != due || f.pos < f.stateAt {
		return
	}
	f.state = told
	first := st.out.Len()
	f.view.State(&st.out)
	how := raised{per: uint64(st.out.Len() - first), state: true}
	for i := first; i < st.out.Len(); i++ {
		st.handOutRaisedLocked(f, f.pos, how, st.made(f, f.pos, i))
		how.per = 0 // noted with the first
	}
	st.polled = append(st.polled, mark{f, f.pos})
}

// raiseLocked hands out one entry: what it is by itself, and then what follows from it.
func (st *Stream) raiseLocked(f *Feed, e journal.Entry) {
	c := st.c
	how := raised{history: e.Seq <= f.replay}
	var own []byte
	if e.Kind == journal.Ask { // as the view is before it
		own = st.renderLocked(f, e)
	}
	first := st.out.Len()
	f.view.Step(entryOf(e), how.history, &st.out)
	n := st.out.Len() - first
	switch e.Kind {
	case journal.Ask, journal.Client:
	case journal.Update, journal.First, journal.Second, journal.Echo:
		if !how.history && !e.To.Includes(c.num) {
			n = 0
		}
	default:
		own = st.renderLocked(f, e)
	}
	how.per = uint64(n)
	if own != nil {
		how.per++
		st.handOutRaisedLocked(f, e.Seq, how, own)
	}
	for i := range n {
		part := how
		if own != nil || i > 0 {
			part.per = 0 // noted with the first
		}
		st.handOutRaisedLocked(f, e.Seq, part, st.made(f, e.Seq, first+i))
	}
}

// made returns a frame that was made for this client. It lives until the next poll.
func (st *Stream) made(f *Feed, seq uint64, i int) []byte {
	return st.numbered(f, seq, st.out.At(i))
}

// handOutRaisedLocked gives a frame its event id. The first of an entry notes how many
// there are; the others have per 0.
func (st *Stream) handOutRaisedLocked(f *Feed, seq uint64, how raised, frame []byte) {
	c := st.c
	ev := acp.Event{Frame: frame}
	if c.shape != acp.OneStream {
		c.event++
		ev.ID = c.event
		n := len(c.runs)
		switch {
		case how.per == 0:
		case how.per == 1 && !how.state && !how.alone && n > 0 && c.runs[n-1].log == f.log && c.runs[n-1].seq+c.runs[n-1].n == seq && c.runs[n-1].raise == how:
			c.runs[n-1].n++
		default:
			c.noteRunLocked(run{event: c.event, n: how.per, seq: seq, log: f.log, sess: f.session, raise: how})
		}
	}
	st.events = append(st.events, ev)
}

// replayRaised adds the events of a run that were handed out before, from next on.
func (st *Stream) replayRaised(r run, limit *int) error {
	gone := func() error {
		return problem.New(problem.EventsExpired, "events after %d are no longer kept: load the session anew", st.next-1)
	}
	last := min(r.event+r.n-1, st.until)
	for st.next <= last && *limit > 0 {
		seq, index := r.seq, st.next-r.event
		if r.raise.per == 1 {
			seq, index = r.seq+index, 0
		}
		frames, err := st.raiseAnew(r, seq)
		if err != nil || uint64(len(frames)) != r.raise.per {
			return gone()
		}
		for ; index < r.raise.per && st.next <= last; index++ {
			*limit -= len(frames[index]) + 64
			st.events = append(st.events, acp.Event{ID: st.next, Frame: frames[index]})
			st.next++
		}
	}
	return nil
}

// raiseAnew returns the frames of an entry as they were handed out before.
func (st *Stream) raiseAnew(r run, seq uint64) ([][]byte, error) {
	before := seq - 1
	if r.raise.state {
		before = seq
	}
	p := st.past[r.log]
	if p == nil || p.at > before {
		p = &pastView{view: st.c.viewOf(r.sess), at: r.log.Oldest() - 1}
		if st.past == nil {
			st.past = map[*journal.Log]*pastView{}
		}
		st.past[r.log] = p
	}
	if err := st.readOn(p, r.log, before); err != nil {
		return nil, err
	}
	f := &Feed{client: st.c, session: r.sess, log: r.log, view: p.view}
	first := st.out.Len()
	if r.raise.state {
		p.view.State(&st.out)
		var frames [][]byte
		for i := first; i < st.out.Len(); i++ {
			frames = append(frames, st.made(f, seq, i))
		}
		return frames, nil
	}
	entries, err := st.cursor(r.log, before).Next(nil, 1)
	if err != nil || len(entries) == 0 || entries[0].Seq != seq {
		return nil, err
	}
	e := entries[0]
	var frames [][]byte
	var own []byte
	if e.Kind == journal.Response {
		own = e.Frame
	} else {
		own = st.again(f, e)
	}
	if r.raise.alone {
		return [][]byte{st.keepOwn(own)}, nil
	}
	p.view.Step(entryOf(e), r.raise.history, &st.out)
	p.at = seq
	if uint64(st.out.Len()-first) < r.raise.per {
		frames = append(frames, st.keepOwn(own))
	}
	for i := first; i < st.out.Len(); i++ {
		frames = append(frames, st.made(f, seq, i))
	}
	return frames, nil
}

// keepOwn copies a frame that is complete.
func (st *Stream) keepOwn(frame []byte) []byte {
	start := len(st.arena)
	st.arena = append(st.arena, frame...)
	return st.arena[start:len(st.arena):len(st.arena)]
}

// raiseAsk returns an agent's request, in the form that the client can answer, as it is
// given it. view is nil for a request of no session.
func raiseAsk(caps *Capabilities, view *version.View, frame []byte) []byte {
	m, err := acp.Parse(frame)
	if err != nil {
		return frame
	}
	if !caps.Two() {
		return view.AskOne(&m)
	}
	return view.Ask(&m)
}

// raiseAgain returns a request of an agent that was handed out before.
func (st *Stream) raiseAgain(caps *Capabilities, view *version.View, e journal.Entry) []byte {
	frame := e.Frame
	if m, err := acp.Parse(e.Frame); err == nil && m.Method() == acp.MethodRequestQuestion {
		id, _ := m.ID().Int()
		if a, open := st.c.asks.Open(id); open {
			frame = a.formFor(*caps, frame)
		}
	}
	return raiseAsk(caps, view, frame)
}
