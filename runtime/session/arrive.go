package session

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/runtime/agents"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
	"sandboxagent.dev/sandbox-agent/runtime/paths"
	"sandboxagent.dev/sandbox-agent/runtime/traffic"
)

// Arrival is a session that comes from another gateway.
type Arrival struct {
	ID     string
	Record json.RawMessage // as Taken has returned it
	Next   func() (journal.Entry, error)
	Oldest uint64    // events before it were let go; 0 for all before the first that there is
	Cwd    string    // here
	Paths  paths.Map // of the other machine, and what they are here
	// Trusted takes over what can run programs, or allows something.
	Trusted bool
	// Closed has it arrive closed: whoever goes on with it here opens it first.
	Closed bool
	// Replace takes the place of what was left here when the session went elsewhere.
	Replace bool
	// Stage is a folder of the same file system, for what is not a session yet.
	Stage string
	// Kept are texts that are kept beside the session, by name; see [Session.Kept].
	Kept map[string][]byte
	// Raw is what was recorded of the agent's traffic; nil for nothing.
	Raw io.Reader
	// Place puts what the agent keeps where the agent looks for it; undo takes it away.
	Place func(a *agents.Agent, nativeID string, n agents.Needs) (undo func() error, err error)
}

// refused is a problem with what has arrived.
func refused(format string, args ...any) error {
	return problem.New(problem.ArchiveRefused, format, args...)
}

// read checks the record of what arrives, and returns it with its agent.
func (in *Arrival) read(set *Set) (rec record, a *agents.Agent, err error) {
	if err := rec.decode(in.Record); err != nil {
		return rec, nil, refused("the session's record cannot be read: %v", err)
	}
	switch {
	case rec.Version != recordVersion:
		return rec, nil, refused("the session's record has version %d, and this gateway reads %d: use the version of sandbox-agent that made it", rec.Version, recordVersion)
	case rec.ID != in.ID || !PlainID(rec.ID):
		return rec, nil, refused("the session's record is of session %q and not of %q", rec.ID, in.ID)
	case len(rec.Setup) > 0 && rec.Setup[0] != '{':
		return rec, nil, refused("the setup in the session's record is no object")
	}
	if a = set.o.Agents.Find(rec.Agent); a == nil {
		return rec, nil, problem.New(problem.UnsupportedAgent, "the session is one of agent %q, which this gateway does not know: configure it with --agent-command", rec.Agent)
	}
	return rec, a, nil
}

// Import makes a session of one that comes from elsewhere. It names what it has not taken
// over. On an error nothing is left of it.
func (set *Set) Import(in Arrival) (_ *Session, leftOut []string, err error) {
	if err := set.Room(); err != nil {
		return nil, nil, err
	}
	rec, a, err := in.read(set)
	if err != nil {
		return nil, nil, err
	}
	old, err := set.reserveArrival(rec.ID, in.Replace)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			set.Unreserve(rec.ID)
		}
		if err != nil && old != nil {
			set.forgetMissing(rec.ID)
		}
	}()
	leftOut = rec.arrive(in)
	if in.Raw != nil && set.store.dir == "" {
		leftOut = append(leftOut, includeRaw)
	}
	seen := heard{}
	var log *journal.Log
	if set.store.dir == "" {
		log, err = set.recall(rec, in.Oldest, in.entries(&seen))
	} else {
		err = in.restore(rec, &seen)
	}
	if err != nil {
		if p, ok := errors.AsType[*problem.Error](err); ok {
			return nil, nil, p
		}
		return nil, nil, problem.Wrap(problem.ArchiveRefused, err, "the session's log cannot be taken over")
	}
	if err := old.replaceableBy(&rec, seen.last); err != nil {
		return nil, nil, err
	}
	if old != nil {
		old.mu.Lock()
		rec.outlives(old.rec)
		old.mu.Unlock()
	}
	// It was shown where it comes from. The record is older than the log where the node is lost, and the hub has both.
	rec.LastSeq, rec.NotedSeq = seen.last, min(cmp.Or(rec.NotedSeq, seen.last), seen.last)
	if log != nil {
		log.Confirm(seen.last)
	}
	if !seen.answered { // there is nothing to know
		rec.Imported, rec.Continuity = false, ContinuityNative
	}
	stage := store{dir: in.Stage}
	if err := stage.arrived(rec, in.Kept, set.store.dir != ""); err != nil {
		return nil, nil, err
	}
	undo, err := in.Place(a, rec.AgentSessionID, rec.needs(agents.Needs{}, a))
	if err != nil {
		return nil, nil, err
	}
	s := newSession(set, rec, dormant)
	if log != nil {
		s.logp.Store(log)
		s.kept = in.Kept
	}
	if err := set.admit(s, old, stage); err != nil {
		return nil, nil, errors.Join(err, undo())
	}
	if rec.NotedSeq < seen.last {
		s.catchUp(everything)
		s.change(func(now *record) { now.CostSaid = rec.CostSaid }) // what the agent has goes no further, and it counts from there
	}
	return s, leftOut, nil
}

