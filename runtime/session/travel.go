package session

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// Still closes the session, so that nothing of it changes while it is copied. It refuses
// while something goes on in it. again opens the session again, if it was open and nobody has
// closed it meanwhile; so does the next start of the gateway.
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
	}
	done, c := make(chan error, 1), new(copying)
	s.handleLocked(event{kind: stopped, goal: closed, copy: c, done: func(_ bool, err error) { done <- err }})
	over := func() { s.handle(event{kind: copied, copy: c}) }
	select {
	case err = <-done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		// It is closed in a moment, whoever waits for that.
		s.handle(event{kind: stopped, goal: closed, copy: c, done: func(bool, error) { over() }})
		return nil, err
	}
	return over, nil
}

// Resting returns the number of the session's newest event. It refuses while something goes on in
// the session.
func (s *Session) Resting() (newest uint64, err error) {
	if err := s.Readable(); err != nil {
		return 0, err
	}
	s.EndLostCalls()
	l := s.Log()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.m.life == deleted:
		return 0, notFound(s.id)
	case s.m.busy():
		return 0, problem.New(problem.Conflict, "session %s is working: cancel what it does, or wait for its end, and try again", s.id)
	}
	return l.Appended(), nil
}

// Taken returns the session's record as it travels: without what may be secret, which
// leftOut names.
func (s *Session) Taken() (record json.RawMessage, leftOut []string, err error) {
	s.mu.Lock()
	rec := s.rec
	if !s.behind.Load() {
		rec.NotedSeq = s.Log().Appended()
	}
	s.mu.Unlock()
	if len(rec.OwnCredentials) > 0 {
		for _, name := range rec.OwnCredentials {
			leftOut = append(leftOut, "credentials."+name)
		}
	}
	rec.Earlier, rec.Granted = nil, nil // of this machine
	rec.Version, rec.Closed, rec.Arriving, rec.Before, rec.Imported, rec.LastSeq, rec.BoundSeq, rec.LogEnd = recordVersion, false, false, nil, false, 0, 0, nil
	rec.OpenFrom = 0
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

// Kept returns a text that is kept beside the session, nil when there is none.
func (s *Session) Kept(name string) ([]byte, error) {
	if s.set.store.dir == "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.kept[name], nil
	}
	var text []byte
	err := s.inFolder(func() (err error) {
		text, err = s.set.store.kept(s.id, name)
		return err
	})
	return text, err
}

// KeepText keeps a text beside the session, by a plain name.
func (s *Session) KeepText(name string, text []byte) error {
	if s.set.store.dir == "" {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.kept == nil {
			s.kept = map[string][]byte{}
		}
		s.kept[name] = text
		return nil
	}
	return s.inFolder(func() error { return s.set.store.keep(s.id, name, text) })
}

// Arriving reports whether the session has come from another gateway and was not opened
// since.
func (s *Session) Arriving() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rec.Arriving
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

// travelling is the folder of sessions that are on their way; see endTravels.
const travelling = "travelling"

// Stage is where in its folder a session that arrives becomes one of this gateway.
const Stage = "stage/session"

// aside is where in a stage the session lies whose place the one that arrives takes.
func (st store) aside() store { return store{dir: filepath.Join(st.dir, "before")} }

// endTravels ends what was on its way when the gateway was killed. A session that had made
// place for one that has not come is in its place again, Options.Left ends the rest, and
// nothing is left of it. What cannot be ended now, the next start ends.
func (set *Set) endTravels() {
	base := filepath.Join(set.o.DataDir, travelling)
	list, err := os.ReadDir(base)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		set.o.Logger.Warn("look for sessions that were on their way", "err", err)
	}
	for _, e := range list {
		dir := filepath.Join(base, e.Name())
		aside := store{dir: filepath.Join(dir, filepath.FromSlash(Stage))}.aside()
		err := set.putBack(aside)
		if err == nil { // else one would come back at the next start that is deleted by then
			err = os.RemoveAll(aside.dir)
		}
		if err == nil && set.o.Left != nil {
			err = set.o.Left(dir, set.store.kept)
		}
		if err == nil {
			err = os.RemoveAll(dir)
		}
		if err != nil {
			set.o.Logger.Warn("end what was on its way", "folder", dir, "err", err)
		}
	}
}

// putBack puts sessions in their places again that were replaced by none.
func (set *Set) putBack(aside store) error {
	old, err := os.ReadDir(aside.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("look for a session that was replaced: %w", err)
	}
	for _, one := range old {
		place := filepath.Join(set.store.dir, one.Name())
		if _, err := os.Lstat(place); err == nil {
			continue // the other one has come
		}
		if err := os.Rename(filepath.Join(aside.dir, one.Name()), place); err != nil {
			return fmt.Errorf("put a session back that was not replaced: %w", err)
		}
	}
	return nil
}

// kept returns a text that is kept beside a session, nil when there is none.
func (st store) kept(id, name string) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(st.path(id), name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// keep writes a text beside a session.
func (st store) keep(id, name string, text []byte) error {
	if err := journal.ReplaceFile(filepath.Join(st.path(id), name), text); err != nil {
		return fmt.Errorf("keep %s of a session: %w", name, err)
	}
	return nil
}
