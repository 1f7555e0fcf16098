package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/acp/rawjson"
	"sandboxagent.dev/sandbox-agent/runtime/agents"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
	"sandboxagent.dev/sandbox-agent/runtime/paths"
)

// Still closes the session, so that nothing of it changes while it is copied. It refuses
// while something goes on in it. again opens the session again, if it was open.
func (s *Session) Still(ctx context.Context) (again func(), err error) {
	if err := s.Readable(); err != nil {
		return nil, err
	}
	s.EndLostCalls()
	s.Log()
	s.mu.Lock()
	switch {
	case s.m.life == deleted:
		s.mu.Unlock()
		return nil, notFound(s.id)
	case s.m.busy():
		s.mu.Unlock()
		return nil, problem.New(problem.Conflict, "session %s is working: cancel what it does, or wait for its end, and try again", s.id)
	case s.m.life != open:
		s.mu.Unlock()
		return func() {}, nil
	}
	done := make(chan error, 1)
	s.handleLocked(event{kind: stopped, goal: closed, done: func(_ bool, err error) { done <- err }})
	again = func() { s.handle(event{kind: loaded}) }
	select {
	case err = <-done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		// It is closed in a moment, whoever waits for that.
		s.handle(event{kind: stopped, goal: closed, done: func(bool, error) { again() }})
		return nil, err
	}
	return again, nil
}

// Taken returns the session's record as it travels: without what may be secret, which
// leftOut names.
func (s *Session) Taken() (record json.RawMessage, leftOut []string, err error) {
	s.mu.Lock()
	rec := s.rec
	s.mu.Unlock()
	if len(rec.OwnCredentials) > 0 {
		for _, name := range rec.OwnCredentials {
			leftOut = append(leftOut, "credentials."+name)
		}
	}
	rec.Version, rec.Closed, rec.Before, rec.Imported = recordVersion, false, nil, false
	setup, names, err := WithoutSecrets(rec.Setup)
	if err != nil {
		return nil, nil, fmt.Errorf("read the session's setup: %w", err)
	}
	rec.Setup = setup
	record, err = json.MarshalIndent(rec, "", " ")
	if err != nil {
		return nil, nil, fmt.Errorf("encode the session's record: %w", err)
	}
	return record, append(leftOut, names...), nil
}

// hidden are the members of a setup whose values may be secrets.
var hidden = []string{"env", "headers", "credentials"}

// WithoutSecrets returns the params of a session's setup without the values of variables
// and headers, and where they stood.
func WithoutSecrets(params json.RawMessage) (_ json.RawMessage, leftOut []string, _ error) {
	if len(params) == 0 {
		return params, nil, nil
	}
	var all any
	if err := json.Unmarshal(params, &all); err != nil {
		return nil, nil, err
	}
	strip(all, "", &leftOut)
	if len(leftOut) == 0 {
		return params, nil, nil
	}
	slices.Sort(leftOut)
	b, err := json.Marshal(all)
	return b, leftOut, err
}

// strip takes the values out of v, which stands at the given place.
func strip(v any, at string, leftOut *[]string) {
	join := func(name string) string {
		if at == "" {
			return name
		}
		return at + "." + name
	}
	switch v := v.(type) {
	case []any:
		for i, one := range v {
			name := fmt.Sprint(i)
			if o, ok := one.(map[string]any); ok {
				if own, ok := o["name"].(string); ok {
					name = own
				}
			}
			strip(one, join(name), leftOut)
		}
	case map[string]any:
		for name, one := range v {
			place := join(name)
			if name == "_meta" || name == acp.MetaKey {
				place = at
			}
			if !slices.Contains(hidden, name) {
				strip(one, place, leftOut)
				continue
			}
			switch one := one.(type) {
			case map[string]any:
				for own := range one {
					*leftOut = append(*leftOut, place+"."+own)
				}
				v[name] = map[string]any{}
			case []any:
				for _, o := range one {
					if o, ok := o.(map[string]any); ok {
						*leftOut = append(*leftOut, fmt.Sprintf("%s.%v", place, o["name"]))
					}
				}
				v[name] = []any{}
			}
		}
	}
}

// Arrival is a session that comes from another gateway.
type Arrival struct {
	ID     string
	Record json.RawMessage // as Taken has returned it
	Next   func() (journal.Entry, error)
	Cwd    string    // here
	Paths  paths.Map // of the other machine, and what they are here
	// Trusted takes over what can run programs, or allows something.
	Trusted bool
	// Stage is a folder of the same file system, for what is not a session yet.
	Stage string
	// Place puts what the agent keeps where the agent looks for it; undo takes it away.
	Place func(a *agents.Agent, nativeID string, n agents.Needs) (undo func() error, err error)
}

// refused is a problem with what has arrived.
func refused(format string, args ...any) error {
	return problem.New(problem.ArchiveRefused, format, args...)
}

