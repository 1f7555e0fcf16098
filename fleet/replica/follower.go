package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/fleet/store"
	"sandboxagent.dev/sandbox-agent/internal/awake"
	"sandboxagent.dev/sandbox-agent/runtime"
	"sandboxagent.dev/sandbox-agent/runtime/session"
)

const (
	ofNode = 4  // sessions of one node that are copied at one time
	atOnce = 32 // of all nodes of a hub

	// attention is how long a session is attended in which nothing happens. Of more than
	// mostAttended of a node each is asked whenever the node tells of it, and not attended.
	attention    = 5 * time.Second
	mostAttended = 64

	// pace is how long a session rests that was copied. Short turns come by hundreds in a second, and
	// to copy each by itself takes more than to answer it.
	pace = 20 * time.Millisecond

	againAfter  = 5 * time.Second  // what failed is tried again
	longestWait = 30 * time.Second // between attempts to hear of a node's sessions
	noteBound   = 5 * time.Second  // for what is noted when a node is gone
)

// Share is what all followers of a hub share.
type Share struct {
	turns chan struct{} // those that copy
	large chan struct{} // those that read an event which is large
}

// NewShare returns one for a hub.
func NewShare() *Share {
	return &Share{turns: make(chan struct{}, atOnce), large: make(chan struct{}, largeAtOnce)}
}

// Options configure a Follower.
type Options struct {
	Store *store.Store
	Node  store.Node
	// Carrier sends requests to the node.
	Carrier http.RoundTripper
	Share   *Share
	Logger  *slog.Logger
	// Copied is told how many events were added to the store.
	Copied func(events int)
	// Noted is told of a session when its record was written. It must not wait.
	Noted func(store.ReplicaID)
}

// Follower copies the sessions of one node as long as it is connected.
type Follower struct {
	o   Options
	log *slog.Logger

	wake chan struct{} // has one when something may be due

	mu       sync.Mutex
	sessions map[string]*followed // by id; at most store.MaxSessionsOfNode that the node has
	due      []string             // sessions that have news and are not being copied, each once
	round    int                  // of being told of all sessions
	attended int                  // sessions that are attended
	refused  int                  // sessions beyond the bound, in this round
}

// followed is a session of the node, or one that it had.
type followed struct {
	epochs []uint64 // of its replicas, oldest first; its copy alone changes them, and reads without the lock

	// What the node has told last.
	info   *runtime.SessionInfo // nil for nothing
	gone   departure
	round  int // in which it was told
	busy   bool
	due    bool
	failed error // why the last attempt did, nil when it did not

	// Those of a copy; nobody else uses them meanwhile.
	at      store.Place // where the replica ends, if known
	known   bool
	end     uint64        // the check of its last event, 0 when it is not known
	checked bool          // the node has said the same of its end since it has joined
	owed    bool          // it is to be asked for more though it says that there is none: the last look at it has failed
	begun   awake.Moment  // when a replica was begun anew, as the node has another history; 0 for never
	rest    time.Duration // for so long it is not then
	from    uint64        // the node has let go of events up to this one
	read    uint64        // the node has looked at its log up to there; what it gave of that is in the replica
	limit   int           // events of a page
	trouble string        // why the store takes nothing of one that is held, "" when it does

	attending bool          // see attend
	news      chan struct{} // has one when something is due of a session that is attended

	through uint64 // see store.Session
}

// departure says how a node came to have a session no more.
type departure int

const (
	here    departure = iota
	deleted           // the node says that it was deleted
	missing           // it is not among those that the node has
)

// New returns a follower that has not begun.
func New(o Options) *Follower {
	f := &Follower{o: o, log: o.Logger.With("node", o.Node.Name), wake: make(chan struct{}, 1), sessions: map[string]*followed{}}
	for _, s := range o.Store.Sessions() {
		if s.Of(o.Node) {
			e := f.entryLocked(s.Session)
			if e.epochs = append(e.epochs, s.Epoch); s.Epoch == slices.Max(e.epochs) {
				e.through = s.Through
			}
		}
	}
	for _, e := range f.sessions {
		slices.Sort(e.epochs)
	}
	return f
}

