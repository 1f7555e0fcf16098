package session

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"

	"sandboxagent.dev/sandbox-agent/runtime/agents"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
	"sandboxagent.dev/sandbox-agent/runtime/observe"
	"sandboxagent.dev/sandbox-agent/runtime/viewer"
)

// Options configure a Set. Only the fields whose comment says so may be empty.
type Options struct {
	Agents    *agents.Set
	DataDir   string    // sessions live below it; "" keeps them in memory only
	Fsync     string    // turn, always or never
	HostTools HostTools // answers agents in place of clients that offer no tools; may be nil

	RequestTimeout  time.Duration // for requests other than prompts
	TurnIdleTimeout time.Duration // a turn without updates for this long is cancelled; 0: never

	Life     context.Context // ends with the gateway; for work that no client owns
	Observer observe.Observer
	Logger   *slog.Logger
	Tasks    *agents.Tasks // run the work that nobody waits for

	// Readers returns the clients that a process concerns: those whose connection was
	// opened with it, and those that read a session of it.
	Readers func(p *agents.Process) []*viewer.Client
}

// Set is the sessions of a gateway. Its methods are safe for concurrent use.
type Set struct {
	o      Options
	store  store
	syncer syncer
	asks   askTable
	counts journal.Stats // of all logs of sessions

	mu       sync.Mutex
	byID     map[string]*Session
	reserved map[string]bool // ids of sessions that are being created
}

// NewSet opens the sessions below the data directory; their logs are opened when they
// are needed.
func NewSet(o Options) (*Set, error) {
	set := &Set{o: o, byID: map[string]*Session{}, reserved: map[string]bool{}}
	set.asks.open = map[int64]*ask{}
	set.syncer.init(o.Fsync)
	if o.DataDir == "" {
		return set, nil
	}
	set.store = store{dir: filepath.Join(o.DataDir, "sessions")}
	set.asks.ids.path = filepath.Join(o.DataDir, "request-ids")
	if err := os.MkdirAll(set.store.dir, 0o700); err != nil {
		return nil, fmt.Errorf("create data directory: %w", err)
	}
	recs, err := set.store.list(o.Logger)
	if err != nil {
		return nil, fmt.Errorf("read sessions: %w", err)
	}
	for _, rec := range recs {
		set.byID[rec.ID] = newSession(set, rec, dormant)
	}
	return set, nil
}

// Run makes logs durable until ctx ends.
func (set *Set) Run(ctx context.Context) { set.syncer.run(ctx) }

// Writable reports why sessions cannot be kept, nil when they can.
func (set *Set) Writable() error { return set.store.writable() }

// Stats counts what the logs of sessions do.
func (set *Set) Stats() *journal.Stats { return &set.counts }

// Find returns the session with the id, nil when there is none.
func (set *Set) Find(id string) *Session {
	set.mu.Lock()
	defer set.mu.Unlock()
	return set.byID[id]
}

// All returns the sessions, in no order.
func (set *Set) All() []*Session {
	set.mu.Lock()
	defer set.mu.Unlock()
	return slices.Collect(maps.Values(set.byID))
}

func (set *Set) forget(s *Session) {
	set.mu.Lock()
	defer set.mu.Unlock()
	if set.byID[s.id] == s {
		delete(set.byID, s.id)
	}
}

// Persist writes down what all sessions know.
func (set *Set) Persist() error {
	var errs []error
	for _, s := range set.All() {
		errs = append(errs, s.persist(set.o.Fsync != "never"))
	}
	return errors.Join(errs...)
}

// CloseLogs closes the logs of all sessions.
func (set *Set) CloseLogs() error {
	var errs []error
	for _, s := range set.All() {
		if l := s.openedLog(); l != nil {
			errs = append(errs, l.Close())
		}
	}
	return errors.Join(errs...)
}

// MaxID bounds the ids that sessions get here.
const MaxID = 256

// PlainID reports whether the id can be a session's: it travels in headers.
func PlainID(id string) bool {
	for _, c := range []byte(id) {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return id != "" && len(id) <= MaxID
}

// Reserve keeps the id for a session that is being created, and reports whether it was
// free.
func (set *Set) Reserve(id string) bool {
	set.mu.Lock()
	defer set.mu.Unlock()
	if set.byID[id] != nil || set.reserved[id] {
		return false
	}
	set.reserved[id] = true
	return true
}

// Unreserve undoes Reserve.
func (set *Set) Unreserve(id string) {
	set.mu.Lock()
	defer set.mu.Unlock()
	delete(set.reserved, id)
}

// add registers a session that an agent has just opened under the id that was reserved for it, else under the
// agent's own id if that is free, else under a new one.
func (set *Set) add(rec record, creator journal.Recipient) *Session {
	set.mu.Lock()
	defer set.mu.Unlock()
	delete(set.reserved, rec.ID)
	if rec.ID == "" {
		if rec.ID = rec.AgentSessionID; !PlainID(rec.ID) {
			rec.ID = uuid.NewString()
		}
		for set.byID[rec.ID] != nil || set.reserved[rec.ID] {
			rec.ID = uuid.NewString()
		}
	}
	s := newSession(set, rec, starting)
	s.creator = creator
	set.byID[rec.ID] = s
	return s
}