// restore makes the files of what arrives in its stage.
func (in *Arrival) restore(rec record, seen *heard) error {
	stage := store{dir: in.Stage}
	if err := stage.save(rec, false); err != nil {
		return err
	}
	if in.Raw != nil {
		if err := traffic.Restore(stage.path(rec.ID), in.Raw); err != nil {
			return err
		}
	}
	return journal.Restore(stage.logPath(rec.ID), stage.about(rec.ID), in.Oldest, in.entries(seen))
}

// recall makes the log of what arrives in memory.
func (set *Set) recall(rec record, oldest uint64, next func() (journal.Entry, error)) (*journal.Log, error) {
	s := newSession(set, rec, dormant)
	log, err := journal.Open("", s.logOptions())
	if err != nil {
		return nil, err
	}
	return log, log.Recall(oldest, next)
}

// arrived writes what belongs to a session beside its log.
func (st store) arrived(rec record, kept map[string][]byte, files bool) error {
	if !files {
		return nil
	}
	for name, b := range kept {
		if b == nil {
			continue
		}
		if err := st.keep(rec.ID, name, b); err != nil {
			return err
		}
	}
	return st.save(rec, true)
}

// reserveArrival keeps an id for a session that arrives. old is the one whose place it
// takes, nil for none.
func (set *Set) reserveArrival(id string, replace bool) (old *Session, err error) {
	if old = set.Find(id); old != nil && replace {
		old.mu.Lock()
		err = old.leftBehindLocked()
		old.mu.Unlock()
		if err != nil {
			return nil, err
		}
		set.mu.Lock()
		defer set.mu.Unlock()
		if set.byID[id] != old || set.reserved[id] {
			return nil, problem.New(problem.Conflict, "session %s is being changed by another request: try again", id)
		}
		set.reserved[id] = true
		return old, nil
	}
	if !set.Reserve(id, false) {
		return nil, problem.New(problem.SessionAlreadyExists, "session %s is here already: delete it first, or leave it as it is", id).With("sessionId", id)
	}
	if set.store.holds(id) {
		set.Unreserve(id)
		return nil, problem.New(problem.SessionAlreadyExists, "there are files of a session %s in %s, which cannot be read: remove them first", id, set.store.path(id)).With("sessionId", id)
	}
	return nil, nil
}

// leftBehindLocked says why another one cannot take the session's place, nil when it was
// left here closed as it went elsewhere, or has come and was not opened.
func (s *Session) leftBehindLocked() error {
	if s.m.life == closed && (s.rec.Arriving || rawjson.MemberString(s.rec.Metadata, movedTo) != "") {
		return nil
	}
	return problem.New(problem.SessionAlreadyExists, "session %s is here already, and no move has left it: delete it first, or leave it as it is", s.id).With("sessionId", s.id)
}

// replaceableBy says why one that has arrived, whose log ends with last, cannot take the
// session's place. Nil is replaced by anything. What was left here may have an end of its own, as when this gateway was
// killed in a turn and the session went on elsewhere from before that: a hub that moves it back keeps a copy of that first. One that
// has come and was not opened has nothing of its own.
func (s *Session) replaceableBy(rec *record, last uint64) error {
	if s == nil {
		return nil
	}
	newest := s.Log().Appended()
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.leftBehindLocked(); err != nil {
		return err
	}
	longer := newest > last && !s.rec.Arriving && !strings.HasPrefix(rawjson.MemberString(s.rec.Metadata, movedTo), nodeScheme)
	if longer || s.rec.Agent != rec.Agent || !s.rec.CreatedAt.Equal(rec.CreatedAt) {
		return problem.New(problem.SessionAlreadyExists, "session %s is here already, and is not the beginning of the one that comes: delete one of them", s.id).With("sessionId", s.id)
	}
	return nil
}

// admit makes s, whose files are in its stage, a session of the set, in the place of old
// if that is not nil.
func (set *Set) admit(s, old *Session, stage store) error {
	if err := set.store.place(); err != nil {
		return err
	}
	aside := ""
	if old != nil {
		old.mu.Lock()
		if err := old.leftBehindLocked(); err != nil {
			old.mu.Unlock()
			return err
		}
		old.handleLocked(event{kind: discarded})
		old.retire()
		old.saving.Lock() // what is being written in its folder ends first
		defer old.saving.Unlock()
		old.stopRaw()
		if set.store.dir != "" {
			aside = stage.aside().path(s.id)
			err := os.MkdirAll(filepath.Dir(aside), 0o700)
			if err == nil {
				err = os.Rename(set.store.path(s.id), aside)
			}
			if err != nil {
				set.readmit(old)
				return fmt.Errorf("put the session aside that was left here: %w", err)
			}
		}
	}
	if set.store.dir != "" {
		if err := os.Rename(stage.path(s.id), set.store.path(s.id)); err != nil {
			err = fmt.Errorf("keep the session: %w", err)
			if aside != "" {
				err = errors.Join(err, os.Rename(aside, set.store.path(s.id)))
				set.readmit(old)
			}
			return err
		}
		if err := journal.SyncFolder(set.store.dir); err != nil {
			set.o.Logger.Warn("make an imported session durable", "session", s.id, "err", err)
		}
	}
	s.list()
	set.mu.Lock()
	set.enterLocked(s)
	set.mu.Unlock()
	return nil
}

