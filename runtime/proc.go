package runtime

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
)

const (
	flushBytes  = 64 << 10 // appended at most before it is shown
	sampleEvery = 16       // the time of one batch of so many is taken
	earlyLimit  = 4096     // messages of a session whose id is not known yet
	earlyBytes  = 32 << 20 // and their bytes
)

// errUnused is the cause when a process is ended because nobody needs it.
var errUnused = errors.New("the agent process was not in use")

// errRequestTimeout is the cause when an agent did not answer in time.
var errRequestTimeout = errors.New("the agent did not answer in time")

// proc is one agent process and the requests that wait for it.
type proc struct {
	agent *agent
	key   string
	conn  acp.Conn
	init  json.RawMessage // result of initialize; set before the proc is shared
	caps  agentCaps
	// ownLogin says that it has credentials of a session's own: what it says of
	// its login tells nothing of other sessions. Set before the proc is shared.
	ownLogin bool
	started  time.Time
	backoff  *backoff      // of those who would start it again
	wmu      sync.Mutex    // held while the agent's input is written
	outbox   outbox        // frames that could not be written at once
	gone     chan struct{} // closed by fail: nothing is sent any more
	ended    chan struct{} // closed when pump and writer have returned

	mu       sync.Mutex
	lastID   int64
	pending  map[int64]*call
	sessions map[string]*Session // by the JSON token of the agent's session id
	early    map[string][][]byte // frames of sessions that are being created
	earlyN   int
	earlyB   int
	hosted   map[string]context.CancelFunc // by id: requests that the host carries out; at most maxHosted
	creating int                           // requests in flight that may create a session
	holds    int                           // clients, sessions and callers that need the process
	retired  bool                          // it is being ended as unused: nobody can hold it any more
	idleAt   time.Time
	cause    error // why it ended; set once
}

// agentCaps is what the agent said in initialize, as far as the gateway acts on it.
type agentCaps struct {
	load, resume, fork, list, closing, deleting, logout bool
}

// call is a request on its way to the agent. done is called once, from the
// pump or from whoever ends the process, and must not wait.
type call struct {
	done  func(res *acp.Message, err error)
	timer *time.Timer
	once  sync.Once
}

func (k *call) finish(res *acp.Message, err error) {
	k.once.Do(func() {
		if k.timer != nil {
			k.timer.Stop()
		}
		k.done(res, err)
	})
}

func newProc(a *agent, key string, conn acp.Conn, b *backoff) *proc {
	p := &proc{
		agent: a, key: key, conn: conn, backoff: b, started: time.Now(),
		outbox: newOutbox(), gone: make(chan struct{}), ended: make(chan struct{}),
		pending: map[int64]*call{}, sessions: map[string]*Session{}, idleAt: time.Now(),
	}
	var own sync.WaitGroup
	own.Go(p.pump)
	own.Go(p.write)
	a.r.work.Go(func() {
		own.Wait()
		close(p.ended)
	})
	return p
}

func (p *proc) readCapabilities() {
	caps, _ := rawjson.Member(p.init, "agentCapabilities")
	has := func(path ...string) bool {
		v, ok := rawjson.Member(caps, path...)
		return ok && string(v) != "null" && string(v) != "false"
	}
	p.caps = agentCaps{
		load: rawjson.MemberBool(caps, "loadSession"), resume: has("sessionCapabilities", "resume"), fork: has("sessionCapabilities", "fork"),
		list: has("sessionCapabilities", "list"), closing: has("sessionCapabilities", "close"), deleting: has("sessionCapabilities", "delete"),
		logout: has("auth", "logout"),
	}
}

// hold keeps the process from being ended as unused; false means it has ended.
func (p *proc) hold() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cause != nil || p.retired {
		return false
	}
	p.holds++
	return true
}

// release undoes one hold.
func (p *proc) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds--
	p.idleAt = time.Now()
}

// retire reports whether nobody has needed the process since t. If so nobody can
// hold it from now on: the caller ends it.
func (p *proc) retire(t time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.retired || p.holds > 0 || len(p.pending) > 0 || !p.idleAt.Before(t) {
		return false
	}
	p.retired = true
	return true
}

// call sends a request. build writes the frame with the id it is given. done is
// called exactly once, also when the process has ended already; timeout 0 means
// no limit.
func (p *proc) call(ctx context.Context, timeout time.Duration, build func(id acp.ID) []byte, done func(res *acp.Message, err error)) int64 {
	k := &call{done: done}
	p.mu.Lock()
	if p.cause != nil {
		cause := p.cause
		p.mu.Unlock()
		k.finish(nil, cause)
		return 0
	}
	p.lastID++
	id := p.lastID
	p.pending[id] = k
	if timeout > 0 {
		k.timer = time.AfterFunc(timeout, func() {
			if p.take(id) != nil {
				k.finish(nil, errRequestTimeout)
			}
		})
	}
	p.mu.Unlock()
	if err := p.send(ctx, build(acp.IntID(id))); err != nil {
		if p.take(id) != nil {
			k.finish(nil, err)
		}
	}
	return id
}