// Import makes a session of one that comes from elsewhere. It names what it has not taken
// over. On an error nothing is left of it.
func (set *Set) Import(in Arrival) (_ *Session, leftOut []string, err error) {
	if set.store.dir == "" {
		return nil, nil, problem.New(problem.NotSupported, "this gateway keeps sessions in memory only (--ephemeral): start it with a data directory to bring sessions to it")
	}
	if err := set.Room(); err != nil {
		return nil, nil, err
	}
	var rec record
	if err := json.Unmarshal(in.Record, &rec); err != nil {
		return nil, nil, refused("the session's record cannot be read: %v", err)
	}
	switch {
	case rec.Version != recordVersion:
		return nil, nil, refused("the session's record has version %d, and this gateway reads %d: use the version of sandbox-agent that made it", rec.Version, recordVersion)
	case rec.ID != in.ID || !PlainID(rec.ID):
		return nil, nil, refused("the session's record is of session %q and not of %q", rec.ID, in.ID)
	case len(rec.Setup) > 0 && rec.Setup[0] != '{':
		return nil, nil, refused("the setup in the session's record is no object")
	}
	a := set.o.Agents.Find(rec.Agent)
	if a == nil {
		return nil, nil, problem.New(problem.UnsupportedAgent, "the session is one of agent %q, which this gateway does not know: configure it with --agent-command", rec.Agent)
	}
	if !set.Reserve(rec.ID) {
		return nil, nil, problem.New(problem.SessionAlreadyExists, "session %s is here already: delete it first, or leave it as it is", rec.ID).With("sessionId", rec.ID)
	}
	defer func() {
		if err != nil {
			set.Unreserve(rec.ID)
		}
	}()
	if _, err := os.Lstat(set.store.path(rec.ID)); err == nil {
		return nil, nil, problem.New(problem.SessionAlreadyExists, "there are files of a session %s in %s, which cannot be read: remove them first", rec.ID, set.store.path(rec.ID)).With("sessionId", rec.ID)
	}
	leftOut = rec.arrive(in)
	stage := store{dir: in.Stage}
	if err := stage.save(rec, true); err != nil {
		return nil, nil, err
	}
	about := stage.about(rec.ID)
	answered := false
	if err := journal.Restore(stage.logPath(rec.ID), about, in.entries(&answered)); err != nil {
		if p, ok := errors.AsType[*problem.Error](err); ok {
			return nil, nil, p
		}
		return nil, nil, problem.Wrap(problem.ArchiveRefused, err, "the session's log cannot be taken over")
	}
	if !answered { // there is nothing to know
		rec.Imported, rec.Continuity = false, ContinuityNative
		if err := stage.save(rec, true); err != nil {
			return nil, nil, err
		}
	}
	undo, err := in.Place(a, rec.AgentSessionID, rec.needs(agents.Needs{}, a))
	if err != nil {
		return nil, nil, err
	}
	if err := os.Rename(stage.path(rec.ID), set.store.path(rec.ID)); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("keep the session: %w", err), undo())
	}
	if err := journal.SyncFolder(set.store.dir); err != nil {
		set.o.Logger.Warn("make an imported session durable", "session", rec.ID, "err", err)
	}
	s := newSession(set, rec, dormant)
	s.list()
	set.mu.Lock()
	set.enterLocked(s)
	set.mu.Unlock()
	return s, leftOut, nil
}

// dangerous are the fields of a setup that run programs, or allow something.
var dangerous = []string{"mcp", "agentSpecific", "skills", "permissionMode", "mode", "env"}

// arrive makes a record one of this machine, and names what it leaves out.
func (rec *record) arrive(in Arrival) (leftOut []string) {
	rec.Closed, rec.Before, rec.Cwd = false, nil, in.Cwd
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
		if _, given := rawjson.Member(rec.Setup, "_meta", acp.MetaKey, name); given {
			leftOut = append(leftOut, name)
			rec.Setup = rawjson.DeleteMember(rec.Setup, "_meta", acp.MetaKey, name)
		}
	}
	if rec.ChosenMode != "" {
		leftOut, rec.ChosenMode = append(leftOut, "mode"), ""
	}
	for id := range rec.Chosen {
		if id != "model" {
			leftOut = append(leftOut, "the option "+id)
		}
	}
	if model, ok := rec.Chosen["model"]; ok {
		rec.Chosen = map[string]json.RawMessage{"model": model}
	} else {
		rec.Chosen = nil
	}
	slices.Sort(leftOut)
	return slices.Compact(leftOut)
}

// entries yields the entries of what arrives, after a look at each. Clients of another
// gateway are nobody here. answered is set when the agent has said something.
func (in *Arrival) entries(answered *bool) func() (journal.Entry, error) {
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
		if m.HasSession() && m.Session() != in.ID {
			return e, refused("entry %d of the session's log is of session %q and not of %s", e.Seq, m.Session(), in.ID)
		}
		*answered = *answered || isAnswer(e.Kind, &m)
		switch {
		case e.To > 0:
			e.To = journal.Nobody
		case e.To < 0:
			e.To = journal.Everyone
		}
		return e, nil
	}
}

// TravelFolder returns a new folder in the file system of the sessions, for what is not
// one of them yet. remove removes it.
func (set *Set) TravelFolder() (dir string, remove func(), err error) {
	base := ""
	if set.store.dir != "" {
		base = filepath.Join(filepath.Dir(set.store.dir), travelling)
		if err := os.MkdirAll(base, 0o700); err != nil {
			return "", nil, problem.Wrap(problem.Unavailable, err, "make a folder for sessions that travel")
		}
	}
	if dir, err = os.MkdirTemp(base, "session-"); err != nil {
		return "", nil, problem.Wrap(problem.Unavailable, err, "make a folder for a session that travels")
	}
	return dir, func() { _ = os.RemoveAll(dir) }, nil
}

// travelling is the folder of sessions that are on their way; what an end of the gateway
// has left in it is removed with the next start.
const travelling = "travelling"
