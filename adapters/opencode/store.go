package opencode

import (
	"path/filepath"

	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

var _ adapters.Recorder = Adapter{}

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
