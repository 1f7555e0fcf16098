package agents

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/internal/awake"
	"sandboxagent.dev/sandbox-agent/runtime/observe"
	"sandboxagent.dev/sandbox-agent/runtime/traffic"
)

// Why processes are ended, and why requests get no answer of the agent.
var (
	ErrShutdown = problem.New(problem.Unavailable, "the gateway is shutting down")
	ErrUnused   = errors.New("the agent process was not in use")
)

// Within is context.WithTimeout, by time awake, for what an agent is asked. [Process.Ask] says of the end of that time who did not
// answer in which.
func Within(ctx context.Context, bound time.Duration) (context.Context, context.CancelFunc) {
	return awake.WithTimeoutCause(ctx, bound, late(bound))
}

func late(bound time.Duration) error {
	return problem.New(problem.Timeout, "the agent did not answer within %v: try again; if it goes on so, close the session and load it again", bound)
}

// state is where a process is in its life; see the package's comment.
type state uint8

const (
	starting state = iota
	running
	ending
	ended
)

// Process is one agent process and the requests that wait for it.
type Process struct {
	agent     *Agent
	key       string
	needs     Needs
	stopStart context.CancelCauseFunc
	started   chan struct{} // closed when the start is over
	gone      chan struct{} // closed with state ending
	ended     chan struct{} // closed with state ended

	// Set before started is closed.
	err     error            // why the start failed
	program adapters.Program // that it was started with
	unkeep  func()           // lets go of the program's files; nil before it was found
	conn    acp.Conn
	raw     *traffic.Recording // nil when nobody asked for one
	init    json.RawMessage    // result of initialize
	caps    Capabilities
	since   time.Time

	wmu    sync.Mutex // held while the agent's input is written
	deaf   bool       // nothing is written any more; guarded by wmu
	outbox outbox

	commands commands

	turnover atomic.Uint64 // grows when a route is taken away or replaced; mu guards the change
	retired  atomic.Bool   // it is given no more sessions

	mu       sync.Mutex
	state    state
	cause    error // why it is ending
	holds    int   // connections, sessions and callers that need it
	reserved int   // of them those of connections, for sessions that are to come
	idleAt   awake.Moment
	lastID   int64
	pending  map[int64]*pending
	expired  []int64             // of pending: the time limit of these is over, the oldest first; at most maxExpired
	routes   map[string]Receiver // by the JSON token of the agent's session id
	left     []string            // those of sessions that it had, and has no more; at most maxLeft
	early    early
	hosted   map[string]context.CancelFunc // by id: requests that the host carries out; at most maxHosted
}

// Capabilities is what the agent said in initialize, as far as the gateway acts on it.
type Capabilities struct {
	Load, Resume, Fork, List, Close, Delete bool
}

func readCapabilities(init json.RawMessage) Capabilities {
	caps, _ := rawjson.Member(init, "agentCapabilities")
	has := func(path ...string) bool {
		v, ok := rawjson.Member(caps, path...)
		return ok && string(v) != "null" && string(v) != "false"
	}
	return Capabilities{
		Load: rawjson.MemberBool(caps, "loadSession"), Resume: has("sessionCapabilities", "resume"), Fork: has("sessionCapabilities", "fork"),
		List: has("sessionCapabilities", "list"), Close: has("sessionCapabilities", "close"), Delete: has("sessionCapabilities", "delete"),
	}
}

// newProcess returns a process that is starting.
func newProcess(a *Agent, key string, n Needs) *Process {
	return &Process{
		agent: a, key: key, needs: n, stopStart: func(error) {},
		started: make(chan struct{}), gone: make(chan struct{}), ended: make(chan struct{}),
		outbox: newOutbox(a.set.o.Memory), pending: map[int64]*pending{}, routes: map[string]Receiver{},
	}
}

// Agent returns the agent that the process is one of.
func (p *Process) Agent() *Agent { return p.agent }

// Capabilities returns what the agent said that it can.
func (p *Process) Capabilities() Capabilities { return p.caps }

// Initialized returns the agent's answer to initialize.
func (p *Process) Initialized() json.RawMessage { return p.init }

// Raw returns the recording of what the process and the gateway say to each other, nil when
// there is none. It ends with the process.
func (p *Process) Raw() *traffic.Recording { return p.raw }

// Alone reports whether nobody shares the process.
func (p *Process) Alone() bool { return p.needs.Alone }

