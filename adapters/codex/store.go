package codex

import (
	"path/filepath"

	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// store remembers what codex forgets of sessions: which were made here, what was
// chosen of them, and threads that nobody has prompted, which codex does not
// keep. Its methods are safe for concurrent use.
type store struct{ bridge.Store[record] }

func newStore(dir string) *store { return &store{bridge.Store[record]{Dir: dir}} }

// record is what is remembered of a session.
type record struct {
	Cwd    string `json:"cwd"`
	Made   bool   `json:"made"`             // here, and not in a terminal
	Thread string `json:"thread,omitempty"` // the thread, when its id is another one
	bridge.Mode
	Model  string `json:"model,omitempty"`
	Effort string `json:"effort,omitempty"`
	// Archived says that codex was told to put the thread into its archive, and has not taken it out again; see letGo.
	Archived bool `json:"archived,omitempty"`
	// Granted is what the client has allowed for longer than a turn. Codex keeps it: with the thread, as long as that is loaded, or
	// in a file of its own.
	Granted bridge.Grants `json:"granted,omitempty"`
}

var _ adapters.Granter = Adapter{}

// Grants implements [adapters.Granter].
func (Adapter) Grants(o adapters.Options, session string) []adapters.Grant {
	r, _ := newStore(o.StateDir).Load(session)
	return r.Granted.List()
}

// Forget implements [adapters.Granter]. With the thread, which is not loaded, codex has forgotten what it kept with it.
func (Adapter) Forget(o adapters.Options, session string, ids []string) error {
	return newStore(o.StateDir).Change(session, func(r *record) {
		r.Granted.Reopened()
		r.Granted.Forget(ids)
	})
}

// change edits a session's record, and saves it when it is another one then.
func (s *store) change(id, cwd string, edit func(r *record)) error {
	return s.Change(id, func(r *record) {
		r.Cwd = bridge.FirstOf(r.Cwd, cwd)
		edit(r)
	})
}

// Recorded implements [adapters.Recorder].
func (Adapter) Recorded(o adapters.Options, session string) adapters.Recorded {
	if !bridge.IsUUID(session) {
		return adapters.Recorded{}
	}
	r, _ := newStore(o.StateDir).Load(session)
	found, _ := filepath.Glob(filepath.Join(home((&agent{o: o}).environ()), "sessions", "*", "*", "*", "rollout-*-"+bridge.FirstOf(r.Thread, session)+".jsonl"))
	if len(found) == 0 {
		return adapters.Recorded{}
	}
	return bridge.Recorded(found[len(found)-1])
}

// aliases returns the sessions whose threads have other ids, by thread.
func (s *store) aliases() map[string]string {
	out := map[string]string{}
	for id, r := range s.All() {
		if r.Thread != "" {
			out[r.Thread] = id
		}
	}
	return out
}
