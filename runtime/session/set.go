package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/internal/changes"
	"sandboxagent.dev/sandbox-agent/internal/memory"
	"sandboxagent.dev/sandbox-agent/runtime/agents"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
	"sandboxagent.dev/sandbox-agent/runtime/observe"
	"sandboxagent.dev/sandbox-agent/runtime/viewer"
)

// Options configure a Set. Only the fields whose comment says so may be empty.
type Options struct {
	Agents    *agents.Set
	DataDir   string    // sessions live below it; "" keeps them in memory only
	Fsync     string    // turn, always, interval or never
	MinFree   int64     // bytes that the disk must have left for new sessions; 0 asks for none
	LogFiles  int       // of logs that are open at one time, about; 0 is any number
	HostTools HostTools // answers agents in place of clients that offer no tools; may be nil

	RequestTimeout  time.Duration // for requests other than prompts
	TurnIdleTimeout time.Duration // a turn without updates for this long is cancelled; 0: never

	Life     context.Context // ends with the gateway; for work that no client owns
	Observer observe.Observer
	Logger   *slog.Logger
	Tasks    *agents.Tasks // run the work that nobody waits for
	Memory   *memory.Bound // of prompts that wait

	// Stored says that a hub stores what happens in sessions, so that they can be Sync;
	// Durability is that of sessions that ask for none, "" for Async.
	Stored bool
	// HubTrouble says why the hub stores nothing: it copies nothing, or has been away for longer
	// than the bound. Nil when that is not known.
	HubTrouble func(bound time.Duration) error
	Durability Durability

	// LogMemory bounds in bytes what all logs together hold in memory; 0: each has its own
	// bound only.
	LogMemory int64

	// Left ends what a gateway that was killed has left of a session that arrived, in its
	// folder; kept returns a text that is kept beside a session of an id. May be nil.
	Left func(folder string, kept func(id, name string) ([]byte, error)) error

	// Readers returns the clients that a process concerns: those whose connection was
	// opened with it, and those that read a session of it.
	Readers func(p *agents.Process) []*viewer.Client
}

// Set is the sessions of a gateway. Its methods are safe for concurrent use.
type Set struct {
	o       Options
	store   store
	syncer  syncer
	asks    askTable
	counts  journal.Stats // of all logs of sessions
	budget  *journal.Budget
	trouble trouble // with logs
	unsaved trouble // with records
	changes changes.List[string, *Session]
	prompts *memory.Share // that wait, or that an agent may not have read
	crowded chan struct{} // has a value when more files of logs are open than should be

	mu       sync.Mutex // is held while the records of all sessions are read at the start
	byID     map[string]*Session
	all      []*Session                // those of byID, nil when that has changed
	reserved map[string]bool           // ids of sessions that are being created
	deleted  []string                  // ids of sessions that were deleted before the start; for the hub
	opening  map[opening]chan struct{} // what agents are opening; closed when that is answered, or the process has ended

	deletions atomic.Int64 // since the start
}

// NewSet has the sessions below the data directory read. Who needs one waits for it; who
// needs none does not: there can be ten thousand. Their logs are opened when they are
// needed.
func NewSet(o Options) (*Set, error) {
	set := &Set{o: o, byID: map[string]*Session{}, reserved: map[string]bool{}, opening: map[opening]chan struct{}{}, crowded: make(chan struct{}, 1), prompts: o.Memory.Open(nil)}
	if o.LogMemory > 0 {
		set.budget = journal.NewBudget(o.LogMemory)
	}
	set.asks.open = map[int64]*ask{}
	set.syncer.init(o.Fsync)
	if o.DataDir == "" {
		set.beginChanges(nil)
		return set, nil
	}
	set.store = store{dir: filepath.Join(o.DataDir, "sessions")}
	set.asks.ids.path = filepath.Join(o.DataDir, "request-ids")
	if err := os.MkdirAll(set.store.dir, 0o700); err != nil {
		return nil, fmt.Errorf("create data directory: %w", err)
	}
	opened, err := os.Open(set.store.dir)
	if err != nil {
		return nil, fmt.Errorf("open the folder of sessions: %w", err)
	}
	set.store.folder = opened
	set.endTravels()
	folders, err := os.ReadDir(set.store.dir)
	if err != nil {
		_ = opened.Close()
		return nil, fmt.Errorf("read sessions: %w", err)
	}
	folders = set.removeAllAway(folders)
	set.mu.Lock()
	o.Tasks.Go(func() {
		defer set.mu.Unlock()
		set.readLocked(folders)
	})
	return set, nil
}