// OwnLogin reports whether the process has credentials of a session's own: what it
// says of its login tells nothing of other sessions.
func (p *Process) OwnLogin() bool {
	return len(p.needs.Env) > 0 || p.needs.Credentials != (adapters.Credentials{})
}

// Alive reports whether the process takes messages.
func (p *Process) Alive() bool {
	select {
	case <-p.gone:
		return false
	default:
		return true
	}
}

// Takes reports whether the process can be given sessions.
func (p *Process) Takes() bool { return p.Alive() && !p.retired.Load() }

// TakesNew is Takes for a session that begins. A process that has another program than would be
// started now, since somebody has installed another version, retires: its sessions go on in it, and
// new ones get that version. It looks at the disk.
func (p *Process) TakesNew() bool {
	if !p.Takes() {
		return false
	}
	now, ok := p.agent.locate(p.needs.Version)
	if ok && (now.Path != p.program.Path || !slices.Equal(now.Args, p.program.Args)) {
		p.Retire()
		return false
	}
	return true
}

// Cause returns why the process is ending, nil while it is not.
func (p *Process) Cause() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cause
}

// hold keeps the process from being ended as unused; false means that it is ending.
func (p *Process) hold() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != running {
		return false
	}
	p.holds++
	return true
}

// Release undoes one hold.
func (p *Process) Release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.releaseLocked()
}

// Worked says that the agent has ended a turn well: if its process dies later, the next one
// is started at once.
func (p *Process) Worked() {
	if b := p.needs.Backoff; b != nil {
		b.worked()
	}
}

// Reserve makes of a hold one for sessions that are to come: it does not keep a process
// that has retired. Unreserve undoes the hold.
func (p *Process) Reserve() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reserved++
}

// Unreserve undoes a hold that Reserve was called for.
func (p *Process) Unreserve() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reserved--
	p.releaseLocked()
}

// neededLocked reports whether somebody needs the process.
func (p *Process) neededLocked() bool {
	if p.retired.Load() {
		return p.holds > p.reserved
	}
	return p.holds > 0
}

func (p *Process) releaseLocked() {
	p.holds--
	p.idleAt = awake.Now()
}

// run makes the opened connection the process's own.
func (p *Process) run(conn acp.Conn) {
	p.conn, p.since = conn, time.Now()
	var own sync.WaitGroup
	own.Go(p.read)
	own.Go(p.write)
	p.agent.set.o.Tasks.Go(func() {
		own.Wait()
		p.leave()
	})
}

// becomeRunning ends the start of a process that has answered initialize. One that died
// since then, at its login for example, has not started: who waits for it is told so,
// and the next start is delayed.
func (p *Process) becomeRunning() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state != starting {
		return startProblem(p.agent.id, "after initialize", p.cause)
	}
	p.state, p.idleAt = running, awake.Now()
	return nil
}

// Close ends the process, or its start, and waits until nothing of it is left.
func (p *Process) Close(cause error) {
	p.stopStart(cause)
	<-p.started
	p.end(cause)
	if p.conn != nil {
		_ = p.conn.Close()
	}
	<-p.ended
}

// end is the one way in which a process comes to its end: everything that waits for
// it is answered with the cause. It does nothing for one that is ending already.
func (p *Process) end(cause error) {
	p.mu.Lock()
	if p.state >= ending {
		p.mu.Unlock()
		return
	}
	p.endLocked(cause)
}

// endUnused begins the end of the process when nobody has needed it for a while, and
// reports whether it did: nobody can hold it from then on.
func (p *Process) endUnused() bool {
	p.mu.Lock()
	owes := false
	for _, k := range p.pending {
		owes = owes || !k.dropped
	}
	if p.state != running || p.neededLocked() || owes || p.idleAt.Ago() <= linger {
		p.mu.Unlock()
		return false
	}
	p.endLocked(ErrUnused)
	return true
}

// UntakenError is why a prompt got no answer that the agent has certainly not been given:
// it may be given to another process. Its Cause is why the process ended.
type UntakenError struct{ Cause error }

func (e *UntakenError) Error() string { return e.Cause.Error() }

// Unwrap returns the cause.
func (e *UntakenError) Unwrap() error { return e.Cause }

