package amp

import (
	"strings"

	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

// record is what is remembered of a session that was made here.
type record struct {
	Cwd    string `json:"cwd"`
	Thread string `json:"thread"`         // that goes on with the session
	Said   bool   `json:"said,omitempty"` // the thread has something to go on with
	Mode   string `json:"mode,omitempty"`
	// Open are the calls that have no end. When the gateway is killed, nobody else
	// tells of theirs.
	Open []string `json:"open,omitempty"`
	// Granted is what the client has allowed for the session, as [grant] names it.
	Granted bridge.Grants `json:"granted,omitempty"`
}

var _ adapters.Granter = Adapter{}

// Grants implements [adapters.Granter].
func (Adapter) Grants(o adapters.Options, session string) []adapters.Grant {
	r, _ := newStore(o.StateDir).Load(session)
	return r.Granted.List()
}

// Forget implements [adapters.Granter].
func (Adapter) Forget(o adapters.Options, session string, ids []string) error {
	return newStore(o.StateDir).Change(session, func(r *record) { r.Granted.Forget(ids) })
}

// Recorded implements [adapters.Recorder].
func (Adapter) Recorded(o adapters.Options, session string) adapters.Recorded {
	if !isThread(session) {
		return adapters.Recorded{}
	}
	r, _ := newStore(o.StateDir).Load(session)
	return adapters.Recorded{Written: bridge.Written((&agent{o: o}).threadFile(bridge.FirstOf(r.Thread, session)))}
}

func newStore(dir string) *bridge.Store[record] {
	return &bridge.Store[record]{Dir: dir, Valid: isThread}
}

// isThread reports whether an id has the form of a thread's: T-UUID.
func isThread(id string) bool {
	rest, ok := strings.CutPrefix(id, "T-")
	return ok && bridge.IsUUID(rest)
}
