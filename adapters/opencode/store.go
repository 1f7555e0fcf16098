package opencode

import (
	"path/filepath"

	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

var _ adapters.Recorder = Adapter{}

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

// Recorded implements [adapters.Recorder]. The program keeps all sessions in one database.
func (Adapter) Recorded(o adapters.Options, session string) adapters.Recorded {
	if !native.MatchString(session) {
		return adapters.Recorded{Shared: true}
	}
	file := filepath.Join(bridge.DataDir(bridge.Environ(o, nil), ID), "opencode.db")
	at := bridge.Written(file)
	if newer := bridge.Written(file + "-wal"); newer.After(at) { // what is not in the file yet
		at = newer
	}
	return adapters.Recorded{Written: at, Shared: true}
}
