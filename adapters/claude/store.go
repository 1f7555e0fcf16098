package claude

import (
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// store remembers which sessions were made here, and what the program calls them
// now. Only those are ever deleted. Its methods are safe for concurrent use.
type store struct{ bridge.Store[record] }

func newStore(dir string) *store { return &store{bridge.Store[record]{Dir: dir}} }

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

// made remembers a new session.
func (s *store) made(id, cwd, fork string) error {
	return s.Change(id, func(r *record) { *r = record{Cwd: cwd, Made: true, Fork: fork} })
}

// change edits a session's record, and saves it when it is another one then.
func (s *store) change(id, cwd string, edit func(r *record)) error {
	return s.Change(id, func(r *record) {
		r.Cwd = bridge.FirstOf(r.Cwd, cwd)
		edit(r)
	})
}

// renamed says that the conversation goes on under another native id.
func (r *record) renamed(id, native string) {
	if r.newest(id) != native {
		r.Native = append(r.Native, native)
	}
}

// aliases returns the sessions that were made here, by the native id that
// continues them, and their earlier native ids with "".
func (s *store) aliases() map[string]string {
	out := map[string]string{}
	for id, r := range s.All() {
		if !r.Made {
			continue
		}
		for _, native := range append([]string{id}, r.Native...) {
			out[native] = ""
		}
		out[r.newest(id)] = id
	}
	return out
}