// Run copies until ctx ends, and returns when everything of it has ended and what is known of
// the sessions is noted. Call it once.
func (f *Follower) Run(ctx context.Context) {
	var own sync.WaitGroup
	own.Go(func() { f.listen(ctx) })
	again := time.NewTicker(againAfter)
	defer again.Stop()
	turns := make(chan struct{}, ofNode)
	for ctx.Err() == nil {
		id, ok := f.next()
		if !ok {
			select {
			case <-f.wake:
			case <-again.C:
				f.retry()
			case <-ctx.Done():
			}
			continue
		}
		if !enter(ctx, turns) {
			break
		}
		t := &turn{f: f, ctx: ctx, ofNode: turns}
		own.Go(func() {
			if !t.enterRest() {
				return
			}
			out := f.serve(ctx, id)
			t.leave()
			switch {
			case out.attend:
				out = f.attend(ctx, t, id)
			case out.paced:
				select {
				case <-time.After(pace): // what comes meanwhile is copied together
				case <-ctx.Done():
				}
			}
			f.served(ctx, id, out)
		})
	}
	own.Wait()
	f.note()
}

// turn is the right to copy something, which few have at one time.
type turn struct {
	f      *Follower
	ctx    context.Context
	ofNode chan struct{}
}

// enter waits for the turn. Leave gives it up.
func (t *turn) enter() bool { return enter(t.ctx, t.ofNode) && t.enterRest() }

// enterRest waits for it when there is room among those of the node; there is none taken when it
// fails.
func (t *turn) enterRest() bool {
	if !enter(t.ctx, t.f.o.Share.turns) {
		<-t.ofNode
		return false
	}
	return true
}

func (t *turn) leave() {
	<-t.f.o.Share.turns
	<-t.ofNode
}

// enter waits for room in a semaphore; false when ctx has ended before.
func enter(ctx context.Context, room chan struct{}) bool {
	select {
	case room <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// Behind returns how many events the node has told of that were not copied yet, at most.
func (f *Follower) Behind() (n uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, e := range f.sessions {
		if e.info != nil && e.gone == here && Told(e.info) > e.through {
			n += Told(e.info) - e.through
		}
	}
	return n
}

// Progress returns what the node has told of a session, and why the last attempt to copy it has
// failed, "" when it did not. Both may be newer than the record: a store that is full takes none.
func (f *Follower) Progress(id store.ReplicaID) (told uint64, trouble string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.sessions[id.Session]
	if e == nil || e.info == nil || e.gone != here || e.last() != id.Epoch {
		return 0, ""
	}
	if e.failed != nil && !errors.Is(e.failed, errLost) {
		trouble = e.failed.Error()
		trouble = trouble[:min(len(trouble), maxTrouble)]
	}
	return Told(e.info), trouble
}

func (f *Follower) entryLocked(id string) *followed {
	e := f.sessions[id]
	if e == nil {
		e = &followed{limit: firstPage, news: make(chan struct{}, 1)}
		f.sessions[id] = e
	}
	return e
}

// tell takes what a node says of its list of sessions.
func (f *Follower) tell(c runtime.SessionChange) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch c.Type {
	case runtime.ChangeReset:
		f.round++
		f.refused = 0
	case runtime.ChangeCurrent:
		for id, e := range f.sessions {
			if e.round != f.round && e.gone == here {
				e.gone, e.info = missing, nil
				f.markLocked(id, e)
			}
		}
	case runtime.ChangeDeleted:
		if e := f.sessions[c.SessionID]; e != nil {
			e.gone, e.info, e.round = deleted, nil, f.round
			f.markLocked(c.SessionID, e)
		}
	case runtime.ChangeSession:
		if c.Session == nil || !session.PlainID(c.Session.ID) || c.Session.CreatedAt.IsZero() {
			f.log.Warn("a session cannot be copied: it has no time, no id, or one that cannot be a session's")
			return
		}
		id := c.Session.ID
		if f.sessions[id] == nil && len(f.sessions) >= store.MaxSessionsOfNode {
			if f.refused++; f.refused == 1 {
				f.log.Warn("a node has more sessions than are copied", "most", store.MaxSessionsOfNode)
			}
			return
		}
		e := f.entryLocked(id)
		info := bounded(*c.Session)
		e.info, e.gone, e.round = &info, here, f.round
		f.markLocked(id, e)
	} // what a newer node says besides is of no concern here
}

// markLocked has a session looked at, soon and once.
func (f *Follower) markLocked(id string, e *followed) {
	if e.due {
		return
	}
	e.due = true
	switch {
	case !e.busy:
		f.due = append(f.due, id)
		f.wakeUp()
	case e.attending:
		e.news <- struct{}{} // it has room: due was not set
	}
}

func (f *Follower) wakeUp() {
	select {
	case f.wake <- struct{}{}:
	default: // it has one pending
	}
}

// next returns a session that is due, which is busy until done is called.
func (f *Follower) next() (string, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.due) == 0 {
		return "", false
	}
	id := f.due[0]
	f.due = f.due[1:]
	f.sessions[id].due, f.sessions[id].busy = false, true
	return id, true
}

