package viewer

import (
	"errors"
	"slices"
	"sync/atomic"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/version"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
	"sandboxagent.dev/sandbox-agent/runtime/observe"
)

// Feed is a client's position in one log.
type Feed struct {
	client  *Client
	session Session // nil for the connection's own log
	log     *journal.Log
	replay  uint64 // entries up to here are history; set before it is shared
	since   uint64 // responses up to here are not this feed's to give; set before it is shared
	stateAt uint64 // where a client of version 2 is told the session's state; set before it is shared

	carrier atomic.Pointer[Stream] // nil without a stream; set with client.mu held

	// Guarded by client.mu.
	pos     uint64        // handed out up to here
	written uint64        // written to the client up to here
	shown   uint64        // newest entry whose number the client was handed
	oldest  uint64        // the first response to the client that it may not have been handed yet; 0 for none
	newest  uint64        // the last response to the client; 0 for none
	first   []uint64      // open requests before pos that are given first
	view    *version.View // at pos, of a client that has views; nil until something is read
	state   telling       // of such a client
	stop    func()        // ends the watch; nil without a stream
}

// unwatch is called with client.mu held, or when the feed has no client left.
func (f *Feed) unwatch() {
	if f.stop != nil {
		f.stop()
		f.stop = nil
		f.carrier.Store(nil)
	}
}

// Showing calls show, which shows the log's newest entries, and has them written to the client
// by this goroutine if that can be done at once. Without a feed it only calls show. No lock of
// a session or a client may be held.
func (f *Feed) Showing(show func()) {
	var st *Stream
	if f != nil {
		st = f.carrier.Load()
	}
	if st == nil {
		show()
		return
	}
	st.showing.Add(1)
	defer st.pass()
	defer st.showing.Add(-1)
	show()
}

// Client returns whose feed it is.
func (f *Feed) Client() *Client { return f.client }

// feedOf returns the client's feed of the session, nil when it is not attached.
func (c *Client) feedOf(s Session) *Feed {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.feedLocked(s)
}

func (c *Client) feedLocked(s Session) *Feed {
	for _, f := range c.feeds {
		if f.session == s {
			return f
		}
	}
	return nil
}

// Attached returns the sessions that the client reads.
func (c *Client) Attached() []Session {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Session
	for _, f := range c.feeds {
		if f.session != nil {
			out = append(out, f.session)
		}
	}
	return out
}

// Reads reports whether the client is attached to the session.
func (c *Client) Reads(s Session) bool { return c.feedOf(s) != nil }

// WasGiven reports whether the client was given the request of an agent, which is
// still open: who was not cannot mean it.
func (c *Client) WasGiven(ask int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, given := c.given[ask]
	return given
}

// ForgetAsk notes that a request is open no more which the client has answered.
func (c *Client) ForgetAsk(ask int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.given, ask)
}

// tellsClosed reports whether the client is to be told on its own stream that a request is open no more. From then on no session has to.
func (c *Client) tellsClosed(ask int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, given := c.given[ask]
	if given {
		c.given[ask] = ""
	}
	return given
}

// newFeed returns a feed of the session's log from behind after, which the
// session knows and the client does not yet.
func newFeed(c *Client, s Session, after uint64) *Feed {
	f := &Feed{client: c, session: s, log: s.Log(), pos: after, written: after}
	f.first = s.Join(f, after)
	slices.Sort(f.first)
	return f
}

// Attach makes the session's log one of the client's feeds, from behind after,
// entries up to replay as history. It replaces an earlier feed of the session.
// Open requests of the agent that the feed would not come to are given first. It
// returns false for a session that was deleted meanwhile.
func (c *Client) Attach(s Session, after, replay uint64) bool {
	return c.attach(s, after, replay, false)
}

// Resume is Attach for who is to be shown nothing again: what an earlier feed has come to meanwhile is behind the client.
func (c *Client) Resume(s Session, after uint64) bool { return c.attach(s, after, 0, true) }

func (c *Client) attach(s Session, after, replay uint64, goesOn bool) bool {
	if !s.Enter() {
		return false
	}
	defer s.Exit()
	f := newFeed(c, s, after)
	f.replay = replay
	if c.Capabilities().Two() {
		f.state, f.stateAt = due, max(after, replay)
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		s.Leave(f)
		return true // nobody is told any more
	}
	old := c.feedLocked(s)
	if old == nil {
		f.since = f.log.Appended()
		c.feeds = append(c.feeds, f)
	} else {
		f.since = max(old.since, old.pos) // those behind it the new one gives in their places
		f.oldest, f.newest = old.oldest, old.newest
		if goesOn && old.pos > f.pos {
			f.pos, f.written = old.pos, max(f.written, old.written)
			f.first = append(f.first, old.first...) // which it has not given
			slices.Sort(f.first)
			f.first = slices.Compact(f.first)
		}
		old.unwatch()
		c.feeds[slices.Index(c.feeds, old)] = f
	}
	c.watchLocked(f)
	c.mu.Unlock()
	if old != nil {
		s.Leave(old)
		c.deliverPassed(old, after) // what the new one begins behind
	}
	return true
}

// AttachFrom attaches the client to a session from behind after, unless it is
// attached already.
func (c *Client) AttachFrom(s Session, after uint64) {
	if c.feedOf(s) != nil || !s.Enter() {
		return
	}
	defer s.Exit()
	f := newFeed(c, s, after)
	c.mu.Lock()
	f.since = f.log.Appended()
	added := c.addLocked(f)
	c.mu.Unlock()
	if !added {
		s.Leave(f)
	}
}

