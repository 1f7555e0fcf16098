package opencode

import (
	"path/filepath"
	"time"

	"sandboxagent.dev/sandbox-agent/adapters"
	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

var _ adapters.Recorder = Adapter{}

// Recorded implements [adapters.Recorder]. The program keeps all sessions in one database.
func (Adapter) Recorded(o adapters.Options, session string) (at time.Time, shared bool) {
	if !native.MatchString(session) {
		return time.Time{}, true
	}
	file := filepath.Join(bridge.DataDir(bridge.Environ(o, nil), ID), "opencode.db")
	at = bridge.Written(file)
	if newer := bridge.Written(file + "-wal"); newer.After(at) { // what is not in the file yet
		at = newer
	}
	return at, true
}
