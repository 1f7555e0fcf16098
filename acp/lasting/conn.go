package lasting

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
)

const (
	standardGiveUp = 10 * time.Minute
	dialBound      = 20 * time.Second // for one attempt, its initialize included
	firstPause     = 200 * time.Millisecond
	longestPause   = 10 * time.Second
	maxWaiting     = 1024 // messages written while there is no connection
	maxUnread      = 256  // messages that the client has not read; beyond, the gateway is not read
)

// Options configure New.
type Options struct {
	// Dial opens a connection to the gateway.
	Dial func(ctx context.Context) (acp.Conn, error)
	// GiveUp is how long a broken connection is tried to be replaced; 0 is ten
	// minutes. The first connection is tried once.
	GiveUp time.Duration
	Logger *slog.Logger // nil discards
}

// Conn is an acp.Conn over connections that break. Read and Write may be called
// by two goroutines.
type Conn struct {
	o      Options
	ctx    context.Context
	cancel context.CancelCauseFunc
	work   sync.WaitGroup
	unread chan acp.Message

	order sync.Mutex // held while messages that belong together are handed to the client

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced whenever what Write waits for may be there
	live     *link         // nil while there is none, or while it is being prepared
	hello    acp.Message   // the client's initialize, as it is sent
	begun    bool
	greeted  bool                // initialize was answered
	turns    bool                // the client itself wants to hear how turns end
	waiting  []acp.Message       // written while there was no connection, in order
	requests map[acp.ID]*request // of the client, without a response
	sessions map[string]*session // that the client is attached to
	own      map[acp.ID]chan acp.Message
	lastOwn  int
	names    string // begins the names of prompts
}

var _ acp.Conn = (*Conn)(nil)

// link is one connection to the gateway.
type link struct {
	acp.Conn
	ended chan struct{} // closed when nothing more is read of it
}

// request is one of the client's that waits for its response.
type request struct {
	id       acp.ID
	frame    acp.Message
	method   string
	session  string // that it is about
	n        int    // grows with each
	sent     bool
	attached bool   // to a session that the client was attached to before
	name     string // of a prompt
	after    uint64 // of a prompt: the session's newest event before it
}

// session is one that the client is attached to.
type session struct {
	params []byte // of the resume that attaches to it again, without after
	after  uint64 // the newest event that the client was given
	asks   map[uint64]*ask
}

// ask is a request of the agent, by the place in the session's log.
type ask struct {
	method string
	shown  acp.ID // to the client
	id     acp.ID // on the connection of now; "" when it was not offered there
	answer *acp.Message
}

// New returns a connection that is opened with the first message, which must be
// initialize.
func New(o Options) *Conn {
	if o.GiveUp <= 0 {
		o.GiveUp = standardGiveUp
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c := &Conn{
		o: o, unread: make(chan acp.Message, maxUnread), changed: make(chan struct{}),
		requests: map[acp.ID]*request{}, sessions: map[string]*session{}, own: map[acp.ID]chan acp.Message{}, names: uuid.NewString(),
	}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	return c
}

// Read returns the next message. It fails when the connection was closed or
// given up.
func (c *Conn) Read(ctx context.Context) (acp.Message, error) {
	select {
	case m := <-c.unread:
		return m, nil
	default:
	}
	select {
	case m := <-c.unread:
		return m, nil
	case <-ctx.Done():
		return acp.Message{}, ctx.Err()
	case <-c.ctx.Done():
		select {
		case m := <-c.unread: // what came before the end
			return m, nil
		default:
			return acp.Message{}, context.Cause(c.ctx)
		}
	}
}

// Close ends the connection. Sessions live on.
func (c *Conn) Close() error {
	c.cancel(io.EOF)
	c.mu.Lock()
	live := c.live
	c.mu.Unlock()
	if live != nil {
		_ = live.Close()
	}
	c.work.Wait()
	return nil
}

// Write sends a message, now or with the next connection.
func (c *Conn) Write(ctx context.Context, m acp.Message) error {
	for {
		c.mu.Lock()
		if err := context.Cause(c.ctx); err != nil {
			c.mu.Unlock()
			return err
		}
		if !c.begun {
			err := c.beginLocked(m)
			c.mu.Unlock()
			return err
		}
		live := c.live
		if live == nil && len(c.waiting) >= maxWaiting {
			wait := c.changed
			c.mu.Unlock()
			select {
			case <-wait:
				continue
			case <-ctx.Done():
				return ctx.Err()
			case <-c.ctx.Done():
				return context.Cause(c.ctx)
			}
		}
		out, ok := c.outgoingLocked(m.Clone(), live != nil)
		if ok && live == nil {
			c.waiting = append(c.waiting, out)
		}
		c.mu.Unlock()
		if !ok || live == nil {
			return nil
		}
		if err := live.Write(ctx, out); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			c.lostWrite(live, out)
		}
		return nil
	}
}