// take removes and returns a pending call.
func (p *proc) take(id int64) *call {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.pending[id]
	delete(p.pending, id)
	return k
}

// ask is a request of the gateway's own. It returns the result's bytes.
func (p *proc) ask(ctx context.Context, method string, params []byte) (json.RawMessage, error) {
	return p.askThen(ctx, method, params, func() {})
}

// askThen is ask, with what is done when the response has come, before the next
// message of the agent is looked at.
func (p *proc) askThen(ctx context.Context, method string, params []byte, then func()) (json.RawMessage, error) {
	type answer struct {
		result json.RawMessage
		err    error
	}
	ch := make(chan answer, 1)
	p.call(ctx, 0,
		func(id acp.ID) []byte { m := acp.NewRequest(id, method, params); return m.Frame() },
		func(res *acp.Message, err error) {
			then()
			switch {
			case err != nil:
				ch <- answer{err: err}
			case res.Err() != nil:
				ch <- answer{err: res.Err()}
			default:
				ch <- answer{result: bytes.Clone(res.Result())}
			}
		})
	select {
	case a := <-ch:
		return a.result, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// send writes a frame to the agent, or queues it behind those that wait already,
// and waits for room in the queue. Only a goroutine that may wait for the agent
// calls it; others use trySend.
func (p *proc) send(ctx context.Context, frame []byte) error {
	if p.outbox.empty() && p.wmu.TryLock() {
		// Whoever queued a frame before us has counted it before.
		if p.outbox.empty() {
			defer p.wmu.Unlock()
			return p.writeFrame(frame)
		}
		p.wmu.Unlock()
	}
	select {
	case p.outbox.room <- struct{}{}:
		p.outbox.put(frame, true)
		return nil
	case <-p.gone:
		return p.endCause()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// trySend queues a frame without waiting.
func (p *proc) trySend(frame []byte) { p.outbox.put(frame, false) }

func (p *proc) endCause() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cause
}

// write passes on what had to be queued.
func (p *proc) write() {
	for {
		select {
		case <-p.outbox.wake:
		case <-p.gone:
			return
		}
		for !p.outbox.empty() {
			p.wmu.Lock()
			err := p.writeFrame(p.outbox.first())
			p.outbox.drop()
			p.wmu.Unlock()
			if err != nil {
				return
			}
		}
	}
}

// writeFrame writes to the agent; wmu is held. A process that takes no input
// any more is ended: the pump learns how, and fails what waits for it.
func (p *proc) writeFrame(frame []byte) error {
	m, err := acp.Parse(frame)
	if err == nil {
		err = p.conn.Write(context.Background(), m)
	}
	if err != nil {
		p.agent.r.log.Debug("write to agent", "agent", p.agent.id, "err", err)
		p.agent.r.work.Go(func() { _ = p.conn.Close() })
	}
	return err
}

// close ends the process for the given reason and waits until nothing of it is left.
func (p *proc) close(cause error) {
	p.fail(cause)
	_ = p.conn.Close()
	<-p.ended
}

// fail is the one path by which everything that waits for the process ends.
func (p *proc) fail(cause error) {
	p.mu.Lock()
	if p.cause != nil {
		p.mu.Unlock()
		return
	}
	p.cause = cause
	pending, sessions := p.pending, p.sessions
	p.pending, p.sessions, p.early = map[int64]*call{}, map[string]*Session{}, nil
	hosted := p.hosted
	p.hosted = nil
	p.mu.Unlock()
	for _, cancel := range hosted {
		cancel()
	}
	close(p.gone)
	p.agent.ended(p, cause)
	for _, s := range sessions {
		s.lostProcess(p, cause)
	}
	p.dropAsks()
	for _, k := range pending {
		k.finish(nil, cause)
	}
}

// pump owns the agent's output: it routes every message and shows what it
// appended to logs when no further message has arrived yet.
func (p *proc) pump() {
	buffered, _ := p.conn.(acp.Buffered)
	var dirty []*Session
	held := 0            // bytes of messages since the last flush
	updates := uint64(0) // not counted yet
	var batch uint       // flushes that showed something
	var began time.Time  // when the first message of a batch was read, of every sampleEvery-th
	tally := func() {
		if updates > 0 {
			p.agent.updates.Add(updates)
			updates = 0
		}
	}
	flush := func() {
		held = 0
		for i, s := range dirty {
			s.flush()
			s.log().Room(p.gone) // while the disk takes nothing, the agent waits
			dirty[i] = nil
		}
		if len(dirty) > 0 {
			if !began.IsZero() {
				p.agent.r.watch.Forwarded(time.Since(began))
			}
			batch++
		}
		tally()
		dirty, began = dirty[:0], time.Time{}
	}
	var tok []byte // the session of the message before
	var cur *Session
	var m acp.Message // outside the loop: it escapes
	for {
		var err error
		if m, err = p.conn.Read(context.Background()); err != nil {
			flush()
			p.fail(err)
			_ = p.conn.Close()
			return
		}
		switch {
		case m.IsResponse():
			tally()
			p.response(&m) // it follows its updates: they are in the log before it
			tok, cur = nil, nil
		case m.HasSession():
			if held == 0 && batch%sampleEvery == 0 {
				began = time.Now()
			}
			if cur == nil || !bytes.Equal(tok, m.SessionRaw()) || !cur.on(p) {
				tok = append(tok[:0], m.SessionRaw()...)
				if cur = p.sessionFor(&m); cur == nil {
					break // kept, or of no session
				}
			}
			if cur.fromAgent(p, &m) {
				if m.Update() != nil {
					updates++
				}
				if len(dirty) == 0 || dirty[len(dirty)-1] != cur {
					dirty = append(dirty, cur)
				}
			}
		default:
			flush()
			p.connectionMessage(&m)
		}
		if held += len(m.Frame()); held >= flushBytes || buffered == nil || !buffered.Buffered() {
			flush()
		}
	}
}

// sessionFor returns the session a message belongs to. A message of a session
// that is being created is kept until its id is known.
func (p *proc) sessionFor(m *acp.Message) *Session {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.sessions[string(m.SessionRaw())]; s != nil {
		return s
	}
	if p.creating > 0 && p.earlyN < earlyLimit && p.earlyB < earlyBytes {
		if p.early == nil {
			p.early = map[string][][]byte{}
		}
		key := string(m.SessionRaw())
		p.early[key] = append(p.early[key], bytes.Clone(m.Frame()))
		p.earlyN++
		p.earlyB += len(m.Frame())
		return nil
	}
	log := p.agent.r.log
	log.Warn("message for a session this process does not have", "agent", p.agent.id, "method", m.Method(), "session", m.Session())
	if m.IsRequest() {
		e := acp.NewError(m.ID(), acp.Errorf(acp.CodeResourceNotFound, "session not found"))
		p.trySend(e.Frame())
	}
	return nil
}

// bind makes the process's messages for the agent's session id go to s, those
// that came early first. A caller that bound a session holds the process for it.
func (p *proc) bind(native string, s *Session) error {
	key := string(rawjson.AppendQuoted(nil, native))
	p.mu.Lock()
	if p.cause != nil {
		defer p.mu.Unlock()
		return p.cause
	}
	p.sessions[key] = s
	p.holds++
	early := p.early[key]
	delete(p.early, key)
	p.mu.Unlock()
	for _, frame := range early {
		if m, err := acp.Parse(frame); err == nil && s.fromAgent(p, &m) && m.Update() != nil {
			p.agent.updates.Add(1)
		}
	}
	s.flush()
	return nil
}

// unbind undoes bind.
func (p *proc) unbind(native string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	key := string(rawjson.AppendQuoted(nil, native))
	if _, ok := p.sessions[key]; ok {
		delete(p.sessions, key)
		p.holds--
		p.idleAt = time.Now()
	}
}

// create brackets a request that may create a session.
func (p *proc) create(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.creating += n; p.creating == 0 {
		p.early, p.earlyN, p.earlyB = nil, 0, 0
	}
}

// response hands a response to who waits for it. An answer that comes after its
// time limit has nobody left.
func (p *proc) response(m *acp.Message) {
	if n, ok := m.ID().Int(); ok {
		if k := p.take(n); k != nil {
			k.finish(m, nil)
			return
		}
	}
	p.agent.r.log.Debug("response to no open request", "agent", p.agent.id, "id", string(m.ID()))
}

// callError is err as the error of a JSON-RPC response.
func callError(err error) *acp.Error {
	if e, ok := errors.AsType[*acp.Error](err); ok {
		return e
	}
	if exit, ok := errors.AsType[*adapters.ExitError](err); ok {
		return &acp.Error{Code: acp.CodeInternal, Message: exit.Error(), Data: exit.Data()}
	}
	if errors.Is(err, errRequestTimeout) {
		return acp.Errorf(acp.CodeInternal, "%s", err.Error()).WithData(map[string]any{"type": problem.Timeout.Type(), "status": 504})
	}
	if pr, ok := errors.AsType[*problem.Error](err); ok {
		code := acp.CodeInternal
		switch pr.Kind {
		case problem.SessionNotFound:
			code = acp.CodeResourceNotFound
		case problem.InvalidRequest, problem.UnsupportedAgent:
			code = acp.CodeInvalidParams
		}
		return acp.Errorf(code, "%s", pr.Error()).WithData(pr)
	}
	return acp.Errorf(acp.CodeInternal, "%s", err.Error())
}

func stderrInfo(s adapters.Stderr) *StderrInfo {
	return &StderrInfo{Head: s.Head, Tail: s.Tail, Truncated: s.Truncated, TotalLines: s.TotalLines}
}
