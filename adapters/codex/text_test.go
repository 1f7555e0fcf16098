package codex

import (
	"strings"
	"testing"
	"unicode/utf8"
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
			var e echo
			e.begin()
			for _, s := range one.before {
				e.say(s.id, s.text, false)
			}
			e.broken()
			var got []string
			for _, s := range one.after {
				for _, p := range e.say(s.id, s.text, false) {
					if p.text != "" {
						got = append(got, p.id+":"+p.text)
					}
				}
			}
			if s := strings.Join(got, "|"); s != one.want {
				t.Errorf("got %q, want %q", s, one.want)
			}
		})
	}
}

func TestCapped(t *testing.T) {
	if s := strings.Repeat("é", 100); capped(s) != s {
		t.Error("a short text is changed")
	}
	s := capped("BEGIN" + strings.Repeat("é", maxOutput) + "END")
	if len(s) > maxOutput+100 || !utf8.ValidString(s) || !strings.HasPrefix(s, "BEGIN") || !strings.HasSuffix(s, "END") || !strings.Contains(s, "bytes left out") {
		t.Errorf("%d bytes: %.20q ... %.20q", len(s), s, s[max(0, len(s)-20):])
	}
}
