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

// A request that is open no more is missing only where what says so has gone, and is missing once.
func TestDetach_ARequestThatIsOpenNoMore(t *testing.T) {
	done := func(t *testing.T, s *asking, _ *Client) { s.decide(t, journal.Everyone) }
	drops := func(_ *testing.T, s *asking, _ *Client) {
		for range 20 {
			s.says(10 << 10)
		}
	}
	leave := func(_ *testing.T, s *asking, c *Client) { c.Detach(s) }
	resume := func(_ *testing.T, s *asking, c *Client) { c.Attach(s, s.log.Appended(), 0) }
	from := func(_ *testing.T, s *asking, c *Client) { c.Attach(s, s.log.Appended()-1, 0) }
	fails := func(t *testing.T, _ *asking, c *Client) {
		if _, err := c.streams[""].Poll(64 << 10); err == nil || problem.From(err).Kind != problem.EventsExpired {
			t.Errorf("what is missing: %v", err)
		}
	}
	type steps []func(t *testing.T, s *asking, c *Client)
	for name, tt := range map[string]struct {
		steps steps
		told  int
	}{
		"it is left":                        {steps{drops, done, leave}, 1},
		"it is gone on with":                {steps{drops, done, resume}, 1},
		"it is gone on with in front of it": {steps{drops, done, from}, 1},
		"it is told and left again":         {steps{drops, done, leave, resume, drops, leave}, 1},
		"it is missing once":                {steps{done, drops, leave, fails, resume, drops, leave}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := &asking{plain: &plain{}}
			var err error
			if s.log, err = journal.Open("", journal.Options{Memory: 64 << 10}); err != nil {
				t.Fatal(err)
			}
			c := NewClient("c", 1, Capabilities{}, acp.OneStream, s, NewUnread(1<<20))
			defer c.Close()
			st, err := c.Stream("", nil)
			if err != nil {
				t.Fatal(err)
			}
			c.Attach(s, 0, 0)
			c.given[7] = "s"
			for _, step := range tt.steps {
				step(t, s, c)
			}
			if got := readAll(t, st); count(got, "cancel_request") != tt.told {
				t.Errorf("it is told in %q", got)
			}
			if len(c.given) > 0 {
				t.Errorf("it holds %v", c.given)
			}
		})
	}
}