// readLocked makes the sessions in the folders those of the set.
func (set *Set) readLocked(folders []os.DirEntry) {
	var all []*Session
	for _, rec := range set.store.records(folders, set.o.Logger, set.noteDeleted) {
		s := newSession(set, rec, dormant)
		set.byID[rec.ID] = s
		all = append(all, s)
	}
	set.readDeleted()
	set.beginChanges(all)
	for _, s := range all {
		s.list()
	}
}

// await waits until the sessions that there were at the start are known.
func (set *Set) await() {
	set.mu.Lock()
	defer set.mu.Unlock()
}

// Run makes logs durable, and closes files of logs when too many are open, until ctx ends.
func (set *Set) Run(ctx context.Context) {
	set.o.Tasks.Go(func() { set.closeFiles(ctx) })
	set.syncer.run(ctx)
}

// Shrink has the logs keep their shares, while all together hold more memory than they
// may: also those that nobody writes to.
func (set *Set) Shrink() {
	if !set.budget.Spent() {
		return
	}
	for _, s := range set.All() {
		if l := s.logp.Load(); l != nil {
			l.Shrink()
		}
	}
}

// opened is told when a log has opened its file.
func (set *Set) opened() {
	if set.o.LogFiles <= 0 || set.counts.Open.Load() <= int64(set.o.LogFiles) {
		return
	}
	select {
	case set.crowded <- struct{}{}:
	default: // it will be seen
	}
}

// closeFiles closes files of logs when more are open than should be, until three quarters
// of that are: those first of the sessions that have been silent longest. They are opened
// again when they are needed.
func (set *Set) closeFiles(ctx context.Context) {
	for {
		select {
		case <-set.crowded:
		case <-ctx.Done():
			return
		}
		all := slices.Clone(set.All())
		slices.SortFunc(all, func(a, b *Session) int { return cmp.Compare(a.stirred.Load(), b.stirred.Load()) })
		for _, s := range all {
			if set.counts.Open.Load() <= int64(set.o.LogFiles)*3/4 {
				break
			}
			if l := s.logp.Load(); l != nil {
				l.Release(0)
			}
		}
	}
}

// Writable reports why sessions cannot be kept, nil when they can. It waits until those of
// the start are known.
func (set *Set) Writable() error {
	set.await()
	if err := set.Room(); err != nil {
		return err
	}
	return set.store.writable()
}

// Room reports why no session can be made: there are some that cannot be written, their
// folder is not there any more, or the disk is nearly full.
func (set *Set) Room() error {
	if err := set.trouble.problem(); err != nil {
		return err
	}
	if err := set.store.place(); err != nil {
		return err
	}
	if set.store.dir == "" || set.o.MinFree <= 0 {
		return nil
	}
	free, err := set.store.free()
	if err == nil && free < set.o.MinFree {
		return problem.New(problem.InsufficientStorage, "the disk of the data directory has %d MiB left, and sessions are made with %d MiB or more (--min-free)", free>>20, set.o.MinFree>>20)
	}
	return nil
}

// Troubled returns how many sessions have a log that cannot be used.
func (set *Set) Troubled() int { return set.trouble.count() }

// Stats counts what the logs of sessions do.
func (set *Set) Stats() *journal.Stats { return &set.counts }

// Find returns the session with the id, nil when there is none.
func (set *Set) Find(id string) *Session {
	set.mu.Lock()
	defer set.mu.Unlock()
	return set.byID[id]
}

// All returns the sessions, in no order. The list is not to be changed: until there is another session,
// everybody is given the same one. Each second all are looked at, and ten thousand need not be collected for
// that.
func (set *Set) All() []*Session {
	set.mu.Lock()
	defer set.mu.Unlock()
	if set.all == nil {
		set.all = slices.Collect(maps.Values(set.byID))
	}
	return set.all
}

// noteLocked notes that s is a session of the set, or none any more; mu is held.
func (set *Set) noteLocked(id string, s *Session) {
	set.all = nil
	if s == nil {
		delete(set.byID, id)
		set.changes.Forget(id, nil)
		return
	}
	set.byID[id] = s
	set.changes.Note(id, s)
}

func (set *Set) forget(s *Session) {
	s.mu.Lock()
	s.listed = false
	s.mu.Unlock()
	set.mu.Lock()
	defer set.mu.Unlock()
	switch {
	case set.byID[s.id] != s:
	case set.reserved[s.id]: // another one takes its place, and nobody is told that it was deleted
		set.all = nil
		delete(set.byID, s.id)
	default:
		set.noteLocked(s.id, nil)
	}
}

