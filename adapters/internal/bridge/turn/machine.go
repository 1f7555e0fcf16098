package turn

import (
	"context"
	"sync"

	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// state is what a session's prompts do:
//
//	        begin            stop
//	idle ──────────> running ──────> stopping
//	 ^                │   │             │
//	 │                │   └── settle ───┤
//	 │      leave     │                 v
//	 └────────────────┴───────────── settled
//
// A turn is left as settled, or when its agent is gone, refused it, or does not
// end it in time. Beside it the agent may run turns that nobody prompted: begin
// waits until they are over.
type state int

const (
	idle     state = iota
	running        // the agent works on a prompt
	stopping       // its end is wanted
	settled        // it has its verdict, and its prompt is about to be answered
)

// event is what happens to a turn.
type event int

const (
	begin event = iota
	stop
	settle
	leave
)

// table says where an event leads. What is not there changes nothing.
var table = map[state]map[event]state{
	idle:     {begin: running},
	running:  {stop: stopping, settle: settled, leave: idle},
	stopping: {settle: settled, leave: idle},
	settled:  {leave: idle},
}

// Verdict is how a turn ended.
type Verdict struct {
	Reason schema.StopReason
	Err    error
	Usage  *schema.Usage
	// Left is set when the agent goes on with a turn that was to end.
	Left bool
}

// Turns are the turns of a session, one after another. W is what a bridge keeps
// of the one that runs. Its methods are safe for concurrent use, and call nothing
// of the bridge's while they hold their lock.
type Turns[W any] struct {
	ctx    context.Context
	slot   chan struct{} // held by the prompt whose turn it is, or by Hold
	closed chan struct{} // by Close
	once   sync.Once     // of Close

	watch   func(works bool) // set before anything runs; may be nil
	telling sync.Mutex       // orders calls of watch; taken before mu

	mu    sync.Mutex
	state state
	turn  *Turn[W]        // nil when idle
	own   map[string]bool // what the agent runs that nobody prompted
	held  int             // how many wait with Pause
	quiet chan struct{}   // closed when own becomes empty and held 0; nil when they are
}

// New returns the turns of a session. What they begin ends with ctx.
func New[W any](ctx context.Context) *Turns[W] {
	return &Turns[W]{ctx: ctx, slot: make(chan struct{}, 1), closed: make(chan struct{}), own: map[string]bool{}}
}

// Close lets no further turn begin: the session ends. Prompts that wait are cancelled, and the turn that
// runs is told to stop.
func (ts *Turns[W]) Close() { ts.once.Do(func() { close(ts.closed) }) }

// Drain is Close, and waits for the end of the turn that runs as long as ctx lasts. An agent that serves other
// sessions goes on with a turn that has not begun when it is told to stop: who stops it does so until it has.
func (ts *Turns[W]) Drain(ctx context.Context) {
	ts.Close()
	select {
	case ts.slot <- struct{}{}:
		<-ts.slot
	case <-ctx.Done():
	}
}

// unlessClosed is why a prompt has failed.
func (ts *Turns[W]) unlessClosed(err error) error {
	select {
	case <-ts.closed:
		return ErrCancelled
	default:
		return err
	}
}

// Turn is a prompt that the agent works on.
type Turn[W any] struct {
	// Work is the bridge's own, and guarded by it.
	Work W

	turns    *Turns[W]
	verdict  chan Verdict  // cap 1
	stopped  chan struct{} // closed when its end is wanted
	ctx      context.Context
	cancel   context.CancelFunc
	work     sync.WaitGroup
	gone     <-chan struct{} // of the script, or of Serve
	exit     func() error
	finished bool // Go begins nothing more; guarded by the turns' mu
}

// moveLocked takes an event of turn t, and reports whether it changed anything.
func (ts *Turns[W]) moveLocked(t *Turn[W], e event) bool {
	if e != begin && ts.turn != t {
		return false // it is over
	}
	next, ok := table[ts.state][e]
	if ok {
		ts.state = next
	}
	return ok
}

// begin begins a turn. While the agent does something by itself it returns what
// to wait for.
func (ts *Turns[W]) begin(w W) (*Turn[W], <-chan struct{}) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.quiet != nil {
		return nil, ts.quiet
	}
	t := &Turn[W]{Work: w, turns: ts, verdict: make(chan Verdict, 1), stopped: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancel(ts.ctx)
	ts.moveLocked(t, begin)
	ts.turn = t
	return t, nil
}

// finish ends what a turn has begun, and lets it begin nothing more.
func (ts *Turns[W]) finish(t *Turn[W]) {
	ts.mu.Lock()
	t.finished = true
	ts.mu.Unlock()
	t.cancel()
	t.work.Wait()
}

// leave ends what is left of a turn.
func (ts *Turns[W]) leave(t *Turn[W]) {
	ts.finish(t)
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.moveLocked(t, leave) {
		ts.turn = nil
	}
}

// Settle ends the turn. It reports whether this is the verdict: the first counts.
func (t *Turn[W]) Settle(v Verdict) bool {
	t.turns.mu.Lock()
	defer t.turns.mu.Unlock()
	if !t.turns.moveLocked(t, settle) {
		return false
	}
	t.verdict <- v
	return true
}

// Stop says that the turn's end is wanted. It reports whether the turn is about to end
// because of that: one that is over, or has its verdict, is not.
func (t *Turn[W]) Stop() bool {
	t.turns.mu.Lock()
	defer t.turns.mu.Unlock()
	if t.turns.moveLocked(t, stop) {
		close(t.stopped)
	}
	return t.turns.turn == t && t.turns.state == stopping
}

// Context ends with the turn.
func (t *Turn[W]) Context() context.Context { return t.ctx }

// Stopped returns what is closed when the turn's end is wanted.
func (t *Turn[W]) Stopped() <-chan struct{} { return t.stopped }

// Stopping reports whether the turn's end is wanted.
func (t *Turn[W]) Stopping() bool {
	select {
	case <-t.stopped:
		return true
	default:
		return false
	}
}

// Go runs f beside the turn, unless that is over, and reports whether it does. Its
// context ends with the turn.
func (t *Turn[W]) Go(f func(ctx context.Context)) bool {
	t.turns.mu.Lock()
	defer t.turns.mu.Unlock()
	if t.finished {
		return false
	}
	t.work.Go(func() { f(t.ctx) })
	return true
}

// Current returns the turn that the agent works on, nil when there is none or it
// has its verdict.
func (ts *Turns[W]) Current() *Turn[W] {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.state == running || ts.state == stopping {
		return ts.turn
	}
	return nil
}

// Stopping reports whether the end of the turn that runs is wanted.
func (ts *Turns[W]) Stopping() bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.state == stopping
}

