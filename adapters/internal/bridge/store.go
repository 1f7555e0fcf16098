package bridge

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sync"

	"sandboxagent.dev/sandbox-agent/acp"
)

// Store keeps one small record for each session in files that only this user can
// read. Its methods are safe for concurrent use; two stores must not share a
// directory.
type Store[T comparable] struct {
	dir string
	mu  sync.Mutex // orders changes
}

// NewStore returns the store of a directory, which is made when it is needed.
func NewStore[T comparable](dir string) *Store[T] { return &Store[T]{dir: dir} }

// storable are the ids that can be a file's name; others have no record.
var storable = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

func (s *Store[T]) path(id string) string { return filepath.Join(s.dir, id+".json") }

// Load returns the record of a session; one that is not known has none.
func (s *Store[T]) Load(id string) (record T, ok bool) {
	if !storable.MatchString(id) {
		return record, false
	}
	b, err := os.ReadFile(s.path(id))
	if err != nil || json.Unmarshal(b, &record) != nil {
		return *new(T), false
	}
	return record, true
}

// Change edits the record of a session, which is empty for a new one.
func (s *Store[T]) Change(id string, edit func(record *T)) error {
	if !storable.MatchString(id) {
		return fmt.Errorf("remember session %q: its id cannot be a file's name", id)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now, ok := s.Load(id)
	before := now
	edit(&now)
	if ok && now == before {
		return nil
	}
	b, err := acp.Encode(now)
	if err != nil {
		return fmt.Errorf("remember session %s: %w", id, err)
	}
	return WritePrivate(s.path(id), b)
}

// Forget removes the record of a session.
func (s *Store[T]) Forget(id string) error {
	if !storable.MatchString(id) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := os.Remove(s.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget session %s: %w", id, err)
	}
	return nil
}
