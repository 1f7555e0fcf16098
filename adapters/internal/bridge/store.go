package bridge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"

	"sandboxagent.dev/sandbox-agent/acp/schema"
)

// Store keeps a record R of each session in a folder, for what agents forget.
// Its methods are safe for concurrent use. A session's id must be a UUID in the
// usual form, or what Valid says: others never become part of a path, and have no
// record.
type Store[R any] struct {
	Dir string
	// Valid reports whether an id can be a file's name; nil is IsUUID.
	Valid func(id string) bool

	mu        sync.Mutex // orders changes
	forgotten []string   // ids, oldest first; at most maxForgotten, later changes of older ones are remembered again
}

// maxForgotten bounds the sessions of which it is known that they were forgotten: what is still under way for one ends in moments.
const maxForgotten = 1024

// upgrader is a record that earlier versions have written in another way: Upgrade makes it that of this one.
type upgrader interface{ Upgrade() }

func (s *Store[R]) path(id string) string { return filepath.Join(s.Dir, "sessions", id+".json") }

// IsUUID reports whether an id has the usual form of a UUID.
func IsUUID(id string) bool { return len(id) == 36 && uuid.Validate(id) == nil }

func (s *Store[R]) valid(id string) bool {
	if s.Valid != nil {
		return s.Valid(id)
	}
	return IsUUID(id)
}

// Load returns the record of a session; one that is not known has none.
func (s *Store[R]) Load(id string) (R, bool) {
	var none R
	if !s.valid(id) {
		return none, false
	}
	r, err := s.read(id)
	if err != nil {
		return none, false
	}
	return r, true
}

// errNone says that a session has no record: none was written, or not all of it before a power cut.
var errNone = errors.New("it has none")

func (s *Store[R]) read(id string) (r R, err error) {
	b, err := os.ReadFile(s.path(id))
	if errors.Is(err, fs.ErrNotExist) || err == nil && !json.Valid(b) {
		return r, errNone
	}
	if err == nil {
		err = json.Unmarshal(b, &r)
	}
	if old, ok := any(&r).(upgrader); ok {
		old.Upgrade()
	}
	return r, err
}

// Change edits a session's record, and saves it when it is another one then. A
// session that has none gets the record that edit makes of the zero value. One that cannot be
// read stays as it is; of one that a newer version has written, members that R does not have
// are lost. One that was forgotten is not remembered again: what was asked of a session may go on behind its end.
func (s *Store[R]) Change(id string, edit func(r *R)) error {
	if !s.valid(id) {
		return fmt.Errorf("remember session %q: its id cannot be a file's name", id)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r, err := s.read(id)
	ok := err == nil
	switch {
	case ok:
	case !errors.Is(err, errNone):
		return fmt.Errorf("remember session %s: read what is remembered: %w", id, err)
	case slices.Contains(s.forgotten, id):
		return nil
	}
	before, err := schema.Encode(r)
	if err != nil {
		return fmt.Errorf("remember session %s: %w", id, err)
	}
	edit(&r)
	after, err := schema.Encode(r)
	if err != nil {
		return fmt.Errorf("remember session %s: %w", id, err)
	}
	if ok && bytes.Equal(before, after) {
		return nil
	}
	return WritePrivate(s.path(id), after)
}

// Forget removes a session's record, for good.
func (s *Store[R]) Forget(id string) error {
	if !s.valid(id) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.forgotten, id) {
		s.forgotten = append(s.forgotten, id)
		s.forgotten = s.forgotten[max(0, len(s.forgotten)-maxForgotten):]
	}
	if err := os.Remove(s.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget session %s: %w", id, err)
	}
	return nil
}

// All returns all records by session.
func (s *Store[R]) All() map[string]R {
	out := map[string]R{}
	found, _ := filepath.Glob(filepath.Join(s.Dir, "sessions", "*.json"))
	for _, f := range found {
		id := strings.TrimSuffix(filepath.Base(f), ".json")
		if r, ok := s.Load(id); ok {
			out[id] = r
		}
	}
	return out
}
