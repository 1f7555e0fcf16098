package lasting

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/internal/awake"
)

// link is one connection to the gateway. Its life is one call of use, in which a
// reader and a sender work on it. The next connection is opened when both have
// ended, so nothing of one connection ever meets the state of another.
type link struct {
	acp.Conn
	ctx    context.Context // ends with the connection, whoever ends it
	end    context.CancelFunc
	closed chan struct{} // closed when the connection is
	since  awake.Moment  // when it was begun to wait for nodes that are away; of restore
}

func (c *Conn) newLink(conn acp.Conn) *link {
	live := &link{Conn: conn, closed: make(chan struct{})}
	live.ctx, live.end = context.WithCancel(c.ctx)
	go func() {
		defer close(live.closed)
		<-live.ctx.Done()
		_ = conn.Close() // a Read does not always notice that its ctx has ended
	}()
	return live
}

// close ends the connection and waits until nothing of it is left.
func (l *link) close() {
	l.end()
	<-l.closed
}

// errGivenUp is what Read returns when no connection could be had.
var errGivenUp = errors.New("the gateway cannot be reached")

// run keeps a connection until it is closed or cannot be had.
func (c *Conn) run() {
	first := true
	var pause time.Duration
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
		since := time.Now()
		gave, err := c.use(live, first)
		first = false
		if c.ctx.Err() == nil && c.lost.IsZero() { // else it was never of use
			c.lost = time.Now()
			c.o.Logger.Info("the connection to the gateway is lost, and is made again", "err", err, "for", c.o.GiveUp)
			c.changed(Link{Lost: err, Since: c.lost})
		}
		// A gateway that takes connections only to end them is not asked without a pause.
		if gave || time.Since(since) > longestPause {
			pause = 0
			continue
		}
		pause = min(max(2*pause, firstPause), longestPause)
		select {
		case <-time.After(pause):
		case <-c.ctx.Done():
		}
	}
}

// back tells that there is a connection again, and of the sessions whether a turn goes on.
func (c *Conn) back(turns map[string]bool) {
	link := Link{Since: c.lost, For: time.Since(c.lost), Turns: turns}
	c.lost = time.Time{}
	c.o.Logger.Info("the connection to the gateway is there again", "after", link.For.Round(time.Millisecond))
	for id, on := range turns {
		c.o.Logger.Info("a session is attached to again", "session", id, "turn", on)
	}
	c.changed(link)
}

func (c *Conn) changed(l Link) {
	if c.o.Changed != nil {
		c.o.Changed(l)
	}
}

