package main_test

import (
	"bytes"
	"sync"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp/acptest"
)

// shapes are updates that were found valid, with a single zero in place of each
// run of digits. The schema says of numbers that they are integers and not
// negative, which every update of a shape is when one is.
var shapes sync.Map

// shape returns the frame with its runs of digits made equal; frames that are
// large or differ in more than numbers are simply shapes of their own.
func shape(frame []byte) string {
	out := make([]byte, 0, len(frame))
	for _, c := range frame {
		if c >= '0' && c <= '9' {
			if n := len(out); n > 0 && out[n-1] == '0' {
				continue
			}
			c = '0'
		}
		out = append(out, c)
	}
	return string(out)
}

// checker returns a function that checks every frame of one connection against
// the ACP schema; direction is "in" for those of the gateway.
func checker(t testing.TB) func(direction string, frame []byte) {
	t.Helper()
	r := acptest.NewRecorder(t)
	return func(direction string, frame []byte) {
		if direction == "out" {
			r.Client(frame)
			return
		}
		key := ""
		if len(frame) < 4096 && bytes.Contains(frame[:min(len(frame), 64)], []byte(`"session/update"`)) {
			key = shape(frame)
			if _, ok := shapes.Load(key); ok {
				return
			}
		}
		if err := r.Gateway(frame); err != nil {
			t.Error(err)
			return
		}
		if key != "" {
			shapes.Store(key, true)
		}
	}
}
