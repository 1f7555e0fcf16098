package codex

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/google/uuid"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// store remembers what codex forgets of sessions: which were made here, what was
// chosen of them, and threads that nobody has prompted, which codex does not
// keep. Its methods are safe for concurrent use.
type store struct {
	dir string
	mu  sync.Mutex // orders changes
}

// record is what is remembered of a session.
type record struct {
	Cwd    string `json:"cwd"`
	Made   bool   `json:"made"`             // here, and not in a terminal
	Thread string `json:"thread,omitempty"` // the thread, when its id is another one
	Mode   string `json:"mode,omitempty"`
	Model  string `json:"model,omitempty"`
	Effort string `json:"effort,omitempty"`
}

func (s *store) path(id string) string { return filepath.Join(s.dir, "sessions", id+".json") }

// load returns the record of a session; one that is not known has none.
func (s *store) load(id string) (record, bool) {
	var r record
	if uuid.Validate(id) != nil || strings.ContainsAny(id, ":{") {
		return r, false // never part of a path
	}
	b, err := os.ReadFile(s.path(id))
	if err != nil || json.Unmarshal(b, &r) != nil {
		return record{}, false
	}
	return r, true
}

// change edits a session's record.
func (s *store) change(id, cwd string, edit func(r *record)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.load(id)
	if !ok {
		r.Cwd = cwd
	}
	before := r
	edit(&r)
	if ok && r == before {
		return nil
	}
	b, err := acp.Encode(r)
	if err != nil {
		return fmt.Errorf("remember session %s: %w", id, err)
	}
	return bridge.WritePrivate(s.path(id), b)
}

// forget removes a session's record.
func (s *store) forget(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := os.Remove(s.path(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget session %s: %w", id, err)
	}
	return nil
}

// aliases returns the sessions whose threads have other ids, by thread.
func (s *store) aliases() map[string]string {
	out := map[string]string{}
	found, _ := filepath.Glob(filepath.Join(s.dir, "sessions", "*.json"))
	for _, f := range found {
		id := strings.TrimSuffix(filepath.Base(f), ".json")
		if r, ok := s.load(id); ok && r.Thread != "" {
			out[r.Thread] = id
		}
	}
	return out
}
