package main

import (
	"encoding/json"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/runtime"
)

// A line is shown when it says something new, whatever has changed and however often that is told.
func TestSessionsWatch_ShowsDifferences(t *testing.T) {
	w := &changePrinter{shown: map[string]string{}}
	session := runtime.SessionInfo{ID: "s", State: runtime.StateIdle, Agent: "mock", UpdatedAt: time.Now()}
	is := func(change func(s *runtime.SessionInfo)) runtime.SessionChange {
		change(&session)
		now := session
		return runtime.SessionChange{Type: runtime.ChangeSession, Session: &now}
	}
	for _, step := range []struct {
		what   string
		change runtime.SessionChange
		lines  int
	}{
		{"the list is told", runtime.SessionChange{Type: runtime.ChangeReset}, 0},
		{"a session of it", is(func(*runtime.SessionInfo) {}), 1},
		{"its end", runtime.SessionChange{Type: runtime.ChangeCurrent}, 0},
		{"what no line has", is(func(s *runtime.SessionInfo) { s.Metadata = json.RawMessage(`{"a":1}`) }), 0},
		{"an event", is(func(s *runtime.SessionInfo) { s.EventCount++ }), 1},
		{"the list is told anew", runtime.SessionChange{Type: runtime.ChangeReset}, 0},
		{"as it was", is(func(*runtime.SessionInfo) {}), 0},
		{"its end again", runtime.SessionChange{Type: runtime.ChangeCurrent}, 0},
		{"the list is told without it", runtime.SessionChange{Type: runtime.ChangeReset}, 0},
		{"with one that was never shown", runtime.SessionChange{Type: runtime.ChangeDeleted, SessionID: "before"}, 0},
		{"and ends", runtime.SessionChange{Type: runtime.ChangeCurrent}, 1},
	} {
		if got := w.lines(listChange{SessionChange: step.change}); len(got) != step.lines {
			t.Errorf("%s: it shows %q, want %d lines", step.what, got, step.lines)
		}
	}
}
