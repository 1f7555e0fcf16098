package runtime

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/acp/schema"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// Client is one connected ACP client: what it can, which sessions it is
// attached to, and how far its streams have come.
type Client struct {
	r     *Runtime
	id    string
	num   journal.Recipient
	agent *agent // that initialize named
	caps  clientCaps
	info  json.RawMessage // clientInfo
	proc  atomic.Pointer[proc]
	used  atomic.Int64 // unix ms of the last request
	done  chan struct{}

	onClose func(id string)

	mu       sync.Mutex
	shape    acp.Shape
	closed   bool
	streamed bool         // it had a stream for everything
	control  *journal.Log // what belongs to no session; nil until needed
	feeds    []*feed      // the control feed first, then in order of attachment
	streams  map[string]*Stream
	requests map[acp.ID]*request // in flight
	given    map[int64]bool      // asks it was given and has not answered
	event    uint64              // id of the last event handed out
	runs     []run               // which log entries the events were
	expired  uint64              // newest event whose run was given up
	progress chan struct{}       // closed at the next Written; nil when nobody waits
}

// clientCaps is what the client said in initialize, as far as the gateway acts on it.
type clientCaps struct {
	raw                               json.RawMessage // for the agent
	fsRead, fsWrite, terminal         bool
	form, url, question, eventNumbers bool
	turns                             bool // it wants to know how turns of others end
}

func readClientCaps(caps json.RawMessage) clientCaps {
	has := func(path ...string) bool {
		v, ok := rawjson.Member(caps, path...)
		return ok && string(v) != "null" && string(v) != "false"
	}
	return clientCaps{
		raw:    processCapabilities(caps),
		fsRead: has("fs", "readTextFile"), fsWrite: has("fs", "writeTextFile"), terminal: has("terminal"),
		form: has("elicitation", "form"), url: has("elicitation", "url"),
		question:     has("_meta", acp.MetaKey, "requestQuestion"),
		eventNumbers: has("_meta", acp.MetaKey, "eventIds"),
		turns:        has("_meta", acp.MetaKey, "turns"),
	}
}

// can reports whether the client offers a method that agents call.
func (c clientCaps) can(method string) bool {
	switch method {
	case "fs/read_text_file":
		return c.fsRead
	case "fs/write_text_file":
		return c.fsWrite
	case "terminal/create", "terminal/output", "terminal/wait_for_exit", "terminal/kill", "terminal/release":
		return c.terminal
	case methodElicit:
		return c.form || c.url
	}
	return true
}

// Connect opens a connection with its initialize request. It implements
// [acp.Gateway].
func (r *Runtime) Connect(ctx context.Context, m acp.Message, o acp.ConnectOptions) (acp.Client, acp.Reply, error) {
	if r.closing.Load() {
		return nil, acp.Reply{}, problem.New(problem.Unavailable, "the gateway is shutting down")
	}
	name := rawjson.MemberString(m.Meta(), acp.MetaKey, "agent")
	if name == "" {
		name = o.Agent
	}
	if o.ID == "" {
		o.ID = uuid.NewString()
	}
	a, err := r.agentNamed(name)
	if err != nil {
		return nil, acp.Reply{}, err
	}
	if v, ok := rawjson.Member(m.Params(), "protocolVersion"); !ok || (v[0] != '"' && (v[0] < '0' || v[0] > '9')) {
		e := acp.NewError(m.ID(), acp.Errorf(acp.CodeInvalidParams, "initialize needs params.protocolVersion"))
		return nil, acp.Reply{Frame: e.Frame()}, problem.New(problem.InvalidRequest, "initialize needs params.protocolVersion, a number: send 1")
	}
	caps, _ := rawjson.Member(m.Params(), "clientCapabilities")
	info, _ := rawjson.Member(m.Params(), "clientInfo")
	c := &Client{
		r: r, id: o.ID, onClose: o.OnClose, num: r.nextClient(), agent: a, caps: readClientCaps(append(json.RawMessage(nil), caps...)),
		info: append(json.RawMessage(nil), info...), done: make(chan struct{}), shape: o.Shape,
		streams: map[string]*Stream{}, requests: map[acp.ID]*request{}, given: map[int64]bool{},
	}
	w := c.wants()
	w.tell = nil
	var mu sync.Mutex
	connected := false
	if o.Notify != nil {
		w.tell = func(p adapters.InstallProgress) {
			mu.Lock()
			defer mu.Unlock()
			if !connected {
				o.Notify(progressFrame(p))
			}
		}
	}
	p, err := a.process(ctx, w)
	mu.Lock()
	connected = true // from here on the transport writes by itself
	mu.Unlock()
	if err != nil {
		return nil, acp.Reply{}, err
	}
	c.proc.Store(p)
	c.used.Store(time.Now().UnixMilli())
	r.mu.Lock()
	r.clients[c.id] = c
	r.mu.Unlock()
	res := acp.NewResult(m.ID(), r.initializeResult(a, p))
	return c, acp.Reply{Frame: res.Frame()}, nil
}