// endLocked begins the end; mu is held, and let go of. Who waits for an answer to what the
// agent was never given learns that before the end.
func (p *Process) endLocked(cause error) {
	wasRunning := p.state == running
	p.state, p.cause = ending, cause
	waiting, routes, hosted := p.pending, p.routes, p.hosted
	var untaken []*pending
	for _, k := range waiting {
		if p.untakenLocked(k) {
			untaken = append(untaken, k)
		}
	}
	p.pending, p.routes, p.early, p.hosted = nil, nil, early{}, nil
	p.turnover.Add(1)
	p.mu.Unlock()
	for _, cancel := range hosted {
		cancel()
	}
	close(p.gone)
	p.agent.lost(p, cause, wasRunning)
	for _, k := range untaken {
		k.finish(nil, &UntakenError{cause})
	}
	for _, r := range routes {
		r.Lost(cause)
	}
	p.agent.set.o.Ended(p)
	for _, k := range waiting {
		k.finish(nil, cause)
	}
}

// leave ends the life of a process of which nothing is left.
func (p *Process) leave() {
	p.mu.Lock()
	p.state = ended
	p.mu.Unlock()
	p.agent.forget(p)
	p.outbox.close()
	if p.unkeep != nil {
		p.unkeep()
	}
	if p.raw != nil {
		p.raw.Close()
	}
	close(p.ended)
}

// exitOf returns how a process with the given cause ended.
func exitOf(cause error) observe.Exit {
	if cause == nil || errors.Is(cause, ErrShutdown) || errors.Is(cause, ErrUnused) {
		return observe.ExitClean
	}
	if exit, ok := errors.AsType[*adapters.ExitError](cause); ok {
		switch {
		case exit.Signal != "":
			return observe.ExitKilled
		case exit.Code == 0:
			return observe.ExitClean
		}
	}
	return observe.ExitCrash
}

// pending is a request on its way to the agent. done is called once, by the reader
// or by whoever ends the process, and must not wait.
type pending struct {
	done    func(res *acp.Message, err error)
	late    func(res *acp.Message) // of the request; see [Request]
	timer   *awake.Timer
	once    sync.Once
	dropped bool // nobody waits for it any more; the process's mu guards it
	// prompts is the agent's session that it is a prompt of, "" for others.
	prompts string
	queued  bool // it was not written yet; the process's mu guards it
}

func (k *pending) finish(res *acp.Message, err error) {
	k.once.Do(func() {
		if k.timer != nil {
			k.timer.Stop()
		}
		k.done(res, err)
	})
}

// expect makes room for a response. It fails when the process is ending.
func (p *Process) expect(timeout time.Duration, k *pending) (id int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state >= ending {
		return 0, p.cause
	}
	p.lastID++
	id = p.lastID
	p.pending[id] = k
	if timeout > 0 {
		k.timer = awake.AfterFunc(timeout, func() {
			p.Retire() // it may hang: who asks next is better off with another one
			p.expire(id, late(timeout))
		})
	}
	return id, nil
}

// maxExpired bounds the requests of whose answers somebody is told that come behind their time limit: an agent that hangs is sent one after
// another. The oldest is forgotten.
const maxExpired = 16

// expire fails a request that the agent has not answered in time. Who wants to know is still told when it does.
func (p *Process) expire(id int64, err error) {
	p.mu.Lock()
	k := p.pending[id]
	if k != nil {
		delete(p.pending, id)
	}
	if k != nil && k.late != nil {
		late := k.late // and nothing else of what has waited
		p.expired = slices.DeleteFunc(p.expired, func(id int64) bool { return p.pending[id] == nil })
		if len(p.expired) >= maxExpired {
			delete(p.pending, p.expired[0])
			p.expired = p.expired[1:]
		}
		p.expired = append(p.expired, id)
		p.pending[id] = &pending{dropped: true, done: func(res *acp.Message, err error) {
			if err == nil {
				late(res)
			}
		}}
	}
	p.mu.Unlock()
	if k != nil {
		k.finish(nil, err)
	}
}

// take removes and returns a request that waits, nil when it does not.
func (p *Process) take(id int64) *pending {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.pending[id]
	delete(p.pending, id)
	return k
}

func (p *Process) fail(id int64, err error) {
	if k := p.take(id); k != nil {
		k.finish(nil, err)
	}
}

// Request is what an agent is asked, and what is done with the answer.
type Request struct {
	Timeout time.Duration                     // 0 means no limit
	Build   func(id acp.ID) acp.Message       // makes the message with the id it is given
	Done    func(res *acp.Message, err error) // is called exactly once, and must not wait
	Late    func(res *acp.Message)            // likewise, with an answer that comes behind Timeout, when Done has been called; may be nil
}

