package session

import (
	"bytes"
	"context"
	"encoding/json"
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

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/adapters"
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
		set.byID[rec.ID] = newSession(set, rec)
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
	s := newSession(set, rec)
	s.creator = creator
	s.m.hosting, s.m.attempt = starting, 1
	set.byID[rec.ID] = s
	return s
}

// New is what a session is made from.
type New struct {
	ID           string          // that was reserved for it; "" for any
	Setup        json.RawMessage // what the agent is given again when it is opened anew; see [Setup]
	Cwd, Title   string
	Credentials  adapters.Credentials
	Capabilities json.RawMessage // of the client that makes it
	Creator      *viewer.Client  // may be nil
	From         *Session        // that it is a fork of; nil for none
}

// Setup returns the params of a session's creation as they are kept: without
// secrets, and without what belongs to this one call.
func Setup(params json.RawMessage) json.RawMessage {
	p := bytes.Clone(params)
	p = rawjson.DeleteMember(p, "sessionId")
	p = rawjson.DeleteMember(p, "_meta", acp.MetaKey, "credentials")
	return rawjson.DeleteMember(p, "_meta", acp.MetaKey, "after")
}

// Create makes the session that the agent has just created with the given result. It is
// called by the process's reader: the session's messages go to its log from now on. It
// does not touch the disk; see [Session.Finish].
func (set *Set) Create(p *agents.Process, result json.RawMessage, n New) *Session {
	rec := record{
		ID: n.ID, Agent: p.Agent().ID(), AgentSessionID: rawjson.MemberString(result, "sessionId"), Title: n.Title, Cwd: n.Cwd,
		Setup: n.Setup, credentials: n.Credentials, Capabilities: n.Capabilities,
		CreatedAt: time.Now().UTC(), Continuity: ContinuityNative,
	}
	if n.From != nil {
		n.From.mu.Lock()
		rec.Modes, rec.ConfigOptions = n.From.rec.Modes, n.From.rec.ConfigOptions
		n.From.mu.Unlock()
	}
	rec.read(result)
	s := set.add(rec, n.Creator.Number())
	s.mu.Lock()
	s.cost.known = n.From == nil // a fork's sum begins with what it was forked from
	s.mu.Unlock()
	l := &link{s: s, p: p, native: rec.AgentSessionID, opened: true}
	s.handle(event{kind: bound, attempt: 1, link: l})
	if err := p.Bind(l.native, l); err != nil {
		s.handle(event{kind: startFailed, attempt: 1, err: err})
	} else {
		s.handle(event{kind: started, attempt: 1, link: l, err: p.Cause()})
	}
	return s
}

// Finish writes a new session down and sets what was asked for in the _meta of its
// creation. It returns what had no effect.
func (s *Session) Finish(ctx context.Context, asked json.RawMessage) []Unsupported {
	s.change(func(*record) {})
	s.mu.Lock()
	l := s.m.link
	s.mu.Unlock()
	if l == nil {
		return nil // its process has ended
	}
	return s.configure(ctx, l, asked)
}

// Inherit copies the history of another session up to an entry.
func (s *Session) Inherit(from *Session, upTo uint64) {
	cur := from.Log().Cursor(0)
	for cur.After() < upTo {
		batch, err := cur.Next(nil, 256<<10)
		if err != nil || len(batch) == 0 {
			s.log.Warn("copy history of forked session", "from", from.id, "err", err)
			return
		}
		for _, e := range batch {
			if e.Seq > upTo || (e.Kind != journal.Update && e.Kind != journal.Echo) {
				continue
			}
			if m, err := acp.Parse(e.Frame); err == nil && m.HasSession() {
				s.append(e.Kind, journal.Everyone, &m)
			}
		}
		s.Flush()
	}
}

// Needs returns what a process needs to be for the session's sake.
func (s *Session) Needs(n agents.Needs, a *agents.Agent) agents.Needs {
	s.mu.Lock()
	rec := s.rec
	s.mu.Unlock()
	return rec.needs(n, a)
}

// ForkFrom returns what a fork of the session is made from.
func (s *Session) ForkFrom() New {
	s.mu.Lock()
	defer s.mu.Unlock()
	return New{Cwd: s.rec.Cwd, Title: s.rec.Title, Setup: s.rec.Setup, Credentials: s.rec.credentials, From: s}
}

// Refusal says why the session takes no work, nil when it does.
func (s *Session) Refusal() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m.refusal()
}

// Foreign is a session that the agent has from elsewhere and that is being opened
// here. Its id was reserved.
type Foreign struct {
	s    *Session
	kept uint64 // entries of a log that was there without a record
}

// NewForeign returns the session, which is not among the set's before Open succeeds.
func (set *Set) NewForeign(p *agents.Process, n New) *Foreign {
	s := newSession(set, record{
		ID: n.ID, AgentSessionID: n.ID, Agent: p.Agent().ID(), Cwd: n.Cwd, CreatedAt: time.Now().UTC(),
		Continuity: ContinuityNative, Setup: n.Setup, credentials: n.Credentials, Capabilities: n.Capabilities,
	})
	return &Foreign{s: s, kept: s.Log().Last()}
}

// Open asks the agent for the session, after the client was attached to it by read:
// what the agent replays is its log, unless the log has it.
func (f *Foreign) Open(ctx context.Context, p *agents.Process, method string, params json.RawMessage, read func(s *Session, kept uint64)) (*Session, json.RawMessage, error) {
	s := f.s
	l := &link{s: s, p: p, native: s.id, replaying: method == methodLoad && f.kept > 0}
	s.mu.Lock()
	s.m.hosting, s.m.attempt = starting, 1
	s.mu.Unlock()
	s.handle(event{kind: bound, attempt: 1, link: l})
	err := p.Bind(l.native, l)
	var res json.RawMessage
	if err == nil {
		read(s, f.kept)
		res, err = p.AskThen(ctx, method, params, func(res json.RawMessage, err error) {
			if s.openedBy(l, err) && err == nil {
				s.mu.Lock()
				s.rec.read(res)
				s.mu.Unlock()
				s.handle(event{kind: started, attempt: 1, link: l, err: p.Cause()})
			}
		})
	}
	if err != nil {
		s.abandon(l)
		s.handle(event{kind: startFailed, attempt: 1, err: err})
		s.discard(f.kept > 0)
		if f.kept > 0 {
			err = acp.Errorf(acp.CodeInternal, "the record of session %s cannot be read, and its agent does not open it (%v): its log is kept in %s", s.id, err, s.set.store.path(s.id))
		}
		return nil, nil, err
	}
	s.set.mu.Lock()
	s.set.byID[s.id] = s
	delete(s.set.reserved, s.id)
	s.set.mu.Unlock()
	s.change(func(*record) {})
	return s, res, nil
}

// discard undoes an opening that failed. Files that were there before stay.
func (s *Session) discard(keepFiles bool) {
	for _, c := range s.Clients() {
		c.Detach(s)
	}
	s.mu.Lock()
	s.m.life = deleted
	s.mu.Unlock()
	_ = s.Log().Close()
	if !keepFiles {
		_ = s.set.store.remove(s.id)
	}
}
