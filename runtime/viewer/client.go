package viewer

import (
	"sync"
	"sync/atomic"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/version"
	"sandboxagent.dev/sandbox-agent/internal/awake"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// Client is one connected ACP client as a reader: which logs it reads, how far its
// streams have come, and which of its requests are open. Its methods are safe for
// concurrent use.
type Client struct {
	id     string
	num    journal.Recipient
	caps   atomic.Pointer[Capabilities]
	asks   Asks
	unread *Unread
	used   atomic.Int64 // unix ms of the last request
	done   chan struct{}
	later  sync.WaitGroup // those that wait in whenShown

	mu       sync.Mutex
	shape    acp.Shape
	closed   bool
	streamed bool         // it had a stream for everything
	control  *journal.Log // what belongs to no session; nil until needed
	feeds    []*Feed      // the control feed first, then in order of attachment
	streams  map[string]*Stream
	requests map[acp.ID]*Request // in flight
	given    map[int64]string    // requests of agents that it was given and does not know to be closed, and which session tells it so; "" for its own log
	lost     error               // what is missing on its own stream, until that has said so; nil for nothing
	event    uint64              // id of the last event handed out
	runs     []run               // which log entries the events were
	expired  uint64              // newest event whose run was given up
	progress chan struct{}       // closed at the next Written; nil when nobody waits
}

// Session is a session as its readers need it. Its methods are safe for concurrent
// use; Join and Leave must not be called with the lock of a Client held.
type Session interface {
	ID() string
	// Log is where everything of the session is.
	Log() *journal.Log
	// Flush shows what was appended to the log.
	Flush()
	// Enter keeps the session from being removed until Exit; false means that it was.
	Enter() bool
	Exit()
	// Join notes a reader, and returns the entries up to after that are open
	// requests of the agent.
	Join(f *Feed, after uint64) (open []uint64)
	// OpenAsk returns an open request of the agent by its entry, also where the log has let go of that.
	OpenAsk(seq uint64) (journal.Entry, bool)
	// Leave undoes Join.
	Leave(f *Feed)
	// BesideLog is what the log does not say of the session.
	BesideLog() version.About
}

// Asks knows the requests of agents that are open.
type Asks interface {
	// Open returns a request that is open, by the id that clients know it by.
	Open(id int64) (*Ask, bool)
}

// NewClient returns a client without streams. num is what logs call it; unread bounds what
// it and others do not read.
func NewClient(id string, num journal.Recipient, caps Capabilities, shape acp.Shape, asks Asks, unread *Unread) *Client {
	c := &Client{
		id: id, num: num, shape: shape, asks: asks, unread: unread, done: make(chan struct{}),
		streams: map[string]*Stream{}, requests: map[acp.ID]*Request{}, given: map[int64]string{},
	}
	c.caps.Store(&caps)
	c.Touch()
	return c
}

// ID returns the connection's id.
func (c *Client) ID() string { return c.id }

// Done is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.done }

// SetShape decides how the connection's events travel. Responses of version 2 keep their
// place among the events, which those of the inline shape do not.
func (c *Client) SetShape(shape acp.Shape) error {
	if shape == acp.Inline && c.Capabilities().Two() {
		return problem.New(problem.InvalidRequest, "this connection speaks version 2 of the protocol, which the inline dialect does not carry: go on with the header of the standard dialect, or initialize with protocolVersion 1")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shape = shape
	return nil
}

// Close ends the reading, and reports whether this call did.
func (c *Client) Close() bool {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return false
	}
	c.closed = true
	feeds, streams := c.feeds, c.streams
	if c.control != nil {
		c.unread.drop(c.control)
	}
	c.feeds, c.streams = nil, map[string]*Stream{}
	c.mu.Unlock()
	for _, f := range feeds {
		f.unwatch()
		if f.session != nil {
			f.session.Leave(f)
		}
	}
	for _, st := range streams {
		st.end()
	}
	close(c.done)
	c.later.Wait()
	return true
}

// Closed reports whether Close was called.
func (c *Client) Closed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// Number is what logs call the client.
func (c *Client) Number() journal.Recipient { return c.num }

// Capabilities returns what the client said that it can.
func (c *Client) Capabilities() Capabilities { return *c.caps.Load() }

// Renew takes what the client said in an initialize that it has repeated. The version
// stays.
func (c *Client) Renew(caps Capabilities) {
	caps.Version = c.caps.Load().Version
	c.caps.Store(&caps)
}

// Shape returns how the connection's events travel.
func (c *Client) Shape() acp.Shape {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.shape
}

// Touch says that the client has sent something.
func (c *Client) Touch() { c.used.Store(int64(awake.Now())) }

// Abandoned reports whether the connection has had neither stream nor request for a
// time.
func (c *Client) Abandoned(limit time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.streams) == 0 && len(c.requests) == 0 && awake.Moment(c.used.Load()).Ago() > limit
}

const (
	maxUnread   = 64 << 20 // of what belongs to no session, for one client
	keepWritten = 2 << 20  // of it when it was written: streams break, and ask for it again
)

// controlFeedLocked returns the feed of what belongs to no session.
func (c *Client) controlFeedLocked() *Feed {
	if c.control == nil {
		c.control, _ = journal.Open("", journal.Options{Memory: maxUnread})
		f := &Feed{client: c, log: c.control}
		c.feeds = append([]*Feed{f}, c.feeds...)
		c.watchLocked(f)
	}
	return c.feeds[0]
}

// Post appends a frame of no session to the client's own log.
func (c *Client) Post(k journal.Kind, frame []byte) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	l := c.controlFeedLocked().log
	c.mu.Unlock()
	_, _ = l.AppendFlush(k, c.num, frame) // a log in memory cannot fail
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noteUnreadLocked()
}

// noteUnreadLocked counts what the client's own log holds, as long as it may be read.
func (c *Client) noteUnreadLocked() {
	if c.control != nil && !c.closed {
		c.unread.note(c.control)
	}
}

// Deliver puts a frame on the connection's own stream.
func (c *Client) Deliver(m acp.Message) { c.Post(journal.Response, m.Frame()) }
