package main_test

import (
	"bytes"
	"sync/atomic"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/acptest"
)

// Of the updates beyond the first ones only some are checked: validation costs
// a hundred times as much as delivery.
const (
	checkedUpdates = 500
	checkedEvery   = 100
)

// checker returns a function that checks the frames of one connection against
// the ACP schema; direction is "in" for those of the gateway.
func checker(t testing.TB) func(direction string, frame []byte) {
	t.Helper()
	r := acptest.NewRecorder(t)
	var updates atomic.Int64
	return func(direction string, frame []byte) {
		if direction == "out" {
			r.Client(frame)
			return
		}
		if bytes.Contains(frame[:min(len(frame), 64)], []byte(`"session/update"`)) {
			if n := updates.Add(1); n > checkedUpdates && n%checkedEvery != 0 {
				return
			}
		}
		if err := r.Gateway(frame); err != nil {
			t.Error(err)
		}
	}
}