// Watch has f told when the agent begins to do something that nobody prompted, and when
// nothing of it is left. It is called before anything runs.
func (ts *Turns[W]) Watch(f func(works bool)) { ts.watch = f }

// changeOwn changes what the agent runs by itself, and tells who watches.
func (ts *Turns[W]) changeOwn(change func(own map[string]bool)) {
	ts.telling.Lock() // what is told last is how it is
	defer ts.telling.Unlock()
	ts.mu.Lock()
	before := len(ts.own) > 0
	change(ts.own)
	now := len(ts.own) > 0
	ts.quietLocked()
	ts.mu.Unlock()
	if before != now && ts.watch != nil {
		ts.watch(now)
	}
}

// quietLocked lets turns begin, or keeps them from it.
func (ts *Turns[W]) quietLocked() {
	switch busy := len(ts.own) > 0 || ts.held > 0; {
	case busy && ts.quiet == nil:
		ts.quiet = make(chan struct{})
	case !busy && ts.quiet != nil:
		close(ts.quiet)
		ts.quiet = nil
	}
}

// Rest returns what is closed when the agent runs nothing by itself.
func (ts *Turns[W]) Rest() <-chan struct{} {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.quiet != nil {
		return ts.quiet
	}
	rest := make(chan struct{})
	close(rest)
	return rest
}

// Pause keeps the next turn from its begin until release is called: who ends what the agent
// does by itself would end that turn, too. It fails while the agent works on a prompt.
func (ts *Turns[W]) Pause() (release func(), ok bool) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	if ts.turn != nil {
		return nil, false
	}
	ts.held++
	ts.quietLocked()
	return func() {
		ts.mu.Lock()
		defer ts.mu.Unlock()
		ts.held--
		ts.quietLocked()
	}, true
}

// Own notes that the agent runs something that nobody prompted.
func (ts *Turns[W]) Own(id string) {
	ts.changeOwn(func(own map[string]bool) { own[id] = true })
}

// OwnOver notes that it has ended.
func (ts *Turns[W]) OwnOver(ids ...string) {
	ts.changeOwn(func(own map[string]bool) {
		for _, id := range ids {
			delete(own, id)
		}
	})
}

// Owns reports whether the agent runs id by itself.
func (ts *Turns[W]) Owns(id string) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return ts.own[id]
}

// Alone reports whether the agent does something by itself, and works on no
// prompt.
func (ts *Turns[W]) Alone() bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return len(ts.own) > 0 && ts.turn == nil
}

// Working reports whether the agent works on a prompt or does something by itself.
func (ts *Turns[W]) Working() bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return len(ts.own) > 0 || ts.state == running || ts.state == stopping
}

// Busy reports whether anything runs, or a prompt is about to be answered.
func (ts *Turns[W]) Busy() bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return len(ts.own) > 0 || ts.turn != nil
}

// Hold keeps prompts waiting until release is called. It fails while one runs.
func (ts *Turns[W]) Hold() (release func(), ok bool) {
	select {
	case ts.slot <- struct{}{}:
		return func() { <-ts.slot }, true
	default:
		return nil, false
	}
}