// readmit makes a session again of one that was retired and whose files have stayed.
func (set *Set) readmit(old *Session) {
	old.mu.Lock()
	s := newSession(set, old.rec, dormant)
	s.behind.Store(old.behind.Load())
	s.unsaved = true // the files may be fewer, or older, than what was known of it
	old.mu.Unlock()
	s.list()
	set.mu.Lock()
	defer set.mu.Unlock()
	set.noteLocked(s.id, s)
}

// dangerous are the fields of a setup that run programs, or allow something.
var dangerous = []string{"mcp", "agentSpecific", "skills", "permissionMode", "mode", "env"}

// arrive makes a record one of this machine, and names what it leaves out.
func (rec *record) arrive(in Arrival) (leftOut []string) {
	rec.Closed, rec.Arriving, rec.Before, rec.LastSeq, rec.BoundSeq, rec.LogEnd, rec.Cwd = in.Closed, in.Closed, nil, 0, 0, nil, in.Cwd
	rec.OpenFrom = 0 // the log that comes with it may be another one than the record knew
	if _, went := rawjson.Member(rec.Metadata, movedTo); went {
		rec.Metadata = rawjson.DeleteMember(rec.Metadata, movedTo)
	}
	rec.Earlier, rec.Granted = nil, nil                  // of the other machine
	rec.Servers = nil                                    // the agent tells of those that it has here
	rec.Imported, rec.Continuity = true, ContinuityFresh // until the agent is seen to have it
	if rec.Setup == nil {
		rec.Setup = json.RawMessage("{}")
	}
	rec.Setup, _, _ = WithoutSecrets(rec.Setup) // it is valid, as a part of the record
	rec.Setup = rawjson.SetMember(in.Paths.JSON(rec.Setup), rawjson.AppendQuoted(nil, in.Cwd), "cwd")
	if len(rec.OwnCredentials) > 0 {
		leftOut = append(leftOut, "credentials")
	}
	if in.Trusted {
		return leftOut
	}
	if list, _ := rawjson.Member(rec.Setup, "mcpServers"); len(rawjson.Elements(list)) > 0 {
		leftOut = append(leftOut, "mcpServers")
		rec.Setup = rawjson.SetMember(rec.Setup, []byte("[]"), "mcpServers")
	}
	if _, given := rawjson.Member(rec.Setup, "additionalDirectories"); given {
		leftOut = append(leftOut, "additionalDirectories")
		rec.Setup = rawjson.DeleteMember(rec.Setup, "additionalDirectories")
	}
	for _, name := range append(slices.Clone(dangerous), "additionalDirectories") {
		if _, given := rawjson.Member(rec.Setup, "_meta", acp.MetaKey, name); given && (name != permissionMode || rec.permissionMode() != "readonly") {
			leftOut = append(leftOut, name)
			rec.Setup = rawjson.DeleteMember(rec.Setup, "_meta", acp.MetaKey, name)
		}
	}
	for _, c := range rec.list() {
		if c.method != acp.MethodSessionSetModel && c.option != "model" { // by its id: what the record says of its options may be wrong
			leftOut = append(leftOut, map[bool]string{true: "mode", false: "the option " + c.option}[c.option == ""])
		}
	}
	model := rec.Chosen["model"]
	rec.choices, rec.Modes, rec.ConfigOptions = choices{ChosenModel: rec.ChosenModel}, nil, nil // the agent here tells of its own
	rec.setChosen("model", model)
	slices.Sort(leftOut)
	return slices.Compact(leftOut)
}

// heard is what is known of a log that was read.
type heard struct {
	last     uint64 // the number of the newest entry
	answered bool   // the agent has said something
}

// entries yields the entries of what arrives, after a look at each. Clients of another
// gateway are nobody here.
func (in *Arrival) entries(seen *heard) func() (journal.Entry, error) {
	return func() (journal.Entry, error) {
		e, err := in.Next()
		if err != nil {
			if err != io.EOF {
				err = refused("the session's log: %v", err)
			}
			return e, err
		}
		m, err := acp.Parse(e.Frame)
		if err != nil {
			return e, refused("entry %d of the session's log is no message: %v", e.Seq, err)
		}
		if m.HasSession() && m.Session() != in.ID && e.Kind != journal.Second { // a child keeps its own
			return e, refused("entry %d of the session's log is of session %q and not of %s", e.Seq, m.Session(), in.ID)
		}
		seen.last, seen.answered = e.Seq, seen.answered || isAnswer(e.Kind, &m)
		if first, ok := LostFrom(&m, e.Seq); ok && e.Kind == journal.Notice {
			return e.Damage(first), nil
		}
		switch {
		case e.To > 0:
			e.To = journal.Nobody
		case e.To < 0:
			e.To = journal.Everyone
		}
		return e, nil
	}
}