// retry marks what has failed.
func (f *Follower) retry() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, e := range f.sessions {
		if e.failed != nil {
			f.markLocked(id, e)
		}
	}
}

// outcome is how it went to do what was due for a session.
type outcome struct {
	more   bool // is due
	attend bool // it waits to be attended
	paced  bool // it rests before it is copied again
	err    error
}

// serve does what is due for a session.
func (f *Follower) serve(ctx context.Context, id string) outcome {
	f.mu.Lock()
	e := f.sessions[id]
	info, gone := e.info, e.gone
	f.mu.Unlock()
	switch {
	case gone != here:
		return outcome{err: f.depart(ctx, id, e, gone)}
	case info != nil:
		return f.copy(ctx, e, *info)
	}
	return outcome{}
}

// served notes how it went, and has the session be looked at again if something is due.
func (f *Follower) served(ctx context.Context, id string, out outcome) {
	err := out.err
	f.mu.Lock()
	defer f.mu.Unlock()
	e := f.sessions[id]
	e.busy = false
	had := e.failed
	if e.failed = nil; err != nil && ctx.Err() == nil {
		e.failed = err
		e.known = false // what was written is not known
		if (had == nil || err.Error() != had.Error()) && !errors.Is(err, errLost) {
			f.log.Warn("a session could not be copied", "session", id, "err", err)
		}
	}
	if e.gone != here && err == nil && !e.due && len(e.epochs) == 0 {
		delete(f.sessions, id)
		return
	}
	if e.due {
		f.due = append(f.due, id)
		f.wakeUp()
	} else if out.more && e.failed == nil {
		f.markLocked(id, e)
	}
}

