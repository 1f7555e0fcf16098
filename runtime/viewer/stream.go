package viewer

import (
	"errors"
	"slices"
	"sort"
	"sync"
	"sync/atomic"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/version"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// maxRuns bounds what a connection remembers of its events. Beyond it the
// oldest can no longer be asked for by id; the logs still have them.
const maxRuns = 1 << 16

// run says that n consecutive events were consecutive entries of one log.
type run struct {
	event uint64 // id of the first
	n     uint64
	seq   uint64 // entry of the first
	log   *journal.Log
	sess  Session
	raise raised // of a client that has views
}

// Stream is one open stream of a client. It implements [acp.Stream].
type Stream struct {
	c    *Client
	key  string // session id; "" is the connection's own
	all  bool   // it carries every feed
	wake chan struct{}
	done chan struct{}
	once sync.Once

	room  func(bytes int) error // asked before much memory is taken; nil asks nobody
	small int                   // while PollSmall polls, its limit

	push    atomic.Pointer[func() bool] // see acp.Stream
	showing atomic.Int32                // how many show entries, and push them
	due     atomic.Int64                // bytes that were shown since a wake-up or a push

	cursors map[*Feed]*journal.Cursor
	feeds   []*Feed
	full    *Feed // took all the room of the last poll; nil when none did
	polled  []mark
	entries []journal.Entry
	events  []acp.Event
	arena   []byte // frames that were rendered for this client

	next, until uint64 // ids still to be replayed; none when next > until

	out  version.Frames             // made for this client
	skim version.Frames             // made and not shown
	past map[*journal.Log]*pastView // for what is replayed to one
}

// mark is how far a poll came in a feed.
type mark struct {
	f   *Feed
	pos uint64
}

var _ acp.Stream = (*Stream)(nil)

// watchLocked makes the feed wake the stream that carries it.
func (c *Client) watchLocked(f *Feed) {
	f.unwatch()
	key := ""
	if f.session != nil && c.shape == acp.PerSession {
		key = f.session.ID()
	}
	if st := c.streams[key]; st != nil {
		st.watchLocked(f)
		st.poke()
	}
}

func (st *Stream) watchLocked(f *Feed) {
	f.stop = f.log.WatchBy(st)
	f.carrier.Store(st)
}

// Tell implements [journal.Watcher].
func (st *Stream) Tell(bytes int) {
	if bytes > mostPushed { // at once: it is written while the rest is done here
		st.poke()
		return
	}
	st.due.Add(int64(max(bytes, 1)))
	if st.showing.Load() == 0 && st.due.Swap(0) > 0 {
		st.poke()
	} // else who shows it passes it on, since it sees due after showing
}

// pass has what is due written, here or by who waits for Wake.
func (st *Stream) pass() {
	due := st.due.Swap(0)
	if due == 0 {
		return
	}
	if push := st.push.Load(); due > mostPushed || push == nil || !(*push)() {
		st.poke()
	}
}

// mostPushed is how much is pushed, in bytes. More is better written while the next is read.
const mostPushed = 2 << 10

// Push implements [acp.Stream].
func (st *Stream) Push(push func() bool) { st.push.Store(&push) }

func (st *Stream) poke() {
	select {
	case st.wake <- struct{}{}:
	default:
	}
}

// carries reports whether the feed's events travel on this stream.
func (st *Stream) carries(f *Feed) bool {
	if st.all {
		return true
	}
	if f.session == nil {
		return st.key == ""
	}
	return f.session.ID() == st.key
}

// Stream opens a stream of the client.
func (c *Client) Stream(session string, after *uint64) (acp.Stream, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, problem.New(problem.ClientNotFound, "the connection has ended: initialize again")
	}
	if c.shape != acp.PerSession {
		session = ""
	}
	old := c.streams[session]
	if old != nil && after == nil {
		return nil, problem.New(problem.Conflict, "this stream is open already: send Last-Event-ID to take it over")
	}
	st := &Stream{
		c: c, key: session, all: c.shape != acp.PerSession,
		wake: make(chan struct{}, 1), done: make(chan struct{}), cursors: map[*Feed]*journal.Cursor{}, next: 1,
	}
	if after != nil {
		if err := c.replayableLocked(st, *after); err != nil {
			return nil, err
		}
	}
	for _, f := range c.feeds {
		if !st.carries(f) {
			continue
		}
		if oldest := f.log.Oldest(); f.pos+1 < oldest {
			// Said once; who comes back gets what is left.
			err := problem.New(problem.EventsExpired, "events were dropped while no stream was open, the oldest kept has sequence number %d: load the session anew", oldest).With("oldestSeq", oldest)
			f.pos, f.view = oldest-1, nil
			return nil, err
		}
	}
	if old != nil {
		old.end()
	}
	c.streams[session] = st
	c.streamed = c.streamed || st.all
	for _, f := range c.feeds {
		if st.carries(f) {
			f.unwatch()
			st.watchLocked(f)
		}
	}
	st.poke()
	return st, nil
}

