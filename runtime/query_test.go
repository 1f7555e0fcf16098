package runtime

import (
	"context"
	"testing"
	"time"

	"sandboxagent.dev/sandbox-agent/acp/problem"
)

// Who goes on behind an event that the session never had is told so: one with the same id was deleted, and what is said
// under the numbers up to there would be missed.
func TestEvents_BehindOneThatNeverWas(t *testing.T) {
	a := &fakeAgent{shared: make(chan sent, 8)}
	r := newRuntime(t, t.TempDir(), a)
	tc := connect(t, r, "")
	say := func(chunks int) (newest uint64) {
		id := tc.request("session/prompt", prompt("s", "go"))
		m := a.nextOf(t, "session/prompt")
		for range chunks {
			m.to.chunk(string(m.m.Session()), "a word")
		}
		a.answer(m, `{"stopReason":"end_turn"}`)
		tc.until(id)
		info, err := r.Session("s")
		if err != nil {
			t.Fatal(err)
		}
		return info.EventCount
	}
	tc.newWith(`{"requestedSessionId":"s"}`)
	before := say(20)
	tc.call("session/delete", `{"sessionId":"s"}`)
	tc.newWith(`{"requestedSessionId":"s"}`)
	newest := say(1)
	refused := func(what string, err error) {
		t.Helper()
		if p := problem.From(err); p.Kind != problem.InvalidRequest || p.Extensions["parameter"] != "after" {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, _, err := r.Events(t.Context(), "s", before, 10)
	refused("events", err)
	_, _, err = r.RaisedEvents(t.Context(), "s", before, 10)
	refused("events of version 2", err)
	bounded, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = nil
	for _, err = range r.FollowEvents(bounded, "s", before) {
		break
	}
	refused("to follow", err)
	if events, more, err := r.Events(t.Context(), "s", newest, 10); err != nil || more || len(events) > 0 {
		t.Errorf("behind the newest: %v, %v, %v", events, more, err)
	}
}