// lostWrite keeps what a connection did not take for the next one, before what was
// written later. Requests are known already.
func (c *Conn) lostWrite(live *link, m acp.Message) {
	_ = live.Close() // its reader notices
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.live == live { // what comes next waits behind it
		c.live = nil
	}
	if m.IsRequest() {
		return
	}
	c.waiting = append([]acp.Message{m}, c.waiting...)
}

// beginLocked takes the client's first message and starts the connection.
func (c *Conn) beginLocked(m acp.Message) error {
	if m.Method() != "initialize" || !m.IsRequest() {
		if m.IsRequest() {
			c.unread <- acp.NewError(m.ID(), acp.Errorf(acp.CodeInvalidRequest, "the first message must be an initialize request")) // there is room: nothing else was written
		}
		return nil
	}
	caps, _ := acp.Member(m.Params(), "clientCapabilities")
	own, _ := acp.Member(caps, "_meta", acp.MetaKey)
	c.turns = acp.MemberBool(own, "turns")
	params := m.Params()
	for _, want := range []string{"eventIds", "turns"} {
		params = acp.SetMember(params, []byte("true"), "clientCapabilities", "_meta", acp.MetaKey, want)
	}
	c.hello = acp.NewRequest(m.ID(), "initialize", params)
	c.begun = true
	c.work.Go(c.run)
	return nil
}

// outgoingLocked notes a message of the client and returns what is sent for it;
// false when nothing is.
func (c *Conn) outgoingLocked(m acp.Message, sent bool) (acp.Message, bool) {
	switch {
	case m.IsResponse():
		return c.answerLocked(m)
	case !m.IsRequest():
		return m, true
	}
	c.lastOwn++
	r := &request{id: m.ID(), frame: m, method: m.Method(), session: m.Session(), n: c.lastOwn, sent: sent}
	if r.method == acp.MethodSessionPrompt {
		r.name = acp.MemberString(m.Meta(), acp.MetaKey, "promptId")
		if r.name == "" {
			r.name = c.names + "-" + strconv.Itoa(r.n)
			r.frame = acp.NewRequest(r.id, r.method, acp.SetMember(m.Params(), acp.AppendQuoted(nil, r.name), "_meta", acp.MetaKey, "promptId"))
		}
		if s := c.sessions[r.session]; s != nil {
			r.after = s.after
		}
	}
	if r.opens() {
		after, given := uintOf(m.Meta(), "after")
		r.attached = c.sessions[r.session] != nil
		s := c.attachLocked(r.session, m.Params(), after)
		if r.method == acp.MethodSessionLoad && (!given || after < s.after) {
			s.after = after // what comes again is wanted again
		}
	}
	c.requests[r.id] = r
	return r.frame, true
}

// answerLocked finds the request of the agent that the client answers. The
// answer is kept: it may not arrive.
func (c *Conn) answerLocked(m acp.Message) (acp.Message, bool) {
	a := c.shownLocked(m.ID())
	if a == nil {
		return m, true // the gateway drops what nobody waits for
	}
	a.answer = &m
	if a.id == "" { // until it is offered again
		return m, false
	}
	return renamed(m, a.id), true
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

// errGivenUp is what Read returns when no connection could be had.
var errGivenUp = errors.New("the gateway cannot be reached")

// run keeps a connection until it is closed or cannot be had.
func (c *Conn) run() {
	first := true
	for c.ctx.Err() == nil {
		live, err := c.connect(first)
		if _, refused := errors.AsType[*refusal](err); refused && first {
			c.cancel(err) // the client has the answer
			return
		}
		if err != nil {
			c.fail(err)
			return
		}
		first = false
		err = c.read(live)
		_ = live.Close()
		if c.ctx.Err() == nil {
			c.o.Logger.Info("the connection to the gateway is broken", "err", err)
		}
	}
}

// fail ends the Conn: requests are answered with the reason.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	open := c.requests
	c.requests = map[acp.ID]*request{}
	hello, greeted := c.hello, c.greeted
	c.mu.Unlock()
	if c.ctx.Err() == nil {
		for _, r := range open {
			c.give(acp.NewError(r.id, ended(err)))
		}
		if !greeted {
			c.give(acp.NewError(hello.ID(), ended(err)))
		}
	}
	c.cancel(err)
}