// replayableLocked sets the stream to begin behind event after.
func (c *Client) replayableLocked(st *Stream, after uint64) error {
	if after > c.event {
		return problem.New(problem.InvalidRequest, "Last-Event-ID %d was never sent on this connection: the newest event is %d", after, c.event)
	}
	oldest := c.expired + 1
	gone := after < c.expired
	if i := c.runOf(after + 1); i < len(c.runs) && !gone {
		for _, r := range c.runs[i:] {
			if st.all || st.key == runKey(r) {
				seq := r.seq + (max(after+1, r.event) - r.event)
				if first := r.log.Oldest(); first > seq {
					gone, oldest = true, r.event+(first-r.seq)
				}
				break
			}
		}
	}
	if gone {
		return problem.New(problem.EventsExpired, "events after %d are no longer kept, the oldest is %d: load the session anew", after, oldest).With("oldestEventId", oldest)
	}
	st.next, st.until = after+1, c.event
	return nil
}

func runKey(r run) string {
	if r.sess == nil {
		return ""
	}
	return r.sess.ID()
}

// runOf returns the index of the run that holds event id, or of the next one.
func (c *Client) runOf(id uint64) int {
	return sort.Search(len(c.runs), func(i int) bool { return c.runs[i].event+c.runs[i].n > id })
}

// Wake receives when Poll may have something new.
func (st *Stream) Wake() <-chan struct{} { return st.wake }

// Done is closed when the stream must end.
func (st *Stream) Done() <-chan struct{} { return st.done }

func (st *Stream) end() { st.once.Do(func() { close(st.done) }) }

// Close gives the stream up.
func (st *Stream) Close() {
	st.end()
	c := st.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.streams[st.key] != st {
		return
	}
	delete(c.streams, st.key)
	for _, f := range c.feeds {
		if st.carries(f) {
			f.unwatch()
		}
	}
	c.Touch()
	c.advancedLocked()
}

// Room has Poll ask before it takes the memory of a large event.
func (st *Stream) Room(ask func(bytes int) error) { st.room = ask }

// largeEvents is what the events of one poll hold in all when one of them is large.
const largeEvents = 256 << 10

// afford asks for the memory in which events are made for the client.
func (st *Stream) afford(bytes int) error {
	switch {
	case st.small > 0 && bytes > st.small:
		return errLarge
	case st.room == nil || bytes <= largeEvents:
		return nil
	}
	return st.room(bytes)
}

// cursor returns a cursor of the log that asks, too.
func (st *Stream) cursor(l *journal.Log, after uint64) *journal.Cursor {
	cur := l.Cursor(after)
	cur.Room = st.afford
	return cur
}

// fewEntries are read of a log by PollSmall.
const fewEntries = 8

// errLarge is why PollSmall leaves events to Poll.
var errLarge = errors.New("large events are for who may wait")

// PollSmall implements [acp.Stream].
func (st *Stream) PollSmall(limit int) (events []acp.Event, more bool, err error) {
	if st.next <= st.until {
		return nil, true, nil
	}
	st.begin()
	st.small = limit
	err = st.pollFeeds(&limit)
	st.small = 0
	if errors.Is(err, errLarge) {
		return st.events, true, nil
	}
	for _, f := range st.feeds {
		cur := st.cursors[f] // nil when the limit was reached before
		more = more || cur == nil || cur.After() < f.log.Last()
	}
	return st.events, more, err
}

// Poll returns the next events.
func (st *Stream) Poll(limit int) ([]acp.Event, error) {
	st.begin()
	if st.next <= st.until {
		if err := st.pollReplay(limit); err != nil || len(st.events) > 0 {
			st.poke()
			return st.events, err
		}
	}
	if err := st.pollFeeds(&limit); err != nil {
		return nil, err
	}
	if len(st.polled) > 0 {
		st.poke() // there may be more than one poll returns
	}
	return st.events, nil
}

