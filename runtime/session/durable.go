package session

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/internal/awake"
)

// Durability says when clients are shown what happens in a session.
type Durability string

// The durabilities of a session.
const (
	Async Durability = "async" // when the gateway has it in its file
	Sync  Durability = "sync"  // when the store of the gateway's hub has it, too
)

// Durabilities are those that a session can have.
var Durabilities = []Durability{Async, Sync}

// storeBound is how long the store may take for what is new in a session before clients are
// told, and before the session takes no further work.
const storeBound = 10 * time.Second

// CheckDurability says what is wrong with the durability that the _meta of a session's
// creation asks for, nil for nothing.
func (set *Set) CheckDurability(meta json.RawMessage) error {
	raw, given := rawjson.Member(meta, acp.MetaKey, "durability")
	if !given {
		if set.durability(nil) == Sync {
			return set.hubTrouble()
		}
		return nil
	}
	switch Durability(textOf(raw)) {
	case Async:
		return nil
	case Sync:
		if set.o.Stored {
			return set.hubTrouble()
		}
		return acp.Errorf(acp.CodeInvalidParams, `_meta["%s"].durability is sync, and this gateway has joined no hub that could store the session: start it with --join, or ask for async`, acp.MetaKey)
	}
	return acp.Errorf(acp.CodeInvalidParams, `_meta["%s"].durability must be async or sync, not %.40s`, acp.MetaKey, raw)
}

// hubTrouble says why the hub stores nothing, nil when it does or has been away for less than
// the bound.
func (set *Set) hubTrouble() error {
	if set.o.HubTrouble == nil {
		return nil
	}
	if err := set.o.HubTrouble(storeBound); err != nil {
		return problem.Wrap(problem.Unavailable, err, "the durability of the session is sync, and its hub stores nothing now")
	}
	return nil
}

// durability returns the durability of a session with the setup. Without a hub nobody could
// store it: then it is as if it had none.
func (set *Set) durability(setup json.RawMessage) Durability {
	asked := Durability(rawjson.MemberString(setup, "_meta", acp.MetaKey, "durability"))
	if asked == "" {
		asked = set.o.Durability
	}
	if asked == Sync && set.o.Stored {
		return Sync
	}
	return Async
}

// storing is what a session of the durability Sync knows of the store. Its lock is the
// innermost but that of the log.
type storing struct {
	known   chan struct{} // closed when the store has a record of the session, and takes its events
	refused chan struct{} // closed when the store was asked to take them and does not; known can follow

	mu       sync.Mutex
	told     bool         // known is closed
	denied   bool         // refused is closed
	trouble  string       // why the store takes nothing, "" when it does
	attended bool         // who copies the session waits for what comes next, or is about to
	behind   bool         // the file has what the store has not,
	since    awake.Moment // and the store has taken nothing of it since
	failing  bool         // clients were told so
}

// Held reports whether clients are shown only what the store has.
func (s *Session) Held() bool { return s.storing != nil }

// Attend notes that the store has the session up to an entry, and that who copies it there
// waits for more: see [Session.Unattended]. Trouble says why the store takes no more, "" when it
// does.
func (s *Session) Attend(stored uint64, trouble string) {
	log := s.Log()
	before := log.Last()
	log.Confirm(stored)
	t := s.storing
	t.mu.Lock()
	switch t.trouble = trouble; {
	case trouble == "" && !t.told:
		t.told = true
		close(t.known)
	case trouble != "" && !t.denied:
		t.denied = true
		close(t.refused)
	}
	if log.Last() > before {
		t.since = awake.Now()
	}
	t.attended, t.behind = true, log.Last() < log.Saved()
	mended := t.failing && !t.behind
	t.failing = t.failing && !mended
	t.mu.Unlock()
	if mended && log.Err() == nil {
		s.logTrouble(nil)
	}
}

// Unattended notes that nobody waits any more: who copies the session is told by the list of
// sessions when there is something new.
func (s *Session) Unattended() {
	t := s.storing
	t.mu.Lock()
	t.attended = false
	t.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.announceLocked() // what came in between
}

// noteSaved notes that the file has something new.
func (s *Session) noteSaved() {
	t := s.storing
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.behind {
		t.behind, t.since = true, awake.Now()
	}
}

// wantsStore reports whether there is something for the store, and nobody waits for it.
func (s *Session) wantsStore() bool {
	t := s.storing
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.behind && !t.attended
}

// unstored returns how many entries clients are not shown, because the store does not have
// them.
func (s *Session) unstored() uint64 {
	if s.storing == nil {
		return 0
	}
	log := s.Log()
	last := log.Last() // first: it can only grow
	return log.Saved() - last
}

// storeTrouble says why the session takes no work because of the store, nil when it does.
func (s *Session) storeTrouble() error {
	t := s.storing
	if t == nil {
		return nil
	}
	if err := s.set.hubTrouble(); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !t.behind:
		return nil
	case t.trouble != "":
		return t.troubleLocked()
	case t.since.Ago() < storeBound:
		return nil
	}
	return problem.New(problem.Unavailable, "the hub has stored nothing of session %s for %v, and its durability is sync: what is new in it is shown when the hub has it", s.id, t.since.Ago().Round(time.Second))
}

// troubleLocked is what the store has said of why it takes nothing, as a problem.
func (t *storing) troubleLocked() error {
	return problem.New(problem.Unavailable, "the hub stores nothing more of the session, and its durability is sync: %s", t.trouble)
}

// tellStore tells clients, once, when the store does not take what is new.
func (s *Session) tellStore() {
	err := s.storeTrouble()
	if err == nil {
		return
	}
	t := s.storing
	t.mu.Lock()
	first := t.behind && !t.failing
	t.failing = t.failing || first
	t.mu.Unlock()
	if first {
		s.logTrouble(err)
	}
}

// AwaitStored waits until clients may be shown all that happened in the session.
func (s *Session) AwaitStored(ctx context.Context) error {
	l := s.Log()
	if !l.Held() || s.unstored() == 0 {
		return nil
	}
	wake := make(chan struct{}, 1)
	defer l.Watch(wake)()
	late, stop := awake.After(storeBound)
	defer stop()
	for s.unstored() > 0 {
		select {
		case <-wake:
		case <-late:
			return problem.New(problem.Unavailable, "the hub has not stored all of session %s within %v, and its durability is sync: try again when the gateway is connected to the hub", s.id, storeBound)
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-s.gone:
			return notFound(s.id)
		}
	}
	return nil
}

// awaitKnown waits until the store has a record of a session that was just made: who is told
// of the session finds it there, whatever happens to this machine.
func (s *Session) awaitKnown() error {
	if s.storing == nil {
		return nil
	}
	if err := s.set.hubTrouble(); err != nil {
		return err
	}
	late, stop := awake.After(storeBound)
	defer stop()
	select {
	case <-s.storing.known:
		return nil
	case <-s.storing.refused:
		s.storing.mu.Lock()
		defer s.storing.mu.Unlock()
		if s.storing.trouble == "" {
			return nil // it was a moment ago
		}
		return s.storing.troubleLocked()
	case <-late:
		return problem.New(problem.Unavailable, "the hub has not stored the session within %v, and its durability is sync: try again when the gateway is connected to the hub, or ask for the durability async", storeBound)
	case <-s.set.o.Life.Done():
		return problem.New(problem.Unavailable, "the gateway is shutting down")
	}
}