// ended is the answer to requests that wait when the Conn ends.
func ended(err error) *acp.Error {
	e := acp.Errorf(acp.CodeInternal, "%v", err)
	if errors.Is(err, errGivenUp) {
		return e.WithData(problem.New(problem.Unavailable, "%v", err))
	}
	return e
}

// give hands a message to the client.
func (c *Conn) give(m acp.Message) {
	select {
	case c.unread <- m:
	case <-c.ctx.Done():
	}
}

// connect opens a connection. The first is tried once, and its answer to
// initialize is the client's.
func (c *Conn) connect(first bool) (*link, error) {
	deadline := time.Now().Add(c.o.GiveUp)
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		live, err := c.attempt(first)
		if err == nil || c.ctx.Err() != nil {
			return live, err
		}
		var refused *refusal
		switch {
		case first, errors.As(err, &refused):
			return nil, err
		case time.Now().Add(pause).After(deadline):
			return nil, fmt.Errorf("%w for %v: %w", errGivenUp, c.o.GiveUp, err)
		}
		c.o.Logger.Debug("connect again", "err", err, "pause", pause)
		select {
		case <-time.After(pause):
		case <-c.ctx.Done():
			return nil, context.Cause(c.ctx)
		}
	}
}

// refusal is an answer of the gateway that another attempt does not change.
type refusal struct{ err *acp.Error }

func (r *refusal) Error() string { return "the gateway refuses the connection: " + r.err.Message }

func (c *Conn) attempt(first bool) (_ *link, err error) {
	ctx, cancel := context.WithTimeout(c.ctx, dialBound)
	defer cancel()
	conn, err := c.o.Dial(ctx)
	if err != nil {
		return nil, err
	}
	live := &link{Conn: conn, ended: make(chan struct{})}
	defer func() {
		if err != nil {
			_ = live.Close()
		}
	}()
	if err = live.Write(ctx, c.hello); err != nil {
		return nil, err
	}
	for {
		m, err := live.Read(ctx) // what cannot be parsed is no answer
		if err != nil {
			return nil, err
		}
		switch {
		case first && !(m.IsResponse() && m.ID() == c.hello.ID()):
			c.give(m.Clone()) // how an installation goes on
			continue
		case !m.IsResponse() || m.ID() != c.hello.ID():
			continue
		case first:
			c.mu.Lock()
			c.greeted = true
			c.mu.Unlock()
			c.give(m.Clone())
			if e := m.Err(); e != nil {
				return nil, &refusal{e}
			}
			c.ready(live)
			return live, nil
		case m.Err() != nil:
			return nil, &refusal{m.Err()}
		}
		c.work.Go(func() { c.restore(live) })
		return live, nil
	}
}

// ready lets what the client writes go to the connection, after what waits.
func (c *Conn) ready(live *link) {
	for {
		c.mu.Lock()
		var next *acp.Message
		switch {
		case len(c.waiting) > 0:
			next = &c.waiting[0]
			c.waiting = c.waiting[1:]
			if r := c.requests[next.ID()]; r != nil && next.IsRequest() {
				r.sent = true
			}
		default:
			select {
			case <-live.ended: // meanwhile
			default:
				c.live = live
			}
			close(c.changed)
			c.changed = make(chan struct{})
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		if live.Write(c.ctx, *next) != nil {
			c.lostWrite(live, *next)
			return
		}
	}
}

// read passes messages on until the connection breaks.
func (c *Conn) read(live *link) error {
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.live = nil
		for _, s := range c.sessions {
			for _, a := range s.asks {
				a.id = ""
			}
		}
		clear(c.own)
		close(live.ended)
	}()
	for {
		m, err := live.Read(c.ctx)
		if bad, ok := errors.AsType[*acp.ParseError](err); ok && bad != nil {
			continue
		}
		if err != nil {
			return err
		}
		c.order.Lock()
		for _, out := range c.incoming(live, m.Clone()) {
			c.give(out)
		}
		c.order.Unlock()
	}
}

func uintOf(meta []byte, name string) (uint64, bool) {
	v, ok := acp.Member(meta, acp.MetaKey, name)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(v)), 10, 64)
	return n, err == nil
}