// begin lets go of what the poll before returned.
func (st *Stream) begin() {
	st.events, st.arena, st.polled = st.events[:0], st.arena[:0], st.polled[:0]
	if cap(st.arena) > largeEvents {
		st.arena = nil
	}
	st.out.Reset()
}

// pollFeeds adds the next events of all feeds.
func (st *Stream) pollFeeds(limit *int) error {
	c := st.c
	c.mu.Lock()
	if err := c.lost; err != nil && st.key == "" {
		c.lost = nil
		c.mu.Unlock()
		return err
	}
	st.feeds = st.feeds[:0]
	for _, f := range c.feeds {
		if st.carries(f) {
			st.feeds = append(st.feeds, f)
			if f.written < f.pos || f.state == told { // handed to a stream that broke, and replayed on this one
				st.polled = append(st.polled, mark{f, f.pos})
			}
		}
	}
	c.mu.Unlock()
	st.forgetDetached()
	full := slices.Index(st.feeds, st.full)
	st.full = nil
	for _, f := range inTurn(st.feeds, full) {
		if err := st.pollFeed(f, limit); err != nil && st.attached(f) {
			return err
		} // else its session was deleted meanwhile: the others go on
		if *limit <= 0 {
			st.full = f
			break
		}
	}
	return nil
}

// inTurn returns the feeds so that the one at full comes last. That of no session stays first: by it a client learns
// of a session before it is told what goes on there.
func inTurn(feeds []*Feed, full int) []*Feed {
	first := 0
	if len(feeds) > 0 && feeds[0].session == nil {
		first = 1
	}
	if full >= first {
		slices.Reverse(feeds[first : full+1])
		slices.Reverse(feeds[full+1:])
		slices.Reverse(feeds[first:])
	}
	return feeds
}

// forgetDetached drops the cursors of feeds that the client has no more: each
// keeps its session's log in memory.
func (st *Stream) forgetDetached() {
	if len(st.cursors) <= len(st.feeds) {
		return
	}
	for f := range st.cursors {
		if !slices.Contains(st.feeds, f) {
			delete(st.cursors, f)
		}
	}
}

func (st *Stream) attached(f *Feed) bool {
	st.c.mu.Lock()
	defer st.c.mu.Unlock()
	return slices.Contains(st.c.feeds, f)
}

// pollFeed adds the feed's next events.
func (st *Stream) pollFeed(f *Feed, limit *int) error {
	c := st.c
	viewed := f.session != nil && c.caps.Load().viewed()
	last := f.log.Last()
	c.mu.Lock()
	pos, first := f.pos, f.first
	if st.small > 0 && (viewed || len(first) > 0 || last > pos+fewEntries) {
		c.mu.Unlock()
		return errLarge
	}
	c.mu.Unlock()
	if viewed {
		if err := st.catchUp(f, pos); err != nil {
			return err
		}
	}
	var asks []journal.Entry
	for _, seq := range first {
		if e, open := f.session.OpenAsk(seq); open {
			asks = append(asks, e)
		}
	}
	cur := st.cursors[f]
	if cur == nil {
		cur = st.cursor(f.log, pos)
		cur.Paced = true
		st.cursors[f] = cur
	} else if cur.After() != pos {
		cur.Seek(pos)
	}
	var err error
	if st.entries, err = cur.Next(st.entries[:0], *limit); err != nil {
		if gone, ok := errors.AsType[*journal.TruncatedError](err); ok {
			return problem.New(problem.EventsExpired, "events were dropped before they could be sent, the oldest kept has sequence number %d: load the session anew", gone.Oldest).
				With("oldestSeq", gone.Oldest)
		}
		if errors.Is(err, errLarge) {
			delete(st.cursors, f) // it has stopped within a block
			return err
		}
		if p, ok := errors.AsType[*problem.Error](err); ok { // of room
			return p
		}
		return problem.Wrap(problem.Internal, err, "cannot read the session's log")
	}
	if len(st.entries) == 0 && len(first) == 0 && !viewed {
		return nil
	}
	bytes := 0
	for _, of := range [][]journal.Entry{asks, st.entries} {
		for _, e := range of {
			bytes += len(e.Frame) + 64
		}
	}
	*limit -= bytes
	if err := st.afford(bytes); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.streams[st.key] != st {
		st.events = st.events[:0] // taken over: its successor hands them out
		return nil
	}
	if !slices.Contains(c.feeds, f) {
		return nil // detached or attached anew meanwhile
	}
	if viewed && f.view == nil {
		return nil // another stream has moved the feed
	}
	if len(first) > 0 {
		for _, e := range asks {
			st.addLocked(f, e)
		}
		f.first = nil // not before: what fails until here leaves them to the next poll
		st.polled = append(st.polled, mark{f, f.pos})
	}
	if viewed {
		st.raiseAllLocked(f)
		return nil
	}
	for _, e := range st.entries {
		if frame := st.renderLocked(f, e); frame != nil {
			st.handOutLocked(f, e.Seq, frame)
		}
	}
	if n := len(st.entries); n > 0 {
		f.pos = st.entries[n-1].Seq
		st.polled = append(st.polled, mark{f, f.pos})
	}
	return nil
}