// attend follows a session whose node shows its clients only what is stored: on a line, or by
// requests of which each says what is stored, and waits for what comes next. It returns when nothing came for a time: then
// the node tells of the session when there is something. It is called without a turn.
func (f *Follower) attend(ctx context.Context, t *turn, id string) outcome {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.mu.Lock()
	e := f.sessions[id]
	e.attending = true
	f.attended++
	wait := attention
	if f.attended > mostAttended {
		wait = 0
	}
	if e.due {
		e.news <- struct{}{}
	}
	f.mu.Unlock()
	var noting sync.WaitGroup
	noting.Go(func() { f.noteNews(ctx, cancel, id, e) })
	var on *line
	if wait > 0 {
		on = &line{}
		defer on.close()
	}
	var err error
	w := wanted{held: true, line: on}
	for any := true; any && err == nil && ctx.Err() == nil; {
		entered := false
		w.room = func() error {
			if entered = t.enter(); !entered {
				return context.Cause(t.ctx)
			}
			return nil
		}
		if w.wait = wait; w.joined {
			w.wait = 0
		}
		_, any, err = f.copyPage(ctx, e, f.replica(id, e.last()), w)
		w.joined = errors.Is(err, errEnded) && e.at.Last > 0 // another one may have taken the place of the session
		if errors.Is(err, errEnded) {
			any, err = true, nil
		}
		if entered {
			t.leave()
		}
		f.mu.Lock()
		e.through = max(e.through, e.at.Last, e.read)
		f.mu.Unlock()
	}
	other := errors.Is(err, errOther)
	if other || err != nil && ctx.Err() != nil { // or it was interrupted
		err, e.known, e.owed = nil, false, other
	}
	cancel()
	noting.Wait()
	f.mu.Lock()
	through := e.through
	f.mu.Unlock()
	if noted := f.noteThrough(f.replica(id, e.last()), through, e.at.Size); noted != nil {
		err = errors.Join(err, noted)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	e.attending = false
	f.attended--
	select {
	case <-e.news: // due says the same
	default:
	}
	// The node may have told of more when nobody asked for it any more, and that was noted only.
	return outcome{more: other || e.info != nil && e.gone == here && Told(e.info) > e.through, err: err}
}

// noteThrough writes into a record how far the replica goes, also when the node is gone: what was
// copied while the session was attended is in no record yet, and lists go by records.
func (f *Follower) noteThrough(id store.ReplicaID, through, size uint64) error {
	ctx, cancel := context.WithTimeout(context.Background(), noteBound)
	defer cancel()
	written := false
	err := f.o.Store.UpdateSession(ctx, id, func(had *store.Session) *store.Session {
		if written = had != nil && had.Of(f.o.Node) && had.Gone == nil && had.Through < through; !written {
			return nil
		}
		next := *had
		next.Through, next.Bytes = through, max(next.Bytes, size)
		return &next
	})
	if err == nil && written {
		f.o.Noted(id)
	}
	return err
}

// noteNews writes what the node tells of a session that is attended into its record, until ctx
// ends. It interrupts if that is not enough.
func (f *Follower) noteNews(ctx context.Context, interrupt func(), id string, e *followed) {
	for {
		select {
		case <-e.news:
		case <-ctx.Done():
			return
		}
		f.mu.Lock()
		info, gone, through := e.info, e.gone, e.through
		r := f.replica(id, e.last())
		had := f.o.Store.Session(r)
		if gone != here || info == nil || had == nil || !had.Info.CreatedAt.Equal(info.CreatedAt) {
			f.mu.Unlock()
			interrupt()
			return
		}
		e.due = false
		f.mu.Unlock()
		rec := *had
		rec.Through = max(rec.Through, through)
		if err := f.update(ctx, &rec, *info, nil); err != nil {
			f.mu.Lock()
			e.due = true
			f.mu.Unlock()
			interrupt()
			return
		}
		f.o.Noted(r)
		select {
		case <-time.After(pace): // what comes meanwhile is noted together
		case <-ctx.Done():
		}
	}
}

// listen follows the list of the node's sessions until ctx ends.
func (f *Follower) listen(ctx context.Context) {
	wait, said := time.Second, ""
	for {
		begun := time.Now()
		err := f.changes(ctx)
		if ctx.Err() != nil {
			return
		}
		if time.Since(begun) > longestWait {
			wait = time.Second
		}
		level := slog.LevelDebug
		if err.Error() != said {
			level, said = slog.LevelWarn, err.Error()
		}
		f.log.Log(ctx, level, "the sessions of a node cannot be followed", "err", err, "again_in", wait)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		wait = min(2*wait, longestWait)
	}
}

// note writes what the node has told last and was not written yet, in bounded time.
func (f *Follower) note() {
	ctx, cancel := context.WithTimeout(context.Background(), noteBound)
	defer cancel()
	for id, e := range f.sessions { // nobody else is left
		if e.info == nil || e.gone != here || len(e.epochs) == 0 {
			continue
		}
		err := f.o.Store.UpdateSession(ctx, f.replica(id, e.last()), func(had *store.Session) *store.Session {
			if had == nil || had.Gone != nil || !had.Info.CreatedAt.Equal(e.info.CreatedAt) || Told(&had.Info) >= Told(e.info) {
				return nil
			}
			next := *had
			next.Info = *e.info
			return &next
		})
		if err != nil {
			f.log.Warn("what a node said last could not be noted", "session", id, "err", err)
			return
		}
	}
}

func (f *Follower) replica(id string, epoch uint64) store.ReplicaID {
	return store.ReplicaID{Node: f.o.Node.Name, Session: id, Epoch: epoch}
}

// last returns the newest epoch, 0 for none.
func (e *followed) last() uint64 {
	if len(e.epochs) == 0 {
		return 0
	}
	return e.epochs[len(e.epochs)-1]
}

// The texts of a session are bounded: they are in the memory of each hub.
const (
	maxText     = 4 << 10
	maxMetadata = 16 << 10
	maxTrouble  = 500
)

// bounded returns what is kept of what a node says of a session.
func bounded(i runtime.SessionInfo) runtime.SessionInfo {
	for _, text := range []*string{&i.Title, &i.Cwd, &i.Gist, &i.Agent, &i.AgentSessionID, &i.Model, (*string)(&i.State), (*string)(&i.Continuity)} {
		if len(*text) > maxText {
			*text = (*text)[:maxText]
		}
	}
	if len(i.Metadata) > maxMetadata {
		i.Metadata = nil
	}
	if i.Ended != nil {
		e := *i.Ended
		e.Stderr = nil // it may hold anything, and is in the log
		e.Reason, e.TerminatedBy, e.Message = e.Reason[:min(len(e.Reason), maxText)], e.TerminatedBy[:min(len(e.TerminatedBy), maxText)], e.Message[:min(len(e.Message), maxText)]
		i.Ended = &e
	}
	i.Match = nil
	return i
}

var errNotAGateway = errors.New("the node does not answer as a gateway does")

func badAnswer(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errNotAGateway, fmt.Sprintf(format, args...))
}
