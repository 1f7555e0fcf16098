package bridge_test

import (
	"strings"
	"testing"

	"sandboxagent.dev/sandbox-agent/adapters/internal/bridge"
)

func TestEcho_ShowsOnceWhatIsSaidAgain(t *testing.T) {
	type say struct{ id, text string }
	for name, one := range map[string]struct {
		before, after []say
		want          string // of what comes after
	}{
		"the same, and more":  {[]say{{"a", "one two"}}, []say{{"b", "one "}, {"b", "two three"}, {"b", " four"}}, "a: three|a: four"},
		"another text":        {[]say{{"a", "one two"}}, []say{{"b", "one "}, {"b", "else"}, {"b", "!"}}, "b:one else|b:!"},
		"less":                {[]say{{"a", "one two"}}, []say{{"b", "one"}}, ""},
		"two messages, again": {[]say{{"a", "one"}, {"x", "two"}}, []say{{"b", "one"}, {"y", "two!"}}, "x:!"},
	} {
		t.Run(name, func(t *testing.T) {
			var e bridge.Echo
			e.Begin()
			for _, s := range one.before {
				e.Say(s.id, s.text, false)
			}
			e.Broken()
			var got []string
			for _, s := range one.after {
				for _, u := range e.Say(s.id, s.text, false) {
					got = append(got, string(u.AgentMessageChunk.MessageID)+":"+u.AgentMessageChunk.Content.Text.Text)
				}
			}
			if s := strings.Join(got, "|"); s != one.want {
				t.Errorf("got %q, want %q", s, one.want)
			}
		})
	}
}