// forgetMissing tells that a session was deleted, if it is not there: another one was to take its place, and has not.
func (set *Set) forgetMissing(id string) {
	set.mu.Lock()
	defer set.mu.Unlock()
	if set.byID[id] == nil {
		set.noteLocked(id, nil)
	}
}

// enterLocked makes s, which is listed, a session of the set; mu is held.
func (set *Set) enterLocked(s *Session) {
	delete(set.reserved, s.id)
	set.noteLocked(s.id, s)
}

// Persist writes down what all sessions know.
func (set *Set) Persist() error {
	var errs []error
	for _, s := range set.All() {
		errs = append(errs, s.persist(set.o.Fsync != "never"))
	}
	return errors.Join(errs...)
}

// packFor is how long logs are compressed at the end: whoever ends the program waits for it.
const packFor = 2 * time.Second

// CloseLogs closes the logs of all sessions. Those that were in use until now are compressed, as far as there is time:
// nobody does it later.
func (set *Set) CloseLogs() error {
	all, began := set.All(), time.Now()
	errs := make([]error, len(all))
	atOnce(len(all), func(i int) {
		if l := all[i].openedLog(); l != nil {
			if time.Since(began) < packFor {
				l.Pack()
			}
			errs[i] = errors.Join(l.Close(), all[i].noteEnd())
		}
	})
	if set.store.folder != nil {
		errs = append(errs, set.store.folder.Close())
	}
	return errors.Join(errs...)
}

// filesAtOnce is how many files of sessions are worked on at one time. The disk takes them
// together.
const filesAtOnce = 8

// atOnce calls do for 0 to n-1, some at one time.
func atOnce(n int, do func(i int)) {
	var work sync.WaitGroup
	next := atomic.Int64{}
	for range min(n, filesAtOnce) {
		work.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				do(i)
			}
		})
	}
	work.Wait()
}

// MaxID bounds the ids that sessions get here.
const MaxID = 256

// takenPaths are paths below /v2/sessions that are no session's. Those of dots lead elsewhere.
var takenPaths = []string{"changes", "import", ".", ".."}

// PlainID reports whether the id can be a session's: it travels in headers and paths.
func PlainID(id string) bool {
	for _, c := range []byte(id) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return id != "" && len(id) <= MaxID && !slices.Contains(takenPaths, id)
}

// Reserve keeps the id for a session that is being created, or opened, and reports whether it was free. That
// of one that is created is not while there are files of it: they are of a session that could not be read, and
// would be written over.
func (set *Set) Reserve(id string, created bool) bool {
	if created && set.store.holds(id) {
		return false
	}
	set.mu.Lock()
	defer set.mu.Unlock()
	if set.byID[id] != nil || set.reserved[id] {
		return false
	}
	set.reserved[id] = true
	return true
}

// ReserveFor reserves an id for a session that an agent has made, and returns it: the agent's own if it can be had.
func (set *Set) ReserveFor(native string) (id string) {
	id = native
	for !PlainID(id) || !set.Reserve(id, id == native) { // there may be files of the agent's id, and none of a new one
		id = uuid.NewString()
	}
	return id
}

// Reread returns the session of an id that nobody found: one that could not be read at the start, or whose
// files were brought back since. It is nil when there are no such files, or none that say whose they are. The
// error is why it cannot be read.
func (set *Set) Reread(id string) (*Session, error) {
	if err := set.store.place(); err != nil {
		return nil, err
	}
	if !set.store.holds(id) || !set.Reserve(id, false) {
		return nil, nil
	}
	path := set.store.path(id)
	rec, err := set.store.read(filepath.Base(path), set.o.Logger, set.noteDeleted)
	if err != nil {
		set.Unreserve(id)
		if errors.Is(err, errLost) {
			return nil, nil
		}
		return nil, problem.Wrap(problem.Unavailable, err, "session %s cannot be read; it is as it was in %s", id, path)
	}
	s := newSession(set, rec, dormant)
	s.list() // nobody else has it yet
	set.mu.Lock()
	defer set.mu.Unlock()
	set.enterLocked(s)
	return s, nil
}

// Unreserve undoes Reserve.
func (set *Set) Unreserve(id string) {
	set.mu.Lock()
	defer set.mu.Unlock()
	delete(set.reserved, id)
}

// add registers a session that an agent has just opened, under the id that was reserved for it.
func (set *Set) add(rec record, creator journal.Recipient) *Session {
	set.mu.Lock()
	defer set.mu.Unlock()
	delete(set.reserved, rec.ID)
	s := newSession(set, rec, starting)
	s.creator = creator
	s.making.Store(true)
	s.list() // nobody else has it yet
	set.enterLocked(s)
	return s
}
