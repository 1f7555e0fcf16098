package viewer

import (
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/acp"
	"sandboxagent.dev/sandbox-agent/acp/problem"
	"sandboxagent.dev/sandbox-agent/runtime/journal"
)

// Who leaves a session of which the log has let go is given what is left of what it waits for, and is told that something is missing.
func TestDetach_WhatIsGone(t *testing.T) {
	for name, shape := range map[string]acp.Shape{"one stream": acp.OneStream, "a stream per session": acp.PerSession} {
		t.Run(name, func(t *testing.T) {
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
			for range 20 {
				s.says(10 << 10)
			}
			if _, err := s.log.AppendFlush(journal.Response, c.Number(), []byte(`{"jsonrpc":"2.0","id":"newest","result":{}}`)); err != nil {
				t.Fatal(err)
			}
			c.Detach(s)
			select {
			case <-st.Wake():
			default:
				t.Error("its stream is not told")
			}
			if _, err := st.Poll(64 << 10); err == nil || problem.From(err).Kind != problem.EventsExpired || !strings.Contains(err.Error(), "load it anew") {
				t.Errorf("what is missing: %v", err)
			}
			if got := readAll(t, st); count(got, `"newest"`) != 1 {
				t.Errorf("it is given %q", got)
			}
		})
	}
}