// initializeResult is the agent's own answer with what the gateway adds.
func (r *Runtime) initializeResult(a *agent, p *proc) json.RawMessage {
	res := p.init
	set := func(value string, path ...string) { res = rawjson.SetMember(res, []byte(value), path...) }
	set("1", "protocolVersion")
	set("true", "agentCapabilities", "loadSession")
	for _, name := range []string{"list", "resume", "close", "delete"} {
		if _, ok := rawjson.Member(res, "agentCapabilities", "sessionCapabilities", name); !ok {
			set("{}", "agentCapabilities", "sessionCapabilities", name)
		}
	}
	if _, ok := rawjson.Member(res, "agentInfo"); !ok {
		info, _ := schema.Encode(map[string]string{"name": a.id, "version": r.o.Version})
		set(string(info), "agentInfo")
	}
	if _, ok := rawjson.Member(res, "authMethods"); !ok {
		set("[]", "authMethods")
	}
	own, _ := schema.Encode(map[string]any{
		"agent": a.id, "agents": r.names, "version": r.o.Version, "extensions": r.extensions(),
	})
	set(string(own), "agentCapabilities", "_meta", acp.MetaKey)
	return res
}

// ID returns the connection's id.
func (c *Client) ID() string { return c.id }

// Done is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.done }

// SetShape decides how the connection's events travel.
func (c *Client) SetShape(shape acp.Shape) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.shape = shape
}

// Close ends the connection. Its sessions go on.
func (c *Client) Close() {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	c.closed = true
	feeds, streams := c.feeds, c.streams
	c.feeds, c.streams = nil, map[string]*Stream{}
	c.mu.Unlock()
	c.r.mu.Lock()
	delete(c.r.clients, c.id)
	c.r.mu.Unlock()
	for _, f := range feeds {
		f.unwatch()
		if f.session != nil {
			f.session.detach(f)
		}
	}
	for _, st := range streams {
		st.end()
	}
	if p := c.proc.Swap(nil); p != nil {
		p.release()
	}
	close(c.done)
	if c.onClose != nil {
		c.onClose(c.id)
	}
}

// controlFeed returns the feed of what belongs to no session.
func (c *Client) controlFeedLocked() *feed {
	if c.control == nil {
		c.control, _ = journal.Open("", journal.Options{Memory: 64 << 20})
		f := &feed{client: c, log: c.control}
		c.feeds = append([]*feed{f}, c.feeds...)
		c.watchLocked(f)
	}
	return c.feeds[0]
}

// post appends a frame of no session to the client's own log.
func (c *Client) post(k journal.Kind, frame []byte) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return
	}
	l := c.controlFeedLocked().log
	c.mu.Unlock()
	_, _ = l.AppendFlush(k, c.num, frame) // a log in memory cannot fail
}

// Deliver puts a frame on the connection's own stream.
func (c *Client) Deliver(m acp.Message) { c.post(journal.Response, m.Frame()) }

// feedOf returns the client's feed of the session, nil when it is not attached.
func (c *Client) feedOf(s *Session) *feed {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.feedLocked(s)
}

func (c *Client) feedLocked(s *Session) *feed {
	for _, f := range c.feeds {
		if f.session == s {
			return f
		}
	}
	return nil
}