// Call sends a request, and waits for room if the agent is slow to read. Done is called also when the process
// is ending already.
func (p *Process) Call(ctx context.Context, r Request) (id int64) {
	id, err := p.expect(r.Timeout, &pending{done: r.Done, late: r.Late})
	if err != nil {
		r.Done(nil, err)
		return 0
	}
	if err := p.Send(ctx, r.Build(acp.IntID(id))); err != nil {
		p.fail(id, err)
	}
	return id
}

// Drop says that nobody waits for the answer to a request any more, though it is still
// taken when it comes: the process can be ended as unused.
func (p *Process) Drop(id int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := p.pending[id]; k != nil {
		k.dropped = true
	}
}

// Prompt queues a prompt of a session for the agent; Flush has it written.
// done is called exactly once, with an [UntakenError] when the process has ended and the
// agent has certainly not seen the prompt. The error is that one, of a process that is
// ending already; done is not called then.
func (p *Process) Prompt(session string, build func(id acp.ID) acp.Message, done func(res *acp.Message, err error)) (id int64, err error) {
	id, err = p.post(Request{Build: build}, &pending{done: done, prompts: session, queued: true})
	if err != nil {
		return 0, &UntakenError{err}
	}
	return id, nil
}

// Post queues a request; Flush has it written. It does not wait, so that its caller bounds how many there are. The error is why
// the process is ending; Done is not called then.
func (p *Process) Post(r Request) error {
	_, err := p.post(r, &pending{done: r.Done, late: r.Late})
	return err
}

func (p *Process) post(r Request, k *pending) (id int64, err error) {
	if id, err = p.expect(r.Timeout, k); err == nil {
		p.outbox.put(outgoing{m: r.Build(acp.IntID(id)), id: id})
	}
	return id, err
}

// untakenLocked reports whether the agent has certainly not been given a prompt: it was
// not written, or the agent's adapter could not pass it on.
func (p *Process) untakenLocked(k *pending) bool {
	if k.prompts == "" || k.queued {
		return k.queued
	}
	u, ok := p.conn.(adapters.Untaker)
	return ok && u.Untaken(k.prompts)
}

// queued notes whether a request still waits to be written.
func (p *Process) queued(id int64, queued bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if k := p.pending[id]; k != nil {
		k.queued = queued
	}
}

// Tell is a request whose answer nobody waits for.
func (p *Process) Tell(method string, params []byte) { p.TellThen(method, params, func() {}) }

// TellThen is Tell; then is called when the agent has answered, or the process has come to its end, and must not wait.
func (p *Process) TellThen(method string, params []byte, then func()) {
	build := func(id acp.ID) acp.Message { return acp.NewRequest(id, method, params) }
	id, err := p.post(Request{Build: build}, &pending{done: func(*acp.Message, error) { then() }})
	if err != nil {
		then()
		return
	}
	p.Drop(id)
	p.outbox.signal()
}

// Discard has the agent close, and delete, a session that it has made with the result when nobody waited for that any more.
func (p *Process) Discard(made json.RawMessage) {
	native := rawjson.MemberString(made, "sessionId")
	p.mu.Lock()
	known := p.routes[string(rawjson.AppendQuoted(nil, native))] != nil
	p.mu.Unlock()
	if native == "" || known {
		return
	}
	params := rawjson.Object{}.String("sessionId", native).End()
	if p.caps.Close {
		p.Tell(acp.MethodSessionClose, params)
	}
	if p.caps.Delete {
		p.Tell(acp.MethodSessionDelete, params)
	}
}

// Ask is a request of the gateway's own. It returns the result's bytes.
func (p *Process) Ask(ctx context.Context, method string, params []byte) (json.RawMessage, error) {
	_, res, err := p.ask(ctx, method, params, func(json.RawMessage, error) {})
	return res, err
}

// AskThen is Ask, with what is done with the answer before the next message of the
// agent is looked at, also when the caller waits no more: the agent is told that nobody does. then must not wait.
func (p *Process) AskThen(ctx context.Context, method string, params []byte, then func(json.RawMessage, error)) (json.RawMessage, error) {
	id, res, err := p.ask(ctx, method, params, then)
	if id != 0 {
		p.Put(acp.NewNotification(acp.MethodCancelRequest, rawjson.Object{}.Raw("requestId", []byte(acp.IntID(id))).End()))
	}
	return res, err
}