// addLocked makes f the client's feed of its session, unless there is one.
func (c *Client) addLocked(f *Feed) bool {
	if c.closed || c.feedLocked(f.session) != nil {
		return false
	}
	c.feeds = append(c.feeds, f)
	c.watchLocked(f)
	return true
}

// Created answers the request that made the session and attaches its client, in
// one step: a client that has one stream for all must not be told of a session
// before it knows its id, and one that knows the id must be attached.
func (c *Client) Created(q *Request, s Session, result []byte) {
	var f *Feed
	if s.Enter() {
		defer s.Exit()
		f = newFeed(c, s, 0)
	}
	c.mu.Lock()
	if q.done.CompareAndSwap(false, true) {
		delete(c.requests, q.id)
		q.span.End(observe.OutcomeOf(nil))
		m := acp.NewResult(q.id, result)
		frame := q.raised(&m)
		switch {
		case q.sink != nil:
			q.sink <- acp.Reply{Frame: frame}
		case !c.closed:
			_, _ = c.controlFeedLocked().log.AppendFlush(journal.Response, c.num, frame) // in memory: it cannot fail
			c.noteUnreadLocked()
		}
	}
	added := f == nil || c.addLocked(f)
	c.mu.Unlock()
	if !added {
		s.Leave(f)
	}
}

// Detach ends the client's reading of the session.
func (c *Client) Detach(s Session) {
	c.mu.Lock()
	for i, f := range c.feeds {
		if f.session == s {
			c.feeds = append(c.feeds[:i:i], c.feeds[i+1:]...)
			f.unwatch()
			upTo := f.log.Appended()
			c.mu.Unlock()
			s.Leave(f)
			c.deliverPassed(f, upTo)
			return
		}
	}
	c.mu.Unlock()
}

// respondLocked notes a response to the client that is in the log.
func (f *Feed) respondLocked(seq uint64) {
	if f.newest <= max(f.pos, f.since) {
		f.oldest = seq
	}
	f.newest = seq
}

// waits reports whether the client waits for a response that is in the log behind after and before end. Where only some of several were
// handed out it may be that it does not.
func (c *Client) waits(f *Feed, after, end uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	after = max(after, f.since)
	return f.newest > after && f.oldest < end && c.shape != acp.Inline // whose responses travel beside the stream
}

// loseAsks forgets the requests of the session that the client holds and that are open no more, and reports whether there are any: nobody
// tells it. What says so behind upTo is not looked for: where the client reads the session still, it comes to that.
func (c *Client) loseAsks(s Session, upTo uint64) (lost bool) {
	closed := map[int64]bool{}
	c.mu.Lock()
	for id, session := range c.given {
		if session != s.ID() {
			continue
		}
		if _, open := c.asks.Open(id); !open {
			closed[id] = true
		}
	}
	c.mu.Unlock()
	if len(closed) == 0 {
		return false
	}
	s.Flush()
	for cur := s.Log().Whole(upTo); ; {
		batch, err := cur.Next(nil, 64<<10)
		if err != nil || len(batch) == 0 {
			break
		}
		for _, e := range batch {
			if e.Kind == journal.AskDone {
				delete(closed, doneAsk(e.Frame))
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range closed {
		if _, holds := c.given[id]; holds {
			delete(c.given, id)
			lost = true
		}
	}
	return lost
}

// lose has the client's own stream end with why it is not complete.
func (c *Client) lose(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = why
	if st := c.streams[""]; st != nil {
		st.poke()
	}
}

// deliverPassed puts on the client's own stream what it waits for and has not been handed, up to an entry: responses,
// and that requests it holds are open no more. f was a feed of the client and is no more.
func (c *Client) deliverPassed(f *Feed, upTo uint64) {
	c.mu.Lock()
	pos := f.pos
	c.mu.Unlock()
	f.session.Flush()
	c.whenShown(f.session, upTo, func() { c.postPassed(f, pos, upTo) })
}

// postPassed is deliverPassed when that may be shown: the log shows it, or was deleted.
func (c *Client) postPassed(f *Feed, pos, upTo uint64) {
	if why, waits := c.postUpTo(f, pos, upTo); why != nil && (c.loseAsks(f.session, upTo) || waits) {
		c.lose(why)
	}
}

// postUpTo posts what the log has still, and returns why that is not all, and whether the client waits for a response among the rest.
func (c *Client) postUpTo(f *Feed, pos, upTo uint64) (why error, waits bool) {
	inline := c.Shape() == acp.Inline // responses travel beside the stream
	for cur := f.log.Whole(pos); cur.After() < upTo; {
		batch, err := cur.Next(nil, 64<<10)
		if gone, ok := errors.AsType[*journal.TruncatedError](err); ok && gone.Oldest > cur.After()+1 {
			why = problem.New(problem.EventsExpired, "events of the session %s were dropped before they could be sent: load it anew", f.session.ID())
			waits = waits || c.waits(f, cur.After(), gone.Oldest)
			cur.Seek(gone.Oldest - 1)
			continue
		}
		if err != nil {
			why = problem.Wrap(problem.Internal, err, "cannot read the log of the session %s: what this connection still waits for there is lost", f.session.ID())
			return why, waits || c.waits(f, cur.After(), upTo+1)
		}
		if len(batch) == 0 {
			break
		}
		for _, e := range batch {
			switch {
			case e.Seq > upTo:
				return why, waits
			case e.Kind == journal.Response && e.To == c.num && e.Seq > f.since && !inline:
				c.Post(journal.Response, e.Frame)
			case e.Kind == journal.AskDone && e.To.Includes(c.num) && c.tellsClosed(doneAsk(e.Frame)):
				c.Post(journal.AskDone, e.Frame)
			case e.Kind == journal.AskDone:
				c.ForgetAsk(doneAsk(e.Frame))
			}
		}
	}
	return why, waits
}