// mayAnswer reports whether the client was given the ask: who was not cannot
// mean it.
func (c *Client) mayAnswer(a *ask) bool {
	if a.session == nil {
		return a.proc.concerns(c)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.feedLocked(a.session)
	return f != nil && a.seq <= max(f.pos, f.asked)
}

// attach makes the session's log one of the client's feeds, from behind after,
// entries up to replay as history. It replaces an earlier feed of the session.
// Open asks the feed would not come to are given first.
func (c *Client) attach(s *Session, after, replay uint64) *feed {
	f := c.newFeed(s, after)
	f.replay = replay
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		s.detach(f)
		return f
	}
	f.since = f.log.Appended()
	old := c.feedLocked(s)
	if old == nil {
		c.feeds = append(c.feeds, f)
	} else {
		old.unwatch()
		f.asked = max(old.asked, old.pos)
		c.feeds[slices.Index(c.feeds, old)] = f
	}
	c.watchLocked(f)
	c.mu.Unlock()
	if old != nil {
		s.detach(old)
		c.salvage(old, f.since)
	}
	return f
}

// newFeed returns a feed of the session's log from behind after, which the
// session knows and the client does not yet.
func (c *Client) newFeed(s *Session, after uint64) *feed {
	f := &feed{client: c, session: s, log: s.log(), pos: after, written: after}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asksMu.Lock()
	for seq := range s.asks {
		if seq <= after {
			f.first = append(f.first, seq)
		}
	}
	s.asksMu.Unlock()
	slices.Sort(f.first)
	s.feeds[f] = struct{}{}
	return f
}

// addLocked makes f the client's feed of its session, unless there is one.
func (c *Client) addLocked(f *feed) bool {
	if c.closed || c.feedLocked(f.session) != nil {
		return false
	}
	c.feeds = append(c.feeds, f)
	c.watchLocked(f)
	return true
}

// salvage puts responses up to an entry that the client has not been handed on
// its own stream: f was a feed of the client and is no more.
func (c *Client) salvage(f *feed, upTo uint64) {
	c.mu.Lock()
	pos, inline := f.pos, c.shape == acp.Inline
	c.mu.Unlock()
	if inline {
		return // they travel beside the stream
	}
	f.session.flush()
	for cur := f.log.Cursor(pos); cur.After() < upTo; {
		batch, err := cur.Next(nil, 64<<10)
		if err != nil || len(batch) == 0 {
			return
		}
		for _, e := range batch {
			if e.Kind == journal.Response && e.To == c.num && e.Seq > f.since && e.Seq <= upTo {
				c.post(journal.Response, e.Frame)
			}
		}
	}
}

// ensureAttached attaches a client that acts on a session it did not open, from
// now on. One that acts on its new session before the answer is out misses nothing.
func (c *Client) ensureAttached(s *Session) {
	if c.feedOf(s) != nil {
		return
	}
	after := s.log().Last()
	s.mu.Lock()
	if s.creator == c.num {
		after = 0
	}
	s.mu.Unlock()
	f := c.newFeed(s, after)
	c.mu.Lock()
	f.since = f.log.Appended()
	added := c.addLocked(f)
	c.mu.Unlock()
	if !added {
		s.detach(f)
	}
}

// welcome answers the request that made the session and attaches its client, in
// one step: a client that has one stream for all must not hear of a session
// before it knows its id, and one that knows the id must be attached.
func (c *Client) welcome(q *request, s *Session, result []byte) {
	f := c.newFeed(s, 0)
	c.mu.Lock()
	if q.done.CompareAndSwap(false, true) {
		delete(c.requests, q.id)
		q.span.End(outcomeOf(nil))
		m := acp.NewResult(q.id, result)
		switch {
		case q.sink != nil:
			q.sink <- acp.Reply{Frame: m.Frame()}
		case !c.closed:
			_, _ = c.controlFeedLocked().log.AppendFlush(journal.Response, c.num, m.Frame()) // in memory: it cannot fail
		}
	}
	added := c.addLocked(f)
	c.mu.Unlock()
	if !added {
		s.detach(f)
	}
	s.mu.Lock()
	s.creator = journal.Nobody
	s.mu.Unlock()
}

// leave detaches the client from the session.
func (c *Client) leave(s *Session) {
	c.mu.Lock()
	for i, f := range c.feeds {
		if f.session == s {
			c.feeds = append(c.feeds[:i:i], c.feeds[i+1:]...)
			f.unwatch()
			upTo := f.log.Appended()
			c.mu.Unlock()
			s.detach(f)
			c.salvage(f, upTo)
			return
		}
	}
	c.mu.Unlock()
}

func (s *Session) detach(f *feed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.feeds, f)
}
