package viewer

import (
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
	"sandboxagent.dev/sandbox-agent/runtime/observe"
)

// Who leaves a session of which the log has let go is given what is left of what it waits for, and is told when some of that is missing, and
// only then.
func TestDetach_WhatIsGone(t *testing.T) {
	for name, shape := range map[string]acp.Shape{"one stream": acp.OneStream, "a stream per session": acp.PerSession} {
		for missing, tt := range map[string]struct{ response, ask, told bool }{
			"nothing": {}, "a response": {response: true, told: true}, "that a request is open no more": {ask: true, told: true},
		} {
			t.Run(name+", "+missing, func(t *testing.T) {
				s := &asking{plain: &plain{}}
				var err error
				if s.log, err = journal.Open("", journal.Options{Memory: 64 << 10}); err != nil {
					t.Fatal(err)
				}
				c := NewClient("c", 1, Capabilities{}, shape, s, NewUnread(1<<20))
				defer c.Close()
				st, err := c.Stream("", nil)
				if err != nil {
					t.Fatal(err)
				}
				c.Attach(s, 0, 0)
				answers := func(id string) {
					m := acp.NewRequest(acp.ID(`"`+id+`"`), acp.MethodSessionPrompt, []byte(`{"sessionId":"s"}`))
					c.Accept(&m, nil, func() observe.Span { return observe.NoSpan{} }).Result(s, []byte(`{}`))
				}
				if tt.response {
					answers("gone")
				}
				if tt.ask {
					c.given[7] = "s"
				}
				c.given[8] = "of another session"
				for range 20 {
					s.says(10 << 10)
				}
				answers("newest")
				c.Detach(s)
				select {
				case <-st.Wake():
				default:
					t.Error("its stream is not told")
				}
				if tt.told {
					if _, err := st.Poll(64 << 10); err == nil || problem.From(err).Kind != problem.EventsExpired || !strings.Contains(err.Error(), "load it anew") {
						t.Errorf("what is missing: %v", err)
					}
				}
				if got := readAll(t, st); count(got, `"newest"`) != 1 {
					t.Errorf("it is given %q", got)
				}
			})
		}
	}
}
