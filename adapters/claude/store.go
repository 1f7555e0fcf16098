package claude

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// store remembers which sessions were made here, and what the program calls them
// now. Only those are ever deleted. Its methods are safe for concurrent use.
type store struct {
	dir string
	mu  sync.Mutex // orders changes
}

// record is what is remembered of a session.
type record struct {
	Cwd    string   `json:"cwd"`
	Made   bool     `json:"made"`             // here, and not in a terminal
	Native []string `json:"native,omitempty"` // further native ids, newest last
	Fork   string   `json:"fork,omitempty"`   // the session that it was forked from

	// What was chosen last. The program forgets it when it ends.
	Mode   string  `json:"mode,omitempty"`
	Model  string  `json:"model,omitempty"`
	Effort string  `json:"effort,omitempty"`
	Cost   float64 `json:"cost,omitempty"` // so far, in USD
}

// newest is the native id that continues the session.
func (r record) newest(id string) string {
	if n := len(r.Native); n > 0 {
		return r.Native[n-1]
	}
	return id
}

func (s *store) path(id string) string { return filepath.Join(s.dir, "sessions", id+".json") }

// load returns the record of a session; one that is not known has none.
func (s *store) load(id string) (record, bool) {
	var r record
	if !isUUID(id) {
		return r, false
	}
	b, err := os.ReadFile(s.path(id))
	if err != nil || json.Unmarshal(b, &r) != nil {
		return record{}, false
	}
	return r, true
}

func (s *store) save(id string, r record) error {
	b, err := acp.Encode(r)
	if err != nil {
		return fmt.Errorf("remember session %s: %w", id, err)
	}
	return bridge.WritePrivate(s.path(id), b)
}

// made remembers a new session.
func (s *store) made(id, cwd, fork string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.save(id, record{Cwd: cwd, Made: true, Fork: fork})
}

// change edits a session's record, and saves it when it is another one then.
func (s *store) change(id, cwd string, edit func(r *record)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, ok := s.load(id)
	if !ok {
		r.Cwd = cwd
	}
	before, _ := json.Marshal(r)
	edit(&r)
	if after, err := json.Marshal(r); err == nil && string(after) == string(before) {
		return nil
	}
	return s.save(id, r)
}

// renamed says that the conversation goes on under another native id.
func (r *record) renamed(id, native string) {
	if r.newest(id) != native {
		r.Native = append(r.Native, native)
	}
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

// isUUID reports whether an id has the form of the program's own. Others never
// become part of a path.
func isUUID(id string) bool {
	if len(id) != 36 {
		return false
	}
	for i := range len(id) {
		c := id[i]
		switch dash := i == 8 || i == 13 || i == 18 || i == 23; {
		case dash != (c == '-'):
			return false
		case !dash && !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'):
			return false
		}
	}
	return true
}

// aliases returns the sessions that were made here, by the native id that
// continues them, and their earlier native ids with "".
func (s *store) aliases() map[string]string {
	out := map[string]string{}
	found, _ := filepath.Glob(filepath.Join(s.dir, "sessions", "*.json"))
	for _, f := range found {
		id := strings.TrimSuffix(filepath.Base(f), ".json")
		r, ok := s.load(id)
		if !ok || !r.Made {
			continue
		}
		for _, native := range append([]string{id}, r.Native...) {
			out[native] = ""
		}
		out[r.newest(id)] = id
	}
	return out
}