// fail ends the Conn: requests are answered with the reason, and turns end with it.
func (c *Conn) fail(err error) {
	c.mu.Lock()
	open := c.requests
	c.requests = map[acp.ID]*request{}
	hello, greeted := c.hello, c.greeted
	ids := slices.Sorted(maps.Keys(c.sessions))
	c.mu.Unlock()
	if c.ctx.Err() == nil {
		for _, id := range ids { // these turns have begun before what is open
			c.giveAll(c.Interrupt(id, ended(err)))
		}
		for _, r := range open {
			c.give(acp.NewError(r.id, notAnswered(r, err)))
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
	if p, ok := errors.AsType[*problem.Error](err); ok {
		return e.WithData(p)
	}
	if errors.Is(err, errGivenUp) || errors.Is(err, ErrSilent) {
		return e.WithData(problem.New(problem.Unavailable, "%v", err))
	}
	return e
}

// notAnswered is ended for one request. Whether one that was sent was done is not known.
func notAnswered(r *request, err error) *acp.Error {
	e := ended(err)
	if p, ok := errors.AsType[*problem.Error](err); ok && r.sent && p.Kind == problem.NodeOffline {
		return e.WithData(p.DoneUnknown())
	}
	return e
}

// give hands a message to the client, when it has read enough of what came before.
func (c *Conn) give(m acp.Message) {
	if c.o.Take != nil {
		c.taking.Lock()
		defer c.taking.Unlock()
		if c.ctx.Err() == nil {
			c.o.Take(m)
		}
		return
	}
	for {
		c.mu.Lock()
		if c.held <= unreadBytes {
			c.held += len(m.Frame())
			c.mu.Unlock()
			break
		}
		drained := c.drained
		c.mu.Unlock()
		select {
		case <-drained:
		case <-c.ctx.Done():
			return
		}
	}
	select {
	case c.unread <- m:
	case <-c.ctx.Done():
	}
}

func (c *Conn) giveAll(out []acp.Message) {
	for _, m := range out {
		c.give(m)
	}
}

// connect opens a connection. The first is tried once, and its answer to
// initialize is the client's.
func (c *Conn) connect(first bool) (*link, error) {
	from := c.now()
	once := first // it is not tried again
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		live, err := c.attempt(first)
		if err == nil || c.ctx.Err() != nil {
			return live, err
		}
		var refused *refusal
		if _, opened := errors.AsType[*unanswered](err); opened && c.o.First {
			once = false
		}
		switch {
		case once, errors.As(err, &refused), denied(err):
			return nil, err
		case time.Duration(c.now()-from)+pause > c.o.GiveUp:
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

// unanswered is why a connection broke before its gateway has answered.
type unanswered struct{ error }

// Unwrap returns what the connection said.
func (u *unanswered) Unwrap() error { return u.error }

// passes reports whether the error is one that goes away by itself, as that of a gateway
// which is ending, and will be started again.
func passes(e *acp.Error) bool {
	if e == nil {
		return false
	}
	switch problem.Kind(strings.TrimPrefix(rawjson.MemberString(e.Data, "type"), problem.Prefix)) {
	case problem.Unavailable, problem.NodeOffline, problem.TooManyRequests, problem.InsufficientStorage, problem.Timeout:
		return true
	}
	return false
}

// isAway reports whether a hub has refused something because the node is away.
func isAway(e *acp.Error) bool {
	return e != nil && rawjson.MemberString(e.Data, "type") == problem.NodeOffline.Type()
}

// denied reports whether an attempt found a gateway that does not let this client in.
func denied(err error) bool {
	p, ok := errors.AsType[*problem.Error](err)
	return ok && (p.Kind == problem.TokenInvalid || p.Kind == problem.PermissionDenied)
}

// attempt opens one connection and sends initialize. The first answer has no
// limit here: the gateway may have to install and start an agent before it
// answers, and it has limits of its own for that. Later the agent is there.
func (c *Conn) attempt(first bool) (_ *link, err error) {
	conn, err := c.dial()
	if err != nil {
		return nil, err
	}
	live := c.newLink(conn)
	if !first {
		silent := time.AfterFunc(againBound, live.end)
		defer silent.Stop()
	}
	defer func() {
		if err != nil {
			live.close()
		}
	}()
	if err = live.Write(live.ctx, c.hello); err != nil {
		return nil, &unanswered{err}
	}
	for {
		m, err := live.Read(live.ctx) // what cannot be parsed is no answer
		if err != nil {
			return nil, &unanswered{err}
		}
		switch {
		case first && !(m.IsResponse() && m.ID() == c.hello.ID()):
			c.give(m.Clone()) // how an installation goes on
			continue
		case !m.IsResponse() || m.ID() != c.hello.ID():
			continue
		case first:
			c.mu.Lock()
			c.greeted, c.two = true, isTwo(&m)
			c.parts = c.two || knowsSubagents(&c.hello)
			c.up = m.Err() == nil // what the client writes when it knows is not left behind by a Close
			c.mu.Unlock()
			c.give(m.Clone())
			if e := m.Err(); e != nil {
				return nil, &refusal{e}
			}
			return live, nil
		case passes(m.Err()):
			return nil, m.Err()
		case m.Err() != nil:
			return nil, &refusal{m.Err()}
		case isTwo(&m) != c.isTwo():
			return nil, &refusal{acp.Errorf(acp.CodeInternal, "it speaks another version of the protocol than it did")}
		}
		return live, nil
	}
}

// isTwo reports whether the answer to initialize is one of version 2 of the protocol.
func isTwo(m *acp.Message) bool {
	v, _ := rawjson.Member(m.Result(), "protocolVersion")
	return string(v) == "2"
}

// knowsSubagents reports whether a client says so that speaks version 1 of the protocol.
func knowsSubagents(hello *acp.Message) bool {
	v, ok := rawjson.Member(hello.Params(), "clientCapabilities", "subagents")
	return ok && string(v) != "null" && string(v) != "false"
}

func (c *Conn) dial() (acp.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(c.ctx, dialBound, ErrSilent)
	defer cancel()
	return c.o.Dial(ctx)
}

// use works on a connection until it breaks or the Conn is closed. The first has
// nothing to restore. It reports whether the client was given anything.
func (c *Conn) use(live *link, first bool) (gave bool, err error) {
	c.mu.Lock()
	c.linked = true
	c.mu.Unlock()
	var sender sync.WaitGroup
	sender.Go(func() {
		defer live.end()
		if first || c.restore(live) {
			c.send(live)
		}
	})
	gave, err = c.read(live)
	live.close()
	sender.Wait()
	c.down()
	return gave, err
}

// down forgets what is true of one connection only.
func (c *Conn) down() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.linked = false
	for _, s := range c.sessions {
		s.here, s.from = false, 0
		for _, a := range s.asks {
			a.id = ""
		}
	}
	// An answer belongs to the connection that has asked. On the next one its id may be that of another question.
	c.queue = slices.DeleteFunc(c.queue, func(o outgoing) bool { return o.ask != nil || o.m.IsResponse() })
	c.roomLocked()
	clear(c.own)
}

// read passes messages on until the connection breaks, and reports whether there were any.
func (c *Conn) read(live *link) (gave bool, err error) {
	for {
		m, err := live.Read(live.ctx)
		if bad, ok := errors.AsType[*acp.ParseError](err); ok && bad != nil {
			continue
		}
		if err != nil {
			return gave, err
		}
		if c.o.Take == nil || m.IsResponse() { // the next Read overwrites it
			m = m.Clone()
		}
		c.order.Lock()
		out := c.incoming(m)
		gave = gave || len(out) > 0
		c.giveAll(out)
		c.order.Unlock()
	}
}