// addLocked hands out one entry out of order.
func (st *Stream) addLocked(f *Feed, e journal.Entry) {
	frame := st.renderLocked(f, e)
	switch {
	case frame == nil:
	case f.view != nil:
		st.handOutRaisedLocked(f, e.Seq, raised{per: 1, alone: true}, append([]byte(nil), frame...))
	default:
		st.handOutLocked(f, e.Seq, append([]byte(nil), frame...))
	}
}

// handOutLocked gives the frame its event id and notes where it came from.
func (st *Stream) handOutLocked(f *Feed, seq uint64, frame []byte) {
	c := st.c
	ev := acp.Event{Frame: frame}
	if c.shape != acp.OneStream {
		c.event++
		ev.ID = c.event
		if n := len(c.runs); n > 0 && c.runs[n-1].log == f.log && c.runs[n-1].seq+c.runs[n-1].n == seq {
			c.runs[n-1].n++
		} else {
			c.noteRunLocked(run{event: c.event, n: 1, seq: seq, log: f.log, sess: f.session})
		}
	}
	st.events = append(st.events, ev)
}

// noteRunLocked notes where the newest events came from.
func (c *Client) noteRunLocked(r run) {
	if n := len(c.runs); n >= maxRuns {
		drop := n / 4
		c.expired = c.runs[drop].event - 1
		c.runs = append(c.runs[:0], c.runs[drop:]...)
	}
	c.runs = append(c.runs, r)
}

// pollReplay adds events that were handed out before.
func (st *Stream) pollReplay(limit int) error {
	c := st.c
	for st.next <= st.until && limit > 0 {
		c.mu.Lock()
		i := c.runOf(st.next)
		if i >= len(c.runs) || c.runs[i].event > st.until {
			c.mu.Unlock()
			st.next = st.until + 1
			return nil
		}
		r := c.runs[i]
		c.mu.Unlock()
		if st.next = max(st.next, r.event); !st.all && st.key != runKey(r) {
			st.next = r.event + r.n
			continue
		}
		if r.raise.per > 0 {
			if err := st.replayRaised(r, &limit); err != nil {
				return err
			}
			continue
		}
		last := min(r.event+r.n-1, st.until)
		f := &Feed{client: c, session: r.sess, log: r.log}
		cur := st.cursor(r.log, r.seq+(st.next-r.event)-1)
		for st.next <= last && limit > 0 {
			var err error
			// Frames from the file live until the cursor's next step, and
			// those of this poll must live longer.
			if st.entries, err = cur.Next(st.entries[:0], limit); err != nil || len(st.entries) == 0 {
				if p, ok := errors.AsType[*problem.Error](err); ok { // of room
					return p
				}
				return problem.New(problem.EventsExpired, "events after %d are no longer kept: load the session anew", st.next-1)
			}
			bytes := 0
			for _, e := range st.entries {
				bytes += len(e.Frame) + 64
			}
			if err := st.afford(bytes); err != nil {
				return err
			}
			for _, e := range st.entries {
				if st.next > last {
					break
				}
				frame := e.Frame
				if e.Kind != journal.Response {
					frame = st.again(f, e)
				}
				limit -= len(frame) + 64
				start := len(st.arena)
				st.arena = append(st.arena, frame...)
				st.events = append(st.events, acp.Event{ID: st.next, Frame: st.arena[start:len(st.arena):len(st.arena)]})
				st.next++
			}
		}
	}
	return nil
}

// Kept returns how many logs the stream keeps a position in.
func (st *Stream) Kept() int { return len(st.cursors) }