// ask also returns the id of a request that is not answered yet because ctx has ended, else 0.
func (p *Process) ask(ctx context.Context, method string, params []byte, then func(json.RawMessage, error)) (id int64, _ json.RawMessage, _ error) {
	type answer struct {
		result json.RawMessage
		err    error
	}
	ch := make(chan answer, 1)
	id = p.Call(ctx, Request{
		Build: func(id acp.ID) acp.Message { return acp.NewRequest(id, method, params) },
		Done: func(res *acp.Message, err error) {
			a := answer{err: err}
			if err == nil {
				if e := res.Err(); e != nil {
					a.err = e
				} else {
					a.result = bytes.Clone(res.Result())
				}
			}
			then(a.result, a.err)
			ch <- a
		},
	})
	select {
	case a := <-ch:
		return 0, a.result, a.err
	case <-ctx.Done():
		p.Drop(id)
		return id, nil, context.Cause(ctx)
	}
}

type queuedKey struct{}

// Queued returns a context with which [Process.Send] and [Process.Call] do not wait for an agent that reads slowly. Its caller bounds
// how much is sent.
func Queued(ctx context.Context) context.Context { return context.WithValue(ctx, queuedKey{}, true) }

// Send writes a message to the agent, or queues it behind those that wait already,
// and waits for room in the queue. Only a goroutine that may wait for the agent
// calls it; others use Put. A write that fails is no error here: the process ends then,
// and whoever waits for an answer learns from its end how.
func (p *Process) Send(ctx context.Context, m acp.Message) error {
	if ctx.Value(queuedKey{}) != nil {
		p.outbox.put(outgoing{m: m})
		p.outbox.signal()
		return nil
	}
	if p.outbox.empty() && p.wmu.TryLock() {
		// Whoever queued a message before us has counted it before.
		if p.outbox.empty() {
			_ = p.writeMessage(m)
			p.wmu.Unlock()
			return nil
		}
		p.wmu.Unlock()
	}
	select {
	case p.outbox.room <- struct{}{}:
		p.outbox.put(outgoing{m: m, roomy: true})
		p.outbox.signal()
		return nil
	case <-p.gone:
		return p.Cause()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Queue queues a message; Flush has it written.
func (p *Process) Queue(m acp.Message) { p.outbox.put(outgoing{m: m, once: m.IsNotification()}) }

// Put queues a message that is written soon.
func (p *Process) Put(m acp.Message) {
	p.Queue(m)
	p.outbox.signal()
}

// Flush has what was queued written: here, as far as the agent takes it without waiting, which
// saves the way to another thread; the rest soon. It does not wait, but is not called with a
// session's lock.
func (p *Process) Flush() {
	if r, ok := p.conn.(adapters.Roomy); ok && p.wmu.TryLock() {
		err := p.drainLocked(r.Room)
		p.wmu.Unlock()
		if err != nil {
			return
		}
	}
	if !p.outbox.empty() {
		p.outbox.signal()
	}
}

// write passes on what had to be queued.
func (p *Process) write() {
	for {
		select {
		case <-p.outbox.wake:
		case <-p.gone:
			return
		}
		p.wmu.Lock()
		err := p.drainLocked(func(int) bool { return true })
		p.wmu.Unlock()
		if err != nil {
			return
		}
	}
}

// drainLocked writes what is queued, as long as there is room for it; wmu is held.
func (p *Process) drainLocked(room func(n int) bool) error {
	for {
		next, ok := p.outbox.first()
		if !ok || !room(len(next.m.Frame())) {
			return nil
		}
		if p.deaf {
			return io.ErrClosedPipe
		}
		p.queued(next.id, false)
		err := p.writeMessage(next.m)
		if err != nil {
			p.queued(next.id, true) // nobody reads what is not whole
		}
		p.outbox.drop()
		if err != nil {
			return err
		}
	}
}

// closeInput returns when nothing is being written any more, and nothing will be, so that it is known whether the agent can have got it.
func (p *Process) closeInput() {
	if !p.wmu.TryLock() {
		p.agent.set.o.Tasks.Go(func() { _ = p.conn.Close() }) // which ends the write
		p.wmu.Lock()
	}
	p.deaf = true
	p.wmu.Unlock()
}

// writeMessage writes to the agent; wmu is held. A process that takes no input
// any more is ended: its reader learns how, and fails what waits for it.
func (p *Process) writeMessage(m acp.Message) error {
	err := p.conn.Write(context.Background(), m)
	if err != nil {
		p.agent.set.o.Tasks.Go(func() {
			p.agent.log.Debug("write to agent", "err", err)
			_ = p.conn.Close()
		})
	}
	return err
}

// Gone is closed when the process is being ended.
func (p *Process) Gone() <-chan struct{} { return p.gone }
